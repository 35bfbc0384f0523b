// @ts-check
// One turn on the page: the message, the answer as it grows, and the line of facts below it.
import { cancel, discard, resend, show } from '../actions.js';
import { h, icon, iconButton, setAttribute, setText } from '../dom.js';
import { count, duration, moment, plural, rate } from '../format.js';
import { MarkdownStream } from '../render/stream.js';
import { liveRate } from '../turns.js';
import { writeMessage } from './message_field.js';

/** @typedef {import('../state.js').Turn} Turn */

const LONG_CHARACTERS = 1600;
const LONG_LINES = 16;
const LIVE_MS = 250; // how often the live figures change

const ENDS = /** @type {Record<string, string>} */ ({
  cancelled: 'Stopped',
  length: 'Reached its length limit',
  interrupted: 'Interrupted: the server went down',
  deadline: 'Out of time',
  error: 'Failed',
  stop: 'Stop word',
});

/** The text of a message, with a button in it when it is very long. @param {string} text */
function bubble(text) {
  const body = h('div', { class: 'bubble-text', dir: 'auto' }, text);
  if (text.length <= LONG_CHARACTERS && text.split('\n').length <= LONG_LINES)
    return h('div', { class: 'bubble' }, body);
  body.classList.add('folded');
  const button = h(
    'button',
    {
      type: 'button',
      class: 'link-button',
      'aria-expanded': 'false',
      onclick() {
        const folded = body.classList.toggle('folded');
        button.setAttribute('aria-expanded', String(!folded));
        button.textContent = folded ? 'Show all' : 'Show less';
      },
    },
    'Show all',
  );
  return h('div', { class: 'bubble' }, body, button);
}

/** @param {Turn['input']} input @returns {string | null} null: not told yet */
const said = (input) =>
  input.content ?? input.text ?? (input.n_ids !== undefined ? plural(input.n_ids, 'token id') : null);

export class TurnView {
  /** @param {Turn} turn */
  constructor(turn) {
    this.number = turn.turn;
    this.user = h('article', { class: 'message user', 'aria-label': `You, message ${2 * turn.turn + 1}` });
    this.prose = h('div', { class: 'prose', dir: 'auto' });
    this.waiting = h('div', { class: 'waiting' });
    this.problem = h('div', { class: 'problem', hidden: true });
    this.copy = iconButton('copy', 'Copy answer', { 'data-action': 'copy-answer' });
    this.facts = h('div', { class: 'facts' });
    this.foot = h('footer', { class: 'message-foot' }, this.copy, this.facts);
    this.assistant = h(
      'article',
      { class: 'message assistant', 'aria-label': `Assistant, message ${2 * turn.turn + 2}` },
      this.prose,
      this.waiting,
      this.problem,
      this.foot,
    );
    this.element = h('section', { class: 'turn', 'data-turn': String(turn.turn) }, this.user, this.assistant);
    this.stream = new MarkdownStream(this.prose);
    this.fed = 0;
    this.finished = false;
    /** @type {string | null | undefined} */
    this.shownInput = undefined;
    this.nextFacts = 0;
    /** @type {any} */
    this.factsTimer = null;
    this.turn = turn;
    this.update(turn);
  }

  /** @param {Turn} turn */
  update(turn) {
    this.turn = turn;
    this.#updateInput(turn);
    if (turn.text.length > this.fed) {
      this.stream.feed(turn.text.slice(this.fed));
      this.fed = turn.text.length;
      if (turn.state !== 'done') this.stream.flush();
    }
    if (turn.state === 'done' && !this.finished) {
      this.finished = true;
      this.stream.finish();
    }
    setAttribute(this.element, 'data-state', turn.state);
    setAttribute(this.assistant, 'aria-busy', turn.state === 'running' ? 'true' : null);
    this.assistant.hidden = turn.state === 'queued';
    this.prose.hidden = !turn.text;
    this.foot.hidden = turn.state !== 'done' && !turn.text;
    this.copy.hidden = !turn.text;
    this.#updateWaiting(turn);
    this.#updateProblem(turn);
    this.#updateFacts(turn);
  }

