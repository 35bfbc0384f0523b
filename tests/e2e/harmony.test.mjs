// gpt-oss's messages with channels: thinking, answer and calls apart, also while they stream; earlier analysis leaves the conversation.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Server, temporaryFolder, unlimited } from './harness.mjs';
import { cached, clientOf, sessionOf, user } from './openai_client.mjs';

const model = 'demo-model';
// As gpt-oss's: analysis is shown before a call that no later answer follows, and nowhere else.
const template = `{% for tool in tools or [] %}{{ '<|start|>developer<|message|>type ' + tool.function.name + '<|end|>' }}{% endfor %}`
  + `{{ '<|start|>system<|message|>Reasoning: ' + (reasoning_effort if reasoning_effort is defined else 'medium') + '<|end|>' }}`
  + `{% for m in messages %}{% if m.role == 'assistant' and 'tool_calls' in m %}`
  + `{% if m.thinking and m.content %}{{ raise_exception('both content and thinking') }}{% endif %}`
  + `{% if m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}`
  + `{{ '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' + m.tool_calls[0].function.arguments | tojson + '<|call|>' }}`
  + `{% elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}`
  + `{% else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}`
  + `{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}`;
const analysis = (text) => `<|channel|>analysis<|message|>${text}<|end|><|start|>assistant`;
const final = (text) => `<|channel|>final<|message|>${text}`;
const tools = [{ type: 'function', function: { name: 'weather', description: 'of a city', parameters: { type: 'object', properties: { city: { type: 'string' } } } } }];

async function start(t) {
  const file = path.join(temporaryFolder(t), 'template.jinja');
  writeFileSync(file, template);
  const server = await Server.start(t, { args: [...unlimited, '--chat-template', file] });
  return { server, openai: clientOf(server) };
}
const say = (openai, messages, answer, more = {}) => openai.chat.completions.create({ model, messages, max_tokens: 200, choice: [answer], ...more });
const rendered = async (server, messages, more = {}) => {
  const answer = await fetch(`${server.url}/apply-template`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ messages, ...more }) });
  return (await answer.json()).prompt;
};

test('analysis is thinking, final is the answer; the next turn has the answer alone', async (t) => {
  const { openai } = await start(t);
  const messages = [user('Is it so?')];
  const first = await say(openai, messages, analysis('Let me see.') + final('It is.'), { reasoning_effort: 'high' });
  assert.deepEqual([first.choices[0].message.content, first.choices[0].message.reasoning_content], ['It is.', 'Let me see.']);
  messages.push({ role: 'assistant', content: 'It is.' }, user('Sure?'));
  const second = await say(openai, messages, final('Sure.'), { reasoning_effort: 'high' });
  assert.deepEqual([second.choices[0].message.content, second.choices[0].message.reasoning_content], ['Sure.', undefined]);
  assert.equal(sessionOf(second.id), sessionOf(first.id));
  assert.ok(cached(second) >= first.usage.prompt_tokens, `${cached(second)} of ${first.usage.prompt_tokens}`);
});

test('streamed: the channels come apart', async (t) => {
  const { openai } = await start(t);
  let thinking = '', words = '';
  for await (const { choices: [c] } of await say(openai, [user('Is it so?')], analysis('Let me see, a < b.') + final('It <| is.'), { stream: true })) {
    assert.ok(!(c?.delta?.reasoning_content && c?.delta?.content));
    thinking += c?.delta?.reasoning_content ?? '';
    words += c?.delta?.content ?? '';
  }
  assert.deepEqual([thinking, words], ['Let me see, a < b.', 'It <| is.']);
});

test('commentary to a function is a call; its analysis stays until an answer follows', async (t) => {
  const { server, openai } = await start(t);
  const messages = [user('The weather in Rome?')];
  const called = await say(openai, messages, analysis('I must look.') + '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city":"Rome"}', { tools });
  const { message, finish_reason } = called.choices[0];
  assert.equal(finish_reason, 'tool_calls');
  assert.deepEqual(message.tool_calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]), [['weather', { city: 'Rome' }]]);
  assert.equal(message.reasoning_content, 'I must look.');
  assert.ok(!message.content);
  messages.push({ role: 'assistant', content: null, reasoning_content: message.reasoning_content, tool_calls: message.tool_calls }, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny' });
  assert.match(await rendered(server, messages, { tools }), /<\|channel\|>analysis<\|message\|>I must look\.<\|end\|><\|start\|>assistant to=functions\.weather<\|channel\|>commentary json<\|message\|>\{"city": "Rome"\}<\|call\|>/);
  const answer = await say(openai, messages, final('Sunny.'), { tools });
  assert.deepEqual([answer.choices[0].message.content, answer.choices[0].finish_reason], ['Sunny.', 'stop']);
  assert.equal(sessionOf(answer.id), sessionOf(called.id));
});

test('a forced call, and the effort in the prompt', async (t) => {
  const { server, openai } = await start(t);
  const forced = await openai.chat.completions.create({ model, messages: [user('The weather?')], tools, tool_choice: 'required', max_tokens: 100 });
  assert.equal(forced.choices[0].message.tool_calls[0].function.name, 'weather');
  assert.match(await rendered(server, [user('a')], { reasoning_effort: 'low' }), /Reasoning: low/);
});

test('a budget for thinking, and none at all, are taken', async (t) => {
  const { server } = await start(t);
  const post = (more) => fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model, messages: [user('a')], max_tokens: 8, ...more }) });
  for (const more of [{ thinking_budget_tokens: 5 }, { chat_template_kwargs: { enable_thinking: false } }]) {
    const answer = await post(more);
    assert.equal(answer.status, 200, await answer.text());
  }
  const refused = await post({ thinking_budget_tokens: 5, response_format: { type: 'json_object' } });
  assert.match(await refused.text(), /thinking_budget: a grammar decides/);
});
