// @ts-check
// The page's only state: connection, known sessions, loaded transcripts, current session. Only the functions here
// change it. A view subscribes to a topic and is called at most once a frame.
//
// A transcript follows its session's events by seq. It ignores an event that it has seen; after a gap actions.js asks
// the server for the session's state.
//
// A session is a tree of turns; a transcript holds the current path, from its first turn to its head. When any client
// moves the head, the page shortens its path or asks for the new one.
import { plainExcerpt } from './excerpt.js';
import { onFrame, runNow } from './frame.js';
import { chosenModel, newSession, setDraftFiles, setUnsent, unsent } from './prefs.js';
import { t } from './text.js';
import { adoptTurn } from './turns.js';

/** @typedef {import('./turns.js').Turn} Turn */
/**
 * @typedef {{id: string, title: string, auto_title: boolean, pinned?: boolean, archived?: boolean, folder?: string, shared?: boolean, model: string, state: string, created_ms: number,
 *   updated_ms: number, n_turns: number, n_tokens: number, session_len: number, memory_len: number, sink_len: number,
 *   cached_tokens: number, system?: string | null, system_start?: string | null,
 *   sampling: Record<string, any>, seq: number, turn: number | null,
 *   head?: number | null, below?: boolean, forked_from?: {session: string, turn: number} | null,
 *   prompt?: {task: string | null, hash: string, n_virtual: number}}} Session
 *   head: the last turn of the current path. below: turns follow it.
 * @typedef {{turn: number, parts: string[]}} Found
 *   Where a search has found its words. parts: text around them, every second one is a word.
 * @typedef {{name: string, family: string, n_params: number, backend: string, chat: boolean, session_len: number,
 *   max_session_len: number, memory_len: number, max_memory_len: number, sink_len: number,
 *   sampling: Record<string, number>, prompt_tasks?: Array<{task: string}>,
 *   cache?: {session_bytes: number, windows: Array<{window: number, bytes_per_token: number}>},
 *   suggestions?: Array<{title: string, text: string}>}} Model
 * @typedef {{key: string, content: string, phase: 'sending' | 'failed', slow?: boolean, after: number, code?: string,
 *   message?: string, room?: import('./socket.js').Room}} Pending
 *   A message that the server has not accepted yet. The browser stores it until it is a turn or is discarded.
 *   slow: it has taken long enough to show. after: the newest turn when it was sent, so its own turn has a higher number.
 * @typedef {{id: string, phase: 'loading' | 'ready' | 'failed', local: boolean, opened: boolean, message: string, turns: Turn[],
 *   seq: number, more: boolean, reading: boolean, stale: boolean, stalled: {reason: string, message: string} | null, pending: Pending[], logTokens: number,
 *   generation: number, target: number | null, values?: Record<string, any>, folder?: string}} Chat
 *   A transcript. local: the session is not open on the server yet. values: what to open it with, folder: where it goes then.
 *   target: a turn to go to as soon as it is drawn. opened: this connection is attached to it.
 *   more: there are earlier turns. reading: some of them are being loaded.
 *   stalled: why the server cannot save events, and so does not send them; null if it can.
 *   stale: the path has changed; events are ignored until its state comes. generation: grows when all turns are
 *   replaced.
 * @typedef {{system: string | null, model?: string, task?: string, folder?: string, sampling?: Record<string, any>}} Fresh
 *   What the chat that has not begun will start with. system: null for the value of all new sessions.
 * @typedef {'connecting' | 'open' | 'waiting' | 'unauthorized'} Phase
 * @typedef {'connection' | 'list' | 'session' | 'selection' | 'chat' | 'turn' | 'prefs'} Topic
 */

