// @ts-check
// The server's metrics over time: its own samples of the last minutes, then /metrics. Asks only while someone looks.
import { token } from './prefs.js';
import { t } from './text.js';

const EVERY_MS = 2000;
export const KEPT_S = 300;

/** @typedef {{labels: Record<string, string>, value: number}} Value */
/** @typedef {{name: string, model: string, state: string, sessions: number}} Instance */
/** @typedef {{at: number, values: Map<string, Value[]>, instances: Instance[]}} Sample at: in seconds */

/** Prometheus' text form. @param {string} text @returns {Map<string, Value[]>} by name */
export function parseMetrics(text) {
  /** @type {Map<string, Value[]>} */
  const values = new Map();
  for (const line of text.split('\n')) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = Object.fromEntries(
      [...(match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, value]) => [key, value.replace(/\\(.)/g, '$1')]),
    );
    const list = values.get(match[1]) ?? [];
    list.push({ labels, value: match[3] === '+Inf' ? Infinity : Number(match[3]) });
    values.set(match[1], list);
  }
  return values;
}

/** @typedef {{name: string, format: string, weight_format?: string, bytes: number}} CachedModel */
/** The models in the server's cache of the hub, which may be loaded without a download. Administrators may see them. @returns {Promise<CachedModel[]>} */
export async function cachedModels() {
  const answer = await get('models/cached');
  if (!answer.ok) throw new Error(t('the server answers {0}', answer.status));
  return (await answer.json()).models;
}

/** A metric summed over its labels, or over those that fit. @param {Sample} sample @param {string} name @param {Record<string, string>} [fits] */
export const total = (sample, name, fits = {}) =>
  (sample.values.get(name) ?? [])
    .filter(({ labels }) => Object.entries(fits).every(([key, value]) => labels[key] === value))
    .reduce((sum, { value }) => sum + value, 0);

/** The mean of a metric that every instance has. @param {Sample} sample @param {string} name */
export const mean = (sample, name) => total(sample, name) / Math.max(1, sample.values.get(name)?.length ?? 1);

/** A metric by one of its labels. @param {Sample} sample @param {string} name @param {string} label @returns {Array<[string, number]>} */
export function byLabel(sample, name, label) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const { labels, value } of sample.values.get(name) ?? [])
    if (labels[label] !== undefined) sums.set(labels[label], (sums.get(labels[label]) ?? 0) + value);
  return [...sums];
}

/**
 * How fast a counter grows, per second; 0 after a restart of the server.
 * @param {Sample} before @param {Sample} now @param {string} name @param {Record<string, string>} [fits]
 */
export const ratePerSecond = (before, now, name, fits) =>
  now.at > before.at ? Math.max(0, (total(now, name, fits) - total(before, name, fits)) / (now.at - before.at)) : 0;

/**
 * A quantile of what a histogram counted between two samples, within its bucket by interpolation.
 * @param {Sample | undefined} before undefined: since the server's start
 * @param {Sample} now @param {string} name @param {number} q
 * @returns {number} NaN: nothing was counted
 */
export function quantile(before, now, name, q) {
  const earlier = new Map(before ? byLabel(before, `${name}_bucket`, 'le') : []);
  const buckets = byLabel(now, `${name}_bucket`, 'le')
    .map(([le, n]) => ({ le: le === '+Inf' ? Infinity : Number(le), n: n - (earlier.get(le) ?? 0) }))
    .sort((a, b) => a.le - b.le);
  const wanted = q * (buckets.at(-1)?.n ?? 0);
  if (!(wanted > 0)) return NaN;
  const at = buckets.findIndex(({ n }) => n >= wanted);
  const low = at ? buckets[at - 1] : { le: 0, n: 0 };
  if (buckets[at].le === Infinity) return low.le;
  return low.le + ((buckets[at].le - low.le) * (wanted - low.n)) / (buckets[at].n - low.n);
}

/** @param {string} path @returns {Promise<Response>} */
function get(path) {
  const bearer = token();
  return fetch(path, { headers: bearer ? { authorization: `Bearer ${bearer}` } : {} });
}

const now = () => performance.now() / 1000;

/** What the server kept of the last minutes. @param {string} text @returns {Sample[]} oldest first */
export function parseHistory(text) {
  const [, ...blocks] = text.split('# age_s ');
  return blocks.map((block) => ({ at: now() - parseFloat(block), values: parseMetrics(block), instances: [] }));
}

/**
 * Asks again and again until stop() is called.
 * @param {(samples: Sample[], problem: string) => void} show the samples so far, oldest first: those before are the server's
 * @returns {() => void} stop
 */
export function watchMetrics(show) {
  let stopped = false;
  /** @type {any} */
  let timer = null;
  /** @type {Sample[]} */
  let samples = [];
  async function ask() {
    let problem = '';
    try {
      if (!samples.length) {
        const history = await get('metrics/history');
        if (history.ok) samples = parseHistory(await history.text());
      }
      const [answer, ready] = await Promise.all([get('metrics'), fetch('readyz')]); // 503 while no instance serves, with the same text
      const [text, { instances = [] }] = await Promise.all([answer.text(), ready.json()]);
      if (!answer.ok) problem = [401, 403].includes(answer.status) ? t('Only an administrator’s token shows these figures.') : t('The server answered {0}.', answer.status);
      else samples.push({ at: now(), values: parseMetrics(text), instances });
      const oldest = now() - KEPT_S;
      samples = samples.filter(({ at }) => at >= oldest);
    } catch {
      problem = t('Not connected to the server. Retrying…');
    }
    if (stopped) return;
    if (!document.hidden) show(samples, problem);
    timer = setTimeout(ask, EVERY_MS);
  }
  ask();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
