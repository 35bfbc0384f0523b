// @ts-check
// What a user can do. Connects the state with the socket. A failure is shown where it belongs: at the message, in the
// dialog, or in a toast.
import { applyEvent } from './events.js';
import { count, duration } from './format.js';
import * as prefs from './prefs.js';
import { onSignedOut, signOutOthers, tokenOfOthers } from './shared_token.js';
import { askHello, RequestError, Socket } from './socket.js';
import {
  addChat,
  addOlder,
  currentChat,
  hasArchived,
  putSession,
  select,
  sessionChanged,
  sessionRemoved,
  setChat,
  setConnection,
  setList,
  setListPage,
  setTranscript,
  setView,
  state,
  touch,
} from './state.js';
import { toast } from './notices.js';
import { errorText, t } from './text.js';

const PAGE = 50;
const MOST = 200; // limit of session.list
const TURNS = 100;
const MAX_TURNS = 1000; // limit of session.get
const MODELS_MS = 5000; // between two looks at the models
const IDLE_MODELS_MS = 30000; // the same while nobody touches the page
const RESTORE_MS = 8000; // for which a deleted session can be restored
const AGAIN_MS = 3000; // before a session's state is asked for again

/** @type {Socket} */
let socket;

export function connect() {
  const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
  const base = location.pathname.replace(/[^/]*$/, '');
  socket = new Socket({
    url: `${scheme}//${location.host}${base}ws`,
    token: prefs.token,
    onOpen: opened,
    onFrame: received,
    async onPhase(phase, retryAt, message) {
      if (phase === 'unauthorized' && !prefs.token()) {
        const shared = await tokenOfOthers();
        if (shared) return authorise(shared);
      }
      // During an attempt the banner stays as it was, so that it does not flicker.
      const shown = phase === 'connecting' && (state.connection.everOpen || state.connection.phase === 'waiting') ? 'waiting' : phase;
      for (const chat of state.chats.values()) chat.opened = false;
      return setConnection({ phase: shown, retryAt, message });
    },
  });
  onSignedOut(leave);
  socket.connect();
}

// Nothing of the user stays in this tab; the page starts again and asks for a token.
function leave() {
  prefs.forgetUser();
  location.replace(location.pathname + location.search);
}

/** Forgets the token, in all tabs. */
export function signOut() {
  signOutOthers();
  leave();
}

let askedAt = 0;

// Models are loaded and unloaded while the server runs: the list of the chat that has not begun is asked for again.
async function renewModels() {
  if (state.current || document.hidden || state.connection.phase !== 'open' || performance.now() - askedAt < MODELS_MS) return;
  askedAt = performance.now();
  const { models } = await askHello(socket.options.url, prefs.token());
  if (JSON.stringify(models) !== JSON.stringify(state.connection.models)) setConnection({ models });
}
for (const name of ['visibilitychange', 'pointerover', 'focusin']) addEventListener(name, renewModels);
setInterval(renewModels, IDLE_MODELS_MS);

export const retryNow = () => socket.retryNow();
/** One message and its answer, for what is not said here. @type {Socket['request']} */
export const request = (message, how) => socket.request(message, how);

