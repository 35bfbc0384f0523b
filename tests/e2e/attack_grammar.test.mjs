// Grammars of one owner that take long. A worker compiles them, however short the request is, never the thread
// that serves all connections, and workers serve owners in turn. Masks are made in slices between steps, so that
// other turns go on.
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import WebSocket from 'ws';
import { Follower } from './follower.mjs';
import { Server, few, scale, temporaryFolder, unlimited, until } from './harness.mjs';

/** Seconds of processor time of the server's threads: the first one serves the network, others of its name are its workers. */
function processorTime(server) {
  const folder = `/proc/${server.process.pid}/task`;
  const name = readFileSync(`/proc/${server.process.pid}/comm`, 'utf8').trim();
  const spent = { net: 0, workers: 0 };
  for (const thread of readdirSync(folder)) {
    const stat = readFileSync(`${folder}/${thread}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const seconds = (Number(fields[11]) + Number(fields[12])) / 100;
    if (Number(thread) === server.process.pid) spent.net = seconds;
    else if (stat.includes(`(${name})`)) spent.workers += seconds;
  }
  return spent;
}

let made = 0;
const costly = () => `${'(a|a?)+'.repeat(50)}b{${scale < 1 ? 10000 : 100000}}c{${++made}}`; // another one each time
const messages = [{ role: 'user', content: 'Hello' }];

/** Short requests with a costly grammar; each gives the text of its answer, which `max_tokens` cuts. */
const ways = {
  'chat completions, regex': (server) => server.post('/v1/chat/completions', { messages, structured_outputs: { regex: costly() } }),
  'chat completions, an escaped key': (server) => server.post('/v1/chat/completions',
    JSON.stringify({ model: 'demo-model', messages, max_tokens: 4, regex: costly() }).replace('"regex"', '"\\u0072egex"')),
  'chat completions, json_schema': (server) => server.post('/v1/chat/completions',
    { messages, response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'string', pattern: `^${costly()}$` } } } }),
  completions: (server) => server.post('/v1/completions', { prompt: 'Hello', structured_outputs: { regex: costly() } }),
  responses: (server) => server.post('/v1/responses',
    { input: 'Hello', max_tokens: undefined, max_output_tokens: 16, text: { format: { type: 'json_schema', name: 'x', schema: { type: 'string', pattern: `^${costly()}$` } } } }),
  messages: (server) => server.post('/v1/messages', { messages, tool_choice: { type: 'tool', name: 'f' },
    tools: [{ name: 'f', input_schema: { type: 'object', properties: { x: { type: 'string', pattern: `^${costly()}$` } }, required: ['x'] } }] }),
  'responses over a WebSocket': (server) => new Promise((resolve, reject) => {
    const socket = new WebSocket(`${server.url.replace('http', 'ws')}/v1/responses`);
    socket.on('open', () => socket.send(JSON.stringify({ type: 'response.create', model: 'demo-model', input: 'Hello', max_output_tokens: 16,
      text: { format: { type: 'json_schema', name: 'x', schema: { type: 'string', pattern: `^${costly()}$` } } } })));
    socket.on('message', (data) => {
      resolve(String(data));
      socket.close();
    });
    socket.on('error', reject);
  }),
  'parley.v1': async (server) => {
    const client = await server.connect();
    const session = await client.open();
    const answer = await client.ask({ type: 'turn.start', session, input: { content: 'Hello' }, sampling: { regex: costly(), max_tokens: 4 } });
    return JSON.stringify(answer);
  },
};

test('the network thread compiles no grammar', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  server.post = async (target, body) => {
    const text = typeof body === 'string' ? body : JSON.stringify({ model: 'demo-model', max_tokens: 4, ...body });
    const answer = await fetch(`${server.url}${target}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: text });
    return answer.text();
  };
  await server.post('/v1/chat/completions', { messages, structured_outputs: { regex: 'a' } });
  for (const [name, ask] of Object.entries(ways)) {
    const before = processorTime(server);
    const said = [];
    for (let i = 0; i < 3; i++) said.push(await ask(server));
    const after = processorTime(server);
    const net = after.net - before.net, workers = after.workers - before.workers;
    t.diagnostic(`${name}: net thread ${net.toFixed(2)} s, workers ${workers.toFixed(2)} s, ${said[0].slice(0, 200)}`);
    assert.ok(workers > 2 * net, `${name}: net thread ${net.toFixed(2)} s, workers ${workers.toFixed(2)} s: ${said[0]}`);
  }
});

