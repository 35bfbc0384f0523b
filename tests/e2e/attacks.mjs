// What one owner does to another: twelve attacks within a client's limits, and what the other owner's first token, its
// pings and the server's memory are meanwhile. `make torture` runs them in full (tests/torture/attacks.mjs); a test
// runs one for some seconds:
//
//   import { harmless, strike } from './attacks.mjs';
//   test('searches of one owner delay no token of another', (t) =>
//     harmless(t, 'search', { figures: { sessions: 2000, connections: 10 }, bounds: { first_token_ms: 50, stop_ms: 10000 } }));
//
// strike(t, NAME, options) runs one attack and gives what was measured, see below. Options:
//   scale     share of the full attack's counts (default 0.1), but for rate, tokens and stay_ms; figures overrides single
//             counts of attacks[NAME].full
//   seconds   how long the victim measures (default 5)
//   patience  seconds until a turn or ping that has no answer is given up (default 60); counts as that long
//   args      further options of the server; its limits are the defaults, the demo model runs
//   wrap      a program before the server, such as ['prlimit', '--as=268435456']
//   tokens    lines of the token file, where the defaults (alice attacks, bob suffers) do not do
// harmless(...) strikes up to `tries` times (default 3) until all bounds hold, as a busy machine delays one run or
// another. A bound on time is raised to three times what the same victim measured before the attack, or another one beside it
// on a server that nobody attacks: what a busy machine adds is in both. Bounds, each
// optional: first_token_ms, ping_ms, list_ms (90th percentiles: of some dozens, the 99th is a single one), memory_mib (peak over before), kept_mib (after the attack
// over before), stop_ms (SIGTERM to the end), refused (most turns of the victim that were refused).
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Worker } from 'node:worker_threads';
import { Follower } from './follower.mjs';
import { Server, sleep, temporaryFolder, unlimited } from './harness.mjs';
import { residentMib } from './processes.mjs';

const owners = { alice: 'alice-token-0123456789', bob: 'bob-token-0123456789' };

/** full: the attack's counts. prepare(client, figures): what the attacker has on the server before. goal: for bob. */
export const attacks = {
  search: {
    what: '60 connections x 40 searches of 14 words over 26,000 sessions, then gone',
    full: { connections: 60, requests: 40, sessions: 26000, stay_ms: 8000 }, goal: 'first token 50 ms, SIGTERM as ever',
    async prepare(client, { sessions }) {
      const words = 'amber birch cedar daisy ember fjord grove hazel iris jasmine kelp larch maple nettle';
      let left = sessions;
      await Promise.all(Array.from({ length: 16 }, async () => {
        while (left-- > 0) {
          const { session } = await client.ask({ type: 'session.open', title: words });
          client.send({ type: 'session.detach', session: session.id });
        }
      }));
      return { query: words };
    },
  },
  exports: {
    what: '15 connections x 40 exports of 4 MB, unread',
    full: { connections: 15, requests: 40, bytes: 5.2e6 }, goal: 'first token 50 ms, +64 MiB',
    async prepare(client, { bytes }) {
      const follower = await Follower.open(client);
      const content = 'One and two and three and four. '.repeat(420);
      for (let size = 0; size < bytes; size += 2.9 * content.length) // the same words again: their cache is there
        await follower.say(content, { after: null, sampling: { max_tokens: 1, ignore_eos: true } });
      const { archive } = await client.ask({ type: 'session.export', session: follower.session });
      return { session: follower.session, export_bytes: archive.length };
    },
  },
  places: {
    what: '272 long turns: all places, and all that may wait',
    full: { connections: 60, turns: 272, tokens: 4000 }, goal: 'a place within two steps, none refused',
  },
  replays: {
    what: '60 connections that replay a long turn',
    full: { connections: 60, tokens: 2000 }, goal: 'first token 50 ms',
    async prepare(client, { tokens }) {
      const follower = await Follower.open(client);
      await follower.say('Tell me a story.', { sampling: { max_tokens: tokens, ignore_eos: true } });
      return { session: follower.session };
    },
  },
  megabytes: {
    what: '60 connections, one message of 1 MB a second each',
    full: { connections: 60 }, goal: 'ping 20 ms',
    prepare: async (client) => ({ session: await client.open() }),
  },
  watchers: {
    what: '60 watching connections that open sessions with prompts of 32 KB',
    full: { connections: 60, rate: 20 }, goal: 'first token 50 ms, 256 KiB for each watcher',
  },
  attached: {
    what: '32,000 attached sessions with prompts of 32 KB',
    full: { connections: 60, sessions: 32000, rate: 19 }, seconds: 32, goal: 'max_resident_sessions holds',
  },
  streams: {
    what: '60 connections that stream long KServe answers and read nothing',
    full: { connections: 60, tokens: 4000 }, goal: 'first token 50 ms, no more than the KV cache', // of running turns
  },
  starts: {
    what: '60 connections that start KServe sequences and never end one',
    full: { connections: 60, rate: 20 }, goal: 'first token 50 ms, no more than the KV cache', // they are idle sessions
  },
  bombs: {
    what: '60 connections, a gzip body of 64 MB of blanks in 64 KB, again and again',
    full: { connections: 60, bytes: 64e6 }, goal: 'first token 50 ms, +64 MiB',
  },
  slowloris: {
    what: '60 connections without a token that send a byte of a head every second',
    full: { connections: 60 }, goal: 'first token 50 ms, a place for each that shows a token',
  },
  pings: {
    what: 'one connection of ping frames',
    full: { connections: 1 }, goal: 'counted as messages',
  },
};

