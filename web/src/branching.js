// @ts-check
// The tree of a session's turns: another answer, more of an answer, a message said differently, the versions that there
// are of a turn, and a session of its own from any of them. Nothing is overwritten: what leaves the path stays in the
// session, and the versions lead back to it.
import { newId, reload, request, sentence, show } from './actions.js';
import { addChat, currentChat, currentSession, state } from './state.js';
import { toast } from './view/toasts.js';

/** @typedef {import('./turns.js').Turn} Turn */

/** Whether the path of the session shown can be moved. A server that knows of no tree tells no head. */
export function canBranch() {
  const session = currentSession();
  return session?.head !== undefined && session.state !== 'closed' && currentChat()?.phase === 'ready';
}

/**
 * Does it in the session shown, and says what went wrong.
 * @param {string} what
 * @param {(chat: import('./state.js').Chat) => Promise<any>} run
 * @returns {Promise<boolean>}
 */
async function attempt(what, run) {
  const chat = currentChat();
  if (!chat) return false;
  try {
    await run(chat);
    return true;
  } catch (error) {
    toast(`${what}: ${sentence(error)}`, 'error');
    return false;
  }
}

/** Another answer to the same message. @param {Turn} turn */
export const regenerate = (turn) =>
  attempt("Couldn't regenerate", (chat) =>
    request({ type: 'turn.regenerate', session: chat.id, turn: turn.turn }),
  );

/** More of an answer that was cut off. @param {Turn} turn the last of the path */
export const goOn = (turn) =>
  attempt("Couldn't continue", (chat) =>
    request({ type: 'turn.start', session: chat.id, after: turn.turn, input: { continue: true } }),
  );

/**
 * Says a message differently: a new turn beside it. Rejects with RequestError.
 * @param {Turn} turn
 * @param {import('./turns.js').Input} input
 * @param {string} key of the request: said again with it, it is one turn
 */
export async function sayInstead(turn, input, key) {
  const chat = currentChat();
  if (chat)
    await request({ type: 'turn.start', session: chat.id, after: turn.parent ?? null, input, request_id: key });
}

/** Goes to another version of a turn, and on to the newest turn below it. @param {number} turn */
export const showVersion = (turn) =>
  attempt("Couldn't show this version", async (chat) => {
    await request({ type: 'session.rewind', session: chat.id, turn, leaf: true });
    if (chat.stale) await reload(chat);
  });

/** On to the newest turn below the head, which somebody has moved back. */
export const showLater = () =>
  attempt("Couldn't show the later messages", async (chat) => {
    await request({ type: 'session.rewind', session: chat.id, turn: currentSession()?.head ?? null, leaf: true });
    if (chat.stale) await reload(chat);
  });

/** A new session that begins with the path up to a turn. @param {Turn} turn */
export const branchOff = (turn) =>
  attempt("Couldn't create the session", async (chat) => {
    const id = newId();
    await request(
      { type: 'session.fork', session: chat.id, turn: turn.turn, new_session: id },
      { fits: (frame) => frame.type === 'session.opened' && frame.session.id === id },
    );
    if (!state.chats.has(id)) addChat(id, false);
    if (state.current === chat.id) show(id);
  });
