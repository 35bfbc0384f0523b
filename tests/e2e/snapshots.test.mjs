// Snapshots: a computed cache survives eviction, the server's end and kill -9; a damaged file is reported and not
// used; and deleting a session deletes its snapshots.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Follower, transcript } from './follower.mjs';
import { longTest, parley, root, Server, shortTest as test, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

const greedy = { temperature: 0, max_tokens: 24, logprobs: true };
const talk = ['My name is Zora.', 'Hello!', 'What is 2 plus 3?', 'Tell me a joke.', 'Thank you.', 'What is my name?'];

const files = (folder) => readdirSync(folder).filter((name) => name.endsWith('.kv'));
const sum = async (server, name) => [...(await server.metrics())].filter(([key]) => key.startsWith(name)).reduce((n, [, value]) => n + value, 0);

/** A database, a folder for snapshots, and options with them. */
function place(t, ...args) {
  const folder = temporaryFolder(t);
  const snapshots = path.join(folder, 'snapshots');
  return { snapshots, db: path.join(folder, 'parley.db'), args: [...unlimited, '--snapshot-dir', snapshots, ...args] };
}

/** The undisturbed talk, as [turn]. */
async function undisturbed(t) {
  const server = await Server.start(t, { args: unlimited });
  const follower = await Follower.open(await server.connect(), { sampling: greedy });
  const turns = [];
  for (const line of talk) turns.push(await follower.say(line));
  await server.stop();
  return turns;
}

const stateOf = async (client, session) => (await client.ask({ type: 'session.get', session })).session;

/** Says the last line, which finds the cache as `source`. A server's first one does; then it has measured what that costs,
 * and a busy machine, which measures badly, may take it for slower than computing. */
async function sayLast(server, session, want, source) {
  const follower = await Follower.attach(await server.connect(), session, 0);
  const last = await follower.say(talk.at(-1));
  assert.deepEqual(transcript(last), transcript(want.at(-1)));
  const first = !server.hasResumed;
  server.hasResumed = true;
  assert.ok(last.done.cache.source === source || (!first && last.done.cache.source === 'recomputed'), last.done.cache.source);
  return last.done.cache;
}

for (const [end, host] of [['SIGTERM', '64MiB'], ['SIGTERM', '0'], ['SIGKILL', '0']])
longTest(`a conversation goes on from its file after ${end}, with ${host} of host memory, token for token`, async (t) => {
  const want = await undisturbed(t);
  const idle = end === 'SIGKILL' ? '200000' : '600000000';
  const options = place(t, '--host-cache-bytes', host, '--max-sequence-idle-microseconds', idle);
  let server = await Server.start(t, options);
  const follower = await Follower.open(await server.connect(), { sampling: greedy });
  let before;
  for (const line of talk.slice(0, -1)) before = await follower.say(line);
  if (end === 'SIGKILL') {
    await until('the cache to be in its file', async () => {
      const session = await stateOf(follower.client, follower.session);
      return session.state === 'cold' && session.snapshot;
    });
    // The event comes once it is on disk, session.get answers from memory.
    await until('the event of it', async () => follower.evictions.length > 0);
    assert.equal(follower.evictions.at(-1).type, 'session.evicted');
  }
  await server.stop(end);
  const [file] = files(options.snapshots);
  assert.ok(file && !file.includes(follower.session));
  assert.equal(statSync(path.join(options.snapshots, file)).mode & 0o777, 0o600);
  assert.equal(statSync(options.snapshots).mode & 0o777, 0o700);

  server = await Server.start(t, options);
  const client = await server.connect();
  const list = await client.ask({ type: 'session.list' });
  assert.deepEqual(list.sessions.map(({ state, snapshot }) => [state, snapshot]), [['cold', true]]);
  const cache = await sayLast(server, follower.session, want, 'snapshot');
  assert.equal(cache.kept_tokens, before.done.usage.log_tokens - 1);
  assert.ok(cache.resume_ms > 0);
  assert.equal(await server.metric('parley_sessions_resumes_total{source="snapshot"}'), 1);
  assert.equal(await server.metric('parley_engine_snapshots_read_total'), 1);
  assert.equal(await sum(server, 'parley_engine_snapshots_refused_total'), 0);
});

longTest('a file that has been damaged, or is of another configuration, is said, removed and not used', async (t) => {
  const want = await undisturbed(t);
  const options = place(t);
  let server = await Server.start(t, options);
  const follower = await Follower.open(await server.connect(), { sampling: greedy });
  for (const line of talk.slice(0, -1)) await follower.say(line);
  await server.stop();
  const file = path.join(options.snapshots, files(options.snapshots)[0]);
  const right = readFileSync(file);
  const cases = [
    ['damaged', (bytes) => { bytes[bytes.length - 1000] ^= 1; }],
    ['damaged', (bytes) => { bytes[1030] ^= 4; }], // the ids
    ['dtype', () => {}, ['--kv-dtype', 'bf16']],
    ['layout', () => {}, ['--block-tokens', '32']],
  ];
  for (const one of cases) {
    const [reason, damage, args = []] = one;
    const bytes = Buffer.from(right);
    damage(bytes);
    writeFileSync(file, bytes, { mode: 0o600 });
    const db = `${options.db}.${cases.indexOf(one)}`;
    copyFileSync(options.db, db);
    server = await Server.start(t, { db, args: [...options.args, ...args, '--host-cache-bytes', '0'] });
    const again = await Follower.attach(await server.connect(), follower.session, 0);
    const turn = await again.say(talk.at(-1));
    assert.equal(turn.done.cache.source, 'recomputed', reason);
    if (args.length === 0) assert.deepEqual(transcript(turn), transcript(want.at(-1)));
    assert.equal(await server.metric(`parley_engine_snapshots_refused_total{reason="${reason}"}`), 1, reason);
    assert.match(server.log, new RegExp(`event=snapshot.refused reason=${reason}`));
    if (args.length > 0) assert.match(server.log, /why="another build, or other settings or weights, wrote it"/);
    // The client that caused it is told, at once and when it looks later.
    assert.equal(turn.done.cache.refused, reason);
    const { events } = await again.client.ask({ type: 'session.events', session: follower.session });
    assert.deepEqual([events.at(-1).kind, events.at(-1).cache], ['done', turn.done.cache]);
    assert.equal((await again.say({ ids: [300] }, { sampling: { max_tokens: 1 } })).done.cache.refused, undefined);
    await server.stop('SIGKILL');
    assert.deepEqual(files(options.snapshots), [], reason);
  }
});

// The bytes of the cache have one format either way (kv_dtype), and other values.
longTest('a file that was computed in another format than the server computes in is said and not used', async (t) => {
  const probe = spawnSync(parley, ['score', '--model', path.join(root, 'configs/demo-model'), '--ids', '1', '--logits', '/dev/null', '--compute-dtype', 'bf16']);
  if (/AVX512-BF16 or AMX/.test(probe.stderr)) return t.skip('this processor has neither AVX512-BF16 nor AMX');
  for (const [was, is] of [['f32', 'bf16'], ['bf16', 'f32'], ['f32', 'auto'], ['auto', 'bf16']]) {
    const options = place(t);
    const start = (compute, ...more) => Server.start(t, { ...options, args: [...options.args, ...more, '--compute-dtype', compute] });
    let server = await start(was);
    const follower = await Follower.open(await server.connect(), { sampling: greedy });
    for (const line of talk.slice(0, -1)) await follower.say(line);
    await server.stop();
    assert.equal(files(options.snapshots).length, 1);
    server = await start(is, '--threads', '1'); // whose number changes no bit
    const alike = was === 'auto'; // which is bf16 here
    const again = await Follower.attach(await server.connect(), follower.session, 0);
    const { done, ids, logprobs } = await again.say(talk.at(-1));
    assert.deepEqual([done.cache.source, done.cache.refused], alike ? ['snapshot', undefined] : ['recomputed', 'backend'], `${was} met by ${is}`);
    // It is what a session says that has computed the same log here.
    const log = [];
    for (let turn = 0; turn < talk.length; turn++) {
      const { input_ids: input, tokens } = await again.client.ask({ type: 'turn.get', session: follower.session, turn });
      log.push(...input, ...(turn < talk.length - 1 ? tokens.map(({ id }) => id) : []));
    }
    const straight = await (await Follower.open(again.client, { sampling: greedy })).say({ ids: log });
    assert.deepEqual([ids, logprobs], [straight.ids, straight.logprobs], `${was} met by ${is}`);
    await server.stop('SIGKILL');
  }
});

test('what is closed or deleted has no file any more, whoever did it and when', async (t) => {
  const options = place(t, '--host-cache-bytes', '0', '--max-sequence-idle-microseconds', '200000');
  let server = await Server.start(t, options);
  const client = await server.connect();
  const ids = ['closed', 'deleted', 'removed', 'kept'];
  for (const id of ids) {
    const follower = await Follower.open(client, { session: id, sampling: greedy });
    await follower.say('Hello!');
  }
  await until('four files', async () => files(options.snapshots).length === 4);
  await client.ask({ type: 'session.close', session: 'closed' });
  await until('three files', async () => files(options.snapshots).length === 3);
  await client.ask({ type: 'session.close', session: 'deleted', delete: true });
  await until('two files', async () => files(options.snapshots).length === 2);
  await server.stop('SIGKILL');
  // Deleted by a tool while no server runs: the next start checks whose files these are.
  execFileSync(parley, ['sessions', 'rm', 'removed', '--db', options.db]);
  writeFileSync(path.join(options.snapshots, `${'0'.repeat(32)}.kv`), 'not a snapshot');
  writeFileSync(path.join(options.snapshots, 'README'), 'not ours');
  server = await Server.start(t, options);
  await until('one file', async () => files(options.snapshots).length === 1);
  assert.ok(readdirSync(options.snapshots).includes('README'));
  const kept = await stateOf(await server.connect(), 'kept');
  assert.equal(kept.snapshot, true);
  assert.match(server.log, /event=snapshot.removed file=0{32}\.kv/);
});

longTest('a fork of a session whose cache is in host memory, or in its file, begins with that', async (t) => {
  const want = await undisturbed(t);
  for (const [host, state, source] of [['64MiB', 'parked', 'host'], ['0', 'cold', 'snapshot']]) {
    const options = place(t, '--host-cache-bytes', host, '--max-sequence-idle-microseconds', '200000');
    let server = await Server.start(t, options);
    const follower = await Follower.open(await server.connect(), { sampling: greedy });
    let before;
    for (const line of talk.slice(0, -1)) before = await follower.say(line);
    const { client, session } = follower;
    await until(`it to be ${state}`, async () => (await stateOf(client, session)).state === state);
    await client.request({ type: 'session.fork', session, new_session: 'copy' });
    // A fork needs no copy: it shares its parent's blocks, or reads its parent's file.
    await until(`the fork to be ${state}`, async () => (await stateOf(client, 'copy')).state === state);
    await client.request({ type: 'session.fork', session: 'copy', new_session: 'copy-of-copy' });
    let n = 0;
    for (const id of ['copy', 'copy-of-copy', session]) {
      const cache = await sayLast(server, id, want, source);
      if (cache.source !== source) continue;
      n++;
      assert.ok(cache.kept_tokens >= before.done.usage.log_tokens - 1, `${cache.kept_tokens} kept`); // its own may be longer by now
      assert.ok(cache.resume_ms > 0);
    }
    assert.equal(await server.metric(`parley_sessions_resumes_total{source="${source}"}`), n);
    assert.equal(await server.metric(`parley_sessions_resume_seconds_count{source="${source}"}`), n);
    assert.ok(await server.metric(`parley_sessions_resume_seconds_sum{source="${source}"}`) > 0);
    // A fork that never had a turn finds its parent's file in the next server too, and so does a fork of that.
    for (const [from, to] of [[session, 'later'], ['later', 'later-still'], ['later-still', 'last']])
      await client.request({ type: 'session.fork', session: from, turn: before.done.turn, new_session: to });
    await server.stop();
    server = await Server.start(t, options);
    for (const id of ['last', 'later']) await sayLast(server, id, want, 'snapshot');
    // A parent that is deleted takes its file with it.
    const again = await server.connect();
    await again.request({ type: 'session.fork', session, turn: before.done.turn, new_session: 'orphan' });
    await again.request({ type: 'session.close', session, delete: true });
    await sayLast(server, 'orphan', want, 'recomputed');
    await server.stop();
  }
});

test('typing brings a cold session back from its snapshot, and computes nothing', async (t) => {
  const want = await undisturbed(t);
  for (const snapshots of [true, false]) {
    const options = place(t);
    if (!snapshots) options.args = [...unlimited];
    let server = await Server.start(t, options);
    const follower = await Follower.open(await server.connect(), { sampling: greedy });
    let before;
    for (const line of talk.slice(0, -1)) before = await follower.say(line);
    await server.stop();
    server = await Server.start(t, options);
    const client = await server.connect();
    const seen = await stateOf(client, follower.session);
    assert.deepEqual([seen.state, seen.snapshot], ['cold', snapshots]);
    client.send({ type: 'session.typing', session: follower.session });
    if (snapshots)
      await until('the cache to be there', async () => (await server.metric('parley_engine_snapshots_read_total')) === 1);
    else
      await sleep(500);
    assert.equal(await server.metric('parley_engine_prompt_tokens_total'), 0);
    assert.equal(await server.metric('parley_engine_steps_total'), 0);
    // The snapshot has all but the last token drawn, which no model has seen yet.
    const { log_tokens } = before.done.usage;
    const cache = await sayLast(server, follower.session, want, snapshots ? 'kept' : 'recomputed');
    assert.equal(cache.kept_tokens, snapshots ? log_tokens - 1 : 0);
    if (snapshots) assert.equal(cache.resume_ms, 0);
    await server.stop();
  }
});

longTest('a folder that cannot be used is an error at the start; one that fails later costs a computation', async (t) => {
  const folder = temporaryFolder(t);
  const file = path.join(folder, 'file');
  writeFileSync(file, '');
  const bad = await Server.start(t, { args: ['--snapshot-dir', file], wait: false });
  assert.notEqual((await bad.exited).code, 0);
  assert.match(bad.log, new RegExp(`snapshot_dir ${file}`));

  const options = place(t, '--host-cache-bytes', '0', '--max-sequence-idle-microseconds', '200000');
  const server = await Server.start(t, options);
  const second = await Server.start(t, { args: ['--snapshot-dir', options.snapshots], wait: false });
  assert.notEqual((await second.exited).code, 0);
  assert.match(second.log, /another server/);

  renameSync(options.snapshots, `${options.snapshots}.away`);
  mkdirSync(options.snapshots); // the server has the one it opened
  const follower = await Follower.open(await server.connect(), { sampling: greedy });
  await follower.say('My name is Zora.');
  await until('it to be cold', async () => (await stateOf(follower.client, follower.session)).state === 'cold');
  assert.deepEqual(files(options.snapshots), []);
  assert.equal(files(`${options.snapshots}.away`).length, 1);
});

longTest('a full disk costs snapshots and nothing else', async (t) => {
  // No file may become as large as one with a block in it.
  const options = place(t, '--host-cache-bytes', '0', '--max-sequence-idle-microseconds', '200000');
  const server = await Server.start(t, { ...options, wrap: ['prlimit', '--fsize=500000:unlimited'] });
  const follower = await Follower.open(await server.connect(), { sampling: greedy });
  await follower.say('My name is Zora.');
  await until('it to be given up', async () => (await server.metric('parley_engine_snapshots_given_up_total{reason="full"}')) > 0);
  await until('the log to say so', async () => /event=snapshot.given_up reason=full/.test(server.log));
  const session = await until('it to be cold', async () => {
    const now = await stateOf(follower.client, follower.session);
    return now.state === 'cold' && now;
  });
  assert.equal(session.snapshot, false);
  assert.deepEqual(readdirSync(options.snapshots), ['parley.lock']);
  const next = await follower.say('What is my name?');
  assert.equal(next.done.cache.source, 'recomputed');
  assert.match(next.text, /Zora/);
});
