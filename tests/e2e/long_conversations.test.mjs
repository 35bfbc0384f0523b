// Requests of clients that send a long history: longer than a WebSocket message, bounded by max_conversation_bytes, and
// by what an owner's and all of them may take in memory. Each refusal has its protocol's form.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { test } from 'node:test';
import { afterwards, Server, temporaryFolder, unlimited, until } from './harness.mjs';

const MIB = 1 << 20, model = 'demo-model';
const messages = [{ role: 'user', content: 'Hello.' }];
/** Every address that takes a conversation, with a small request to it. */
const requests = {
  '/v1/chat/completions': { model, messages, max_tokens: 4 },
  '/v1/responses': { model, input: 'Hello.', max_output_tokens: 4 },
  '/v1/responses/input_tokens': { model, input: 'Hello.' },
  '/v1/completions': { model, prompt: 'Hello.', max_tokens: 4 },
  '/v1/messages': { model, messages, max_tokens: 4 },
  '/v1/messages/count_tokens': { model, messages },
  '/apply-template': { messages },
};
/** The same request in a body of so many bytes: an unknown member is ignored everywhere. */
const padded = (body, bytes) => {
  const text = JSON.stringify({ ...body, unknown: '' });
  return text.replace(/""}$/, `"${'x'.repeat(bytes - text.length)}"}`);
};
const post = (server, at, body) => fetch(server.url + at, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
/** Sends a head that declares so many bytes, and none of them. */
function declare(t, server, at, bytes, headers = {}) {
  const request = http.request(`${server.url}${at}`, { method: 'POST', headers: { ...headers, 'content-type': 'application/json', 'content-length': bytes } });
  afterwards(t, async () => request.destroy());
  request.on('error', () => {});
  request.flushHeaders();
  const reply = new Promise((resolve) => request.once('response', async (response) => {
    let text = '';
    for await (const piece of response) text += piece;
    resolve({ status: response.statusCode, headers: response.headers, ...JSON.parse(text) });
  }));
  return { request, reply };
}

test('a conversation may be longer than a message, and its limit is refused in each protocol\'s form', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--max-conversation-bytes', '3MiB'] });
  for (const [at, body] of Object.entries(requests)) {
    const answer = await post(server, at, padded(body, 3 * MIB));
    assert.equal(answer.status, 200, `${at}: ${await answer.clone().text()}`);
    const { status, error, type } = await declare(t, server, at, 3 * MIB + 1).reply;
    assert.equal(status, 413, at);
    assert.match(error.message, /too long: more than 3145728 bytes/, at);
    if (at.startsWith('/v1/messages')) assert.deepEqual([type, error.type], ['error', 'request_too_large']);
    else if (at.startsWith('/v1')) assert.deepEqual([error.type, error.param, error.code], ['invalid_request_error', null, 'too_large']);
  }
  // A history with more tokens than a session has is not too long a body; the error names the tokens.
  const told = { model, messages: [{ role: 'user', content: 'word '.repeat(500000) }] };
  const chat = await post(server, '/v1/chat/completions', JSON.stringify(told));
  assert.deepEqual([chat.status, (await chat.json()).error.code], [400, 'context_length_exceeded']);
  const anthropic = await post(server, '/v1/messages', JSON.stringify({ ...told, max_tokens: 4 }));
  assert.deepEqual([anthropic.status, (await anthropic.json()).error.message.slice(0, 18)], [400, 'prompt is too long']);
  assert.equal(await server.metric('parley_long_request_bytes'), 0);
  // Others stay as short as messages.
  assert.equal((await declare(t, server, '/v2/models/demo-model/generate', 2 * MIB).reply).status, 413);
});

test('without the setting the limit follows from session_len', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--max-message-bytes', '1KiB'] });
  const { default_generation_settings: { n_ctx } } = await (await fetch(`${server.url}/props`)).json();
  assert.ok(n_ctx > 64);
  const [at, body] = Object.entries(requests)[0];
  assert.equal((await post(server, at, padded(body, 16 * n_ctx))).status, 200);
  assert.equal((await declare(t, server, at, 16 * n_ctx + 1).reply).status, 413);
});

test('what an owner\'s long conversations and all of them may take', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const names = ['a', 'b', 'c', 'd', 'e'], token = Object.fromEntries(names.map((name) => [name, `${name}-${'x'.repeat(40)}`]));
  writeFileSync(file, names.map((name) => `${name}:${token[name]}${name === 'e' ? ' admin' : ''}\n`).join(''), { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, '--max-conversation-bytes', '30MiB'] });
  const as = (name) => ({ authorization: `Bearer ${token[name]}` });
  const held = async () => Number(/^parley_long_request_bytes (\S+)$/m.exec(await (await fetch(`${server.url}/metrics`, { headers: as('e') })).text())[1]);
  assert.equal((await declare(t, server, '/v1/messages', 20 * MIB).reply).status, 401);
  assert.equal(await held(), 0);
  const all = ['a', 'b', 'c', 'd'].map((name) => declare(t, server, '/v1/chat/completions', 30 * MIB, as(name)));
  await until('they are counted', async () => (await held()) === 120 * MIB);
  const second = await declare(t, server, '/v1/chat/completions', 3 * MIB, as('a')).reply;
  assert.deepEqual([second.status, second.error.code], [503, 'overloaded']);
  assert.match(second.error.message, /your long requests/);
  assert.ok(Number(second.headers['retry-after']) >= 1);
  const messagesToo = await declare(t, server, '/v1/messages', 3 * MIB, as('a')).reply;
  assert.deepEqual([messagesToo.status, messagesToo.error.type], [529, 'overloaded_error']);
  assert.ok(Number(messagesToo.headers['retry-after']) >= 1);
  const last = await declare(t, server, '/v1/responses', 9 * MIB, as('e')).reply; // the server's own bound: 128 MiB
  assert.deepEqual([last.status, /^long requests/.test(last.error.message)], [503, true]);
  // A short one is not concerned.
  const small = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: as('a'), body: JSON.stringify(requests['/v1/chat/completions']) });
  assert.equal(small.status, 200);
  for (const { request } of all) request.destroy();
  await until('nothing is counted any more', async () => (await held()) === 0);
});
