// @ts-check
// Stored in this browser: theme, drafts, values for new sessions. The server stores the conversations. If storage is
// missing or full, a value lasts as long as the page.

const PREFIX = 'parley.';
const MAX_DRAFTS = 50;
const MAX_FILES = 10; // sessions with files that were not sent
const MAX_SEEN = 500;

/** @typedef {{memory_len?: number, session_len?: number, sink_len?: number, system?: string,
 *             sampling?: Record<string, any>}} NewSession */

/** @type {Map<string, any>} */
const cache = new Map();

/** @template T @param {string} key @param {T} fallback @returns {T} */
function read(key, fallback) {
  if (!cache.has(key)) {
    let value = fallback;
    try {
      const text = localStorage.getItem(PREFIX + key);
      if (text !== null) value = JSON.parse(text);
    } catch {
      value = fallback;
    }
    cache.set(key, value);
  }
  return cache.get(key);
}

/** @type {Set<string>} what the browser did not store: the page's own copy counts */
const unstored = new Set();

/** As read(), but anew: another tab may have changed it. @type {typeof read} */
function readAgain(key, fallback) {
  if (!unstored.has(key)) cache.delete(key);
  return read(key, fallback);
}

/** @param {string} key @param {any} value */
function write(key, value) {
  cache.set(key, value);
  try {
    if (value === undefined) localStorage.removeItem(PREFIX + key);
    else localStorage.setItem(PREFIX + key, JSON.stringify(value));
    unstored.delete(key);
  } catch {
    unstored.add(key);
  }
}

/** @returns {'auto' | 'dark' | 'light'} */
export function theme() {
  const value = read('theme', /** @type {string} */ ('auto'));
  return value === 'dark' || value === 'light' ? value : 'auto';
}

