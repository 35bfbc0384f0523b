// SIGTERM while an engine process is lost: killed, or stopped while it is idle, runs a turn, loads or saves. The server ends
// within its drain_timeout and two seconds, and what clients were told is stored. A process that saves slowly is not lost.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { root, scale, Server, temporaryFolder, unlimited, until, withinOnce } from './harness.mjs';
import { engineProcesses, isAlive, livingEngines } from './processes.mjs';

const DRAIN_S = 1, MOST_MS = 1000 * (DRAIN_S + 2);
const args = [...unlimited, '--device', 'cpu', '--threads', '1', '--engine-process', 'on', '--engine-backoff', '0.2', '--drain-timeout', String(DRAIN_S)];
const greedy = { temperature: 0, max_tokens: 12 };
const endless = { ...greedy, max_tokens: 3000, ignore_eos: true };

/** Milliseconds until SIGTERM has ended the server, in order. */
async function end(server) {
  const begun = performance.now();
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  for (const pid of engineProcesses(server)) await until('the process to end', () => !isAlive(pid));
  return performance.now() - begun;
}

const last = (server) => engineProcesses(server).at(-1);
const runTurn = async (client, session) => {
  await client.start(session, 'Count.', { sampling: endless });
  await client.next((frame) => frame.type === 'turn.delta');
};
const ways = {
  'is killed while it is idle': async (server) => process.kill(last(server), 'SIGKILL'),
  'is stopped while it is idle': async (server) => process.kill(last(server), 'SIGSTOP'),
  'is killed in a turn': async (server, ...turn) => {
    await runTurn(...turn);
    process.kill(last(server), 'SIGKILL');
  },
  'is stopped in a turn': async (server, ...turn) => {
    await runTurn(...turn);
    process.kill(last(server), 'SIGSTOP');
  },
  'is killed, and the next one stopped while it loads': async (server, ...turn) => {
    await runTurn(...turn);
    const first = last(server);
    process.kill(first, 'SIGKILL');
    const [next] = await until('the next process', () => {
      const living = livingEngines(server).filter((pid) => pid !== first);
      return living.length > 0 && living;
    });
    process.kill(next, 'SIGSTOP');
  },
};
for (const [what, lose] of Object.entries(ways))
  test(`SIGTERM when the engine process ${what}`, async (t) => {
    await withinOnce(MOST_MS, 'the end', async () => {
      const server = await Server.start(t, { args });
      const client = await server.connect();
      const session = await client.open();
      const { text } = await client.turn(session, 'What is 2 plus 3?', { sampling: greedy });
      await lose(server, client, session);
      const ms = await end(server);
      await client.closed;
      const told = client.frames.filter(({ type, turn }) => type === 'turn.delta' && turn === 1).map((delta) => delta.text).join('');
      const again = await Server.start(t, { args, db: server.db });
      const { turns } = await (await again.connect()).request({ type: 'session.get', session });
      assert.equal(turns[0].text, text);
      assert.ok(!told || turns[1].text.startsWith(told), `"${told}" was told, "${turns[1]?.text}" is stored`);
      assert.deepEqual(await again.stop(), { code: 0, signal: null });
      return ms;
    });
  });

const files = (folder) => readdirSync(folder).filter((name) => name.endsWith('.kv'));

test('a process that saves to a slow disk saves all; stopped meanwhile, it is killed', async (t) => {
  const folder = temporaryFolder(t), library = path.join(folder, 'slow_disk.so');
  const compiled = spawnSync('cc', ['-shared', '-fPIC', '-o', library, path.join(root, 'tests/e2e/slow_disk.c')], { encoding: 'utf8' });
  if (scale < 1 || compiled.error) return t.skip('a sanitizer is preloaded itself, or there is no compiler');
  assert.equal(compiled.status, 0, compiled.stderr);
  for (const stopped of [false, true]) {
    const snapshots = path.join(temporaryFolder(t), 'snapshots');
    const server = await Server.start(t, { args: [...args, '--snapshot-dir', snapshots], env: { LD_PRELOAD: library } });
    const client = await server.connect();
    for (let i = 0; i < 4; i++) await (await Follower.open(client, { sampling: greedy })).say(`My name is ${'ABCD'[i]}.`);
    assert.deepEqual(files(snapshots), []);
    const pid = last(server), ending = end(server);
    if (stopped) {
      await until('a snapshot', () => files(snapshots).length > 0);
      process.kill(pid, 'SIGSTOP');
      const begun = performance.now();
      await ending;
      const ms = performance.now() - begun;
      assert.ok(ms < 20000, `${ms} ms`); // STOP_US (engine/process/supervise.c) is 30 s
      assert.match(server.log, /event=engine\.process_hangs/);
    } else {
      assert.ok(await ending > 2000); // four snapshots, one after another, of two slow fsync each
      assert.doesNotMatch(server.log, /event=engine\.process_(hangs|ended)/);
      assert.equal(files(snapshots).length, 4);
    }
  }
});
