// Stateless clients get sessions: a conversation that is sent again and again continues one, and only what is new is computed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { Server, few, unlimited, until } from './harness.mjs';

const clientOf = (server) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, timeout: 240000 });
const user = (content) => ({ role: 'user', content });
const sessionOf = (id) => id.slice('chatcmpl-'.length, id.lastIndexOf('-'));
const turnOf = (id) => Number(id.slice(id.lastIndexOf('-') + 1));
const model = 'demo-model';
const ask = { model, temperature: 0, max_tokens: 12 };
const cached = (answer) => answer.usage.prompt_tokens_details.cached_tokens;

async function start(t, options = {}) {
  const server = await Server.start(t, { args: [...unlimited, ...(options.args ?? [])], ...options.server });
  return { server, openai: clientOf(server), parley: await server.connect() };
}

test('each turn of a conversation computes its new tokens alone, in one session', async (t) => {
  const { openai, parley } = await start(t);
  const messages = [{ role: 'system', content: 'You are brief.' }];
  let before = 0;
  let first;
  for (let i = 0; i < Math.max(4, few(12)); i++) {
    messages.push(user(`Question ${i}: what is ${i} plus ${i}?`));
    const answer = await openai.chat.completions.create({ ...ask, messages });
    first ??= answer;
    assert.equal(sessionOf(answer.id), sessionOf(first.id));
    assert.equal(turnOf(answer.id), i);
    // All but the last token of the log was computed: it was drawn, and nothing followed it.
    if (i > 0) assert.ok(cached(answer) >= before - 1, `turn ${i}: ${cached(answer)} of ${before} cached`);
    before = answer.usage.prompt_tokens + answer.usage.completion_tokens;
    messages.push({ role: 'assistant', content: answer.choices[0].message.content });
  }
  const { sessions } = await parley.request({ type: 'session.list' });
  assert.equal(sessions.length, 1);
  const state = await parley.request({ type: 'session.get', session: sessionOf(first.id) });
  assert.equal(state.session.system, 'You are brief.');
  assert.equal(state.turns[1].input.content, 'Question 1: what is 1 plus 1?');

  await t.test('another question after an earlier answer is a branch of the same session', async () => {
    const answer = await openai.chat.completions.create({ ...ask, messages: [...messages.slice(0, 3), user('Tell me a story.')] });
    assert.equal(sessionOf(answer.id), sessionOf(first.id));
    assert.ok(cached(answer) > 0);
    const after = await parley.request({ type: 'session.get', session: sessionOf(first.id) });
    assert.equal(after.turns.length, 2);
    assert.equal(after.turns[1].parent, 0);
  });
  await t.test('white space and another client\'s form of the same messages change nothing', async () => {
    const again = messages.slice(0, 5).map((m) => ({ ...m, content: [{ type: 'text', text: m.role === 'user' ? m.content : `${m.content}` }], extra: 1 }));
    const answer = await openai.chat.completions.create({ ...ask, messages: [...again, user('And now?')] });
    assert.equal(sessionOf(answer.id), sessionOf(first.id));
  });
  await t.test('a conversation that only begins alike is another one', async () => {
    const other = await openai.chat.completions.create({ ...ask, messages: [messages[0], messages[1], { role: 'assistant', content: 'Never said.' }, user('Hm?')] });
    assert.notEqual(sessionOf(other.id), sessionOf(first.id));
  });
});

test('the match outlives a restart and kill -9; a session that is busy is forked', async (t) => {
  const { server, openai } = await start(t);
  const messages = [user('Hello!')];
  const first = await openai.chat.completions.create({ ...ask, messages });
  messages.push({ role: 'assistant', content: first.choices[0].message.content }, user('Tell me a long story.'));
  const stream = await openai.chat.completions.create({ ...ask, max_tokens: 400, ignore_eos: true, messages, stream: true });
  let text = '';
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    if (text.length > 20) break;
  }
  await server.stop('SIGKILL');
  const again = await Server.start(t, { db: server.db, args: unlimited });
  const next = clientOf(again);
  const answer = await next.chat.completions.create({ ...ask, messages });
  assert.equal(sessionOf(answer.id), sessionOf(first.id));
  const both = await Promise.all([1, 2, 3].map((seed) => next.chat.completions.create({ ...ask, seed, temperature: 1, max_tokens: 30, messages })));
  assert.equal(new Set(both.map((b) => b.id)).size, 3);
  for (const b of both) assert.ok(b.choices[0].message.content.length > 0);
});