/** @param {string} value */
export function setTheme(value) {
  write('theme', value);
  if (value === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}

/** @typedef {'small' | 'normal' | 'large'} TextSize */
/** @returns {TextSize} */
export function textSize() {
  const value = read('text-size', /** @type {string} */ ('normal'));
  return value === 'small' || value === 'large' ? value : 'normal';
}

/** @param {string} value */
export function setTextSize(value) {
  write('text-size', value);
  document.documentElement.dataset.text = value;
}

export const isWide = () => read('wide', /** @type {boolean} */ (false)) === true;
/** @param {boolean} wide */
export function setWide(wide) {
  write('wide', wide);
  document.documentElement.toggleAttribute('data-wide', wide);
}

/** The page's language: 'auto' for the browser's. @returns {string} */
export const language = () => read('language', /** @type {string} */ ('auto'));
/** @param {string} value */
export const setLanguage = (value) => write('language', value === 'auto' ? undefined : value);

/** Whether Enter sends; else Ctrl and Enter do. @returns {boolean} */
export const enterSends = () => read('enter-sends', /** @type {boolean} */ (true)) !== false;
/** @param {boolean} on */
export const setEnterSends = (on) => write('enter-sends', on);

/** Whether a long answer's end is notified in the background. @returns {boolean} */
export const notifies = () => read('notifies', /** @type {boolean} */ (false)) === true;
/** @param {boolean} on */
export const setNotifies = (on) => write('notifies', on);

/** @returns {boolean} */
export const sidebarOpen = () => read('sidebar', /** @type {boolean} */ (true)) !== false;
/** @param {boolean} open */
export const setSidebarOpen = (open) => write('sidebar', open);

/** The folders whose chats are hidden. @returns {string[]} */
export function closedFolders() {
  const value = read('closed-folders', /** @type {string[]} */ ([]));
  return Array.isArray(value) ? value : [];
}
/** @param {string} name @param {boolean} closed */
export function setFolderClosed(name, closed) {
  const others = closedFolders().filter((one) => one !== name);
  write('closed-folders', closed ? [...others.slice(-MAX_SEEN + 1), name] : others);
}

/** @returns {boolean} */
export const shortcutsOn = () => read('shortcuts', /** @type {boolean} */ (true)) !== false;
/** @param {boolean} on */
export const setShortcutsOn = (on) => write('shortcuts', on);

/** What new sessions start with. @returns {NewSession} */
export function newSession() {
  const value = read('new-session', {});
  return value && typeof value === 'object' ? value : {};
}
/** @param {NewSession} value */
export const setNewSession = (value) => write('new-session', value);

/** The model that the user chose last for a new session; '' for the server's first. @returns {string} */
export function chosenModel() {
  const value = read('model', /** @type {string} */ (''));
  return typeof value === 'string' ? value : '';
}
/** @param {string} name */
export const setChosenModel = (name) => write('model', name);

/** @typedef {{name: string, system?: string, sampling?: Record<string, any>}} Preset */
/** The library of presets. @returns {Preset[]} */
export function presets() {
  const value = readAgain('presets', /** @type {Preset[]} */ ([]));
  return Array.isArray(value) ? value.filter((one) => typeof one?.name === 'string') : [];
}
/** @param {Preset[]} list */
export const setPresets = (list) => write('presets', list);

/** @returns {Record<string, string>} */
function drafts() {
  const value = readAgain('drafts', /** @type {Record<string, string>} */ ({}));
  return value && typeof value === 'object' ? value : {};
}

/** The unsent text of a session ('' is the chat that has not begun). @param {string} id */
export function draft(id) {
  const text = drafts()[id || 'new'];
  return typeof text === 'string' ? text : '';
}

/** @param {string} id @param {string} text */
export function setDraft(id, text) {
  const { [id || 'new']: _, ...rest } = drafts();
  const entries = Object.entries(rest).slice(-MAX_DRAFTS + 1);
  if (text) entries.push([id || 'new', text]);
  write('drafts', Object.fromEntries(entries));
}

/** @returns {Record<string, Array<{name: string, text: string}>>} */
const allFiles = () => readAgain('draft-files', {}) ?? {};

/** The files of a session's unsent message. @param {string} id */
export const draftFiles = (id) => allFiles()[id || 'new'] ?? [];

/** @param {string} id @param {Array<{name: string, text: string}>} files */
export function setDraftFiles(id, files) {
  const { [id || 'new']: _, ...rest } = allFiles();
  const entries = Object.entries(rest).slice(-MAX_FILES + 1);
  if (files.length) entries.push([id || 'new', files]);
  write('draft-files', entries.length ? Object.fromEntries(entries) : undefined);
}

/** @returns {Record<string, any[]>} */
function allUnsent() {
  const value = readAgain('unsent', /** @type {Record<string, any[]>} */ ({}));
  return value && typeof value === 'object' ? value : {};
}

/** A session's messages that are not turns yet. @param {string} id @returns {import('./state.js').Pending[]} */
export function unsent(id) {
  const list = allUnsent()[id];
  return Array.isArray(list) ? list.filter((p) => typeof p?.key === 'string' && typeof p.content === 'string') : [];
}

/** @param {string} id @param {string} key @param {import('./state.js').Pending | null} pending null: not any more */
export function setUnsent(id, key, pending) {
  const { [id]: before, ...rest } = allUnsent();
  const others = unsent(id).filter((p) => p.key !== key);
  if (!before && !pending) return;
  const list = pending ? [...others, pending] : others;
  const entries = Object.entries(rest).slice(-MAX_DRAFTS + 1);
  if (list.length) entries.push([id, list]);
  write('unsent', entries.length ? Object.fromEntries(entries) : undefined);
}

/** Sessions that the user deleted a moment ago: when the server will be asked to, by id. @returns {Record<string, number>} */
export function deletions() {
  const value = readAgain('deletions', /** @type {Record<string, number>} */ ({}));
  return value && typeof value === 'object' ? value : {};
}

/** @param {string} id @param {number | null} at null: not any more */
export function setDeletion(id, at) {
  const { [id]: _, ...rest } = deletions();
  const value = at === null ? rest : { ...rest, [id]: at };
  write('deletions', Object.keys(value).length ? value : undefined);
}

/** The same for turns, by session and turn. @returns {Record<string, number>} */
export function turnDeletions() {
  const value = readAgain('turn-deletions', /** @type {Record<string, number>} */ ({}));
  return value && typeof value === 'object' ? value : {};
}

/** @param {string} key @param {number | null} at null: not any more */
export function setTurnDeletion(key, at) {
  const { [key]: _, ...rest } = turnDeletions();
  const value = at === null ? rest : { ...rest, [key]: at };
  write('turn-deletions', Object.keys(value).length ? value : undefined);
}

/** How many finished turns of a session this browser has shown. @param {string} id @returns {number | undefined} */
export const seenTurns = (id) => read('seen', /** @type {Record<string, number>} */ ({}))?.[id];

/** @param {string} id @param {number} turns */
export function setSeenTurns(id, turns) {
  const { [id]: _, ...rest } = readAgain('seen', /** @type {Record<string, number>} */ ({})) ?? {};
  write('seen', Object.fromEntries([...Object.entries(rest).slice(-MAX_SEEN + 1), [id, turns]]));
}

/** The token the user typed: for this tab only, and gone with it. @returns {string} */
export function token() {
  try {
    return sessionStorage.getItem(PREFIX + 'token') ?? '';
  } catch {
    return cache.get('token') ?? '';
  }
}

/** @param {string} value */
export function setToken(value) {
  cache.set('token', value);
  try {
    if (value) sessionStorage.setItem(PREFIX + 'token', value);
    else sessionStorage.removeItem(PREFIX + 'token');
  } catch {
    // Not stored.
  }
}

/** The token, and unsent text: who signs in next in this browser shall not see it. */
export function forgetUser() {
  setToken('');
  write('drafts', undefined);
  write('unsent', undefined);
  write('draft-files', undefined);
  write('links', undefined);
  write('closed-folders', undefined);
}

/** The token of a session's link, where this browser has made it. @param {string} id @returns {string | undefined} */
export const sharedToken = (id) => readAgain('links', /** @type {Record<string, string>} */ ({}))?.[id];

/** @param {string} id @param {string | null} token */
export function setSharedToken(id, token) {
  const { [id]: _, ...rest } = readAgain('links', /** @type {Record<string, string>} */ ({})) ?? {};
  write('links', Object.fromEntries([...Object.entries(rest).slice(-MAX_SEEN + 1), ...(token ? [[id, token]] : [])]));
}
