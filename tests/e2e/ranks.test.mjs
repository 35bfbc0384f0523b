// An instance of several ranks: the same answers as one rank's, started by mpirun or by Parley itself; a rank or the leader that is
// killed; sizes that do not fit; caches in snapshots and on their way to another instance.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { Follower, transcript } from './follower.mjs';
import { Server, parley, patience, root, temporaryFolder, until, withinOnce } from './harness.mjs';
import { isAlive, ranksOf } from './processes.mjs';
import { run } from './run.mjs';

const demo = 'configs/demo-model', llama = 'tests/fixtures/models/llama';
const probe = await run(['generate', '--model', llama, '--device', 'cpu', '--ids', '5', '--max-tokens', '1', '--tensor-parallel', '2']);
const skip = /built without MPI/.test(probe.stderr) && 'this parley was built without MPI';
const mpirun = async (n, ...args) => {
  const env = { ...process.env, OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' };
  return promisify(execFile)('mpirun', ['--oversubscribe', '-n', String(n), parley, ...args], { cwd: root, env, timeout: patience })
    .then(({ stdout, stderr }) => ({ code: 0, stdout, stderr }), (error) => error);
};
const ids = Array.from({ length: 50 }, (_, i) => 5 + i).join(','); // enough rows for pipeline stages to split them
const generate = ['generate', '--model', llama, '--device', 'cpu', '--ids', ids, '--max-tokens', '24', '--temperature', '0', '--json'];
const sizes = (tp, pp = 1) => ['--tensor-parallel', String(tp), '--pipeline-parallel', String(pp)];
const ended = (pids) => until(`the ranks ${pids} to end`, () => pids.every((pid) => !isAlive(pid)));
/** A server that leads the ranks itself; engine_process.test.mjs has those that an engine process leads. */
const serve = (t, options = {}) => Server.start(t, { ...options, args: ['--device', 'cpu', '--threads', '1', '--engine-process', 'off',
  ...sizes(2), ...(options.args ?? [])] });

test('generate: the tokens of one rank, and the same bits however the ranks were started', { skip }, async () => {
  const one = JSON.parse((await run(generate)).stdout);
  for (const [tp, pp] of [[2, 1], [4, 1], [1, 2], [2, 2]]) {
    const own = await run([...generate, ...sizes(tp, pp)]);
    assert.equal(own.code, 0, own.stderr);
    const several = JSON.parse(own.stdout);
    assert.deepEqual(several.ids, one.ids);
    several.logprobs.forEach((logprob, i) => assert.ok(Math.abs(logprob - one.logprobs[i]) < 1e-4));
    if (tp === 1) assert.deepEqual(several.logprobs, one.logprobs); // whole layers: the same sums
    else assert.notDeepEqual(several.logprobs, one.logprobs);
    const job = await mpirun(tp * pp, ...generate, ...sizes(tp, pp));
    assert.equal(job.code, 0, job.stderr);
    assert.deepEqual(JSON.parse(job.stdout), several);
  }
});

test('sizes that do not fit are refused with a sentence', { skip }, async () => {
  const refused = async (why, args) => {
    const result = await run([...generate, ...args]);
    assert.equal(result.code, 1);
    assert.match(result.stderr, why);
  };
  await refused(/4 heads do not divide by 3 tensor-parallel ranks/, sizes(3));
  await refused(/3 layers cannot go to 4 pipeline ranks/, sizes(1, 4));
  await refused(/No such file/, [...sizes(2), '--model', '/nonexistent']);
  for (const [n, args, why] of [
    [3, sizes(2), /3 ranks were started, but tensor_parallel 2 x pipeline_parallel 1 makes 2/],
    [2, [], /2 ranks were started, but tensor_parallel 1 x pipeline_parallel 1 makes 1/],
    [1, sizes(2), /1 ranks were started/],
  ]) {
    const result = await mpirun(n, ...generate, ...args);
    assert.equal(result.code, 1, result.stderr);
    assert.match(result.stderr, why);
  }
  const alone = await run(['rank']);
  assert.equal(alone.code, 1);
  assert.match(alone.stderr, /is started by another parley alone/);
});

test('serve: turns, a replay on as many ranks, and an end that leaves no process', { skip }, async (t) => {
  const server = await serve(t);
  // Open MPI would bind one started process to one core, with all its threads.
  const cores = (pid) => /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1];
  for (const pid of ranksOf(server)) assert.equal(cores(pid), cores(server.process.pid));
  const client = await server.connect();
  const session = await client.open();
  await client.turn(session, 'My name is Zora.', { sampling: { max_tokens: 12 } });
  await client.turn(session, 'What is my name?', { sampling: { max_tokens: 12 } });
  const pids = ranksOf(server);
  assert.equal(pids.length, 2);
  assert.equal(pids[0], server.process.pid);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  await ended(pids);
  const replay = await run(['replay', session, '--db', server.db, '--model', demo, '--device', 'cpu', ...sizes(2)]);
  assert.equal(replay.code, 0, replay.stdout + replay.stderr);
});

