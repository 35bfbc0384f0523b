// @ts-check
// Which sessions have answers that were not on the screen of this browser yet. A session that was never opened here
// has none.
import { seenTurns, setSeenTurns } from './prefs.js';
import { currentSession, state, subscribe, touch } from './state.js';

/** @typedef {import('./state.js').Session} Session */

/** Turns that are over, a queued one aside. @param {Session} session */
const finished = (session) => session.n_turns - (session.state === 'active' ? 1 : 0);

/** @param {Session} session */
export const isUnread = (session) =>
  session.id !== state.current &&
  session.state !== 'active' &&
  finished(session) > (seenTurns(session.id) ?? Infinity);

function note() {
  const session = currentSession();
  if (!session || document.hidden || seenTurns(session.id) === finished(session)) return;
  setSeenTurns(session.id, finished(session));
  touch('session', session.id);
}
subscribe('session', note);
subscribe('selection', note);
document.addEventListener('visibilitychange', note);
