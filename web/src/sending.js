// @ts-check
// Sends messages, and opens the session that the first one begins.
import { isCode, newId, newKey, reload, request, sentence, setHash, show, tell, update } from './actions.js';
import { asText } from './format.js';
import { RequestError } from './socket.js';
import {
  addChat,
  addPending,
  currentChat,
  currentSession,
  isFull,
  lastTurn,
  model,
  nextChat,
  nextModel,
  pendingAccepted,
  runningTurn,
  select,
  sessionRemoved,
  setChat,
  setFresh,
  setPending,
  state,
} from './state.js';
import { toast } from './notices.js';
import { t } from './text.js';

const TYPING_MS = 5000; // minimum time between two session.typing messages
const SLOW_MS = 1000; // when to show that a message is being sent

/** Says something in the session shown, or in a new one. @param {string} said */
export function send(said) {
  const content = asText(said);
  let chat = currentChat();
  if (!chat) {
    chat = addChat(newId(), true);
    chat.values = newSessionValues();
    chat.folder = state.fresh.folder;
    setFresh({ system: null });
    setHash(chat.id);
    select(chat.id);
  }
  const key = newKey();
  addPending(chat, key, content);
  deliver(chat, key, content);
}

let hinted = { session: '', at: -Infinity };

/** Tells the server that the user types, so that it restores the session's cache. */
export function typing() {
  const session = currentSession();
  if (!session || !['parked', 'cold'].includes(session.state)) return;
  const now = performance.now();
  if (hinted.session === session.id && now - hinted.at < TYPING_MS) return;
  hinted = { session: session.id, at: now };
  tell({ type: 'session.typing', session: session.id });
}

/** Retries with the same request_id, so that the server starts at most one turn. @param {string} key */
export function resend(key) {
  const chat = currentChat();
  const pending = chat?.pending.find((p) => p.key === key);
  if (!chat || !pending) return;
  setPending(chat, key, { phase: 'sending', slow: false, after: lastTurn(chat) });
  deliver(chat, key, pending.content);
}

/** @type {Map<string, AbortController>} of the messages that are being sent, by their keys */
const deliveries = new Map();

/**
 * Gives a message up, also one that waits for a connection. A session that this page began with it, and that has nothing
 * else, goes too.
 * @param {string} key
 */
export function discard(key) {
  const chat = currentChat();
  if (!chat) return;
  setPending(chat, key, null);
  deliveries.get(key)?.abort();
  if (!chat.values || chat.turns.length || chat.pending.length || chat.more) return;
  const { system = null, model: name, prompt_task: task, sampling } = chat.values;
  openings.get(chat.id)?.waits.abort();
  if (!chat.local) request({ type: 'session.close', session: chat.id, delete: true }).catch(() => {}); // then it stays, empty
  show(null);
  sessionRemoved(chat.id);
  setFresh({ system, folder: chat.folder, ...(name && { model: name }), ...(task && { task }), ...(sampling && { sampling }) });
}

/** Whether a new session could hold a message that this one refused. @param {import('./state.js').Pending} pending */
export function fitsNewSession({ room }) {
  const { session_len: length = nextModel()?.session_len ?? 0 } = newSessionValues();
  return !!room && room.need < length;
}

/** @param {import('./state.js').Chat} chat @param {string} key @param {string} content */
async function deliver(chat, key, content) {
  const timer = setTimeout(() => setPending(chat, key, { slow: true }), SLOW_MS);
  const { signal } = newDelivery(key);
  try {
    if (chat.local) await open(chat);
    if (signal.aborted) return;
    const answer = await request(
      { type: 'turn.start', session: chat.id, input: { content }, queue: true, request_id: key },
      { again: true, signal },
    );
    pendingAccepted(chat, key, answer.turn);
  } catch (error) {
    const { code, room } = error instanceof RequestError ? error : { code: 'internal', room: undefined };
    setPending(chat, key, { phase: 'failed', code, room, message: sentence(error) });
  } finally {
    clearTimeout(timer);
    deliveries.delete(key);
  }
}

/** @param {string} key */
function newDelivery(key) {
  const delivery = new AbortController();
  deliveries.set(key, delivery);
  return delivery;
}

/** The members of session.open beside the id. @returns {Record<string, any>} */
function newSessionValues() {
  const { model, task, system, sampling, ...lengths } = nextChat();
  return {
    ...lengths,
    ...(system && { system }),
    ...(model && { model }),
    ...(task && { prompt_task: task }),
    ...(Object.keys(sampling).length && { sampling }),
  };
}

/** @type {Map<string, {opened: Promise<void>, waits: AbortController}>} two messages sent at once open one session */
const openings = new Map();

/** @param {import('./state.js').Chat} chat @returns {Promise<void>} */
function open(chat) {
  const under = openings.get(chat.id);
  if (under) return under.opened;
  const waits = new AbortController();
  const opened = openOnce(chat, waits.signal).finally(() => openings.delete(chat.id));
  openings.set(chat.id, { opened, waits });
  return opened;
}

/** @param {import('./state.js').Chat} chat @param {AbortSignal} signal */
async function openOnce(chat, signal) {
  try {
    await request(
      { type: 'session.open', session: chat.id, ...chat.values },
      {
        again: true,
        signal,
        fits: (frame) => frame.type === 'session.opened' && frame.session.id === chat.id,
      },
    );
    setChat(chat, { local: false });
    if (chat.folder) update(chat.id, { folder: chat.folder }).catch((error) => toast(sentence(error), 'error'));
  } catch (error) {
    // Sent twice because the connection was lost; the first one arrived.
    if (!isCode(error, 'session_exists')) throw error;
    setChat(chat, { local: false });
    await reload(chat);
  }
}

export function stop() {
  const chat = currentChat();
  const running = runningTurn(chat) ?? chat?.turns.find((turn) => turn.state === 'queued');
  if (chat && running) cancel(running.turn);
}

/** Ends a running turn or takes a waiting one out of the queue. @param {number} turn */
export function cancel(turn) {
  const chat = currentChat();
  if (chat)
    request({ type: 'turn.cancel', session: chat.id, turn }).catch((error) => toast(sentence(error), 'error'));
}

/** Why no message can be sent now. @returns {string} '' when it can */
export function whyNot() {
  const session = currentSession();
  const chat = currentChat();
  if (session?.state === 'closed') return t('This chat is closed. You can read it but not continue it.');
  if (isFull(session, chat)) return t('This chat is full.');
  if (chat && chat.phase !== 'ready') return t('The chat is still loading.');
  const known = session ? model(session.model) : nextModel();
  if (known && !known.chat) return t('{0} has no chat template, so it cannot chat.', known.name);
  return '';
}
