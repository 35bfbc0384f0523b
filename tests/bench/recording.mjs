// What keeping everything costs: decode with the database on a disk and in memory alone, in turns; what the threads of
// recording compute for a token; the commits of a turn's end; and whether a long session's turns stay as fast as its
// first. usage: recording.mjs [ROUNDS [MODEL]]: the long sessions are MODEL's, else the demo model's.
// See README.md. Rates mean something on a quiet machine only; ratios are of neighbours in time, processor time is as it is.
import { readFileSync, readdirSync } from 'node:fs';
import { Follower } from '../e2e/follower.mjs';
import { Server, unlimited } from '../e2e/harness.mjs';

const rounds = Number(process.argv[2] ?? 7), model = process.argv[3];
const cleanup = [];
const scope = { after: (f) => cleanup.push(f) };
const median = (xs) => [...xs].sort((a, b) => a - b)[xs.length >> 1];
const long = (max_tokens) => ({ max_tokens, ignore_eos: true, temperature: 0.8, seed: '1' });

/** Microseconds of processor time by thread name: "parley" is the net thread. */
function threadTimes(pid) {
  const times = {};
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const folder = `/proc/${pid}/task/${thread}`;
    const name = readFileSync(`${folder}/comm`, 'utf8').trim();
    times[name] = (times[name] ?? 0) + Number(readFileSync(`${folder}/schedstat`, 'utf8').split(' ')[0]) / 1000;
  }
  return times;
}

/** Decode tokens per second of the engine's own clock, `together` sessions at once. */
async function decode(db, together) {
  const server = await Server.start(scope, { db, args: unlimited });
  const client = await server.connect();
  const followers = [];
  for (let i = 0; i < together; i++) followers.push(await Follower.open(client, { memory_len: 1024 }));
  await followers[0].say('Warm', { sampling: long(64) });
  const before = threadTimes(server.process.pid);
  const done = await Promise.all(followers.map((follower) => follower.say('Tell me a story.', { sampling: long(512) })));
  const after = threadTimes(server.process.pid);
  const rate = done.reduce((sum, { done: { timings } }) => sum + timings.tokens_per_second, 0);
  const metrics = await server.metrics();
  await server.stop();
  const each = (thread) => (after[thread] - before[thread]) / (together * 512);
  return { rate, store: each('parley-store'), net: each('parley'),
    commit: metrics.get('parley_store_commit_seconds_sum') / metrics.get('parley_store_commit_seconds_count') * 1e6 };
}

async function overhead(together) {
  const file = [], memory = [];
  for (let i = 0; i < rounds; i++) { // in turns and in both orders, so that what else the machine does meets both
    const first = i % 2, one = await decode(first ? ':memory:' : undefined, together), other = await decode(first ? undefined : ':memory:', together);
    file.push(first ? other : one);
    memory.push(first ? one : other);
  }
  const of = (runs, key) => median(runs.map((run) => run[key]));
  return { together, file_tokens_per_second: of(file, 'rate'), memory_tokens_per_second: of(memory, 'rate'),
    overhead_percent: (1 - median(file.map((run, i) => run.rate / memory[i].rate))) * 100, commit_us: of(file, 'commit'),
    store_cpu_us_per_token: of(file, 'store'), net_cpu_us_per_token: of(file, 'net'), net_cpu_us_per_token_memory: of(memory, 'net') };
}

/** A turn's end: from the last token's delta to turn.done at the client, which its commit lies between. */
async function turnEnd() {
  const server = await Server.start(scope, { args: unlimited });
  const author = await Follower.open(await server.connect());
  const waits = [];
  let end;
  author.client.listeners.add((frame) => { if (frame.type === 'turn.done') end = performance.now(); });
  for (let i = 0; i < 60; i++) {
    const turn = await author.say({ ids: [300 + i] }, { sampling: long(8) });
    waits.push(end - turn.arrivals.at(-1));
  }
  await server.stop();
  return { turn_end_ms: median(waits) };
}

/** What the engine and the server took for a turn of 12 + 12 tokens. */
async function turnTook(author) {
  const ids = Array.from({ length: 12 }, (_, i) => 400 + i);
  const { done: { timings } } = await author.say({ ids }, { sampling: long(12) });
  return timings.queue_ms + timings.prefill_ms + timings.decode_ms;
}

/**
 * Sessions of 150 turns of equal new tokens. Each of a session's last twenty turns has a neighbour in time: one of the
 * first turns of a new session, ten of which have a part of the window yet and ten of which have all of it.
 */
async function longSessions(turns = 150) {
  const server = await Server.start(scope, { model, args: unlimited });
  const client = await server.connect();
  const pairs = { first: [], full: [] };
  for (let round = 0; round < rounds; round++) {
    const old = await Follower.open(client, { memory_len: 256 }), young = await Follower.open(client, { memory_len: 256 });
    for (let i = 0; i < turns - 20; i++) await turnTook(old);
    await turnTook(young); // its very first computes without a cache
    for (let i = 0; i < 20; i++) {
      let last, early;
      if (i % 2) last = await turnTook(old), early = await turnTook(young);
      else early = await turnTook(young), last = await turnTook(old);
      pairs[i < 10 ? 'first' : 'full'].push([early, last]);
    }
  }
  await server.stop();
  const ratio = (some) => median(some.map(([early, last]) => last / early));
  return { turns, first_ms: median(pairs.first.map(([early]) => early)), first_full_window_ms: median(pairs.full.map(([early]) => early)),
    last_ms: median(pairs.full.map(([, last]) => last)), last_over_first: ratio(pairs.first), last_over_full_window: ratio(pairs.full) };
}

try {
  for (const figures of [await overhead(1), await overhead(8), await turnEnd(), await longSessions()])
    console.log(JSON.stringify(figures, (_, v) => (typeof v === 'number' ? Math.round(v * 1000) / 1000 : v)));
} finally {
  for (const f of cleanup.reverse()) await f();
}
