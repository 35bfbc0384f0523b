// @ts-check
// The line below an answer: versions, actions and figures.
import { h, icon, iconButton, newMemo } from '../dom.js';
import { duration, moment, plural, rate } from '../format.js';
import { t } from '../text.js';
import { answersOf, canGoOn, liveRate, wasGiven, wasSentBack, wasWritten } from '../turns.js';
import { versionSwitch, WHAT } from './versions.js';

/** @typedef {import('../state.js').Turn} Turn */
/** @typedef {{busy: boolean, branching: boolean, last: boolean, full: boolean}} Place
 *   busy: a turn runs or waits. branching: the path can change. last: of the path. full: last in a full session. */

const LIVE_MS = 250; // interval of the live figures

const ENDS = /** @type {Record<string, string>} */ ({
  cancelled: t('Stopped'),
  length: t('Reached the length limit'),
  interrupted: t('Interrupted: the server stopped'),
  deadline: t('Reached its deadline'),
  error: t('Failed'),
  stop: t('Stop string'),
});

export class AnswerFoot {
  constructor() {
    this.versions = h('div', { class: 'versions-box' });
    this.copy = iconButton('copy', t('Copy answer'), { 'data-action': 'copy-answer' });
    this.edit = iconButton('pencil', t('Edit answer'), { 'data-action': 'edit-answer' });
    this.again = iconButton('again', t('Regenerate answer'), { 'data-action': 'regenerate' });
    this.more = iconButton('more', t('More actions'), { 'data-action': 'more', 'aria-haspopup': 'menu', 'aria-expanded': 'false' });
    this.goOn = h(
      'button',
      { type: 'button', class: 'button small go-on', 'data-action': 'continue' },
      icon('forward'),
      t('Continue'),
    );
    this.facts = h('div', { class: 'facts' });
    this.element = h(
      'footer',
      { class: 'message-foot' },
      h('div', { class: 'foot-buttons' }, this.copy, this.edit, this.again, this.more),
      this.versions,
      this.goOn,
      this.facts,
    );
    this.versionsMemo = newMemo();
    this.factsMemo = newMemo();
    this.all = false; // figures
    this.nextFacts = 0;
    /** @type {any} */
    this.factsTimer = null;
  }

  /** @param {Turn} answer @param {Turn[]} exchange @param {Place} place */
  update(answer, exchange, place) {
    const done = answer.state === 'done';
    this.element.hidden = !done && !answer.text;
    this.copy.hidden = !answer.text;
    this.again.hidden = !place.branching || !done;
    this.edit.hidden = this.again.hidden || !answer.text;
    this.edit.disabled = place.busy;
    this.again.disabled = place.busy;
    this.more.hidden = !done;
    this.goOn.hidden = !place.branching || !place.last || place.full || place.busy || !canGoOn(answer);
    this.#updateVersions(exchange, place);
    this.#updateFacts(answer, place);
  }

