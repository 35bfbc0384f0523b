// @ts-check
// A small menu at a button: arrows, Home and End move, Esc and a click elsewhere close it.
import { h, icon } from '../dom.js';

/** @typedef {{icon: import('../dom.js').IconName, label: string, danger?: boolean, name?: string, run: () => void}} Item */

const GAP = 4;
const EDGE = 8;
/** @type {(() => void) | null} */
let closeOpen = null;

/** @param {HTMLElement} button @param {string} label @param {Item[]} items */
export function openMenu(button, label, items) {
  if (closeOpen) {
    const wasHere = button.getAttribute('aria-expanded') === 'true';
    closeOpen();
    if (wasHere) return;
  }
  const entries = items.map((item) =>
    h(
      'button',
      {
        type: 'button',
        role: 'menuitem',
        tabIndex: -1,
        class: item.danger ? 'menu-item danger' : 'menu-item',
        ...(item.name && { 'data-item': item.name }),
        onclick() {
          close(true);
          item.run();
        },
      },
      icon(item.icon),
      item.label,
    ),
  );
  const menu = h('div', { class: 'menu', role: 'menu', 'aria-label': label }, ...entries);

  /** @param {boolean} refocus */
  function close(refocus) {
    menu.remove();
    button.setAttribute('aria-expanded', 'false');
    removeEventListener('pointerdown', outside, true);
    removeEventListener('resize', shut);
    removeEventListener('blur', shut);
    closeOpen = null;
    if (refocus) button.focus();
  }
  const shut = () => close(false);
  /** @param {PointerEvent} event */
  function outside(event) {
    const target = /** @type {Node} */ (event.target);
    if (!menu.contains(target) && !button.contains(target)) close(false);
  }
  menu.addEventListener('keydown', (event) => {
    const at = entries.indexOf(/** @type {any} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (to !== undefined) {
      entries[(to + entries.length) % entries.length].focus();
      event.preventDefault();
    } else if (event.key === 'Escape' || event.key === 'Tab') {
      close(true);
      event.preventDefault();
      event.stopPropagation();
    }
  });

  (button.closest('nav, main') ?? document.body).append(menu); // content belongs in a landmark
  const at = button.getBoundingClientRect();
  const size = menu.getBoundingClientRect();
  const below = at.bottom + GAP + size.height < innerHeight;
  menu.style.top = `${below ? at.bottom + GAP : Math.max(EDGE, at.top - GAP - size.height)}px`;
  menu.style.left = `${Math.max(EDGE, Math.min(at.right - size.width, innerWidth - size.width - EDGE))}px`;
  button.setAttribute('aria-expanded', 'true');
  addEventListener('pointerdown', outside, true);
  addEventListener('resize', shut);
  addEventListener('blur', shut);
  closeOpen = shut;
  entries[0].focus();
}
