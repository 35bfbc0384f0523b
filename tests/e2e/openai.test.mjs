// POST /v1/chat/completions by OpenAI's own client: on the demo model, and on fake sessions for what the wire must do.
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { few, longTest, Server, shortTest as test, unlimited } from './harness.mjs';
import { clientOf, sessionOf } from './openai_client.mjs';
import { residentMib } from './processes.mjs';
import { Wire, sleep, temporaryFolder, until } from './wire.mjs';

const user = (content) => [{ role: 'user', content }];

test('the demo model answers, whole and streamed, with the same words for the same seed', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const parley = await server.connect();
  const ask = { model: parley.hello.models[0].name, messages: [{ role: 'system', content: 'You tell stories.' }, ...user('Tell me a story.')],
    seed: 7, temperature: 0.8, top_p: 0.9, max_tokens: 24 };
  const whole = await openai.chat.completions.create(ask);
  assert.match(whole.id, /^chatcmpl-[0-9a-f]{32}-0$/);
  assert.equal(whole.object, 'chat.completion');
  assert.equal(whole.choices.length, 1);
  assert.equal(whole.choices[0].message.role, 'assistant');
  assert.equal(whole.choices[0].message.refusal, null);
  assert.ok(['stop', 'length'].includes(whole.choices[0].finish_reason));
  assert.ok(whole.usage.prompt_tokens > 5 && whole.usage.completion_tokens > 0 && whole.usage.completion_tokens <= 24);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);

  const chunks = [];
  for await (const chunk of await openai.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) chunks.push(chunk);
  assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
  assert.equal(chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), whole.choices[0].message.content);
  assert.equal(chunks.at(-2).choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual({ ...chunks.at(-1).usage, prompt_tokens_details: 0 }, { ...whole.usage, prompt_tokens_details: 0 });

  await t.test('a refusal names the message, its member and its place', async () => {
    const cases = [
      [{ role: 'narrator', content: 'x' }, 'role'], [{ role: 'user', content: 5 }, 'content'], [{ role: 'user' }, 'content'], ['x', 'role'],
      [{ role: 'user', content: [{ type: 'text', text: 'x' }, { type: 'image_url', image_url: { url: 'http://127.0.0.1/' } }] }, 'content[1]'],
      [{ role: 'assistant', tool_calls: 3 }, 'tool_calls'], [{ role: 'assistant', tool_calls: [{ id: 'a' }] }, 'tool_calls'],
    ];
    for (const [wrong, member] of cases)
      await assert.rejects(openai.chat.completions.create({ ...ask, messages: [...ask.messages, { role: 'assistant', content: 'a' }, { role: 'assistant', content: 'b' }, wrong] }),
        (e) => e.status === 400 && e.param === `messages[4].${member}` && e.error.message.startsWith(`messages[4].${member} `));
  });
  await t.test('models: all, one, and none of this name', async () => {
    const { data } = await openai.models.list();
    const length = parley.hello.models[0].session_len; // under the names of vLLM, OpenRouter and Groq
    assert.ok(length > 0);
    assert.deepEqual([data[0].max_model_len, data[0].context_length, data[0].context_window], [length, length, length]);
    assert.equal(data[0].weight_format, 'bf16');
    assert.deepEqual(await openai.models.retrieve(ask.model), data[0]);
    assert.deepEqual((await (await fetch(`${server.url}/v1/models/`)).json()).data, data);
    await assert.rejects(openai.models.retrieve('gpt-9'), (e) => e.status === 404 && e.code === 'model_not_found' && e.param === 'model');
  });
  await t.test('every reply has a number of its own', async () => {
    const ids = new Set();
    for (const stream of [false, true]) {
      const { data, request_id } = await openai.chat.completions.create({ ...ask, stream }).withResponse();
      if (stream) for await (const chunk of data) assert.equal(chunk.object, 'chat.completion.chunk');
      ids.add(request_id);
    }
    await assert.rejects(openai.chat.completions.create({ ...ask, n: 0 }), (e) => Boolean(ids.add(e.requestID)));
    assert.equal(ids.size, 3);
    for (const id of ids) assert.match(id, /^req_[0-9a-f]{32}$/);
  });
  await t.test('seeds have 64 bits and a sign, and each counts', async () => {
    const drawn = async (seed) => {
      const body = JSON.stringify({ ...ask, temperature: 1.5 }).replace('"seed":7', `"seed":${seed}`);
      const reply = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body });
      assert.equal(reply.status, 200, seed);
      return (await reply.json()).choices[0].message.content;
    };
    const seeds = ['-1', '-9223372036854775808', '9007199254740992', '9007199254740993', '9223372036854775807'];
    const texts = [];
    for (const seed of seeds) texts.push(await drawn(seed));
    assert.equal(new Set(texts).size, seeds.length);
    assert.equal(await drawn('-1'), texts[0]);
    assert.equal(await drawn('"18446744073709551615"'), texts[0]);
    for (const seed of [1.5, 2 ** 70, 'x']) await assert.rejects(openai.chat.completions.create({ ...ask, seed }), (e) => e.status === 400 && e.param === 'seed');
  });
  await t.test('top_p 0 leaves the most likely token', async () => {
    const said = async (rest) => (await openai.chat.completions.create({ ...ask, temperature: 2, ...rest })).choices[0].message.content;
    assert.equal(await said({ top_p: 0, seed: 1 }), await said({ temperature: 0 }));
    const response = await openai.responses.create({ model: ask.model, input: 'Tell me a story.', top_p: 0, max_output_tokens: 16 });
    assert.equal(response.top_p, 0);
    const [text] = (await openai.completions.create({ model: ask.model, prompt: 'Once', temperature: 2, top_p: 0 })).choices;
    assert.equal(text.text, (await openai.completions.create({ model: ask.model, prompt: 'Once', temperature: 0 })).choices[0].text);
    await assert.rejects(openai.chat.completions.create({ ...ask, top_p: -0.1 }), (e) => e.status === 400 && e.param === 'top_p');
    await assert.rejects(openai.chat.completions.create({ ...ask, top_p: 0, temperature: -1 }), (e) => e.status === 400 && e.param === 'temperature');
  });
  await t.test("other servers' keys, in each request", async () => {
    const forms = [
      [openai.chat.completions, { messages: ask.messages, max_tokens: 300 }, (a) => [a.choices[0].finish_reason, a.choices[0].message.content]],
      [openai.completions, { prompt: 'Once', max_tokens: 300 }, (a) => [a.choices[0].finish_reason, a.choices[0].text]],
      [openai.responses, { input: 'Tell me a story.', max_output_tokens: 300 }, (a) => [a.incomplete_details?.reason, a.output_text]],
    ];
    for (const [api, body, read] of forms) {
      const said = async (rest) => read(await api.create({ model: ask.model, ...body, ...rest }));
      const [end] = await said({ ignore_eos: true, seed: 1 });
      assert.match(end, /^(length|max_output_tokens)$/);
      assert.deepEqual(await said({ top_k: 1, temperature: 2, seed: 3 }), await said({ temperature: 0 }));
      assert.deepEqual(await said({ top_k: -1, seed: 3 }), await said({ seed: 3 }), 'all tokens');
      await assert.rejects(api.create({ model: ask.model, ...body, min_p: 2 }), (e) => e.status === 400 && e.param === 'min_p');
      for (const key of ['json_schema', 'guided_json']) assert.equal((await said({ [key]: { const: 5 } }))[1].trim(), '5', key);
      await assert.rejects(api.create({ model: ask.model, ...body, json_schema: { type: 'nothing' } }), (e) => e.status === 400 && /^400 json_schema: .*type/.test(e.message));
    }
  });
  await t.test('no tokens are not all tokens', async () => {
    for (const key of ['max_tokens', 'max_completion_tokens'])
      await assert.rejects(openai.chat.completions.create({ ...ask, [key]: 0 }), (e) => e.status === 400 && e.param === key && /at least 1/.test(e.message));
  });
  await t.test('an address of theirs that is not served', async () => {
    for (const call of [openai.files.list(), openai.moderations.create({ input: 'x' })])
      await assert.rejects(call, (e) => e.status === 404 && e.type === 'invalid_request_error' && e.code === 'not_found');
  });
  await t.test('the session is in the store, which the id of the completion names', async () => {
    const state = await parley.request({ type: 'session.get', session: sessionOf(whole.id) });
    assert.equal(state.session.system, 'You tell stories.');
    assert.equal(state.turns.length, 1);
    assert.equal(state.turns[0].text, whole.choices[0].message.content);
    assert.equal(state.turns[0].sampling.seed, '7');
  });
  await t.test('a conversation goes on', async () => {
    const longer = await openai.chat.completions.create({ ...ask, messages: [...ask.messages, whole.choices[0].message, ...user('And then?')] });
    assert.ok(longer.usage.prompt_tokens > whole.usage.prompt_tokens + whole.usage.completion_tokens);
  });
  await t.test('stop, and max_completion_tokens over max_tokens', async () => {
    const text = whole.choices[0].message.content;
    const stop = text.slice(4, 7);
    const stopped = await openai.chat.completions.create({ ...ask, stop });
    assert.equal(stopped.choices[0].message.content, text.slice(0, text.indexOf(stop)));
    assert.equal(stopped.choices[0].finish_reason, 'stop');
    const { choices: [logged] } = await openai.chat.completions.create({ ...ask, stop, logprobs: true });
    const streamed = [];
    for await (const { choices: [choice] } of await openai.chat.completions.create({ ...ask, stop, logprobs: true, stream: true }))
      streamed.push(...choice?.logprobs?.content ?? []);
    assert.deepEqual(streamed.map((one) => one.token), logged.logprobs.content.map((one) => one.token));
    const said = stopped.choices[0].message.content, words = streamed.map((one) => one.token).join('');
    assert.ok(words.startsWith(said) && words.length - streamed.at(-1).token.length < said.length, `${words}: a token of the stop sequence alone`);
    const short = await openai.chat.completions.create({ ...ask, max_completion_tokens: 3 });
    assert.deepEqual([short.usage.completion_tokens, short.choices[0].finish_reason], [3, 'length']);
  });
  await t.test('several answers, and their log-probabilities', async () => {
    const several = await openai.chat.completions.create({ ...ask, n: 3, logprobs: true, top_logprobs: 2 });
    assert.deepEqual(several.choices.map((c) => c.index), [0, 1, 2]);
    for (const choice of several.choices) {
      assert.ok(choice.message.content.length > 0 && ['stop', 'length'].includes(choice.finish_reason));
      const bytes = choice.logprobs.content.flatMap((token) => token.bytes);
      assert.equal(Buffer.from(bytes).toString(), choice.message.content);
      for (const token of choice.logprobs.content) assert.ok(Number.isFinite(token.logprob) && token.logprob <= 0);
    }
    assert.equal(several.choices[0].logprobs.content[0].top_logprobs.length, 2);
    const parts = ['', '', ''];
    for await (const chunk of await openai.chat.completions.create({ ...ask, n: 3, stream: true }))
      for (const choice of chunk.choices) parts[choice.index] += choice.delta.content ?? '';
    assert.deepEqual(parts, several.choices.map((c) => c.message.content));
  });
  await t.test('several answers are streamed side by side', async () => {
    const order = [];
    // So long that no pause of a busy machine holds all of it.
    const several = { ...ask, n: 3, max_tokens: few(1000), ignore_eos: true, logprobs: true, top_logprobs: 2, logit_bias: {} };
    for await (const chunk of await openai.chat.completions.create({ ...several, stream: true }))
      for (const choice of chunk.choices) {
        if (choice.delta.content) order.push(choice.index);
        if (choice.delta.content) assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
      }
    for (const index of [0, 1, 2]) assert.ok(order.includes(index));
    const ends = [0, 1, 2].map((index) => order.lastIndexOf(index));
    for (const index of [0, 1, 2]) assert.ok(order.indexOf(index) < Math.min(...ends), order.join(''));
  });
  await t.test('a client that leaves cancels its turn', async () => {
    const stream = await openai.chat.completions.create({ ...ask, max_tokens: 3000, logit_bias: {}, stream: true });
    let id;
    for await (const chunk of stream) {
      id = chunk.id;
      if (chunk.choices[0].delta.content) break;
    }
    stream.controller.abort();
    const turn = await until('the end of the turn', async () => (await parley.request({ type: 'session.get', session: sessionOf(id) })).turns[0]?.finish_reason);
    assert.ok(['cancelled', 'eos'].includes(turn), turn);
  });
  await t.test('what does not fit says so', async () => {
    await assert.rejects(openai.chat.completions.create({ ...ask, messages: user('word '.repeat(100000)) }),
      (e) => e.status === 400 && e.code === 'context_length_exceeded' && e.param === 'messages' && e.type === 'invalid_request_error');
  });
});

