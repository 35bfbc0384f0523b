// More conversations than the cache holds, with pauses: every turn is correct, none is killed or lost, and a client
// that finds the queue full gets a retry time.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Follower, transcript } from './follower.mjs';
import { scale, Server, sleep, unlimited, until } from './harness.mjs';
import { Random, seed } from './random.mjs';

const sessions = scale < 1 ? 8 : 16;
const holds = sessions / 4; // sessions that the cache holds at once
const queued = 3;
const window = 128, chunk = 64, block = 64;
const perToken = 8 * 2 * 2 * 64 * 4; // layers, keys and values, heads, width, f32
// A ring: the sinks' block, the window's and a chunk's, and one more that both ends cut.
const blocks = 1 + Math.ceil((window + chunk) / block) + 1;
const shared = `You are brief. ${'Numbers are written in full. '.repeat(12)}`;
const lines = ['My name is Zora.', 'Count from 1 to 9.', 'What is the capital of France?', 'Tell me a story.', 'What is my name?'];

/** The turns of conversation i, with its forks and edits, one after the other: what their reader got. */
async function converse(client, i, think, start) {
  const got = [];
  const take = async (follower, begin) => {
    if (got.length > 0) await think(); // all begin at once
    const turn = await follower.done(await start(begin));
    got.push(transcript(turn));
    return turn;
  };
  const sampling = (k) => ({ ignore_eos: true, logprobs: true, max_tokens: 8 + ((i + k) % 5) * 6, temperature: 1, top_p: 0.95, seed: String(100 * i + k) });
  const say = (follower, k, fields) => take(follower, () => follower.start(`${lines[k % lines.length]} (${i})`, { sampling: sampling(k), ...fields }));
  const follower = await Follower.open(client, { memory_len: window, sink_len: 4, ...(i % 2 ? { system: shared } : {}) });
  for (let k = 0; k < lines.length; k++) {
    await say(follower, k);
    if (k === 2 && i % 4 === 1) { // a fork goes its own way beside it: blocks of both are shared
      const copy = await Follower.fork(client, follower.session, 1);
      await say(copy, 7);
      await say(follower, 8);
      await say(copy, 9);
    }
    if (k === 3 && i % 4 === 2) { // another answer, an edit of an inner message, and back
      await take(follower, () => follower.regenerate(3, { sampling: { seed: '77' } }));
      await say(follower, 10, { after: 1 });
      await follower.rewind(3, false);
    }
  }
  return got;
}

let want; // what each conversation is on a server with room for all, one after the other
for (const [where, host] of [['with host memory for them', '64MiB'], ['without', '0']])
test(`${sessions} sessions in a cache for ${holds}, ${where} (E2E_SEED=${seed})`, async (t) => {
  if (!want) {
    const calm = await Server.start(t, { args: unlimited });
    const calmClient = await calm.connect();
    const alone = [];
    for (let i = 0; i < sessions; i++) alone.push(await converse(calmClient, i, () => {}, (begin) => begin()));
    await calm.stop();
    want = alone;
  }

  const random = new Random();
  const server = await Server.start(t, { args: [...unlimited, '--kv-cache-bytes', String(holds * blocks * block * perToken), '--prefill-chunk-tokens', String(chunk),
    '--max-sequences', String(holds + 2), '--max-queued-turns', String(queued), '--host-cache-bytes', host] });
  const refusals = [], counts = { most: 0 };
  const start = async (begin) => { // comes again when it was told to
    for (let again = 0; ; again++) {
      counts.most = Math.max(counts.most, again);
      try {
        return await begin();
      } catch (error) {
        if (error.answer?.code !== 'overloaded') throw error;
        refusals.push(error.answer);
        assert.ok(error.answer.retry_after_ms > 0 && error.answer.retry_after_ms <= 60000, JSON.stringify(error.answer));
        await sleep(error.answer.retry_after_ms);
      }
    }
  };
  let over = false;
  const seen = { usage: 0, waiting: 0, running: 0 };
  const watch = (async () => {
    while (!over) {
      const metrics = await server.metrics();
      seen.usage = Math.max(seen.usage, metrics.get('parley_engine_kv_cache_usage_ratio'));
      seen.waiting = Math.max(seen.waiting, metrics.get('parley_engine_requests_waiting'));
      seen.running = Math.max(seen.running, metrics.get('parley_engine_requests_running'));
      await sleep(20);
    }
  })();
  const clients = await Promise.all([1, 2, 3, 4].map(() => server.connect()));
  const think = () => sleep(random.below(80)); // each goes at its own pace
  const got = await Promise.all(want.map((_, i) => converse(clients[i % 4], i, think, start)));
  over = true;
  await watch;
  for (const [i, turns] of got.entries()) {
    assert.equal(turns.length, want[i].length);
    for (const [k, turn] of turns.entries()) {
      assert.equal(turn.finish_reason, 'length', `conversation ${i}, its turn ${k}`);
      assert.deepEqual(turn, want[i][k], `conversation ${i}, its turn ${k}`);
    }
  }
  const metrics = await server.metrics();
  const sum = (name) => [...metrics].filter(([key]) => key.startsWith(name)).reduce((total, [, value]) => total + value, 0);
  t.diagnostic(`${got.flat().length} turns, ${refusals.length} refusals, at most ${counts.most} for one turn; ${sum('parley_sessions_parked_total')} parked, ` +
    `${sum('parley_sessions_evictions_total')} evicted; at most ${seen.running} running and ${seen.waiting} waiting, ${Math.round(100 * seen.usage)}% of the cache`);
  assert.ok(refusals.length > 0 && sum(host === '0' ? 'parley_sessions_evictions_total' : 'parley_sessions_parked_total') > sessions, 'it was tight');
  assert.ok(seen.usage <= 1 && seen.waiting <= holds + 2 + queued);
  // No cache block is held when all sessions are gone.
  for (const { id } of (await clients[0].ask({ type: 'session.list', limit: 200 })).sessions)
    await clients[0].ask({ type: 'session.close', session: id, delete: true });
  await until('an empty cache', async () => (await server.metric('parley_engine_kv_cache_usage_ratio')) === 0 && (await server.metric('parley_engine_sequences')) === 0);
  const fresh = await Follower.open(clients[0], { memory_len: window });
  assert.equal((await fresh.say('Hello!', { sampling: { max_tokens: 3, ignore_eos: true } })).ids.length, 3);
});
