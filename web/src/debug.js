// @ts-check
// Inspecting a session: a turn's record, its replay, the session's events. Only replays are cached, because they take
// long.
import { request } from './actions.js';

/**
 * @typedef {{id: number, text: string, logprob: number}} Choice
 * @typedef {Choice & {top?: Choice[]}} Token
 * @typedef {import('./turns.js').Turn & {seq_first?: number, seq_last?: number}} TurnObject
 * @typedef {{turn: TurnObject, request: {sampling?: Record<string, any> | null}, build: string, instance: string, started_ms: number,
 *   ended_ms: number, log_first: number | null, input_ids: number[], input_tokens: string[], tokens: Token[]}} Record_
 * @typedef {{kind: 'token' | 'logprob' | 'end', position: number, index: number,
 *   recorded: Choice & {logprob_now: number | null}, replayed: Token}} Divergence
 * @typedef {{equal: boolean, compared_tokens: number, logprobs_differ?: number, cut_short?: boolean,
 *   ended_alike: boolean | null, finish_reason?: {recorded: string, replayed: string | null}, tokens: Token[],
 *   divergence?: Divergence, other_token?: Divergence, differs: Array<{what: string, recorded: string, now: string}>}} Replayed
 * @typedef {{seq: number, n?: number, kind: string, turn?: number, reason?: string, at_ms: number,
 *   cache?: {source: string, resume_ms: number, refused?: string}, forked_from?: {session: string, turn: number | null}}} SessionEvent
 */

const EVENTS = 100;
const COPIES = 200;
const KEPT = 8;

/** @param {string} session @param {number} turn @returns {Promise<Record_>} */
export const fetchTurn = (session, turn) => request({ type: 'turn.get', session, turn });

/** The last events before one, oldest first. @param {string} session @param {number} [before] its seq
 *  @returns {Promise<{events: SessionEvent[], more: boolean}>} */
export const fetchEvents = (session, before) =>
  request({ type: 'session.events', session, last: EVENTS, ...(before === undefined ? {} : { before }) });

/** The sessions forked from one, newest first. @param {string} session
 *  @returns {Promise<import('./state.js').Session[]>} */
export const fetchCopies = async (session) =>
  (await request({ type: 'session.list', forked_from: session, limit: COPIES })).sessions;

/** @typedef {{running: Promise<Replayed> | null, found: Replayed | null}} Replay */
/** @type {Map<string, Replay>} */
const replays = new Map();

/** The replay of a turn that runs or is over. @param {string} session @param {number} turn */
export const replayOf = (session, turn) => replays.get(`${session} ${turn}`);

/** Ends the replay that runs. @param {string} session */
export const cancelReplay = (session) => request({ type: 'turn.cancel', session, replay: true });

/** Replays a turn. @param {string} session @param {number} turn @returns {Promise<Replayed>} */
export function replayTurn(session, turn) {
  const key = `${session} ${turn}`;
  const under = replays.get(key)?.running;
  if (under) return under;
  /** @type {Replay} */
  const replay = { running: null, found: null };
  replays.delete(key);
  replays.set(key, replay);
  for (const old of [...replays.keys()].slice(0, -KEPT)) replays.delete(old);
  replay.running = request({ type: 'turn.replay', session, turn }, { until: 'turn.replayed' });
  replay.running
    .then(
      (found) => (replay.found = found),
      () => replays.get(key) === replay && replays.delete(key),
    )
    .finally(() => (replay.running = null));
  return replay.running;
}
