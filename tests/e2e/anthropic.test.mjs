// POST /v1/messages by Anthropic's own client, on the demo model; and by clients that break its rules.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import Anthropic from '@anthropic-ai/sdk';
import { few, longTest, patience, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';

const clientOf = (server, apiKey = 'none') => new Anthropic({ baseURL: server.url, apiKey, maxRetries: 0, timeout: patience });
const user = (content) => ({ role: 'user', content });
const textOf = (message) => message.content.filter((block) => block.type === 'text').map((block) => block.text).join('');
const prompt = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
const ask = { model: 'demo-model', max_tokens: 24, system: 'You tell stories.', messages: [user('Tell me a story.')], temperature: 0.8, seed: 7 };

/** What a request is refused with: its class, status and sentence in Anthropic's form. */
async function refused(call, Class, status, type, sentence) {
  await assert.rejects(call, (e) => {
    assert.ok(e instanceof Class, `${e.constructor.name}: ${e.message}`);
    assert.equal(e.status, status, e.message);
    assert.deepEqual(Object.keys(e.error).sort(), ['error', 'request_id', 'type']);
    assert.equal(e.error.type, 'error');
    assert.equal(e.error.error.type, type);
    assert.match(e.error.error.message, sentence);
    assert.equal(e.requestID, e.error.request_id);
    return true;
  });
}

test('the demo model answers, whole and streamed, with the same words for the same seed', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = clientOf(server);
  const parley = await server.connect();
  const { max_tokens: _, temperature, seed, ...counted } = ask;
  const whole = await client.messages.create(ask);

  await t.test('a whole message', async () => {
    assert.match(whole.id, /^msg_[A-Za-z0-9_-]+-\d+$/);
    assert.match(whole._request_id, /^req_[0-9a-f]{32}$/);
    assert.deepEqual([whole.type, whole.role, whole.model], ['message', 'assistant', 'demo-model']);
    assert.deepEqual(whole.content.map((block) => block.type), ['text']);
    assert.ok(['end_turn', 'max_tokens'].includes(whole.stop_reason));
    assert.equal(whole.stop_sequence, null);
    assert.ok(whole.usage.output_tokens > 0 && whole.usage.output_tokens <= 24);
  });
  await t.test('the count of its tokens is exact', async () => {
    const count = await client.messages.countTokens(counted);
    assert.equal(count.input_tokens, prompt(whole));
    assert.equal(whole.usage.cache_read_input_tokens, 0);
    assert.equal(count.input_tokens, whole.usage.input_tokens);
  });
  await t.test('streamed', async () => {
    const events = [];
    let text = '';
    const stream = client.messages.stream(ask).on('streamEvent', (event) => events.push(structuredClone(event))).on('text', (piece) => { text += piece; });
    const final = await stream.finalMessage();
    assert.equal(textOf(final), textOf(whole));
    assert.equal(text, textOf(whole));
    assert.equal(final.stop_reason, whole.stop_reason);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
    assert.equal(prompt(final), prompt(whole));
    const kinds = events.map((event) => event.type).filter((type, i, all) => type !== 'ping' && type !== all[i - 1]);
    assert.deepEqual(kinds, ['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop']);
    assert.deepEqual(events[0].message.content, []);
    assert.equal(events[0].message.stop_reason, null);
    assert.equal(prompt(events[0].message), prompt(whole));
  });
  await t.test('the session is in the store, under the name in the id', async () => {
    const session = /^msg_(.+)-\d+$/.exec(whole.id)[1];
    const { response } = await client.messages.create({ ...ask, max_tokens: 1, stream: true }).withResponse();
    assert.match(await response.text(), new RegExp(`"id":"msg_${response.headers.get('x-session-id')}-0"`));
    const state = await parley.request({ type: 'session.get', session });
    assert.equal(state.type, 'session.state');
    assert.equal(state.turns.at(-1).text, textOf(whole));
  });
  await t.test('stop_sequences and max_tokens', async () => {
    const text = textOf(whole), stop = text.slice(4, 7);
    const stopped = await client.messages.create({ ...ask, stop_sequences: ['%%%', stop] });
    assert.equal(textOf(stopped).trimEnd(), text.slice(0, text.indexOf(stop)).trimEnd());
    assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', stop]);
    const short = await client.messages.create({ ...ask, max_tokens: 3 });
    assert.deepEqual([short.stop_reason, short.usage.output_tokens], ['max_tokens', 3]);
  });
  await t.test('the form of system, of content, and what is ignored, change nothing', async () => {
    const blocks = await client.messages.create({ ...ask, metadata: { user_id: 'u' }, service_tier: 'auto', thinking: { type: 'disabled' },
      system: [{ type: 'text', text: ask.system, cache_control: { type: 'ephemeral' } }],
      messages: [user([{ type: 'text', text: 'Tell me a story.', cache_control: { type: 'ephemeral' } }])] });
    assert.equal(textOf(blocks), textOf(whole));
    assert.equal(prompt(blocks), prompt(whole));
  });
  await t.test('a client that leaves cancels its turn', async () => {
    const stream = client.messages.stream({ ...ask, max_tokens: 3000 });
    const id = await new Promise((resolve, reject) => {
      stream.on('streamEvent', (event, message) => { if (event.type === 'content_block_delta') resolve(message.id); });
      stream.on('error', reject);
      stream.on('abort', () => {});
    });
    stream.abort();
    await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
    const [, session, turn] = /^msg_(.+)-(\d+)$/.exec(id);
    const ended = await until('the end of the turn', async () => {
      const state = await parley.request({ type: 'session.get', session });
      return state.turns?.find((each) => each.turn === Number(turn))?.finish_reason;
    });
    assert.ok(['cancelled', 'eos'].includes(ended), ended);
  });
});

