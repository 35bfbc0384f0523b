// @ts-check
// A panel beside the conversation where the window is wide enough for both, else a dialog over it.
import { h, iconButton } from '../dom.js';
import { state, subscribe } from '../state.js';
import { t } from '../text.js';
import { openDialog } from './dialog.js';
import { isComposing } from './message_field.js';

const wide = matchMedia('(min-width: 1360px)');

/**
 * @typedef {{readonly open: boolean, close: () => void}} Panel
 * @param {{title: string, name: string, body: Node[], onClose: () => void, again: () => void}} options
 *   again: opens it anew, when the window has become too narrow or wide enough
 * @returns {Panel}
 */
export function openPanel({ title, name, body, onClose, again }) {
  const panel = wide.matches ? dock(title, name, body, closed) : openDialog({ title, name, body, onClose: closed });
  function closed() {
    wide.removeEventListener('change', moved);
    onClose();
  }
  function moved() {
    panel.close();
    again();
  }
  wide.addEventListener('change', moved);
  return panel;
}

/** @type {Panel | null} */
let docked = null;

/** @param {string} title @param {string} name @param {Node[]} body @param {() => void} onClose @returns {Panel} */
function dock(title, name, body, onClose) {
  const before = document.activeElement;
  const session = state.current;
  const element = h(
    'aside',
    { class: `docked ${name}`, 'aria-labelledby': `${name}-title` },
    h(
      'header',
      { class: 'dialog-head' },
      h('h2', { id: `${name}-title` }, title),
      iconButton('close', t('Close'), { onclick: () => panel.close() }),
    ),
    ...body,
  );
  const panel = {
    session,
    get open() {
      return element.isConnected;
    },
    close() {
      if (!element.isConnected) return;
      const hadFocus = element.contains(document.activeElement);
      element.remove();
      if (docked === panel) docked = null;
      onClose();
      if (hadFocus && before instanceof HTMLElement && before.isConnected) before.focus();
    },
  };
  element.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.shiftKey || event.defaultPrevented || isComposing(event)) return;
    event.preventDefault(); // or it would stop an answer
    panel.close();
  });
  document.getElementById('app')?.append(element);
  docked = panel;
  return panel;
}

// What it shows belongs to one session.
subscribe('selection', () => {
  const shown = /** @type {any} */ (docked);
  if (shown && (shown.session !== state.current || state.view !== 'chat')) shown.close();
});
