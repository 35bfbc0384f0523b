// tool_choice allowed_tools, through OpenAI's own client: the model sees every tool, so that the conversation's cache
// stays valid, and the answer may call the allowed ones.
import OpenAI from 'openai';
import assert from 'node:assert/strict';
import test from 'node:test';
import { Server, few, unlimited } from './harness.mjs';

const model = 'demo-model';
const messages = [{ role: 'system', content: 'You are brief. '.repeat(10) }, { role: 'user', content: 'What is 1 plus 1?' }];
const parameters = { type: 'object', properties: { a: { enum: [1, 2] } }, required: ['a'], additionalProperties: false };
const names = ['add', 'now', 'sub'];
const tools = names.map((name) => ({ type: 'function', function: { name, parameters } }));
const flat = names.map((name) => ({ type: 'function', name, parameters }));
const allow = (mode, ...list) => ({ type: 'allowed_tools', allowed_tools: { mode, tools: list.map((name) => ({ type: 'function', function: { name } })) } });
const allowFlat = (mode, ...list) => ({ type: 'allowed_tools', mode, tools: list.map((name) => ({ type: 'function', name })) });
const says = (name) => `<tool_call>{"name": "${name}", "arguments": {"a": 1}}</tool_call>`;
const start = async (t) => new OpenAI({ baseURL: `${(await Server.start(t, { args: unlimited })).url}/v1`, apiKey: 'none', maxRetries: 0 });

test('chat completions: allowed_tools', async (t) => {
  const openai = await start(t);
  const create = (more) => openai.chat.completions.create({ model, messages, tools, temperature: 1, max_tokens: 100, ...more });
  const called = ({ choices: [{ message }] }) => (message.tool_calls ?? []).map((call) => call.function.name);
  const first = await create({});
  for (let seed = 0; seed < few(6); seed++) {
    const answer = await create({ seed, tool_choice: allow('required', 'now', 'sub') });
    assert.equal(called(answer).length, 1);
    assert.ok(['now', 'sub'].includes(called(answer)[0]), JSON.stringify(answer.choices[0].message));
    // The prompt is the same as without the choice, and cached, but for the end of its last block.
    assert.equal(answer.usage.prompt_tokens, first.usage.prompt_tokens);
    assert.ok(answer.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 32, JSON.stringify(answer.usage));
  }
  assert.deepEqual(called(await create({ tool_choice: allow('required', 'add') })), ['add']);
  // auto: a call of another tool is text, whole and in pieces.
  assert.deepEqual(called(await create({ tool_choice: allow('auto', 'now'), choice: [says('now')] })), ['now']);
  const refused = await create({ tool_choice: allow('auto', 'now'), choice: [says('add')] });
  assert.deepEqual([refused.choices[0].message.content, refused.choices[0].finish_reason], [says('add'), 'stop']);
  let text = '';
  for await (const chunk of await create({ tool_choice: allow('auto', 'now'), choice: [says('add')], stream: true })) {
    assert.equal(chunk.choices[0]?.delta.tool_calls, undefined);
    text += chunk.choices[0]?.delta.content ?? '';
  }
  assert.equal(text, says('add'));
  const bad = (choice, param) => assert.rejects(create({ tool_choice: choice }), (e) => {
    assert.deepEqual([e.status, e.param], [400, param], e.message);
    return true;
  });
  await bad(allow('auto', 'mul'), 'tool_choice');
  await bad(allow('none', 'now'), 'tool_choice.mode');
  await bad(allow('auto'), 'tool_choice.tools');
  await bad({ type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [{ type: 'web_search' }] } }, 'tool_choice.tools');
  await bad({ type: 'allowed_tools' }, 'tool_choice.mode');
});

test('responses: allowed_tools, and the same items from the record', async (t) => {
  const openai = await start(t);
  const create = (more) => openai.responses.create({ model, input: 'What is 1 plus 1?', tools: flat, max_output_tokens: 100, ...more });
  const calls = ({ output }) => output.filter((item) => item.type === 'function_call').map((item) => item.name);
  const first = await create({});
  const choice = allowFlat('required', 'sub');
  const forced = await create({ tool_choice: choice });
  assert.deepEqual([calls(forced), forced.tool_choice, forced.tools.length], [['sub'], choice, 3]);
  assert.equal(forced.usage.input_tokens, first.usage.input_tokens);
  const again = await openai.responses.retrieve(forced.id);
  assert.deepEqual(again.output, forced.output);
  const next = await create({ previous_response_id: forced.id, tool_choice: allowFlat('required', 'now'),
    input: [{ type: 'function_call_output', call_id: forced.output.find(({ type }) => type === 'function_call').call_id, output: '2' }] });
  assert.deepEqual(calls(next), ['now']);
  assert.ok(next.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 32, JSON.stringify(next.usage));
  await assert.rejects(create({ tool_choice: allowFlat('auto', 'mul') }), (e) => e.status === 400 && e.param === 'tool_choice' && /'mul'/.test(e.message));
});
