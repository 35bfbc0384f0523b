// @ts-check
// The conversation. A turn is drawn once and then updated. The view follows the end unless the user has scrolled up.
import { loadOlder } from '../actions.js';
import { canBranch, deleteTurn, goOn, branchOff, regenerate, showLater, showVersion } from '../branching.js';
import { h, icon, setAttribute, setText } from '../dom.js';
import { currentChat, currentSession, forgotten, isBusy, isFull, setChat, state, subscribe, turnOf } from '../state.js';
import { plural } from '../format.js';
import { withPanels } from '../late.js';
import { afterFrame, runNow } from '../frame.js';
import { proseOf } from '../render/answer_parts.js';
import { pluralWord, t } from '../text.js';
import { exchangesOf } from '../turns.js';
import { Anchor } from './anchor.js';
import { announce } from './announcer.js';
import { copyFrom } from './copy_button.js';
import { copyWithTex, richText } from './copy_formulas.js';
import { confirmDialog } from './dialog.js';
import { drawAround, origin, stalled, systemNote } from './around.js';
import { changes, FarTurn, Nearby } from './far_turns.js';
import { markFound } from './found.js';
import { openMenu } from './menu.js';
import { field, touchScreen } from './message_field.js';
import { drawNotice, notice } from './notice.js';
import { toast } from '../notices.js';
import { drawPending } from './pending_view.js';
import { copyLink } from './sidebar.js';
import { TurnView } from './turn.js';

const AT_END = 48; // distance that counts as the end
const FIRST = 24; // turns drawn at once when another path is shown; older ones follow in slices
const COMPLETE = 4; // the latest turns, which fill the screen; when a session opens, each has a task of its own
const SLICE = 16; // older turns, which one task draws as their text
const SLICE_CHARACTERS = 16000; // and how much text, if it is more than one turn
const OFFER_MS = 20000; // to switch to another version
const NEAR_TOP = 600; // distance from the top at which earlier turns are loaded

const list = h('div', { class: 'turns' });
const pendingList = h('div', { class: 'turns' });
const older = h(
  'button',
  { type: 'button', class: 'button small older', hidden: true, onclick: older_ },
  t('Show earlier messages'),
);
const later = h(
  'div',
  { class: 'later', hidden: true },
  h('p', null, t('The conversation was rewound to here. The later messages are kept.')),
  h('button', { type: 'button', class: 'button small', onclick: later_ }, icon('down'), t('Show later messages')),
);
const log = h(
  'div',
  { class: 'log', role: 'log', 'aria-live': 'off', 'aria-label': t('Conversation'), tabindex: '-1' },
  h('h2', { class: 'visually-hidden' }, t('Conversation')), // headings of answers are below it
  older,
  origin,
  systemNote,
  list,
  later,
  stalled,
  pendingList,
);
const scroller = h('div', { class: 'scroller' }, notice, log);
const jump = h(
  'button',
  { type: 'button', class: 'jump', hidden: true, onclick: () => toEnd(true) },
  icon('down'),
  t('Jump to latest'),
);
const windowText = h('span');
const windowLine = h('div', { class: 'window-line', role: 'note' }, windowText);
/** @type {Set<string>} sessions that the model saw whole, when the page last looked */
const seenWhole = new Set();

export const transcript = h('div', { class: 'transcript' }, scroller, jump);

/** @type {Map<number, TurnView | FarTurn>} the drawn exchanges, by the number of their first turn */
let views = new Map();
/** @type {{id: string | null, generation: number}} */
let shown = { id: null, generation: -1 };
let pinned = true;
let epoch = 0; // stops drawing a transcript that is no longer shown
let filling = false;
let cold = true; // no turn was drawn yet: the first takes longer, as its code is compiled

// --- where the reader is -----------------------------------------------------------------------------------------

const distance = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;

/** @param {boolean} [smoothly] */
export function toEnd(smoothly = false) {
  pinned = true;
  jump.hidden = true;
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
  scroller.scrollTo({
    top: scroller.scrollHeight,
    behavior: smoothly && !calm && distance() < 4000 ? 'smooth' : 'instant',
  });
}

