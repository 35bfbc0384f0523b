// @ts-check
// The list of sessions: newest first by date; search, rename, delete.
import { archive, linkTo, loadMore, pin, remove, rename, search, show, showArchive } from '../actions.js';
import { copyText } from '../clipboard.js';
import { dateGroup, moment } from '../format.js';
import { h, icon, iconButton, newMemo, setAttribute, setText } from '../dom.js';
import { afterFrame } from '../frame.js';
import { withPanels } from '../late.js';
import { closedFolders, setFolderClosed } from '../prefs.js';
import { hasArchived, setFresh, state, subscribe } from '../state.js';
import { t } from '../text.js';
import { isUnread } from '../unread.js';
import { confirmDialog } from './dialog.js';
import { closeDrawer } from './layout_state.js';
import { openMenu } from './menu.js';
import { field, isComposing } from './message_field.js';
import { toast } from '../notices.js';

/** @typedef {import('../state.js').Session} Session */

const SEARCH_MS = 150;
const SLICE = 12; // new rows that one frame draws: more would hold it up

/** A session's title as it is shown. @param {Session | null | undefined} session */
export const titleOf = (session) => session?.title || t('New chat');

class Item {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.dot = h('span', { class: 'dot' });
    this.title = h('span', { class: 'item-title', dir: 'auto' });
    this.status = h('span', { class: 'visually-hidden' });
    /** @type {SVGElement | null} only a branch of another session has it */
    this.fork = null;
    /** @type {SVGElement | null} only a shared session has it */
    this.share = null;
    /** @type {HTMLElement | null} only a row that a search found has it */
    this.found = null;
    this.link = h(
      'a',
      {
        class: 'item-link',
        tabIndex: -1,
        href: `#s=${encodeURIComponent(id)}`,
        onclick: (/** @type {MouseEvent} */ event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab or window
          event.preventDefault();
          show(id, state.list.found.get(id)?.turn ?? null);
          closeDrawer();
        },
        ondblclick: () => this.rename(),
      },
      this.title,
      this.status,
      this.dot,
    );
    this.menu = iconButton('more', t('Chat menu'), {
      class: 'icon-button small item-menu',
      tabIndex: -1,
      'aria-haspopup': 'menu',
      'aria-expanded': 'false',
      onclick: () => sessionMenu(this.menu, id, () => this.rename()),
    });
    this.element = h('li', { class: 'item', 'data-id': id }, this.link, this.menu);
    this.titleMemo = newMemo();
    this.foundMemo = newMemo();
    this.update();
  }

  update() {
    const session = state.sessions.get(this.id);
    if (!session) return;
    const news = session.state === 'active' ? 'answering' : isUnread(session) ? 'unread' : '';
    const from = session.forked_from;
    const archived = session.archived && state.list.query ? t('Archived') : ''; // a search finds those too
    const branched = from ? t('Branched from {0}', state.sessions.get(from.session)?.title || t('another chat')) : '';
    const shared = session.shared ? t('Shared') : '';
    this.#drawTitle(titleOf(session));
    this.#drawFound();
    setAttribute(this.link, 'title', [titleOf(session), moment(session.updated_ms), branched, shared, archived].filter(Boolean).join('\n'));
    setAttribute(this.dot, 'data-state', news === 'answering' ? 'active' : news || null);
    setText(this.status, [branched, shared, archived, news === 'answering' ? t('answering') : news && t('unread')].filter(Boolean).map((word) => `, ${word}`).join(''));
    if (!from) this.fork?.remove();
    else if (!this.fork?.parentElement) this.title.after((this.fork ??= icon('branch')));
    if (!shared) this.share?.remove();
    else if (!this.share?.parentElement) this.title.after((this.share ??= icon('share')));
    this.element.classList.toggle('archived', !!archived);
    setAttribute(this.menu, 'aria-label', t('Menu of {0}', titleOf(session)));
    const current = state.current === this.id && state.view !== 'server';
    setAttribute(this.link, 'aria-current', current ? 'page' : null);
    this.element.classList.toggle('current', current);
  }

  // Where a search has found its words: the text around them, and the address of the turn.
  #drawFound() {
    const found = state.list.query ? state.list.found.get(this.id) : undefined;
    this.foundMemo([found], () => this.#redrawFound(found));
  }

  /** @param {import('../state.js').Found | undefined} found */
  #redrawFound(found) {
    this.link.classList.toggle('with-found', !!found);
    this.found?.remove();
    this.found = found ? h('span', { class: 'item-found', dir: 'auto' }, ...found.parts.map((part, i) => (i % 2 ? h('mark', null, part) : part))) : null;
    if (this.found) this.link.append(this.found);
    this.link.href = `#s=${encodeURIComponent(this.id)}${found ? `&t=${found.turn}` : ''}`;
  }

  // With the words that were searched for.
  /** @param {string} title */
  #drawTitle(title) {
    const words = state.list.query.split(/\s+/u).filter(Boolean);
    this.titleMemo([title, words], () => this.#redrawTitle(title, words));
  }

  /** @param {string} title @param {string[]} words */
  #redrawTitle(title, words) {
    const found = words.length && new RegExp(`(${words.map((word) => word.replace(/[^\p{L}\p{N}]/gu, '\\$&')).join('|')})`, 'gi');
    this.title.replaceChildren(...(found ? title.split(found).map((part, i) => (i % 2 ? h('mark', null, part) : part)) : [title]));
  }

  rename() {
    const session = state.sessions.get(this.id);
    if (!session || this.element.querySelector('input')) return;
    renameInPlace(this.link, session, 'item-rename', () => this.link.focus());
  }
}

