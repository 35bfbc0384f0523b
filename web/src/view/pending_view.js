// @ts-check
// Messages that the server has not accepted: those being sent, and those it refused.
import { show } from '../actions.js';
import { h, icon, newMemo } from '../dom.js';
import { discard, fitsNewSession, resend } from '../sending.js';
import { currentChat, state } from '../state.js';
import { t } from '../text.js';
import { bubble } from './bubble.js';
import { continueElsewhere } from './fresh.js';
import { takeBack } from './file_chips.js';

/** @typedef {import('../state.js').Pending} Pending */

/** @param {Pending} pending @param {boolean} [waits] for a connection */
function buttonsOf(pending, waits = false) {
  const { key, content, code } = pending;
  /** @param {string} label @param {() => void} onclick @param {string} [kind] */
  const button = (label, onclick, kind = '') =>
    h('button', { type: 'button', class: `button small ${kind}`, onclick }, label);
  return [
    !waits && code !== 'session_full' && button(t('Try again'), () => resend(key)),
    fitsNewSession(pending) &&
      !!currentChat()?.turns.length &&
      button(t('Continue in a new chat'), () => {
        discard(key);
        takeBack(content);
        continueElsewhere(); // takes the message along
      }),
    fitsNewSession(pending) &&
      button(t('New chat'), () => {
        discard(key);
        show(null);
        takeBack(content);
      }),
    button(
      t('Edit'),
      () => {
        discard(key);
        takeBack(content);
      },
      'quiet',
    ),
    button(t('Discard'), () => discard(key), 'quiet'),
  ];
}

/** @param {Pending} pending @param {string} waitingFor @param {boolean} offline */
function pendingView(pending, waitingFor, offline) {
  const failed = pending.phase === 'failed';
  return h(
    'section',
    { class: 'turn pending', 'data-phase': pending.phase },
    h(
      'article',
      { class: 'message user', 'aria-label': t('You, not sent yet') },
      h('div', { class: 'said' }, bubble(pending.content)),
      !failed && waitingFor && h('div', { class: 'queued' }, waitingFor, ...(offline ? buttonsOf(pending, true) : [])),
    ),
    failed &&
      h(
        'div',
        { class: 'problem', role: 'alert' },
        icon('warning'),
        h('span', null, pending.message ?? t("Couldn't send the message.")),
        h('div', { class: 'problem-actions' }, ...buttonsOf(pending)),
      ),
  );
}

/** @type {Map<string, {memo: ReturnType<typeof newMemo>, element: Element | null}>} */
let drawn = new Map();

/**
 * Messages that are being sent stand at the end, a refused one where it was sent.
 * @param {import('../state.js').Chat | null} chat
 * @param {Element} end
 * @param {(chat: import('../state.js').Chat, turn: number) => Element | null} viewAfter the exchange behind a turn
 * @returns {boolean} whether there is a new one to be sent
 */
export function drawPending(chat, end, viewAfter) {
  const { phase, everOpen } = state.connection;
  const offline = phase !== 'open';
  const until = everOpen ? t('Will send when the server is back') : t('Connecting… Your message will be sent then.');
  const before = drawn;
  let grew = false;
  drawn = new Map();
  for (const p of chat?.pending ?? []) {
    const waitingFor = offline ? until : p.slow ? t('Sending…') : '';
    const view = before.get(p.key) ?? { memo: newMemo(), element: null };
    if (!view.element && p.phase === 'sending') grew = true;
    view.memo([waitingFor, offline, p.phase, p.message], () => {
      view.element?.remove();
      view.element = pendingView(p, waitingFor, offline);
    });
    drawn.set(p.key, view);
    const element = /** @type {Element} */ (view.element);
    const next = p.phase === 'failed' && chat ? viewAfter(chat, p.after) : null;
    if (next ? !standsBefore(element, next) : element.parentElement !== end)
      (next?.parentElement ?? end).insertBefore(element, next);
  }
  for (const [key, { element }] of before) if (!drawn.has(key)) element?.remove();
  return grew;
}

/** @param {Element} element @param {Element} next */
function standsBefore(element, next) {
  let at = next.previousElementSibling;
  while (at && at !== element && at.classList.contains('pending')) at = at.previousElementSibling;
  return at === element;
}
