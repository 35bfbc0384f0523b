// POST /v1/responses and what belongs to it, by OpenAI's own client on the demo model.
import assert from 'node:assert/strict';
import { few, longTest, Server, shortTest as test, unlimited, until } from './harness.mjs';
import { clientOf, refused } from './openai_client.mjs';

const model = 'demo-model';
const all = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};

test('a response, whole and streamed', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, input: 'Tell me a story.', instructions: 'You tell stories.', seed: 7, temperature: 0.8, max_output_tokens: few(24), metadata: { topic: 'x"y' } };
  const whole = await openai.responses.create(ask);
  assert.match(whole.id, /^resp_[0-9a-f]{32}-0$/);
  assert.equal(whole.object, 'response');
  assert.ok(['completed', 'incomplete'].includes(whole.status));
  assert.deepEqual([whole.instructions, whole.metadata, whole.temperature, whole.store], [ask.instructions, ask.metadata, 0.8, true]);
  assert.equal(whole.output[0].type, 'message');
  assert.equal(whole.output[0].id, whole.id.replace('resp_', 'msg_') + '-0');
  assert.ok(whole.output_text.length > 0);
  assert.equal(whole.usage.total_tokens, whole.usage.input_tokens + whole.usage.output_tokens);

  const events = await all(await openai.responses.create({ ...ask, stream: true }));
  assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
  const types = events.map((e) => e.type);
  assert.deepEqual(types.slice(0, 4), ['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added']);
  assert.deepEqual(types.slice(-4), ['response.output_text.done', 'response.content_part.done', 'response.output_item.done', `response.${whole.status}`]);
  assert.equal(events.map((e) => (e.type === 'response.output_text.delta' ? e.delta : '')).join(''), whole.output_text);
  const last = events.at(-1).response;
  assert.equal(last.output[0].content[0].text, whole.output_text);
  assert.deepEqual(last.usage.output_tokens, whole.usage.output_tokens);

  await t.test('what the request left open is filled in', async () => {
    for (const text of [{}, { format: null }, { verbosity: 'medium' }, { verbosity: 'low' }]) {
      const response = await openai.responses.create({ ...ask, text, reasoning: { effort: 'max' } });
      assert.deepEqual([response.text.format, response.reasoning.effort], [{ type: 'text' }, 'max']);
    }
  });
  await t.test('the client\'s own helper reads the stream', async () => {
    const stream = openai.responses.stream({ ...ask });
    const final = await stream.finalResponse();
    assert.equal(final.output[0].content[0].text, whole.output_text);
  });
  await t.test('GET gives the same again, whole and from any event on', async () => {
    const { output_text, ...rest } = whole;
    assert.deepEqual(JSON.parse(JSON.stringify({ ...(await openai.responses.retrieve(whole.id)), output_text: undefined })), rest);
    assert.equal(output_text, whole.output_text);
    for (const after of [0, 3, 7, events.length - 2]) {
      const again = await all(await openai.responses.retrieve(last.id, { stream: true, starting_after: after }));
      assert.deepEqual(again, events.slice(after + 1));
    }
    assert.deepEqual(await all(await openai.responses.retrieve(last.id, { stream: true })), events);
  });
  await t.test('its input items', async () => {
    const items = await openai.responses.inputItems.list(whole.id);
    assert.deepEqual(items.data.map((i) => [i.type, i.role, i.content[0].text]), [['message', 'user', ask.input]]);
    assert.equal(items.has_more, false);
  });
  await t.test('the session is in the page, under the id', async () => {
    const parley = await server.connect();
    const session = /^resp_(.*)-0$/.exec(whole.id)[1];
    const state = await parley.request({ type: 'session.get', session });
    assert.equal(state.turns[0].text, whole.output_text);
  });
  await t.test('deleting', async () => {
    await openai.responses.delete(whole.id);
    await refused(openai.responses.retrieve(whole.id), 404, 'response_not_found', null);
    await refused(openai.responses.create({ ...ask, previous_response_id: whole.id }), 400, 'previous_response_not_found', 'previous_response_id');
  });
  await t.test('store: false keeps nothing', async () => {
    const gone = await openai.responses.create({ ...ask, store: false });
    await until('the response to go', () => openai.responses.retrieve(gone.id).then(() => false, (e) => e.status === 404));
  });
});

