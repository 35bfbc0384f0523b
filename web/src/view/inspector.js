// @ts-check
// Inspects one answer: tokens with their probabilities, input, timings, replay, and the session's events.
import { copyText } from '../clipboard.js';
import { fetchTurn, replayOf, replayTurn } from '../debug.js';
import { h, iconButton } from '../dom.js';
import { count, decimal, duration, moment, plainValue, plural, rate } from '../format.js';
import { currentChat } from '../state.js';
import { errorText, t } from '../text.js';
import { wasGiven, wasSentBack } from '../turns.js';
import { dropWhatIfs } from '../what_if.js';
import { comparePanel, otherVersions } from './compare_panel.js';
import { openPanel } from './dock.js';
import { eventsPanel } from './events_panel.js';
import { playbackPanel } from './playback_panel.js';
import { replayPanel } from './replay_panel.js';
import { endWord } from './server_words.js';
import { tabbed } from './tabs.js';
import { leastSure, legend, percent, perplexity, tokenView, visible } from './tokens.js';
import { toast } from '../notices.js';
import { whatIfPanel } from './what_if_panel.js';

/** @typedef {import('../debug.js').Record_} Record_ */

/** @type {import('./dock.js').Panel | null} */
let open = null;

const SOURCES = /** @type {Record<string, string>} */ ({
  none: t('Nothing cached: this is the first turn'),
  kept: t('Still in memory from the previous turn'),
  host: t('Restored from host memory'),
  snapshot: t('Restored from a snapshot on disk'),
  recomputed: t('Released and recomputed'),
});


/**
 * Opens it on an answer.
 * @param {number[]} turns the turn, and those that go on with it
 * @param {number[]} [versions] opens it on their comparison: the other versions of the turn
 */
export function inspect(turns, versions) {
  const session = currentChat()?.id;
  if (!session) return;
  open?.close();
  const body = h('div', { class: 'inspector-body' });
  const parts =
    turns.length > 1 &&
    h(
      'p',
      { class: 'inspector-parts inspector-choice' },
      h('label', { for: 'inspector-part' }, t('This answer has {0} parts. Showing:', turns.length)),
      h(
        'select',
        { id: 'inspector-part', onchange: (/** @type {any} */ event) => load(Number(event.target.value)) },
        ...turns.map((turn, i) => h('option', { value: String(turn) }, t('Part {0}', i + 1))),
      ),
    );
  const panel = openPanel({
    title: t('Inspect answer'),
    name: 'inspector',
    body: [...(parts ? [parts] : []), body],
    onClose() {
      if (open === panel) open = null;
      dropWhatIfs();
    },
    again: () => inspect(turns, versions),
  });
  open = panel;

  /** @param {number} turn */
  async function load(turn) {
    body.replaceChildren(h('p', { class: 'panel-text inspector-note', role: 'status' }, t('Loading…')));
    try {
      const record = await fetchTurn(/** @type {string} */ (session), turn);
      if (!panel.open) return;
      show(body, /** @type {string} */ (session), record, () => panel.close(), versions);
    } catch (error) {
      body.replaceChildren(
        h('p', { class: 'form-problem inspector-note', role: 'alert' }, error instanceof Error ? error.message : String(error)),
      );
    }
  }
  load(turns[0]);
}

/**
 * @param {HTMLElement} body @param {string} session @param {Record_} record @param {() => void} close
 * @param {number[]} [versions]
 */
function show(body, session, record, close, versions) {
  const others = versions ?? otherVersions(record.turn.turn);
  let chosen = 0; // token
  const { strip, panel, choose } = tabbed({
    name: t('About this answer'),
    id: 'inspector-panel',
    tabs: [
      ['answer', t('Answer')],
      ['input', t('Input')],
      ['run', t('Run')],
      ['replay', t('Replay')],
      ['playback', t('Timeline')],
      ['what-if', t('What if')],
      ...(others.length ? [/** @type {['compare', string]} */ (['compare', t('Compare')])] : []),
      ['events', t('Events')],
    ],
    draw(tab) {
      switch (tab) {
        case 'answer':
          return answerPanel(session, record, chosen, (at, focus) => {
            chosen = at;
            if (strip.querySelector('[aria-selected=true]')?.id === 'tab-answer') choose('answer');
            if (focus) /** @type {HTMLElement | null} */ (panel.querySelector('.token[aria-selected=true]'))?.focus({ preventScroll: true });
          });
        case 'input':
          return inputPanel(record);
        case 'run':
          return runPanel(record);
        case 'replay':
          return replayPanel(session, record);
        case 'playback':
          return playbackPanel(session, record.turn.turn);
        case 'what-if':
          return whatIfPanel(session, record, close);
        case 'compare':
          return comparePanel(session, record, others);
        default:
          return eventsPanel(session, record.turn.turn);
      }
    },
  });
  body.replaceChildren(strip, panel);
  choose(versions ? 'compare' : 'answer', true);
}