longTest('a conversation that comes back whole is computed once', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = clientOf(server);
  const messages = [user('Tell me a story about a turtle.')];
  const system = 'You tell stories. '.repeat(12);
  let known = 1; // tokens of the turns before, answers included
  for (let turn = 0; turn < few(6) + 2; turn++) {
    const { input_tokens } = await client.messages.countTokens({ model: ask.model, system, messages });
    const answer = await client.messages.create({ ...ask, system, messages });
    assert.equal(prompt(answer), input_tokens, 'the count is what the model sees');
    // All that was there before, but for the token that was drawn last.
    assert.ok(answer.usage.cache_read_input_tokens >= known - 1, `turn ${turn}: ${answer.usage.cache_read_input_tokens} of ${known} tokens were known`);
    known = prompt(answer) + answer.usage.output_tokens;
    messages.push({ role: 'assistant', content: answer.content }, user(`And then? ${turn}`));
  }
});

longTest('top_p 0 leaves the most likely token', async (t) => {
  const client = clientOf(await Server.start(t, { args: unlimited }));
  const said = async (rest) => textOf(await client.messages.create({ ...ask, temperature: 2, ...rest }));
  assert.equal(await said({ top_p: 0, top_k: 40 }), await said({ temperature: 0 }));
});

longTest('max_tokens 0 computes the prompt, answers nothing, and leaves no session', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = clientOf(server);
  const system = 'You tell stories. '.repeat(40);
  const tools = [{ name: 'count', input_schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] } }];
  const { input_tokens } = await client.messages.countTokens({ model: ask.model, system, tools, messages: ask.messages });
  for (const rest of [{}, { stream: true }, { tool_choice: { type: 'any' } }, { output_config: { format: { type: 'json_schema', schema: { type: 'object', additionalProperties: false } } } }]) {
    const warmed = rest.stream ? await client.messages.stream({ ...ask, system, tools, max_tokens: 0 }).finalMessage()
      : await client.messages.create({ ...ask, system, tools, max_tokens: 0, ...rest });
    assert.deepEqual([warmed.content, warmed.stop_reason, warmed.stop_sequence, warmed.usage.output_tokens], [[], 'max_tokens', null, 0]);
    assert.equal(prompt(warmed), input_tokens);
  }
  const parley = await server.connect();
  await until('the sessions to be gone', async () => (await parley.request({ type: 'session.list' })).sessions.length === 0);
  const answer = await client.messages.create({ ...ask, system, tools });
  assert.ok(answer.usage.cache_read_input_tokens > input_tokens / 2, JSON.stringify(answer.usage));
  await refused(client.messages.create({ ...ask, max_tokens: -1 }), Anthropic.BadRequestError, 400, 'invalid_request_error', /^max_tokens: must be at least 0/);
  await refused(client.messages.create({ ...ask, max_tokens: 0, thinking: { type: 'enabled', budget_tokens: 1024 } }), Anthropic.BadRequestError, 400, 'invalid_request_error', /must be less than max_tokens \(0\)/);
});