const anchor = new Anchor(scroller);
let lastTop = 0;
scroller.addEventListener(
  'scroll',
  () => {
    // Growing text also changes the distance to the end: only scrolling up stops following it.
    const up = scroller.scrollTop < lastTop - 1;
    lastTop = scroller.scrollTop;
    if (distance() < AT_END) pinned = true;
    else if (up) pinned = false;
    jump.hidden = pinned || distance() < AT_END;
    keepReader();
    if (up && scroller.scrollTop < NEAR_TOP && !filling && !older.hidden) older_();
  },
  { passive: true },
);
scroller.addEventListener(
  'wheel',
  (event) => {
    if (event.deltaY < 0 && scroller.scrollHeight > scroller.clientHeight) pinned = false;
  },
  { passive: true },
);

function keepReader() {
  if (pinned) return anchor.release();
  anchor.keep();
  lastTop = scroller.scrollTop;
}

function keepEnd() {
  if (!list.firstChild && !pendingList.firstChild) return void (jump.hidden = true); // nothing to lay the page out for
  if (pinned) scroller.scrollTop = scroller.scrollHeight;
  jump.hidden = pinned || distance() < AT_END;
}
// Heights are estimates until a turn was visible (content-visibility), and the window may be resized.
const sizes = new ResizeObserver(() => {
  keepReader();
  keepEnd();
});
sizes.observe(scroller);
sizes.observe(log);

async function older_() {
  const n = await loadOlder();
  if (n) announce(t('{0} earlier {1} loaded', n, pluralWord(n, 'turn')));
}

// The button goes when the first earlier turns take its place, not before: at the top what is read would move up.
/** @param {import('../state.js').Chat | null} chat @param {boolean} [drawn] */
function drawOlder(chat, drawn = !filling) {
  // aria-disabled instead of disabled, so that the pressed button keeps the focus.
  const focused = document.activeElement === older;
  older.hidden = !chat?.more && (older.hidden || drawn);
  older.textContent = chat?.reading ? t('Loading earlier messages…') : t('Show earlier messages');
  older.setAttribute('aria-disabled', String(chat?.reading ?? false));
  if (focused && older.hidden) log.focus({ preventScroll: true });
}

// The head was moved to a turn that has later turns.
async function later_() {
  pinned = false;
  const before = currentChat()?.turns.length ?? 0;
  if (!(await showLater())) return;
  runNow();
  const n = (currentChat()?.turns.length ?? 0) - before;
  if (n > 0) announce(t('{0} later {1} shown', n, pluralWord(n, 'turn')));
  (touchScreen.matches ? log : field).focus({ preventScroll: true });
}

function drawLater() {
  const chat = currentChat();
  const shows = !!currentSession()?.below && !!chat && !state.deletingTurns.has(chat.id) && canBranch() && !isBusy(chat) && !chat.stale;
  if (later.hidden !== shows) return;
  later.hidden = !shows;
  keepEnd();
}

// --- drawing -----------------------------------------------------------------------------------------------------

/** @type {import('./answer_foot.js').Place} of all exchanges but the last */
let place = { busy: false, branching: false, last: false, full: false };
let lastPlace = { ...place, last: true };

/**
 * @param {import('../state.js').Chat} chat
 * @param {boolean} replaces other turns of the session, where the reader is: those must have their places at once
 */
function redraw(chat, replaces) {
  for (const view of views.values()) removeView(view, chat);
  views = new Map();
  list.replaceChildren();
  epoch++;
  filling = false;
  older.hidden = true;
  const all = exchangesOf(chat.turns);
  const atOnce = replaces ? FIRST : cold && !changes(all.at(-1) ?? []) ? 0 : 1;
  const exchanges = all.slice(Math.max(0, all.length - atOnce));
  exchanges.forEach((exchange, i) => addView(exchange, list, i < exchanges.length - COMPLETE));
  pinned = true;
  fillAbove(chat);
}

/**
 * @param {import('../state.js').Turn[]} exchange
 * @param {Element} box
 * @param {boolean} far it is not on the screen
 * @param {boolean} [above] before all others in the box
 */
