// @ts-check
// The tree of the session shown, as a map: every turn with its versions, and the sessions that branch off. A straight
// conversation is a straight line; versions of a turn are indented below the turn that they follow.
import { request, sentence, show } from '../actions.js';
import { canBranch, fetchOutline, showVersion } from '../branching.js';
import { h, icon } from '../dom.js';
import { plural } from '../format.js';
import { currentChat, isBusy, subscribe } from '../state.js';
import { t } from '../text.js';
import { wasGiven, wasSentBack, wasWritten } from '../turns.js';
import { openPanel } from './dock.js';
import { inspect } from './inspector.js';
import { toast } from '../notices.js';

/** @typedef {import('../branching.js').Outlined} Outlined */
/** @typedef {{turn: Outlined, depth: number, versions: number[], version: number}} Row versions: all turns behind the same one */

/** @type {{panel: import('./dock.js').Panel, draw: () => void} | null} */
let open = null;
let shownHead = '';

/** Rows in the order of a walk, each with its depth. @param {Outlined[]} turns */
function rowsOf(turns) {
  /** @type {Map<number | null, Outlined[]>} */
  const below = new Map();
  for (const turn of turns) below.set(turn.parent, [...(below.get(turn.parent) ?? []), turn]);
  /** @type {Array<Row>} */
  const rows = [];
  /** @type {Array<Row>} */
  const stack = [];
  const push = (/** @type {number | null} */ parent, /** @type {number} */ depth) => {
    const all = below.get(parent) ?? [];
    const deeper = all.length > 1 ? depth + 1 : depth;
    for (let i = all.length - 1; i >= 0; i--) stack.push({ turn: all[i], depth: deeper, versions: all.map(({ turn }) => turn), version: i + 1 });
  };
  push(null, 0);
  for (let row; (row = stack.pop()); ) {
    rows.push(row);
    push(row.turn.turn, row.depth);
  }
  return rows;
}

/** The numbers of the path that ends at the head. @param {Outlined[]} turns @param {number | null} head */
function pathOf(turns, head) {
  const parents = new Map(turns.map(({ turn, parent }) => [turn, parent]));
  const path = new Set();
  for (let at = head; at !== null && at !== undefined && parents.has(at); at = parents.get(at) ?? null) path.add(at);
  return path;
}

/** @param {string} session @param {number} turn */
async function goTo(session, turn) {
  const chat = currentChat();
  if (!chat || chat.id !== session) return;
  const onPath = pathNow.has(turn);
  if (!onPath && (isBusy(chat) || !canBranch())) {
    toast(t('Another version can be shown when no answer is running.'));
    return;
  }
  if (!onPath && !(await showVersion(turn))) return;
  show(session, turn);
}

/** @type {Set<number>} */
let pathNow = new Set();

/** @param {string} session @param {HTMLElement} body */
async function draw(session, body) {
  try {
    const [{ head, turns }, forks] = await Promise.all([
      fetchOutline(session),
      request({ type: 'session.list', forked_from: session, limit: 200 }),
    ]);
    pathNow = pathOf(turns, head);
    /** @type {Map<number, any[]>} */
    const copies = new Map();
    for (const fork of forks.sessions) {
      const at = fork.forked_from?.turn ?? -1;
      copies.set(at, [...(copies.get(at) ?? []), fork]);
    }
    const focused = document.activeElement?.closest('[data-turn]')?.getAttribute('data-turn');
    const top = body.scrollTop;
    const list = h(
      'ol',
      { class: 'tree', 'aria-label': t('Turns of this chat') },
      ...rowsOf(turns).flatMap((row) => [rowView(session, row), ...(copies.get(row.turn.turn) ?? []).map((fork) => forkView(fork, row.depth))]),
    );
    body.replaceChildren(
      h('p', { class: 'panel-text' }, turns.length ? t('{0}. The version shown is marked.', plural(turns.length, 'turn')) : t('There are no messages yet.')),
      list,
    );
    body.scrollTop = top;
    const again = focused && list.querySelector(`[data-turn="${focused}"] button`);
    if (again instanceof HTMLElement) again.focus();
    else if (!top) list.querySelector('[aria-current=true]')?.scrollIntoView({ block: 'nearest' });
  } catch (error) {
    body.replaceChildren(h('p', { class: 'form-problem', role: 'alert' }, sentence(error)));
  }
}

/** @param {number} depth @param {HTMLElement} element */
function indented(depth, element) {
  element.style.paddingInlineStart = `${Math.min(depth, 12) * 0.9}rem`;
  return element;
}

/** @param {number} turn @param {number[]} others */
function compare(turn, others) {
  open?.panel.close();
  inspect([turn], others);
}

/** @param {string} session @param {Row} row */
function rowView(session, { turn, depth, versions, version }) {
  const here = pathNow.has(turn.turn);
  const others = versions.filter((one) => one !== turn.turn);
  const said = turn.input_start.trim() || t('Continues the answer above');
  const notes = [
    versions.length > 1 && t('version {0} of {1}', version, versions.length),
    wasSentBack(turn) ? t('sent back by the client') : wasWritten(turn) ? t('copied') : wasGiven(turn) && t('edited'),
    plural(turn.n_output, 'token'),
  ].filter(Boolean);
  return indented(
    depth,
    h(
      'li',
      { 'data-turn': String(turn.turn), class: here ? 'here' : '' },
      h(
        'button',
        { type: 'button', 'aria-current': here ? 'true' : null, title: `${said}\n${turn.text_start}`, onclick: () => goTo(session, turn.turn) },
        h('span', { class: 'tree-said', dir: 'auto' }, said),
        h('span', { class: 'tree-answer', dir: 'auto' }, turn.text_start || '…'),
        h('span', { class: 'tree-notes' }, notes.join(' · ')),
      ),
      others.length > 0 &&
        h(
          'button',
          { type: 'button', class: 'link-button', 'aria-label': t('Compare version {0} of “{1}” with the others', version, said), onclick: () => compare(turn.turn, others) },
          t('Compare'),
        ),
    ),
  );
}

/** @param {any} fork @param {number} depth */
const forkView = (fork, depth) =>
  indented(
    depth + 1,
    h(
      'li',
      { class: 'tree-fork' },
      h('a', { href: `#s=${encodeURIComponent(fork.id)}` }, icon('branch'), fork.title || t('New chat')),
    ),
  );

/** Opens the map of the session shown. */
export function openTree() {
  const session = currentChat()?.id;
  if (!session) return;
  open?.panel.close();
  const body = h('div', { class: 'panel tree-panel', tabIndex: 0, role: 'group', 'aria-label': t('Tree') });
  const panel = openPanel({
    title: t('Tree of this chat'),
    name: 'inspector',
    body: [body],
    onClose() {
      if (open?.panel === panel) open = null;
    },
    again: openTree,
  });
  open = { panel, draw: () => draw(session, body) };
  shownHead = headKey();
  open.draw();
}

// It follows the session while it is open.
function headKey() {
  const chat = currentChat();
  return `${chat?.turns.map((turn) => turn.turn)} ${isBusy(chat)}`;
}
subscribe('chat', () => {
  if (!open?.panel.open || headKey() === shownHead) return;
  shownHead = headKey();
  open.draw();
});