// A template that opens the thinking: all that the demo model says is thinking then.
const thinking = `{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ (m.content or '') + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking %}{{ '<think>\n\n' }}{% endif %}{% endif %}`;

test('thinking is signed, and goes on with any signature, as a conversation of another server has', async (t) => {
  const folder = temporaryFolder(t), db = path.join(folder, 'parley.db'), template = path.join(folder, 'thinking.jinja');
  writeFileSync(template, thinking);
  const start = () => Server.start(t, { db, args: [...unlimited, '--chat-template', template] });
  let server = await start();
  let request, answer, block;
  for (let seed = 1; !(block?.thinking.length > 10); seed++) { // the model has learned to end there, and seldom does at this temperature
    request = { ...ask, max_tokens: 30, seed, temperature: 2, thinking: { type: 'adaptive' } };
    answer = await clientOf(server).messages.create(request);
    block = answer.content[0];
  }
  assert.equal(block.type, 'thinking');
  assert.ok(block.signature.length > 0);
  assert.ok(answer.usage.output_tokens_details.thinking_tokens > 0);
  const streamed = await clientOf(server).messages.stream(request).finalMessage();
  assert.deepEqual(streamed.content, answer.content);
  const off = await clientOf(server).messages.create({ ...request, thinking: undefined });
  assert.deepEqual(off.content.map((each) => each.type), ['text']);

  const goOn = (content) => clientOf(server).messages.create({ ...request, messages: [...request.messages, { role: 'assistant', content }, user('And then?')] });
  const said = { type: 'text', text: 'Once.' };
  const foreign = { type: 'thinking', thinking: 'I tell one.', signature: 'EqQBCkYIBRgCKkB4pzZ9pkf7oYsvjTbkq8i7wXz0' };
  const check = async () => {
    const inputs = [];
    for (const each of [block, { ...block, signature: foreign.signature }, { ...block, signature: '' }]) {
      const { usage } = await goOn([each, said]);
      inputs.push(usage.input_tokens + usage.cache_read_input_tokens);
    }
    assert.deepEqual(inputs, [inputs[0], inputs[0], inputs[0]]); // the model sees the same thinking
    assert.equal((await goOn([foreign, said])).type, 'message');
    const counts = await Promise.all([[foreign, said], [{ ...foreign, thinking: `${foreign.thinking} A long one, of a cat and a dog.` }, said]].map((content) =>
      clientOf(server).messages.countTokens({ model: ask.model, messages: [...request.messages, { role: 'assistant', content }, user('And then?')] })));
    assert.ok(counts[1].input_tokens > counts[0].input_tokens + 5); // its words are in the prompt
  };
  await check();
  await server.stop();
  server = await start();
  await check();
});

test('errors have Anthropic\'s form, and its client knows their classes', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = clientOf(server);
  const bad = (fields, sentence) => refused(client.messages.create({ ...ask, ...fields }), Anthropic.BadRequestError, 400, 'invalid_request_error', sentence);
  await refused(client.messages.create({ ...ask, model: 'claude' }), Anthropic.NotFoundError, 404, 'not_found_error', /^model: 'claude' does not exist/);
  await refused(client.messages.countTokens({ model: 'claude', messages: ask.messages }), Anthropic.NotFoundError, 404, 'not_found_error', /^model/);
  await refused(client.models.retrieve('claude'), Anthropic.NotFoundError, 404, 'not_found_error', /^model/);
  await bad({ max_tokens: undefined }, /^max_tokens: Field required$/);
  await bad({ messages: [] }, /^messages: at least one message is required$/);
  await bad({ messages: [user([{ type: 'image', source: { type: 'url', url: 'https://x' } }])] }, /^messages\.0\.content\.0\.type: 'image' is not served here/);
  await bad({ messages: [...ask.messages, { role: 'assistant', content: 'Once' }] }, /must end with a user message/);
  await bad({ messages: [user([{ type: 'tool_result', tool_use_id: 'x', content: 'y' }])] }, /unexpected `tool_use_id`/);
  await bad({ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, /^tools\.0\.type: 'web_search_20250305' is not served/);
  await bad({ thinking: { type: 'enabled', budget_tokens: 1024 } }, /^thinking\.enabled\.budget_tokens: must be less than max_tokens/);
  await bad({ temperature: -1 }, /temperature/);
  await bad({ messages: [user('word '.repeat(20000))] }, /^prompt is too long/);
  await assert.rejects(client.messages.stream({ ...ask, messages: [] }).finalMessage(), Anthropic.BadRequestError);
  await refused(client.messages.batches.list(), Anthropic.NotFoundError, 404, 'not_found_error', /nothing at this address/);
  const get = await fetch(`${server.url}/v1/messages`);
  assert.deepEqual([get.status, (await get.json()).error.type], [405, 'invalid_request_error']);
  assert.equal((await client.messages.create(ask)).type, 'message'); // and the server goes on
});

