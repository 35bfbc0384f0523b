// A recorded conversation as steps, without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countSteps, momentOf, pauseOf, placeOf, stepOf } from '../../../web/src/playback.js';

const timings = { queue_ms: 5, prefill_ms: 100, first_token_ms: 110, decode_ms: 200, paused_ms: 0, tokens_per_second: 10 };
const turns = [{ n_output: 2 }, { n_output: 0 }, { n_output: 9, usage: { output_tokens: 3 }, timings: { ...timings, first_token_ms: 9000 } }];

test('each message is a step and each token of its answer; a slider past the end stands at the end', () => {
  assert.equal(countSteps(turns), 8);
  const places = Array.from({ length: 9 }, (_, step) => placeOf(turns, step)).map(({ turn, tokens }) => [turn, tokens]);
  assert.deepEqual(places, [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [2, 1], [2, 2], [2, 3], [2, 3]]);
  assert.deepEqual(turns.map((_, i) => stepOf(turns, i)), [0, 3, 4]);
  assert.deepEqual(placeOf([], 0), { turn: -1, tokens: 0 });
});

test('it goes on at the pace of the record, and a long prompt is not waited for', () => {
  const turn = { n_output: 5, timings };
  assert.deepEqual([0, 1, 4].map((n) => pauseOf(turn, n)), [110, 50, 50]);
  assert.equal(pauseOf(turns[2], 0), 2000);
  assert.deepEqual([0, 1, 5].map((n) => momentOf(turn, 1000, n)), [1000, 1100, 1300]);
  assert.equal(momentOf({ n_output: 5 }, 0, 3), 0, 'no times on record');
});
