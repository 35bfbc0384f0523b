// Text that changes with every request (volatile_patterns) does not break the match of a conversation that is sent again.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { patience, Server, unlimited } from './harness.mjs';
import { cached, clientOf, sessionOf, user } from './openai_client.mjs';
import { run } from './run.mjs';

const patterns = '/^x-billing: [0-9a-f]+\\n/ /<left>\\d+ tokens<\\/left>/';
const model = 'demo-model';
const ask = { model, temperature: 0, max_tokens: 8 };
const system = (hash) => ({ role: 'system', content: `x-billing: ${hash}\nYou are brief.` });
const logOf = async (parley, id) => (await parley.request({ type: 'session.get', session: sessionOf(id) })).session.n_tokens;

test('a first line with a hash and a note of tokens left: the conversation goes on, and only what is new is computed', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--volatile-patterns', patterns] });
  const openai = clientOf(server);
  const parley = await server.connect();
  const messages = [];
  let before = 0;
  let first;
  for (let i = 0; i < 5; i++) {
    messages.push(user(`Question ${i}?<left>${9000 - i} tokens</left>`));
    // The hash changes with each request, and so do the notes in messages that were sent before.
    const sent = messages.map((m) => ({ ...m, content: m.role === 'user' ? m.content.replace(/\d+ tokens/, `${9000 - i} tokens`) : m.content }));
    const answer = await openai.chat.completions.create({ ...ask, messages: [system(`c0ffee${i}`), ...sent] });
    first ??= answer;
    assert.equal(sessionOf(answer.id), sessionOf(first.id), `turn ${i}`);
    if (i > 0) assert.ok(cached(answer) >= before - 1, `turn ${i}: ${cached(answer)} of ${before} cached`);
    // What is counted is what the model sees: all of the session's log.
    before = answer.usage.prompt_tokens + answer.usage.completion_tokens;
    assert.equal(await logOf(parley, answer.id), before);
    messages.push({ role: 'assistant', content: answer.choices[0].message.content });
  }
  const { session, turns } = await parley.request({ type: 'session.get', session: sessionOf(first.id) });
  assert.equal(session.system, system('c0ffee0').content);
  assert.equal(turns[3].input.content, 'Question 3?<left>8997 tokens</left>'); // as it was sent first

  await t.test('other words in the same place are another conversation', async () => {
    const other = await openai.chat.completions.create({ ...ask, messages: [{ ...system('c0ffee9'), content: 'x-billing: c0ffee9\nYou are not.' }, ...messages, user('Hm?')] });
    assert.notEqual(sessionOf(other.id), sessionOf(first.id));
  });
  await t.test('Anthropic\'s messages too', async () => {
    const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, timeout: patience });
    const talk = [user('Hello.')];
    const create = (hash) => anthropic.messages.create({ model, max_tokens: 8, temperature: 0, system: `x-billing: ${hash}\nYou are kind.`, messages: talk });
    const one = await create('aa');
    talk.push({ role: 'assistant', content: one.content }, user('Again.'));
    const two = await create('bb');
    assert.ok(two.usage.cache_read_input_tokens >= one.usage.input_tokens + one.usage.output_tokens - 1, JSON.stringify([one.usage, two.usage]));
  });
});

test('without the setting a changed first line is computed again', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const one = await openai.chat.completions.create({ ...ask, messages: [system('aa'), user('Hello.')] });
  const two = await openai.chat.completions.create({ ...ask, messages: [system('bb'), user('Hello.'), one.choices[0].message, user('Again.')] });
  assert.notEqual(sessionOf(two.id), sessionOf(one.id));
});

test('bad patterns are refused at the start, with a sentence', async () => {
  for (const [value, says] of [['abc', 'between slashes'], ['/a(b/', 'is not understood'], ['/x*/', 'matches the empty text']]) {
    const result = await run(['serve', '--model', 'configs/demo-model', '--db', ':memory:', '--port', '0', '--volatile-patterns', value]);
    assert.notEqual(result.code, 0, value);
    assert.match(result.stderr, new RegExp(`volatile_patterns: .*${says}`), value);
  }
});