test('previous_response_id goes on in the cache', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, seed: 3, max_output_tokens: 8 };
  const chain = [await openai.responses.create({ ...ask, input: 'Tell me a story.' })];
  for (const input of ['And then?', [{ role: 'user', content: 'Who was there?' }], 'Why?'])
    chain.push(await openai.responses.create({ ...ask, input, previous_response_id: chain.at(-1).id }));
  for (let i = 1; i < chain.length; i++) {
    const before = chain[i - 1].usage;
    const now = chain[i].usage;
    // All but the last token, which has not been through the model, and what is new.
    assert.equal(now.input_tokens_details.cached_tokens, before.input_tokens + before.output_tokens - 1);
    assert.ok(now.input_tokens > before.input_tokens + before.output_tokens);
    assert.equal(chain[i].previous_response_id, chain[i - 1].id);
  }
  await t.test('a fork takes what both share', async () => {
    const fork = await openai.responses.create({ ...ask, input: 'Stop.', previous_response_id: chain[1].id });
    const { usage } = chain[1];
    assert.ok(fork.usage.input_tokens < chain[3].usage.input_tokens);
    assert.ok(fork.usage.input_tokens_details.cached_tokens >= usage.input_tokens + usage.output_tokens - 1);
    const on = await openai.responses.create({ ...ask, input: 'Go on.', previous_response_id: chain[3].id });
    assert.ok(on.usage.input_tokens > chain[3].usage.input_tokens);
    assert.equal((await openai.responses.retrieve(fork.id)).output_text, fork.output_text);
  });
  await t.test('other instructions are another conversation', async () => {
    const other = await openai.responses.create({ ...ask, input: 'Stop.', instructions: 'Be brief.', previous_response_id: chain[1].id });
    assert.equal(other.instructions, 'Be brief.');
    const same = await openai.responses.create({ ...ask, input: 'And?', instructions: 'Be brief.', previous_response_id: other.id });
    assert.equal(same.usage.input_tokens_details.cached_tokens, other.usage.input_tokens + other.usage.output_tokens - 1);
    // The whole conversation is in it.
    assert.ok(other.usage.input_tokens > chain[1].usage.input_tokens + chain[1].usage.output_tokens);
  });
});

test('a response that continues nothing is given in the session that a header names', async (t) => {
  const openai = clientOf(await Server.start(t, { args: unlimited }));
  const ask = (more, name) => openai.responses.create({ model, max_output_tokens: 16, temperature: 0, ...more }, name && { headers: name });
  const sessionOf = ({ id }) => id.slice('resp_'.length, id.lastIndexOf('-'));
  const hi = { role: 'user', content: 'Hi!' };
  for (const header of ['x-session-id', 'session-id', 'x-claude-code-session-id', 'x-parent-session-id']) {
    const name = { [header]: `mine-${header}` };
    const first = await ask({ input: 'Hi!' }, name);
    assert.equal(first.id, `resp_mine-${header}-0`);
    // The whole conversation comes again, and is found in that session.
    const second = await ask({ input: [hi, ...first.output, { role: 'user', content: 'Again.' }] }, name);
    assert.equal(second.id, `resp_mine-${header}-1`);
    assert.ok(second.usage.input_tokens_details.cached_tokens > 0);
    assert.equal((await openai.responses.retrieve(second.id)).output_text, second.output_text);
  }
  const streamed = await all(await ask({ input: 'Hm?', stream: true }, { 'x-session-id': 'mine-session-id' }));
  assert.equal(sessionOf(streamed.at(-1).response), 'mine-session-id');
  const odd = await ask({ input: 'Hi!' }, { 'x-session-id': 'with spaces / and more' });
  assert.match(sessionOf(odd), /^[0-9a-f]{32}$/);

  // What the body names comes first, and what is not stored joins no stored session.
  const name = { 'session-id': 'mine-session-id' };
  const next = await ask({ input: 'Go on.', previous_response_id: odd.id }, name);
  assert.equal(next.id, odd.id.replace(/0$/, '1'));
  const { id: conversation } = await openai.conversations.create({});
  assert.equal(sessionOf(await ask({ input: 'Hi!', conversation }, name)), conversation.slice('conv_'.length));
  assert.notEqual(sessionOf(await ask({ input: 'Hi!', store: false }, name)), 'mine-session-id');
  assert.notEqual(sessionOf(await ask({ input: 'Hi!', generate: false }, name)), 'mine-session-id');

  // Requests under one new name at the same time wait for none of the others.
  const busy = await Promise.all([1, 2, 3, 4].map((i) => ask({ input: `Question ${i}` }, { 'x-session-id': 'busy' })));
  assert.equal(new Set(busy.map(({ id }) => id)).size, 4);
  assert.ok(busy.some((r) => sessionOf(r) === 'busy'));
});

