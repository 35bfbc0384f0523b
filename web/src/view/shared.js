// @ts-check
// A chat as its link shows it (#/shared/TOKEN), to read: without a token of access and without a connection. Loads late.
import { copyText } from '../clipboard.js';
import { h, icon } from '../dom.js';
import { afterFrame } from '../frame.js';
import { AnswerView } from '../render/answer.js';
import { t } from '../text.js';
import { bubble } from './bubble.js';
import { saveCode } from './code_file.js';

/** @typedef {{input?: string, answer: string, continues?: boolean}} SharedTurn */

/** @type {SharedTurn[]} what has come; one that continues the answer before it is a part of that */
let exchanges = [];

/** @param {SharedTurn[]} turns @returns {number} the first exchange that is new or has changed */
function add(turns) {
  let changed = exchanges.length;
  for (const turn of turns) {
    const last = exchanges.at(-1);
    if (turn.continues && last) {
      last.answer += turn.answer;
      changed = Math.min(changed, exchanges.length - 1);
    } else exchanges.push({ ...turn });
  }
  return changed;
}

/** @param {SharedTurn} turn @param {number} i */
function drawTurn({ input, answer }, i) {
  const prose = h('div', { class: 'prose', dir: 'auto' });
  if (answer) new AnswerView(prose).draw(answer, true, { tokens: 0, characters: answer.length, ms: 0 }, false);
  else prose.append(h('p', { class: 'shared-none' }, t('No answer.')));
  return h(
    'section',
    { class: 'turn' },
    input !== undefined && h('article', { class: 'message user', 'aria-label': t('Question {0}', i + 1) }, h('div', { class: 'said' }, bubble(input))),
    h('article', { class: 'message assistant', 'aria-label': t('Answer {0}', i + 1) }, prose),
  );
}

/** A part of a long chat. @param {string} token @param {number} from @returns {Promise<{title: string, turns: SharedTurn[], next?: number} | null>} null: nothing is shared by it */
async function load(token, from) {
  const reply = await fetch(`share/${encodeURIComponent(token)}${from ? `?from=${from}` : ''}`, { cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer' });
  if (reply.status === 404) return null;
  if (!reply.ok) throw new Error(String(reply.status));
  return reply.json();
}

const title = h('h1', { class: 'title', dir: 'auto' }, t('Shared chat'));
const log = h('div', { role: 'region', 'aria-label': t('Conversation') });
const announced = h('p', { class: 'shared-state', role: 'status' });

/** @param {string} text @param {...(Node | string)} more */
const say = (text, ...more) => announced.replaceChildren(text, ...more);

const more = h('button', { type: 'button', class: 'button shared-more', hidden: true, onclick: () => showMore() }, t('More messages'));
let next = 0; // the first turn of the next part
let loading = false;

/** Draws the exchanges from one on, one a frame: a long chat holds none up. @param {number} i */
function drawFrom(i) {
  if (i === exchanges.length) {
    log.removeAttribute('aria-busy');
    more.hidden = !next;
    return undefined;
  }
  const element = drawTurn(exchanges[i], i);
  if (log.children[i]) log.children[i].replaceWith(element);
  else log.append(element);
  return afterFrame(() => drawFrom(i + 1));
}

/** @param {{turns: SharedTurn[], next?: number}} part */
function show(part) {
  next = part.next ?? 0;
  log.setAttribute('aria-busy', 'true');
  more.hidden = true; // and is seen to come into sight when it is shown again
  drawFrom(add(part.turns));
}

async function showMore() {
  if (loading || !next || log.hasAttribute('aria-busy')) return;
  loading = true;
  try {
    const part = await load(location.hash.slice('#/shared/'.length), next);
    if (part) show(part);
    else location.reload(); // it is no longer shared
  } catch {
    more.textContent = t('Try again');
  }
  loading = false;
}

async function draw() {
  const token = location.hash.slice('#/shared/'.length);
  log.replaceChildren();
  exchanges = [];
  say(t('Loading…'));
  try {
    const shared = await load(token, 0);
    title.textContent = shared ? shared.title || t('Shared chat') : t('Nothing is shared here');
    document.title = `${title.textContent} · Parley`;
    if (!shared) return say(t('The link is incomplete, or the chat is no longer shared.'));
    say(t('Shared chat, read only. A language model wrote the answers; they may be wrong.'));
    return show(shared);
  } catch {
    return say(t("The server doesn't answer, or is busy."), ' ', h('button', { type: 'button', class: 'link-button', onclick: draw }, t('Try again')));
  }
}

log.addEventListener('click', async (event) => {
  const save = /** @type {Element} */ (event.target).closest('[data-action=save-code]');
  if (save) saveCode(save.closest('.code'));
  const button = /** @type {Element} */ (event.target).closest('[data-action=copy-code]');
  if (!button || !(await copyText(button.closest('.code')?.querySelector('code')?.textContent ?? ''))) return;
  button.replaceChildren(icon('check'));
  setTimeout(() => button.replaceChildren(icon('copy')), 1500);
});

/** Takes the page's place. @param {HTMLElement} app */
export function showShared(app) {
  document.querySelector('.skip')?.remove();
  const scroller = h('div', { class: 'scroller', tabIndex: 0 }, h('div', { class: 'log' }, announced, h('h2', { class: 'visually-hidden' }, t('Conversation')), log, more));
  app.replaceChildren(
    h(
      'main',
      { class: 'shared' },
      h('header', { class: 'header' }, h('div', { class: 'title-box' }, title), h('a', { class: 'brand', href: './' }, icon('logo'), 'Parley')),
      scroller,
    ),
  );
  addEventListener('hashchange', () => location.reload());
  new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && showMore(), { root: scroller, rootMargin: '1000px' }).observe(more);
  draw();
}