function addView(exchange, box, far, above = false) {
  const view = far && !changes(exchange) ? new FarTurn(exchange, place) : new TurnView(exchange, place);
  views.set(view.number, view);
  cold = false;
  if (above) box.prepend(view.element);
  else box.append(view.element);
  if (view instanceof FarTurn) nearby.watch(view);
}

/** @param {TurnView | FarTurn} view @param {import('../state.js').Chat} chat */
function removeView(view, chat) {
  view.leave(chat.turns);
  if (view instanceof FarTurn) nearby.forget(view);
}

const nearby = new Nearby(
  scroller,
  (far) => {
    const view = new TurnView(far.exchange, far.place, far.element);
    view.setPlace(far.place, far.position);
    views.set(view.number, view);
  },
  // On a busy machine, or where earlier turns arrive while the top is read, they are completed on the screen.
  (change) => (pinned ? change() : anchor.during(change, (turn) => nearby.far.has(turn))),
);

/** The turn with all that belongs to it. @param {TurnView | FarTurn} view @returns {TurnView} */
function complete(view) {
  if (view instanceof TurnView) return view;
  nearby.take(view);
  return /** @type {TurnView} */ (views.get(view.number));
}

/** @param {TurnView | FarTurn} view @param {import('../state.js').Turn[]} exchange */
const updateView = (view, exchange) => (changes(exchange) ? complete(view) : view).update(exchange);

/**
 * Draws the turns above those drawn, newest first, a few at a time. Each slice has a frame of its own. At the end of the
 * conversation that frame keeps the place (keepEnd): to measure it here would lay out the page within this task.
 * @param {import('../state.js').Chat} chat
 */
function fillAbove(chat) {
  if (filling) return;
  const mine = epoch;
  const slice = () => {
    if (mine !== epoch || shown.generation !== chat.generation) return; // drawn anew on the next frame, from its end
    const exchanges = exchangesOf(chat.turns);
    const end = views.size ? exchanges.findIndex(([first]) => views.has(first.turn)) : exchanges.length;
    filling = end > 0;
    if (!filling) return drawOlder(chat);
    let box = null;
    const measured = !pinned || views.size >= COMPLETE;
    const bottom = measured ? distance() : 0;
    if (views.size < COMPLETE) {
      addView(exchanges[end - 1], list, false, true);
    } else {
      // Each slice in a box of its own: out of sight it costs what one turn does.
      box = h('div', { class: 'slice fresh' });
      list.prepend(box);
      for (const exchange of exchanges.slice(sliceAbove(exchanges, end), end)) addView(exchange, box, true);
    }
    drawOlder(chat, true);
    if (measured) {
      scroller.scrollTop = scroller.scrollHeight - scroller.clientHeight - bottom;
      lastTop = scroller.scrollTop;
      if (!pinned) anchor.hold();
    }
    if (box) keepHeights(box);
    drawPlaces(chat);
    drawWindow(chat);
    drawPending(chat, pendingList, viewAfter);
    drawBusy(chat);
    goToTarget(chat);
    afterFrame(slice, views.size < COMPLETE); // before the rows of the list
  };
  filling = true;
  setTimeout(slice, 0);
}

/** Where the slice begins that ends before `end`. @param {import('../state.js').Turn[][]} exchanges @param {number} end */
function sliceAbove(exchanges, end) {
  let start = end;
  let characters = 0;
  while (start > Math.max(0, end - SLICE) && (start === end || characters < SLICE_CHARACTERS))
    for (const turn of exchanges[--start]) characters += turn.text.length + (turn.input.content ?? turn.input.text ?? '').length;
  return start;
}

/**
 * What is out of sight has the height that it was laid out with once. With an estimate in its place, a slice that comes
 * into sight would grow and push away what the user reads.
 * @param {HTMLElement} box
 */
function keepHeights(box) {
  const all = [box, .../** @type {HTMLElement[]} */ ([...box.children])];
  const padding = parseFloat(getComputedStyle(all[1]).paddingBottom); // of a turn, beside the kept height
  const heights = all.map((element, i) => element.getBoundingClientRect().height - (i && padding));
  all.forEach((element, i) => (element.style.containIntrinsicHeight = `auto ${heights[i]}px`));
  box.classList.remove('fresh');
}

