// Stateless clients get sessions: a conversation that is sent again and again continues one, and only what is new is computed.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { few, longTest, parley as program, Server, shortTest as test, sleep, temporaryFolder, unlimited, until } from './harness.mjs';
import { cached, clientOf, sessionOf, turnOf, user } from './openai_client.mjs';
import { Random } from './random.mjs';

const model = 'demo-model';
const ask = { model, temperature: 0, max_tokens: 12 };

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

test('a message without words shows nothing and gives no title; the first message with words does', async (t) => {
  const { server, openai, parley } = await start(t);
  const say = (...words) => openai.chat.completions.create({ ...ask, messages: words.map((content, i) => ({ role: i % 2 ? 'assistant' : 'user', content })) });
  const ids = [];
  for (const content of ['', ' \n', '\ufffd']) {
    const first = await say(content);
    ids.push(sessionOf(first.id));
    const opened = await parley.request({ type: 'session.get', session: ids.at(-1) });
    assert.deepEqual([opened.session.title, opened.turns[0].input.content], ['', content]);
    const second = await say(content, first.choices[0].message.content, 'Real words');
    assert.equal(sessionOf(second.id), ids.at(-1));
  }
  const brought = await say('', 'Hello?', ''); // a history that the server has not seen
  const seen = async (client) => {
    const rows = await Promise.all(ids.map((session) => client.request({ type: 'session.get', session })));
    assert.deepEqual(rows.map((row) => [row.session.title, ...row.turns.map((turn) => turn.input.content)]),
      ['', ' \n', '\ufffd'].map((content) => ['Real words', content, 'Real words']));
    const { session, turns } = await client.request({ type: 'session.get', session: sessionOf(brought.id) });
    assert.deepEqual([session.title, turns[0].input.content], ['Assistant: Hello?', 'Assistant: Hello?']);
  };
  await seen(parley);
  await server.stop();
  const again = await Server.start(t, { db: server.db, args: unlimited });
  await seen(await again.connect());
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

test('kill -9 under chat completions: all text that was sent is on record; no session or fork is without the turn that it was made for', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  const random = new Random(), told = new Map(); // id -> text
  let killed = 0, base;
  for (let life = 0; life < Math.max(3, few(15)); life++) {
    const server = await Server.start(t, { db, args: unlimited });
    const openai = clientOf(server), before = told.size;
    base ??= await openai.chat.completions.create({ ...ask, messages: [user('Hello!')] });
    const more = [user('Hello!'), { role: 'assistant', content: base.choices[0].message.content }];
    const follow = async (messages) => {
      const stream = await openai.chat.completions.create({ ...ask, max_tokens: 40, ignore_eos: true, stream: true, messages });
      for await (const { id, choices } of stream) told.set(id, (told.get(id) ?? '') + (choices[0]?.delta.content ?? ''));
    };
    const streams = Array.from({ length: 12 }, (_, i) => follow(i % 3 ? [user(`Life ${life}, ${i}`)] : [...more, user(`Life ${life}, ${i}`)]).catch(() => killed++));
    if (life % 2) await until('an answer', () => told.size > before);
    await sleep(random.below(life % 2 ? 30 : 12));
    await server.stop('SIGKILL');
    await Promise.all(streams);
  }
  assert.ok(killed > 10, `${killed} of ${told.size} streams were cut`);
  const client = await (await Server.start(t, { db, args: unlimited })).connect();
  const { sessions } = await client.request({ type: 'session.list', limit: 200 });
  for (const { id, n_turns, forked_from } of sessions) assert.ok(n_turns > (forked_from ? 1 : 0), id);
  for (const [id, text] of told) {
    const { turn } = await client.request({ type: 'turn.get', session: sessionOf(id), turn: turnOf(id) });
    assert.ok(turn?.text.startsWith(text), `${id}: ${JSON.stringify(text)}, ${JSON.stringify(turn?.text)}`);
  }
});

test('a session may be named by a header; a client that leaves cancels its turn there', async (t) => {
  const { server, openai, parley } = await start(t);
  for (const name of ['x-session-id', 'session-id', 'x-claude-code-session-id', 'x-dynamo-session-id', 'x-session-affinity', 'x-parent-session-id']) {
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

longTest('tools: calls are split off, streamed, and found again; the ids that were drawn stay', async (t) => {
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

longTest('where the last answer\'s text is another one, the conversation goes on behind an earlier turn', async (t) => {
  const { openai, parley } = await start(t);
  const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object', properties: { a: { type: 'integer' } } } } }];
  const messages = [user('Hello!')];
  const first = await openai.chat.completions.create({ ...ask, tools, messages });
  messages.push(first.choices[0].message, user('What is 1 plus 1?'));
  // The template writes a call with spaces.
  const compact = await openai.chat.completions.create({ ...ask, tools, messages, max_tokens: 200, choice: ['<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'] });
  const { message } = compact.choices[0];
  messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '2' });
  const answer = await openai.chat.completions.create({ ...ask, tools, messages });
  assert.equal(sessionOf(answer.id), sessionOf(first.id));
  const { turns } = await parley.request({ type: 'session.get', session: sessionOf(answer.id) });
  // The first turn, the call as the template writes it, the answer.
  assert.deepEqual([turns.length, turns[0].turn], [3, 0]);
  assert.ok(turns[1].text.includes('{"name": "add", "arguments": {"a": 1}}'), turns[1].text);
  assert.ok(cached(answer) >= first.usage.prompt_tokens + first.usage.completion_tokens - 1, JSON.stringify([first.usage, answer.usage]));
});

longTest('the same conversation of two owners: neither finds the other\'s, and they share no hash', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const names = { alice: 'alice-token-0123456789', bob: 'bob-token-0123456789' };
  writeFileSync(file, Object.entries(names).map(([name, token]) => `${name}:${token}\n`).join(''), { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  const hashes = [];
  for (const apiKey of Object.values(names)) {
    const openai = clientOf(server, apiKey);
    const one = await openai.chat.completions.create({ ...ask, messages: [user('Hello!')], choice: ['Yes.'] });
    assert.equal(turnOf(one.id), 0);
    const two = await openai.chat.completions.create({ ...ask, messages: [user('Hello!'), one.choices[0].message, user('And you?')], choice: ['No.'] });
    assert.equal(two.id, one.id.replace(/0$/, '1'));
    const { turns } = JSON.parse(execFileSync(program, ['sessions', 'export', sessionOf(one.id), '--db', server.db]));
    hashes.push(...turns.map(({ told }) => told));
  }
  for (const hash of hashes) assert.match(hash, /^[0-9a-f]{32}$/);
  assert.equal(new Set(hashes).size, 4, hashes.join());
});

longTest('turns made through previous_response_id are found by their words too', async (t) => {
  const { openai, parley } = await start(t);
  const responseSession = (id) => /^resp_(.*)-\d+$/.exec(id)[1];
  const messages = [{ role: 'system', content: 'You are brief.' }];
  let previous;
  for (let i = 0; i < 3; i++) {
    const response = await openai.responses.create({ model, instructions: 'You are brief.', input: `Question ${i}?`, temperature: 0, max_output_tokens: 16, previous_response_id: previous?.id });
    if (previous) assert.equal(responseSession(response.id), responseSession(previous.id));
    messages.push(user(`Question ${i}?`), { role: 'assistant', content: response.output_text });
    previous = response;
  }
  const answer = await openai.chat.completions.create({ ...ask, messages: [...messages, user('And now?')] });
  assert.equal(sessionOf(answer.id), responseSession(previous.id));
  assert.equal(turnOf(answer.id), 3);
  assert.ok(cached(answer) >= previous.usage.input_tokens + previous.usage.output_tokens - 1, JSON.stringify([previous.usage, answer.usage]));
  const more = await openai.chat.completions.create({ ...ask, messages: [...messages, user('And now?'), answer.choices[0].message, user('Then?')] });
  assert.equal(more.id, `chatcmpl-${sessionOf(answer.id)}-4`);
  const { session, turns } = await parley.request({ type: 'session.get', session: sessionOf(answer.id) });
  assert.deepEqual([turns.length, session.n_turns], [5, 5]);

  await t.test('in a fork as well', async () => {
    const fork = await parley.request({ type: 'session.fork', session: sessionOf(answer.id), turn: 1, new_session: 'copy' });
    assert.equal(fork.type, 'session.opened', JSON.stringify(fork));
    const there = await openai.chat.completions.create({ ...ask, messages: [...messages.slice(0, 5), user('Here?')] }, { headers: { 'x-session-id': 'copy' } });
    assert.equal(there.id, 'chatcmpl-copy-2');
  });
});

longTest('requests of one name run side by side: forks of its session, found again by the name', async (t) => {
  const { openai, parley } = await start(t);
  const headers = { 'x-session-id': 'agent' };
  const first = await openai.chat.completions.create({ ...ask, messages: [user('Hello.')] }, { headers });
  assert.equal(sessionOf(first.id), 'agent');
  const stream = await openai.chat.completions.create({ ...ask, max_tokens: 3000, ignore_eos: true, stream: true, messages: [user('Tell me a long story.')] }, { headers });
  const pieces = stream[Symbol.asyncIterator]();
  const { value } = await pieces.next();
  assert.equal(sessionOf(value.id), 'agent');
  const talk = [user('A title, please.')];
  const side = await openai.chat.completions.create({ ...ask, messages: talk }, { headers });
  assert.notEqual(sessionOf(side.id), 'agent');
  const { sessions } = await parley.request({ type: 'session.list', forked_from: 'agent' });
  assert.deepEqual(sessions.map((one) => one.id), [sessionOf(side.id)]);
  talk.push(side.choices[0].message, user('Another one.'));
  const next = await openai.chat.completions.create({ ...ask, messages: talk }, { headers });
  assert.equal(next.id, `chatcmpl-${sessionOf(side.id)}-1`);
  const behind = await openai.chat.completions.create({ ...ask, messages: [user('Hello.'), first.choices[0].message, user('More.')] }, { headers });
  assert.ok(cached(behind) > 0); // in the session, or in a fork while the long turn runs
  stream.controller.abort();
});

longTest('the first requests of a new name come at the same time: one opens its session, the others run in forks', async (t) => {
  const { openai, parley } = await start(t);
  for (let round = 0; round < 10; round++) {
    const headers = { 'x-session-id': `new-${round}` };
    const long = 'word '.repeat(6000); // which no session holds
    const answers = await Promise.all([long, 'Hello.', long, 'A title, please.', 'A summary, please.'].map((content) => openai.chat.completions.create({ ...ask, messages: [user(content)] }, { headers }).catch((error) => error)));
    assert.deepEqual(answers.map((answer) => answer.code ?? 'served'), ['context_length_exceeded', 'served', 'context_length_exceeded', 'served', 'served']);
    assert.equal(new Set(answers.filter((answer) => answer.id).map((answer) => answer.id)).size, 3);
  }
  const { sessions } = await parley.request({ type: 'session.list', limit: 200 });
  assert.deepEqual(sessions.filter((one) => one.n_turns === 0), []);
});

longTest('a client that brings its history: people see the words with their roles, without marks of the template', async (t) => {
  const { openai, parley } = await start(t);
  const tools = [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } } }];
  const call = { role: 'assistant', content: null, tool_calls: [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } }] };
  const result = { role: 'tool', tool_call_id: 'c1', content: 'snow' };
  const seen = async (body) => {
    const answer = await openai.chat.completions.create({ ...ask, ...body });
    const { session, turns } = await parley.request({ type: 'session.get', session: sessionOf(answer.id) });
    return { answer, session, turns };
  };
  const talk = [{ role: 'system', content: 'You are brief.' }, user('My name is Bob.'), { role: 'assistant', content: 'Hello Bob!' }, user('What is my name?')];
  const first = await seen({ messages: talk });
  assert.equal(first.session.title, 'My name is Bob.');
  assert.equal(first.session.system, 'You are brief.');
  assert.deepEqual(first.turns.map((turn) => turn.input.content), ['User: My name is Bob.\n\nAssistant: Hello Bob!\n\nUser: What is my name?']);
  const next = await seen({ messages: [...talk, first.answer.choices[0].message, user('And mine?')] });
  assert.equal(next.session.id, first.session.id);
  assert.equal(next.turns[1].input.content, 'And mine?');
  const tooled = await seen({ messages: [user('Oslo?'), call, result], tools });
  assert.equal(tooled.session.title, 'Oslo?');
  assert.equal(tooled.turns[0].input.content, 'User: Oslo?\n\nAssistant: calls weather {"city":"Oslo"}\n\nTool: snow');
  const more = await seen({ messages: [user('Oslo?'), call, result, tooled.answer.choices[0].message, call, result], tools });
  assert.equal(more.turns.at(-1).input.content.split('\n\n').at(-1), 'Tool: snow');
});
