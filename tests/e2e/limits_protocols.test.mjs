// Every limit through every protocol: the refusal has the protocol's own form, HTTP says 429, or 503 where the server
// waits for something, and when to come again. What was accepted before SIGTERM ends, or ends with a clear error.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';
import WebSocket from 'ws';
import { absent, column, connect, grpc, inputsOf, requestOf } from './grpc.mjs';
import { Server, few, freePort, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

const ALICE = 'alice-token-of-thirty-two-characters', ROOT = 'root-token-of-thirty-two-characters!';
const story = { max_tokens: 3900, ignore_eos: true }; // longer than a busy machine takes for all that is asked meanwhile
const system = 'You are a helpful assistant. '.repeat(1100); // 32 KB

async function start(t, limits, args = []) {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, `alice:${ALICE} ${limits}\nroot:${ROOT} admin\n`, { mode: 0o600 });
  const port = absent ? null : await freePort();
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, ...(port ? ['--grpc-port', String(port)] : []), ...args] });
  server.grpc = port;
  server.limited = async (name) => {
    const page = await (await fetch(`${server.url}/metrics`, { headers: { Authorization: `Bearer ${ROOT}` } })).text();
    return Number(new RegExp(`^parley_limited_total\\{limit="${name}"\\} (\\d+)$`, 'm').exec(page)[1]);
  };
  return server;
}

const post = (server, target, body) => fetch(`${server.url}${target}`, { method: 'POST', body: JSON.stringify(body),
  headers: { Authorization: `Bearer ${ALICE}`, 'content-type': 'application/json', connection: 'close' } });