test('responses are deleted from the end of their session', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, seed: 3, max_output_tokens: 8 };
  const [a] = [await openai.responses.create({ ...ask, input: 'Tell me a story.' })];
  const b = await openai.responses.create({ ...ask, input: 'And then?', previous_response_id: a.id });
  const c = await openai.responses.create({ ...ask, input: 'Why?', previous_response_id: a.id });
  await refused(openai.responses.delete(a.id), 400, 'unsupported', null);
  assert.equal((await openai.responses.retrieve(b.id)).id, b.id);
  for (const { id } of [b, c]) {
    await openai.responses.delete(id);
    await refused(openai.responses.retrieve(id), 404, 'response_not_found', null);
    await refused(openai.responses.delete(id), 404, 'response_not_found', null);
  }
  assert.equal((await openai.responses.retrieve(a.id)).output_text, a.output_text);
  const next = await openai.responses.create({ ...ask, input: 'And then?', previous_response_id: a.id });
  assert.equal(next.output_text, b.output_text);
  const { id } = await openai.conversations.create();
  const said = await openai.responses.create({ ...ask, conversation: id, input: 'Hello.' });
  await openai.responses.delete(said.id);
  assert.deepEqual((await openai.conversations.items.list(id)).data, []);
  assert.equal((await openai.responses.create({ ...ask, conversation: id, input: 'Hello.' })).output_text, said.output_text);
});

longTest('log-probabilities, whole, streamed and read again', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, input: 'Tell me a story.', seed: 7, temperature: 0.8, max_output_tokens: few(40), include: ['message.output_text.logprobs'], top_logprobs: 2 };
  const whole = await openai.responses.create(ask);
  const [part] = whole.output.at(-1).content;
  const words = Buffer.from(part.logprobs.flatMap((l) => l.bytes)).toString();
  assert.equal(words.trim(), part.text.trim());
  for (const one of part.logprobs) {
    assert.deepEqual(Object.keys(one), ['token', 'logprob', 'bytes', 'top_logprobs']);
    assert.equal(one.top_logprobs.length, 2);
    assert.ok(one.logprob <= 0 && one.top_logprobs[0].logprob >= one.top_logprobs[1].logprob);
  }
  // As chat completions has them.
  const chat = await openai.chat.completions.create({ model, messages: [{ role: 'user', content: ask.input }], seed: 7, temperature: 0.8, max_tokens: few(40), logprobs: true, top_logprobs: 2 });
  if (!whole.output.some((i) => i.type === 'reasoning')) assert.deepEqual(part.logprobs, chat.choices[0].logprobs.content);

  const events = await all(await openai.responses.create({ ...ask, stream: true }));
  const deltas = events.filter((e) => e.type === 'response.output_text.delta');
  assert.deepEqual(deltas.flatMap((e) => e.logprobs), part.logprobs);
  assert.deepEqual(events.find((e) => e.type === 'response.output_text.done').logprobs, part.logprobs);
  assert.deepEqual(events.find((e) => e.type === 'response.content_part.done').part.logprobs, part.logprobs);
  const last = events.at(-1).response;
  assert.deepEqual(last.output.at(-1).content[0].logprobs, part.logprobs);
  assert.deepEqual(await all(await openai.responses.retrieve(last.id, { stream: true })), events);
  assert.deepEqual((await openai.responses.retrieve(whole.id)).output, whole.output);

  await t.test('while it runs, a stream that is taken up has them too', async () => {
    const background = await openai.responses.create({ ...ask, max_output_tokens: few(300), ignore_eos: true, background: true });
    const followed = await all(await openai.responses.retrieve(background.id, { stream: true }));
    assert.ok(followed.some((e) => e.logprobs?.length > 0));
    assert.deepEqual(await all(await openai.responses.retrieve(background.id, { stream: true })), followed);
  });
  await t.test('without include there are none', async () => {
    const { include, ...rest } = ask;
    const plain = await openai.responses.create(rest);
    assert.equal(include.length, 1);
    assert.deepEqual(plain.output.at(-1).content[0].logprobs, []);
    assert.deepEqual((await openai.responses.retrieve(plain.id)).output, plain.output);
    assert.equal((await openai.responses.create({ ...rest, include: null, top_logprobs: null })).status, plain.status);
  });
});

