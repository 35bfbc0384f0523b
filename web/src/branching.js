// @ts-check
// The tree of a session's turns: regenerate, continue, edit, switch versions, branch into a new session. Nothing is
// overwritten: turns that leave the path stay in the session as versions.
import { newId, reload, request, sentence, show } from './actions.js';
import { addChat, currentChat, currentSession, state } from './state.js';
import { t } from './text.js';
import { deleteLater } from './turn_deletion.js';
import { toast } from './notices.js';

/** @typedef {import('./turns.js').Turn} Turn */

/** Whether the current path can change. A server without branching sends no head. */
export function canBranch() {
  const session = currentSession();
  return session?.head !== undefined && session.state !== 'closed' && currentChat()?.phase === 'ready';
}

/**
 * Runs an action in the current session and shows its error.
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
  attempt(t("Couldn't regenerate"), (chat) =>
    request({ type: 'turn.regenerate', session: chat.id, turn: turn.turn }),
  );

/** Continues an answer that was cut off. @param {Turn} turn the last of the path */
export const goOn = (turn) =>
  attempt(t("Couldn't continue"), (chat) =>
    request({ type: 'turn.start', session: chat.id, after: turn.turn, input: { continue: true } }),
  );

/**
 * Edits a message: starts a new turn beside it. Rejects with RequestError.
 * @param {Turn} turn
 * @param {import('./turns.js').Input} input
 * @param {string} key of the request: a retry with the same key starts no second turn
 */
export async function sayInstead(turn, input, key) {
  const chat = currentChat();
  if (chat)
    await request({ type: 'turn.start', session: chat.id, after: turn.parent ?? null, input, request_id: key });
}

/**
 * Puts other words in the place of an answer: a new version of its turn. Rejects with RequestError.
 * @param {number} turn @param {string} text @param {string} key of the request
 */
export async function answerInstead(turn, text, key) {
  const chat = currentChat();
  if (!chat) return;
  await request({ type: 'turn.edit', session: chat.id, turn, text, request_id: key });
  if (chat.stale) await reload(chat);
}

/** Deletes a turn and all below it, with time to undo it. @param {Turn} turn */
export const deleteTurn = (turn) => attempt(t("Couldn't delete this"), (chat) => deleteLater(chat, turn));

/** @typedef {{turn: number, parent: number | null, state: string, input_start: string, text_start: string, n_output: number,
 *   branch?: {edited?: number}}} Outlined */
/** All turns of a session's tree, and its head. @param {string} id @returns {Promise<{head: number | null, turns: Outlined[]}>} */
export async function fetchOutline(id) {
  /** @type {Outlined[]} */
  const turns = [];
  for (let from = 0; ; ) {
    const page = await request({ type: 'session.outline', session: id, from, limit: 200 });
    turns.push(...page.turns);
    if (page.next === null) return { head: page.head, turns };
    from = page.next;
  }
}

/** Goes to another version of a turn, and on to the newest turn below it. @param {number} turn */
export const showVersion = (turn) =>
  attempt(t("Couldn't show this version"), async (chat) => {
    await request({ type: 'session.rewind', session: chat.id, turn, leaf: true });
    if (chat.stale) await reload(chat);
  });

/** Moves the head forward to the newest turn below it. */
export const showLater = () =>
  attempt(t("Couldn't show the later messages"), async (chat) => {
    await request({ type: 'session.rewind', session: chat.id, turn: currentSession()?.head ?? null, leaf: true });
    if (chat.stale) await reload(chat);
  });

/** A new session that begins with the path up to a turn. @param {Turn} turn */
export const branchOff = (turn) =>
  attempt(t("Couldn't create the chat"), async (chat) => {
    const id = newId();
    await request(
      { type: 'session.fork', session: chat.id, turn: turn.turn, new_session: id },
      { fits: (frame) => frame.type === 'session.opened' && frame.session.id === id },
    );
    if (!state.chats.has(id)) addChat(id, false);
    if (state.current === chat.id) show(id);
  });