test('a session may be named by a header; a client that leaves cancels its turn there', async (t) => {
  const { server, openai, parley } = await start(t);
  for (const name of ['x-session-id', 'session-id', 'x-claude-code-session-id', 'x-dynamo-session-id']) {
    const headers = { [name]: `mine-${name}` };
    const one = await openai.chat.completions.create({ ...ask, messages: [user('Hi!')] }, { headers }).asResponse();
    assert.equal(one.headers.get('x-session-id'), `mine-${name}`);
    const answer = await one.json();
    const two = await openai.chat.completions.create({ ...ask, messages: [user('Hi!'), answer.choices[0].message, user('Again.')] }, { headers });
    assert.equal(two.id, `chatcmpl-mine-${name}-1`);
  }
  const odd = await openai.chat.completions.create({ ...ask, messages: [user('Hi!')] }, { headers: { 'x-session-id': 'with spaces / and more' } });
  assert.match(sessionOf(odd.id), /^[0-9a-f]{32}$/);
  const stream = await openai.chat.completions.create({ ...ask, max_tokens: 3000, ignore_eos: true, stream: true, messages: [user('Hi!')] }, { headers: { 'x-session-id': 'mine-session-id' } });
  let id;
  for await (const chunk of stream) {
    id = chunk.id;
    if (chunk.choices[0]?.delta.content) break;
  }
  stream.controller.abort();
  await until('the end of the turn', async () => {
    const state = await parley.request({ type: 'session.get', session: sessionOf(id) });
    return state.turns.find((turn) => turn.turn === turnOf(id))?.finish_reason === 'cancelled';
  });
  assert.ok(server);
});

test('tools: calls are split off, streamed, and found again; the ids that were drawn stay', async (t) => {
  const { openai } = await start(t);
  const tools = ['add', 'now'].map((name) => ({ type: 'function', function: { name, parameters: { type: 'object', properties: { a: { type: 'integer' } } } } }));
  const said = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><tool_call>{"name": "now", "arguments": {}}</tool_call>';
  const messages = [{ role: 'system', content: 'You are brief.' }, user('What is 1 plus 1?')];
  const call = { ...ask, max_tokens: 200, tools, messages, choice: [said] };
  const whole = await openai.chat.completions.create(call);
  const [choice] = whole.choices;
  assert.equal(choice.finish_reason, 'tool_calls');
  assert.equal(choice.message.content, null);
  assert.deepEqual(choice.message.tool_calls.map((c) => [c.type, c.function.name, JSON.parse(c.function.arguments)]),
    [['function', 'add', { a: 1 }], ['function', 'now', {}]]);
  const calls = [];
  for await (const chunk of await openai.chat.completions.create({ ...call, stream: true })) {
    for (const part of chunk.choices[0]?.delta.tool_calls ?? []) {
      calls[part.index] ??= { name: part.function.name, arguments: '' };
      calls[part.index].arguments += part.function.arguments;
    }
  }
  assert.deepEqual(calls, [{ name: 'add', arguments: '{"a": 1}' }, { name: 'now', arguments: '{}' }]);
  messages.push(choice.message, ...choice.message.tool_calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: '2' })));
  const next = await openai.chat.completions.create({ ...ask, tools, messages });
  assert.equal(turnOf(next.id), 1);
  assert.ok(cached(next) >= whole.usage.prompt_tokens + whole.usage.completion_tokens - 1, JSON.stringify([whole.usage, next.usage]));
  const none = await openai.chat.completions.create({ ...call, tool_choice: 'none' });
  assert.equal(none.choices[0].message.content, said);
});