/** Whether turns that fill the screen are still to be drawn. @param {import('../state.js').Chat | null} chat */
function drawBusy(chat) {
  const busy = filling && !!chat && views.size < Math.min(COMPLETE, exchangesOf(chat.turns).length);
  setAttribute(log, 'aria-busy', busy ? 'true' : null);
}

/**
 * Removes turns that left the path, draws new ones at the end, and starts to draw earlier ones.
 * @param {import('../state.js').Chat} chat
 */
function syncTurns(chat) {
  const exchanges = exchangesOf(chat.turns);
  const numbers = new Set(exchanges.map(([first]) => first.turn));
  const replaces = views.size > 0;
  for (const [number, view] of views) {
    if (numbers.has(number)) continue;
    removeView(view, chat);
    const box = view.element.parentElement;
    view.element.remove();
    if (box !== list && !box?.childElementCount) box?.remove();
    views.delete(number);
  }
  if (!views.size) {
    redraw(chat, replaces);
    return;
  }
  const first = Math.min(...views.keys());
  for (const exchange of exchanges) {
    const view = views.get(exchange[0].turn);
    if (view && view.exchange.length !== exchange.length) updateView(view, exchange);
    else if (!view && exchange[0].turn > first) addView(exchange, list, false);
  }
  if (exchanges.length && !views.has(exchanges[0][0].turn)) fillAbove(chat);
}

/** Where each stands in the path, and what can be done with it there. @param {import('../state.js').Chat} chat */
function drawPlaces(chat) {
  const busy = isBusy(chat);
  const branching = canBranch();
  const full = isFull(currentSession(), chat);
  if (busy !== place.busy || branching !== place.branching || full !== lastPlace.full) {
    place = { busy, branching, last: false, full: false };
    lastPlace = { busy, branching, last: true, full };
  }
  // In a session with one path, the first loaded number is the count of earlier turns.
  const exchanges = exchangesOf(chat.turns);
  const before = chat.more ? (chat.turns[0]?.turn ?? 0) : 0;
  exchanges.forEach(([first], i) => {
    views.get(first.turn)?.setPlace(i === exchanges.length - 1 ? lastPlace : place, before + i);
  });
}

/** @param {number} number of any turn in it */
const viewOf = (number) =>
  views.get(number) ?? [...views.values()].find((view) => view.exchange.some((turn) => turn.turn === number));

/** The line above which the model's window has moved past the messages. @param {import('../state.js').Chat} chat */
function drawWindow(chat) {
  const session = currentSession();
  const start = forgotten(session, chat);
  if (!session || !start || !chat.turns.length) {
    windowLine.remove();
    if (session && !start && chat.phase === 'ready') seenWhole.add(session.id);
    return;
  }
  const most = plural(session.memory_len, 'token');
  if (seenWhole.delete(session.id))
    toast(t('This conversation is now longer than what the model can see ({0}). It no longer sees the earliest messages.', most), 'here');
  // The first exchange that is not all above the window.
  const exchanges = exchangesOf(chat.turns);
  const at = exchanges.findIndex((exchange) => (exchange[exchange.length - 1].usage?.log_tokens ?? Infinity) > start);
  const first = exchanges[at];
  const above = exchanges[at - 1]?.at(-1);
  const begins = above?.usage?.log_tokens ?? (chat.more ? start : 0);
  const view = first && views.get(first[0].turn)?.element;
  if (!view || (!above && begins >= start)) return void windowLine.remove();
  setText(windowText, begins < start ? t('The model sees only the end of the next exchange, and nothing above it') : t('The model no longer sees messages above this line'));
  if (view.previousElementSibling !== windowLine) view.before(windowLine);
}

