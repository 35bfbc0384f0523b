// @ts-check
// What is copied from the conversation has formulas as TeX: as MathML they would be lost as plain text.
const BLOCKS = 'p, li, pre, tr, h3, h4, h5, h6, blockquote, .formula-block, .bubble';

/** Formulas as TeX, and no buttons. @param {Element} box a copy */
function plainer(box) {
  for (const formula of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll('.formula'))) {
    const mark = formula.matches('.formula-block') ? '$$' : '$';
    formula.replaceChildren(`${mark}${formula.dataset.tex ?? ''}${mark}`);
  }
  for (const element of box.querySelectorAll('.code-head, button, .visually-hidden')) element.remove();
}

/** Answers as markup for other programs, without what belongs to the page. @param {Iterable<Element>} proses */
export function richText(proses) {
  const box = document.createElement('div');
  for (const prose of proses) box.append(.../** @type {Element} */ (prose.cloneNode(true)).childNodes);
  plainer(box);
  for (const element of box.querySelectorAll('*'))
    for (const { name } of [...element.attributes]) if (!['href', 'start', 'align'].includes(name)) element.removeAttribute(name);
  return box.innerHTML;
}

/** A selection with formulas, as an element with their TeX; null where it has none. @param {Selection} selection */
function withTex(selection) {
  const range = selection.getRangeAt(0).cloneRange();
  // A formula that is touched is copied whole.
  const [from, to] = [range.startContainer, range.endContainer].map((node) => (node instanceof Element ? node : node.parentElement)?.closest('.formula'));
  if (from) range.setStartBefore(from);
  if (to) range.setEndAfter(to);
  const box = document.createElement('div');
  box.append(range.cloneContents());
  if (!box.querySelector('.formula')) return null;
  plainer(box);
  return box;
}

/** @param {Element} box */
function plainText(box) {
  for (const block of box.querySelectorAll(BLOCKS)) block.append('\n');
  return (box.textContent ?? '').trim();
}

/** The text of a selection with formulas. @param {Selection} selection @returns {string | null} null: it has none */
export function copiedText(selection) {
  const box = withTex(selection);
  return box && plainText(box);
}

/** @param {ClipboardEvent} event */
export function copyWithTex(event) {
  const selection = getSelection();
  const box = selection?.rangeCount && !selection.isCollapsed && event.clipboardData && withTex(selection);
  if (!box) return;
  event.clipboardData?.setData('text/html', box.innerHTML);
  event.clipboardData?.setData('text/plain', plainText(box));
  event.preventDefault();
}