/**
 * Alternatives that were not recorded come from a replay, if it is equal.
 * @param {string} session @param {Record_} record
 * @param {(focus: boolean) => void} again draws the answer again; focus: its token takes the focus
 */
function finder(session, record, again) {
  const { turn } = record.turn;
  const known = replayOf(session, turn);
  if (known?.found) return h('p', { class: 'panel-text' }, t('The replay differs, so its alternatives are not those of this answer.'));
  const note = h('p', { class: 'panel-text', role: 'status' }, t('Alternatives were not recorded.'));
  const button = h('button', { type: 'button', class: 'button small', onclick: () => find() }, t('Find alternatives'));
  let finding = false;
  async function find() {
    if (finding) return;
    finding = true;
    button.setAttribute('aria-disabled', 'true'); // a disabled one would lose the focus
    note.textContent = t('Replaying this turn…');
    try {
      await replayTurn(session, turn);
      again(document.activeElement === button);
    } catch (error) {
      note.textContent = t('The replay failed: {0}', error instanceof Error ? error.message : error);
      button.removeAttribute('aria-disabled');
    }
    finding = false;
  }
  if (known?.running) find();
  return h('div', null, note, button);
}

/** @param {string} session @param {Record_} record @param {number} chosen @param {(chosen: number, focus: boolean) => void} again draws it again */
function answerPanel(session, record, chosen, again) {
  const { tokens } = record;
  if (wasGiven(record.turn))
    return [
      h(
        'p',
        { class: 'panel-text' },
        t('{0} ({1}). It was not sampled, so its tokens have no probabilities.', wasSentBack(record.turn) ? t('A client sent this answer back') : t('A user wrote this answer'), plural(tokens.length, 'token')),
      ),
      tokenView(tokens.map((token) => ({ ...token, logprob: NaN })), { label: t('Tokens in the answer'), position: record.log_first }).element,
    ];
  if (!tokens.length) return [h('p', { class: 'panel-text' }, t('This answer has no tokens.'))];
  // An equal replay has the alternatives that were not recorded.
  const found = replayOf(session, record.turn.turn)?.found;
  const view = tokenView(tokens, {
    label: t('Tokens in the answer'),
    position: record.log_first === null ? null : record.log_first + record.input_ids.length,
    alternatives: found?.equal ? (i) => found.tokens[i]?.top : undefined,
    missing: (at) => finder(session, record, (focus) => again(at, focus)),
    chosen,
  });
  const least = leastSure(tokens);
  return [
    h(
      'p',
      { class: 'panel-text' },
      t('{0}, perplexity {1}. Least expected: ', plural(tokens.length, 'token'), decimal(perplexity(tokens), 2)),
      h(
        'button',
        { type: 'button', class: 'link-button', onclick: () => view.choose(least, true) },
        visible(tokens[least]),
      ),
      t(' with {0}.', percent(tokens[least].logprob)),
    ),
    legend(),
    view.element,
  ];
}

/** @param {Record_} record */
function inputPanel(record) {
  const tokens = record.input_ids.map((id, i) => ({ id, text: record.input_tokens[i], logprob: NaN }));
  if (!tokens.length)
    return [h('p', { class: 'panel-text' }, t('This part has no input. It continues where the answer ended.'))];
  return [
    h(
      'p',
      { class: 'panel-text' },
      t('{0} of input, added to the conversation.', plural(tokens.length, 'token')),
    ),
    tokenView(tokens, { label: t('Tokens in the input'), position: record.log_first }).element,
  ];
}

/** @param {Array<[string, Node | string | null | undefined]>} rows those without a value are left out */
export const factsList = (rows) =>
  h(
    'dl',
    { class: 'facts-list' },
    ...rows.flatMap(([term, value]) =>
      value === null || value === undefined || value === '' ? [] : [h('dt', null, term), h('dd', null, value)],
    ),
  );

