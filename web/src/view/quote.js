// @ts-check
// A button beside selected text of the conversation: it quotes the text in the next message. Loads late.
import { h, icon } from '../dom.js';
import { t } from '../text.js';
import { copiedText } from './copy_formulas.js';
import { addMessage, field } from './message_field.js';

const SETTLED_MS = 200; // since the selection changed last: no button runs along while one selects
const GAP = 6;

const button = h(
  'button',
  {
    type: 'button',
    class: 'button small quote-button',
    onpointerdown: (/** @type {Event} */ event) => event.preventDefault(), // it would end the selection
    onmousedown: (/** @type {Event} */ event) => event.preventDefault(),
    onclick: quoteSelection,
  },
  icon('quote'),
  t('Quote'),
);

/** The selection, if it is text of the conversation. */
function selected() {
  const selection = getSelection();
  if (!selection?.rangeCount || selection.isCollapsed) return null;
  const range = selection.getRangeAt(0);
  const at = range.commonAncestorContainer;
  return (at instanceof Element ? at : at.parentElement)?.closest('.transcript .log') && !field.disabled ? selection : null;
}

/** @returns {boolean} whether there was something to quote */
export function quoteSelection() {
  const selection = selected();
  const text = selection && (copiedText(selection) ?? selection.toString()).trim();
  button.remove();
  if (!text) return false;
  selection.removeAllRanges();
  addMessage(`${text.split('\n').map((line) => `> ${line}`.trimEnd()).join('\n')}\n\n`);
  return true;
}

function draw() {
  const rects = [...(selected()?.getRangeAt(0).getClientRects() ?? [])];
  const last = rects.findLast(({ width }) => width > 0);
  if (!last) return button.remove();
  document.querySelector('main')?.append(button);
  const { width, height } = button.getBoundingClientRect();
  const below = last.bottom + GAP;
  button.style.top = `${below + height < innerHeight ? below : Math.max(0, last.top - GAP - height)}px`;
  button.style.left = `${Math.max(GAP, Math.min(last.right - width / 2, innerWidth - width - GAP))}px`;
}

/** @type {any} */
let timer = null;
document.addEventListener('selectionchange', () => {
  clearTimeout(timer);
  timer = setTimeout(draw, SETTLED_MS);
});
addEventListener('scroll', () => button.remove(), { capture: true, passive: true });