longTest('errors have OpenAI\'s form', async (t) => {
  const wire = await Wire.start(t);
  const openai = clientOf(wire);
  const refused = async (body, status, code, param) => {
    await assert.rejects(openai.chat.completions.create({ model: 'fake', messages: user('x'), ...body }), (e) => {
      assert.deepEqual([e.status, e.code, e.param], [status, code, param], `${JSON.stringify(body)}: ${e.message}`);
      assert.equal(e.type, status >= 500 ? 'server_error' : 'invalid_request_error');
      return true;
    });
  };
  await refused({ model: 'gpt-9' }, 404, 'model_not_found', 'model');
  await refused({ model: 3 }, 400, 'invalid_value', 'model');
  await refused({ messages: [] }, 400, 'invalid_value', 'messages');
  await refused({ messages: 'x' }, 400, 'invalid_value', 'messages');
  await refused({ messages: [{ role: 'function', content: 'x' }] }, 400, 'invalid_value', 'messages[0].role');
  await refused({ messages: [{ role: 'assistant', tool_calls: [{}] }] }, 400, 'invalid_value', 'messages[0].tool_calls');
  await refused({ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }, 400, 'unsupported', 'messages[0].content[0]');
  await refused({ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 400, 'invalid_value', 'messages[0].content[0]');
  await refused({ verbosity: 'chatty' }, 400, 'invalid_value', 'verbosity');
  await refused({ moderation: { model: 'm' } }, 400, 'invalid_value', 'moderation');
  await refused({ temperature: -1 }, 400, 'invalid_value', 'temperature');
  await refused({ top_p: 'x' }, 400, 'invalid_value', 'top_p');
  await refused({ stop: Array(65).fill('a') }, 400, 'invalid_value', 'stop');
  await refused({ stream: 'yes' }, 400, 'invalid_value', 'stream');
  await refused({ n: 1000 }, 400, 'invalid_value', 'n');
  await refused({ logprobs: 1 }, 400, 'invalid_value', 'logprobs');
  await refused({ top_logprobs: 2 }, 400, 'invalid_value', 'top_logprobs');
  await refused({ logit_bias: { x: 1 } }, 400, 'invalid_value', 'logit_bias');
  await refused({ tools: [{ type: 'function' }] }, 400, 'invalid_value', 'tools');
  await refused({ tools: [{ type: 'function', function: { name: 'f' } }] }, 400, 'unsupported', 'tools');
  await refused({ tool_choice: 'required' }, 400, 'invalid_value', 'tool_choice');
  await refused({ functions: [] }, 400, 'invalid_value', 'functions');
  const parts = await openai.chat.completions.create({ model: 'fake', metadata: { a: 'b' }, user: 'me', store: true, n: 1, response_format: { type: 'text' },
    messages: user([{ type: 'text', text: 'two ' }, { type: 'text', text: 'parts' }]) });
  assert.equal(parts.choices[0].message.content, 'two parts');
  const raw = await wire.raw('POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{"a":');
  assert.equal(JSON.parse(raw.text.split('\r\n\r\n')[1]).error.code, 'invalid_json');
  const get = await wire.get('/v1/chat/completions');
  assert.equal(get.status, 405);
  assert.match(get.text, /allow: POST\r\n/);
  assert.deepEqual(Object.keys(JSON.parse(get.text.split('\r\n\r\n')[1]).error), ['message', 'type', 'param', 'code']);
});

test('tokens', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, 'alice:alice-token-0123456789\n');
  chmodSync(file, 0o600);
  const wire = await Wire.start(t, { args: ['--token-file', file] });
  const ask = { model: 'fake', messages: user('hello') };
  assert.equal((await clientOf(wire, 'alice-token-0123456789').chat.completions.create(ask)).choices[0].message.content, 'hello');
  for (const key of ['wrong', 'alice-token-012345678', ''])
    await assert.rejects(clientOf(wire, key).chat.completions.create(ask), (e) => e.status === 401 && e.code === 'invalid_api_key');
  const alice = await wire.connect({ token: 'alice-token-0123456789' });
  assert.equal((await alice.request({ type: 'session.list' })).sessions.length, 1);
});