test('serve: a killed rank ends the server with a sentence and status 75, and its sessions go on', { skip }, async (t) => {
  const server = await serve(t);
  const client = await server.connect();
  const session = await client.open();
  await client.turn(session, 'My name is Zora.', { sampling: { max_tokens: 8 } });
  const pids = ranksOf(server);
  process.kill(pids[1], 'SIGKILL'); // no turn runs: it is noticed all the same
  assert.deepEqual(await server.exited, { code: 75, signal: null });
  assert.match(server.log, new RegExp(`rank 1 of 2 \\(process ${pids[1]}\\) has ended`));
  await ended(pids);
  const again = await serve(t, { db: server.db });
  const second = await again.connect();
  await second.request({ type: 'session.attach', session });
  await second.turn(session, 'What is my name?', { sampling: { max_tokens: 8 } });
  process.kill(ranksOf(again)[1], 'SIGSTOP'); // it lives, and is silent: see the next test
  process.kill(again.process.pid, 'SIGKILL');
  process.kill(ranksOf(again)[1], 'SIGCONT');
  await ended(ranksOf(again)); // the leader's end is theirs
});

test('serve: a rank that stays silent is given up at rank_timeout', { skip }, async (t) => {
  const server = await serve(t, { args: ['--rank-timeout', '10'] });
  const client = await server.connect();
  const session = await client.open();
  const pids = ranksOf(server);
  process.kill(pids[1], 'SIGSTOP');
  await client.start(session, 'Hello');
  assert.deepEqual(await server.exited, { code: 75, signal: null });
  assert.match(server.log, /a rank has not answered for 10 s/);
  process.kill(pids[1], 'SIGCONT');
  await ended(pids);
});

// In a turn others wait for the rank at once; while nothing runs, the leader asks each rank after 5 s (engine/dist/README.md).
for (const [when, most] of [['in a turn', 2], ['while nothing runs', 2 + 5]])
  test(`serve: a rank that is stopped ${when} is given up within ${most} s where rank_timeout is 2`, { skip }, async (t) => {
    await withinOnce(1000 * most + 500, 'the stopped rank', async () => {
      const server = await serve(t, { args: ['--rank-timeout', '2'] });
      const client = await server.connect();
      const session = await client.open();
      const silent = ranksOf(server)[1];
      if (when === 'in a turn') {
        await client.start(session, 'Count.', { sampling: { max_tokens: 3000, ignore_eos: true } });
        await client.next((frame) => frame.type === 'turn.delta');
      }
      const begun = performance.now();
      process.kill(silent, 'SIGSTOP');
      assert.deepEqual(await server.exited, { code: 75, signal: null });
      const ms = performance.now() - begun;
      assert.ok(ms > 1900, `${ms} ms: before its time`);
      assert.match(server.log, /a rank has not answered for 2 s/);
      process.kill(silent, 'SIGCONT');
      await ended([silent]);
      return ms;
    });
  });

