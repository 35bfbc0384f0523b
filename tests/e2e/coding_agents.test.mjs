// What coding agents send to /v1/responses: nothing is to be stored, the whole conversation comes each
// time, and tools come in namespaces.
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { longTest, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { clientOf } from './openai_client.mjs';

const model = 'demo-model';
const said = (role, text) => ({ type: 'message', role, content: [{ type: role === 'assistant' ? 'output_text' : 'input_text', text }] });
const cached = (response) => response.usage.input_tokens_details.cached_tokens;
const block = 32; // tokens; a block of the cache is shared when it is full

function ask(openai, input, more) {
  return openai.responses.create({ model, input, store: false, seed: 5, temperature: 0.7, max_output_tokens: 40, ...more });
}

// The conversation's second request, sent as an agent does.
async function goOn(openai, more = {}) {
  const first = [said('developer', 'You are careful. '.repeat(30)), said('user', 'Tell me a long story about a dog.')];
  const answer = await ask(openai, first, more);
  const next = await ask(openai, [...first, ...answer.output, said('user', 'Go on.')], more);
  return { answer, next };
}

test('nothing is stored, and the past is not computed again', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const { answer, next } = await goOn(openai);
  assert.equal(cached(answer), 0);
  assert.ok(cached(next) >= answer.usage.input_tokens - block, `${cached(next)} of ${answer.usage.input_tokens} tokens were cached`);
  await assert.rejects(openai.responses.retrieve(next.id), (e) => e.status === 404);
  const parley = await server.connect();
  await until('an empty list', async () => (await parley.request({ type: 'session.list' })).sessions.length === 0);
  await t.test('the same tokens as from an empty cache', async () => {
    const other = await Server.start(t, { args: unlimited });
    const fresh = await ask(clientOf(other), [said('developer', 'You are careful. '.repeat(30)), said('user', 'Tell me a long story about a dog.'),
      ...answer.output, said('user', 'Go on.')]);
    assert.equal(cached(fresh), 0);
    assert.equal(fresh.output_text, next.output_text);
  });
});

longTest('a session that the client names is found by its cache as well', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server, 'none', { defaultHeaders: { 'session-id': 'one-thread' } });
  const { answer, next } = await goOn(openai);
  assert.ok(cached(next) >= answer.usage.input_tokens - block);
});

longTest('the cache of what is not stored goes when it is idle, and serves no other owner', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, 'alice:alice-token-0123456789\nbob:bob-token-0123456789ab\n');
  chmodSync(file, 0o600);
  const idle = ['--max-sequence-idle-microseconds', '1000000', '--host-cache-bytes', '0'];
  const server = await Server.start(t, { args: [...unlimited, ...idle, '--token-file', file] });
  const alice = clientOf(server, 'alice-token-0123456789');
  const bob = clientOf(server, 'bob-token-0123456789ab');
  const input = [said('user', 'A long beginning. '.repeat(30))];
  assert.equal(cached(await ask(alice, input)), 0);
  assert.equal(cached(await ask(bob, input)), 0);
  await setTimeout(3000); // three times as long as idle caches stay
  await until('a cold cache', async () => cached(await ask(alice, input)) === 0 || setTimeout(3000, false));
});

test('tools in namespaces', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const add = { type: 'function', name: 'add', parameters: { type: 'object', properties: { a: { enum: [1, 2] } }, required: ['a'] } };
  const tools = [{ type: 'namespace', name: 'sums', description: 'Arithmetic.', tools: [add] }, { type: 'web_search', external_web_access: false }];
  const input = [said('user', 'Add.')];
  const more = { tools, tool_choice: { type: 'function', name: 'add', namespace: 'sums' }, max_output_tokens: 80 };
  const whole = await ask(openai, input, more);
  const call = whole.output.find((item) => item.type === 'function_call');
  assert.deepEqual([call.name, call.namespace], ['add', 'sums']);
  assert.ok([1, 2].includes(JSON.parse(call.arguments).a));
  assert.deepEqual(whole.tools, tools);
  await t.test('streamed', async () => {
    const events = [];
    for await (const event of await ask(openai, input, { ...more, stream: true })) events.push(event);
    for (const type of ['response.output_item.added', 'response.output_item.done']) {
      const { item } = events.find((e) => e.type === type && e.item.type === 'function_call');
      assert.deepEqual([item.name, item.namespace], ['add', 'sums']);
    }
  });
  await t.test('the call comes back with its result', async () => {
    const result = { type: 'function_call_output', call_id: call.call_id, output: '3' };
    const next = await ask(openai, [...input, ...whole.output, result], { tools });
    assert.ok(next.usage.input_tokens > whole.usage.input_tokens);
    const renamed = await ask(openai, [...input, { ...call, namespace: undefined }, result], { tools });
    assert.notEqual(renamed.usage.input_tokens, next.usage.input_tokens); // the model knows it by both names
  });
  await t.test('two of a name in two namespaces', async () => {
    const other = { type: 'namespace', name: 'lists', description: 'Lists.', tools: [add] };
    const both = await ask(openai, input, { ...more, tools: [other, ...tools], tool_choice: { type: 'function', name: 'add', namespace: 'lists' } });
    assert.equal(both.output.find((item) => item.type === 'function_call').namespace, 'lists');
  });
  await t.test('what is refused', async () => {
    const bad = (tool, param, code = 'invalid_value', tool_choice = 'auto') => assert.rejects(ask(openai, input, { tools: [tool], tool_choice }), (e) => {
      assert.deepEqual([e.status, e.code, e.param], [400, code, param], e.message);
      return true;
    });
    await bad({ type: 'namespace', name: 'n', tools: [{ type: 'web_search' }] }, 'tools[0].tools[0].type', 'unsupported', 'required');
    await bad({ type: 'namespace', name: 'n', tools: [{ type: 'namespace', name: 'm', tools: [] }] }, 'tools[0].tools[0].type', 'unsupported');
    await bad({ type: 'namespace', name: 'n' }, 'tools[0].tools');
    await bad({ type: 'namespace', tools: [] }, 'tools[0].name');
    await bad({ ...add, name: 'a.b' }, 'tools[0].name');
    await bad({ type: 'web_search', external_web_access: true }, 'tools[0].type', 'unsupported', 'required');
  });
});