const chat = (server, fields) => post(server, '/v1/chat/completions', { model: 'demo-model', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2, ...fields });
const messages = (server, fields) => post(server, '/v1/messages', { model: 'demo-model', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 2, ...fields });
const responses = (server, fields) => post(server, '/v1/responses', { model: 'demo-model', input: 'Hello', max_output_tokens: 16, ...fields });
/** The first message to a response over a WebSocket, or the refusal of the connection, as post gives an answer. */
const responsesSocket = (server) => new Promise((resolve, reject) => {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/v1/responses`, { headers: { Authorization: `Bearer ${ALICE}` } });
  const answer = (status, headers, body) => {
    resolve({ status, headers: new Headers(headers), json: async () => body });
    socket.terminate();
  };
  socket.on('error', reject);
  socket.on('unexpected-response', (request, response) => {
    let text = '';
    response.on('data', (piece) => { text += piece; });
    response.on('end', () => answer(response.statusCode, response.headers, JSON.parse(text)));
  });
  socket.on('open', () => socket.send(JSON.stringify({ type: 'response.create', model: 'demo-model', input: 'Hello', max_output_tokens: 16 })));
  socket.on('message', (data) => {
    const { status, error, retry_after_ms: ms } = JSON.parse(String(data));
    answer(status, ms ? { 'retry-after-ms': ms, 'retry-after': Math.ceil(ms / 1000) } : {}, { error });
  });
});
const infer = (server, length = 2, parameters = {}, more = []) => post(server, '/v2/models/fastertransformer/infer', { parameters, inputs: [
  { name: 'input_ids', datatype: 'UINT32', shape: [1, 3], data: [5, 6, 7] },
  { name: 'input_lengths', datatype: 'UINT32', shape: [1, 1], data: [3] },
  { name: 'request_output_len', datatype: 'UINT32', shape: [1, 1], data: [length] },
  ...(parameters.sequence_id ? [{ name: 'session_len', datatype: 'UINT32', shape: [1, 1], data: [4000] }] : []), ...more,
] });

/** What each protocol's refusal looks like: { code, message, status, retry_ms }. */
const protocols = {
  'parley.v1': async (server, { client, message }) => {
    const { type, code, message: text, retry_after_ms } = await client.ask(message);
    assert.equal(type, 'error');
    return { code, message: text, retry_ms: retry_after_ms };
  },
  ...Object.fromEntries(Object.entries({
    OpenAI: (server) => chat(server), 'OpenAI, streamed': (server) => chat(server, { stream: true }),
    'OpenAI completions': (server) => post(server, '/v1/completions', { model: 'demo-model', prompt: 'Hello', max_tokens: 2 }),
    'OpenAI embeddings': (server) => post(server, '/v1/embeddings', { model: 'demo-model', input: 'Hello' }),
    'OpenAI responses': (server) => responses(server), 'OpenAI responses, streamed': (server) => responses(server, { stream: true }),
    'OpenAI responses, background': (server) => responses(server, { background: true }),
    'OpenAI responses, WebSocket': (server) => responsesSocket(server),
    'OpenAI conversations': (server) => post(server, '/v1/conversations', {}),
    "llama.cpp's /tokenize": (server) => post(server, '/tokenize', { content: 'Hello' }),
    Anthropic: (server) => messages(server), 'Anthropic, streamed': (server) => messages(server, { stream: true }),
    KServe: (server) => infer(server), 'a KServe sequence': (server) => infer(server, 2, { sequence_id: 7, sequence_start: true }),
  }).map(([name, ask]) => [name, async (server) => {
    const answer = await ask(server);
    const { error, type } = await answer.json();
    const retry_ms = answer.headers.has('retry-after-ms') ? Number(answer.headers.get('retry-after-ms')) : undefined;
    if (retry_ms !== undefined) assert.equal(Number(answer.headers.get('retry-after')), Math.ceil(retry_ms / 1000), 'both say the same');
    if (name.startsWith('Anthropic')) {
      assert.equal(type, 'error');
      return { code: error.type, message: error.message, status: answer.status, retry_ms };
    }
    const own = name.startsWith('OpenAI');
    if (name.startsWith('llama.cpp')) return { code: error.code, message: error.message, status: answer.status, retry_ms };
    if (own) assert.deepEqual(Object.keys(error).sort(), ['code', 'message', 'param', 'type']);
    return { code: own ? error.code : undefined, message: own ? error.message : error, status: answer.status, retry_ms };
  }])),
};

/** The same over gRPC, on connections of their own. A stream says it in its status, or of a later request in an answer. */
const calls = absent ? {} : Object.fromEntries(Object.entries({
  'gRPC ModelInfer': (client) => client.call('ModelInfer', requestOf(inputsOf([[5, 6, 7]], 2))),
  'a gRPC sequence': (client) => client.call('ModelInfer', requestOf(inputsOf([[5, 6, 7]], 2, [column('session_len', 'UINT32', [4000])]), { sequence_id: 8, sequence_start: true })),
  'gRPC ModelStreamInfer': async (client) => {
    const stream = client.stream();
    stream.send(requestOf(inputsOf([[5, 6, 7]], 2)));
    const [{ error_message: said }] = await stream.end();
    return said;
  },
}).map(([name, ask]) => [name, async (server) => {
  const client = connect(null, server, { token: ALICE, 'grpc.enable_retries': 0 });
  try {
    const said = await ask(client).then((answer) => (typeof answer === 'string' ? { message: answer } : { message: 'it was served' }),
      ({ code, details, metadata }) => ({ message: details, status: code, retry: metadata.get('grpc-retry-pushback-ms')[0] }));
    return { ...said, retry_ms: said.retry === undefined ? undefined : Number(said.retry), inStream: said.status === undefined };
  } finally {
    client.stub.close();
  }
}]));
const grpcStatus = { 429: grpc.status.RESOURCE_EXHAUSTED, 503: grpc.status.UNAVAILABLE };

/** The code of parley.v1 -> [status, OpenAI's code, whether retry-after is sent, Anthropic's status and type]. */
const forms = {
  rate_limited: [429, 'rate_limit_exceeded', true, 429, 'rate_limit_error'],
  limit_reached: [429, 'insufficient_quota', false, 429, 'rate_limit_error'],
  overloaded: [503, 'overloaded', true, 529, 'overloaded_error'],
};

const turn = { type: 'turn.start', input: { content: 'Hello' } };
/** meet: uses the limit up; gives the message that parley.v1 refuses, where it is not session.open. */
const limits = {
  requests_per_minute: { line: '1', code: 'rate_limited', sentence: '1 requests a minute', meet: async (server, client) => {
    for (let i = 0; i < 20; i++) client.send({ type: 'ping' });
    return { type: 'ping' };
  } },
  tokens_per_minute: { line: '60', code: 'rate_limited', sentence: '60 tokens a minute', meet: async (server, client) => {
    const session = await client.open();
    await client.turn(session, 'Hello', { sampling: { max_tokens: 100, ignore_eos: true } });
    return { ...turn, session };
  } },
  connections: { line: '1', code: 'limit_reached', sentence: '1 open connections', meet: async () => null },
  sessions: { line: '1', code: 'limit_reached', sentence: '1 stored sessions', meet: (server, client) => client.open() },
  resident_sessions: { line: '1', code: 'overloaded', sentence: '1 sessions in memory', meet: async (server, client) => {
    const deaf = await server.connect({ token: ALICE });
    deaf.socket._socket.pause();
    const full = async () => (await client.ask({ type: 'usage.get' })).usage.limits.resident_sessions.used >= 65;
    // Sessions leave memory as long as the socket's buffers take their events.
    await until('sessions that stay', async () => {
      for (let i = 0; i < 100; i++) deaf.send({ type: 'session.open', system });
      for (let i = 0; i < 10; i++) {
        await sleep(50);
        if (!await full()) return false;
      }
      return true;
    });
  } },
  stored_bytes: { line: '3KiB', code: 'limit_reached', sentence: '3KiB bytes in storage', meet: async (server, client) => {
    const session = await client.open();
    await client.turn(session, 'word '.repeat(600), { sampling: { max_tokens: 2 } });
    return { ...turn, session };
  } },
  outstanding_jobs: { line: '1', code: 'overloaded', sentence: '1 turns, replays, exports and imports under way', meet: async (server, client) => {
    const [session, other] = [await client.open(), await client.open()];
    await client.start(session, 'Tell me a story.', { sampling: { ...story, n: 8 } });
    return { ...turn, session: other };
  } },
};

/** Limits that a protocol's request does not touch: it computes nothing, or opens no session. */
const spared = {
  'OpenAI conversations': ['tokens_per_minute', 'stored_bytes', 'outstanding_jobs'],
  "llama.cpp's /tokenize": ['tokens_per_minute', 'sessions', 'resident_sessions', 'stored_bytes', 'outstanding_jobs'],
};

for (const [limit, { line, code, sentence, meet }] of Object.entries(limits))
  test(`${limit}: refused in each protocol's own form`, async (t) => {
    const server = await start(t, `${limit}=${line}`);
    const client = await server.connect({ token: ALICE });
    const met = await meet(server, client);
    const message = met?.type ? met : { type: 'session.open' };
    const before = await server.limited(limit);
    const [status, theirs, timed, status2, type] = forms[code];
    let refusals = 0;
    for (const [name, ask] of Object.entries(protocols)) {
      if (limit === 'connections' && name === 'parley.v1') continue; // limits.test.mjs
      if (spared[name]?.includes(limit)) continue;
      if (limit === 'requests_per_minute') await client.ask({ type: 'ping' }); // which takes what a minute has brought
      const seen = await ask(server, { client, message });
      refusals++;
      assert.equal(seen.message, `your limit is ${sentence}`, name);
      const anthropic = name.startsWith('Anthropic');
      const codes = { 'parley.v1': code, Anthropic: type, OpenAI: theirs, 'llama.cpp': status };
      assert.equal(seen.code, Object.entries(codes).find(([begins]) => name.startsWith(begins))?.[1], name);
      if (name !== 'parley.v1') assert.equal(seen.status, anthropic ? status2 : status, name);
      if (timed) assert.ok(seen.retry_ms > 0, `${name}: ${seen.retry_ms} ms`);
      else assert.equal(seen.retry_ms, undefined, name);
    }
    for (const [name, ask] of Object.entries(calls)) {
      if (limit === 'requests_per_minute') await client.ask({ type: 'ping' });
      const seen = await ask(server);
      refusals++;
      assert.equal(seen.message, `your limit is ${sentence}`, name);
      if (seen.inStream) assert.equal(name, 'gRPC ModelStreamInfer'); // whose answers have a sentence alone
      else assert.equal(seen.status, grpcStatus[status], name);
      if (timed && !seen.inStream) assert.ok(seen.retry_ms > 0, `${name}: ${seen.retry_ms} ms`);
      else assert.equal(seen.retry_ms, undefined, name);
    }
    assert.ok((await server.limited(limit)) >= before + refusals, 'the metric counts each');
  });