test('nor for an instance that is not the first of its model', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--instances', '2', '--max-sequences', '2'] });
  // Sessions of their own go to the instance with less to do: half of them to each.
  const sessions = [];
  for (let i = 0; i < 4; i++) {
    const session = await Follower.open(await server.connect());
    await session.start('Hello', { sampling: { ignore_eos: true, max_tokens: 2000 } });
    sessions.push(session);
  }
  const instances = async () => (await (await fetch(`${server.url}/readyz`)).json()).instances;
  await until('two turns on each instance', async () => (await instances()).every(({ turns }) => turns === 2));
  for (const session of sessions) {
    await session.client.ask({ type: 'turn.cancel', session: session.session, turn: 0 });
    await session.done(0);
  }
  const before = processorTime(server);
  for (let i = 0; i < 12; i++) { // each session stays where its cache is
    const { done, text } = await sessions[i % 4].say('Hello', { sampling: { regex: `${costly()}|[a-d]`, max_tokens: 4 } });
    assert.match(text, /^[a-d]$/, JSON.stringify(done));
  }
  const after = processorTime(server);
  const net = after.net - before.net, workers = after.workers - before.workers;
  t.diagnostic(`net thread ${net.toFixed(2)} s, workers ${workers.toFixed(2)} s`);
  assert.ok(workers > 3 * net, `net thread ${net.toFixed(2)} s, workers ${workers.toFixed(2)} s`);
});

test('nor that of a replay after a restart', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  let server = await Server.start(t, options);
  const sessions = [];
  for (let i = 0; i < 3; i++) {
    const session = await Follower.open(await server.connect());
    await session.say('Hello', { sampling: { regex: `${costly()}|[a-d]`, max_tokens: 4 } });
    sessions.push(session.session);
  }
  await server.stop();
  server = await Server.start(t, options);
  const client = await server.connect();
  const before = processorTime(server);
  for (const session of sessions) {
    const replayed = new Promise((resolve) => client.listeners.add((frame) => {
      if (frame.session === session && frame.type !== 'turn.replaying') resolve(frame);
    }));
    client.send({ type: 'turn.replay', session, turn: 0, request_id: client.newId() });
    const frame = await replayed;
    assert.equal(frame.equal, true, JSON.stringify(frame));
  }
  const after = processorTime(server);
  const net = after.net - before.net, workers = after.workers - before.workers;
  t.diagnostic(`net thread ${net.toFixed(2)} s, workers ${workers.toFixed(2)} s`);
  assert.ok(workers > net, `net thread ${net.toFixed(2)} s, workers ${workers.toFixed(2)} s`);
});

/** A server with two owners and no limits, and both tokens. */
async function serveTwo(t, ...args) {
  const tokens = { mallory: 'mallory-token-0123456789', bob: 'bob-token-0123456789' };
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''));
  chmodSync(file, 0o600);
  return { server: await Server.start(t, { args: ['--token-file', file, ...unlimited, ...args] }), tokens };
}

test('many grammars that take long do not keep another owner waiting', async (t) => {
  const { server, tokens } = await serveTwo(t);
  const end = new AbortController();
  const ask = async (token, regex) => {
    const answer = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', signal: end.signal,
      headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
      body: JSON.stringify({ model: 'demo-model', messages, max_tokens: 4, structured_outputs: { regex } }) });
    return [answer.status, await answer.text()];
  };
  let answered = 0;
  const attack = Array.from({ length: 60 }, () => ask(tokens.mallory, costly()).then(() => answered++, () => {}));
  await until("the attack's first answer", () => answered > 0);
  const before = answered;
  const [status, text] = await ask(tokens.bob, 'a{1000}'); // a small one; its answer is cut
  const beside = answered - before;
  end.abort();
  await Promise.all(attack);
  t.diagnostic(`${beside} of the attack's requests were answered before Bob's`);
  assert.equal(status, 200, text);
  assert.equal(JSON.parse(text).choices[0].finish_reason, 'length');
  // Bob's does not queue behind the 60. How many pass it depends on the machine.
  assert.ok(beside < 30, `${beside} of the attack`);
});

test('masks that take long do not keep another owner waiting', async (t) => {
  const { server, tokens } = await serveTwo(t, '--max-sequences', '8');
  const mallory = await Follower.open(await server.connect({ token: tokens.mallory })), bob = await Follower.open(await server.connect({ token: tokens.bob }));
  // Each token of the grammar's four answers needs a new mask of many slices.
  const costs = { regex: '(.*[a-m].{0,300}[n-z]){2}', n: 4, max_tokens: 200, temperature: 1, seed: '1' };
  const attack = await mallory.start('Tell me a story.', { sampling: costs });
  await until('the first tokens of the attack', () => mallory.turns.get(attack)?.ids.length > 8);
  const turn = await bob.start('Count to 9.', { sampling: { max_tokens: 3900, ignore_eos: true } });
  const counts = () => [bob.turns.get(turn)?.ids.length ?? 0, mallory.turns.get(attack).ids.length];
  // Both are counted at the same two moments, so that a pause of this process is in both.
  await until("Bob's first token", () => counts()[0] > 0);
  const before = counts();
  await until('more tokens of Bob', () => counts()[0] >= before[0] + few(100));
  const [bobs, beside] = counts().map((n, i) => n - before[i]);
  assert.ok(!mallory.turns.get(attack).done, 'the attack goes on');
  await mallory.client.ask({ type: 'turn.cancel', session: mallory.session, turn: attack });
  await bob.client.ask({ type: 'turn.cancel', session: bob.session, turn });
  t.diagnostic(`${bobs} tokens of Bob beside ${beside} of the attack`);
  // If each step waited for the masks, both would draw the same number.
  assert.ok(beside < bobs / 2, `${beside} of the attack beside ${bobs}`);
});