longTest('models are listed in Anthropic\'s form for its clients, and in OpenAI\'s for others', async (t) => {
  const server = await Server.start(t);
  const client = clientOf(server);
  const all = [];
  for await (const model of client.models.list()) all.push(model);
  assert.deepEqual(all.map(({ id, type, display_name }) => [id, type, display_name]), [['demo-model', 'model', 'demo-model']]);
  assert.ok(Math.abs(Date.parse(all[0].created_at) - Date.now()) < 3600000);
  assert.equal((await client.models.retrieve('demo-model')).id, 'demo-model');
  assert.equal((await client.get('/v1/models/')).data[0].id, 'demo-model');
  const list = await (await fetch(`${server.url}/v1/models`)).json();
  assert.equal(list.object, 'list');
  assert.deepEqual(await (await fetch(`${server.url}/v1/models/demo-model`)).json(), list.data[0]);
});

longTest('tokens come as x-api-key or as bearer, and limits have their headers', async (t) => {
  const ALICE = 'alice-token-of-thirty-two-characters', BOB = 'bob-token-of-thirty-two-characters!!';
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, `alice:${ALICE}\nbob:${BOB} requests_per_minute=12 tokens_per_minute=100000\n`, { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  const small = { ...ask, max_tokens: 2 };
  assert.equal((await clientOf(server, ALICE).messages.create(small)).type, 'message');
  const bearer = new Anthropic({ baseURL: server.url, apiKey: null, authToken: ALICE, maxRetries: 0 });
  assert.equal((await bearer.messages.create(small)).type, 'message');
  assert.equal((await clientOf(server, ALICE).models.list()).data.length, 1);
  await refused(clientOf(server, 'wrong-token-of-thirty-two-characters').messages.create(small), Anthropic.AuthenticationError, 401, 'authentication_error', /token/);
  const none = await fetch(`${server.url}/v1/messages`, { method: 'POST', body: '{}', headers: { connection: 'close' } });
  assert.deepEqual([none.status, (await none.json()).error.type], [401, 'authentication_error']);

  const bob = clientOf(server, BOB);
  const { response } = await bob.messages.create(small).withResponse(); // of 3 at once
  assert.equal(response.headers.get('anthropic-ratelimit-requests-limit'), '12');
  assert.ok(Number(response.headers.get('anthropic-ratelimit-requests-remaining')) < 3);
  assert.ok(Date.parse(response.headers.get('anthropic-ratelimit-requests-reset')) > 0);
  assert.equal(response.headers.get('anthropic-ratelimit-tokens-limit'), '100000');
  const limited = await until('the limit', async () => bob.messages.countTokens({ model: ask.model, messages: ask.messages }).then(() => null, (e) => e));
  assert.ok(limited instanceof Anthropic.RateLimitError, limited.message);
  assert.equal(limited.error.error.type, 'rate_limit_error');
  assert.ok(Number(limited.headers.get('retry-after')) >= 1);
  assert.equal(limited.headers.get('anthropic-ratelimit-requests-remaining'), '0');
});

/** A request whose bytes are ours: { status, text } of the reply. */
function raw(server, head, body = '') {
  return new Promise((resolve, reject) => {
    const socket = net.connect(server.port, '127.0.0.1');
    let text = '';
    socket.on('data', (bytes) => { text += bytes; });
    socket.on('close', () => resolve({ status: Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]), text }));
    socket.on('error', reject);
    socket.write(`POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${head}\r\n\r\n`);
    socket.write(body);
  });
}

