// Instances in processes of their own: killed, stopped and killed again under load. Their turns go on with every token and
// text of a run without kills, and clients see a pause.
import assert from 'node:assert/strict';
import { readdirSync, readlinkSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { root, Server, sleep, unlimited, until } from './harness.mjs';
import { engineProcesses, isAlive, livingEngines } from './processes.mjs';
import { run } from './run.mjs';
import { plain, say } from './talk.mjs';

const demo = path.join(root, 'configs/demo-model');
const probe = await run(['generate', '--model', demo, '--device', 'cpu', '--ids', '5', '--max-tokens', '1', '--tensor-parallel', '2']);
const noRanks = /built without MPI/.test(probe.stderr) && 'this parley was built without MPI';
const last = (server) => engineProcesses(server).at(-1);
/** Several instances or ranks have processes of their own by default. */
const byDefault = (args) => ['--instances', '--tensor-parallel'].some((option) => args.includes(option));
const serve = (t, ...args) => Server.start(t, { args: [...unlimited, '--device', 'cpu', '--threads', '1', '--engine-backoff', '0.2',
  ...(byDefault(args) ? [] : ['--engine-process', 'on']), ...args] });
const readyz = async (server) => (await fetch(`${server.url}/readyz`)).json();

let expected = null;
/** The events of all sessions, on a server whose engine is a process of its own. */
async function alone(t) {
  if (expected) return expected;
  const quiet = await Server.start(t, { args: [...unlimited, '--device', 'cpu', '--threads', '1', '--engine-process', 'off'] });
  expected = await conversation(await Follower.open(await quiet.connect(), { memory_len: 128 }));
  assert.deepEqual(await quiet.stop(), { code: 0, signal: null });
  return expected;
}

async function conversation(session) {
  const told = [];
  for (let i = 0; i < 6; i++) told.push(plain(await say(session, i)));
  assert.equal(session.fault, null);
  return told;
}

/** n clients that have one conversation after another until told(), which gives all of them. */
async function talkers(client, n) {
  const now = [], conversations = [];
  let stopped = false;
  const all = Promise.all(Array.from({ length: n }, async (_, i) => {
    do {
      now[i] = await Follower.open(client, { memory_len: 128 });
      conversations.push(await conversation(now[i]));
    } while (!stopped);
  }));
  all.catch(() => {}); // told() tells
  const count = (session) => (session ? [...session.turns.values()].reduce((sum, { ids }) => sum + ids.length, 0) : 0);
  // A turn that has drawn no token between two deaths is taken for their cause (displaced.c): each draws some.
  const progress = async () => {
    const before = [...now], counts = before.map(count);
    await until('tokens of each session', () => Array.from({ length: n }, (_, i) => i)
      .every((i) => (now[i] === before[i] ? count(now[i]) > counts[i] + 2 : count(now[i]) > 2)));
  };
  return { progress, told: async () => { stopped = true; await all; return conversations; } };
}

async function check(t, talk) {
  for (const told of await talk.told()) assert.deepEqual(told, await alone(t));
}

test('a server with an engine process answers as one without, and ends it', async (t) => {
  const server = await serve(t);
  const pid = last(server);
  assert.ok(isAlive(pid));
  const talk = await talkers(await server.connect(), 2);
  await talk.progress();
  await check(t, talk);
  assert.equal((await readyz(server)).instances[0].state, 'serving');
  assert.ok(await server.metric('parley_engine_generated_tokens_total') >= 20);
  // It has no descriptor of the server's but the three that it is given.
  const links = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  assert.ok(!links.some((link) => link.includes('parley.db')), links.join());
  assert.ok(links.filter((link) => link.startsWith('socket:')).length <= 3, links.join());
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  await until('the process to end', () => !isAlive(pid));
});

test('kill -9 under load: the turns wait and go on, no token is lost or doubled', async (t) => {
  const server = await serve(t);
  const client = await server.connect();
  const talk = await talkers(client, 3);
  const moved = () => client.frames.some(({ type, reason }) => type === 'session.moved' && reason === 'lost');
  let kills = 0;
  while (kills < 5 || (kills < 15 && !moved())) { // a kill may come between two turns
    await talk.progress();
    const pid = last(server);
    process.kill(pid, 'SIGKILL');
    kills++;
    await until('another process', () => engineProcesses(server).length > kills && last(server) !== pid);
    await until('the instance to serve', async () => (await readyz(server)).ready);
  }
  await check(t, talk);
  assert.ok(moved());
  assert.equal(engineProcesses(server).length, kills + 1);
  assert.equal(await server.metric('parley_engine_restarts_total'), kills);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

// What a client of each HTTP protocol asks, streamed where the protocol streams, and the text in one message of the answer.
const messages = [{ role: 'user', content: 'What is 17 plus 25?' }];
const asked = { model: 'demo-model', max_tokens: 24, temperature: 0, stream: true };
const protocols = [
  ['/v1/chat/completions', { ...asked, messages }, (m) => m.choices?.[0]?.delta?.content],
  ['/v1/completions', { ...asked, prompt: 'One, two, three' }, (m) => m.choices?.[0]?.text],
  ['/v1/responses', { model: 'demo-model', max_output_tokens: 24, temperature: 0, stream: true, input: 'What is 17 plus 25?' },
    (m) => m.type === 'response.output_text.delta' && m.delta],
  ['/v1/messages', { ...asked, messages }, (m) => m.delta?.text],
  ['/v2/models/demo-model/generate', { text_input: 'One, two, three', max_tokens: 24, temperature: 0 }, (m) => m.text_output],
];

async function answerOf(server, [address, body, textIn]) {
  const response = await fetch(`${server.url}${address}`, { method: 'POST', body: JSON.stringify(body),
    headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' } });
  const text = await response.text();
  assert.equal(response.status, 200, `${address}: ${text}`);
  assert.doesNotMatch(text, /"error":\{|event: error/, address);
  const all = body.stream ? text.split('\n').filter((line) => /^data: \{/.test(line)).map((line) => line.slice(6)) : [text];
  return all.map((line) => textIn(JSON.parse(line)) || '').join('');
}

test('kill -9 under every protocol: an answer comes whole, once and without an error', async (t) => {
  const server = await serve(t);
  const quiet = await Promise.all(protocols.map((protocol) => answerOf(server, protocol)));
  for (const [i, text] of quiet.entries()) assert.ok(text.length > 4, protocols[i][0]);
  const n_answers = protocols.map(() => 0);
  let stopped = false;
  const all = Promise.all(protocols.map(async (protocol, i) => {
    while (!stopped) {
      assert.equal(await answerOf(server, protocol), quiet[i], protocol[0]);
      n_answers[i]++;
    }
  }));
  const failed = all.then(() => null, (error) => { stopped = true; return error; });
  const moved = () => server.metric('parley_sessions_moved_turns_total{reason="lost"}');
  for (let k = 1; (k <= 3 || !(await moved())) && !stopped; k++) { // a kill may come between two answers
    const before = [...n_answers];
    await until('an answer of each protocol', () => stopped || n_answers.every((n, i) => n > before[i]));
    process.kill(last(server), 'SIGKILL');
    await until('another process', () => engineProcesses(server).length > k);
  }
  stopped = true;
  assert.equal(await failed, null);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('kill -9 while nothing runs: the next turn is answered', async (t) => {
  const server = await serve(t);
  const talk = await talkers(await server.connect(), 1);
  await check(t, talk);
  process.kill(last(server), 'SIGKILL');
  await until('another process', () => engineProcesses(server).length === 2);
  const again = await Follower.open(await server.connect(), { memory_len: 128 });
  assert.deepEqual(await conversation(again), await alone(t));
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('a process that hangs is killed, and its turns go on', async (t) => {
  const server = await serve(t, '--engine-timeout', '20');
  const talk = await talkers(await server.connect(), 2);
  await talk.progress();
  const pid = last(server);
  process.kill(pid, 'SIGSTOP');
  await until('another process', () => engineProcesses(server).length > 1);
  assert.ok(!isAlive(pid));
  await check(t, talk);
  assert.match(server.log, /event=engine\.process_hangs/);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('a process that hangs while it loads its model is killed, and another one loads it', async (t) => {
  const server = await serve(t, '--engine-timeout', '1');
  const client = await server.connect();
  const silent = /event=engine\.reopen .*said nothing for 1\d/;
  let killed;
  for (let stopped = null; !silent.test(server.log); await sleep(stopped ? 100 : 0)) { // one that serves already is killed sooner
    if (stopped && !isAlive(stopped)) stopped = null;
    if (last(server) !== killed && !stopped) process.kill(killed = last(server), 'SIGKILL');
    const [next] = livingEngines(server).filter((pid) => !engineProcesses(server).includes(pid));
    if (next && !stopped) process.kill(stopped = next, 'SIGSTOP');
  }
  await client.turn(await client.open(), 'Hello', { sampling: { max_tokens: 4 } });
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('two instances: the turns of a killed one go on with the other, which serves on', async (t) => {
  const server = await serve(t, '--instances', '2', '--max-sequences', '2');
  const client = await server.connect();
  const talk = await talkers(client, 4);
  await talk.progress();
  const [victim] = engineProcesses(server);
  process.kill(victim, 'SIGKILL');
  await until('another process', () => engineProcesses(server).length === 3);
  assert.ok(isAlive(engineProcesses(server)[1]));
  await check(t, talk);
  await until('both to serve', async () => (await readyz(server)).instances.every(({ state }) => state === 'serving'));
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('ranks in an engine process: a killed rank and a killed leader are started again together', { skip: noRanks }, async (t) => {
  const server = await serve(t, '--tensor-parallel', '2');
  const client = await server.connect();
  const talk = await talkers(client, 2);
  for (const rank of [1, 0]) {
    const n = engineProcesses(server).length;
    await talk.progress();
    const victim = Number([...server.log.matchAll(new RegExp(`engine\\.rank rank=${rank} pid=(\\d+)`, 'g'))].at(-1)[1]);
    process.kill(victim, 'SIGKILL');
    await until('another process', () => engineProcesses(server).length > n);
    await until('the instance to serve', async () => (await readyz(server)).ready);
  }
  const told = await talk.told();
  for (const other of told) assert.deepEqual(other, told[0]);
  const pids = [...server.log.matchAll(/engine\.rank rank=\d+ pid=(\d+)/g)].map((match) => Number(match[1]));
  assert.equal(pids.length, 6);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  await until('all ranks to end', () => !pids.some(isAlive));
});

test('a server that is killed takes its engine process with it', async (t) => {
  const server = await serve(t);
  const pid = last(server);
  await server.stop('SIGKILL');
  await until('the process to end', () => !isAlive(pid));
});
