// @ts-check
// Announces to screen readers that an answer begins and how it ends, never its tokens.
import { plural, words } from '../format.js';
import { h } from '../dom.js';
import { currentChat, state, subscribe } from '../state.js';
import { errorText, t } from '../text.js';

export const announcer = h('div', {
  class: 'visually-hidden',
  role: 'status',
  'aria-live': 'polite',
  id: 'announcer',
});

/** @param {string} text */
export function announce(text) {
  announcer.textContent = text;
}

/** @type {Map<string, string>} what was last said of a turn, by session and number */
const said = new Map();

/** @param {import('../state.js').Turn} turn */
function endOf(turn) {
  const length = plural(words(turn.text), 'word');
  switch (turn.finish_reason) {
    case 'cancelled':
      return t('Response stopped, {0}', length);
    case 'length':
      return t('Response stopped at the length limit, {0}', length);
    case 'interrupted':
      return t('Response interrupted, {0}', length);
    case 'deadline':
      return t('Response stopped at its deadline, {0}', length);
    case 'error':
      return t('Response failed: {0}', turn.error ? errorText(turn.error) : t('an error'));
    default:
      return t('Response complete, {0}', length);
  }
}

subscribe('turn', (numbers) => {
  const chat = currentChat();
  if (!chat) return;
  for (const turn of chat.turns) {
    if (!numbers.has(turn.turn)) continue;
    const key = `${chat.id} ${turn.turn}`;
    const before = said.get(key);
    if (before === turn.state) continue;
    said.set(key, turn.state);
    if (turn.state === 'running') announce(t('Generating'));
    else if (turn.state === 'done' && before === 'running') announce(endOf(turn));
  }
});

subscribe('connection', () => {
  if (state.connection.phase === 'waiting') announce(t('Connection lost, reconnecting'));
  else if (state.connection.phase === 'open' && announcer.textContent === t('Connection lost, reconnecting'))
    announce(t('Connected again'));
});
