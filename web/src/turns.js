// @ts-check
// One turn: its input, its answer so far, its result.

/**
 * @typedef {{turn: number, parent?: number | null, siblings?: number[], inputs?: number[], state: 'queued' | 'running' | 'done',
 *   input: Input, text: string, thinking?: boolean, finish_reason: string | null, n_input: number, n_output: number, created_ms: number,
 *   sampling?: Record<string, any>, seed?: string,
 *   usage?: {input_tokens: number, output_tokens: number, log_tokens: number},
 *   timings?: {queue_ms: number, prefill_ms: number, first_token_ms: number, decode_ms: number, paused_ms: number, tokens_per_second: number},
 *   cache?: {source: string, kept_tokens: number, computed_tokens: number, resume_ms?: number},
 *   error?: {code: string, message: string}, branch?: {edited?: number, sent_back?: boolean, written?: boolean}, goes_on?: boolean,
 *   progress: {done: number, total: number} | null, live: Live}} Turn
 *   parent: the turn it follows, null for a first one. siblings: all turns with that parent, where there are several.
 *   inputs: equal numbers for equal inputs. thinking: its text begins inside the model's thinking. goes_on: of several
 *   turns as one: the model wrote the end.
 * @typedef {{content?: string, text?: string, n_ids?: number, continue?: true}} Input
 * @typedef {{startedAt: number, samples: Array<[number, number]>}} Live
 *   samples: [time, tokens] pairs of the last seconds, for the live rate.
 */

const RATE_WINDOW_MS = 3000;
const SAMPLE_MS = 50;

/** A turn as the server describes it. @param {any} frame @returns {Turn} */
export function adoptTurn(frame) {
  return {
    text: '',
    finish_reason: null,
    n_input: 0,
    n_output: 0,
    created_ms: 0,
    progress: null,
    ...frame,
    live: { startedAt: performance.now(), samples: [] },
  };
}

/** @param {Turn} turn @param {any} frame turn.started */
export function startTurn(turn, frame) {
  turn.state = 'running';
  turn.input = frame.input;
  turn.parent = frame.parent;
  turn.thinking = frame.thinking;
  turn.n_input = frame.n_input ?? 0;
  turn.seed = frame.seed;
  turn.sampling = frame.sampling;
  turn.created_ms = frame.created_ms;
  turn.live = { startedAt: performance.now(), samples: [] };
}

/** @param {Turn} turn @param {any} frame turn.delta @returns {number} how many tokens it brought */
export function turnDelta(turn, frame) {
  const tokens = frame.seq - (frame.first_seq ?? frame.seq) + 1;
  turn.state = 'running';
  turn.text += frame.text;
  turn.n_output += tokens;
  turn.progress = null;
  const { samples } = turn.live;
  const now = performance.now();
  if (samples.length && now - samples[samples.length - 1][0] < SAMPLE_MS) return tokens;
  samples.push([now, turn.n_output]);
  while (samples.length > 2 && now - samples[0][0] > RATE_WINDOW_MS) samples.shift();
  return tokens;
}

/** @param {Turn} turn @param {any} frame turn.done */
export function turnDone(turn, frame) {
  turn.state = 'done';
  turn.progress = null;
  turn.finish_reason = frame.finish_reason;
  if (frame.text) turn.text += frame.text;
  turn.usage = frame.usage;
  turn.timings = frame.timings;
  turn.cache = frame.cache;
  turn.error = frame.error;
  if (frame.usage) turn.n_output = frame.usage.output_tokens;
}

/** Whether the turn has several answers. @param {Turn} turn */
export const hasBranches = ({ sampling }) => Math.max(sampling?.n ?? 1, sampling?.beam_width ?? 1) > 1;

/** Tokens per second over the last seconds; 0 while too little has come to tell. @param {Turn} turn */
export function liveRate(turn) {
  const { samples } = turn.live;
  if (samples.length < 3) return 0;
  const [firstAt, firstTokens] = samples[0];
  const [lastAt, lastTokens] = samples[samples.length - 1];
  return lastAt > firstAt + 200 ? ((lastTokens - firstTokens) * 1000) / (lastAt - firstAt) : 0;
}

