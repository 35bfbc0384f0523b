// What keeping everything costs: decode with the database on a disk and in memory alone, in turns; the commits of a turn's
// end; and whether a long session's turns stay as fast as its first. usage: recording.mjs [ROUNDS]
// See README.md. Figures mean something on a quiet machine only.
import { Follower } from '../e2e/follower.mjs';
import { Server, unlimited } from '../e2e/harness.mjs';

const rounds = Number(process.argv[2] ?? 7);
const cleanup = [];
const scope = { after: (f) => cleanup.push(f) };
const median = (xs) => xs.toSorted((a, b) => a - b)[xs.length >> 1];
const long = (max_tokens) => ({ max_tokens, ignore_eos: true, temperature: 0.8, seed: '1' });

/** Decode tokens per second of the engine's own clock, `together` sessions at once. */
async function decode(db, together) {
  const server = await Server.start(scope, { db, args: unlimited });
  const client = await server.connect();
  const followers = [];
  for (let i = 0; i < together; i++) followers.push(await Follower.open(client, { memory_len: 1024 }));
  await followers[0].say('Warm', { sampling: long(64) });
  const done = await Promise.all(followers.map((follower) => follower.say('Tell me a story.', { sampling: long(512) })));
  const rate = done.reduce((sum, { done: { timings } }) => sum + timings.tokens_per_second, 0);
  const metrics = await server.metrics();
  await server.stop();
  return { rate, commits: metrics.get('parley_store_commit_seconds_count'), seconds: metrics.get('parley_store_commit_seconds_sum') };
}

async function overhead(together) {
  const file = [], memory = [], commits = [];
  for (let i = 0; i < rounds; i++) { // in turns, so that what else the machine does meets both
    const kept = await decode(undefined, together);
    file.push(kept.rate);
    commits.push(kept.seconds / kept.commits * 1e6);
    memory.push((await decode(':memory:', together)).rate);
  }
  return { together, file_tokens_per_second: median(file), memory_tokens_per_second: median(memory),
    overhead_percent: (1 - median(file) / median(memory)) * 100, commit_us: median(commits) };
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

/** 150 turns of equal new tokens: what the engine and the server took for the first ones and the last ones. */
async function longSession(turns = 150) {
  const server = await Server.start(scope, { args: unlimited });
  const author = await Follower.open(await server.connect(), { memory_len: 256 });
  const took = [];
  const ids = Array.from({ length: 12 }, (_, i) => 400 + i);
  for (let i = 0; i < turns; i++) {
    const { done: { timings } } = await author.say({ ids }, { sampling: long(12) });
    took.push({ prefill: timings.prefill_ms, decode: timings.decode_ms, queue: timings.queue_ms });
  }
  await server.stop();
  const of = (key, some) => median(some.map((t) => t[key]));
  const full = took.slice(15, 25), last = took.slice(-10); // behind the first wrap of its window; and the end
  const sum = (some) => of('prefill', some) + of('decode', some) + of('queue', some);
  return { turns, first_ms: sum(took.slice(1, 11)), first_full_window_ms: sum(full), last_ms: sum(last),
    last_over_first: sum(last) / sum(took.slice(1, 11)), last_over_full_window: sum(last) / sum(full) };
}

try {
  for (const figures of [await overhead(1), await overhead(8), await turnEnd(), await longSession()])
    console.log(JSON.stringify(figures, (_, v) => (typeof v === 'number' ? Math.round(v * 1000) / 1000 : v)));
} finally {
  for (const f of cleanup.reverse()) await f();
}
