// Every endpoint of every protocol, accepted, refused and cut off by its client, and then SIGTERM. In a build with sanitizers
// (make check-asan) LeakSanitizer looks through the server's memory at its end: what a request left there is a failure.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import test from 'node:test';
import WebSocket from 'ws';
import { absent, column, connect, requestOf, inputsOf, tensor } from './grpc.mjs';
import { Server, freePort, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

// Wrong tokens lock an address out, except for tokens this long.
const token = 'a-token-of-the-administrator-0123456789', other = 'a-token-of-somebody-else-0123456789abcd';
const model = 'demo-model';
const messages = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'What is 2 plus 3?' }];
const tool = { name: 'add', description: 'Adds.', parameters: { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] } };
const few = { max_tokens: 6, temperature: 0 };
const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
const format = { type: 'json_schema', json_schema: { name: 'n', schema } };
const anthropic = { 'anthropic-version': '2023-06-01' };
const inputs = inputsOf([[100, 101, 7]], 3);
const kserve = `/v2/models/${model}`;
const text = (name, value) => tensor(name, 'BYTES', [1, 1], [value]);

/** [address, body, headers] of POST; a body of undefined: GET. */
const requests = [
  ['/healthz'], ['/readyz'], ['/metrics'], ['/metrics/history'], ['/config'], ['/v1/usage'], ['/'], ['/props'], ['/v1/models'], [`/v1/models/${model}`], ['/v1/models', undefined, anthropic],
  ['/v1/chat/completions', { model, messages, ...few }],
  ['/v1/chat/completions', { model, messages, ...few, stream: true, stream_options: { include_usage: true } }],
  ['/v1/chat/completions', { model, messages, ...few, n: 3, logprobs: true, top_logprobs: 2, stop: ['x', '5'], logit_bias: { 5: -1 }, bad_words: ['no'] }],
  ['/v1/chat/completions', { model, messages, ...few, response_format: format }],
  ['/v1/chat/completions', { model, messages, max_tokens: 40, tools: [{ type: 'function', function: tool }], tool_choice: 'required' }],
  ['/v1/chat/completions', { model, messages, ...few, tools: [{ type: 'function', function: tool }], stream: true, store: true, metadata: { a: 'b' } }],
  ['/v1/chat/completions', { model, messages, ...few, chat_template_kwargs: { a: [1, { b: 2 }] }, structured_outputs: { choice: ['yes', 'no'] } }],
  ['/v1/chat/completions', { model, messages, ...few, guided_regex: '(a|b)+', user: 'me' }],
  ['/v1/completions', { model, prompt: 'One, two', ...few }], ['/v1/completions', { model, prompt: ['One', 'Two'], ...few, logprobs: 2, echo: true }],
  ['/v1/completions', { model, prompt: [5, 6, 7], ...few, stream: true, n: 2 }], ['/v1/completions', { model, prompt: 'One', ...few, beam_width: 4, n: 2 }],
  ['/v1/completions', { model, prompt: 'One', ...few, grammar: 'root ::= "a" | "b"' }],
  ['/v1/responses', { model, input: 'Hello', max_output_tokens: 6, temperature: 0 }],
  ['/v1/responses', { model, input: messages, max_output_tokens: 6, stream: true, instructions: 'Be brief.', metadata: { a: 'b' } }],
  ['/v1/responses', { model, input: 'Hello', max_output_tokens: 6, background: true }],
  ['/v1/responses', { model, input: 'Hello', max_output_tokens: 12, text: { format: { type: 'json_schema', name: 'n', schema } }, tools: [{ type: 'function', ...tool }] }],
  ['/v1/responses/input_tokens', { model, input: 'Hello' }], ['/v1/responses/resp_nosuch'],
  ['/v1/conversations', { items: [{ type: 'message', role: 'user', content: 'Hi' }], metadata: { a: 'b' } }], ['/v1/conversations/conv_nosuch'],
  ['/v1/embeddings', { model, input: ['one', 'two'] }], ['/v1/embeddings', { model, input: 'one', encoding_format: 'base64' }],
  ['/v1/messages', { model, messages: messages.slice(1), ...few, system: 'Be brief.' }, anthropic],
  ['/v1/messages', { model, messages: messages.slice(1), ...few, stream: true, stop_sequences: ['x'], tools: [{ name: 'add', input_schema: tool.parameters }] }, anthropic],
  ['/v1/messages/count_tokens', { model, messages: messages.slice(1) }, anthropic], ['/v1/messages/batches', {}, anthropic],
  ['/tokenize', { content: 'Hello' }], ['/detokenize', { tokens: [5, 6, 7] }], ['/apply-template', { messages, tools: [{ type: 'function', function: tool }] }],
  ['/v2'], ['/v2/health/live'], ['/v2/health/ready'], [kserve], [`${kserve}/config`], [`${kserve}/stats`], [`${kserve}/ready`], ['/v2/models/stats'], ['/v2/repository/index', {}],
  ['/v2/systemsharedmemory/status'], [`/v2/repository/models/${model}/load`, {}], ['/v2/cudasharedmemory/unregister', {}], ['/v2/systemsharedmemory/region/a/register', {}],
  [`${kserve}/infer`, { id: 'a', inputs, outputs: [{ name: 'output_ids' }] }],
  [`${kserve}/infer`, { inputs: [...inputs, column('beam_width', 'UINT32', [3])], parameters: { sequence_start: false, priority: 1 } }],
  ['/v2/models/ensemble/infer', { inputs: [text('INPUT_0', 'Hello'), tensor('INPUT_1', 'UINT32', [1, 1], [4])] }],
  ['/v2/models/preprocessing/infer', { inputs: [text('QUERY', 'Hello'), tensor('REQUEST_OUTPUT_LEN', 'UINT32', [1, 1], [4])] }],
  [`${kserve}/infer`, { inputs: [...inputs, column('session_len', 'UINT32', [100]), column('memory_len', 'UINT32', [50])], parameters: { sequence_id: 'leak', sequence_start: true, sequence_end: true } }],
  [`${kserve}/generate`, { text_input: 'One', parameters: { ...few, json_schema: schema, stop: ['x'] } }],
  [`${kserve}/generate_stream`, { text_input: 'One', parameters: { ...few, choice: ['yes', 'no'] } }],
  ['/nosuch'], ['/v1/nosuch', {}],
];
const bad = [{ temperature: 'hot' }, { model: 'nosuch' }, { stop: [5] }, { max_tokens: -1 }, { messages: 5, input: 5, prompt: {}, inputs: [5], text_input: [] }, { tools: [{}] },
  { guided_json: { $ref: '#' } }, { guided_json: schema, guided_regex: 'a' }, { response_format: { type: 'nosuch' } }, { logit_bias: { x: 1 } }, { parameters: { json_schema: { $ref: '#' } } }];

