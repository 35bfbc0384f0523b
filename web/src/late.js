// @ts-check
// Parts of the script that the first view does not need. Most load when the page is idle after its start, so that they
// are there when the server is not; or when they are first used. A large library loads with its first use alone.
import { state, subscribe } from './state.js';
import { toast } from './notices.js';
import { t } from './text.js';

const PARTS = {
  panels: () => import('./view/panels.js'),
  highlight: () => import('./render/highlight.js'),
  formulas: () => import('./render/formulas.js'),
  pdf: () => import('./pdf.js'),
};
/** @type {Array<keyof Parts>} */
const IN_ADVANCE = ['panels', 'highlight'];

/** @typedef {{panels: typeof import('./view/panels.js'), highlight: typeof import('./render/highlight.js'),
 *   formulas: typeof import('./render/formulas.js'), pdf: typeof import('./pdf.js')}} Parts */
/** @type {Partial<Parts>} */
const here = {};
/** @type {Partial<Record<keyof Parts, Promise<any>>>} */
const coming = {};
/** @type {Partial<Record<keyof Parts, () => void>>} */
const jobs = {};

/** @template {keyof Parts} K @param {K} name @returns {Parts[K] | undefined} */
export const loaded = (name) => here[name];

/**
 * Loads a part; after a failure the next call tries again.
 * @template {keyof Parts} K
 * @param {K} name
 * @returns {Promise<Parts[K]>}
 */
export function part(name) {
  const module = here[name];
  if (module) return Promise.resolve(/** @type {Parts[K]} */ (module));
  coming[name] ??= PARTS[name]()
    .then((module) => {
      here[name] = /** @type {any} */ (module);
      jobs[name]?.();
      return module;
    })
    .finally(() => delete coming[name]);
  return /** @type {Promise<any>} */ (coming[name]);
}

/** The job runs when the part is loaded, by any call. @param {keyof Parts} name @param {() => void} job */
export const onceLoaded = (name, job) => (jobs[name] = job);

/** Why a part did not load, for the user. */
export const notLoaded = () =>
  state.connection.phase === 'open'
    ? t("Couldn't load this part of the page. Try again, or reload the page.")
    : t("Couldn't load this part of the page: not connected to the server. Try again when the connection is back.");

/**
 * Opens a panel: at once if the panels are loaded, else when they are.
 * @param {(panels: Parts['panels']) => void} open
 * @param {boolean} [ofSession] it is of the session shown: it does not open over another one
 */
export async function withPanels(open, ofSession = false) {
  if (here.panels) return open(here.panels);
  const session = state.current;
  const panels = await part('panels').catch(() => toast(notLoaded(), 'error'));
  if (panels && (!ofSession || state.current === session)) open(panels);
}

const whenIdle = (/** @type {() => void} */ job) =>
  'requestIdleCallback' in window ? requestIdleCallback(job, { timeout: 2000 }) : setTimeout(job, 500);

// One after the other, each in an idle moment. What fails is loaded with the next connection.
subscribe('connection', () => {
  if (state.connection.phase !== 'open') return;
  for (const name of IN_ADVANCE)
    if (!here[name]) whenIdle(() => part(name).catch(() => {}));
});