/**
 * Puts a field over an element until Enter, Esc or a click elsewhere.
 * @param {HTMLElement} place
 * @param {Session} session
 * @param {string} name
 * @param {() => void} done
 */
export function renameInPlace(place, session, name, done) {
  let over = false;
  // A page always has its heading.
  const hide = (/** @type {boolean} */ hidden) =>
    place.localName === 'h1' ? place.classList.toggle('visually-hidden', hidden) : (place.hidden = hidden);
  const input = h('input', {
    class: name,
    value: session.title,
    'aria-label': t('Title of the chat'),
    maxLength: 150,
    autocomplete: 'off',
    spellcheck: false,
  });
  /** @param {boolean} keep @param {boolean} refocus */
  const finish = (keep, refocus) => {
    if (over) return;
    over = true;
    const title = input.value.trim();
    input.remove();
    hide(false);
    if (keep && title !== session.title) rename(session.id, title);
    if (refocus) done();
  };
  input.addEventListener('keydown', (event) => {
    if (isComposing(event)) return;
    if (event.key === 'Enter' || event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      finish(event.key === 'Enter', true);
    }
  });
  input.addEventListener('blur', () => finish(true, false));
  hide(true);
  place.after(input);
  input.focus();
  input.select();
}

/** @param {string} id */
export async function askRemove(id) {
  const agreed = await confirmDialog({
    title: t('Delete this chat?'),
    action: t('Delete'),
    text: t('“{0}” and all its messages will be deleted from the server.', titleOf(state.sessions.get(id))),
  });
  if (!agreed) return;
  remove(id);
  closeDrawer(); // else it covers the way back
}

/** @param {string} id @param {number | null} [turn] */
export async function copyLink(id, turn) {
  toast((await copyText(linkTo(id, turn))) ? t('Link copied.') : t('The browser blocked copying.'));
}

