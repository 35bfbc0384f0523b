// A session that a request opens for its turn does not outlive the refusal of that turn, through any protocol.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import WebSocket from 'ws';
import { absent, column, connect, inputsOf, requestOf } from './grpc.mjs';
import { Server, freePort, parley, temporaryFolder, unlimited, until } from './harness.mjs';

const long = 'word '.repeat(180000), manyIds = Array(5000).fill(7); // more than a session holds
const TOKEN = 'alice-token-of-thirty-two-characters';
const user = (content) => ({ role: 'user', content });
const model = 'demo-model';

const post = async (server, target, body, headers = {}) => {
  const answer = await fetch(`${server.url}${target}`, { method: 'POST', body: JSON.stringify(body),
    headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}`, connection: 'close', ...headers } });
  const text = await answer.text();
  return answer.status >= 400 ? text : `served: ${text}`;
};

/** The first message that answers a response over a WebSocket. */
const responsesSocket = (server, fields) => new Promise((resolve, reject) => {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/v1/responses`, { headers: { authorization: `Bearer ${TOKEN}` } });
  socket.on('error', reject);
  socket.on('open', () => socket.send(JSON.stringify({ type: 'response.create', model, max_output_tokens: 16, ...fields })));
  socket.on('message', (data) => {
    resolve(String(data));
    socket.terminate();
  });
});

const infer = (server, ids, parameters = {}) => post(server, '/v2/models/fastertransformer/infer', { parameters, inputs: [
  { name: 'input_ids', datatype: 'UINT32', shape: [1, ids.length], data: ids },
  { name: 'input_lengths', datatype: 'UINT32', shape: [1, 1], data: [ids.length] },
  { name: 'request_output_len', datatype: 'UINT32', shape: [1, 1], data: [2] },
  { name: 'session_len', datatype: 'UINT32', shape: [1, 1], data: [4000] },
] });

async function grpcInfer(server, ids, parameters) {
  const client = connect(null, server, { token: TOKEN, 'grpc.enable_retries': 0 });
  const request = requestOf(inputsOf([ids], 2, [column('session_len', 'UINT32', [4000])]), parameters);
  try {
    return await client.call('ModelInfer', request).then(() => 'served', ({ details }) => details);
  } finally {
    client.stub.close();
  }
}

/** Each gives the text of its refusal. size: of the prompt, as text or as ids. */
const protocols = {
  'chat completions': (server, { words }) => post(server, '/v1/chat/completions', { model, messages: [user(words)] }),
  'chat completions, streamed': (server, { words }) => post(server, '/v1/chat/completions', { model, stream: true, messages: [user(words)] }),
  'chat completions, n 3': (server, { words }) => post(server, '/v1/chat/completions', { model, n: 3, messages: [user(words)] }),
  'chat completions, a session by name': (server, { words }) => post(server, '/v1/chat/completions', { model, messages: [user(words)] }, { 'x-session-id': 'mine' }),
  'completions': (server, { words }) => post(server, '/v1/completions', { model, prompt: words }),
  'completions, streamed': (server, { words }) => post(server, '/v1/completions', { model, stream: true, prompt: words }),
  'completions, n 3': (server, { words }) => post(server, '/v1/completions', { model, n: 3, prompt: words }),
  'responses': (server, { words }) => post(server, '/v1/responses', { model, input: words }),
  'responses, streamed': (server, { words }) => post(server, '/v1/responses', { model, stream: true, input: words }),
  'responses, background': (server, { words }) => post(server, '/v1/responses', { model, background: true, input: words }),
  'responses, not stored': (server, { words }) => post(server, '/v1/responses', { model, store: false, input: words }),
  'responses, WebSocket': (server, { words }) => responsesSocket(server, { input: words }),
  'responses, WebSocket, not stored': (server, { words }) => responsesSocket(server, { input: words, store: false }),
  'messages': (server, { words }) => post(server, '/v1/messages', { model, max_tokens: 2, messages: [user(words)] }),
  'messages, streamed': (server, { words }) => post(server, '/v1/messages', { model, max_tokens: 2, stream: true, messages: [user(words)] }),
  'embeddings': (server, { words }) => post(server, '/v1/embeddings', { model, input: words }),
  'KServe': (server, { ids }) => infer(server, ids),
  'a KServe sequence': (server, { ids }) => infer(server, ids, { sequence_id: 7, sequence_start: true }),
  'KServe, generate': (server, { words }) => post(server, '/v2/models/demo-model/generate', { text_input: words, parameters: { max_tokens: 2 } }),
  ...(!absent && {
    'gRPC': (server, { ids }) => grpcInfer(server, ids, {}),
    'a gRPC sequence': (server, { ids }) => grpcInfer(server, ids, { sequence_id: 8, sequence_start: true }),
  }),
};