/** A message without an answer. @type {Socket['tell']} */
export const tell = (message) => socket.tell(message);
/** A request_id to send a message under, as often as it takes. */
export const newKey = () => socket.newKey();
export const newId = () =>
  (state.connection.server?.id ? `${state.connection.server.id}-` : '') +
  [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');

/** @param {string} token */
export function authorise(token) {
  prefs.setToken(token);
  socket.restart();
}

/** @param {any} hello */
function opened(hello) {
  setConnection({
    phase: 'open',
    everOpen: true,
    message: '',
    server: hello.server,
    user: hello.user ?? { admin: true },
    models: hello.models,
    sampling: hello.sampling_parameters,
    limits: hello.limits,
    idleEvictionMs: hello.idle_eviction_ms,
    sharing: !!hello.sharing,
  });
  askedAt = performance.now();
  socket.request({ type: 'sessions.watch' }).catch(() => {});
  for (const id of Object.keys(prefs.deletions())) planRemoval(id);
  follow(); // the conversation comes before the list
  search(state.list.query);
}

/** @param {any} frame */
function received(frame) {
  switch (frame.type) {
    case 'session.changed': {
      const before = state.sessions.get(frame.session.id)?.archived;
      sessionChanged(frame.session);
      if (!before !== !frame.session.archived) touch('list'); // also of a row that is not loaded
      if (before && !hasArchived()) lookForArchived();
      break;
    }
    case 'session.removed':
      removed(frame.session);
      break;
    case 'session.state': {
      const chat = state.chats.get(frame.session.id);
      // A page of older turns goes to the code that requested it.
      if (!chat || frame.before !== undefined) break;
      if (state.current === chat.id) chat.opened = true; // also where it comes after its request has timed out
      setTranscript(chat, frame);
      break;
    }
    case 'session.attached':
    case 'session.shared':
    case 'session.imported':
      putSession(frame.session);
      break;
    case 'session.importing':
    case 'session.exported':
      break;
    case 'session.opened': {
      const chat = state.chats.get(frame.session.id);
      if (chat) chat.opened = true; // opening attaches; this is the first event
      applyEvent(frame);
      break;
    }
    case 'session.closed':
      if (frame.deleted) removed(frame.session.id);
      else applyEvent(frame);
      break;
    case 'error':
      toast(errorText(frame), 'error');
      break;
    default:
      if (['gap', 'path'].includes(applyEvent(frame))) reload(state.chats.get(frame.session?.id ?? frame.session));
  }
}

/** @param {string} id */
function removed(id) {
  // The server sends it to the deleting connection and to those that watch the list. If the page has opened the
  // session's address again meanwhile, the answer to that (not found) stays on the screen.
  const chat = state.chats.get(id);
  if (chat && chat.phase !== 'ready' && !state.sessions.has(id)) return;
  const wasCurrent = state.current === id;
  const left = addressed()?.[1] !== id; // by a link whose hashchange comes next, or for the server's figures
  const cameBack = state.deleting.has(id); // by a link, after it was deleted here
  const wasArchived = state.sessions.get(id)?.archived;
  sessionRemoved(id);
  if (wasArchived && !hasArchived()) lookForArchived();
  if (!wasCurrent) return;
  if (left) showAddress();
  else if (cameBack) show(id); // and says that it is gone
  else setHash(null);
}

/** @param {unknown} error */
export function sentence(error) {
  if (!(error instanceof Error)) return String(error);
  const room = error instanceof RequestError && error.room;
  if (room) {
    const need = t('{0}{1} tokens', room.at_least ? t('at least ') : '', count(room.need));
    return t('Too long: {0}, {1} in this chat.', need, room.need > room.most ? t('at most {0} fit', count(room.most)) : t('{0} left', count(room.left)));
  }
  const after = error instanceof RequestError ? error.retryAfterMs : 0;
  const end = /[.!?]$/u.test(error.message) ? '' : '.';
  return after > 0 ? t('{0}{1} Try again in {2}.', error.message, end, duration(after)) : error.message;
}
/** @param {unknown} error @param {string} code */
export const isCode = (error, code) => error instanceof RequestError && error.code === code;

// --- the session shown -------------------------------------------------------------------------------------------

/** @param {string | null} id @param {number | null} [turn] */
const hashOf = (id, turn = null) => (id ? `#s=${encodeURIComponent(id)}${turn === null ? '' : `&t=${turn}`}` : '');

/** The address of a session or of one of its turns. @param {string} id @param {number | null} [turn] */
export const linkTo = (id, turn) => location.href.replace(/#.*$/, '') + hashOf(id, turn);

/** @param {string | null} id @param {number | null} [turn] */
export function setHash(id, turn = null) {
  const hash = hashOf(id, turn);
  if (location.hash !== hash) history.pushState(null, '', hash || location.pathname + location.search);
}

/** The session and the turn of the address. */
const addressed = () => /^#s=([A-Za-z0-9_-]{1,64})(?:&t=(\d{1,15}))?$/.exec(location.hash);

/** Shows what the address names: a session, its turn, the server. */
export function showAddress() {
  if (location.hash === '#/server') return setView('server');
  const match = addressed();
  return show(match ? match[1] : null, match?.[2] ? Number(match[2]) : null);
}

/** Shows a session (null: a new chat), and one of its turns. @param {string | null} id @param {number | null} [turn] */
export function show(id, turn = null) {
  setView('chat');
  if (id !== state.current) change(id, turn);
  else setHash(id, turn);
  const chat = currentChat();
  if (chat && turn !== null) setChat(chat, { target: turn });
}

/** @param {string | null} id @param {number | null} turn */
function change(id, turn) {
  const before = currentChat();
  if (before?.opened && !before.local) {
    before.opened = false;
    socket.request({ type: 'session.detach', session: before.id }).catch(() => {});
  }
  setHash(id, turn);
  if (id && !state.chats.has(id)) addChat(id, false);
  select(id);
  renewModels();
  forgetSome();
  if (state.connection.phase === 'open') follow();
}

// Keeps recent transcripts, so that returning to a session loads only what is new.
function forgetSome() {
  const others = [...state.chats.values()].filter(
    (chat) => chat.id !== state.current && !chat.pending.length,
  );
  for (const chat of others.slice(0, -12)) state.chats.delete(chat.id);
}

/** Attaches to the session shown, from where the transcript ends. */
async function follow() {
  const chat = currentChat();
  if (!chat || chat.local || chat.opened) return;
  if (chat.phase !== 'ready' || chat.stale) {
    await reload(chat);
    return;
  }
  chat.opened = true;
  try {
    const answer = await socket.request({ type: 'session.attach', session: chat.id, after: chat.seq });
    if (answer.reset) await reload(chat);
  } catch (error) {
    lost(chat, error);
  }
}

/** @type {Map<string, Promise<void>>} states under way: what happens before one arrives is in it */
const reloads = new Map();

/**
 * Asks for a session's state: what it is now, and the last turns of its path.
 * @param {import('./state.js').Chat | undefined} chat
 * @returns {Promise<void>}
 */
export function reload(chat) {
  if (!chat || chat.local) return Promise.resolve();
  const under = reloads.get(chat.id);
  if (under && chat.opened) return under;
  const mine = reloadOnce(chat).finally(() => reloads.get(chat.id) === mine && reloads.delete(chat.id));
  reloads.set(chat.id, mine);
  return mine;
}

/** @param {import('./state.js').Chat} chat */
async function reloadOnce(chat) {
  chat.opened = true;
  if (chat.phase === 'failed') setChat(chat, { phase: 'loading' });
  try {
    await socket.request({
      type: 'session.get',
      session: chat.id,
      attach: true,
      last: Math.max(TURNS, Math.min(MAX_TURNS, chat.turns.length)),
    });
  } catch (error) {
    lost(chat, error);
  }
}

/** @param {import('./state.js').Chat} chat @param {unknown} error */
function lost(chat, error) {
  chat.opened = false;
  if (isCode(error, 'disconnected')) return; // the next connection attaches again
  if (isCode(error, 'session_not_found')) {
    if (chat.pending.length) {
      setChat(chat, { phase: 'ready', local: true }); // its first message never arrived: it can be sent again
      return;
    }
    setChat(chat, { phase: 'failed', message: t('This chat is not on the server.') });
    return;
  }
  setChat(chat, { phase: chat.phase === 'ready' ? 'ready' : 'failed', message: sentence(error) });
  if (chat.phase === 'ready') toast(sentence(error), 'error');
  if (isCode(error, 'timeout') || (error instanceof RequestError && error.retryAfterMs)) setTimeout(follow, AGAIN_MS);
}

/** Loads the turns before those shown. @returns {Promise<number>} how many came */
export async function loadOlder() {
  const chat = currentChat();
  if (!chat?.more || chat.reading || !chat.turns.length) return 0;
  setChat(chat, { reading: true });
  try {
    const before = chat.turns[0].turn;
    return addOlder(
      chat,
      await socket.request({ type: 'session.get', session: chat.id, last: TURNS, before }),
    );
  } catch (error) {
    if (!isCode(error, 'disconnected')) toast(t("Couldn't load earlier messages: {0}", sentence(error)), 'error');
    return 0;
  } finally {
    setChat(chat, { reading: false });
  }
}

// --- the list ----------------------------------------------------------------------------------------------------

/** @param {string} query */
export async function search(query) {
  if (query !== state.list.query) setList({ query, phase: 'loading', ids: [], cursor: null });
  await page(null);
}

/** Lists the archived sessions, or the others again. @param {boolean} archive */
export async function showArchive(archive) {
  setList({ archive, query: '', phase: 'loading', ids: [], cursor: null });
  await page(null);
}

export async function loadMore() {
  if (state.list.cursor && state.list.phase === 'ready') await page(state.list.cursor);
}

/** @param {string | null} cursor */
async function page(cursor) {
  const { query, archive } = state.list;
  if (cursor) setList({ phase: 'loading' });
  try {
    const frame = await socket.request({
      type: 'session.list',
      limit: PAGE,
      ...(query ? { query } : { archived: archive }),
      ...(cursor ? { cursor } : {}),
    });
    if (state.list.query !== query || state.list.archive !== archive) return;
    setListPage(frame.sessions, frame.cursor, cursor !== null);
    if (!query && !archive && !cursor) lookForArchived();
    // Pinned ones and those in folders stand above all others, however old they are.
    if (query || archive || cursor || !frame.cursor) return;
    for (const which of [{ pinned: true }, { in_folder: true }]) {
      let more = null;
      do {
        /** @type {{sessions: import('./state.js').Session[], cursor: string | null}} */
        const found = await socket.request({ type: 'session.list', limit: MOST, archived: false, ...which, ...(more && { cursor: more }) });
        if (state.list.query || state.list.archive) return;
        setListPage(found.sessions, state.list.cursor, true);
        more = found.cursor;
      } while (more);
    }
  } catch (error) {
    if (state.list.query === query && !isCode(error, 'disconnected')) {
      setList({ phase: 'failed' });
      toast(t("Couldn't load the list of chats: {0}", sentence(error)), 'error');
    }
  }
}

// Whether "Archived chats" leads anywhere: one of them is enough.
async function lookForArchived() {
  try {
    const { sessions } = await socket.request({ type: 'session.list', limit: 1, archived: true });
    for (const session of sessions) sessionChanged(session);
    touch('list');
  } catch {
    // The next page of the list asks again.
  }
}

// --- sessions ----------------------------------------------------------------------------------------------------

/** @param {string} id @param {{title?: string, pinned?: boolean, archived?: boolean, folder?: string, sampling?: Record<string, any>}} change */
export function update(id, change) {
  return socket.request(
    { type: 'session.update', session: id, ...change },
    {
      fits: (frame) => frame.type === 'session.updated' && frame.session.id === id,
    },
  );
}

/** @param {string} id @param {string} title '' returns to the automatic one */
export async function rename(id, title) {
  try {
    await update(id, { title });
  } catch (error) {
    toast(t("Couldn't rename the chat: {0}", sentence(error)), 'error');
    touch('session', id);
  }
}

/** @param {string} id @param {boolean} pinned */
export async function pin(id, pinned) {
  try {
    await update(id, { pinned });
  } catch (error) {
    toast(t("Couldn't pin the chat: {0}", sentence(error)), 'error');
  }
}

/** @param {string[]} ids @param {boolean} archived */
export async function archive(ids, archived) {
  try {
    for (const id of ids) await update(id, { archived });
    const undo = () => archive(ids, !archived);
    const said = ids.length > 1 ? t('{0} chats archived.', ids.length) : t('Chat archived. A search still finds it.');
    if (archived) toast(said, 'info', { label: t('Undo'), run: undo, ms: RESTORE_MS });
  } catch (error) {
    toast(t("Couldn't archive the chat: {0}", sentence(error)), 'error');
  }
}

/** Removes a session from the list, and from the server when it can no longer be restored. @param {string} id */
export function remove(id) {
  hide([id]);
  toast(t('Chat deleted.'), 'info', { label: t('Undo'), run: () => restore(id), ms: RESTORE_MS });
}

/** @param {string[]} ids */
export function removeSeveral(ids) {
  if (ids.length === 1) return remove(ids[0]);
  hide(ids);
  return toast(t('{0} chats deleted.', ids.length), 'info', { label: t('Undo'), run: () => ids.forEach(kept), ms: RESTORE_MS });
}

/** @param {string[]} ids */
function hide(ids) {
  for (const id of ids) {
    prefs.setDeletion(id, Date.now() + RESTORE_MS);
    planRemoval(id);
  }
  if (state.current && ids.includes(state.current)) show(null);
}

/** Also of a deletion that an earlier page did not come to. @param {string} id */
function planRemoval(id) {
  if (!state.deleting.has(id)) setTimeout(() => removeNow(id), Math.max(0, (prefs.deletions()[id] ?? 0) - Date.now()));
  state.deleting.add(id);
  setList({ ids: state.list.ids.filter((other) => other !== id) });
}

// A page that closes cannot undo any more: its deletions happen now. The browser keeps a note of each until a server has
// confirmed it, so the next page repeats what was lost on the way.
addEventListener('pagehide', () => {
  const planned = prefs.deletions();
  for (const id of state.deleting) if (id in planned) tell({ type: 'session.close', session: id, delete: true });
});

/** @param {string} id */
function restore(id) {
  kept(id);
  show(id);
}

/** @param {string} id */
function kept(id) {
  prefs.setDeletion(id, null);
  state.deleting.delete(id);
  search(state.list.query);
}

/** @param {string} id */
async function removeNow(id) {
  if (!(id in prefs.deletions())) {
    state.deleting.delete(id); // restored, perhaps by another tab
    return;
  }
  try {
    await socket.request(
      { type: 'session.close', session: id, delete: true },
      {
        fits: (frame) => frame.type === 'session.closed' && frame.session.id === id,
      },
    );
    prefs.setDeletion(id, null);
    removed(id);
    state.deleting.delete(id);
  } catch (error) {
    state.deleting.delete(id);
    if (isCode(error, 'disconnected')) return; // the next connection deletes it
    kept(id);
    if (!isCode(error, 'session_not_found')) toast(t("Couldn't delete the chat: {0}", sentence(error)), 'error');
  }
}

/** A session with all of its turns, as one session.state. @param {string} id */
export async function fetchWhole(id) {
  /** @param {number} before */
  const page = (before) =>
    socket.request({ type: 'session.get', session: id, last: MAX_TURNS, before });
  const whole = await page(Number.MAX_SAFE_INTEGER); // to the end
  delete whole.before;
  while (whole.more && whole.turns.length) {
    const older = await page(whole.turns[0].turn);
    whole.turns.unshift(...older.turns);
    whole.more = older.more && older.turns.length > 0;
  }
  return whole;
}

/** All that is on record of a session, as the text of a file. @param {string} id @returns {Promise<string>} */
export async function fetchArchive(id) {
  const { archive, error } = await socket.request({ type: 'session.export', session: id });
  if (error) throw new RequestError(error);
  return archive;
}

const PIECE_BYTES = 1 << 19; // of a long archive
const bytes = (/** @type {string} */ text) => new TextEncoder().encode(text).length;

/** The start of a text that fits into a message. @param {string} text @param {number} most bytes */
function pieceOf(text, most) {
  let piece = text.slice(0, most);
  while (bytes(JSON.stringify(piece)) > most) piece = piece.slice(0, piece.length * 0.75);
  return /[\uD800-\uDBFF]$/.test(piece) && piece.length > 1 ? piece.slice(0, -1) : piece; // a whole character
}

/** Makes a session of such a text. @param {string} archive @returns {Promise<string>} its id */
export async function addArchive(archive) {
  const most = Math.min(PIECE_BYTES, state.connection.limits.message_bytes ?? Infinity) - 500; // for the other keys
  let at = 0;
  for (let rest = archive; ; ) {
    const piece = pieceOf(rest, most);
    rest = rest.slice(piece.length);
    const answer = await socket.request({ type: 'session.import', archive: piece, at, more: rest.length > 0 });
    if (!rest) return answer.session.id;
    at += bytes(piece);
  }
}