longTest('hostile requests get an error in Anthropic\'s form, and the server goes on', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const send = (body) => raw(server, `Content-Length: ${Buffer.byteLength(body)}`, body);
  const deep = (n) => `{"model":"demo-model","max_tokens":1,"messages":[{"role":"user","content":${'['.repeat(n)}${']'.repeat(n)}}]}`;
  const bodies = ['', '{', 'null', '7', '"x"', '[]', '{"model":7}', deep(20), deep(100000), '{"model":"demo-model","max_tokens":1e999,"messages":[{"role":"user","content":"x"}]}',
    '{"model":"demo-model","model":"x"}', Buffer.from('{"model":"demo-model","max_tokens":1,"messages":[{"role":"user","content":"\xff"}]}', 'latin1'),
    `{"model":"demo-model","max_tokens":1,"messages":[${'{"role":"assistant","content":[]},'.repeat(5000)}{"role":"user","content":[]}]}`,
    `{"model":"${'m'.repeat(100000)}","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`,
    `{"model":"demo-model","max_tokens":1,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[${Array.from({ length: 2000 }, (_, i) => `{"type":"tool_use","id":"${i}","name":"f","input":{}}`)}]}]}`];
  for (const body of bodies) {
    const { status, text } = await send(body);
    assert.ok(status === 400 || status === 404, `${String(body).slice(0, 80)}: ${text.slice(0, 300)}`);
    const error = JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4));
    assert.equal(error.type, 'error');
    assert.match(error.request_id, /^req_/);
    assert.match(text, new RegExp(`^request-id: ${error.request_id}\r$`, 'mi'));
  }
  const large = await raw(server, 'Content-Length: 99999999999');
  assert.equal(large.status, 413);
  assert.match(large.text, /"type":"request_too_large"/);
  assert.equal((await raw(server, 'Content-Length: 3\r\nTransfer-Encoding: chunked')).status, 400);
  // Clients that leave at any moment of a stream.
  await Promise.all(Array.from({ length: few(20) }, (_, i) => new Promise((resolve) => {
    const request = http.request(`${server.url}/v1/messages`, { method: 'POST' }, (reply) => {
      reply.on('error', () => {});
      reply.once('data', () => setTimeout(() => request.destroy(), i * 3));
    });
    request.on('error', () => {}).on('close', resolve);
    request.end(JSON.stringify({ ...ask, stream: true, max_tokens: 3000 }));
    setTimeout(() => request.destroy(), i % 2 ? 20000 : i * 7);
  })));
  await until('all turns to end', async () => (await server.metric('parley_engine_requests_running')) === 0);
  assert.equal((await clientOf(server).messages.create(ask)).type, 'message');
});

// A template with tools, in the syntax of Hermes and Qwen. The demo model has not learned it: only what is forced is a call.
const hermes = `{{ bos_token }}{% if tools %}{{ '<|im_start|>system\nCall a tool by <tool_call>: ' }}{% for t in tools %}{{ t | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}{% for c in m.tool_calls or [] %}{{ '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`;
const tools = [
  { name: 'weather', description: 'The weather of a place', input_schema: { type: 'object', properties: { place: { $ref: '#/$defs/place' }, unit: { enum: ['C', 'F'] } },
    required: ['place', 'unit'], additionalProperties: false, $defs: { place: { enum: ['Paris', 'Oslo'] } } } },
  { name: 'clock', input_schema: { type: 'object', properties: { hours: { type: 'integer', minimum: 0, maximum: 23 } }, required: ['hours'], additionalProperties: false } },
];