  /** @param {Turn} turn */
  #updateInput(turn) {
    const text = said(turn.input);
    const shown = `${turn.state === 'queued'} ${text}`;
    if (shown === this.shownInput) return;
    this.shownInput = shown;
    const raw = turn.input.content === undefined && text !== null;
    this.user.classList.toggle('raw', raw);
    this.user.replaceChildren(
      h(
        'div',
        { class: 'said' },
        h(
          'div',
          { class: 'message-foot' },
          iconButton('copy', 'Copy message', { 'data-action': 'copy-message' }),
        ),
        bubble(text ?? 'A message is waiting'),
      ),
      ...(raw ? [h('div', { class: 'queued' }, 'Raw input')] : []),
      ...(turn.state === 'queued'
        ? [
            h(
              'div',
              { class: 'queued' },
              icon('queue'),
              'Waits for the answer above',
              h(
                'button',
                { type: 'button', class: 'link-button', onclick: () => cancel(this.number) },
                'Take back',
              ),
            ),
          ]
        : []),
    );
  }

  /** @param {Turn} turn */
  #updateWaiting(turn) {
    const waits = turn.state === 'running' && !turn.text;
    this.waiting.hidden = !waits;
    if (!waits) return;
    const { progress } = turn;
    if (!progress || !progress.total) {
      if (!this.waiting.firstElementChild?.classList.contains('dots'))
        this.waiting.replaceChildren(
          h(
            'span',
            { class: 'dots', role: 'img', 'aria-label': 'Generating' },
            h('i', null),
            h('i', null),
            h('i', null),
          ),
        );
      return;
    }
    let bar = this.waiting.querySelector('progress');
    if (!bar) {
      bar = h('progress', { 'aria-label': 'Reading the conversation' });
      this.waiting.replaceChildren(h('span', { class: 'waiting-text' }), bar);
    }
    bar.max = progress.total;
    bar.value = progress.done;
    setText(
      /** @type {Node} */ (this.waiting.firstChild),
      `Reading ${count(progress.done)} of ${plural(progress.total, 'token')}`,
    );
  }

  /** @param {Turn} turn */
  #updateProblem(turn) {
    this.problem.hidden = !turn.error;
    if (turn.error && !this.problem.firstChild)
      this.problem.append(icon('warning'), h('span', null, turn.error.message || turn.error.code));
  }

  /** @param {Turn} turn */
  #updateFacts(turn) {
    const now = performance.now();
    clearTimeout(this.factsTimer);
    if (turn.state === 'running') {
      if (now < this.nextFacts) {
        this.factsTimer = setTimeout(() => this.#updateFacts(this.turn), this.nextFacts - now); // the last of them
        return;
      }
      this.nextFacts = now + LIVE_MS;
    }
    /** @type {Array<[string, string, string?]>} text, hint, class */
    const facts = [];
    if (turn.state === 'done' && turn.finish_reason && ENDS[turn.finish_reason] && !turn.error)
      facts.push([ENDS[turn.finish_reason], `Finish reason: ${turn.finish_reason}`, 'fact-end']);
    if (turn.n_output) facts.push([plural(turn.n_output, 'token'), 'Tokens of the answer']);
    const perSecond = turn.state === 'done' ? (turn.timings?.tokens_per_second ?? 0) : liveRate(turn);
    if (perSecond) facts.push([`${rate(perSecond)} tokens/s`, 'Speed of generation']);
    if (turn.state === 'done' && turn.timings?.first_token_ms)
      facts.push([`first after ${duration(turn.timings.first_token_ms)}`, firstTokenHint(turn)]);
    if (turn.state === 'done' && turn.cache?.source === 'recomputed')
      facts.push([
        `recomputed ${plural(turn.cache.computed_tokens, 'token')}`,
        'The cache had been let go: the conversation was read again first',
        'fact-cache',
      ]);
    const text = facts.map(([fact]) => fact).join(' · ');
    if (text === this.facts.textContent) return;
    this.facts.replaceChildren(
      ...facts
        .flatMap(([fact, hint, kind], i) => [i ? ' · ' : '', h('span', { title: hint, class: kind }, fact)])
        .filter(Boolean),
    );
  }
}

/** @param {Turn} turn */
function firstTokenHint(turn) {
  const t = /** @type {NonNullable<Turn['timings']>} */ (turn.timings);
  const parts = [
    `Time to first token. Waited ${duration(t.queue_ms)}, read ${plural(turn.cache?.computed_tokens ?? turn.n_input, 'token')} in ${duration(t.prefill_ms)}`,
  ];
  if (turn.cache?.kept_tokens)
    parts.push(`${plural(turn.cache.kept_tokens, 'token')} were in memory already`);
  if (turn.created_ms) parts.push(moment(turn.created_ms));
  return parts.join('. ');
}

/**
 * A message that the server has not taken yet.
 * @param {import('../state.js').Pending} pending
 * @param {string} waitingFor
 */
export function pendingView(pending, waitingFor) {
  const failed = pending.phase === 'failed';
  const buttons = failed
    ? [
        pending.code === 'session_full'
          ? h('button', { type: 'button', class: 'button small', onclick: () => show(null) }, 'New session')
          : h(
              'button',
              { type: 'button', class: 'button small', onclick: () => resend(pending.key) },
              'Try again',
            ),
        h(
          'button',
          {
            type: 'button',
            class: 'button small quiet',
            onclick() {
              discard(pending.key);
              writeMessage(pending.content);
            },
          },
          'Edit',
        ),
      ]
    : [];
  return h(
    'section',
    { class: 'turn pending', 'data-phase': pending.phase },
    h(
      'article',
      { class: 'message user', 'aria-label': 'You, not sent yet' },
      h('div', { class: 'said' }, bubble(pending.content)),
      !failed && waitingFor && h('div', { class: 'queued' }, waitingFor),
    ),
    failed &&
      h(
        'div',
        { class: 'problem', role: 'alert' },
        icon('warning'),
        h('span', null, pending.message ?? 'The message was not sent.'),
        h('div', { class: 'problem-actions' }, ...buttons),
      ),
  );
}
