// @ts-check
// GitHub Markdown to markup, block by block. HTML is shown as text, but for line breaks, <sub>, <sup>, <kbd> and
// <details>, and images as links, so that the page fetches nothing by itself. markdown.js makes elements of the markup,
// by the sanitiser. Needs no document.
import { Lexer, Marked, Tokenizer } from 'marked';
import { details } from './details.js';
import { footnotes } from './footnotes.js';
import { maths } from './maths.js';

/** @typedef {import('marked').Token} Token */

const DEEPEST = 24; // lists and quotes inside each other: a model that repeats a bullet would exhaust the parser's stack
let depth = 0;

/** Parses what lies inside a block; undefined beyond the deepest. @param {() => any} act */
function nest(act) {
  if (depth === DEEPEST) return undefined;
  depth++;
  try {
    return act();
  } finally {
    depth--;
  }
}

/** A list or quote; beyond the deepest its marks are text. @param {'blockquote' | 'list'} kind @returns {any} */
const nested = (kind) =>
  /** @this {Tokenizer} @param {string} src */
  function (src) {
    return nest(() => /** @type {any} */ (Tokenizer.prototype[kind]).call(this, src));
  };

// How many characters the search for emphasis may look at: a model that repeats "*a_" would cost seconds. Each block has
// some of its own for each of its characters; a text has more for the first blocks that need it.
const WORK = 200000;
const WORK_EACH = 20;
let ofText = 0;
let ofBlock = 0;

/** Emphasis; without it the marks are text. @this {Tokenizer} @param {string} src @param {string} masked @param {string} [before] @returns {any} */
function emStrong(src, masked, before) {
  if (ofBlock >= src.length) ofBlock -= src.length;
  else ofText -= src.length;
  return ofText > 0 ? Tokenizer.prototype.emStrong.call(this, src, masked, before) : undefined;
}

/** Markup that an answer may have: it has no attributes. */
const HARMLESS = /^<(?:br ?\/?|\/?(?:sub|sup|kbd|details|summary))>$/i;

/** @param {string} text */
const escape = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  breaks: true,
  extensions: [...maths(escape), details(nest), ...footnotes(escape, nest)],
  tokenizer: { blockquote: nested('blockquote'), list: nested('list'), emStrong },
  renderer: {
    html: ({ text }) => (HARMLESS.test(text.trim()) ? text : escape(text)),
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    listitem(item) {
      return `<li${item.task ? ' class="task"' : ''}>${this.parser.parse(item.tokens)}</li>\n`;
    },
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
    // Levels 1 and 2 are the page's own headings.
    heading({ tokens, depth }) {
      const level = Math.min(6, depth + 2);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    code({ text, lang }) {
      const language = (lang ?? '')
        .trim()
        .split(/[\s{,]/)[0]
        .slice(0, 32);
      return `<pre><code class="language-${escape(language)}">${escape(text)}</code></pre>`;
    },
  },
});

/** The blocks of a text. @param {string} text @returns {Token[] & {links: Record<string, any>}} */
export function blocksOf(text) {
  const lexer = new Lexer(marked.defaults);
  lexer.blockTokens(text.replace(/\r\n|\r/g, '\n'), lexer.tokens);
  ofText = WORK;
  for (const { src, tokens } of lexer.inlineQueue) {
    ofBlock = WORK_EACH * src.length;
    if (ofText <= 0) ofText = 1; // spent by a block before: what this one has of its own is enough for usual text
    lexer.inlineTokens(src, tokens);
  }
  return /** @type {any} */ (lexer.tokens);
}

/** Whether a block of code has met its closing fence (indented code has none). @param {Token} token */
export function isClosed(token) {
  if (token.type !== 'code') return true;
  const open = /^ {0,3}(`{3,}|~{3,})/.exec(token.raw);
  if (!open) return true;
  const lines = token.raw.trimEnd().split('\n');
  const last = lines[lines.length - 1].trim();
  return (
    lines.length > 1 &&
    last.length >= open[1].length &&
    last === last[0].repeat(last.length) &&
    last[0] === open[1][0]
  );
}

/** The markup of some blocks. @param {Token[]} tokens @returns {string} */
export const markupOf = (tokens) => marked.parser(/** @type {any} */ (tokens));