/** A percentile of a list; undefined where it is empty. */
export const percentile = (list, p) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * p))];

/** Settles with promise's value, or gives undefined after ms. */
function within(ms, promise) {
  let timer;
  return Promise.race([promise, new Promise((resolve) => { timer = setTimeout(resolve, ms); })]).finally(() => clearTimeout(timer));
}

/** Bob: a turn, on a second connection a ping, and on a third one a search of his own
 * sessions, again and again, within the limits of an owner. */
class Victim {
  static async connect(server, token) {
    const self = new Victim();
    [self.talker, self.pinger, self.lister] = [await server.connect({ token }), await server.connect({ token }), await server.connect({ token })];
    self.follower = await Follower.open(self.talker);
    await self.follower.say('Hello!', { sampling: { max_tokens: 4 } });
    return self;
  }

  /** { tokens, pings, lists, refused, codes, stuck }: milliseconds each; how many turns were refused, by code; whether one had no answer. */
  async measure(seconds, patience) {
    const seen = { tokens: [], pings: [], lists: [], refused: 0, codes: {}, stuck: false };
    const end = performance.now() + seconds * 1000;
    const turns = async () => {
      while (performance.now() < end && !seen.stuck) {
        const begun = performance.now();
        const said = await within(patience * 1000, this.say(seen));
        seen.tokens.push((said?.arrivals[0] ?? performance.now()) - begun);
        if (!said) return void (seen.stuck = true);
        await sleep(100);
      }
    };
    const asks = async (client, message, list, pause) => {
      while (performance.now() < end) {
        const begun = performance.now();
        const answer = await within(patience * 1000, client.ask(message, 1e6));
        list.push(performance.now() - begun);
        if (!answer) return void (seen.stuck = true);
        await sleep(pause);
      }
    };
    await Promise.all([turns(), asks(this.pinger, { type: 'ping' }, seen.pings, 150),
      asks(this.lister, { type: 'session.list', query: 'hello' }, seen.lists, 500)]);
    return seen;
  }

  /** A turn of four tokens behind the empty log; one that is refused is tried again until it is not. */
  async say(seen) {
    for (;;)
      try {
        return await this.follower.say('Hello!', { after: null, sampling: { max_tokens: 4 } });
      } catch (error) {
        if (!error.answer) throw error;
        seen.refused++;
        seen.codes[error.answer.code] = (seen.codes[error.answer.code] ?? 0) + 1;
        await sleep(Math.min(error.answer.retry_after_ms ?? 100, 500));
      }
  }
}

function attacker(server, name, figures, prepared) {
  const worker = new Worker(new URL('attacker.mjs', import.meta.url), { workerData: { attack: name, port: server.port, token: owners.alice, figures, prepared } });
  let did = null;
  const failed = new Promise((_, reject) => worker.once('error', reject));
  failed.catch(() => {});
  const begun = new Promise((resolve) => worker.on('message', (message) => {
    if (message.type === 'begun') resolve();
    if (message.type === 'stopped') ({ did } = message);
  }));
  return {
    begun: () => Promise.race([begun, failed]),
    async stop() {
      worker.postMessage('stop');
      await within(5000, new Promise((resolve) => worker.once('exit', resolve)));
      await worker.terminate();
      return did;
    },
  };
}

/** A server with both owners' tokens; filled with what the attack needs where it has limits that an owner keeps. */
async function target(t, attack, figures, options) {
  const folder = temporaryFolder(t), file = path.join(folder, 'tokens');
  writeFileSync(file, (options.tokens ?? Object.entries(owners).map(([name, token]) => `${name}:${token}`)).join('\n'));
  chmodSync(file, 0o600);
  const start = (args) => Server.start(t, { db: path.join(folder, 'parley.db'), args: ['--token-file', file, ...args], wrap: options.wrap });
  let prepared = {};
  if (attack.prepare) {
    const filled = await start(unlimited);
    prepared = await attack.prepare(await filled.connect({ token: owners.alice }), figures);
    await filled.stop();
  }
  return { server: await start(options.args ?? []), prepared };
}