export const state = {
  connection: {
    phase: /** @type {Phase} */ ('connecting'),
    everOpen: false,
    retryAt: 0, // Date.now() of the next attempt while waiting
    message: '', // why a token is needed
    server: /** @type {{name: string, version: string, id?: string} | null} */ (null),
    user: /** @type {{name?: string, admin: boolean}} name: where tokens are in use */ ({ admin: true }),
    models: /** @type {Model[]} */ ([]),
    sampling: /** @type {import('./view/fields.js').Parameter[]} */ ([]),
    limits: /** @type {Record<string, number>} */ ({}),
    idleEvictionMs: 0,
    sharing: false, // links can be made
  },
  list: {
    ids: /** @type {string[]} */ ([]),
    query: '',
    archive: false, // the archived sessions are listed, and no others
    found: /** @type {Map<string, Found>} */ (new Map()), // by session
    cursor: /** @type {string | null} */ (null),
    phase: /** @type {'loading' | 'ready' | 'failed'} */ ('loading'),
  },
  sessions: /** @type {Map<string, Session>} */ (new Map()),
  chats: /** @type {Map<string, Chat>} */ (new Map()),
  deleting: /** @type {Set<string>} */ (new Set()), // can still be restored, or a copy of a what-if run; not in the list
  deletingTurns: /** @type {Map<string, Set<number>>} */ (new Map()), // the same for turns, by session
  current: /** @type {string | null} */ (null), // null: a chat that has not begun
  view: /** @type {'chat' | 'server'} */ ('chat'),
  fresh: /** @type {Fresh} */ ({ system: null }),
};

// --- who listens -----------------------------------------------------------------------------------------------

/** @type {Map<Topic, Array<(keys: Set<any>) => void>>} */
const listeners = new Map();
/** @type {Map<Topic, Set<any>>} */
let dirty = new Map();

function notify() {
  const now = dirty;
  dirty = new Map();
  for (const [topic, keys] of now)
    for (const listener of listeners.get(topic) ?? [])
      try {
        listener(keys);
      } catch (error) {
        reportError(error); // one view's fault does not stop the others
      }
}

/**
 * Calls listener with the keys (session ids, turn numbers) that changed since.
 * @param {Topic} topic
 * @param {(keys: Set<any>) => void} listener
 */
export function subscribe(topic, listener) {
  listeners.set(topic, [...(listeners.get(topic) ?? []), listener]);
}

/** @param {Topic} topic @param {any} [key] */
export function touch(topic, key) {
  let keys = dirty.get(topic);
  if (!keys) dirty.set(topic, (keys = new Set()));
  keys.add(key);
  onFrame(notify);
}

// --- reading ---------------------------------------------------------------------------------------------------

/** The transcript shown. @returns {Chat | null} */
export const currentChat = () => (state.current ? (state.chats.get(state.current) ?? null) : null);
/** The session shown. @returns {Session | null} */
export const currentSession = () => (state.current ? (state.sessions.get(state.current) ?? null) : null);
/** Whether an archived session is known that is not being deleted. */
export const hasArchived = () => [...state.sessions.values()].some(({ id, archived }) => archived && !state.deleting.has(id));
/** The model that new sessions use, or the named one. @param {string} [name] @returns {Model | null} */
export const model = (name) =>
  state.connection.models.find((m) => m.name === name) ?? state.connection.models[0] ?? null;
/** The model of the chat that has not begun: carried over from another session, the user's last choice, or the first. */
export const nextModel = () => model(state.fresh.model ?? chosenModel());
/** @param {number | undefined} value @param {number} [most] */
const within = (value, most = Infinity) => (typeof value === 'number' ? Math.min(value, most) : undefined);
/**
 * What the next chat begins with: what was chosen for it, else the user's values for all new chats, within its model's
 * limits. model: '' for the server's first. Lengths: undefined for the model's.
 */
