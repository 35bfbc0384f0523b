// @ts-check
// Applies a session's events to its transcript, in the order of their seq. Part of the page's state: state.js.
import { needTurn, putSession, setChat, settlePending, state, touch, turnOf } from './state.js';
import { hasBranches, startTurn, turnDelta, turnDone } from './turns.js';

/** @param {import('./state.js').Chat} chat @param {any} frame @returns {'ok' | 'old' | 'gap'} */
function admit(chat, frame) {
  const first = frame.first_seq ?? frame.seq;
  if (frame.seq <= chat.seq) return 'old';
  if (first !== chat.seq + 1) return 'gap'; // also a merged delta of which a part is known: its text cannot be split
  chat.seq = frame.seq;
  return 'ok';
}

/** Shortens the path to an earlier turn. @param {import('./state.js').Chat} chat @param {number | null} head */
function cutPath(chat, head) {
  if (head !== null && !turnOf(chat, head)) {
    chat.stale = true;
    return;
  }
  chat.turns = head === null ? [] : chat.turns.filter((turn) => turn.turn <= head);
  if (head === null) chat.more = false;
}

/**
 * A turn that starts or is queued. Numbers grow in the order of creation, so a turn whose number does not follow its
 * parent's may have siblings; the session's state lists them.
 * @param {import('./state.js').Chat} chat
 * @param {any} frame
 * @returns {'ok' | 'path'}
 */
function joinPath(chat, frame) {
  const turn = turnOf(chat, frame.turn);
  if (frame.parent === undefined || turn?.parent !== undefined) return 'ok';
  const before = chat.turns.findLast((other) => other.turn < frame.turn);
  chat.stale = (before?.turn ?? null) !== frame.parent;
  if (chat.stale) return 'path';
  needTurn(chat, frame.turn).parent = frame.parent;
  return frame.turn === (frame.parent ?? -1) + 1 ? 'ok' : 'path';
}

/**
 * An event of a session.
 * @param {any} frame
 * @returns {'ok' | 'old' | 'gap' | 'path'} gap: events are missing before it; path: the page needs the session's state,
 *   because it does not know the path or the siblings
 */
export function applyEvent(frame) {
  const id = typeof frame.session === 'string' ? frame.session : frame.session?.id;
  const chat = state.chats.get(id);
  if (typeof frame.session === 'object') putSession(frame.session); // session.opened, updated, closed
  if (!chat) return 'old';
  if (frame.type === 'turn.progress') {
    const turn = turnOf(chat, frame.turn);
    if (turn) turn.progress = { done: frame.done, total: frame.total };
    touch('turn', frame.turn);
    return 'ok';
  }
  if (frame.type === 'session.stalled') {
    setChat(chat, { stalled: { reason: frame.reason, message: frame.message } });
    return 'ok';
  }
  // Answers have no seq. Without attaching, only answers come. A state on its way contains the events before it.
  if (frame.seq === undefined || !chat.opened || chat.phase !== 'ready' || chat.stale) return 'old';
  /** @type {'ok' | 'old' | 'gap' | 'path'} */
  let verdict = admit(chat, frame);
  if (verdict !== 'ok') return verdict;
  chat.stalled = null;
  if (frame.type === 'turn.queued' || frame.type === 'turn.started') verdict = joinPath(chat, frame);
  if (chat.stale) return verdict;
  const session = state.sessions.get(id);
  switch (frame.type) {
    case 'session.evicted':
    case 'session.parked':
      if (session) putSession({ ...session, state: frame.state, cached_tokens: 0 });
      break;
    case 'session.rewound':
      cutPath(chat, frame.head);
      chat.logTokens = frame.session.n_tokens;
      if (chat.stale || frame.reason === 'deleted') verdict = 'path'; // siblings may be gone
      break;
    case 'turn.queued': {
      const turn = needTurn(chat, frame.turn);
      turn.input = frame.input ?? turn.input;
      settlePending(chat, turn);
      break;
    }
    case 'turn.started': {
      const turn = needTurn(chat, frame.turn);
      startTurn(turn, frame);
      settlePending(chat, turn);
      chat.logTokens += frame.n_input ?? 0;
      if (session) putSession({ ...session, turn: frame.turn, state: 'active', head: frame.turn, below: false });
      break;
    }
    case 'turn.delta':
      chat.logTokens += turnDelta(needTurn(chat, frame.turn), frame);
      break;
    case 'turn.done':
      if (frame.error?.code === 'deleted') {
        chat.turns = chat.turns.filter((turn) => turn.turn !== frame.turn);
        break;
      }
      turnDone(needTurn(chat, frame.turn), frame);
      if (hasBranches(needTurn(chat, frame.turn))) verdict = 'path'; // its other answers are siblings now
      if (frame.usage?.log_tokens) chat.logTokens = frame.usage.log_tokens;
      break;
  }
  if (frame.turn !== undefined) touch('turn', frame.turn);
  touch('chat');
  return verdict;
}
