// @ts-check
// Which sessions have answers that were not on the screen of this browser yet. A session that was never opened here
// has none.
import { seenTurns, setSeenTurns } from './prefs.js';
import { currentChat, currentSession, isBusy, lastTurn, state, subscribe, touch } from './state.js';

/** @typedef {import('./state.js').Session} Session */

/** Turns that are over, a queued one aside. @param {Session} session */
const finished = (session) => session.n_turns - (session.state === 'active' ? 1 : 0);

/** @param {Session} session */
export const isUnread = (session) =>
  session.id !== state.current &&
  session.state !== 'active' &&
  finished(session) > (seenTurns(session.id) ?? Infinity);

/** @type {Set<string>} sessions whose answer ended while this tab was hidden */
const ready = new Set();
/** @type {Set<string>} */
const answering = new Set();

/** Whether an answer has ended that the user has not seen, because the tab is hidden. */
export const answerReady = () => ready.size > 0;

subscribe('session', (ids) => {
  for (const id of ids) {
    const active = state.sessions.get(id)?.state === 'active';
    if (active) answering.add(id);
    else if (answering.delete(id) && document.hidden) ready.add(id);
  }
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden || !ready.size) return;
  ready.clear();
  touch('session');
});

function note() {
  const session = currentSession();
  const chat = currentChat();
  if (!session || !chat || document.hidden) return;
  // The transcript knows the end of a turn before the list does. Numbers of turns begin at 0.
  const seen = Math.max(finished(session), isBusy(chat) ? 0 : lastTurn(chat) + 1);
  if (seenTurns(session.id) === seen) return;
  setSeenTurns(session.id, seen);
  touch('session', session.id);
}
subscribe('session', note);
subscribe('turn', note);
subscribe('selection', note);
document.addEventListener('visibilitychange', note);