export function nextChat() {
  const { fresh } = state;
  const { system = '', sampling = {}, session_len, memory_len, sink_len } = newSession();
  const known = nextModel();
  return {
    model: fresh.model ?? (known?.name === chosenModel() ? known.name : ''),
    task: known?.prompt_tasks?.some(({ task }) => task === fresh.task) ? fresh.task : '',
    system: fresh.system ?? system,
    sampling: fresh.sampling ?? sampling,
    session_len: within(session_len, known?.max_session_len),
    memory_len: within(memory_len, known?.max_memory_len),
    sink_len: within(sink_len),
  };
}
/** @param {Chat} chat @param {number} number @returns {Turn | null} */
export function turnOf(chat, number) {
  for (let i = chat.turns.length - 1; i >= 0; i--) if (chat.turns[i].turn === number) return chat.turns[i];
  return null;
}
/** The turn that runs. @param {Chat | null} chat */
export const runningTurn = (chat) => chat?.turns.find((turn) => turn.state === 'running') ?? null;
/** Whether anything runs, waits or is being sent. @param {Chat | null} chat */
export const isBusy = (chat) =>
  !!chat &&
  (chat.turns.some((turn) => turn.state !== 'done') || chat.pending.some((p) => p.phase === 'sending'));
/**
 * Whether the session's log is full.
 * @param {Session | null} session
 * @param {Chat | null} chat
 */
export const isFull = (session, chat) =>
  !!session && Math.max(session.n_tokens, chat?.logTokens ?? 0) >= session.session_len - 1;

/**
 * How many tokens at the beginning of the log the model no longer sees: its window has moved past them.
 * @param {Session | null} session
 * @param {Chat | null} chat
 */
export function forgotten(session, chat) {
  if (!session) return 0;
  const used = Math.max(session.n_tokens, chat?.logTokens ?? 0);
  return used > session.memory_len ? used - (session.memory_len - session.sink_len) : 0;
}

// --- connection ------------------------------------------------------------------------------------------------

/** @param {Partial<typeof state.connection>} change */
export function setConnection(change) {
  Object.assign(state.connection, change);
  touch('connection');
}

// --- list ------------------------------------------------------------------------------------------------------

/** @param {Partial<typeof state.list>} change */
export function setList(change) {
  Object.assign(state.list, change);
  touch('list');
}

const folders = new Intl.Collator(undefined, { numeric: true });
/** Each of two folders has one place, also where a reader takes their names for the same. @param {string} a @param {string} b */
export const byFolder = (a, b) => (a === b ? 0 : folders.compare(a, b) || (a < b ? -1 : 1));
const rank = (/** @type {Session | undefined} */ one) => (one?.pinned ? 0 : one?.folder ? 1 : 2);
/** Pinned, then folder by folder, then the others; the newest first in each. @param {string} a @param {string} b */
function inOrder(a, b) {
  const [one, other] = [state.sessions.get(a), state.sessions.get(b)];
  const first = rank(one);
  return (
    first - rank(other) ||
    (first === 1 && byFolder(one?.folder ?? '', other?.folder ?? '')) ||
    (other?.updated_ms ?? 0) - (one?.updated_ms ?? 0) || (a < b ? 1 : -1)
  );
}

const UNMARKED = { pinned: false, archived: false, folder: '', shared: false }; // what the server leaves out

/** One page of the list. @param {Array<Session & {found?: Found}>} sessions @param {string | null} cursor @param {boolean} append */
export function setListPage(sessions, cursor, append) {
  if (!append) state.list.found.clear();
  for (const { found, ...session } of sessions) {
    if (found) state.list.found.set(session.id, { ...found, parts: plainExcerpt(found.parts) });
    putSession({ ...state.sessions.get(session.id), ...UNMARKED, ...session }); // they have no whole prompt
  }
  const ids = append ? state.list.ids : [];
  const brought = sessions.map(({ id }) => id).filter((id) => !state.deleting.has(id));
  setList({ ids: [...new Set([...ids, ...brought])], cursor, phase: 'ready' });
  if (!state.list.query) state.list.ids.sort(inOrder);
}

/** A session as the server says it is. @param {Session} session */
export function putSession(session) {
  const before = state.sessions.get(session.id);
  state.sessions.set(session.id, session);
  touch('session', session.id);
  const chat = state.chats.get(session.id);
  if (chat && session.n_tokens > chat.logTokens) chat.logTokens = session.n_tokens;
  if (before && placeOf(before) !== placeOf(session)) listSession(session);
}

