// @ts-check
// What stands around the turns: where the session is from, its system prompt, and why an answer is paused.
import { h, icon, newMemo, setText } from '../dom.js';
import { currentChat, currentSession, state } from '../state.js';
import { t } from '../text.js';

export const origin = h('p', { class: 'origin', hidden: true });
export const stalled = h('p', { class: 'stalled', role: 'status', hidden: true });
const systemText = h('div', { class: 'system-shown', dir: 'auto', tabIndex: 0, role: 'group', 'aria-label': t('System prompt') });
export const systemNote = h('details', { class: 'system-note', hidden: true }, h('summary', null, t('System prompt')), systemText);

const originMemo = newMemo();
function drawOrigin() {
  const from = currentSession()?.forked_from;
  origin.hidden = !from || currentChat()?.more === true;
  if (!from) return;
  const title = state.sessions.get(from.session)?.title || t('another chat');
  originMemo([from, title], () => {
    const turn = from.turn === null ? '' : `&t=${from.turn}`;
    origin.replaceChildren(icon('branch'), t('Branched from '), h('a', { href: `#s=${encodeURIComponent(from.session)}${turn}` }, title));
  });
}

function drawSystem() {
  const session = currentSession();
  systemNote.hidden = !session?.system || currentChat()?.more === true;
  if (systemNote.dataset.of !== session?.id) systemNote.open = false;
  systemNote.dataset.of = session?.id ?? '';
  setText(systemText, session?.system ?? '');
}

/** @type {Record<string, string>} */
const STALLED = {
  disk_full: t('The answer is paused because the server cannot save it: its disk is full.'),
  read_only: t('The answer is paused because the server cannot save it: its database is read-only.'),
  disk_error: t('The answer is paused because the server cannot save it: its disk reports an error.'),
};

// The server repeats it at each attempt; announce it only when the reason changes.
function drawStalled() {
  const why = currentChat()?.stalled;
  stalled.hidden = !why;
  setText(stalled, why ? STALLED[why.reason] ?? STALLED.disk_error : '');
  stalled.title = why?.message ?? ''; // the database's own words, in English
}

export function drawAround() {
  drawOrigin();
  drawSystem();
  drawStalled();
}