test('tools are called, and their results go back', async (t) => {
  const template = path.join(temporaryFolder(t), 'hermes.jinja');
  writeFileSync(template, hermes);
  const server = await Server.start(t, { args: [...unlimited, '--chat-template', template] });
  const client = clientOf(server);
  const request = { model: ask.model, max_tokens: 200, temperature: 1, messages: [user('What is the weather in Paris?')], tools };
  const { max_tokens: _, temperature: __, ...counted } = request;
  const right = ({ name, input }) => (name === 'weather' ? ['Paris', 'Oslo'].includes(input.place) && ['C', 'F'].includes(input.unit) && Object.keys(input).length === 2
    : name === 'clock' && Number.isInteger(input.hours) && input.hours >= 0 && input.hours < 24);

  await t.test('their descriptions count, and are seen by the model', async () => {
    const [without, withTools] = [await client.messages.countTokens({ ...counted, tools: undefined }), await client.messages.countTokens(counted)];
    assert.ok(withTools.input_tokens > without.input_tokens + 50);
    const answer = await client.messages.create({ ...request, max_tokens: 10 });
    assert.equal(prompt(answer), withTools.input_tokens);
    const none = await client.messages.create({ ...request, max_tokens: 10, tool_choice: { type: 'none' } });
    assert.ok(none.content.every((block) => block.type === 'text'));
  });
  await t.test('the SDK\'s runner, which would have the server keep the thread, sends it whole', async () => {
    const inputs = [];
    const clock = { ...tools.find(({ name }) => name === 'clock'), type: 'custom', parse: (input) => input, run: (input) => { inputs.push(input); return 'noon'; } };
    const runner = client.beta.messages.toolRunner({ ...request, tools: [clock], tool_choice: { type: 'any' }, max_iterations: 2 });
    const last = await runner;
    assert.equal(last.stop_reason, 'tool_use');
    assert.equal(inputs.length, 2);
    assert.ok(last.usage.cache_read_input_tokens > 0, JSON.stringify(last.usage));
    await assert.rejects(client.beta.messages.create({ ...request, thread: { type: 'create' } }), (e) => e.status === 400 && /^thread: /.test(e.error.error.message)
      && e.error.error.details.error_code === 'thread_unsupported_request' && e.error.error.details.unsupported[0] === 'thread');
  });
  await t.test('any: one of them, with arguments of its schema', async () => {
    for (let seed = 1; seed <= few(10); seed++) {
      const answer = await client.messages.create({ ...request, seed, tool_choice: { type: 'any' } });
      assert.equal(answer.stop_reason, 'tool_use', JSON.stringify(answer));
      assert.deepEqual(answer.content.map((block) => block.type), ['tool_use']);
      assert.ok(right(answer.content[0]), JSON.stringify(answer.content));
      assert.ok(answer.content[0].id.length > 4);
    }
  });
  await t.test('a named one, streamed in pieces; its result is answered', async () => {
    const choice = { type: 'tool', name: 'clock', disable_parallel_tool_use: true };
    const pieces = [];
    const answer = await client.messages.stream({ ...request, seed: 3, tool_choice: choice }).on('inputJson', (piece) => pieces.push(piece)).finalMessage();
    const [call] = answer.content;
    assert.deepEqual([answer.stop_reason, answer.content.length, call.type, call.name], ['tool_use', 1, 'tool_use', 'clock']);
    assert.ok(right(call), JSON.stringify(call));
    assert.deepEqual(JSON.parse(pieces.join('')), call.input);
    const whole = await client.messages.create({ ...request, seed: 3, tool_choice: choice });
    assert.deepEqual(whole.content.map(({ name, input }) => [name, input]), [[call.name, call.input]]);
    const messages = [...request.messages, { role: 'assistant', content: answer.content },
      user([{ type: 'tool_result', tool_use_id: call.id, content: '12:00' }, { type: 'text', text: 'Now tell me a story.' }])];
    const next = await client.messages.create({ ...request, messages, max_tokens: 10, tool_choice: { type: 'none' } });
    assert.equal(prompt(next), (await client.messages.countTokens({ ...counted, messages })).input_tokens);
    assert.ok(next.usage.cache_read_input_tokens > 0);
    await refused(client.messages.create({ ...request, messages: messages.slice(0, 2).concat(user('And?')) }), Anthropic.BadRequestError, 400, 'invalid_request_error',
      /`tool_use` ids were found without `tool_result` blocks/);
  });
  await t.test('what cannot be forced is refused', async () => {
    await refused(client.messages.create({ ...request, max_tokens: 2000, tool_choice: { type: 'any' }, thinking: { type: 'enabled', budget_tokens: 1024 } }),
      Anthropic.BadRequestError, 400, 'invalid_request_error', /thinking/);
    await refused(client.messages.create({ ...request, tool_choice: { type: 'any' }, output_config: { format: { type: 'json_schema', schema: { type: 'object' } } } }),
      Anthropic.BadRequestError, 400, 'invalid_request_error', /tool call/);
  });
});

longTest('an answer has the form of a schema', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const schema = { type: 'object', properties: { name: { type: 'string', maxLength: 20 }, age: { type: 'integer', minimum: 0, maximum: 120 } }, required: ['name', 'age'], additionalProperties: false };
  for (let seed = 1; seed <= few(5); seed++) {
    const answer = await clientOf(server).messages.create({ ...ask, seed, max_tokens: 200, temperature: 2, output_config: { format: { type: 'json_schema', schema } } });
    const value = JSON.parse(textOf(answer));
    assert.deepEqual(Object.keys(value).sort(), ['age', 'name']);
    assert.ok(Number.isInteger(value.age) && value.age >= 0 && value.age <= 120 && value.name.length <= 20, textOf(answer));
    assert.equal(answer.stop_reason, 'end_turn');
  }
});
