// @ts-check
// Shows an answer that may grow: prose as Markdown, thinking and tool calls as collapsed blocks (answer_parts.js).
import { h, icon, setText } from '../dom.js';
import { duration, plural } from '../format.js';
import { t } from '../text.js';
import { AnswerParts } from './answer_parts.js';
import { MarkdownStream } from './stream.js';

/** @typedef {import('./answer_parts.js').Kind} Kind */
/** @typedef {{tokens: number, characters: number, ms: number}} Cost of the whole answer, as far as it is there */

// An answer that the page first sees with more tokens than this has begun before: times are not known.
const NEW = 64;

const NAMED = /^\s*([\w.-]+)(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?\s*(\{[^]*)?$/;

/** The name and arguments of a call, or of a list of them. Models write JSON, a name before it, or tags. @param {string} text */
function readCall(text) {
  const [, before, rest] = NAMED.exec(text) ?? [];
  try {
    const calls = before ? [{ name: before, arguments: rest }] : [JSON.parse(text)].flat();
    const bodies = calls.map(({ arguments: given, parameters }) => {
      const values = given ?? parameters ?? {};
      return JSON.stringify(typeof values === 'string' ? JSON.parse(values) : values, null, 2);
    });
    return { name: calls.map(({ name }) => name).join(', '), body: bodies.join('\n'), whole: true };
  } catch {
    const [, quoted, tag] = /"name"\s*:\s*"([^"]*)"|<function=([^>\s]+)/.exec(text) ?? [];
    return { name: before ?? quoted ?? tag ?? '', body: (before ? (rest ?? '') : text).trim() };
  }
}

/** Whether a whole answer is nothing but a call, in plain JSON: Llama's form, and that of a call that is forced. @param {string} text */
function isBareCall(text) {
  try {
    const { name, arguments: given, parameters, ...more } = JSON.parse(text);
    const values = given ?? parameters;
    return typeof name === 'string' && !!values && typeof values === 'object' && !Array.isArray(values) && Object.keys(more).length === 0;
  } catch {
    return false;
  }
}

class Block {
  /** @param {Kind} kind @param {number} tokens of the answer when it began; -1: it did not grow on the page */
  constructor(kind, tokens) {
    this.kind = kind;
    this.text = '';
    this.ended = false;
    this.finished = false;
    this.tokens = tokens;
    this.since = performance.now();
    this.name = h('span', null);
    this.figures = h('span', { class: 'block-figures' });
    this.body = h('div', kind === 'call' ? { class: 'block-call', dir: 'ltr' } : kind === 'think' ? { dir: 'auto' } : null);
    this.element =
      kind === 'prose'
        ? this.body
        : h('details', { class: 'block' }, h('summary', null, icon(kind === 'think' ? 'thought' : 'tool'), this.name, this.figures), this.body);
    this.stream = kind === 'call' ? null : new MarkdownStream(this.body);
  }

  /** @param {string} text */
  add(text) {
    this.text += text;
    this.stream?.feed(text);
  }

  /** @param {boolean} over the answer has ended @param {Cost} cost */
  draw(over, cost) {
    if (this.finished) return;
    this.finished = this.ended || over;
    if (this.finished) this.stream?.finish();
    else this.stream?.flush();
    if (this.kind === 'prose') return;
    this.#drawName();
    if (!this.finished) return;
    const known = this.tokens >= 0;
    const share = this.text.length / Math.max(1, cost.characters);
    const ms = known ? performance.now() - this.since : cost.ms * share;
    const tokens = known ? cost.tokens - this.tokens : Math.round(cost.tokens * share);
    // A written answer took no time.
    const took = known ? duration(ms) : ms > 0 && (ms < 1 ? duration(ms) : t('about {0}', duration(ms)));
    setText(this.figures, tokens > 0 ? [took, plural(tokens, 'token')].filter(Boolean).join(' · ') : '');
  }

  #drawName() {
    if (this.kind === 'think') {
      setText(this.name, this.ended ? t('Thought') : this.finished ? t('Thought, not finished') : t('Thinking…'));
    } else {
      const { name, body, whole } = readCall(this.text);
      setText(this.name, `${this.ended || (this.finished && whole) ? t('Called') : this.finished ? t('Call, not finished:') : t('Calling')} ${name || t('a tool')}`);
      setText(this.body, body);
    }
  }

  /** More of it comes after all. */
  reopen() {
    this.finished = false;
    this.stream?.reopen();
  }
}

export class AnswerView {
  /** @param {HTMLElement} root an element of its own */
  constructor(root) {
    this.root = root;
    this.live = false; // it grows on the page: times and tokens of its blocks are known
    this.tokens = 0;
    /** @type {Block[]} */
    this.blocks = [];
    this.parts = new AnswerParts({
      begin: (kind) => this.#begin(kind),
      add: (text) => this.blocks.at(-1)?.add(text),
      end: () => this.#end(),
      wasThinking: () => this.#turnsInto('think'),
    });
    /** @type {Cost} */
    this.cost = { tokens: 0, characters: 0, ms: 0 };
  }

  /** @param {Kind} kind */
  #begin(kind) {
    const block = new Block(kind, this.live ? this.tokens : -1);
    this.blocks.push(block);
    this.root.append(block.element);
  }

  #end() {
    const block = this.blocks.at(-1);
    if (!block) return;
    block.ended = true;
    block.draw(false, this.cost);
  }

  /** The last block was no prose. @param {Kind} kind */
  #turnsInto(kind) {
    const prose = this.blocks.pop();
    prose?.element.remove();
    this.#begin(kind);
    const block = /** @type {Block} */ (this.blocks.at(-1));
    if (!prose) return;
    block.tokens = prose.tokens;
    block.since = prose.since;
    block.add(prose.text);
  }

  /**
   * Draws what has come.
   * @param {string} text what is new
   * @param {boolean} over the answer has ended
   * @param {Cost} cost
   * @param {boolean} [thinking] the answer begins inside the model's thinking
   */
  draw(text, over, cost, thinking = false) {
    if (!this.blocks.length) this.parts.inThought = thinking;
    this.cost = cost;
    this.live ||= !over && cost.tokens < NEW;
    this.parts.push(text, over);
    const last = this.blocks.at(-1);
    if (over && last?.kind === 'prose' && /^\s*\{/.test(last.text) && isBareCall(last.text)) this.#turnsInto('call');
    this.tokens = cost.tokens;
    this.blocks.at(-1)?.draw(over, cost);
  }

  /** Continues after its end. */
  reopen() {
    this.blocks.at(-1)?.reopen();
  }
}
