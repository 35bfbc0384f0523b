// @ts-check
// The server at a glance, at #/server: for the person who runs it. Live while it is on the screen.
import { h, newMemo, setText } from '../dom.js';
import { count, decimal, duration, parameters, percentOf, plural, rate } from '../format.js';
import { byLabel, cachedModels, mean, quantile, ratePerSecond, total, watchMetrics } from '../metrics.js';
import { state, subscribe } from '../state.js';
import { t } from '../text.js';
import { plot } from './plot.js';
import { serverWord } from './server_words.js';

/** @typedef {import('../metrics.js').Sample} Sample */

const WINDOW_S = 60; // that a first-token time is taken over
const FIRST_TOKEN = 'parley_engine_time_to_first_token_seconds';

const perSecond = (/** @type {number} */ value) => `${rate(value) || '0'}/s`;
const seconds = (/** @type {number} */ value) => duration(value * 1000);
const percent = (/** @type {number} */ value) => percentOf(decimal(value * 100, value < 0.1 ? 1 : 0));
/** @param {number} bytes */
function size(bytes) {
  const at = bytes > 0 ? Math.min(4, Math.floor(Math.log2(bytes) / 10)) : 0;
  return `${decimal(bytes / 1024 ** at, at && bytes / 1024 ** at < 10 ? 1 : 0)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][at]}`;
}

const tokens = plot(t('Tokens per second'), [t('generated'), t('prompt')], perSecond, 1);
const first = plot(t('Time to first token, last minute'), [t('median'), percentOf('95')], seconds, 0.01);
const queue = plot(t('Requests'), [t('running'), t('waiting')], count, 1);
const residents = plot(t('Sessions over time'), [t('active'), t('idle'), t('parked')], count, 1);
const cache = plot(t('Cache in use'), [t('device'), t('host')], percent, 0.01);

/** A tile with a table of names and figures. @param {string} title @param {string} [width] wide: all columns */
function table(title, width = '') {
  const body = h('dl', { class: 'facts-list' });
  const note = h('p', { class: 'panel-text' }, t('None yet.'));
  const element = h('section', { class: `tile ${width}` }, h('h2', null, title), body, note);
  const memo = newMemo();
  return {
    element,
    /** @param {Array<[string, string]>} rows */
    draw(rows) {
      note.hidden = rows.length > 0;
      memo(rows, () => body.replaceChildren(...rows.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value)))));
    },
  };
}
const sessions = table(t('Sessions in memory'));
const evictions = table(t('Caches released'));
const resumes = table(t('Where turns found their cache'));
const SOURCES = /** @type {Record<string, string>} */ ({
  kept: t('on the device'),
  host: t('in host memory'),
  snapshot: t('in a snapshot'),
});
const instances = table(t('Instances'));
const cached = table(t('Models in the cache'), 'wide');
const server = table(t('Server'), 'wide');
const problem = h('p', { class: 'banner', role: 'status', hidden: true });

const tiles = h(
  'div',
  { class: 'tiles', tabIndex: 0, role: 'group', 'aria-label': t('Figures'), hidden: true },
  ...[tokens, first, queue, cache, residents, sessions, evictions, resumes, instances, cached, server].map((tile) => tile.element),
);
export const figures = [problem, tiles];

/** @param {Sample[]} samples @param {(before: Sample, now: Sample) => number} value */
const between = (samples, value) => samples.slice(1).map((now, i) => value(samples[i], now));

/** The last sample of a time, or the first of all. @param {Sample[]} samples @param {number} at */
const lastBefore = (samples, at) => samples.findLast((one) => one.at <= at) ?? samples[0];

/** Counters of several names by reason, without those at 0. @param {Sample} now @param {Array<[string, string, string]>} rows */
const counted = (now, rows) =>
  rows.flatMap(([metric, label, words]) =>
    byLabel(now, metric, label)
      .filter(([, n]) => n > 0)
      .map(([name, n]) => /** @type {[string, string]} */ ([words.replace('%', serverWord(name)), count(n)])),
  );

/**
 * @param {Sample | undefined} before @param {Sample} now @param {import('../metrics.js').Instance} one
 * @returns {[string, string]}
 */
