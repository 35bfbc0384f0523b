// @ts-check
// Deleting turns, with time to undo it. The page goes to before the turn at once and hides it; the server is asked to
// delete it when it can no longer be restored: after a while, or when the page closes. The browser stores what is planned:
// what a closing page could not send any more is left to the next one.
import { isCode, reload, request, sentence, tell } from './actions.js';
import { setTurnDeletion, turnDeletions } from './prefs.js';
import { hideTurn, state } from './state.js';
import { t } from './text.js';
import { answersOf } from './turns.js';
import { toast } from './notices.js';

/** @typedef {import('./turns.js').Turn} Turn */

const RESTORE_MS = 8000; // for which a deleted turn can be restored
const AGAIN_MS = 2000; // before another attempt, while the session answers

/** @type {Set<string>} deletions that this page will carry out */
const planned = new Set();
const keyOf = (/** @type {string} */ session, /** @type {number} */ turn) => `${session} ${turn}`;

/**
 * Takes a turn and all below it from the page, and from the server when it can no longer be restored. Goes on to
 * another version of it, if there is one. Rejects with RequestError.
 * @param {import('./state.js').Chat} chat @param {Turn} turn
 */
export async function deleteLater(chat, turn) {
  const head = chat.turns.at(-1)?.turn ?? null;
  const others = answersOf(turn).filter((other) => other !== turn.turn);
  const beside = others.at(-1) ?? (turn.siblings ?? []).filter((other) => other !== turn.turn).at(-1);
  await request({
    type: 'session.rewind',
    session: chat.id,
    ...(beside === undefined ? { turn: turn.parent ?? null } : { turn: beside, leaf: true }),
  });
  setTurnDeletion(keyOf(chat.id, turn.turn), Date.now() + RESTORE_MS);
  plan(chat.id, turn.turn);
  await reload(chat);
  toast(t('Deleted from here on.'), 'info', { label: t('Undo'), run: () => restore(chat, turn.turn, head), ms: RESTORE_MS });
}

/** What an earlier page, or this one without a connection, did not come to. */
export function planDeletions() {
  for (const key of Object.keys(turnDeletions())) {
    const [session, turn] = key.split(' ');
    plan(session, Number(turn));
  }
}

/** @param {string} session @param {number} turn */
function plan(session, turn) {
  const key = keyOf(session, turn);
  hideTurn(session, turn, true);
  if (planned.has(key)) return;
  planned.add(key);
  setTimeout(() => deleteNow(session, turn), Math.max(0, (turnDeletions()[key] ?? 0) - Date.now()));
}

// A page that closes cannot undo any more: its deletions happen now (see actions.js).
addEventListener('pagehide', () => {
  const stored = turnDeletions();
  for (const key of planned) {
    const [session, turn] = key.split(' ');
    if (key in stored) tell({ type: 'turn.delete', session, turn: Number(turn) });
  }
});

/** @param {string} session @param {number} turn */
async function deleteNow(session, turn) {
  const key = keyOf(session, turn);
  if (key in turnDeletions()) {
    try {
      await request({ type: 'turn.delete', session, turn });
    } catch (error) {
      if (isCode(error, 'session_busy')) {
        setTimeout(() => deleteNow(session, turn), AGAIN_MS);
        return;
      }
      planned.delete(key);
      if (isCode(error, 'disconnected')) return; // the next connection deletes it
      // With a turn above it, or by another client.
      const gone = isCode(error, 'session_not_found') || isCode(error, 'invalid');
      if (!gone) toast(t("Couldn't delete the messages: {0}", sentence(error)), 'error');
    }
    setTurnDeletion(key, null);
  }
  planned.delete(key);
  hideTurn(session, turn, false);
  const chat = state.chats.get(session);
  if (chat?.opened) await reload(chat);
}

/** @param {import('./state.js').Chat} chat @param {number} turn @param {number | null} head of the path it was on */
async function restore(chat, turn, head) {
  setTurnDeletion(keyOf(chat.id, turn), null);
  hideTurn(chat.id, turn, false);
  try {
    await request({ type: 'session.rewind', session: chat.id, turn: head });
  } catch (error) {
    // A turn that was started meanwhile runs: what was restored is a version beside it.
    if (!isCode(error, 'session_busy')) toast(t("Couldn't restore the messages: {0}", sentence(error)), 'error');
  }
  await reload(chat);
}
