// @ts-check
// Tabs over one panel. Arrow keys move between them; a selected tab draws the panel.
import { h } from '../dom.js';

/**
 * @template {string} K
 * @param {{name: string, id: string, tabs: Array<[K, string]>, draw: (tab: K) => Node[]}} options
 *   name: for screen readers; id: of the panel; draw: returns the panel's content
 */
export function tabbed({ name, id, tabs, draw }) {
  const panel = h('div', { class: 'panel', role: 'tabpanel', id, tabIndex: 0 });
  const buttons = tabs.map(([tab, label]) =>
    h(
      'button',
      { type: 'button', role: 'tab', id: `tab-${tab}`, 'aria-controls': id, onclick: () => choose(tab) },
      label,
    ),
  );
  const strip = h('div', { class: 'tabs', role: 'tablist', 'aria-label': name }, ...buttons);
  strip.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault(); // it would scroll the row
    const at = buttons.indexOf(/** @type {any} */ (document.activeElement));
    choose(tabs[(at + step + tabs.length) % tabs.length][0], true);
  });

  /** @param {K} tab @param {boolean} [focus] */
  function choose(tab, focus = false) {
    buttons.forEach((button, i) => {
      button.setAttribute('aria-selected', String(tabs[i][0] === tab));
      button.tabIndex = tabs[i][0] === tab ? 0 : -1;
      if (tabs[i][0] === tab && focus) button.focus();
    });
    strip.querySelector('[aria-selected=true]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    panel.setAttribute('aria-labelledby', `tab-${tab}`);
    panel.replaceChildren(...draw(tab));
    panel.scrollTop = 0;
  }
  return { strip, panel, choose };
}