  /** @param {Turn[]} exchange @param {Place} place */
  #updateVersions(exchange, place) {
    // A continuation has no message that could show its versions.
    const several = exchange
      .map((turn, i) => ({ turn, all: i ? (turn.siblings ?? []) : answersOf(turn), what: i ? WHAT.continuation : WHAT.answer }))
      .filter(({ all }) => place.branching && all.length > 1);
    this.versionsMemo([place.busy, several.map(({ turn, all }) => [turn.turn, all])], () => {
      this.versions.hidden = !several.length;
      this.versions.replaceChildren(
        ...several.map(({ turn, all, what }) => versionSwitch(what, all, all.indexOf(turn.turn), place.busy)),
      );
    });
  }

  // The figures that few people look at stand behind it.
  /** @param {Turn} answer @param {Place} place */
  #moreFacts(answer, place) {
    return h(
      'button',
      {
        type: 'button',
        class: 'facts-more',
        'aria-expanded': String(this.all),
        title: this.all ? t('Fewer figures') : t('More figures'),
        'aria-label': t('More figures'),
        onclick: () => {
          this.all = !this.all;
          this.#updateFacts(answer, place);
          this.facts.querySelector('button')?.focus({ preventScroll: true });
        },
      },
      this.all ? '‹' : '›',
    );
  }

  /** @param {Turn} answer @param {Place} place */
  #updateFacts(answer, place) {
    const now = performance.now();
    clearTimeout(this.factsTimer);
    if (answer.state === 'running') {
      if (now < this.nextFacts) {
        this.factsTimer = setTimeout(() => this.#updateFacts(answer, place), this.nextFacts - now); // the last of them
        return;
      }
      this.nextFacts = now + LIVE_MS;
    }
    const facts = factsOf(answer, place.full);
    this.factsMemo([this.all, facts.map(([fact]) => fact)], () => this.#drawFacts(facts, answer, place));
  }

  /** @param {Array<[string, string, string?]>} facts @param {Turn} answer @param {Place} place */
  #drawFacts(facts, answer, place) {
    this.facts.classList.toggle('notable', facts.some(([, , kind]) => kind && kind !== 'fact-more'));
    const shown = facts.filter(([, , kind]) => this.all || kind !== 'fact-more');
    this.facts.replaceChildren(
      ...shown.flatMap(([fact, hint, kind], i) => [i ? ' · ' : '', h('span', { title: hint, class: kind }, fact)]).filter(Boolean),
      ...(facts.some(([, , kind]) => kind === 'fact-more') ? [this.#moreFacts(answer, place)] : []),
    );
  }
}

/** @param {Turn} answer @param {boolean} full @returns {Array<[string, string, string?]>} text, hint, class */
function factsOf(answer, full) {
  /** @type {Array<[string, string, string?]>} */
  const facts = [];
  const done = answer.state === 'done';
  const goesOn = !!answer.goes_on;
  const given = wasGiven(answer) && !goesOn;
  if (wasSentBack(answer))
    facts.push([t('Sent back by the client'), t('The answer as the client sent it back with its conversation')]);
  else if (wasWritten(answer)) facts.push([t('Copied'), t('Brought as text from another conversation')]);
  else if (given || (goesOn && wasGiven(answer))) facts.push([t('Edited'), t('Written by a user in place of the model’s answer'), 'fact-end']);
  if (done && !given && answer.finish_reason && ENDS[answer.finish_reason] && !answer.error)
    facts.push([full && answer.finish_reason === 'length' ? t('Chat full') : ENDS[answer.finish_reason], t('Finish reason: {0}', ENDS[answer.finish_reason]), 'fact-end']);
  if (answer.n_output) facts.push([plural(answer.n_output, 'token'), goesOn && wasGiven(answer) ? t('Tokens of the model’s part') : t('Tokens in the answer')]);
  const perSecond = done ? (answer.timings?.tokens_per_second ?? 0) : liveRate(answer);
  if (perSecond) facts.push([t('{0} tokens/s', rate(perSecond)), t('Generation speed')]);
  if (done && answer.timings?.first_token_ms)
    facts.push([t('first token in {0}', duration(answer.timings.first_token_ms)), firstTokenHint(answer), 'fact-more']);
  const computed = answer.cache?.computed_tokens ?? 0;
  if (done && computed && answer.timings && answer.timings.prefill_ms > 0)
    facts.push([
      t('prompt {0} tokens/s', rate((computed * 1000) / answer.timings.prefill_ms)),
      t('Prompt processing: {0} in {1}', plural(computed, 'token'), duration(answer.timings.prefill_ms)),
      'fact-more',
    ]);
  if (done && answer.cache?.source === 'recomputed')
    facts.push([
      t('recomputed {0}', plural(answer.cache.computed_tokens, 'token')),
      t('The cache was released, so the conversation was processed again first'),
      'fact-cache',
    ]);
  const from = { host: t('host memory'), snapshot: t('a snapshot on disk') }[answer.cache?.source ?? ''];
  if (done && from && answer.cache)
    facts.push([
      t('resumed {0}', plural(answer.cache.kept_tokens, 'token')),
      t('The cache was restored from {0}{1}', from, answer.cache.resume_ms ? t(' in {0}', duration(answer.cache.resume_ms)) : ''),
      'fact-cache',
    ]);
  return facts;
}

/** @param {Turn} answer */
function firstTokenHint(answer) {
  const times = /** @type {NonNullable<Turn['timings']>} */ (answer.timings);
  const parts = [
    t('Time to first token: {0} in the queue, {1} to process {2}', duration(times.queue_ms), duration(times.prefill_ms), plural(answer.cache?.computed_tokens ?? answer.n_input, 'token')),
  ];
  if (answer.cache?.kept_tokens)
    parts.push(t('{0} were already in memory', plural(answer.cache.kept_tokens, 'token')));
  if (answer.created_ms) parts.push(moment(answer.created_ms));
  return parts.join('. ');
}
