// An engine process whose memory ends: its allocations fail, or the kernel ends it. Turns go on with every token of a
// run with enough memory, and a turn whose memory cannot be had is refused without a restart.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { afterwards, root, scale, Server, temporaryFolder, unlimited } from './harness.mjs';
import { engineProcesses } from './processes.mjs';
import { plain, say } from './talk.mjs';

const sanitized = scale < 1 && 'a sanitizer takes terabytes of addresses, and ends the process where memory ends';
const serve = (t, ...args) => Server.start(t, { args: [...unlimited, '--device', 'cpu', '--threads', '1', '--engine-process', 'on',
  '--engine-backoff', '0.2', '--host-cache-bytes', '0', ...args] });
const mib = 1 << 20;
const addresses = (pid) => Number(/VmSize:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const limit = (pid, bytes) => assert.equal(spawnSync('prlimit', ['--pid', String(pid), `--as=${bytes}`]).status, 0);
const sayOne = (session, i) => say(session, i, i % 2 ? { n: 3 } : {});

async function conversation(session) {
  const told = [];
  for (let i = 0; i < 4; i++) told.push(plain(await sayOne(session, i)));
  assert.equal(session.fault, null);
  return told;
}

/** Has conversations, all like the first one and ever more of them, until the server has started its k-th process. */
async function talkUntilStarted(server, k, expected) {
  const client = await server.connect();
  for (let n = 2; engineProcesses(server).length < k; n = Math.min(2 * n, 64))
    await Promise.all(Array.from({ length: n }, async () =>
      assert.deepEqual(await conversation(await Follower.open(client, { memory_len: 128 })), expected)));
}

test('allocations fail in the process: it is started again, no turn ends with an error', { skip: sanitized }, async (t) => {
  const server = await serve(t);
  const expected = await conversation(await Follower.open(await server.connect(), { memory_len: 128 }));
  for (let k = 2; k <= 3; k++) {
    limit(engineProcesses(server).at(-1), mib); // fewer addresses than it has
    await talkUntilStarted(server, k, expected);
  }
  assert.match(server.log, /event=engine\.out_of_memory/);
  assert.equal(await server.metric('parley_sessions_poisoned_turns_total') ?? 0, 0);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('a turn whose memory cannot be had is refused, without a restart', { skip: sanitized }, async (t) => {
  const most = 64 * mib; // tokens of a log, of 4 bytes each
  const demo = path.join(root, 'configs/demo-model'), model = temporaryFolder(t);
  cpSync(demo, model, { recursive: true });
  const config = JSON.parse(readFileSync(path.join(demo, 'config.json'), 'utf8'));
  writeFileSync(path.join(model, 'config.json'), JSON.stringify({ ...config, max_position_embeddings: most }));
  const server = await serve(t, '--model', model, '--kv-cache-bytes', '64MiB', '--memory-len', '128');
  const client = await server.connect();
  const expected = await conversation(await Follower.open(client, { session_len: 4096 }));
  const [pid] = engineProcesses(server);
  limit(pid, addresses(pid) + 80 * mib); // an arena of malloc takes 64 MiB
  const large = await Follower.open(client);
  const others = conversation(await Follower.open(client, { session_len: 4096 }));
  const { done } = await large.say('Hello!', { sampling: { max_tokens: most } });
  assert.equal(done.finish_reason, 'error');
  assert.equal(done.error.code, 'overloaded');
  assert.match(done.error.message, /no memory for a log of \d+ tokens/);
  assert.deepEqual(await others, expected);
  assert.notEqual((await large.say('Hello!', { sampling: { max_tokens: 4 } })).done.finish_reason, 'error');
  assert.deepEqual(engineProcesses(server), [pid]);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

/** A memory cgroup that ends its processes when they want more than `bytes`; null: there are none to be had here. */
function cgroup(t, bytes) {
  for (const [at, file] of [['/sys/fs/cgroup/memory', 'memory.limit_in_bytes'], ['/sys/fs/cgroup', 'memory.max']]) {
    const folder = path.join(at, `parley-test-${process.pid}`);
    try {
      if (!existsSync(path.join(at, 'cgroup.procs'))) continue;
      mkdirSync(folder);
      afterwards(t, () => rmdirSync(folder));
      writeFileSync(path.join(folder, file), String(bytes));
      if (file === 'memory.max' && existsSync(path.join(folder, 'memory.swap.max'))) writeFileSync(path.join(folder, 'memory.swap.max'), '0');
      return folder;
    } catch { /* not allowed, or without this controller */ }
  }
  return null;
}

test("the kernel's OOM killer ends the process: its turns go on", async (t) => {
  const folder = cgroup(t, mib);
  if (!folder) return t.skip('no memory cgroup can be made here');
  const server = await serve(t);
  const expected = await conversation(await Follower.open(await server.connect(), { memory_len: 128 }));
  // What it has stays charged elsewhere: it can have a MiB more.
  writeFileSync(path.join(folder, 'cgroup.procs'), String(engineProcesses(server)[0]));
  await talkUntilStarted(server, 2, expected);
  assert.match(server.log, /event=engine\.process_ended .*signal=9/);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});