/** @param {HTMLElement} button @param {string} id @param {() => void} doRename */
export function sessionMenu(button, id, doRename) {
  const { pinned, archived, shared } = state.sessions.get(id) ?? {};
  openMenu(button, t('Chat'), [
    { icon: 'pin', label: pinned ? t('Unpin') : t('Pin'), run: () => pin(id, !pinned) },
    { icon: 'folder', label: t('Move to folder…'), run: () => withPanels(({ openMove }) => openMove([id])) },
    { icon: 'archive', label: archived ? t('Unarchive') : t('Archive'), run: () => archive([id], !archived) },
    { icon: 'pencil', label: t('Rename'), run: doRename },
    ...(id === state.current ? [/** @type {import('./menu.js').Item} */ ({ icon: 'tree', label: t('Show the tree'), run: () => withPanels(({ openTree }) => openTree(), true) })] : []),
    { icon: 'link', label: t('Copy link'), run: () => copyLink(id) },
    ...(shared || state.connection.sharing ? [/** @type {import('./menu.js').Item} */ ({ icon: 'share', label: t('Share…'), run: () => withPanels(({ openShare }) => openShare(id)) })] : []),
    { icon: 'download', label: t('Export as Markdown'), run: () => withPanels(({ exportSession }) => exportSession(id, 'markdown')) },
    { icon: 'download', label: t('Export as JSON'), run: () => withPanels(({ exportSession }) => exportSession(id, 'json')) },
    { icon: 'check', label: t('Select several…'), run: () => withPanels(({ openManage }) => openManage()) },
    { icon: 'trash', label: t('Delete…'), danger: true, run: () => askRemove(id) },
  ]);
}

// --- the list ----------------------------------------------------------------------------------------------------

/** @type {Map<string, Item>} */
const items = new Map();
const groups = h('div', { class: 'groups' });
const note = h('p', { class: 'list-note', hidden: true });
const archiveButton = h('button', { type: 'button', class: 'link-button archive-button', hidden: true, onclick: () => showArchive(!state.list.archive) });
const sentinel = h('div', { class: 'sentinel', 'aria-hidden': 'true' });
const list = h('div', { class: 'session-list' }, groups, note, sentinel, archiveButton);

/** @param {string} id */
function itemOf(id) {
  let item = items.get(id);
  if (!item) items.set(id, (item = new Item(id)));
  item.update();
  return item;
}

const FOLDER = '/';
let groupNumber = 0;
let next = 0; // the first of state.list.ids that has not been placed
/** Where the next group and the next row of the last group belong: before these. @type {[Element | null, Element | null]} */
let places = [null, null];
/** @type {Element | null} the group that was placed last */
let group = null;
/** Draws the rows that are left; null if none are. @type {(() => void) | null} */
let rest = null;

/**
 * Puts an element before another one, unless it stands there, or right behind that one, which then belongs further down.
 * @param {Element} parent @param {Element} element @param {Element | null} before
 * @returns {Element | null} where the next one belongs
 */
function place(parent, element, before) {
  if (element === before || (before && element === before.nextElementSibling)) return element.nextElementSibling;
  parent.insertBefore(element, before);
  return before;
}

const renameFolder = (/** @type {string} */ name) => withPanels(({ openRenameFolder }) => openRenameFolder(name));

/** @param {import('../dom.js').IconName} name @param {string} label @param {() => void} onclick */
const folderIcon = (name, label, onclick) => iconButton(name, label, { class: 'icon-button small item-menu', tabIndex: -1, onclick });

/** A folder's heading shows and hides its chats. @param {string} name @param {HTMLElement} rows */
function folderButton(name, rows) {
  const button = h('button', { type: 'button', class: 'folder-button', tabIndex: -1 }, icon('right'), h('bdi', null, name));
  const show = (/** @type {boolean} */ closed) => {
    rows.hidden = closed;
    button.ariaExpanded = String(!closed);
  };
  button.onclick = () => {
    show(!rows.hidden);
    setFolderClosed(name, rows.hidden);
    drawTabStop();
    drawNews();
    fillList();
  };
  show(closedFolders().includes(name));
  return button;
}

/** A closed folder says what it hides; style/sidebar.css marks it. */
function drawNews() {
  for (const button of groups.querySelectorAll('.folder-button')) {
    const hides = (/** @type {string} */ news) => button.closest('.group')?.querySelector(`ul[hidden] .dot[data-state=${news}]`);
    const news = hides('active') ? t('answering') : hides('unread') && t('unread');
    setAttribute(button, 'aria-label', news ? `${button.textContent}, ${news}` : null);
  }
}