const stored = (server) => JSON.parse(execFileSync(parley, ['sessions', 'list', '--db', server.db, '--json'], { encoding: 'utf8' })).sessions;
const untilNone = (server, name, n = 0) => until(`the end of the session of ${name}`, () => stored(server).length === n);

async function start(t, limits = '') {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, `alice:${TOKEN} ${limits}\n`, { mode: 0o600 });
  const port = absent ? null : await freePort();
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, '--max-message-bytes', '2MiB', ...(port ? ['--grpc-port', String(port)] : [])] });
  server.grpc = port;
  return server;
}

test('a prompt that no session holds leaves no session', async (t) => {
  const server = await start(t);
  const watcher = await server.connect({ token: TOKEN });
  for (const [name, ask] of Object.entries(protocols)) {
    const said = await ask(server, { words: long, ids: manyIds });
    assert.match(said, /too long|too low|longer|fit/, name);
    await untilNone(server, name);
  }
  assert.deepEqual((await watcher.request({ type: 'session.list' })).sessions, []);
});

test('parley.v1: an untitled session whose first turn is refused goes with its last client; one that gets a turn stays', async (t) => {
  const server = await start(t);
  const watcher = await server.connect({ token: TOKEN });
  await watcher.request({ type: 'sessions.watch' });
  for (const leave of ['detach', 'close']) {
    const client = await server.connect({ token: TOKEN });
    const session = await client.open();
    assert.equal((await client.start(session, long)).type, 'error');
    assert.equal((await client.request({ type: 'session.get', session })).session.id, session, 'its client still has it');
    if (leave === 'close') await client.close();
    else await client.request({ type: 'session.detach', session });
    await watcher.next((f) => f.type === 'session.removed' && f.session === session);
    await untilNone(server, leave);
  }
  const client = await server.connect({ token: TOKEN });
  const [retried, titled] = [await client.open(), await client.open({ title: 'Mine' })];
  for (const session of [retried, titled]) assert.equal((await client.start(session, long)).type, 'error');
  await client.turn(retried, 'Hello', { sampling: { max_tokens: 2 } });
  await client.close();
  await server.stop();
  assert.deepEqual(stored(server).map(({ id }) => id).sort(), [retried, titled].sort());
});

test('a grammar that has no room for its shortest answer ends with length in every protocol', async (t) => {
  const server = await start(t);
  const schema = { type: 'object', properties: { a: { type: 'string', minLength: 60 } }, required: ['a'], additionalProperties: false };
  const tool = { name: 'f', description: 'd', parameters: schema };
  const json = async (target, body, headers) => JSON.parse((await post(server, target, { model, max_tokens: 4, ...body }, headers)).replace(/^served: /, ''));
  const format = { type: 'json_schema', json_schema: { name: 'it', schema } };
  for (const more of [{ response_format: format }, { tools: [{ type: 'function', function: tool }], tool_choice: 'required' }, { regex: 'a{90}' }])
    assert.equal((await json('/v1/chat/completions', { messages: [user('Hello')], ...more })).choices?.[0].finish_reason, 'length', JSON.stringify(more));
  assert.equal((await json('/v1/completions', { prompt: 'Hello', regex: 'a{90}' })).choices[0].finish_reason, 'length');
  const anthropic = { messages: [user('Hello')], tools: [{ name: 'f', input_schema: schema }], tool_choice: { type: 'any' } };
  assert.equal((await json('/v1/messages', anthropic)).stop_reason, 'max_tokens');
  const response = await json('/v1/responses', { input: 'Hello', max_tokens: undefined, max_output_tokens: 16, text: { format: { type: 'json_schema', name: 'it', schema } } });
  assert.deepEqual([response.status, response.incomplete_details.reason], ['incomplete', 'max_output_tokens']);
  assert.match((await json('/v2/models/demo-model/generate', { text_input: 'Hello', parameters: { max_tokens: 4, regex: 'a{90}' } })).text_output, /^a+$/);
});

