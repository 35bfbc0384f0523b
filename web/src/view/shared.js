// @ts-check
// A chat as its link shows it (#/shared/TOKEN), to read: without a token of access and without a connection. Loads late.
import { copyText } from '../clipboard.js';
import { h, icon } from '../dom.js';
import { afterFrame } from '../frame.js';
import { AnswerView } from '../render/answer.js';
import { t } from '../text.js';
import { bubble } from './bubble.js';

/** @typedef {{input?: string, answer: string, continues?: boolean}} SharedTurn */

/** The turns of a link's answer; one that continues the answer before it is a part of that. @param {SharedTurn[]} turns */
function exchanges(turns) {
  /** @type {SharedTurn[]} */
  const all = [];
  for (const turn of turns) {
    const last = all.at(-1);
    if (turn.continues && last) last.answer += turn.answer;
    else all.push({ ...turn });
  }
  return all;
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

/** @param {string} token @returns {Promise<{title: string, turns: SharedTurn[]} | null>} null: nothing is shared by it */
async function load(token) {
  const reply = await fetch(`share/${encodeURIComponent(token)}`, { cache: 'no-store', credentials: 'omit', referrerPolicy: 'no-referrer' });
  if (reply.status === 404) return null;
  if (!reply.ok) throw new Error(String(reply.status));
  return reply.json();
}

const title = h('h1', { class: 'title', dir: 'auto' }, t('Shared chat'));
const log = h('div', { role: 'region', 'aria-label': t('Conversation') });
const announced = h('p', { class: 'shared-state', role: 'status' });

/** @param {string} text @param {...Node} more */
const say = (text, ...more) => announced.replaceChildren(text, ...more);

async function draw() {
  const token = location.hash.slice('#/shared/'.length);
  log.replaceChildren();
  say(t('Loading…'));
  try {
    const shared = await load(token);
    title.textContent = shared ? shared.title || t('Shared chat') : t('Nothing is shared here');
    document.title = `${title.textContent} · Parley`;
    if (!shared) return say(t('The link is incomplete, or the chat is no longer shared.'));
    say(t('Shared chat, read only. A language model wrote the answers; they may be wrong.'));
    const all = exchanges(shared.turns);
    log.setAttribute('aria-busy', 'true');
    /** One turn a frame: a long chat holds none up. @param {number} i */
    const next = (i) => {
      if (i === all.length) return log.removeAttribute('aria-busy');
      log.append(drawTurn(all[i], i));
      return afterFrame(() => next(i + 1));
    };
    return next(0);
  } catch {
    return say(t("The server doesn't answer, or is busy."), ' ', h('button', { type: 'button', class: 'link-button', onclick: draw }, t('Try again')));
  }
}

log.addEventListener('click', async (event) => {
  const button = /** @type {Element} */ (event.target).closest('[data-action=copy-code]');
  if (!button || !(await copyText(button.closest('.code')?.querySelector('code')?.textContent ?? ''))) return;
  button.replaceChildren(icon('check'));
  setTimeout(() => button.replaceChildren(icon('copy')), 1500);
});

/** Takes the page's place. @param {HTMLElement} app */
export function showShared(app) {
  document.querySelector('.skip')?.remove();
  app.replaceChildren(
    h(
      'main',
      { class: 'shared' },
      h('header', { class: 'header' }, h('div', { class: 'title-box' }, title), h('a', { class: 'brand', href: './' }, icon('logo'), 'Parley')),
      h('div', { class: 'scroller', tabIndex: 0 }, h('div', { class: 'log' }, announced, h('h2', { class: 'visually-hidden' }, t('Conversation')), log)),
    ),
  );
  addEventListener('hashchange', () => location.reload());
  draw();
}