/** @param {string} name of a folder: behind FOLDER, so that it is no other group's */
function groupOf(name) {
  const known = [...groups.children].find((one) => one.getAttribute('data-name') === name);
  if (known) return known;
  const id = `group-${groupNumber++ % 1000}`;
  const rows = h('ul', { 'aria-labelledby': id });
  const folder = name.startsWith(FOLDER) && name.slice(FOLDER.length);
  const heading = h('h3', { id }, folder ? folderButton(folder, rows) : name);
  return h('section', { class: 'group', 'data-name': name }, heading, folder && folderIcon('pencil', t('Rename folder {0}', folder), () => renameFolder(folder)), folder && folderIcon('plus', t('New chat in {0}', folder), () => startIn(folder)), rows);
}

/**
 * Places rows below those placed, up to a slice of new ones; each further slice has a frame of its own. So do the first
 * rows of all: the turns that fill the screen are drawn before them. A row that stands where it belongs stays untouched.
 */
function addRows(slice = items.size ? SLICE : 0) {
  const { ids, query } = state.list;
  for (let fresh = 0; next < ids.length; next++) {
    const session = state.sessions.get(ids[next]);
    if (!session) continue;
    if (!items.has(session.id) && fresh++ === slice) {
      drawRestLater();
      return;
    }
    const name = query ? t('Found') : session.pinned ? t('Pinned') : session.folder ? FOLDER + session.folder : dateGroup(session.updated_ms);
    if (group?.getAttribute('data-name') !== name) {
      group = groupOf(name);
      places = [place(groups, group, places[0]), group.lastElementChild?.firstElementChild ?? null];
    }
    const rows = /** @type {Element} */ (group.lastElementChild);
    places[1] = place(rows, itemOf(session.id).element, places[1]);
  }
  for (const one of [...groups.children]) if (!one.lastElementChild?.childElementCount) one.remove();
}

/** @param {(job: () => void) => void} [when] */
function drawRestLater(when = afterFrame) {
  const mine = (rest = () => {
    if (rest === mine) drawRest(); // else the list has been redrawn
  });
  when(mine);
}

function drawRest() {
  rest = null;
  // The list is not redrawn while a row is renamed.
  if (groups.querySelector('input')) return drawRestLater((job) => setTimeout(job, 250));
  addRows(SLICE);
  drawTabStop();
  drawNews();
  if (!rest) fillList();
}

function drawList() {
  const { ids, query, phase, archive: ofArchive, cursor } = state.list;
  archiveButton.hidden = !!query || !!cursor || phase !== 'ready' || (!ofArchive && !hasArchived());
  setText(archiveButton, ofArchive ? t('Back to the chats') : t('Archived chats'));
  for (const id of items.keys()) if (!state.sessions.has(id)) items.delete(id);
  if (groups.querySelector('input')) return; // as above
  rest = null;
  const focused =
    document.activeElement instanceof HTMLElement && groups.contains(document.activeElement)
      ? document.activeElement
      : null;
  const listed = new Set(ids);
  for (const row of [...groups.querySelectorAll('.item')]) if (!listed.has(row.getAttribute('data-id') ?? '')) row.remove();
  next = 0;
  group = null;
  places = [groups.firstElementChild, null];
  addRows();
  if (focused !== document.activeElement) focused?.focus({ preventScroll: true }); // its row has moved
  const empty = !ids.length;
  note.hidden = !empty;
  setText(
    note,
    phase === 'loading'
      ? t('Loading…')
      : phase === 'failed'
        ? t("Couldn't load the list.")
        : query
          ? t('No chats found.')
          : ofArchive
            ? t('No archived chats.')
            : t('Your chats appear here.'),
  );
}

// The list is one stop of the Tab key: at the link or folder that was focused last, the session shown, or the first.
function drawTabStop() {
  const links = linksOf();
  const stop =
    links.find((link) => link === document.activeElement) ??
    links.find((link) => link.getAttribute('aria-current')) ??
    links[0];
  for (const link of links) link.tabIndex = link === stop ? 0 : -1;
}
const linksOf = () => /** @type {HTMLElement[]} */ ([...groups.querySelectorAll('ul:not([hidden]) a.item-link, .folder-button')]);
groups.addEventListener('focusin', drawTabStop);

subscribe('list', () => {
  drawList();
  drawTabStop();
  drawNews();
});
subscribe('session', (ids) => {
  for (const id of ids) items.get(id)?.update();
  drawNews();
});
subscribe('selection', () => {
  for (const item of items.values()) item.update();
  drawTabStop();
  drawNews();
});