function drawChat() {
  const chat = currentChat();
  log.hidden = drawNotice();
  if (!chat || shown.id !== chat.id || shown.generation !== chat.generation) {
    const replaces = !!chat && shown.id === chat.id && views.size > 0;
    const left = shown.id !== null;
    shown = { id: chat?.id ?? null, generation: chat?.generation ?? -1 };
    if (chat) {
      redraw(chat, replaces);
    } else {
      epoch++;
      filling = false;
      list.replaceChildren();
      if (left) scroller.scrollTop = 0; // a new chat begins at its top
    }
  } else {
    syncTurns(chat);
  }
  drawOlder(chat);
  drawAround();
  drawLater();
  if (chat) {
    drawPlaces(chat);
    drawWindow(chat);
  }
  if (drawPending(chat, pendingList, viewAfter)) pinned = true;
  drawBusy(chat);
  keepEnd();
  if (chat) goToTarget(chat);
}

/** Goes to the turn that the address names; loads earlier ones until it is there. @param {import('../state.js').Chat} chat */
async function goToTarget(chat) {
  const { target } = chat;
  if (target === null || chat.phase !== 'ready' || chat.reading) return;
  const view = viewOf(target);
  if (!view) {
    const earlier = chat.more && target < (chat.turns[0]?.turn ?? 0);
    if (turnOf(chat, target) || (earlier && (await loadOlder()))) return; // it is drawn soon
    setChat(chat, { target: null });
    toast(t('This message is in another version of the conversation.'), 'here', { label: t('Show it'), run: () => showTarget(chat, target), ms: OFFER_MS });
    return;
  }
  setChat(chat, { target: null });
  complete(view);
  pinned = false;
  for (let i = 0; i < 3; i++) {
    // Heights are estimates until a turn was visible.
    view.element.scrollIntoView({ block: 'start' });
    await new Promise(requestAnimationFrame);
  }
  markFound(view.element);
  view.element.classList.add('target');
  setTimeout(() => view.element.classList.remove('target'), 3000);
}

/** Switches to the version that a turn is in, and goes to the turn. @param {import('../state.js').Chat} chat @param {number} turn */
async function showTarget(chat, turn) {
  if (currentChat() === chat && (await showVersion(turn))) setChat(chat, { target: turn });
}

/** The first drawn exchange behind a turn. @param {import('../state.js').Chat} chat @param {number} turn */
function viewAfter(chat, turn) {
  const [first] = exchangesOf(chat.turns).find(([one]) => one.turn > turn) ?? [];
  return (first && views.get(first.turn)?.element) ?? null;
}

subscribe('selection', () => (pinned = true));
subscribe('chat', drawChat);
subscribe('connection', drawChat);
subscribe('session', (ids) => {
  const chat = currentChat();
  if (!chat || !ids.has(chat.id)) return;
  drawPlaces(chat);
  drawLater();
  drawWindow(chat);
});
subscribe('turn', (numbers) => {
  const chat = currentChat();
  if (!chat || shown.id !== chat.id || shown.generation !== chat.generation) return;
  for (const exchange of exchangesOf(chat.turns))
    if (exchange.some((turn) => numbers.has(turn.turn))) {
      const view = views.get(exchange[0].turn);
      if (view) updateView(view, exchange);
    }
  keepEnd();
});

// --- buttons -----------------------------------------------------------------------------------------------------

log.addEventListener('copy', copyWithTex);
/** Whose buttons show, on a screen without a pointer: the turn touched last. @type {Element | null} */
let touched = null;
log.addEventListener('click', (event) => {
  const turn = /** @type {Element} */ (event.target).closest('.turn');
  if (turn && turn !== touched) {
    touched?.classList.remove('touched');
    touched = turn;
    turn.classList.add('touched');
  }
  const button = /** @type {Element} */ (event.target).closest('[data-action]');
  if (!(button instanceof HTMLElement)) return;
  const view = views.get(Number(button.closest('.turn')?.getAttribute('data-turn')));
  if (view instanceof TurnView) act(button, view);
});

