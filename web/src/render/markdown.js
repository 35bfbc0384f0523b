// @ts-check
// GitHub Markdown to sanitised elements, block by block. HTML is shown as text, but for line breaks, <sub>, <sup>, <kbd> and <details>, and images as links, so that the page
// fetches nothing by itself.
import { Marked, Tokenizer } from 'marked';
import { h, iconButton } from '../dom.js';
import { loaded, onceLoaded, part } from '../late.js';
import { t } from '../text.js';
import { details } from './details.js';
import { footnotes } from './footnotes.js';
import { languageLabel } from './language_label.js';
import { maths } from './maths.js';
import { sanitize } from './sanitize.js';

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
    return nest(() => Tokenizer.prototype[kind].call(this, src));
  };

const WORK = 200000; // characters that the search for emphasis may look at: a model that repeats "*a_" would cost seconds
const WORK_EACH = 20; // and more for each character of the text
let work = 0;

/** Emphasis; without it the marks are text. @this {Tokenizer} @param {string} src @param {string} masked @param {string} [before] @returns {any} */
function emStrong(src, masked, before) {
  work -= src.length;
  return work > 0 ? Tokenizer.prototype.emStrong.call(this, src, masked, before) : undefined;
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
  work = WORK + WORK_EACH * text.length;
  return /** @type {any} */ (marked.lexer(text));
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

/** @type {Array<[HTMLElement, string]>} code whose colours wait for the grammars, and its language */
const uncoloured = [];

/** @param {HTMLElement} code @param {string} language @param {import('../late.js').Parts['highlight']} grammars */
function colour(code, language, grammars) {
  const markup = grammars.highlight(code.textContent ?? '', language);
  if (markup !== null) code.replaceChildren(sanitize(markup));
}

/** Colours code, at once or when the grammars are loaded. @param {HTMLElement} code @param {string} language */
function colourSoon(code, language) {
  const grammars = loaded('highlight');
  if (grammars) return colour(code, language, grammars);
  code.classList.add('uncoloured');
  uncoloured.push([code, language]);
  part('highlight').catch(() => {}); // the next code or connection tries again
}

// One block per task.
function colourNext() {
  const grammars = loaded('highlight');
  const [code, language] = uncoloured.shift() ?? [];
  if (!code || !grammars) return;
  code.classList.remove('uncoloured');
  colour(code, language ?? '', grammars);
  if (uncoloured.length) setTimeout(colourNext, 0);
}
onceLoaded('highlight', colourNext);

const WAITING = 2000; // formulas: a paragraph that grows leaves some with each frame
/** @type {HTMLElement[]} code of formulas that wait for the part that draws them */
let undrawn = [];

/** @param {HTMLElement} code @param {import('../late.js').Parts['formulas']} formulas */
function drawFormula(code, formulas) {
  const tex = code.textContent ?? '';
  const block = code.classList.contains('language-tex');
  const drawn = formulas.formula(tex, block);
  if (!drawn) return;
  const box = h(block ? 'div' : 'span', { class: block ? 'formula formula-block' : 'formula', dir: 'ltr', ...(block && { tabIndex: 0, role: 'group', 'aria-label': t('Formula') }) }, drawn);
  box.dataset.tex = tex; // what is copied
  (code.closest('.code') ?? code).replaceWith(box);
}

/** Draws a formula, at once or when the part is loaded. @param {HTMLElement} code */
function drawFormulaSoon(code) {
  const formulas = loaded('formulas');
  if (formulas) return drawFormula(code, formulas);
  code.classList.add('uncoloured');
  undrawn.push(code);
  if (undrawn.length > WAITING) undrawn.shift();
  part('formulas').catch(() => {}); // the next formula tries again
}
onceLoaded('formulas', () => {
  const codes = undrawn;
  undrawn = [];
  for (const code of codes) {
    code.classList.remove('uncoloured');
    drawFormulaSoon(code);
  }
});

/**
 * A block of code with its language above it and a button that copies it.
 * @param {HTMLElement} pre
 * @param {boolean} whole it does not grow any more
 */
function frameCode(pre, whole) {
  const code = /** @type {HTMLElement} */ (pre.querySelector('code'));
  if (!code) return;
  const language = /(?:^|\s)language-(\S+)/.exec(code.className)?.[1] ?? '';
  const label = languageLabel(language);
  const frame = h(
    'div',
    { class: 'code', dir: 'ltr' }, // also in an answer from right to left
    h(
      'div',
      { class: 'code-head' },
      h('span', { class: 'code-language' }, label),
      iconButton('copy', t('Copy code'), { 'data-action': 'copy-code' }),
    ),
  );
  pre.replaceWith(frame);
  pre.tabIndex = 0; // it scrolls sideways, so the keyboard must reach it
  pre.setAttribute('role', 'group');
  pre.setAttribute('aria-label', t('Code, {0}', label));
  frame.append(pre);
  if (whole && language && !code.classList.contains('maths')) colourSoon(code, language);
}

/** @param {HTMLTableElement} table */
function frameTable(table) {
  const frame = h('div', { class: 'table', tabIndex: 0, role: 'group', 'aria-label': t('Table') });
  table.replaceWith(frame);
  frame.append(table);
}

/** Some blocks as elements. @param {Token[]} tokens @param {boolean} [whole] @returns {DocumentFragment} */
export function renderBlocks(tokens, whole = tokens.every(isClosed)) {
  const fragment = sanitize(marked.parser(/** @type {any} */ (tokens)));
  for (const pre of fragment.querySelectorAll('pre')) frameCode(pre, whole);
  for (const table of fragment.querySelectorAll('table')) frameTable(table);
  for (const code of /** @type {NodeListOf<HTMLElement>} */ (fragment.querySelectorAll('code.maths'))) drawFormulaSoon(code);
  return fragment;
}