longTest('structured_outputs, as vLLM has it', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, temperature: 2, structured_outputs: { choice: ['red', 'blue'] } };
  assert.ok(['red', 'blue'].includes((await openai.responses.create({ ...ask, input: 'Which?', max_output_tokens: 32 })).output_text));
  const messages = [{ role: 'user', content: 'Which?' }];
  assert.ok(['red', 'blue'].includes((await openai.chat.completions.create({ ...ask, messages, max_tokens: 32 })).choices[0].message.content));
  await assert.rejects(openai.responses.create({ ...ask, structured_outputs: { structural_tag: '{}' }, input: 'x' }), (e) => e.status === 400 && /structural_tag/.test(e.message));
});

longTest('a background response goes on alone', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, input: 'Tell me a long story.', seed: 5, temperature: 1, min_tokens: 0, max_output_tokens: few(200), background: true };
  const taken = await openai.responses.create(ask);
  assert.ok(['in_progress', 'completed', 'incomplete'].includes(taken.status));
  const done = await until('its end', async () => {
    const now = await openai.responses.retrieve(taken.id);
    return now.status !== 'in_progress' && now;
  });
  assert.ok(done.output_text.length > 0);
  await t.test('its stream can be left and taken up again', async () => {
    const stream = await openai.responses.create({ ...ask, stream: true });
    const first = [];
    for await (const event of stream) {
      first.push(event);
      if (first.length === 6) break;
    }
    stream.controller.abort();
    const rest = await all(await openai.responses.retrieve(first[0].response.id, { stream: true, starting_after: 5 }));
    const events = [...first, ...rest];
    assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
    assert.equal(events.at(-1).response.output[0].content[0].text, done.output_text);
  });
  await t.test('cancelling', async () => {
    const long = await openai.responses.create({ ...ask, max_output_tokens: 3000, temperature: 1.5 });
    const cancelled = await openai.responses.cancel(long.id);
    assert.ok(['cancelled', 'completed'].includes(cancelled.status), cancelled.status);
    assert.equal((await openai.responses.retrieve(long.id)).status, cancelled.status);
    assert.equal((await openai.responses.cancel(long.id)).status, cancelled.status);
  });
});

longTest('kill -9 in the middle leaves what was streamed', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const stream = await clientOf(server).responses.create({ model, input: 'Tell me a long story.', seed: 5, temperature: 1.5, max_output_tokens: 3000, ignore_eos: true, stream: true });
  let id, text = '';
  await (async () => {
    for await (const event of stream) {
      if (event.response) id = event.response.id;
      if (event.type === 'response.output_text.delta') text += event.delta;
      if (text.length > 20) await server.stop('SIGKILL');
    }
  })().catch(() => {});
  const again = await Server.start(t, { args: unlimited, db: server.db });
  const openai = clientOf(again);
  const response = await openai.responses.retrieve(id);
  assert.equal(response.status, 'failed');
  assert.ok(response.output_text.startsWith(text.slice(0, 20)));
  assert.match(response.error.message, /ended before/);
  const next = await openai.responses.create({ model, input: 'Go on.', previous_response_id: id, max_output_tokens: 3 });
  assert.ok(next.usage.input_tokens > 10);
});

