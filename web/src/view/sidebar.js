// @ts-check
// The list of sessions: newest first by date; search, rename, delete.
import { loadMore, remove, rename, search, show } from '../actions.js';
import { exportSession } from '../files.js';
import { dateGroup, moment } from '../format.js';
import { h, icon, iconButton, setAttribute, setText } from '../dom.js';
import { state, subscribe } from '../state.js';
import { confirmDialog } from './dialog.js';
import { closeDrawer } from './layout_state.js';
import { openMenu } from './menu.js';
import { field } from './message_field.js';

/** @typedef {import('../state.js').Session} Session */

const SEARCH_MS = 150;
const DOTS = /** @type {Record<string, string>} */ ({
  active: 'answering now',
  idle: 'ready, in memory',
  parked: 'parked in host memory',
  cold: 'asleep',
  open: 'new',
  closed: 'closed',
});

/** A session's title as it is shown. @param {Session | null | undefined} session */
export const titleOf = (session) => session?.title || 'New session';

class Item {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.dot = h('span', { class: 'dot' });
    this.title = h('span', { class: 'item-title', dir: 'auto' });
    this.status = h('span', { class: 'visually-hidden' });
    this.link = h(
      'a',
      {
        class: 'item-link',
        href: `#s=${encodeURIComponent(id)}`,
        onclick: (/** @type {MouseEvent} */ event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab or window
          event.preventDefault();
          show(id);
          closeDrawer();
        },
        ondblclick: () => this.rename(),
      },
      this.dot,
      this.title,
      this.status,
    );
    this.menu = iconButton('more', 'Session menu', {
      class: 'icon-button small item-menu',
      'aria-haspopup': 'menu',
      'aria-expanded': 'false',
      onclick: () => sessionMenu(this.menu, id, () => this.rename()),
    });
    this.element = h('li', { class: 'item', 'data-id': id }, this.link, this.menu);
    this.update();
  }

  update() {
    const session = state.sessions.get(this.id);
    if (!session) return;
    setText(this.title, titleOf(session));
    setAttribute(this.link, 'title', `${titleOf(session)}\n${moment(session.updated_ms)}`);
    setAttribute(this.dot, 'data-state', session.state);
    setText(this.status, `, ${DOTS[session.state] ?? session.state}`);
    setAttribute(this.dot, 'title', DOTS[session.state] ?? session.state);
    setAttribute(this.menu, 'aria-label', `Menu of ${titleOf(session)}`);
    setAttribute(this.link, 'aria-current', state.current === this.id ? 'page' : null);
    this.element.classList.toggle('current', state.current === this.id);
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
  const input = h('input', {
    class: name,
    value: session.title,
    'aria-label': 'Title of the session',
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
    place.hidden = false;
    if (keep && title !== session.title) rename(session.id, title);
    if (refocus) done();
  };
  input.addEventListener('keydown', (event) => {
    if (event.isComposing) return;
    if (event.key === 'Enter' || event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      finish(event.key === 'Enter', true);
    }
  });
  input.addEventListener('blur', () => finish(true, false));
  place.hidden = true;
  place.after(input);
  input.focus();
  input.select();
}

/** @param {string} id */
export async function askRemove(id) {
  const agreed = await confirmDialog({
    title: 'Delete this session?',
    action: 'Delete',
    text: `“${titleOf(state.sessions.get(id))}” and all its messages will be deleted from the server. This cannot be undone.`,
  });
  if (agreed) await remove(id);
}

/** @param {HTMLElement} button @param {string} id @param {() => void} doRename */
export function sessionMenu(button, id, doRename) {
  openMenu(button, 'Session', [
    { icon: 'pencil', label: 'Rename', run: doRename },
    { icon: 'download', label: 'Export as Markdown', run: () => exportSession(id, 'markdown') },
    { icon: 'download', label: 'Export as JSON', run: () => exportSession(id, 'json') },
    { icon: 'trash', label: 'Delete…', danger: true, run: () => askRemove(id) },
  ]);
}

// --- the list ----------------------------------------------------------------------------------------------------

/** @type {Map<string, Item>} */
const items = new Map();
const groups = h('div', { class: 'groups' });
const note = h('p', { class: 'list-note', hidden: true });
const sentinel = h('div', { class: 'sentinel', 'aria-hidden': 'true' });
const list = h('div', { class: 'session-list' }, groups, note, sentinel);

/** @param {string} id */
function itemOf(id) {
  let item = items.get(id);
  if (!item) items.set(id, (item = new Item(id)));
  item.update();
  return item;
}

let groupNumber = 0;
function drawList() {
  const { ids, query, phase } = state.list;
  for (const id of items.keys()) if (!state.sessions.has(id)) items.delete(id);
  // The list is not redrawn while a row is renamed.
  if (groups.querySelector('input')) return;
  /** @type {Array<{name: string, ids: string[]}>} */
  const wanted = [];
  for (const id of ids) {
    const session = state.sessions.get(id);
    if (!session) continue;
    const name = query ? 'Found' : dateGroup(session.updated_ms);
    if (wanted.at(-1)?.name !== name) wanted.push({ name, ids: [] });
    wanted.at(-1)?.ids.push(id);
  }
  const focused =
    document.activeElement instanceof HTMLElement && groups.contains(document.activeElement)
      ? document.activeElement
      : null;
  groups.replaceChildren(
    ...wanted.map(({ name, ids: members }) => {
      const heading = h('h3', { id: `group-${groupNumber++ % 1000}` }, name);
      return h(
        'section',
        { class: 'group' },
        heading,
        h('ul', { 'aria-labelledby': heading.id }, ...members.map((id) => itemOf(id).element)),
      );
    }),
  );
  focused?.focus();
  const empty = !ids.length;
  note.hidden = !empty;
  setText(
    note,
    phase === 'loading'
      ? 'Loading…'
      : phase === 'failed'
        ? "Couldn't load the list."
        : query
          ? 'No sessions found.'
          : 'Your sessions appear here.',
  );
}

subscribe('list', drawList);
subscribe('session', (ids) => {
  for (const id of ids) items.get(id)?.update();
});
subscribe('selection', () => {
  for (const item of items.values()) item.update();
});

new IntersectionObserver(
  (entries) => {
    if (entries.some((entry) => entry.isIntersecting)) loadMore();
  },
  { root: list, rootMargin: '400px' },
).observe(sentinel);
// If the page did not fill the list, the sentinel is still visible and the observer does not fire: check again.
subscribe('list', () => {
  if (
    state.list.cursor &&
    state.list.phase === 'ready' &&
    sentinel.getBoundingClientRect().top < list.getBoundingClientRect().bottom + 400
  )
    loadMore();
});

// --- the search --------------------------------------------------------------------------------------------------

/** @type {any} */
let timer = null;
export const searchField = h('input', {
  type: 'search',
  id: 'search',
  placeholder: 'Search',
  autocomplete: 'off',
  spellcheck: false,
  'aria-label': 'Search titles and messages',
  oninput() {
    clearTimeout(timer);
    timer = setTimeout(() => search(searchField.value.trim()), SEARCH_MS);
  },
  onkeydown(/** @type {KeyboardEvent} */ event) {
    if (event.key === 'Escape' && searchField.value) {
      event.stopPropagation();
      event.preventDefault();
      searchField.value = '';
      search('');
    } else if (event.key === 'ArrowDown') {
      event.preventDefault();
      /** @type {HTMLElement | null} */ (groups.querySelector('a'))?.focus();
    }
  },
});

// Arrow keys move through the list.
groups.addEventListener('keydown', (event) => {
  if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
  const links = [...groups.querySelectorAll('a')];
  const at = links.indexOf(/** @type {any} */ (document.activeElement));
  if (at < 0) return;
  event.preventDefault();
  const to = at + (event.key === 'ArrowDown' ? 1 : -1);
  if (to < 0) searchField.focus();
  else links[Math.min(to, links.length - 1)].focus();
});

/** @param {HTMLElement[]} footer */
export const sidebar = (...footer) =>
  h(
    'nav',
    { class: 'sidebar', 'aria-label': 'Sessions', id: 'sidebar' },
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
      iconButton('sidebar', 'Hide sessions', { 'data-toggle': 'sidebar' }),
    ),
    h('button', { type: 'button', class: 'new-button', onclick: startNew }, icon('plus'), 'New session'),
    h('div', { class: 'search' }, icon('search'), searchField),
    list,
    h('div', { class: 'sidebar-foot' }, ...footer),
  );

export function startNew() {
  show(null);
  closeDrawer();
  field.focus();
}
