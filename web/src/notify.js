// @ts-check
// A notification of the browser when a long answer is done while the page is in the background, for users who asked for it.
import { show } from './actions.js';
import { notifies } from './prefs.js';
import { state, subscribe } from './state.js';
import { t } from './text.js';

const LONG_MS = 10000;

/** @type {Map<string, number>} when the page saw each answer begin, by session */
const since = new Map();

/** @param {string} id */
function tell(id) {
  if (!document.hidden || !notifies() || Notification.permission !== 'granted') return;
  try {
    const note = new Notification(state.sessions.get(id)?.title || 'Parley', { body: t('The answer is complete.'), tag: id, icon: 'icon.svg' });
    note.onclick = () => {
      window.focus();
      show(id);
      note.close();
    };
  } catch {
    // Some browsers on telephones only notify through a service worker.
  }
}

subscribe('session', (ids) => {
  for (const id of ids) {
    const began = since.get(id);
    if (state.sessions.get(id)?.state === 'active') since.set(id, began ?? Date.now());
    else if (began !== undefined) {
      since.delete(id);
      if (Date.now() - began >= LONG_MS) tell(id);
    }
  }
});
