// Sessions with tables of prompt learning: what `generate` gives with the same table, over turns, evictions, restarts,
// kill -9, forks and exports; and two tables whose virtual tokens have equal ids, which share nothing.
import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Follower, transcript } from './follower.mjs';
import { longTest, root, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { run } from './run.mjs';

const model = path.join(root, 'tests/fixtures/models/llama');
const tables = path.join(root, 'tests/fixtures/prompts/llama');
const FIRST = 1 << 30;
const idle = ['--max-sequence-idle-microseconds', '200000'];
const sampling = (n = 8) => ({ temperature: 0, max_tokens: n, ignore_eos: true, logprobs: true });
const inputs = [[5, 9, 301, 77, 20], [33, 4, 250, 18], [7, 7, 199]];

async function good(...args) {
  const result = await run(args);
  assert.equal(result.code, 0, `parley ${args.join(' ')}: ${result.stderr}${result.stdout}`);
  return result.stdout;
}

/** What the command answers to the ids behind a task's virtual tokens. */
async function generated(task, ids, n = 8) {
  const text = await good('generate', '--model', model, '--prompt-task', path.join(tables, task), '--ids', ids.join(','),
    '--max-tokens', String(n), '--ignore-eos', '--json');
  return JSON.parse(text);
}

const start = (t, options = {}) => Server.start(t, { model, ...options, args: [...unlimited, '--prompt-tasks', tables, ...(options.args ?? [])] });

/** The answers to the three inputs: [[ids, logprobs]], of one session that nothing disturbed. */
async function talk(client, task, more = {}) {
  const session = await Follower.open(client, { prompt_task: task, sampling: sampling(), ...more });
  const turns = [];
  for (const ids of inputs) turns.push(await session.say({ ids }));
  return { session, turns };
}
const answers = (turns) => turns.map(transcript);

test('hello lists the tasks; a session answers as `generate` does with the same table', async (t) => {
  const server = await start(t);
  const client = await server.connect();
  const [{ prompt_tasks: tasks, first_virtual_id: first }] = client.hello.models;
  assert.equal(first, FIRST);
  assert.deepEqual(tasks.map(({ task, kind, n_virtual }) => [task, kind, n_virtual]),
    [['other', 'rows', 5], ['prefix', 'prefix', 5], ['ptuning', 'rows', 5], ['soft', 'rows', 5]]);
  assert.equal(new Set(tasks.map(({ hash }) => hash)).size, 4);
  for (const { task, hash } of tasks) {
    const { session, turns: [turn] } = await talk(client, task);
    const want = await generated(task, inputs[0]);
    assert.deepEqual(turn.ids, want.ids, task);
    assert.equal(turn.done.usage.input_tokens, 10);
    const { session: view } = await client.ask({ type: 'session.get', session: session.session });
    assert.deepEqual(view.prompt, { task, hash, n_virtual: 5 });
    assert.equal(view.sink_len, 5);
  }
  const { session: plain } = await client.ask({ type: 'session.open' });
  assert.equal(plain.prompt, undefined);
});

longTest('tasks, and no task, never meet in a cache: beside each other, in equal logs, after parking', async (t) => {
  const alone = {};
  for (const task of ['soft', 'other', 'prefix', undefined]) {
    const server = await start(t);
    alone[task] = answers((await talk(await server.connect(), task)).turns);
    await server.stop();
  }
  assert.notDeepEqual(alone.soft, alone.other);
  const server = await start(t, { args: idle });
  const client = await server.connect();
  const list = ['soft', 'other', 'prefix', undefined, 'other', 'soft'];
  const open = await Promise.all(list.map((task) => Follower.open(client, { prompt_task: task, sampling: sampling() })));
  const turns = open.map(() => []);
  for (const ids of inputs) {
    await Promise.all(open.map(async (session, i) => turns[i].push(await session.say({ ids }))));
    await until('all to be parked', async () => {
      const { sessions } = await client.ask({ type: 'session.list' });
      return sessions.every(({ state }) => state === 'parked');
    });
  }
  turns.forEach((have, i) => assert.deepEqual(answers(have), alone[list[i]], `${list[i]}`));
  assert.ok(turns.every((have) => have[2].done.cache.source === 'host'));
});

test('rows amid the text; bad tasks and ids are refused by name', async (t) => {
  const server = await start(t);
  const client = await server.connect();
  const session = await Follower.open(client, { prompt_task: 'ptuning', sampling: sampling() });
  const amid = await session.say({ ids: [5, FIRST + 2, FIRST, 9, FIRST + 1, 30] });
  assert.equal(amid.done.usage.input_tokens, 6);
  assert.equal((await session.say({ ids: [8, FIRST + 4, 11] })).done.finish_reason, 'length'); // in a later turn too
  const refused = async (message, code, says) => {
    const error = await client.ask(message);
    assert.equal(error.code, code, error.message);
    assert.match(error.message, says);
  };
  await refused({ type: 'turn.start', session: session.session, input: { ids: [FIRST + 5] } }, 'invalid', /1073741829/);
  await refused({ type: 'session.open', prompt_task: 'nobody' }, 'invalid', /no prompt task 'nobody'; this server has 'other', 'prefix'/);
  await refused({ type: 'session.open', prompt_task: 'soft', session_len: 6 }, 'invalid', /session_len 6 has no room behind 5/);
  const plain = await Follower.open(client, {});
  await refused({ type: 'turn.start', session: plain.session, input: { ids: [FIRST] } }, 'invalid', /1073741824/);
  const prefix = await Follower.open(client, { prompt_task: 'prefix', sampling: sampling() });
  await refused({ type: 'turn.start', session: prefix.session, input: { ids: [3, FIRST + 1] } }, 'invalid', /prefix|position/);
  await prefix.say({ ids: [3, 4] });
});

longTest('wrapped windows, forks, edits and asking again: as a session of its own', async (t) => {
  const server = await start(t);
  const client = await server.connect();
  for (const task of ['soft', 'prefix']) {
    const window = { memory_len: 16, session_len: 200 };
    const { session, turns } = await talk(client, task, window);
    const again = await session.done(await session.regenerate(0));
    assert.deepEqual(transcript(again), answers(turns)[0]);
    const fork = await Follower.fork(client, session.session, 1);
    assert.deepEqual(transcript(await fork.say({ ids: inputs[2] }, { sampling: sampling() })), answers(turns)[2]);
    assert.deepEqual((await client.ask({ type: 'session.get', session: fork.session })).session.prompt.task, task);
    const edit = await session.say({ ids: [9, 9, 9] }, { after: null, sampling: sampling() });
    const fresh = await Follower.open(client, { prompt_task: task, ...window });
    assert.deepEqual(transcript(edit), transcript(await fresh.say({ ids: [9, 9, 9] }, { sampling: sampling() })));
    const replayed = client.next((frame) => frame.type === 'turn.replayed');
    await client.ask({ type: 'turn.replay', session: session.session, turn: 2 });
    assert.equal((await replayed).equal, true, JSON.stringify(await replayed));
  }
});

for (const signal of ['SIGTERM', 'SIGKILL'])
longTest(`after ${signal}: snapshots, recomputing, replay, export and import give the same bits`, async (t) => {
  const folder = temporaryFolder(t);
  const db = path.join(folder, 'parley.db');
  const want = {};
  const tasks = ['soft', 'other', 'prefix'];
  let server = await start(t);
  for (const task of tasks) want[task] = answers((await talk(await server.connect(), task)).turns);
  await server.stop();
  const args = ['--snapshot-dir', path.join(folder, 'snapshots'), ...(signal === 'SIGKILL' ? ['--host-cache-bytes', '0', ...idle] : [])];
  server = await start(t, { db, args });
  let client = await server.connect();
  const sessions = {};
  for (const task of tasks) {
    const session = await Follower.open(client, { prompt_task: task, sampling: sampling() });
    for (const ids of inputs.slice(0, 2)) await session.say({ ids });
    sessions[task] = session.session;
  }
  if (signal === 'SIGKILL')
    await until('snapshots', async () => (await client.ask({ type: 'session.list' })).sessions.every(({ snapshot, state }) => snapshot && state === 'cold'));
  await server.stop(signal);
  for (const task of tasks) {
    const result = await run(['replay', sessions[task], '--db', db, '--model', model, '--prompt-tasks', tables]);
    assert.equal(result.code, 0, result.stderr + result.stdout);
  }
  server = await start(t, { db, args });
  client = await server.connect();
  for (const task of tasks) {
    const session = await Follower.attach(client, sessions[task], 0);
    const turn = await session.say({ ids: inputs[2] });
    assert.deepEqual(transcript(turn), want[task][2], task);
    assert.ok(['snapshot', 'recomputed'].includes(turn.done.cache.source), turn.done.cache.source);
  }
  await server.stop();

  const file = path.join(folder, 'session.json'), other = path.join(folder, 'other.db');
  writeFileSync(file, await good('sessions', 'export', sessions.soft, '--db', db));
  await good('sessions', 'import', file, '--keep-owner', '--db', other);
  assert.match(await good('sessions', 'show', sessions.soft, '--db', other), /prompt task: soft, 5 virtual tokens, table [0-9a-f]{32}/);
  assert.equal(await good('sessions', 'export', sessions.soft, '--db', other), await good('sessions', 'export', sessions.soft, '--db', db));
  await good('replay', sessions.soft, '--db', other, '--model', model, '--prompt-tasks', tables);
  await good('sessions', 'doctor', '--db', other);
});

longTest('a changed or missing table: the next turn and a replay are refused, and nothing is lost', async (t) => {
  const folder = temporaryFolder(t);
  const db = path.join(folder, 'parley.db'), served = path.join(folder, 'tables');
  mkdirSync(served);
  cpSync(path.join(tables, 'soft'), path.join(served, 'soft'), { recursive: true });
  const begin = (...more) => Server.start(t, { model, db, args: [...unlimited, '--snapshot-dir', path.join(folder, 'snapshots'), ...more] });
  const tasks = ['--prompt-tasks', served];
  let server = await begin(...tasks);
  const session = await Follower.open(await server.connect(), { session: 'one', prompt_task: 'soft', sampling: sampling() });
  for (const ids of inputs.slice(0, 2)) await session.say({ ids });
  await server.stop();
  rmSync(path.join(served, 'soft'), { recursive: true });
  cpSync(path.join(tables, 'other'), path.join(served, 'soft'), { recursive: true });

  const meets = async (says, ...more) => {
    server = await begin(...more);
    const client = await server.connect();
    const error = await client.ask({ type: 'turn.start', session: 'one', input: { ids: [4] } });
    assert.equal(error.code, 'unsupported');
    assert.match(error.message, says);
    assert.equal((await client.ask({ type: 'turn.replay', session: 'one', turn: 0 })).code, 'unsupported');
    assert.equal((await client.ask({ type: 'session.get', session: 'one' })).session.n_turns, 2);
    await server.stop();
    const replay = await run(['replay', 'one', '--db', db, '--model', model, ...more]);
    assert.equal(replay.code, 1);
    assert.match(replay.stderr, says);
  };
  await meets(/another table of the prompt task 'soft' \([0-9a-f]{12}\) than is served now/, ...tasks);
  await meets(/prompt task 'soft', which is not served/);
  // The table is known by its content: another name serves it as well.
  renameSync(path.join(served, 'soft'), path.join(served, 'new'));
  cpSync(path.join(tables, 'soft'), path.join(served, 'old'), { recursive: true });
  server = await begin(...tasks);
  const back = await Follower.attach(await server.connect(), 'one', 0);
  const turn = await back.say({ ids: inputs[2] });
  await server.stop();
  server = await start(t);
  assert.deepEqual(transcript(turn), answers((await talk(await server.connect(), 'soft')).turns)[2]);
});

longTest('a server does not start with a table that is damaged, missing or named twice', async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(path.join(folder, 'empty'));
  const fails = async (list, says) => {
    const result = await run(['serve', '--model', model, '--port', '0', '--db', path.join(folder, 'x.db'), '--prompt-tasks', list]);
    assert.equal(result.code, 1);
    assert.match(result.stderr, says);
    assert.ok(!existsSync(path.join(folder, 'x.db')));
  };
  await fails(path.join(folder, 'empty'), /empty nor a folder in it has an adapter_config.json/);
  await fails(`a=${folder}/none`, /prompt task 'a': .*adapter_config.json/);
  await fails(`a=${tables}/soft,a=${tables}/other`, /the task 'a' is given twice/);
  await fails(`a;b=${tables}/soft`, /a;b/);
  await fails(`a=${path.join(root, 'tests/fixtures/prompts/bloom/prefix')}`, /prompt_embeddings/);
});