test('a shutdown: what was accepted ends as ever, what comes then is refused in its own form', async (t) => {
  const server = await start(t, '', ['--drain-timeout', '600']);
  const client = await server.connect({ token: ALICE });
  const session = await client.open();
  const n = few(1500), endless = { max_tokens: n, ignore_eos: true };
  const accepted = await client.start(session, 'Tell me a story.', { sampling: endless });
  assert.equal(accepted.type, 'turn.accepted');
  const least = [{ name: 'min_length', datatype: 'INT32', shape: [1, 1], data: [n] }];
  const [whole, tensors] = [chat(server, { ...endless, logit_bias: {} }), infer(server, n, {}, least)];
  const streamed = await chat(server, { ...endless, stream: true });
  await until('four turns', async () => (await client.ask({ type: 'usage.get' })).usage.limits.outstanding_jobs.used === 4);
  server.process.kill('SIGTERM');
  await until('the drain', () => /draining|drain/.test(server.log));
  const refused = await client.ask({ type: 'session.open' });
  assert.equal(refused.code, 'shutting_down');
  const done = await client.next((frame) => frame.type === 'turn.done');
  assert.equal(done.usage.output_tokens, n);
  const completion = await (await whole).json();
  assert.equal(completion.choices[0].finish_reason, 'length');
  const answer = await tensors;
  assert.equal(answer.status, 200);
  assert.ok((await answer.json()).outputs.find((one) => one.name === 'sequence_length').data[0] > 3);
  assert.ok((await streamed.text()).trimEnd().endsWith('[DONE]'));
  assert.deepEqual(await server.exited, { code: 0, signal: null });
});