test('serve: a rank that hangs is found while nothing runs, and the instance starts again before a turn needs it', { skip }, async (t) => {
  const server = await serve(t, { args: ['--engine-process', 'on', '--engine-backoff', '0.2', '--rank-timeout', '10'] });
  const session = await Follower.open(await server.connect());
  const before = transcript(await session.say('What is 2 plus 3?', { sampling: greedy }));
  const [, silent] = ranksOf(server);
  process.kill(silent, 'SIGSTOP');
  await until('other ranks', () => ranksOf(server).length === 4);
  await until('the instance to serve', async () => (await fetch(`${server.url}/readyz`)).ok);
  assert.match(server.log, /a rank has not answered for 10 s/);
  try {
    process.kill(silent, 'SIGCONT');
  } catch { /* Open MPI's daemon has ended it with its leader */ }
  await ended([silent]);
  const again = transcript(await (await Follower.open(await server.connect())).say('What is 2 plus 3?', { sampling: greedy }));
  assert.deepEqual(again, before);
  assert.equal(session.fault, null);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

/** Sessions that draw at the same time, as transcripts: [{ text, ids, .. }] in the order of the seeds. */
const choir = async (t, { args, kill }) => {
  const server = await serve(t, { args: ['--engine-process', 'on', '--engine-backoff', '0.2', ...args] });
  const client = await server.connect();
  const sessions = await Promise.all(Array.from({ length: 8 }, () => Follower.open(client)));
  const turns = sessions.map((session, i) =>
    session.say('My name is Zora. What is my name?', { sampling: { seed: i, temperature: 1, max_tokens: 240, ignore_eos: true, logprobs: true } }));
  if (kill) {
    await until('steps of two groups under way', async () => await server.metric('parley_engine_steps_overlapped_total') > 8);
    process.kill(ranksOf(server)[1], 'SIGKILL');
  }
  const told = (await Promise.all(turns)).map(transcript);
  sessions.forEach((session) => assert.equal(session.fault, null));
  const overlapped = await server.metric('parley_engine_steps_overlapped_total');
  if (kill) await until('the instance to start again', () => ranksOf(server).length > sizesOf(args)); // its log may come later
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  return { told, overlapped };
};
const sizesOf = (args) => Number(args[1]) * Number(args[3]);

test('serve: sessions that decode in two groups, whose steps overlap: the bits of one stage, also when a rank is killed', { skip }, async (t) => {
  for (const tp of [1, 2]) {
    const one = await choir(t, { args: sizes(tp) });
    assert.equal(one.overlapped, 0);
    const two = await choir(t, { args: sizes(tp, 2) });
    assert.ok(two.overlapped > 8, `${two.overlapped} steps`);
    assert.deepEqual(two.told, one.told);
    if (tp === 1) assert.deepEqual((await choir(t, { args: sizes(tp, 2), kill: true })).told, one.told);
  }
});

const talk = ['My name is Zora.', 'What is 2 plus 3?', 'What is my name?'];

/** The same conversation with ranks that nothing disturbs. */
async function undisturbed(t) {
  const server = await serve(t);
  const session = await Follower.open(await server.connect(), { sampling: greedy });
  const told = [];
  for (const line of talk) told.push(transcript(await session.say(line)));
  await server.stop();
  return told;
}

// Whether copying a cache costs less than computing it again is measured, and a busy machine measures badly. Without a measurement
// a cache is always written and copied: so each server and instance does that once.
const greedy = { temperature: 0, max_tokens: 12, logprobs: true };
const cameBack = (said, before, source) =>
  assert.deepEqual([said.done.cache.source, said.done.cache.kept_tokens], [source, before.done.usage.log_tokens - 1]);

for (const end of ['SIGTERM', 'SIGKILL'])
test(`serve: ranks go on from a snapshot after ${end}, token for token; another division of the model does not use it`, { skip }, async (t) => {
  const want = await undisturbed(t);
  const folder = temporaryFolder(t);
  const idle = end === 'SIGKILL' ? ['--host-cache-bytes', '0', '--max-sequence-idle-microseconds', '200000'] : [];
  const options = { db: path.join(folder, 'x.db'), args: ['--snapshot-dir', path.join(folder, 'snapshots'), ...idle] };
  let server = await serve(t, options);
  let session = await Follower.open(await server.connect(), { sampling: greedy });
  const first = await session.say(talk[0]);
  if (end === 'SIGKILL') await until('the cache to be in its file', async () => {
    const state = (await session.client.ask({ type: 'session.get', session: session.session })).session;
    return state.state === 'cold' && state.snapshot;
  });
  await server.stop(end);
  server = await serve(t, options);
  session = await Follower.attach(await server.connect(), session.session, 0);
  const second = await session.say(talk[1]);
  assert.deepEqual(transcript(second), want[1]);
  cameBack(second, first, 'snapshot');
  await server.stop();
  server = await serve(t, { ...options, args: [...sizes(1, 2), ...options.args] });
  session = await Follower.attach(await server.connect(), session.session, 0);
  const other = await session.say(talk[2]);
  assert.deepEqual([other.done.cache.source, other.done.cache.refused], ['recomputed', 'layout']);
});

for (const where of ['off', 'on'])
test(`drain: an idle cache of ranks goes to an equal instance as it is, with engine_process = ${where}`, { skip }, async (t) => {
  const want = await undisturbed(t);
  const server = await serve(t, { args: ['--instances', '2', '--engine-process', where] });
  const session = await Follower.open(await server.connect(), { sampling: greedy });
  const control = async (verb, name) => {
    const result = await run(['instances', verb, name, '--db', server.db]);
    assert.equal(result.code, 0, result.stderr);
  };
  const first = await session.say(talk[0]);
  const { instances } = JSON.parse((await run(['instances', 'list', '--json', '--db', server.db])).stdout);
  const [at, next] = instances.sort((a, b) => b.sessions - a.sessions).map(({ name }) => name);
  await control('drain', at);
  const second = await session.say(talk[1]);
  await control('unload', at);
  await control('load', at);
  await control('drain', next);
  const third = await session.say(talk[2]);
  assert.deepEqual([second, third].map(transcript), want.slice(1));
  cameBack(second, first, 'host');
  cameBack(third, second, 'host');
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});