const lineOf = (server, [address, body, headers = {}], bytes) => Buffer.concat([Buffer.from(`${body === undefined ? 'GET' : 'POST'} ${address} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n`
  + `Authorization: Bearer ${token}\r\n${Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`).join('')}`
  + (body === undefined ? '\r\n' : `Content-Type: application/json\r\nContent-Length: ${bytes.length}\r\n\r\n`)), bytes]);

/** Sends the part of a request and cuts the connection after a while. */
async function cut(server, request, part, afterMs) {
  const bytes = Buffer.from(request[1] === undefined ? '' : JSON.stringify(request[1]));
  const whole = lineOf(server, request, bytes);
  const socket = net.connect(server.port, '127.0.0.1').on('error', () => {});
  await new Promise((resolve) => socket.once('connect', resolve));
  socket.write(whole.subarray(0, Math.ceil(whole.length * part)));
  await sleep(afterMs);
  socket.resetAndDestroy();
}

const ask = async (server, [address, body, headers = {}], change = (json) => json, bearer = token) => {
  const answer = await fetch(`${server.url}${address}`, { method: body === undefined ? 'GET' : 'POST', headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json', ...headers },
    body: body === undefined ? undefined : change(JSON.stringify(body)) });
  return { status: answer.status, text: await answer.text() };
};

async function http(server) {
  const accepted = new Map();
  for (const request of requests) {
    const { status, text: said } = await ask(server, request);
    assert.ok(status < 500 || /^\/v2\/(repository|systemshared|cudashared)/.test(request[0]), `${request[0]}: ${status} ${said}`);
    accepted.set(request[0], accepted.get(request[0]) || status < 300);
    if (request[1] === undefined) continue;
    for (const more of bad) await ask(server, request, () => JSON.stringify({ ...request[1], ...more }));
    for (const change of [(json) => json.slice(0, -2), () => '', () => '[]', () => 'null', (json) => json.replace('{', '{"a":"\\ud800\\u0000",')]) await ask(server, request, change);
    await ask(server, request, undefined, 'a-token-that-is-not-known');
  }
  for (const request of requests) for (const [part, ms] of [[0.5, 1], [1, 0], [1, 5], [1, 40]]) await cut(server, request, part, ms);
  for (const address of ['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages', '/v1/conversations', '/v1/embeddings', '/tokenize', '/detokenize', '/apply-template', `${kserve}/infer`, `${kserve}/generate`])
    assert.ok(accepted.get(address), `${address} was never accepted`);
}

/** What is stored: responses and conversations are gone on with, read and deleted. */
async function stored(server) {
  const call = async (method, address, body) => {
    const answer = await fetch(`${server.url}${address}`, { method, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
    const json = JSON.parse(await answer.text());
    assert.equal(answer.status, 200, `${method} ${address}: ${JSON.stringify(json)}`);
    return json;
  };
  const one = { model, max_output_tokens: 5, temperature: 0 };
  const first = await call('POST', '/v1/responses', { ...one, input: 'Hello' });
  const second = await call('POST', '/v1/responses', { ...one, input: 'And?', previous_response_id: first.id });
  const talk = await call('POST', '/v1/conversations', { items: [{ type: 'message', role: 'user', content: 'Hi' }] });
  await call('POST', '/v1/responses', { ...one, input: 'Well?', conversation: talk.id });
  for (const address of [`/v1/responses/${second.id}`, `/v1/responses/${second.id}/input_items`, `/v1/conversations/${talk.id}`, `/v1/conversations/${talk.id}/items`]) await call('GET', address);
  const refused = await ask(server, ['/v1/responses', { ...one, input: 'Whose?', previous_response_id: first.id }], undefined, other);
  assert.equal(refused.status, 400, refused.text);
  for (const address of [`/v1/responses/${second.id}`, `/v1/conversations/${talk.id}`]) await call('DELETE', address);
}

async function sockets(server) {
  const client = await server.connect({ token, malformed: true });
  const session = await client.open({ system: 'Be brief.' });
  const say = (input, sampling = {}) => client.turn(session, input, { sampling: { ...few, ...sampling } });
  await say('Hello');
  await say('Again', { n: 3, logprobs: true, stop: ['x'] });
  await say('And', { beam_width: 3 });
  await say('Choose', { choice: ['yes', 'no'] });
  for (const more of [{ sampling: { json_schema: { $ref: '#' } } }, { sampling: { stop: [1] } }, { queue: 5 }, { input: {} }, { input: { ids: ['x'] } }, { sampling: { regex: '(' } }])
    assert.equal((await client.request({ type: 'turn.start', session, input: { content: 'x' }, ...more })).type, 'error');
  for (const message of [{ type: 'session.get', session }, { type: 'session.list' }, { type: 'session.fork', session }, { type: 'session.rewind', session, turn: 0 }, { type: 'session.update', session, title: 'A title' },
    { type: 'session.attach', session, after: 0 }, { type: 'session.get', session: 'nosuch' }, { type: 'nosuch' }, { type: 'session.typing', session }, { type: 'turn.cancel', session }])
    client.send({ ...message, request_id: client.newId() });
  client.send('{"type":');
  await client.next((frame) => frame.type === 'error' && /JSON/i.test(frame.message));
  await client.close();
  for (const ms of [0, 5, 40, 100]) {
    const gone = await server.connect({ token });
    const [a, b] = [await gone.open(), await gone.open()];
    for (const each of [a, a, b]) gone.send({ type: 'turn.start', session: each, input: { content: 'Tell me a long story.' }, queue: true, request_id: gone.newId(), sampling: { n: 2, max_tokens: 60, ignore_eos: true, regex: '[a-z ]+' } });
    await sleep(ms);
    await gone.terminate();
  }
  const last = await server.connect({ token });
  for (const { id } of (await last.request({ type: 'session.list' })).sessions.slice(0, 5)) await last.request({ type: 'session.close', session: id, delete: true });
  // The socket of responses.
  for (const cutAfter of [null, 30]) {
    const socket = new WebSocket(`ws://127.0.0.1:${server.port}/v1/responses`, { headers: { authorization: `Bearer ${token}` } });
    await new Promise((resolve, reject) => { socket.once('open', resolve); socket.once('error', reject); });
    const done = new Promise((resolve) => socket.on('message', (bytes) => { if (/response\.(completed|incomplete|failed)|"error"/.test(bytes)) resolve(); }));
    socket.send(JSON.stringify({ type: 'response.create', model, input: 'Hello', max_output_tokens: 8 }));
    await (cutAfter ? sleep(cutAfter) : done);
    socket.terminate();
  }
}

