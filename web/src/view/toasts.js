// @ts-check
// Short messages that disappear. Errors stay longer; each can be dismissed. One of the chat shown goes with it.
import { h, iconButton } from '../dom.js';
import { onToast } from '../notices.js';
import { subscribe } from '../state.js';
import { t } from '../text.js';

const INFO_MS = 4000;
const ERROR_MS = 10000;
const READING_MS = 70; // for each character of a long one
const MAX = 4;

// The region must exist before the first message, or screen readers miss it.
export const toasts = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' });

onToast((message, kind = 'info', action) => {
  for (const shown of toasts.children) if (shown.firstChild?.textContent === message) shown.remove();
  const element = h(
    'div',
    { class: `toast toast-${kind}` },
    h('span', null, message),
    action &&
      h(
        'button',
        {
          type: 'button',
          class: 'link-button',
          onclick() {
            element.remove();
            action.run();
          },
        },
        action.label,
      ),
    iconButton('close', t('Dismiss'), { onclick: () => element.remove() }),
  );
  toasts.append(element);
  while (toasts.children.length > MAX) toasts.firstChild?.remove();
  setTimeout(() => element.remove(), action?.ms ?? Math.max(kind === 'error' ? ERROR_MS : INFO_MS, message.length * READING_MS));
});

subscribe('selection', () => toasts.querySelectorAll('.toast-here').forEach((one) => one.remove()));
