// @ts-check
// Dialogs use the browser's element, which keeps the focus inside, closes on Esc and restores the focus.
import { h, iconButton } from '../dom.js';
import { t } from '../text.js';

/** Whether one is open. They are the body's own children: a search of the whole page would cost each key. */
export const dialogOpen = () =>
  [...document.body.children].some((element) => element instanceof HTMLDialogElement && element.open);

/**
 * An open dialog with a title; it is removed when it closes.
 * @param {{title: string, name: string, body: Node[], onClose?: () => void, closable?: boolean}} options
 * @returns {HTMLDialogElement}
 */
export function openDialog({ title, name, body, onClose, closable = true }) {
  const heading = h('h2', { id: `${name}-title` }, title);
  const dialog = h(
    'dialog',
    { class: `dialog ${name}`, 'aria-labelledby': `${name}-title` },
    h(
      'header',
      { class: 'dialog-head' },
      heading,
      closable && iconButton('close', t('Close'), { onclick: () => dialog.close() }),
    ),
    ...body,
  );
  dialog.addEventListener('close', () => {
    dialog.remove();
    onClose?.();
  });
  if (closable) {
    let pressed = false; // dragging a selection out of the dialog must not close it
    dialog.addEventListener('pointerdown', (event) => (pressed = event.target === dialog));
    dialog.addEventListener('click', (event) => {
      if (pressed && event.target === dialog) dialog.close();
    });
  } else {
    dialog.addEventListener('cancel', (event) => event.preventDefault());
  }
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for confirmation before an action that cannot be undone.
 * @param {{title: string, text: string, action: string}} options
 * @returns {Promise<boolean>}
 */
export function confirmDialog({ title, text, action }) {
  return new Promise((resolve) => {
    let agreed = false;
    const cancel = h('button', { type: 'button', class: 'button', onclick: () => dialog.close() }, t('Cancel'));
    const agree = h(
      'button',
      {
        type: 'button',
        class: 'button danger',
        onclick() {
          agreed = true;
          dialog.close();
        },
      },
      action,
    );
    const dialog = openDialog({
      title,
      name: 'confirm',
      body: [h('p', { class: 'dialog-text' }, text), h('div', { class: 'dialog-actions' }, cancel, agree)],
      onClose: () => resolve(agreed),
    });
    agree.focus();
  });
}
