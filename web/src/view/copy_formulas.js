// @ts-check
// What is copied from the conversation has formulas as TeX: as MathML they would be lost as plain text.
const BLOCKS = 'p, li, pre, tr, h3, h4, h5, h6, blockquote, .formula-block, .bubble';

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
  const formulas = /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll('.formula'));
  if (!formulas.length) return;
  for (const formula of formulas) {
    const mark = formula.matches('.formula-block') ? '$$' : '$';
    formula.replaceChildren(`${mark}${formula.dataset.tex ?? ''}${mark}`);
  }
  event.clipboardData.setData('text/html', box.innerHTML);
  for (const button of box.querySelectorAll('button, .visually-hidden')) button.remove();
  for (const block of box.querySelectorAll(BLOCKS)) block.append('\n');
  event.clipboardData.setData('text/plain', (box.textContent ?? '').trim());
  event.preventDefault();
}