function instanceRow(before, now, { name, model, state: phase, sessions: held }) {
  /** @type {Record<string, string>} */
  const its = name ? { engine: name } : {}; // the only instance has no name, and its metrics have no such label
  const of = (/** @type {string} */ metric) => total(now, `parley_engine_${metric}`, its);
  const figures = [
    name && model,
    serverWord(phase),
    t('{0} running', count(of('requests_running'))),
    t('{0} waiting', count(of('requests_waiting'))),
    perSecond(before ? ratePerSecond(before, now, 'parley_engine_generated_tokens_total', its) : 0),
    t('{0} cached', plural(held, 'session')),
    t('cache {0}', percent(of('kv_cache_usage_ratio'))),
  ];
  return [name || model, figures.filter(Boolean).join(' · ')];
}

/** @param {Sample[]} samples @param {string} why */
function draw(samples, why) {
  problem.hidden = !why;
  setText(problem, why);
  const now = samples.at(-1);
  tiles.hidden = !now; // without figures they would say that there is nothing
  if (!now) return;
  const times = samples.map(({ at }) => at);
  const rates = (/** @type {string} */ name) => between(samples, (a, b) => ratePerSecond(a, b, name));
  tokens.draw([rates('parley_engine_generated_tokens_total'), rates('parley_engine_prompt_tokens_total')], times);
  first.draw(
    [0.5, 0.95].map((q) => samples.map((sample) => quantile(lastBefore(samples, sample.at - WINDOW_S), sample, FIRST_TOKEN, q))),
    times,
  );
  const gauges = (/** @type {string} */ name, value = total) => samples.map((sample) => value(sample, name));
  queue.draw([gauges('parley_engine_requests_running'), gauges('parley_engine_requests_waiting')], times);
  cache.draw([gauges('parley_engine_kv_cache_usage_ratio', mean), gauges('parley_engine_host_cache_usage_ratio', mean)], times);
  residents.draw(
    ['active', 'idle', 'parked'].map((phase) => samples.map((sample) => total(sample, 'parley_sessions_resident', { state: phase }))),
    times,
  );
  sessions.draw(byLabel(now, 'parley_sessions_resident', 'state').map(([name, n]) => [serverWord(name), count(n)]));
  evictions.draw(
    counted(now, [
      ['parley_sessions_parked_total', 'reason', t('parked in host memory: %')],
      ['parley_sessions_evictions_total', 'reason', t('evicted: %')],
      ['parley_engine_snapshots_given_up_total', 'reason', t('snapshot not written: %')],
    ]),
  );
  resumes.draw(
    byLabel(now, 'parley_sessions_resumes_total', 'source')
      .filter(([, n]) => n > 0)
      .map(([source, n]) => [SOURCES[source] ?? serverWord(source), count(n)]),
  );
  instances.draw(now.instances.map((one) => instanceRow(samples.at(-2), now, one)));
  const { models, server: program } = state.connection;
  const snapshots = total(now, 'parley_engine_snapshots');
  server.draw([
    [t('Uptime'), seconds(total(now, 'parley_uptime_seconds'))],
    ...(program ? [/** @type {[string, string]} */ ([t('Program'), `${program.name} ${program.version}`])] : []),
    ...models.map((m) => /** @type {[string, string]} */ ([m.name, t('{0} parameters, {1}', parameters(m.n_params), m.backend)])),
    [t('Connections'), `${count(total(now, 'parley_connections'))} (${plural(total(now, 'parley_websockets'), 'WebSocket')})`],
    [t('Device cache'), size(total(now, 'parley_engine_kv_cache_bytes'))],
    [t('Snapshots'), snapshots ? `${count(snapshots)} (${size(total(now, 'parley_engine_snapshot_bytes'))})` : t('none')],
    [t('Connections refused'), count(total(now, 'parley_refused_total'))],
    [t('Database errors'), count(total(now, 'parley_store_errors_total'))],
  ]);
}

async function drawCached() {
  try {
    const found = await cachedModels();
    cached.draw(found.map(({ name, format, weight_format: weights, bytes }) => [name, [format, ...(weights ? [weights] : []), size(bytes)].join(', ')]));
  } catch (error) {
    cached.draw([[t('Not readable'), error instanceof Error ? error.message : String(error)]]);
  }
}

/** @type {(() => void) | null} */
let stop = null;
function follow() {
  const { everOpen, phase } = state.connection; // before the first one a token may be missing
  if (state.view === 'server' && everOpen && phase !== 'unauthorized') {
    if (stop) return;
    stop = watchMetrics(draw);
    drawCached();
  } else {
    stop?.();
    stop = null;
  }
}
subscribe('connection', follow);
subscribe('selection', follow);
follow();
