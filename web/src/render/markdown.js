// @ts-check
// Blocks of Markdown (markup.js) as sanitised elements: code with its language, colours and a button, tables that scroll, formulas.
import { h, iconButton } from '../dom.js';
import { loaded, onceLoaded, part } from '../late.js';
import { t } from '../text.js';
import { languageLabel } from './language_label.js';
import { isClosed, markupOf } from './markup.js';
import { sanitize } from './sanitize.js';

/** @typedef {import('marked').Token} Token */

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
      iconButton('download', t('Save code'), { 'data-action': 'save-code' }),
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
  const fragment = sanitize(markupOf(tokens));
  for (const pre of fragment.querySelectorAll('pre')) frameCode(pre, whole);
  for (const table of fragment.querySelectorAll('table')) frameTable(table);
  for (const code of /** @type {NodeListOf<HTMLElement>} */ (fragment.querySelectorAll('code.maths'))) drawFormulaSoon(code);
  return fragment;
}
