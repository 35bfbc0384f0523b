// A rank that is killed under load: its instance's turns go on with the other instance, with every token and text of a
// run without kills, and clients see a pause. The other instance's ranks live on.
import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { few, root, Server, unlimited, until } from './harness.mjs';
import { isAlive, ranksOf } from './processes.mjs';
import { run } from './run.mjs';
import { plain, say } from './talk.mjs';

const demo = path.join(root, 'configs/demo-model');
const probe = await run(['generate', '--model', demo, '--device', 'cpu', '--ids', '5', '--max-tokens', '1', '--tensor-parallel', '2']);
const skip = /built without MPI/.test(probe.stderr) && 'this parley was built without MPI';
/** The ranks that this server has started, but for itself. */
const ranks = (server) => ranksOf(server).filter((pid) => pid !== server.process.pid);
const states = async (server) => (await (await fetch(`${server.url}/readyz`)).json()).instances.map(({ state }) => state);
const serve = (t, ...args) => Server.start(t, { args: [...unlimited, '--device', 'cpu', '--threads', '1', '--tensor-parallel', '2', '--engine-process', 'off', ...args] });

test('a killed rank: turns go on elsewhere, no token is lost or doubled, the server stays ready', { skip }, async (t) => {
  const n_turns = few(10), alone = [];
  const quiet = await serve(t);
  const one = await Follower.open(await quiet.connect(), { memory_len: 128 });
  for (let i = 0; i < n_turns; i++) alone.push(plain(await say(one, i)));
  assert.deepEqual(await quiet.stop(), { code: 0, signal: null });

  for (const victim of [0, 1]) {
    const server = await serve(t, '--instances', '2', '--max-sequences', '2');
    const client = await server.connect();
    const sessions = await Promise.all(Array.from({ length: 4 }, () => Follower.open(client, { memory_len: 128 })));
    const talk = Promise.all(sessions.map(async (session) => {
      const told = [];
      for (let i = 0; i < n_turns; i++) told.push(plain(await say(session, i)));
      return told;
    }));
    await until('answers to have begun', () => sessions.every(({ turns }) => (turns.get(0)?.ids.length ?? 0) > 1));
    process.kill(ranks(server)[victim], 'SIGKILL');
    for (const [i, told] of (await talk).entries()) assert.deepEqual(told, alone, `session ${i}`);
    for (const session of sessions) assert.equal(session.fault, null);
    await until('the loss to show', async () => (await states(server)).includes('lost'));
    assert.deepEqual((await states(server)).sort(), ['lost', 'serving']);
    assert.equal((await fetch(`${server.url}/readyz`)).status, 200);
    assert.ok(isAlive(ranks(server)[1 - victim]));
    assert.equal(await server.metric('parley_instances_lost_total'), 1);
    const moved = client.frames.filter(({ type, reason }) => type === 'session.moved' && reason === 'lost');
    assert.equal(await server.metric('parley_sessions_moved_turns_total{reason="lost"}'), moved.length);
    t.diagnostic(`${moved.length} turns moved`);
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
  }
});