/** Runs one attack: see the top. Gives { figures, quiet, beside (on another server), loaded: { first_token_ms, ping_ms, list_ms: { p50, p90, p99, n }, refused, stuck },
 * after: the same once the attack is over, memory_mib: { before, peak, after }, stop_ms, attacker: what it did and which errors it got }. */
export async function strike(t, name, options = {}) {
  const attack = attacks[name], share = options.scale ?? 0.1, patience = options.patience ?? 60;
  const figures = { ...attack.full };
  for (const key of Object.keys(figures)) if (!['rate', 'tokens', 'stay_ms'].includes(key)) figures[key] = Math.max(1, Math.round(figures[key] * share));
  Object.assign(figures, options.figures);
  const { server, prepared } = await target(t, attack, figures, options);
  const summary = ({ tokens, pings, lists, ...rest }) => {
    const of = (list) => ({ p50: percentile(list, 0.5), p90: percentile(list, 0.9), p99: percentile(list, 0.99), n: list.length });
    return { first_token_ms: of(tokens), ping_ms: of(pings), list_ms: of(lists), ...rest };
  };

  const victim = await Victim.connect(server, owners.bob);
  const { server: peaceful } = await target(t, {}, figures, options);
  const other = await Victim.connect(peaceful, owners.bob);
  const quiet = summary(await victim.measure(Math.min(3, options.seconds ?? 5), patience));
  const memory = { before: residentMib(server), peak: 0, after: 0 };
  const sampler = setInterval(() => { if (!server.status) memory.peak = Math.max(memory.peak, residentMib(server)); }, 50);
  const alice = attacker(server, name, figures, prepared);
  let loaded, beside, did;
  try {
    // What an attack takes to get under way counts as well.
    const seen = Promise.all([victim, other].map((one) => one.measure(options.seconds ?? 5, patience)));
    await alice.begun();
    [loaded, beside] = (await seen).map(summary);
  } finally {
    did = await alice.stop();
  }
  await peaceful.stop('SIGKILL');
  await sleep(options.rest ?? 2000);
  const after = server.status ? null : summary(await victim.measure(0.5, patience)); // and once it is over
  memory.after = server.status ? 0 : residentMib(server);
  clearInterval(sampler);
  const begun = performance.now();
  const ended = await within(60000, server.stop());
  const stop_ms = performance.now() - begun;
  await server.stop('SIGKILL');
  return { attack: name, figures, prepared, quiet, beside, loaded, after, memory_mib: memory, stop_ms, attacker: did, status: ended ?? 'still running' };
}

/** Fails unless, in one of a few attempts, the attack keeps within all bounds. */
export async function harmless(t, name, options = {}) {
  const faults = [];
  for (let attempt = 0; attempt < (options.tries ?? 3); attempt++) {
    const seen = await strike(t, name, options);
    const { quiet, beside, loaded, memory_mib: memory } = seen;
    const busy = (key) => 3 * Math.max(quiet[key].p90, beside[key].p90);
    t.diagnostic?.(`${name}: ${JSON.stringify(seen, (_, v) => (typeof v === 'number' ? Math.round(v * 10) / 10 : v))}`);
    assert.deepEqual(seen.status, { code: 0, signal: null }, `${name}: the server's end`); // never a matter of a busy machine
    const measured = {
      first_token_ms: [loaded.first_token_ms.p90, busy('first_token_ms')], ping_ms: [loaded.ping_ms.p90, busy('ping_ms')],
      list_ms: [loaded.list_ms.p90, busy('list_ms')],
      memory_mib: [memory.peak - memory.before, 0], kept_mib: [memory.after - memory.before, 0], stop_ms: [seen.stop_ms, 0], refused: [loaded.refused, 0],
    };
    const over = Object.entries(options.bounds ?? {}).filter(([key, bound]) => measured[key][0] > Math.max(bound, measured[key][1]))
      .map(([key, bound]) => `${key} ${measured[key][0].toFixed(1)} (${bound})`);
    if (over.length === 0 && !loaded.stuck && !seen.after.stuck) return seen;
    faults.push(`${over.join(', ')}${loaded.stuck || seen.after.stuck ? ', some without an answer' : ''}`);
  }
  return assert.fail(`${name}: ${faults.join('; ')}`);
}
