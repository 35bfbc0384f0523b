// @ts-check
// What stands in the place of a conversation: the chat that has not begun, loading, a failure.
import { show } from '../actions.js';
import { h, newMemo } from '../dom.js';
import { currentChat, state, subscribe } from '../state.js';
import { t } from '../text.js';
import { emptyView } from './empty.js';

export const notice = h('div', { class: 'notice' });

function content() {
  const chat = currentChat();
  if (!state.current) return emptyView();
  if (chat?.phase === 'loading')
    return h('p', { class: 'note', role: 'status' }, state.connection.phase === 'open' ? t('Loading…') : t('Waiting for the server…'));
  if (chat?.phase === 'failed')
    return h(
      'div',
      { class: 'note' },
      h('p', null, chat.message),
      h('button', { type: 'button', class: 'button', onclick: () => show(null) }, t('New chat')),
    );
  return null;
}

const memo = newMemo();
let selections = 0; // each draws it anew
subscribe('selection', () => selections++);

/** @returns {boolean} whether there is one */
export function drawNotice() {
  const chat = currentChat();
  memo([selections, state.current, chat?.phase, chat?.message, state.connection.phase === 'open'], () => {
    notice.replaceChildren(...[content()].filter((element) => element !== null));
    notice.hidden = !notice.firstChild;
  });
  return !notice.hidden;
}
