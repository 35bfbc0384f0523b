// @ts-check
// What if: runs a turn and those behind it again with other values, in a session of its own. The source stays as it is.
import { fetchWhole, newId, newKey, reload, request, search } from './actions.js';
import { fetchTurn } from './debug.js';
import { addChat, setChat, state, subscribe, turnOf } from './state.js';
import { t } from './text.js';

/** @typedef {import('./turns.js').Turn} Turn */
/** @typedef {{said: string, before: Turn, now: Turn | null}} Pair */
/**
 * @typedef {{session: string, phase: 'running' | 'done' | 'failed', message: string, pairs: Pair[], left: number,
 *   kept: boolean, changed: () => void}} Run
 *   session: the copy. left: turns that have not begun. kept: the user opened it, so it is not removed.
 */

/** @type {Map<string, Run>} by source and turn, while its answer is inspected */
const runs = new Map();
/** @param {string} source @param {number} turn */
export const whatIfOf = (source, turn) => runs.get(`${source} ${turn}`);

/** @type {Set<() => void>} */
const waiting = new Set();
for (const topic of /** @type {const} */ (['turn', 'chat', 'connection']))
  subscribe(topic, () => {
    for (const look of [...waiting]) look();
  });

/** Waits for a turn's end. @param {Run} run @param {Pair} pair @param {number} number */
const ended = (run, pair, number) =>
  new Promise((resolve, reject) => {
    function look() {
      const chat = state.chats.get(run.session);
      pair.now = (chat && turnOf(chat, number)) ?? pair.now;
      run.changed();
      if (!chat) reject(new Error(t('The chat was deleted.')));
      else if (pair.now?.state === 'done') resolve(undefined);
      else return;
      waiting.delete(look);
    }
    waiting.add(look);
    look();
  });

/** @param {import('./turns.js').Input} input */
function inputOf({ content, text, continue: goesOn }) {
  if (content !== undefined) return { content };
  if (text !== undefined) return { text };
  return goesOn ? { continue: true } : null;
}

/**
 * The copy, and the turns to be run in it.
 * @param {Run} run @param {import('./state.js').Session} source @param {number} from @param {string} title
 * @param {string | undefined} system
 */
async function prepare(run, source, from, title, system) {
  const { turns } = await fetchWhole(source.id);
  const at = turns.findIndex((/** @type {Turn} */ turn) => turn.turn === from);
  if (at < 0) throw new Error(t('This turn is not in the version of the conversation shown here.'));
  const fits = (/** @type {any} */ frame) => frame.type === 'session.opened' && frame.session.id === run.session;
  const chat = addChat(run.session, true);
  if (system === undefined) {
    const parent = turns[at].parent ?? null;
    await request({ type: 'session.fork', session: source.id, turn: parent, new_session: run.session, title }, { fits });
  } else {
    const { model, sampling, session_len, memory_len, sink_len, prompt } = source;
    if (prompt && !prompt.task)
      throw new Error(t("The system prompt cannot be changed here: a new chat cannot use this chat's prompt table."));
    const shape = {
      ...{ model, sampling, session_len, memory_len, sink_len },
      ...(system ? { system } : {}),
      ...(prompt ? { prompt_task: prompt.task } : {}),
    };
    await request({ type: 'session.open', session: run.session, title, ...shape }, { fits });
  }
  setChat(chat, { local: false });
  await reload(chat);
  return turns.slice(system === undefined ? at : 0);
}

/**
 * @param {string} source @param {number} turn
 * @param {{sampling: Record<string, any>, system?: string, title: string}} how system: the whole conversation runs again
 * @returns {Run}
 */
export function startWhatIf(source, turn, { sampling, system, title }) {
  dropWhatIf(source, turn);
  /** @type {Run} */
  const run = { session: newId(), phase: 'running', message: '', pairs: [], left: 0, kept: false, changed() {} };
  runs.set(`${source} ${turn}`, run);
  state.deleting.add(run.session);
  follow(run, source, turn, sampling, system, title).then(
    () => (run.phase = 'done'),
    (error) => {
      run.phase = 'failed';
      run.message = error instanceof Error ? error.message : String(error);
    },
  ).finally(() => run.changed());
  return run;
}

/**
 * @param {Run} run @param {string} source @param {number} from @param {Record<string, any>} sampling
 * @param {string | undefined} system @param {string} title
 */
async function follow(run, source, from, sampling, system, title) {
  const known = state.sessions.get(source);
  if (!known) throw new Error(t('The chat was deleted.'));
  const turns = await prepare(run, known, from, title, system);
  run.left = turns.length;
  for (const before of turns) {
    const input = inputOf(before.input);
    if (!input) throw new Error(t('A message of token ids cannot be run again here. Use “parley replay --what-if”.'));
    const { request: asked } = await fetchTurn(source, before.turn);
    const values = { ...(asked.sampling ?? {}), ...(before.seed ? { seed: before.seed } : {}), ...sampling };
    if (run.phase !== 'running') return;
    const { turn } = await request({
      type: 'turn.start',
      session: run.session,
      input,
      sampling: values,
      request_id: newKey(),
    });
    const pair = { said: before.input.content ?? before.input.text ?? '(continued)', before, now: null };
    run.pairs.push(pair);
    run.left--;
    await ended(run, pair, turn);
  }
}

/** The user keeps the run's copy: it takes its place in the list. @param {Run} run */
export function keepWhatIf(run) {
  run.kept = true;
  state.deleting.delete(run.session);
  search(state.list.query);
}

/** Ends a run; the answers so far stay. @param {Run} run */
export function stopWhatIf(run) {
  if (run.phase !== 'running') return;
  run.phase = 'failed';
  run.message = t('Stopped.');
  request({ type: 'turn.cancel', session: run.session }).catch(() => {});
  run.changed();
}

/** Removes a run and its session, unless the user opened it. @param {string} source @param {number} turn */
export function dropWhatIf(source, turn) {
  const run = whatIfOf(source, turn);
  if (!run) return;
  runs.delete(`${source} ${turn}`);
  stopWhatIf(run);
  if (!run.kept)
    request({ type: 'session.close', session: run.session, delete: true })
      .catch(() => {})
      .finally(() => state.deleting.delete(run.session));
}

/** Removes all of them: the inspector closes. */
export function dropWhatIfs() {
  for (const key of [...runs.keys()]) {
    const [source, turn] = key.split(' ');
    dropWhatIf(source, Number(turn));
  }
}
