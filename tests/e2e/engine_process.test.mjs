// Instances in processes of their own: killed, stopped and killed again under load. Their turns go on with every token and
// text of a run without kills, and clients see a pause.
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import test from 'node:test';
import { Follower, transcript } from './follower.mjs';
import { few, Server, unlimited, until } from './harness.mjs';

const alive = (pid) => existsSync(`/proc/${pid}/stat`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
/** The engine processes that this server has started, in order. */
const processes = (server) => [...server.log.matchAll(/engine\.process instance=\S* pid=(\d+)/g)].map((match) => Number(match[1]));
const last = (server) => processes(server).at(-1);
const serve = (t, ...args) => Server.start(t, { args: [...unlimited, '--device', 'cpu', '--threads', '1', '--engine-process', 'on',
  '--engine-backoff', '0.2', ...args] });
const texts = ['My name is Zora.', 'What is my name?', 'What is 17 plus 25?'];
const say = (session, i) => session.say(texts[i % texts.length], { sampling: { temperature: 0.8, seed: '99', max_tokens: 24 } });
const plain = (turn) => [transcript(turn).text, transcript(turn).ids, turn.done.finish_reason];
const readyz = async (server) => (await fetch(`${server.url}/readyz`)).json();

let expected = null;
/** What every session is told in a server whose engine lives in its own process. */
async function alone(t, n) {
  if (expected) return expected.slice(0, n);
  const quiet = await Server.start(t, { args: [...unlimited, '--device', 'cpu', '--threads', '1', '--engine-process', 'off'] });
  const one = await Follower.open(await quiet.connect(), { memory_len: 128 });
  expected = [];
  for (let i = 0; i < few(20); i++) expected.push(plain(await say(one, i)));
  assert.deepEqual(await quiet.stop(), { code: 0, signal: null });
  return expected.slice(0, n);
}

/** Sessions that talk until stop() and one turn more; told() has what each was told. */
async function talkers(client, n) {
  const sessions = await Promise.all(Array.from({ length: n }, () => Follower.open(client, { memory_len: 128 })));
  let stopped = false;
  const all = Promise.all(sessions.map(async (session) => {
    const told = [];
    for (let i = 0; i < few(20) && !(stopped && i > 0); i++) told.push(plain(await say(session, i)));
    return told;
  }));
  const tokens = () => sessions.reduce((sum, { turns }) => sum + [...turns.values()].reduce((s, { ids }) => s + ids.length, 0), 0);
  return { sessions, tokens, told: () => { stopped = true; return all; } };
}

async function check(t, talk) {
  for (const [i, told] of (await talk.told()).entries()) assert.deepEqual(told, await alone(t, told.length), `session ${i}`);
  for (const session of talk.sessions) assert.equal(session.fault, null);
}

test('a server with an engine process answers as one without, and ends it', async (t) => {
  const server = await serve(t);
  const pid = last(server);
  assert.ok(alive(pid));
  const talk = await talkers(await server.connect(), 2);
  await until('answers', () => talk.tokens() > 40);
  await check(t, talk);
  assert.equal((await readyz(server)).instances[0].state, 'serving');
  assert.ok(await server.metric('parley_engine_generated_tokens_total') >= 40);
  // It has no descriptor of the server's but the three that it is given.
  const links = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
  assert.ok(!links.some((link) => link.includes('parley.db')), links.join());
  assert.ok(links.filter((link) => link.startsWith('socket:')).length <= 3, links.join());
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  await until('the process to end', () => !alive(pid));
});

test('kill -9 under load: the turns wait and go on, no token is lost or doubled', async (t) => {
  const server = await serve(t);
  const client = await server.connect();
  const talk = await talkers(client, 3);
  for (let k = 1; k <= 5; k++) {
    const before = talk.tokens();
    await until('tokens', () => talk.tokens() > before + 6);
    const pid = last(server);
    process.kill(pid, 'SIGKILL');
    await until('another process', () => processes(server).length > k && last(server) !== pid);
    await until('the instance to serve', async () => (await readyz(server)).ready);
  }
  await check(t, talk);
  assert.equal(processes(server).length, 6);
  assert.equal(await server.metric('parley_engine_restarts_total'), 5);
  assert.ok(client.frames.some(({ type, reason }) => type === 'session.moved' && reason === 'lost'));
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('kill -9 while nothing runs: the next turn is answered', async (t) => {
  const server = await serve(t);
  const talk = await talkers(await server.connect(), 1);
  const [told] = await talk.told();
  process.kill(last(server), 'SIGKILL');
  await until('another process', () => processes(server).length === 2);
  const again = await Follower.open(await server.connect(), { memory_len: 128 });
  assert.deepEqual(plain(await say(again, 0)), (await alone(t, 1))[0]);
  assert.deepEqual(told, await alone(t, told.length));
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('a process that hangs is killed, and its turns go on', async (t) => {
  const server = await serve(t, '--engine-timeout', '5');
  const talk = await talkers(await server.connect(), 2);
  await until('tokens', () => talk.tokens() > 10);
  const pid = last(server);
  process.kill(pid, 'SIGSTOP');
  await until('another process', () => processes(server).length === 2);
  assert.ok(!alive(pid));
  await check(t, talk);
  assert.match(server.log, /event=engine\.process_hangs/);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('two instances: the turns of a killed one go on with the other, which serves on', async (t) => {
  const server = await serve(t, '--instances', '2', '--max-sequences', '2');
  const client = await server.connect();
  const talk = await talkers(client, 4);
  await until('tokens', () => talk.tokens() > 10);
  const [victim] = processes(server);
  process.kill(victim, 'SIGKILL');
  await until('another process', () => processes(server).length === 3);
  assert.ok(alive(processes(server)[1]));
  await check(t, talk);
  await until('both to serve', async () => (await readyz(server)).instances.every(({ state }) => state === 'serving'));
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('a server that is killed takes its engine process with it', async (t) => {
  const server = await serve(t);
  const pid = last(server);
  await server.stop('SIGKILL');
  await until('the process to end', () => !alive(pid));
});
