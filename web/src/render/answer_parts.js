// @ts-check
// Splits an answer's text, as it comes, into prose and what a model writes for itself (thinking) or for tools (calls).
//
// Marks count only where models put them: at the start of the answer or right behind another block; that of a call also
// at the start of a line, outside of a code fence, and Mistral's anywhere in one. A template may have begun the thinking
// in the prompt, which the server tells (inThought). Turns of older servers have only the closing </think>: the text
// before it was thinking. A mark can arrive in pieces, so a possible start of one is held back until more text comes.

/** @typedef {'prose' | 'think' | 'call'} Kind */
/** @typedef {{begin: (kind: Kind) => void, add: (text: string) => void, end: () => void, wasThinking: () => void}} Sink */

const THOUGHT = '</think>';
const THOUGHT_ENDS = [THOUGHT, '[/THINK]', '<|end|>']; // of thinking that the prompt has begun
const MISTRAL = '[TOOL_CALLS]'; // ends where another one begins
/** What begins a block, its kind, and what ends it. @type {Array<[string, Kind, string[]]>} */
const MARKS = [
  ['<think>', 'think', [THOUGHT]],
  ['[THINK]', 'think', ['[/THINK]']],
  ['<tool_call>', 'call', ['</tool_call>']],
  [MISTRAL, 'call', [MISTRAL]],
  ['<|python_tag|>', 'call', []],
];
// Channels of the harmony format: analysis, final, and commentary to a function.
const HEADER = /^(?:<\|start\|>assistant([^<]*))?<\|channel\|>([^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>/;
const CHANNEL_ENDS = ['<|end|>', '<|call|>', '<|return|>'];
const MAX_HEADER = 300;
const CHANNEL_OPENINGS = ['<|channel|>', '<|start|>assistant'];
const OPENINGS = MARKS.map(([mark]) => mark);

/** How many characters at the end of a text may be the start of a mark. @param {string} text @param {string} mark */
function heldBack(text, mark) {
  for (let n = Math.min(mark.length - 1, text.length); n > 0; n--) if (mark.startsWith(text.slice(-n))) return n;
  return 0;
}

export class AnswerParts {
  /** @param {Sink} sink */
  constructor(sink) {
    this.sink = sink;
    /** @type {Kind | 'start'} */
    this.mode = 'start';
    this.rest = ''; // not passed on yet
    this.line = ''; // the start of the current line of prose
    this.fence = '';
    this.inThought = false; // the prompt has begun the thinking
    this.bare = true; // a </think> without a beginning may come
    /** @type {string[] | null} */
    this.ends = null; // of the block; null: prose that ends with the answer or at a mark
  }

  /** @param {string} text @param {boolean} over whether no more text is known to come */
  push(text, over) {
    this.rest += text;
    while (this.#step(over));
  }

  /** @param {boolean} over @returns {boolean} whether there may be more to do */
  #step(over) {
    if (!this.rest) return false;
    if (this.mode === 'start') return this.#start(over);
    return this.ends ? this.#inside(this.ends, over) : this.#prose(over);
  }

  /** @param {Kind} kind @param {string} rest @param {string[] | null} [ends] */
  #begin(kind, rest, ends = null) {
    if (ends) this.bare = false;
    this.inThought = false;
    this.ends = ends;
    this.mode = kind;
    this.rest = rest;
    this.line = '';
    this.fence = '';
    this.sink.begin(kind);
    return true;
  }

  /** @param {boolean} over */
  #start(over) {
    const text = this.rest.trimStart();
    const header = HEADER.exec(text);
    if (header) return this.#beginChannel(header, text.slice(header[0].length));
    const inHeader = CHANNEL_OPENINGS.some((opening) => opening.startsWith(text) || (text.startsWith(opening) && text.length < MAX_HEADER));
    if (this.inThought) {
      if (inHeader && !over) return false;
      return this.#begin('think', this.rest, THOUGHT_ENDS);
    }
    const mark = MARKS.find(([opening]) => text.startsWith(opening));
    if (mark) return this.#begin(mark[1], text.slice(mark[0].length), mark[2]);
    const opens = inHeader || OPENINGS.some((opening) => opening.startsWith(text));
    if (!text || (!over && opens)) return false;
    return this.#begin('prose', this.bare ? this.rest : text);
  }

  /** @param {RegExpExecArray} header @param {string} rest */
  #beginChannel([, recipient = '', channel], rest) {
    const to = /\bto=(?:functions\.)?(\S+)/.exec(recipient + channel)?.[1];
    this.#begin(to ? 'call' : /^\s*analysis/.test(channel) ? 'think' : 'prose', rest, CHANNEL_ENDS);
    if (to) this.sink.add(`${to}[ARGS]`);
    return true;
  }

  /** @param {string[]} marks @param {boolean} over */
  #inside(marks, over) {
    const [mark = '', end = -1] = marks
      .map((one) => /** @type {[string, number]} */ ([one, this.rest.indexOf(one)]))
      .filter(([, at]) => at >= 0)
      .sort((x, y) => x[1] - y[1])[0] ?? [];
    const keep = end >= 0 || over ? 0 : Math.max(0, ...marks.map((one) => heldBack(this.rest, one)));
    const text = this.rest.slice(0, end >= 0 ? end : this.rest.length - keep);
    if (text) this.sink.add(text);
    this.rest = this.rest.slice(text.length + (mark === MISTRAL ? 0 : mark.length));
    if (end < 0) return false;
    this.mode = 'start';
    this.sink.end();
    return true;
  }

  // One line of it, or what has come of one.
  /** @param {boolean} over */
  #prose(over) {
    const atStart = !this.line && !this.fence;
    const text = atStart ? this.rest.trimStart() : '';
    const calls = MARKS.filter(([, kind]) => kind === 'call');
    const call = calls.find(([mark]) => text.startsWith(mark));
    if (call) {
      this.sink.end();
      return this.#begin('call', text.slice(call[0].length), call[2]);
    }
    if (text && !over && calls.some(([mark]) => mark.startsWith(text))) return false;
    const newline = this.rest.indexOf('\n');
    let end = newline < 0 ? this.rest.length : newline + 1;
    if (!this.fence) {
      const at = this.rest.slice(0, end).indexOf(MISTRAL);
      if (at >= 0 && !/`$/.test(this.line + this.rest.slice(0, at))) {
        if (at) this.sink.add(this.rest.slice(0, at));
        this.sink.end();
        return this.#begin('call', this.rest.slice(at + MISTRAL.length), [MISTRAL]);
      }
      if (newline < 0 && !over) end -= heldBack(this.rest, MISTRAL);
    }
    if (this.bare && !this.fence) {
      const at = this.rest.slice(0, end).indexOf(THOUGHT);
      if (at >= 0 && !/`$/.test(this.line + this.rest.slice(0, at))) return this.#thoughtEnds(at);
      if (at < 0 && newline < 0 && !over) end = Math.min(end, this.rest.length - heldBack(this.rest, THOUGHT));
    }
    if (!end) return false;
    this.sink.add(this.rest.slice(0, end));
    this.line += this.rest.slice(0, end);
    this.rest = this.rest.slice(end);
    if (newline >= 0) this.#endLine();
    else this.line = this.line.slice(0, 200) + this.line.slice(200).slice(-1);
    return newline >= 0;
  }

  #endLine() {
    const mark = /^\s*(`{3,}|~{3,})/.exec(this.line)?.[1] ?? '';
    if (!this.fence) this.fence = mark;
    else if (mark.startsWith(this.fence) && this.line.trim() === mark) this.fence = '';
    this.line = '';
  }

  /** @param {number} at */
  #thoughtEnds(at) {
    this.sink.wasThinking();
    if (at) this.sink.add(this.rest.slice(0, at));
    this.rest = this.rest.slice(at + THOUGHT.length);
    this.bare = false;
    this.mode = 'start';
    this.sink.end();
    return true;
  }
}

/**
 * The answer without what the model wrote for itself or for tools; all of it where there is nothing else.
 * @param {{text: string, thinking?: boolean}} turn
 */
export function proseOf({ text, thinking = false }) {
  let prose = '';
  let other = false;
  /** @type {Kind} */
  let kind = 'prose';
  const parts = new AnswerParts({
    begin(begun) {
      kind = begun;
      if (kind !== 'prose') other = true;
    },
    add: (added) => void (kind === 'prose' && (prose += added)),
    end() {},
    wasThinking() {
      prose = '';
      other = true;
      kind = 'think';
    },
  });
  parts.inThought = thinking;
  parts.push(text, true);
  return other && prose.trim() ? prose.trim() : text;
}