test('a streamed answer as it is on the wire', async (t) => {
  const wire = await Wire.start(t);
  const body = JSON.stringify({ model: 'fake', messages: user('count 3'), stream: true });
  const request = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const next = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
  const { text } = await wire.raw(request + next); // the connection goes on behind the stream
  const head = text.slice(0, text.indexOf('\r\n\r\n'));
  assert.match(head, /200 OK/);
  for (const line of ['content-type: text/event-stream', 'transfer-encoding: chunked', 'cache-control: no-cache', 'x-accel-buffering: no', 'x-content-type-options: nosniff'])
    assert.ok(head.includes(line), line);
  const [stream, rest] = text.slice(head.length + 4).split('0\r\n\r\n');
  assert.match(rest, /^HTTP\/1\.1 200 OK/);
  const events = stream.split(/\r\n[0-9a-f]+\r\n|^[0-9a-f]+\r\n|\r\n$/).join('').split('\n\n').filter(Boolean);
  assert.equal(events.at(-1), 'data: [DONE]');
  assert.equal(events.slice(0, -1).map((e) => JSON.parse(e.slice(6)).choices[0].delta.content ?? '').join(''), 'w0 w1 w2 ');
  const old = await wire.raw(request.replace('HTTP/1.1', 'HTTP/1.0')); // without chunks, to the end of the connection
  assert.ok(old.closed && !/transfer-encoding/.test(old.text) && old.text.endsWith('data: [DONE]\n\n'), old.text);
});

longTest('a slow reader of a stream costs no memory, delays nothing, and gets all or a cut', async (t) => {
  const wire = await Wire.start(t, { args: ['--slow-reader-timeout', '2'] });
  const memory = () => residentMib(wire);
  const body = JSON.stringify({ model: 'fake', messages: user('flood 20000 1000'), stream: true });
  const request = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`;
  const all = await wire.raw(request);
  assert.ok(all.text.length > 20000 * 1000 && all.text.endsWith('data: [DONE]\n\n\r\n0\r\n\r\n'), all.text.slice(-100));
  const before = memory();
  const slow = wire.socket();
  slow.pause();
  slow.write(request);
  await sleep(500);
  const neighbour = await wire.connect();
  assert.equal((await neighbour.request({ type: 'ping' })).type, 'pong');
  // The fake's session keeps the 20 MB of the answer; a copy for the reader would be as much again.
  assert.ok(wire.sanitized || memory() - before < 32, `${memory() - before} MiB for one slow reader`);
  await until('the cut', async () => (await wire.metric('parley_followers')) === 1);
  slow.destroy();
});
