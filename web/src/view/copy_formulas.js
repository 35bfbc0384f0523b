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

/** @param {ClipboardEvent} event */
export function copyWithTex(event) {
  const selection = getSelection();
  if (!selection?.rangeCount || selection.isCollapsed || !event.clipboardData) return;
  const range = selection.getRangeAt(0).cloneRange();
  // A formula that is touched is copied whole.
  const [from, to] = [range.startContainer, range.endContainer].map((node) => (node instanceof Element ? node : node.parentElement)?.closest('.formula'));
  if (from) range.setStartBefore(from);
  if (to) range.setEndAfter(to);
  const box = document.createElement('div');
  box.append(range.cloneContents());
  if (!box.querySelector('.formula')) return;
  plainer(box);
  event.clipboardData.setData('text/html', box.innerHTML);
  for (const block of box.querySelectorAll(BLOCKS)) block.append('\n');
  event.clipboardData.setData('text/plain', (box.textContent ?? '').trim());
  event.preventDefault();
}