// --- exchanges -------------------------------------------------------------------------------------------------

/**
 * Groups turns into exchanges: a message and its answer. A turn that continues an answer belongs to the turn before it.
 * @param {Turn[]} turns a path
 * @returns {Turn[][]}
 */
export function exchangesOf(turns) {
  /** @type {Turn[][]} */
  const exchanges = [];
  for (const turn of turns) {
    if (turn.input.continue && exchanges.length) exchanges[exchanges.length - 1].push(turn);
    else exchanges.push([turn]);
  }
  return exchanges;
}

/** @param {Turn[]} turns @param {(turn: Turn) => number} value */
const sum = (turns, value) => turns.reduce((total, turn) => total + value(turn), 0);

/**
 * An exchange as one turn: message and position of the first, result of the last, texts joined.
 * @param {Turn[]} exchange
 * @returns {Turn}
 */
export function joined(exchange) {
  const [first] = exchange;
  if (exchange.length === 1) return first;
  const last = exchange[exchange.length - 1];
  // Behind words that a user wrote, the figures are those of the model's part.
  const sampled = exchange.filter((turn) => !wasGiven(turn));
  const decodeMs = sum(sampled, (turn) => turn.timings?.decode_ms ?? 0);
  const steps = sum(sampled, (turn) => Math.max(0, turn.n_output - 1)); // prefill computes the first token of each
  return {
    ...last,
    turn: first.turn,
    parent: first.parent,
    siblings: first.siblings,
    inputs: first.inputs,
    input: first.input,
    thinking: first.thinking,
    created_ms: first.created_ms,
    text: exchange.map((turn) => turn.text).join(''),
    branch: exchange.find(wasGiven)?.branch ?? last.branch,
    goes_on: !wasGiven(last),
    n_output: sum(sampled.length ? sampled : exchange, (turn) => turn.n_output),
    timings: last.timings && {
      ...last.timings,
      ...sampled[0]?.timings,
      tokens_per_second: decodeMs > 0 ? (steps * 1000) / decodeMs : 0,
    },
  };
}

/** The turns that answer the same message behind the same turn, itself included. @param {Turn} turn @returns {number[]} */
export function answersOf({ turn, siblings = [], inputs = [] }) {
  const mine = inputs[siblings.indexOf(turn)];
  return siblings.filter((_, i) => inputs[i] === mine);
}

/**
 * The versions of a message, one turn for each: the newest with that text; this turn for its own.
 * @param {Turn} turn
 * @returns {{all: number[], at: number}}
 */
export function wordingsOf({ turn, siblings = [], inputs = [] }) {
  /** @type {Map<number, number>} */
  const newest = new Map();
  siblings.forEach((other, i) => newest.set(inputs[i], other));
  const mine = inputs[siblings.indexOf(turn)];
  newest.set(mine, turn);
  return { all: [...newest.values()], at: [...newest.keys()].indexOf(mine) };
}

/** @typedef {{branch?: {edited?: number, sent_back?: boolean, written?: boolean}}} Origin of an answer */
/** Whether the answer was not sampled: a user wrote it, or a client sent it back. @param {Origin} turn */
export const wasGiven = ({ branch }) => branch?.edited !== undefined || branch?.written === true;
/** Whether the whole turn came as text. @param {Origin} turn */
export const wasWritten = ({ branch }) => branch?.written === true;
/** Whether a client sent the answer back, in the form in which it keeps it. @param {Origin} turn */
export const wasSentBack = ({ branch }) => branch?.sent_back === true;

// Finish reasons after which an answer can be continued.
const CUT_OFF = new Set(['length', 'stop', 'cancelled', 'deadline', 'error', 'interrupted']);
/** @param {Turn} turn */
export const canGoOn = (turn) => turn.state === 'done' && !wasWritten(turn) && CUT_OFF.has(turn.finish_reason ?? '');