test('a limit of the owner that is met leaves no session', async (t) => {
  const server = await start(t, 'tokens_per_minute=60');
  const client = await server.connect({ token: TOKEN });
  await client.turn(await client.open(), 'Hello', { sampling: { max_tokens: 300, ignore_eos: true } });
  for (const [name, ask] of Object.entries(protocols)) {
    const said = await ask(server, { words: 'Hello', ids: [5, 6, 7] });
    assert.match(said, /60 tokens a minute/, name);
    await untilNone(server, name, 1);
  }
});

test('a fork that is made for a turn goes with its refusal; a session that was there stays as it was', async (t) => {
  const server = await start(t);
  const client = await server.connect({ token: TOKEN });
  const messages = [user('Hello.')];
  const headers = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' };
  const first = await (await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify({ model, messages, max_tokens: 4 }) })).json();
  const session = first.id.replace(/^chatcmpl-(.*)-0$/, '$1');
  messages.push(first.choices[0].message);
  const shape = async () => (await client.request({ type: 'session.get', session })).session;
  const before = await shape();
  for (const [name, ask] of Object.entries({
    chat: (words) => post(server, '/v1/chat/completions', { model, messages: [...messages, user(words)] }),
    responses: (words) => post(server, '/v1/responses', { model, input: words, previous_response_id: `resp_${session}-0` }),
    messages: (words) => post(server, '/v1/messages', { model, max_tokens: 2, messages: [...messages, user(words)] }),
  })) {
    assert.match(await ask(long), /too long/, name);
    const { n_turns, head } = await shape();
    assert.deepEqual([n_turns, head], [before.n_turns, before.head], name);
    const { turn } = await client.start(session, 'Tell me a story.', { sampling: { max_tokens: 3900, ignore_eos: true } });
    assert.match(await ask(long), /too long/, `${name}, while a turn runs`);
    await untilNone(server, `${name}, while a turn runs`, 1);
    await client.request({ type: 'turn.cancel', session });
    await until('the end of the turn', async () => (await client.request({ type: 'session.get', session })).session.state !== 'active');
    await client.request({ type: 'session.rewind', session, turn: 0 });
    before.n_turns++;
    assert.ok(turn > 0);
  }
});

test('clients that leave at any moment leave no session without a turn', async (t) => {
  const server = await start(t);
  const bodies = (words) => [
    ['/v1/chat/completions', { model, messages: [user(words)], max_tokens: 50 }],
    ['/v1/completions', { model, prompt: words, n: 2, max_tokens: 50 }],
    ['/v1/responses', { model, input: words, max_output_tokens: 50 }],
    ['/v1/messages', { model, messages: [user(words)], max_tokens: 50 }],
  ];
  const asked = [];
  for (let i = 0; i < 40; i++) {
    for (const [target, body] of bodies(`${i} ${'word '.repeat(i % 5 * 1200)}`)) { // of which two in five do not fit
      const leaving = new AbortController();
      asked.push(fetch(`${server.url}${target}`, { method: 'POST', signal: leaving.signal, body: JSON.stringify({ ...body, stream: i % 2 === 0 }),
        headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}` } }).then((answer) => answer.text()).catch(() => {}));
      setTimeout(() => leaving.abort(), Math.random() * 50);
    }
    if (i % 4 === 3) await Promise.all(asked);
  }
  await Promise.all(asked);
  await until('the end of sessions without a turn', () => stored(server).every((session) => session.n_turns > 0));
});