new IntersectionObserver(
  (entries) => {
    if (!rest && entries.some((entry) => entry.isIntersecting)) loadMore();
  },
  { root: list, rootMargin: '400px' },
).observe(sentinel);
// If the page did not fill the list, the sentinel is still visible and the observer does not fire: check again.
function fillList() {
  if (
    !rest &&
    state.list.cursor &&
    state.list.phase === 'ready' &&
    sentinel.getBoundingClientRect().top < list.getBoundingClientRect().bottom + 400
  )
    loadMore();
}
subscribe('list', fillList);

// --- the search --------------------------------------------------------------------------------------------------

/** @type {any} */
let timer = null;
export const searchField = h('input', {
  type: 'search',
  id: 'search',
  placeholder: t('Search'),
  autocomplete: 'off',
  spellcheck: false,
  'aria-label': t('Search titles and messages'),
  oninput() {
    clearTimeout(timer);
    timer = setTimeout(() => search(searchField.value.trim()), SEARCH_MS);
  },
  onkeydown(/** @type {KeyboardEvent} */ event) {
    if (isComposing(event)) return;
    if (event.key === 'Escape' && !event.shiftKey && searchField.value) {
      event.stopPropagation();
      event.preventDefault();
      searchField.value = '';
      search('');
    } else if (event.key === 'ArrowDown') {
      event.preventDefault();
      linksOf()[0]?.focus();
    }
  },
});

// Up and down move through the list, right goes to a session's menu or a folder's buttons and left back.
groups.addEventListener('keydown', (event) => {
  const row = /** @type {Element} */ (event.target).closest('.item, .group');
  const link = /** @type {HTMLElement | null | undefined} */ (row?.querySelector('.folder-button, a.item-link'));
  if (!row || !link || event.altKey || event.ctrlKey || event.metaKey) return;
  const links = linksOf();
  const at = links.indexOf(link);
  const along = [link, .../** @type {NodeListOf<HTMLElement>} */ (row.querySelectorAll(':scope > .item-menu'))];
  const now = along.indexOf(/** @type {HTMLElement} */ (event.target));
  /** @type {Record<string, HTMLElement | null | undefined>} */
  const targets = {
    ArrowDown: links[Math.min(at + 1, links.length - 1)],
    ArrowUp: at ? links[at - 1] : searchField,
    Home: links[0],
    End: links.at(-1),
    ArrowRight: along[now + 1],
    ArrowLeft: along[now - 1],
  };
  const target = targets[event.key];
  if (target && /** @type {Element} */ (event.target).localName !== 'input') {
    event.preventDefault();
    target.focus();
  } else if (event.key === 'F2') {
    const name = row.getAttribute('data-name');
    if (name) renameFolder(name.slice(FOLDER.length));
    else items.get(row.getAttribute('data-id') ?? '')?.rename();
  }
});

/** @param {HTMLElement[]} footer */
export const sidebar = (...footer) =>
  h(
    'nav',
    { class: 'sidebar', 'aria-label': t('Chats'), id: 'sidebar' },
    h(
      'div',
      { class: 'sidebar-head' },
      h(
        'a',
        {
          class: 'brand',
          href: './',
          onclick(/** @type {MouseEvent} */ event) {
            if (event.ctrlKey || event.metaKey || event.shiftKey) return;
            event.preventDefault();
            startNew();
          },
        },
        icon('logo'),
        'Parley',
      ),
      iconButton('sidebar', t('Hide chats'), { 'data-toggle': 'sidebar' }),
    ),
    h('button', { type: 'button', class: 'new-button', onclick: startNew }, icon('plus'), t('New chat')),
    h('div', { class: 'search' }, icon('search'), searchField),
    list,
    h('div', { class: 'sidebar-foot' }, ...footer),
  );

export function startNew() {
  if (state.fresh.model || state.fresh.folder) setFresh({ system: null }); // what was carried over
  show(null);
  closeDrawer();
  field.focus();
}

/** @param {string} folder */
function startIn(folder) {
  startNew();
  setFresh({ ...state.fresh, folder });
}