longTest('hosted tools and the items of their calls are left out, and the log names each type once', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const add = { type: 'function', name: 'add', parameters: { type: 'object', properties: { a: { enum: [1] } }, required: ['a'] } };
  const ask = { model, max_output_tokens: 2, input: 'What is 1 plus 1?' };
  const count = async (body) => (await openai.responses.create({ ...ask, ...body })).usage.input_tokens;
  const hosted = ['web_search', 'web_search_preview_2025_03_11', 'file_search', 'computer_use_preview', 'code_interpreter', 'mcp', 'image_generation',
    'local_shell', 'shell', 'apply_patch', 'tool_search'].map((type) => ({ type }));
  assert.equal(await count({ tools: hosted }), await count({}));
  for (const tool_choice of [undefined, 'auto', 'none', { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'add' }] }])
    assert.equal(await count({ tools: [...hosted, add], tool_choice }), await count({ tools: [add], tool_choice }), JSON.stringify(tool_choice));
  const one = await openai.responses.create({ ...ask, tools: [...hosted, add] });
  assert.deepEqual((await openai.responses.retrieve(one.id)).output_text, one.output_text); // also from the record

  const said = (role, text) => ({ type: 'message', role, content: [{ type: role === 'user' ? 'input_text' : 'output_text', text }] });
  const search = { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'weather' } };
  const talk = [said('user', 'Rain?'), said('assistant', 'No.'), said('user', 'And tomorrow?')];
  const input = [talk[0], search, { type: 'file_search_call', id: 'fs_1', status: 'completed', queries: [] }, ...talk.slice(1)];
  const without = await count({ input: talk });
  assert.equal(await count({ input }), without);
  const kept = await openai.responses.create({ ...ask, input });
  assert.deepEqual((await openai.responses.inputItems.list(kept.id, { order: 'asc' })).data.map((item) => item.type), input.map((item) => item.type));
  const next = await openai.responses.create({ ...ask, input: 'And then?', previous_response_id: kept.id });
  assert.ok(next.usage.input_tokens > without);
  const conversation = await openai.conversations.create({ items: input });
  assert.ok((await openai.responses.create({ ...ask, conversation: conversation.id })).usage.input_tokens > without);
  for (const word of ['tool=web_search', 'tool=mcp', 'item=web_search_call'])
    assert.equal(server.log.split(`event=responses.left_out ${word} `).length, 2, `${word}: ${server.log}`);
});

longTest('compact: the user\'s messages and a summary are the next input', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, seed: 3, temperature: 0.8, max_output_tokens: few(24) };
  const compact = (body) => openai.post('/responses/compact', { body: { ...ask, ...body } });
  const first = await openai.responses.create({ ...ask, input: 'Tell me a story.', instructions: 'You tell stories.' });

  const short = await compact({ previous_response_id: first.id, input: 'And then?' });
  assert.equal(short.object, 'response.compaction');
  assert.deepEqual(short.output.map((item) => [item.type, item.role]), [['message', 'user'], ['message', 'user'], ['compaction', undefined]]);
  assert.deepEqual(short.output.slice(0, 2).map((item) => item.content[0].text), ['Tell me a story.', 'And then?']);
  assert.ok(short.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens);
  assert.ok(short.usage.output_tokens > 0);
  const summary = short.output[2];
  const words = Buffer.from(summary.encrypted_content.replace('parley:', ''), 'base64').toString();
  assert.ok(words.length > 0);

  await t.test('the model reads the summary as a message of the user', async () => {
    const question = { role: 'user', content: 'Who is it?' };
    const tokens = async (input) => (await openai.post('/responses/input_tokens', { body: { model, input } })).input_tokens;
    const without = await tokens([question]);
    assert.equal(await tokens([summary, question]), await tokens([{ role: 'user', content: words }, question]));
    assert.equal(await tokens([{ type: 'compaction', encrypted_content: 'gAAAA' }, question]), without);
    const next = await openai.responses.create({ ...ask, input: [...short.output, question] });
    assert.ok(next.usage.input_tokens > without);
    const again = await compact({ input: [...short.output, question] });
    assert.deepEqual(again.output.filter((item) => item.role).map((item) => item.content[0].text), ['Tell me a story.', 'And then?', 'Who is it?']);
  });
  await t.test('previous_response_id alone, and what is refused', async () => {
    const alone = await compact({ previous_response_id: first.id });
    assert.deepEqual(alone.output.map((item) => item.type), ['message', 'compaction']);
    await refused(compact({}), 400, 'invalid_value', 'input', /is missing/);
    await refused(compact({ input: [] }), 400, 'invalid_value', 'input', /at least one item/);
    await refused(compact({ input: [{ type: 'web_search_call', id: 'ws_1', status: 'completed' }] }), 400, 'invalid_value', 'input', /no item that the model reads/);
    const question = { role: 'user', content: 'Who is it?' };
    for (const content of ['gAAAA', 'parley:', 'parley:%%%', `parley:${summary.encrypted_content}`, 5, undefined])
      for (const type of ['compaction', 'compaction_summary'])
        await refused(compact({ input: [question, { type, encrypted_content: content }] }), 400, 'invalid_value', 'input[1].encrypted_content', /not a summary that this server wrote/);
    await refused(compact({ input: 'x', background: true }), 400, 'invalid_value', 'background');
  });
});