/** Whatever decides where a session stands in the list. @param {Session} session */
const placeOf = ({ pinned, archived, folder, updated_ms }) => JSON.stringify([!!pinned, !!archived, folder ?? '', updated_ms]);

/** A session changed somewhere; it takes its place in the list. @param {Session} session */
export function sessionChanged(session) {
  putSession({ ...state.sessions.get(session.id), ...UNMARKED, ...session }); // it leaves out what never changes
  if (!state.list.ids.includes(session.id)) listSession(session);
}

/** @param {Session} session */
function listSession(session) {
  if (state.list.query || state.deleting.has(session.id)) return; // search results do not move
  const { ids, cursor, archive } = state.list;
  const listed = ids.includes(session.id);
  if (!!session.archived !== archive) {
    if (listed) setList({ ids: ids.filter((id) => id !== session.id) });
    return;
  }
  if (!listed) {
    // It belongs to a page of the list that is not loaded.
    const last = state.sessions.get(ids.at(-1) ?? '');
    if (!session.pinned && !session.folder && cursor && last && session.updated_ms < last.updated_ms) return;
    ids.push(session.id);
  }
  ids.sort(inOrder);
  touch('list');
}

/** @param {string} id */
export function sessionRemoved(id) {
  for (const { key } of unsent(id)) setUnsent(id, key, null);
  setDraftFiles(id, []);
  state.sessions.delete(id);
  state.chats.delete(id);
  setList({ ids: state.list.ids.filter((other) => other !== id) });
  if (state.current === id) select(null);
}

// --- transcripts -----------------------------------------------------------------------------------------------

/**
 * Draws at once: a message sent before the next frame must go to this session, not to the previous one.
 * @param {string | null} id
 */
export function select(id) {
  state.current = id;
  touch('selection');
  touch('chat');
  runNow();
}

/** @param {string} id @param {boolean} local @returns {Chat} */
export function addChat(id, local) {
  /** @type {Chat} */
  const chat = {
    id,
    phase: local ? 'ready' : 'loading',
    local,
    opened: false,
    message: '',
    turns: [],
    seq: 0,
    more: false,
    reading: false,
    stale: false,
    stalled: null,
    pending: unsent(id).map(asFailed),
    logTokens: 0,
    generation: 0,
    target: null,
  };
  state.chats.set(id, chat);
  touch('chat');
  return chat;
}

/** @param {'chat' | 'server'} view */
export function setView(view) {
  if (state.view === view) return;
  state.view = view;
  touch('selection');
}

/** @param {Fresh} fresh */
export function setFresh(fresh) {
  state.fresh = fresh;
  touch('prefs');
}

/** @param {Chat} chat @param {Partial<Chat>} change */
export function setChat(chat, change) {
  Object.assign(chat, change);
  touch('chat');
}

/** @param {string} id @param {number} turn @param {boolean} hidden it is being deleted, and no version of another turn */
export function hideTurn(id, turn, hidden) {
  const turns = new Set(state.deletingTurns.get(id));
  if (hidden) turns.add(turn);
  else turns.delete(turn);
  if (turns.size) state.deletingTurns.set(id, turns);
  else state.deletingTurns.delete(id);
  touch('session', id);
}

/** A turn without the versions that are being deleted. @param {Chat} chat @param {any} frame */
function adoptShown(chat, frame) {
  const turn = adoptTurn(frame);
  const hidden = state.deletingTurns.get(chat.id);
  if (!hidden || !turn.siblings) return turn;
  const all = turn.siblings;
  turn.inputs = turn.inputs?.filter((_, i) => !hidden.has(all[i]));
  turn.siblings = all.filter((other) => !hidden.has(other));
  return turn;
}

/** A session's state as a whole. @param {Chat} chat @param {any} frame */
export function setTranscript(chat, frame) {
  const shown = chat.turns;
  chat.turns = frame.turns.map((/** @type {any} */ turn) => adoptShown(chat, turn));
  // Known turns keep their elements; only the others are drawn.
  const kept = shown.some((turn) => turnOf(chat, turn.turn));
  for (const turn of chat.turns) touch('turn', turn.turn);
  Object.assign(chat, {
    phase: 'ready',
    local: false,
    message: '',
    seq: frame.seq,
    more: frame.more,
    stale: false,
    stalled: null,
    logTokens: frame.session.n_tokens,
  });
  if (!kept) chat.generation++;
  for (const turn of chat.turns) settlePending(chat, turn);
  putSession(frame.session);
  touch('chat');
}

