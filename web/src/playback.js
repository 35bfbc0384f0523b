// @ts-check
// A recorded conversation as steps: each message is one, and each token of its answer. Pure: no DOM, no state.

/** @typedef {import('./turns.js').Turn} Turn */
/** @typedef {{turn: number, tokens: number}} Place turn: index in the path; tokens: of its answer, so far */

const LONGEST_MS = 2000; // before an answer's first token: a long prompt is not waited for

/** @param {Turn} turn */
const tokensOf = (turn) => turn.usage?.output_tokens ?? turn.n_output;

/** @param {Turn[]} turns a path @returns {number} */
export const countSteps = (turns) => turns.reduce((sum, turn) => sum + 1 + tokensOf(turn), 0);

/** Where a step is. @param {Turn[]} turns @param {number} step from 0 @returns {Place} */
export function placeOf(turns, step) {
  let left = step;
  for (let i = 0; i < turns.length; i++) {
    const own = 1 + tokensOf(turns[i]);
    if (left < own) return { turn: i, tokens: left };
    left -= own;
  }
  return { turn: turns.length - 1, tokens: turns.length ? tokensOf(turns[turns.length - 1]) : 0 };
}

/** The step at which a turn's message stands alone. @param {Turn[]} turns @param {number} at its index */
export const stepOf = (turns, at) => countSteps(turns.slice(0, at));

/** How long the answer took from this place to the next token. @param {Turn} turn @param {number} tokens */
export function pauseOf({ timings, n_output: n }, tokens) {
  if (!timings) return 30;
  return tokens ? timings.decode_ms / Math.max(1, n - 1) : Math.min(LONGEST_MS, timings.first_token_ms);
}

/** When a token came, as far as the record tells: evenly after the first one. @param {Turn} turn @param {number} startedMs @param {number} tokens */
export function momentOf({ timings, n_output: n }, startedMs, tokens) {
  if (!timings || !tokens || !(startedMs > 0)) return startedMs;
  return startedMs + timings.prefill_ms + (timings.decode_ms * (tokens - 1)) / Math.max(1, n - 1);
}
