// @ts-check
// How full a session is: its log, up to session_len, and the model's window, up to memory_len.
import { show } from '../actions.js';
import { h, icon, setText } from '../dom.js';
import { count, plural } from '../format.js';
import { currentChat, currentSession, isFull, model, runningTurn, subscribe } from '../state.js';
import { newSession } from '../prefs.js';

const NEAR = 0.85;

/** @param {string} name @param {string} label */
function meter(name, label) {
  const fill = h('span', { class: 'meter-fill' });
  const bar = h(
    'span',
    { class: 'meter-bar', role: 'meter', 'aria-label': label, 'aria-valuemin': '0' },
    fill,
  );
  const value = h('span', { class: 'meter-value' });
  return {
    fill,
    bar,
    value,
    element: h('span', { class: `meter ${name}` }, h('span', { class: 'meter-label' }, label), bar, value),
  };
}

const session = meter('meter-session', 'Session');
const memory = meter('meter-memory', 'Memory');
export const meters = h('div', { class: 'meters' }, session.element, memory.element);
export const fullNotice = h('div', { class: 'full-notice', role: 'status', hidden: true });

/**
 * @param {ReturnType<typeof meter>} m
 * @param {number} value
 * @param {number} most
 * @param {string} words
 * @param {string} hint
 */
function set(m, value, most, words, hint) {
  m.fill.style.width = `${Math.min(100, (value / most) * 100)}%`;
  setText(m.value, `${count(value)} / ${count(most)}`);
  m.bar.setAttribute('aria-valuemax', String(most));
  m.bar.setAttribute('aria-valuenow', String(Math.min(value, most)));
  m.bar.setAttribute('aria-valuetext', words);
  m.element.title = hint;
}

let noticeKey = '';
/** @param {'near' | 'full' | ''} kind @param {number} left @param {number} most */
function setNotice(kind, left, most) {
  const key = kind && `${kind} ${kind === 'near' ? left : ''}`;
  if (key === noticeKey) return;
  noticeKey = key;
  fullNotice.hidden = !kind;
  fullNotice.className = `full-notice ${kind}`;
  if (!kind) return;
  fullNotice.replaceChildren(
    icon('warning'),
    h(
      'span',
      null,
      kind === 'full'
        ? `This session is full: all ${plural(most, 'token')} are used. Edit an earlier message, or start a new session.`
        : `This session is nearly full: ${plural(left, 'token')} left of ${count(most)}.`,
    ),
    h('button', { type: 'button', class: 'button small', onclick: () => show(null) }, 'New session'),
  );
}

function draw() {
  const known = currentSession();
  const chat = currentChat();
  const defaults = model(known?.model);
  meters.hidden = !defaults && !known;
  const preset = newSession();
  const most = known?.session_len ?? preset.session_len ?? defaults?.session_len ?? 1;
  const window = known?.memory_len ?? preset.memory_len ?? defaults?.memory_len ?? 1;
  const used = Math.max(known?.n_tokens ?? 0, chat?.logTokens ?? 0);
  const seen = Math.min(used, window);
  // During an answer the cache grows with the log; between turns the server sends its size.
  const cached = runningTurn(chat) ? seen : Math.min(known?.cached_tokens ?? 0, seen);
  set(
    session,
    used,
    most,
    `${count(used)} of ${plural(most, 'token')} used`,
    `The session's log: ${count(used)} of ${plural(most, 'token')}. A full session takes no more messages.`,
  );
  const asleep = used > 0 && cached === 0;
  set(
    memory,
    seen,
    window,
    `the model sees ${count(seen)} of at most ${plural(window, 'token')}`,
    `The model sees the last ${plural(window, 'token')}` +
      (used > window ? '; earlier ones stay in the log.' : '.') +
      (asleep
        ? known?.state === 'parked'
          ? ' The cache is in host memory; your next message restores it.'
          : ' Cache released; your next message will take longer.'
        : ` ${plural(cached, 'token')} are in the cache now.`),
  );
  memory.element.classList.toggle('asleep', asleep);
  memory.element.classList.toggle('near', used >= window * NEAR && !asleep);
  const full = isFull(known, chat);
  session.element.classList.toggle('near', used >= most * NEAR);
  const busy = !!runningTurn(chat);
  setNotice(full && !busy ? 'full' : known && used >= most * NEAR && !busy ? 'near' : '', most - used, most);
}
for (const topic of /** @type {const} */ (['selection', 'session', 'connection', 'chat', 'prefs']))
  subscribe(topic, draw);