/**
 * A page of earlier turns. They are done and do not change.
 * @param {Chat} chat
 * @param {any} frame session.state
 * @returns {number} how many it brought
 */
export function addOlder(chat, frame) {
  if (chat.turns[0]?.turn !== frame.before) return 0; // all turns were replaced meanwhile
  chat.turns = [...frame.turns.map((/** @type {any} */ turn) => adoptShown(chat, turn)), ...chat.turns];
  chat.more = frame.more && frame.turns.length > 0;
  for (const turn of frame.turns) touch('turn', turn.turn);
  touch('chat');
  return frame.turns.length;
}

/** The newest turn of a path; -1 for the empty one. @param {Chat} chat */
export const lastTurn = (chat) => chat.turns.at(-1)?.turn ?? -1;

// A message in storage was perhaps being sent when its page was closed: then the server may have a turn of it.
/** @param {Pending} stored @returns {Pending} */
const asFailed = (stored) =>
  stored.phase === 'failed'
    ? stored
    : { ...stored, phase: 'failed', code: 'disconnected', message: t('The page was closed before the server answered.') };

/** @param {Chat} chat @param {string} key */
const store = (chat, key) => setUnsent(chat.id, key, chat.pending.find((p) => p.key === key) ?? null);

/** @param {Chat} chat @param {string} key @param {string} content */
export function addPending(chat, key, content) {
  chat.pending = [...chat.pending, { key, content, phase: 'sending', after: lastTurn(chat) }];
  store(chat, key);
  touch('chat');
}

/** @param {Chat} chat @param {string} key @param {Partial<Pending> | null} change null removes it */
export function setPending(chat, key, change) {
  chat.pending = change
    ? chat.pending.map((p) => (p.key === key ? { ...p, ...change } : p))
    : chat.pending.filter((p) => p.key !== key);
  store(chat, key);
  touch('chat');
}

/** Whether the server may have started this message's turn without the page knowing. @param {Pending} p @param {Turn} turn */
const mayHaveStarted = (p, turn) =>
  p.phase === 'sending'
    ? turn.state !== 'done'
    : turn.turn > p.after && ['timeout', 'disconnected'].includes(p.code ?? '');

// A message whose turn has arrived is no longer pending, even if its request failed by a timeout.
/** @param {Chat} chat @param {Turn} turn */
export function settlePending(chat, turn) {
  const at = chat.pending.findIndex((p) => p.content === turn.input.content && mayHaveStarted(p, turn));
  if (at >= 0) setPending(chat, chat.pending[at].key, null);
}

/** The server took a message as turn number. @param {Chat} chat @param {string} key @param {number} number */
export function pendingAccepted(chat, key, number) {
  const pending = chat.pending.find((p) => p.key === key);
  setPending(chat, key, null);
  if (!pending) return;
  const turn = turnOf(chat, number);
  if (turn) {
    if (turn.input.content === undefined && turn.state === 'queued')
      turn.input = { content: pending.content };
  } else {
    insertTurn(chat, adoptTurn({ turn: number, state: 'queued', input: { content: pending.content } }));
  }
  touch('turn', number);
}

/** @param {Chat} chat @param {Turn} turn */
function insertTurn(chat, turn) {
  chat.turns.push(turn);
  chat.turns.sort((a, b) => a.turn - b.turn);
  touch('chat');
}

/** @param {Chat} chat @param {number} number @returns {Turn} */
export function needTurn(chat, number) {
  const known = turnOf(chat, number);
  if (known) return known;
  const turn = adoptTurn({ turn: number, state: 'queued', input: {} });
  insertTurn(chat, turn);
  return turn;
}