test('what is not served is refused by name', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const bad = (body, status, code, param) => refused(openai.responses.create({ model, input: 'x', ...body }), status, code, param);
  await bad({ model: 'gpt-9' }, 404, 'model_not_found', 'model');
  await bad({ model: 3 }, 400, 'invalid_value', 'model');
  await bad({ input: undefined }, 400, 'invalid_value', 'input');
  await bad({ input: 3 }, 400, 'invalid_value', 'input');
  await bad({ input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] }, 400, 'unsupported', 'input[0].content[0]');
  await bad({ tools: [{ type: 'web_search' }], tool_choice: 'required' }, 400, 'unsupported', 'tools[0].type');
  await bad({ tools: [{ type: 'web_serach' }] }, 400, 'unsupported', 'tools[0].type');
  await bad({ tools: [{ type: 'web_search' }], tool_choice: { type: 'web_search' } }, 400, 'unsupported', 'tools[0].type');
  await bad({ input: [{ type: 'local_shell_call', call_id: 'c' }] }, 400, 'unsupported', 'input[0].type');
  await bad({ truncation: 'some' }, 400, 'invalid_value', 'truncation');
  await bad({ text: { verbosity: 'chatty' } }, 400, 'invalid_value', 'text.verbosity');
  await bad({ truncation: 'auto', input: 'word '.repeat(100000) }, 400, 'context_length_exceeded', null);
  await bad({ context_management: [{ type: 'compaction' }] }, 400, 'unsupported', 'context_management');
  await bad({ prompt: { id: 'p' } }, 400, 'unsupported', 'prompt');
  await bad({ include: ['nothing.known'] }, 400, 'unsupported', 'include');
  await bad({ include: ['message.output_text.logprobs'], top_logprobs: 21 }, 400, 'invalid_value', 'top_logprobs');
  await bad({ top_logprobs: 'x' }, 400, 'invalid_value', 'top_logprobs');
  await bad({ service_tier: 'flex' }, 400, 'unsupported', 'service_tier');
  await bad({ max_output_tokens: 0 }, 400, 'invalid_value', 'max_output_tokens');
  await bad({ temperature: -1 }, 400, 'invalid_value', 'temperature');
  await bad({ metadata: { a: 1 } }, 400, 'invalid_value', 'metadata');
  await bad({ store: 'no' }, 400, 'invalid_value', 'store');
  await bad({ background: true, store: false }, 400, 'invalid_value', 'background');
  await bad({ previous_response_id: 'x' }, 400, 'previous_response_not_found', 'previous_response_id');
  await bad({ previous_response_id: 'resp_no-0' }, 400, 'previous_response_not_found', 'previous_response_id');
  await bad({ input: 'word '.repeat(100000) }, 400, 'context_length_exceeded', null);
  const taken = await openai.responses.create({ model, input: 'x', max_output_tokens: 2, service_tier: 'auto', truncation: 'disabled', background: false, user: 'me',
    include: ['reasoning.encrypted_content'], parallel_tool_calls: true, text: { format: { type: 'text' } }, something_new: 1 });
  assert.equal(taken.status, 'incomplete');

  const counted = await openai.post('/responses/input_tokens', { body: { model, input: 'Tell me a story.' } });
  assert.equal(counted.object, 'response.input_tokens');
  assert.equal(counted.input_tokens, (await openai.responses.create({ model, input: 'Tell me a story.', max_output_tokens: 1 })).usage.input_tokens);
  for (const [method, path] of [['get', '/responses/resp_a-1/nothing'], ['get', '/responses/nothing'], ['post', '/responses/resp_a-1'], ['delete', '/responses/resp_a-1/cancel']])
    await assert.rejects(openai[method](path), (e) => e.status === 404 || e.status === 405);
  await refused(openai.get(`/responses/${taken.id}?stream=maybe`), 400, 'invalid_value', 'stream');
  await refused(openai.get(`/responses/${taken.id}/input_items?limit=0`), 400, 'invalid_value', 'limit');
  await refused(openai.get(`/responses/${taken.id}?stream=true&starting_after=-1`), 400, 'invalid_value', 'starting_after');
});