async function calls(t, server) {
  const client = connect(t, server, { token });
  const request = (more, parameters = {}) => requestOf([...inputs, ...more], parameters, { model });
  await client.call('ModelInfer', request([]));
  await client.call('ModelInfer', request([column('beam_width', 'UINT32', [3])]));
  for (const method of ['ServerLive', 'ServerMetadata', 'RepositoryIndex', 'SystemSharedMemoryStatus']) await client.call(method).catch(() => {});
  for (const method of ['ModelMetadata', 'ModelConfig', 'ModelStatistics', 'ModelReady']) await client.call(method, { name: model });
  for (const refusal of [request([column('runtime_top_p', 'FP32', [5])]), { ...request([]), parameters: { priority: { string_param: 'x' } } }, requestOf(inputs, {}, { model: 'nosuch' })]) await assert.rejects(client.call('ModelInfer', refusal));
  const stream = client.stream();
  for (let i = 0; i < 3; i++) stream.send(request([]));
  await stream.end();
  for (const ms of [0, 5, 40]) {
    const gone = client.stream();
    gone.send(requestOf(inputsOf([[100, 101, 7]], 200), {}, { model }));
    await sleep(ms);
    gone.stream.cancel();
    await gone.ended;
  }
}

test('no request leaves memory behind, accepted, refused or cut off', async (t) => {
  const port = absent ? null : await freePort();
  const file = `${temporaryFolder(t)}/tokens`;
  writeFileSync(file, `admin:${token} admin\nother:${other}\n`, { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, '--engine-process', 'off', '--drain-timeout', '60', ...(port ? ['--grpc-port', String(port)] : [])] });
  server.grpc = port;
  await http(server);
  await stored(server);
  await sockets(server);
  if (port) await calls(t, server);
  await until('the turns of clients that left to end', async () => {
    const { text: page } = await ask(server, ['/metrics']);
    return /^parley_engine_turns_running(\{[^}]*\})? 0$/m.test(page) || !/parley_engine_turns_running/.test(page);
  });
  const end = await server.stop();
  assert.doesNotMatch(server.log, /Sanitizer/, server.log.slice(-8000));
  assert.deepEqual(end, { code: 0, signal: null }, server.log.slice(-4000));
});
