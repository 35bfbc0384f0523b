// @ts-check
// How full the session is: one control, with the details behind it, and a notice before the end.
import { h, icon, newMemo, setText } from '../dom.js';
import { count, plural, size } from '../format.js';
import { currentChat, currentSession, forgotten, isFull, model, nextChat, nextModel, runningTurn, subscribe } from '../state.js';
import { t } from '../text.js';
import { continueElsewhere } from './fresh.js';

const NEAR = 0.85;
const GAP = 6;

const past = h('span', { class: 'context-past' });
const fill = h('span', { class: 'context-fill' });
const ahead = h('span', { class: 'context-next' });
const value = h('span', { class: 'context-value' });
const sees = h('span', { class: 'context-sees' });
const details = h('div', { class: 'context-details', id: 'context-details', hidden: true });
const button = h(
  'button',
  {
    type: 'button',
    class: 'context',
    'aria-expanded': 'false',
    'aria-controls': 'context-details',
    title: t('Context used'),
    onclick: () => show(details.hidden),
  },
  h('span', { class: 'context-label' }, t('Context')),
  ' ', // between the words that the button's name contains
  h('span', { class: 'context-bar', 'aria-hidden': 'true' }, past, fill, ahead),
  value,
  ' ',
  sees,
);
export const meters = h('div', { class: 'meters' }, button, details);
export const fullNotice = h('div', { class: 'full-notice', role: 'status', hidden: true });

/** @param {boolean} open */
function show(open) {
  details.hidden = !open;
  button.setAttribute('aria-expanded', String(open));
  const listen = open ? addEventListener : removeEventListener;
  listen('pointerdown', outside, true);
  listen('keydown', escape, true);
  if (open) drawDetails();
}

// Above the button, inside of the window: its text changes while it is open.
function place() {
  const at = button.getBoundingClientRect();
  details.style.left = '0'; // else its width is that of what lies right of where it was
  details.style.left = `${Math.max(8, Math.min(at.left, innerWidth - details.offsetWidth - 8))}px`;
  details.style.bottom = `${innerHeight - at.top + GAP}px`;
}
/** @param {Event} event */
function outside(event) {
  if (!meters.contains(/** @type {Node} */ (event.target))) show(false);
}
/** @param {any} event */
function escape(event) {
  if (event.key !== 'Escape') return;
  event.stopPropagation(); // Esc elsewhere stops the answer
  show(false);
}

function lengths() {
  const known = currentSession();
  const chat = currentChat();
  const defaults = known ? model(known.model) : nextModel();
  const next = nextChat();
  const most = known?.session_len ?? next.session_len ?? defaults?.session_len ?? 1;
  const window = known?.memory_len ?? next.memory_len ?? defaults?.memory_len ?? 1;
  const used = Math.max(known?.n_tokens ?? 0, chat?.logTokens ?? 0);
  const seen = Math.min(used, window);
  // During an answer the cache grows with the log; between turns the server sends its size.
  const cached = runningTurn(chat) ? seen : Math.min(known?.cached_tokens ?? 0, seen);
  const lost = forgotten(known, chat); // before what it sees
  return { known, chat, most, window, used, seen, cached, lost, kept: defaults?.cache };
}

/** How many tokens the session, or the next one, can still take. */
export function tokensLeft() {
  const { most, used } = lengths();
  return Math.max(0, most - 1 - used);
}

/** What a cache of n tokens takes: layers with a window keep no more. @param {import('../state.js').Model['cache']} kept @param {number} n */
const bytesOf = (kept, n) => (kept?.windows ?? []).reduce((sum, w) => sum + w.bytes_per_token * Math.min(n, w.window || n), 0);

function drawDetails() {
  const { known, most, window, used, seen, cached, lost, kept } = lengths();
  const bytes = bytesOf(kept, cached);
  const cache = !used
    ? t('empty')
    : cached
      ? plural(cached, 'token') + (bytes ? `, ${size(bytes)}` : '')
      : known?.state === 'parked'
        ? t('In host memory; your next message restores it.')
        : t('Cache released; your next message will take longer.');
  const rows = [
    [t('Chat'), t('{0} of {1}', count(used), plural(most, 'token'))],
    [t('Model sees'), lost ? t('the last {0}', plural(seen, 'token')) : used ? t('all {0}', plural(used, 'token')) : t('nothing yet')],
    [t('Memory'), t('at most {0}', plural(window, 'token'))],
    [t('Cache'), cache],
    ...(next ? [[t('Your message'), t('about {0}', plural(next, 'token'))]] : []),
  ];
  details.replaceChildren(
    h('dl', { class: 'facts-list' }, ...rows.flatMap(([name, text]) => [h('dt', null, name), h('dd', null, text)])),
  );
  place();
}

let next = 0;

/** Draws what the message that is being written will add. @param {number} tokens an estimate */
export function showNext(tokens) {
  if (tokens === next) return;
  next = tokens;
  draw();
}

const noticeMemo = newMemo();
/** @param {'near' | 'full' | ''} kind @param {number} left @param {number} most */
function setNotice(kind, left, most) {
  noticeMemo([kind, kind === 'near' && left], () => drawFullNotice(kind, left, most));
}

/** @param {'near' | 'full' | ''} kind @param {number} left @param {number} most */
function drawFullNotice(kind, left, most) {
  fullNotice.hidden = !kind;
  fullNotice.className = `full-notice ${kind}`;
  if (!kind) return;
  fullNotice.replaceChildren(
    icon('warning'),
    h(
      'span',
      null,
      kind === 'full'
        ? t('This chat is full ({0}). Edit an earlier message, or continue in a new chat.', plural(most, 'token'))
        : t('This chat is nearly full: {0} left.', plural(left, 'token')),
    ),
    h(
      'button',
      { type: 'button', class: 'button small', title: t('Starts with the latest messages'), onclick: continueElsewhere },
      t('Continue in a new chat'),
    ),
  );
}

function draw() {
  const { known, chat, most, used, window, lost } = lengths();
  button.hidden = !model() && !known; // its place stays: Send stands at the right from the start
  past.style.width = `${Math.min(100, (lost / most) * 100)}%`;
  fill.style.width = `${Math.min(100, ((used - lost) / most) * 100)}%`;
  ahead.style.width = `${Math.min(100 - (used / most) * 100, (next / most) * 100)}%`;
  setText(value, `${count(used)} / ${count(most)}`);
  const last = lost ? t('model sees the last {0}', count(window)) : '';
  setText(sees, last);
  button.setAttribute('aria-label', t('Context {0} / {1}{2} tokens', count(used), count(most), last && ` ${last}`));
  button.classList.toggle('near', used >= most * NEAR);
  if (!details.hidden) drawDetails();
  const full = isFull(known, chat);
  const busy = !!runningTurn(chat);
  // A refused message names the tokens that are left.
  const said = chat?.pending.some((p) => p.phase === 'failed' && p.code === 'session_full');
  const near = known && used >= most * NEAR && !said;
  setNotice(busy ? '' : full ? 'full' : near ? 'near' : '', most - 1 - used, most);
}
for (const topic of /** @type {const} */ (['selection', 'session', 'connection', 'chat', 'prefs']))
  subscribe(topic, draw);
