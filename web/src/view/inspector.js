// @ts-check
// Inspects one answer: tokens with their probabilities, input, timings, replay, and the session's events.
import { copyText } from '../clipboard.js';
import { fetchTurn, replayOf, replayTurn } from '../debug.js';
import { h, iconButton } from '../dom.js';
import { count, duration, moment, plural, rate } from '../format.js';
import { currentChat } from '../state.js';
import { wasGiven, wasSentBack } from '../turns.js';
import { dropWhatIfs } from '../what_if.js';
import { comparePanel, otherVersions } from './compare_panel.js';
import { openPanel } from './dock.js';
import { eventsPanel } from './events_panel.js';
import { replayPanel } from './replay_panel.js';
import { tabbed } from './tabs.js';
import { leastSure, legend, percent, perplexity, tokenView, visible } from './tokens.js';
import { toast } from './toasts.js';
import { whatIfPanel } from './what_if_panel.js';

/** @typedef {import('../debug.js').Record_} Record_ */

/** @type {import('./dock.js').Panel | null} */
let open = null;

const SOURCES = /** @type {Record<string, string>} */ ({
  none: 'Nothing cached: this is the first turn',
  kept: 'Still in memory from the previous turn',
  host: 'Restored from host memory',
  snapshot: 'Restored from a snapshot on disk',
  recomputed: 'Released and recomputed',
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
      h('label', { for: 'inspector-part' }, `This answer has ${turns.length} parts. Showing:`),
      h(
        'select',
        { id: 'inspector-part', onchange: (/** @type {any} */ event) => load(Number(event.target.value)) },
        ...turns.map((turn, i) => h('option', { value: String(turn) }, `Part ${i + 1}`)),
      ),
    );
  const panel = openPanel({
    title: 'Inspect answer',
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
    body.replaceChildren(h('p', { class: 'panel-text inspector-note', role: 'status' }, 'Loading…'));
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
    name: 'About this answer',
    id: 'inspector-panel',
    tabs: [
      ['answer', 'Answer'],
      ['input', 'Input'],
      ['run', 'Run'],
      ['replay', 'Replay'],
      ['what-if', 'What if'],
      ...(others.length ? [/** @type {['compare', string]} */ (['compare', 'Compare'])] : []),
      ['events', 'Events'],
    ],
    draw(tab) {
      switch (tab) {
        case 'answer':
          return answerPanel(session, record, chosen, (at) => {
            chosen = at;
            if (strip.querySelector('[aria-selected=true]')?.id === 'tab-answer') choose('answer');
          });
        case 'input':
          return inputPanel(record);
        case 'run':
          return runPanel(record);
        case 'replay':
          return replayPanel(session, record);
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
 * @param {string} session @param {Record_} record @param {() => void} again draws the answer again
 */
function finder(session, record, again) {
  const { turn } = record.turn;
  const known = replayOf(session, turn);
  if (known?.found) return h('p', { class: 'panel-text' }, 'The replay differs, so its alternatives are not those of this answer.');
  const note = h('p', { class: 'panel-text', role: 'status' }, 'Alternatives were not recorded.');
  const button = h('button', { type: 'button', class: 'button small', onclick: () => find() }, 'Find alternatives');
  async function find() {
    button.disabled = true;
    note.textContent = 'Replaying this turn…';
    try {
      await replayTurn(session, turn);
      again();
    } catch (error) {
      note.textContent = `The replay failed: ${error instanceof Error ? error.message : error}`;
      button.disabled = false;
    }
  }
  if (known?.running) find();
  return h('div', null, note, button);
}

/** @param {string} session @param {Record_} record @param {number} chosen @param {(chosen: number) => void} again draws it again */
function answerPanel(session, record, chosen, again) {
  const { tokens } = record;
  if (wasGiven(record.turn))
    return [
      h(
        'p',
        { class: 'panel-text' },
        `${wasSentBack(record.turn) ? 'A client sent this answer back' : 'A user wrote this answer'} (${plural(tokens.length, 'token')}). It was not sampled, so its tokens have no probabilities.`,
      ),
      tokenView(tokens.map((token) => ({ ...token, logprob: NaN })), { label: 'Tokens in the answer', position: record.log_first }).element,
    ];
  if (!tokens.length) return [h('p', { class: 'panel-text' }, 'This answer has no tokens.')];
  // An equal replay has the alternatives that were not recorded.
  const found = replayOf(session, record.turn.turn)?.found;
  const view = tokenView(tokens, {
    label: 'Tokens in the answer',
    position: record.log_first === null ? null : record.log_first + record.input_ids.length,
    alternatives: found?.equal ? (i) => found.tokens[i]?.top : undefined,
    missing: (at) => finder(session, record, () => again(at)),
    chosen,
  });
  const least = leastSure(tokens);
  return [
    h(
      'p',
      { class: 'panel-text' },
      `${plural(tokens.length, 'token')}, perplexity ${perplexity(tokens).toFixed(2)}. Least expected: `,
      h(
        'button',
        { type: 'button', class: 'link-button', onclick: () => view.choose(least, true) },
        visible(tokens[least]),
      ),
      ` with ${percent(tokens[least].logprob)}.`,
    ),
    legend(),
    view.element,
  ];
}

/** @param {Record_} record */
function inputPanel(record) {
  const tokens = record.input_ids.map((id, i) => ({ id, text: record.input_tokens[i], logprob: NaN }));
  if (!tokens.length)
    return [h('p', { class: 'panel-text' }, 'This part has no input. It continues where the answer ended.')];
  return [
    h(
      'p',
      { class: 'panel-text' },
      `${plural(tokens.length, 'token')} of input, added to the conversation.`,
    ),
    tokenView(tokens, { label: 'Tokens in the input', position: record.log_first }).element,
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
  const t = turn.timings;
  if (!t) return h('p', { class: 'panel-text' }, 'This turn is still running, or it ended before it started to run.');
  const parts = /** @type {Array<[string, string, number]>} */ ([
    ['queue', 'Queue', t.queue_ms],
    ['prefill', 'Prompt', t.prefill_ms],
    ['decode', 'Generation', t.decode_ms],
    ['paused', 'Paused for other owners', t.paused_ms],
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
    ['Cache', SOURCES[cache.source] ?? cache.source],
    ['Restored in', cache.resume_ms ? duration(cache.resume_ms) : ''],
    ['Tokens from the cache', count(cache.kept_tokens)],
    ['Tokens computed', count(cache.computed_tokens)],
  ];
}

/** @param {string} text @param {string} what */
function copied(text, what) {
  const button = iconButton('copy', `Copy ${what}`, {
    class: 'icon-button small',
    onclick: async () => toast((await copyText(text)) ? `Copied ${what}.` : 'The browser blocked copying.'),
  });
  return h('span', { class: 'with-copy' }, h('code', null, text), button);
}

/** @param {Record_} record */
function runPanel(record) {
  const { turn } = record;
  const t = turn.timings;
  const asked = new Set(Object.keys(record.request.sampling ?? {}));
  return [
    h('h3', null, 'Time'),
    timingBar(record),
    factsList([
      ['First token in', t && duration(t.first_token_ms)],
      ['Speed', t?.tokens_per_second ? `${rate(t.tokens_per_second)} tokens/s` : ''],
      ['Began', record.started_ms > 0 ? moment(record.started_ms, true) : ''],
      ['Finished', record.ended_ms > 0 ? `${moment(record.ended_ms, true)}, ${turn.finish_reason ?? ''}` : ''],
      ['Error', turn.error?.message],
    ]),
    h('h3', null, 'Memory'),
    factsList([
      ...cacheRows(turn),
      ['Input', plural(record.input_ids.length, 'token')],
      ['Answer', plural(record.tokens.length, 'token')],
      ['Position in the conversation', record.log_first === null ? '' : `from ${count(record.log_first)}`],
    ]),
    h('h3', null, 'Sampling'),
    factsList([
      ['seed', turn.seed ? copied(turn.seed, 'the seed') : ''],
      ...Object.entries(turn.sampling ?? {}).filter(([key]) => key !== 'seed').map(
        ([key, value]) =>
          /** @type {[string, Node]} */ ([
            key,
            h(
              'span',
              null,
              typeof value === 'object' ? JSON.stringify(value) : String(value),
              asked.has(key) && h('span', { class: 'asked' }, 'asked for by this turn'),
            ),
          ]),
      ),
    ]),
    h('h3', null, 'Computed by'),
    factsList([
      ['Build', record.build || 'unknown'],
      ['Instance', record.instance || 'unknown'],
      ['Turn number', turn.parent === undefined ? String(turn.turn) : `${turn.turn}, after ${turn.parent ?? 'the start'}`],
      ['Events', turn.seq_first === undefined ? '' : `${count(turn.seq_first)} to ${count(turn.seq_last ?? 0)}`],
    ]),
  ];
}
