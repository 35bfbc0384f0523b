// @ts-check
// Splits an answer's text, as it comes, into prose and what a model writes for itself (thinking) or for tools (calls).
//
// Marks count only where models put them: <think> at the start of the answer or right behind another block, <tool_call>
// also at the start of a line, outside of a code fence. A template may have begun the thinking in the prompt: then the
// answer has only its </think>, and what came before it was thinking. A mark can arrive in pieces, so a possible start
// of one is held back until more text comes.

/** @typedef {'prose' | 'think' | 'call'} Kind */
/** @typedef {{begin: (kind: Kind) => void, add: (text: string) => void, end: () => void, wasThinking: () => void}} Sink */

const THINK = '<think>';
const THOUGHT = '</think>';
const CALL = '<tool_call>';
const ENDS = { think: THOUGHT, call: '</tool_call>' };

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
    this.bare = true; // a </think> without a beginning may come
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
    return this.mode === 'prose' ? this.#prose(over) : this.#inside(ENDS[this.mode], over);
  }

  /** @param {Kind} kind @param {string} rest */
  #begin(kind, rest) {
    if (kind !== 'prose') this.bare = false;
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
    if (text.startsWith(THINK)) return this.#begin('think', text.slice(THINK.length));
    if (text.startsWith(CALL)) return this.#begin('call', text.slice(CALL.length));
    if (!text || (!over && (THINK.startsWith(text) || CALL.startsWith(text)))) return false;
    return this.#begin('prose', this.bare ? this.rest : text);
  }

  /** @param {string} mark @param {boolean} over */
  #inside(mark, over) {
    const end = this.rest.indexOf(mark);
    const keep = end >= 0 || over ? 0 : heldBack(this.rest, mark);
    const text = this.rest.slice(0, end >= 0 ? end : this.rest.length - keep);
    if (text) this.sink.add(text);
    this.rest = this.rest.slice(text.length + (end >= 0 ? mark.length : 0));
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
    if (text.startsWith(CALL)) {
      this.sink.end();
      return this.#begin('call', text.slice(CALL.length));
    }
    if (text && !over && CALL.startsWith(text)) return false;
    const newline = this.rest.indexOf('\n');
    let end = newline < 0 ? this.rest.length : newline + 1;
    if (this.bare && !this.fence) {
      const at = this.rest.slice(0, end).indexOf(THOUGHT);
      if (at >= 0 && !/`$/.test(this.line + this.rest.slice(0, at))) return this.#thoughtEnds(at);
      if (at < 0 && newline < 0 && !over) end -= heldBack(this.rest, THOUGHT);
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

/** The answer without what the model wrote for itself or for tools; all of it where there is nothing else. @param {string} text */
export function proseOf(text) {
  let prose = '';
  let other = false;
  /** @type {Kind} */
  let kind = 'prose';
  new AnswerParts({
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
  }).push(text, true);
  return other && prose.trim() ? prose.trim() : text;
}