/** @param {Record_} record */
function timingBar({ turn }) {
  const times = turn.timings;
  if (!times) return h('p', { class: 'panel-text' }, t('This turn is still running, or it ended before it started to run.'));
  const parts = /** @type {Array<[string, string, number]>} */ ([
    ['queue', t('Queue'), times.queue_ms],
    ['prefill', t('Prompt'), times.prefill_ms],
    ['decode', t('Generation'), times.decode_ms],
    ['paused', t('Paused for other owners'), times.paused_ms],
  ]).filter(([name, , ms]) => ms > 0 || name !== 'paused');
  const total = parts.reduce((sum, [, , ms]) => sum + ms, 0);
  const words = parts.map(([, word, ms]) => `${word.toLowerCase()} ${duration(ms)}`).join(', ');
  return h(
    'figure',
    { class: 'timing' },
    h(
      'div',
      { class: 'timing-bar', role: 'img', 'aria-label': `${duration(total)}: ${words}` },
      ...parts.map(([name, , ms]) => {
        const piece = h('span', { class: `timing-${name}` });
        piece.style.flexGrow = String(total ? ms / total : 0);
        return piece;
      }),
    ),
    h(
      'figcaption',
      { class: 'timing-legend' },
      ...parts.map(([name, word, ms]) =>
        h('span', null, h('i', { class: `timing-${name}` }), `${word} ${duration(ms)}`),
      ),
    ),
  );
}

/** @param {Record_['turn']} turn @returns {Array<[string, string]>} */
function cacheRows({ cache }) {
  if (!cache) return [];
  return [
    [t('Cache'), SOURCES[cache.source] ?? cache.source],
    [t('Restored in'), cache.resume_ms ? duration(cache.resume_ms) : ''],
    [t('Tokens from the cache'), count(cache.kept_tokens)],
    [t('Tokens computed'), count(cache.computed_tokens)],
  ];
}

/** @param {string} text @param {string} what */
function copied(text, what) {
  const button = iconButton('copy', t('Copy {0}', what), {
    class: 'icon-button small',
    onclick: async () => toast((await copyText(text)) ? t('Copied {0}.', what) : t('The browser blocked copying.')),
  });
  return h('span', { class: 'with-copy' }, h('code', null, text), button);
}

/** @param {Record_} record */
function runPanel(record) {
  const { turn } = record;
  const times = turn.timings;
  const asked = new Set(Object.keys(record.request.sampling ?? {}));
  return [
    h('h3', null, t('Time')),
    timingBar(record),
    factsList([
      [t('First token in'), times && duration(times.first_token_ms)],
      [t('Speed'), times?.tokens_per_second ? t('{0} tokens/s', rate(times.tokens_per_second)) : ''],
      [t('Began'), record.started_ms > 0 ? moment(record.started_ms, true) : ''],
      [t('Finished'), record.ended_ms > 0 ? [moment(record.ended_ms, true), endWord(turn.finish_reason)].filter(Boolean).join(', ') : ''],
      [t('Error'), turn.error && errorText(turn.error)],
    ]),
    h('h3', null, t('Memory')),
    factsList([
      ...cacheRows(turn),
      [t('Input'), plural(record.input_ids.length, 'token')],
      [t('Answer'), plural(record.tokens.length, 'token')],
      [t('Position in the conversation'), record.log_first === null ? '' : t('from {0}', count(record.log_first))],
    ]),
    h('h3', null, t('Sampling')),
    factsList([
      ['seed', turn.seed ? copied(turn.seed, t('the seed')) : ''],
      ...Object.entries(turn.sampling ?? {}).filter(([key]) => key !== 'seed').map(
        ([key, value]) =>
          /** @type {[string, Node]} */ ([
            key,
            h(
              'span',
              null,
              plainValue(value),
              asked.has(key) && h('span', { class: 'asked' }, t('asked for by this turn')),
            ),
          ]),
      ),
    ]),
    h('h3', null, t('Computed by')),
    factsList([
      [t('Build'), record.build || t('unknown')],
      [t('Instance'), record.instance || t('unknown')],
      [t('Turn number'), turn.parent === undefined ? String(turn.turn) : t('{0}, after {1}', turn.turn, turn.parent ?? t('the start'))],
      [t('Events'), turn.seq_first === undefined ? '' : t('{0} to {1}', count(turn.seq_first), count(turn.seq_last ?? 0))],
    ]),
  ];
}
