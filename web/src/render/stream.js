// @ts-check
// Shows a growing text as Markdown.
//
// feed() stores text; flush() draws it, once a frame. Blocks that can no longer change are closed and never parsed
// again. flush() parses only the open end, so its cost depends on the last one or two blocks, not on the answer.
// finish() parses the whole text and redraws the blocks that differ (a link defined later, a list that continues after
// a blank line). reopen() lets a finished text grow again.
import { renderBlocks } from './markdown.js';
import { blocksOf, isClosed } from './markup.js';

/** @typedef {import('marked').Token} Token */
/**
 * Its source, and how many of the root's nodes it is: formulas that load late replace nodes, one by one.
 * @typedef {{key: string, size: number}} Block
 */

const OPEN_LIMIT = 20000; // a longer open end is shown as plain text until it closes
const LOOK_AGAIN = 8192; // ... checked after this many characters
// Later lines can change these blocks, so such a block stays open even before the last one.
const REACHING = new Set(['list', 'blockquote', 'table', 'html', 'notes']);

/**
 * Closes an unfinished emphasis or code span, so that no bare asterisks show while the text streams.
 * @param {string} raw
 */
function mend(raw) {
  if (/^ {0,3}(`{3,}|~{3,})/.test(raw)) return raw;
  const line = raw.slice(raw.lastIndexOf('\n\n') + 1);
  if (((line.match(/`/g) ?? []).length & 1) === 1) return raw.trimEnd() + '`';
  if (((line.match(/\*\*/g) ?? []).length & 1) === 1) {
    const bare = raw.trimEnd();
    return bare.endsWith('**') ? bare.slice(0, -2) : bare + '**';
  }
  return raw;
}

export class MarkdownStream {
  /** @param {HTMLElement} root an element of its own */
  constructor(root) {
    this.root = root;
    this.text = '';
    this.shown = 0; // how much of the text flush() has drawn
    this.closedEnd = 0; // text before it is in closed blocks
    /** @type {string[]} */
    this.closed = []; // their sources
    /** @type {Block[]} */
    this.open = [];
    /** @type {Text | null} */
    this.plain = null;
    this.plainEnd = 0;
    this.links = false;
  }

  /** More of the text. @param {string} text */
  feed(text) {
    this.text += text.replaceAll('\r', ''); // the parser drops them too, and counts without them
  }

  /** Draws the text fed so far. */
  flush() {
    if (this.shown === this.text.length) return;
    this.shown = this.text.length;
    if (this.plain && this.text.length - this.plainEnd < LOOK_AGAIN) {
      this.plain.appendData(this.text.slice(this.closedEnd + this.plain.length));
      return;
    }
    const tokens = blocksOf(this.text.slice(this.closedEnd));
    if (Object.keys(tokens.links).length) this.links = true;
    this.#show(tokens, this.#countClosed(tokens));
  }

  /** The text is complete. */
  finish() {
    this.shown = this.text.length;
    const tokens = blocksOf(this.text);
    const pieces = [...this.closed, ...this.open.map((block) => block.key)];
    const same =
      !this.plain &&
      !this.links &&
      !Object.keys(tokens.links).length &&
      tokens.length === pieces.length &&
      tokens.every((token, i) => token.raw === pieces[i] && isClosed(token));
    if (!same) this.root.replaceChildren(renderBlocks(tokens, true));
    this.#levelHeadings();
    this.closed = tokens.map((token) => token.raw);
    this.closedEnd = this.text.length;
    this.open = [];
    this.plain = null;
  }

  // An answer may begin with a small heading or skip a level; a screen reader's outline must not.
  #levelHeadings() {
    let above = 2;
    for (const heading of this.root.querySelectorAll('h3, h4, h5, h6')) {
      const own = Number(heading.localName[1]);
      above = Math.min(own, above + 1);
      if (above !== own) heading.setAttribute('aria-level', String(above));
    }
  }

  /** Continues after finish(), maybe inside a block: the next flush redraws everything. */
  reopen() {
    this.root.replaceChildren();
    this.shown = 0;
    this.closed = [];
    this.closedEnd = 0;
    this.open = [];
  }

  /** How many blocks at the start can no longer change. @param {Token[]} tokens */
  #countClosed(tokens) {
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === 'space') last--;
    let before = last - 1;
    while (before >= 0 && tokens[before].type === 'space') before--;
    return before >= 0 && REACHING.has(tokens[before].type) ? before : Math.max(0, last);
  }

  // Open blocks are always last: changed ones are removed from the end and added again.
  /** @param {Token[]} tokens @param {number} nClosed */
  #show(tokens, nClosed) {
    const openLength = tokens.slice(nClosed).reduce((sum, token) => sum + token.raw.length, 0);
    const plain = openLength > OPEN_LIMIT;
    this.plain?.parentElement?.remove();
    this.plain = null;
    const drawn = plain ? tokens.slice(0, nClosed) : tokens;
    const keys = drawn.map((token, i) => (i === tokens.length - 1 ? mend(token.raw) : token.raw));
    let same = 0;
    while (same < keys.length && same < this.open.length && keys[same] === this.open[same].key) same++;
    const old = this.open[same];
    if (
      old &&
      same === keys.length - 1 &&
      same === this.open.length - 1 &&
      this.#growCode(drawn[same], old)
    ) {
      old.key = keys[same++];
    } else {
      for (const block of this.open.splice(same)) for (let n = block.size; n > 0; n--) this.root.lastChild?.remove();
      for (; same < keys.length; same++) this.open.push(this.#draw(drawn[same], keys[same]));
    }
    for (const token of tokens.slice(0, nClosed)) {
      this.closed.push(token.raw);
      this.closedEnd += token.raw.length;
    }
    this.open.splice(0, nClosed);
    if (plain) this.#showPlain();
  }

  /** @param {Token} token @param {string} key @returns {Block} */
  #draw(token, key) {
    const fragment = renderBlocks(key === token.raw ? [token] : blocksOf(key));
    const size = fragment.childNodes.length;
    this.root.append(fragment);
    return { key, size };
  }

  // A growing code block can be long, so only new text is appended.
  /** @param {Token} token @param {Block} old */
  #growCode(token, old) {
    if (token.type !== 'code' || isClosed(token)) return false;
    const nodes = [...this.root.childNodes].slice(-old.size); // the last block's
    const frame = nodes.find((node) => node instanceof HTMLElement && node.classList.contains('code'));
    const text = frame instanceof HTMLElement ? frame.querySelector('code')?.firstChild : null;
    const whole = /** @type {any} */ (token).text;
    if (!(text instanceof Text) || text.nextSibling || !whole.startsWith(text.data)) return false;
    const language = /** @type {any} */ ((token).lang ?? '').trim();
    if (!old.key.slice(0, old.key.indexOf('\n') + 1).includes(language)) return false;
    text.appendData(whole.slice(text.length));
    return true;
  }

  #showPlain() {
    this.plain = document.createTextNode(this.text.slice(this.closedEnd));
    this.plainEnd = this.text.length;
    const element = document.createElement('div');
    element.className = 'plain';
    element.append(this.plain);
    this.root.append(element);
  }
}
