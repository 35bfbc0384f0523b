// Conversations that strict templates refuse as they are: later system messages, a system prompt without a role for it, ids of calls
// from other protocols, characters that no text has. One place mends them, so every protocol takes them.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Server, temporaryFolder, unlimited } from './harness.mjs';

const model = 'demo-model';
const strict = `{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}`
  + `{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`;
const mistral = `{# [TOOL_CALLS] #}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}`
  + `{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}{% endif %}{{ c.id }}{% endfor %}`
  + `{% if m.role == 'tool' and m.tool_call_id | length != 9 %}{{ raise_exception('length 9!') }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`;

async function start(t, template) {
  const file = path.join(temporaryFolder(t), 'template.jinja');
  writeFileSync(file, template);
  const server = await Server.start(t, { args: [...unlimited, '--chat-template', file] });
  return async (address, body) => {
    const answer = await fetch(`${server.url}${address}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: typeof body === 'string' ? body : JSON.stringify({ model, temperature: 0, ...body }) });
    const text = await answer.text();
    assert.equal(answer.status, 200, `${address}: ${text.slice(0, 300)}`);
    return JSON.parse(text);
  };
}
const say = (role, content) => ({ role, content });

test('later system messages go on in their place, under every protocol', async (t) => {
  const post = await start(t, strict);
  const messages = [say('system', 'Be terse.'), say('user', 'Hi'), say('assistant', 'Hello.'), say('system', 'Answer BLUE.'), say('user', 'Sky?')];
  const { prompt } = await post('/apply-template', { messages });
  assert.ok(prompt.startsWith('<|im_start|>system\nBe terse.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n'), prompt);
  assert.ok(prompt.includes('<|im_start|>user\nAnswer BLUE.\n\nSky?<|im_end|>'), prompt);
  await post('/v1/chat/completions', { messages, max_tokens: 3 });
  await post('/v1/messages', { system: 'Be terse.', messages: [say('user', 'Hi'), say('system', 'Agents: x')], max_tokens: 3 });
  const first = await post('/v1/responses', { instructions: 'Be terse.', input: [say('user', 'Hi'), say('developer', 'BLUE'), say('user', 'Sky?')], max_output_tokens: 3 });
  await post('/v1/responses', { previous_response_id: first.id, input: [say('developer', 'RED'), say('user', 'Sun?')], max_output_tokens: 3 });
  // A client that adds one to each request computes only what is new.
  let cached = 0;
  const talk = [say('system', 'Be terse. '.repeat(20)), say('user', 'Tell me a story about a fox and a crow, please. '.repeat(4))];
  for (let i = 0; i < 3; i++) {
    const { usage, choices } = await post('/v1/chat/completions', { messages: talk, max_tokens: 20 });
    if (i > 0) assert.ok(usage.prompt_tokens_details.cached_tokens >= cached, JSON.stringify(usage));
    cached = usage.prompt_tokens + usage.completion_tokens - 2;
    talk.push(say('assistant', choices[0].message.content), say('system', `Note ${i}.`), say('user', 'And then?'));
  }
});

test('ids of calls of any form reach a template that wants nine characters', async (t) => {
  const post = await start(t, mistral);
  const parameters = { type: 'object', properties: { q: { enum: ['cpu'] } }, required: ['q'], additionalProperties: false };
  const tools = [{ type: 'function', name: 'metrics', parameters }];
  await post('/v1/messages', { max_tokens: 3, tools: [{ name: 'metrics', input_schema: parameters }], messages: [say('user', 'check'),
    { role: 'assistant', content: [{ type: 'tool_use', id: 'toolu_01AbCdEf', name: 'metrics', input: { q: 'cpu' } }] }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_01AbCdEf', content: 'ok' }] }] });
  const first = await post('/v1/responses', { input: 'check', tools, tool_choice: 'required', max_output_tokens: 60 });
  const { call_id } = first.output.find((item) => item.type === 'function_call');
  await post('/v1/responses', { previous_response_id: first.id, input: [{ type: 'function_call_output', call_id, output: 'ok' }], tools, max_output_tokens: 3 });
  const { id: conversation } = await post('/v1/conversations', {});
  const asked = await post('/v1/responses', { conversation, input: 'check', tools, tool_choice: 'required', max_output_tokens: 60 });
  const again = asked.output.find((item) => item.type === 'function_call').call_id;
  await post('/v1/responses', { conversation, input: [{ type: 'function_call_output', call_id: again, output: 'ok' }], tools, max_output_tokens: 3 });
});

test('a NUL and half a surrogate pair become U+FFFD', async (t) => {
  const post = await start(t, strict);
  for (const bad of ['\\u0000', '\\ud99c']) {
    assert.ok((await post('/apply-template', `{"messages":[{"role":"user","content":"a${bad}b"}]}`)).prompt.includes('a\ufffdb'));
    await post('/v1/chat/completions', `{"model":"demo-model","max_tokens":3,"messages":[{"role":"user","content":"a${bad}b"}]}`);
    await post('/v1/messages', `{"model":"demo-model","max_tokens":3,"messages":[{"role":"user","content":"a${bad}b"}]}`);
    await post('/v1/responses', `{"model":"demo-model","max_output_tokens":3,"input":"a${bad}b"}`);
  }
});
