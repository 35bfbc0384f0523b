// Stop strings apply to the text that clients see: not to thinking, to the markup of tool calls, or to forced calls. Tokens whose
// text a stop string cut off come with no log-probabilities, under any protocol.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import { longTest, root, Server, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';
import { clientOf } from './openai_client.mjs';
import { good } from './run.mjs';

const model = 'demo-model';
const template = `{{ bos_token }}{% for tool in tools or [] %}{{ '<|im_start|>system\n' + tool | tojson + '\nCalls: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>\n' }}{% endfor %}`
  + `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}{{ (m.content or '') + '<|im_end|>\n' }}{% endfor %}`
  + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`;
const messages = [{ role: 'user', content: 'Go.' }];
const parameters = { type: 'object', properties: { city: { type: 'string', maxLength: 8 } }, required: ['city'], additionalProperties: false };
const tools = [{ type: 'function', function: { name: 'look', parameters } }];
/** A grammar that makes the answer exactly this text. */
const exactly = (text) => ({ grammar: `root ::= ${JSON.stringify(text)}`, temperature: 0, max_tokens: 120, ...(text.startsWith('<think>') ? {} : { thinking_budget: 0 }) });

async function start(t, folder = temporaryFolder(t)) {
  const file = path.join(folder, 'template.jinja');
  writeFileSync(file, template);
  return Server.start(t, { db: path.join(folder, 'stops.db'), args: [...unlimited, '--chat-template', file] });
}

test('stop strings act on the answer\'s text alone, and min_tokens holds them back', async (t) => {
  const server = await start(t);
  const openai = clientOf(server);
  const chat = async (text, more) => (await openai.chat.completions.create({ model, messages, ...exactly(text), ...more })).choices[0];
  const thought = '<think>\nThe Question: 2+2.\n\nEasy.\n</think>\n\nFour.\n\nFive.';
  for (const stop of ['Question:', '\n\n', '\n']) {
    const { message, finish_reason } = await chat(thought, { stop });
    assert.equal(message.reasoning_content, 'The Question: 2+2.\n\nEasy.');
    assert.equal(message.content, stop === 'Question:' ? 'Four.\n\nFive.' : 'Four.');
    assert.equal(finish_reason, 'stop');
  }
  const call = '<tool_call>\n{"name": "look", "arguments": {"city": "Bonn"}}\n</tool_call>';
  for (const stop of ['\n', '{', '}', 'call', '"arguments"', '<']) {
    const { message, finish_reason } = await chat(`Wait.\n${call}`, { stop, tools });
    assert.equal(message.content, 'Wait.', stop);
    assert.deepEqual(message.tool_calls?.map((one) => one.function.arguments), ['{"city": "Bonn"}'], stop);
    assert.equal(finish_reason, 'tool_calls');
  }
  assert.equal((await chat(call, { stop: '\n' })).message.content, '<tool_call>'); // a request without tools
  for (const stop of ['"city"', '\n', '{']) {
    const forced = await openai.chat.completions.create({ model, messages, tools, stop, tool_choice: 'required', temperature: 0, max_tokens: 120 });
    assert.equal(typeof JSON.parse(forced.choices[0].message.tool_calls[0].function.arguments).city, 'string', stop);
    assert.equal(forced.choices[0].finish_reason, 'tool_calls');
  }
  // The wire of messages names the sequence.
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
  const said = await anthropic.messages.create({ model, messages, max_tokens: 120, temperature: 0, stop_sequences: ['o', 'ol'] });
  assert.ok(!said.content.at(-1).text.includes('o'));
  assert.deepEqual([said.stop_reason, said.stop_sequence], ['stop_sequence', 'o']);
  const least = async (min_tokens) => (await chat('ab END cd END ef', { stop: 'END', min_tokens })).message.content;
  assert.equal(await least(0), 'ab ');
  assert.equal(await least(6), 'ab END cd ');
  assert.equal(await least(12), 'ab END cd END ef');
});

longTest('samples and beams stop where a turn does, and a replay agrees', async (t) => {
  const folder = temporaryFolder(t);
  const server = await start(t, folder);
  const client = await server.connect();
  const id = await client.open({});
  const text = '<think>\na\n</think>\n\nb\nc';
  const { max_tokens, ...sampling } = exactly(text);
  for (const more of [{}, { beam_width: 2 }, { n: 2 }, { stop_in: 1 }]) {
    const turn = await client.turn(id, 'Go.', { sampling: { ...sampling, stop: ['\n'], ...more } });
    assert.equal(turn.text, more.stop_in ? '<think>' : '<think>\na\n</think>\n\nb', JSON.stringify(more));
    assert.equal(turn.done.finish_reason, 'stop');
  }
  const plain = await client.turn(await client.open({}), { text: 'x' }, { sampling: { ...exactly('a\nb'), stop: ['\n'] } });
  assert.equal(plain.text, 'a');
  await server.stop();
  await good(['replay', id, '--db', path.join(folder, 'stops.db'), '--model', path.join(root, 'configs/demo-model'), '--chat-template', path.join(folder, 'template.jinja')]);
});

longTest('tokens that a stop string cut off have no log-probabilities', async (t) => {
  const server = await start(t);
  const openai = clientOf(server);
  for (const [stop, text, want] of [['END', 'abc ENENDx', 'abc EN'], ['END', 'abc ENDx', 'abc '], ['END', 'abc EENDx', 'abc E'], ['aab', 'x aaabz', 'x a'],
    ['--END', 'q ----ENDx', 'q --'], ['\n\nQ', 'a\n\n\nQ:', 'a\n']]) {
    const ask = { model, messages, stop, logprobs: true, ...exactly(text) };
    const words = (list) => list.map((one) => one.token).join('');
    const { choices: [choice] } = await openai.chat.completions.create(ask);
    assert.equal(choice.message.content, want);
    assert.equal(words(choice.logprobs.content), want);
    const streamed = [];
    for await (const { choices } of await openai.chat.completions.create({ ...ask, stream: true }))
      for (const one of choices) streamed.push(...one.logprobs?.content ?? []);
    assert.equal(words(streamed), want);
    const prompt = { model, prompt: 'x', stop, logprobs: 1, ...exactly(text) };
    assert.equal((await openai.completions.create(prompt)).choices[0].logprobs.tokens.join(''), want);
    const chunks = [];
    for await (const { choices } of await openai.completions.create({ ...prompt, stream: true }))
      for (const one of choices) chunks.push(...one.logprobs?.tokens ?? []);
    assert.equal(chunks.join(''), want);
    const { max_tokens, ...rest } = exactly(text);
    const made = await openai.responses.create({ model, input: 'Go.', stop, include: ['message.output_text.logprobs'], max_output_tokens: max_tokens, ...rest });
    assert.equal(words(made.output[0].content[0].logprobs), want);
    const stored = await openai.responses.retrieve(made.id, { include: ['message.output_text.logprobs'] });
    assert.equal(words(stored.output[0].content[0].logprobs), want);
  }
});