/** @param {HTMLElement} button @param {TurnView} view */
function act(button, view) {
  const [first] = view.exchange;
  const last = view.exchange[view.exchange.length - 1];
  switch (button.dataset.action) {
    case 'copy-code':
      copyFrom(button, button.closest('.code')?.querySelector('code')?.textContent ?? '');
      break;
    case 'save-code':
      withPanels(({ saveCode }) => saveCode(button.closest('.code')));
      break;
    case 'copy-answer':
      copyFrom(button, proseOf(view.turn), richText(view.element.querySelectorAll('.assistant .prose')));
      break;
    case 'copy-message':
      copyFrom(button, first.input.content ?? first.input.text ?? '');
      break;
    case 'edit':
      pinned = false;
      view.edit();
      break;
    case 'edit-answer':
      pinned = false;
      view.editAnswer();
      break;
    case 'delete':
      askDelete(first);
      break;
    case 'regenerate':
      startAgain(regenerate(first));
      break;
    case 'continue':
      startAgain(goOn(last));
      break;
    case 'more':
      openMenu(button, t('Answer'), [
        ...(view.place.branching ? [/** @type {import('./menu.js').Item} */ ({ icon: 'branch', label: t('Branch into a new chat'), name: 'branch', run: () => branchOff(last) })] : []),
        { icon: 'link', label: t('Copy link to this message'), name: 'link', run: () => state.current && copyLink(state.current, first.turn) },
        { icon: 'inspect', label: t('Inspect answer'), name: 'inspect', run: () => withPanels(({ inspect }) => inspect(view.exchange.map((turn) => turn.turn)), true) },
      ]);
      break;
    case 'version':
      switchVersion(button, Number(button.dataset.to));
      break;
  }
}

/** @param {import('../state.js').Turn} turn */
async function askDelete(turn) {
  const others = (turn.siblings?.length ?? 1) > 1;
  const agreed = await confirmDialog({
    title: t('Delete from here on?'),
    action: t('Delete'),
    text: t('This message, its answer and all messages after it, in every version of them, will be deleted from the server.{0}', others ? t(' Other versions of this message or answer are kept.') : ''),
  });
  if (agreed && (await deleteTurn(turn))) field.focus({ preventScroll: true });
}

// The pressed button disappears with its answer, or is disabled during the next one.
/** @param {Promise<boolean>} started */
async function startAgain(started) {
  if (!(await started)) return;
  toEnd();
  (touchScreen.matches ? log : field).focus({ preventScroll: true });
}

// The version switch keeps its position and the focus although the answer changes.
/** @param {HTMLElement} button @param {number} to */
async function switchVersion(button, to) {
  const top = button.getBoundingClientRect().top;
  const name = button.getAttribute('aria-label');
  pinned = false;
  if (!(await showVersion(to))) return;
  runNow();
  const buttons = [.../** @type {NodeListOf<HTMLButtonElement>} */ (viewOf(to)?.element.querySelectorAll('.versions button') ?? [])];
  const what = name?.split(' ').pop();
  const other = buttons.find((b) => !b.disabled && b.getAttribute('aria-label') === name) ?? buttons.find((b) => !b.disabled && b.getAttribute('aria-label')?.endsWith(` ${what}`));
  if (!other) return;
  pinned = false;
  scroller.scrollTop += other.getBoundingClientRect().top - top;
  other.focus({ preventScroll: true });
  announce(other.parentElement?.querySelector('.visually-hidden')?.textContent ?? '');
}

/** Opens the editor of the last message. @returns {boolean} whether there is one */
export function editLast() {
  const view = exchangesOf(currentChat()?.turns ?? [])
    .map(([first]) => views.get(first.turn))
    .findLast((v) => v instanceof TurnView && v.user.querySelector('[data-action=edit]'));
  if (view instanceof TurnView) view.edit();
  return view instanceof TurnView;
}

/** Presses the newest answer's copy button, or the newest block's of code. @param {'answer' | 'code'} what */
export function copyLast(what) {
  for (const view of [...views.values()].sort((a, b) => b.number - a.number)) {
    if (what === 'code' && view instanceof FarTurn && !/^ *(```|~~~)|^ {4}|^\t/m.test(view.turn.text)) continue;
    const buttons = /** @type {NodeListOf<HTMLElement>} */ (complete(view).element.querySelectorAll(`[data-action=copy-${what}]`));
    const last = [...buttons].findLast((button) => !button.hidden);
    if (last) return last.click();
  }
  return toast(what === 'code' ? t('No code to copy yet.') : t('No answer to copy yet.'));
}
