// Random kills of engine processes and their ranks under load; every token and text is compared with a quiet server's.
// usage: kill_engines.mjs [KILLS] [INSTANCES] [RANKS]   (200 2 1)   Exit status 1: a token was lost, doubled or different.
import assert from 'node:assert/strict';
import { Follower } from '../e2e/follower.mjs';
import { Server, unlimited, until } from '../e2e/harness.mjs';
import { plain, say } from '../e2e/talk.mjs';

const [kills = 200, instances = 2, ranks = 1] = process.argv.slice(2).map(Number);
const N_SESSIONS = 4, TURNS = 12;
const args = [...unlimited, '--device', 'cpu', '--threads', '1', '--tensor-parallel', String(ranks)];
const cleanups = [], t = { after: (f) => cleanups.push(f) };

async function talk(client, on) {
  const session = await Follower.open(client, { memory_len: 128 });
  on?.(session);
  const told = [];
  for (let i = 0; i < TURNS; i++) told.push(plain(await say(session, i)));
  assert.equal(session.fault, null);
  return told;
}

try {
  const quiet = await Server.start(t, { args });
  const alone = await talk(await quiet.connect());
  await quiet.stop();
  const server = await Server.start(t, { args: [...args, '--engine-process', 'on', '--engine-backoff', '0.1', '--instances', String(instances)] });
  const client = await server.connect();
  const pattern = ranks > 1 ? /engine\.rank rank=\d+ pid=(\d+)/g : /engine\.process instance=\S* pid=(\d+)/g;
  let n_killed = 0, n_sessions = 0, live = [];
  const count = ({ turns }) => [...turns.values()].reduce((s, { ids }) => s + ids.length, 0);
  const load = Promise.all(Array.from({ length: N_SESSIONS }, async () => {
    while (n_killed < kills) {
      let mine;
      assert.deepEqual(await talk(client, (session) => live.push(mine = session)), alone);
      live = live.filter((session) => session !== mine);
      n_sessions++;
    }
  }));
  const killer = (async () => {
    while (n_killed < kills) {
      // A turn that has drawn no token between two deaths is taken for their cause (displaced.c): each has drawn some.
      const before = new Map(live.map((session) => [session, count(session)]));
      const more = 1 + Math.random() * 10;
      await until('tokens of each session', () => live.length >= N_SESSIONS && live.every((session) => !before.has(session) || count(session) > before.get(session) + more));
      const victims = [...server.log.matchAll(pattern)].map((match) => Number(match[1])).slice(-instances * ranks);
      try {
        process.kill(victims[Math.floor(Math.random() * victims.length)], 'SIGKILL');
        n_killed++;
      } catch { /* it is being started again */ }
    }
  })();
  await Promise.all([load, killer]);
  const moved = client.frames.filter(({ type }) => type === 'session.moved').length;
  console.log(`${n_killed} kills, ${n_sessions} sessions of ${TURNS} turns, ${moved} turns moved; no token lost, doubled or different`);
  assert.equal((await server.stop()).code, 0);
} finally {
  for (const clean of cleanups.reverse()) await clean();
}