// Log probabilities make the answers larger than what the kernel's buffers hold of them. By four seconds after the last
// turn's end the server would have ended all that it does not wait for.
test('a shutdown waits for the clients that have yet to read an answer', async (t) => {
  const server = await start(t, '', ['--drain-timeout', '600']);
  const body = JSON.stringify({ model: 'demo-model', messages: [{ role: 'user', content: 'Hello' }], max_tokens: few(1500), ignore_eos: true,
    logprobs: true, top_logprobs: 20 });
  const ask = (stream) => new Promise((resolve, reject) => {
    const text = stream ? body.replace('{', '{"stream":true,') : body;
    const socket = net.connect(server.port, '127.0.0.1').once('error', reject).once('readable', () => resolve(socket));
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nConnection: close\r\nContent-Type: application/json\r\n` +
      `Authorization: Bearer ${ALICE}\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
  });
  const late = await Promise.all([ask(false), ask(true)]); // the first bytes are here
  server.process.kill('SIGTERM');
  await until('the end of the turns', () => server.log.includes('event=server.closing'));
  await sleep(4000);
  const [whole, streamed] = await Promise.all(late.map(async (socket) => {
    let text = '';
    for await (const piece of socket) text += piece;
    return text;
  }));
  assert.equal(JSON.parse(whole.slice(whole.indexOf('\r\n\r\n'))).choices[0].finish_reason, 'length');
  assert.ok(streamed.endsWith('data: [DONE]\n\n\r\n0\r\n\r\n'), streamed.slice(-300));
  assert.deepEqual(await server.exited, { code: 0, signal: null });
});

// One owner's turns fill all places and the queue; they do not hold the end up beyond drain_timeout.
test('a shutdown that cannot wait: within drain_timeout every request has an end that says so', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  const server = await start(t, 'running_turns=2', ['--drain-timeout', '0.3', '--db', db]);
  const client = await server.connect({ token: ALICE });
  const sessions = [];
  for (let i = 0; i < 6; i++) { // two run, four wait for a place
    sessions.push(await client.open());
    assert.equal((await client.start(sessions[i], 'Tell me a story.', { sampling: story })).type, 'turn.accepted');
  }
  const requests = [chat(server, { max_tokens: 3000 }), infer(server, 3000), chat(server, { max_tokens: 3000, stream: true }),
    messages(server, { max_tokens: 3000 })];
  await until('ten turns', async () => (await client.ask({ type: 'usage.get' })).usage.limits.outstanding_jobs.used === 10);
  server.process.kill('SIGTERM');
  assert.equal(await client.closed, 1001);
  const [whole, tensors, streamed, message] = await Promise.all(requests);
  assert.deepEqual([whole.status, whole.headers.get('retry-after'), (await whole.json()).error.code], [503, '1', 'shutting_down']);
  assert.deepEqual([tensors.status, await tensors.json()], [503, { error: 'the server is shutting down' }]);
  assert.match(await streamed.text(), /shutting_down/);
  assert.deepEqual([message.status, message.headers.get('retry-after'), (await message.json()).error], [529, '1', { type: 'overloaded_error', message: 'the server is shutting down' }]);
  assert.deepEqual(await server.exited, { code: 0, signal: null });
  // Every accepted turn is on record, with what had been streamed of it.
  const again = await start(t, '', ['--db', db]);
  const reader = await again.connect({ token: ALICE });
  for (const session of sessions) {
    const { turns: [turn] } = await reader.ask({ type: 'session.get', session });
    assert.deepEqual([turn.state, turn.finish_reason], ['done', 'interrupted']);
    const streamedText = client.frames.filter((frame) => frame.type === 'turn.delta' && frame.session === session).map((frame) => frame.text).join('');
    assert.ok(turn.text.startsWith(streamedText), session);
  }
});
