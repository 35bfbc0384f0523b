// The Responses API over a WebSocket: by the ResponsesWS of OpenAI's own client, and by hand.
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import OpenAI from 'openai-6';
import { ResponsesWS } from 'openai-6/resources/responses/ws';
import WebSocket from 'ws';
import { few, longTest, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';

const model = 'demo-model';
const clientOf = (server, apiKey = 'none') => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });

/** A socket whose events are kept. */
class Socket {
  constructor(server, headers = {}) {
    this.events = [];
    this.socket = new WebSocket(`${server.url.replace('http', 'ws')}/v1/responses`, { headers });
    this.socket.on('message', (bytes) => this.events.push(JSON.parse(bytes)));
    this.socket.on('error', (error) => { this.error = error; });
    this.closed = new Promise((resolve) => this.socket.on('close', (code) => { this.code = code; resolve(code); }));
    this.opened = new Promise((resolve) => { this.socket.on('open', resolve); this.socket.on('close', resolve); });
  }
  static async open(t, server, headers) {
    const self = new Socket(server, headers);
    t.after(() => self.socket.terminate());
    await self.opened;
    return self;
  }
  send(message) { this.socket.send(typeof message === 'string' ? message : JSON.stringify(message)); }
  create(body) { this.send({ type: 'response.create', model, input: 'Tell me a story.', max_output_tokens: few(20), seed: 1, ...body }); }
  ends() { return this.events.filter((e) => /^response\.(completed|incomplete|failed)$/.test(e.type)); }
  of(type) { return this.events.filter((e) => e.type === type); }
  errors() { return this.events.filter((e) => e.type === 'error'); }
  until(what, check) { return until(what, () => check(this)); }
}

test('ResponsesWS of the client', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const ws = new ResponsesWS(clientOf(server));
  const ended = [];
  let text = '';
  ws.on('error', (error) => ended.push(error));
  ws.on('response.output_text.delta', (e) => { text += e.delta; });
  for (const type of ['response.completed', 'response.incomplete']) ws.on(type, (e) => ended.push(e.response));
  const create = (body) => ws.send({ type: 'response.create', model, input: 'Tell me a story.', max_output_tokens: few(20), seed: 1, ...body });
  create({});
  await until('the first response', () => ended.length === 1);
  assert.equal(ended[0].output[0].content[0].text, text);
  create({ previous_response_id: ended[0].id, input: 'And then?' });
  await until('the second response', () => ended.length === 2);
  const { usage } = ended[0];
  assert.equal(ended[1].usage.input_tokens_details.cached_tokens, usage.input_tokens + usage.output_tokens - 1);
  assert.equal((await clientOf(server).responses.retrieve(ended[0].id)).id, ended[0].id);
  ws.close();
});

// Codex names its thread in the upgrade's headers, as in those of a POST.
test('a session that the headers of the upgrade name', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const s = await Socket.open(t, server, { 'session-id': 'ws-thread' });
  s.create({});
  await s.until('its end', () => s.ends().length === 1);
  assert.match(s.ends()[0].response.id, /^resp_ws-thread-0$/);
  s.create({ store: false }); // leaves nothing in a session that is stored
  await s.until('the second end', () => s.ends().length === 2);
  assert.doesNotMatch(s.ends()[1].response.id, /ws-thread/);
  s.create({ input: [{ role: 'user', content: 'Tell me a story.' }, ...s.ends()[0].response.output, { role: 'user', content: 'And then?' }] });
  await s.until('the third end', () => s.ends().length === 3);
  assert.match(s.ends()[2].response.id, /^resp_ws-thread-1$/);
  assert.deepEqual(s.errors(), []);
});

longTest('lanes, errors, and what dies with the socket', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  await t.test('each stream_id in its order, all side by side', async () => {
    const s = await Socket.open(t, server);
    for (let i = 0; i < 9; i++) s.create({ stream_id: `lane-${i % 3}`, metadata: { i: String(i) } });
    s.create({});
    await s.until('ten ends', () => s.ends().length === 10);
    assert.deepEqual(s.errors(), []);
    for (const lane of ['lane-0', 'lane-1', 'lane-2', undefined]) {
      const own = s.events.filter((e) => e.stream_id === lane);
      const seen = own.filter((e) => e.response).map((e) => Number(e.response.metadata.i ?? 0));
      assert.deepEqual(seen, [...seen].sort((a, b) => a - b)); // one after the other
      let next = 0;
      for (const e of own) {
        if (e.type === 'response.created') next = 0;
        assert.equal(e.sequence_number, next++);
      }
    }
    s.socket.close();
    assert.equal(await s.closed, 1005);
  });
  await t.test('a seventeenth is refused, and all others end', async () => {
    const s = await Socket.open(t, server);
    for (let i = 0; i < 17; i++) s.create({ stream_id: 'one', ...(i ? {} : { max_output_tokens: few(1000), ignore_eos: true }) });
    await s.until('the end of all', () => s.ends().length === 16 && s.errors().length === 1);
    assert.deepEqual([s.errors()[0].status, s.errors()[0].error.code], [429, 'websocket_stream_limit_reached']);
    s.socket.close();
  });
  await t.test('errors have their form, and leave the socket open', async () => {
    const s = await Socket.open(t, server);
    const cases = [
      ['{"type":', 400, 'invalid_json', null],
      ['[]', 400, 'invalid_value', null],
      [{ type: 'response.stir' }, 400, 'unsupported', 'type'],
      [{ type: 'response.steer', input: 'x' }, 400, 'invalid_value', 'previous_response_id'],
      [{ type: 'response.steer', previous_response_id: 'resp_no-0', input: [{ role: 'system', content: 'x' }] }, 400, 'invalid_value', 'input'],
      [{ type: 'response.create', model, input: 'x', previous_response_id: 'resp_no-0', stream_id: 'a' }, 400, 'previous_response_not_found', 'previous_response_id'],
      [{ type: 'response.create', model, input: 'x', stream: true }, 400, 'unsupported', 'stream'],
      [{ type: 'response.create', model, input: 'x', background: true }, 400, 'unsupported', 'background'],
      [{ type: 'response.create', model, input: 'x', generate: 3 }, 400, 'invalid_value', 'generate'],
      [{ type: 'response.create', model, input: 'x', stream_id: 'a b' }, 400, 'invalid_value', 'stream_id'],
      [{ type: 'response.create', model: 'gpt-9', input: 'x' }, 404, 'model_not_found', 'model'],
    ];
    for (const [i, [message, status, code, param]] of cases.entries()) {
      s.send(message);
      await s.until(`answer ${i}`, () => s.errors().length === i + 1);
      const e = s.errors()[i];
      assert.deepEqual([e.status, e.error.code, e.error.param], [status, code, param], JSON.stringify([message, e]));
      assert.equal(e.stream_id, code === 'previous_response_not_found' ? 'a' : undefined);
    }
    s.create({ unknown: 'x'.repeat(20000), max_output_tokens: 1, stream_id: 'long' }); // for a worker
    s.create({ stream_id: 'after' });
    await s.until('the ends', () => s.ends().length + s.errors().length === cases.length + 2);
    s.socket.send(Buffer.from('x'));
    assert.equal(await s.closed, 1003);
  });
  await t.test('store: false goes on while the socket lives', async () => {
    const s = await Socket.open(t, server);
    s.create({ store: false });
    await s.until('the first', () => s.ends().length === 1);
    const [first] = s.ends();
    s.create({ store: false, previous_response_id: first.response.id, input: 'And then?' });
    await s.until('the second', () => s.ends().length === 2);
    const { usage } = first.response;
    assert.equal(s.ends()[1].response.usage.input_tokens_details.cached_tokens, usage.input_tokens + usage.output_tokens - 1);
    s.socket.terminate();
    for (const e of s.ends())
      await until('it to go', () => openai.responses.retrieve(e.response.id).then(() => false, (error) => error.status === 404));
  });
  for (const store of [true, false]) await t.test(`a warm-up computes the prompt (store: ${store})`, async () => {
    const s = await Socket.open(t, server);
    const input = `A long story about ${store}: ` + 'there was a dog and a cat. '.repeat(8);
    s.create({ store, generate: false, input, instructions: 'Be kind.' });
    await s.until('the warm-up', () => s.ends().length === 1);
    assert.deepEqual(s.events.map((e) => e.type), ['response.created', 'response.in_progress', 'response.completed']);
    const warm = s.ends()[0].response;
    assert.deepEqual([warm.status, warm.output, warm.usage.output_tokens], ['completed', [], 0]);
    s.create({ store, previous_response_id: warm.id, input: 'Go on.', instructions: 'Be kind.' });
    await s.until('the response', () => s.ends().length === 2);
    const { response } = s.ends()[1];
    const { usage } = response;
    assert.ok(usage.input_tokens > warm.usage.input_tokens);
    // All but what the template writes behind a question.
    assert.ok(usage.input_tokens_details.cached_tokens > warm.usage.input_tokens - 16, JSON.stringify([usage, warm.usage]));
    if (store) {
      const again = await openai.responses.retrieve(warm.id);
      assert.deepEqual([again.status, again.output], ['completed', []]);
      const message = (content) => ({ role: 'user', content });
      const same = await openai.responses.create({ model, input: [message(input), message('Go on.')], instructions: 'Be kind.', max_output_tokens: few(20), seed: 1 });
      assert.equal(same.output[0].content[0].text, response.output[0].content[0].text);
    }
    s.socket.close();
    await s.closed;
  });
  await t.test('store: false behind a stored response leaves that as it is', async () => {
    const kept = await openai.responses.create({ model, input: 'Tell me a story.', max_output_tokens: 5 });
    const s = await Socket.open(t, server);
    s.create({ store: false, previous_response_id: kept.id, input: 'And then?' });
    await s.until('its end', () => s.ends().length === 1);
    const session = (id) => id.replace(/^resp_|-\d+$/g, '');
    assert.notEqual(session(s.ends()[0].response.id), session(kept.id));
    assert.ok(s.ends()[0].response.usage.input_tokens > kept.usage.input_tokens + kept.usage.output_tokens);
    s.socket.close();
    await s.closed;
    assert.equal((await openai.responses.retrieve(kept.id)).output_text, kept.output_text);
  });
  await t.test('a client that leaves cancels what it waits for', async () => {
    const s = await Socket.open(t, server);
    s.create({ max_output_tokens: 3000, temperature: 1.5 });
    const created = await s.until('its beginning', () => s.events[0]);
    s.socket.terminate();
    const status = await until('its end', async () => {
      const now = await openai.responses.retrieve(created.response.id);
      return now.status !== 'in_progress' && now.status;
    });
    assert.ok(['cancelled', 'completed'].includes(status), status);
  });
});

longTest('the end of the server is a reason to come again', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const idle = await Socket.open(t, server);
  const busy = await Socket.open(t, server);
  busy.create({ max_output_tokens: few(100) });
  await busy.until('its beginning', () => busy.events.length > 0);
  const stopped = server.stop();
  assert.equal(await idle.closed, 1012);
  assert.equal(await busy.closed, 1012);
  assert.equal(busy.ends().length, 1); // it had its end before
  assert.equal((await stopped).code, 0);
});

// 1012 at a restart, 1006 after kill -9: the client connects again by itself, and goes on behind what is stored.
for (const signal of ['SIGTERM', 'SIGKILL'])
  longTest(`ResponsesWS comes back when the server does (${signal})`, async (t) => {
    const server = await Server.start(t, { args: unlimited });
    const codes = [], ended = [];
    let back = 0;
    const reconnect = { maxRetries: 1000, initialDelay: 50, maxDelay: 200, onReconnecting: ({ closeCode }) => { codes.push(closeCode); } };
    const ws = new ResponsesWS(clientOf(server), { reconnect });
    t.after(() => ws.close());
    ws.on('error', () => {});
    ws.on('reconnected', () => { back++; });
    for (const type of ['response.completed', 'response.incomplete']) ws.on(type, (e) => ended.push(e.response));
    const create = (body) => ws.send({ type: 'response.create', model, input: 'Tell me a story.', max_output_tokens: few(20), seed: 1, ...body });
    create({});
    await until('the first response', () => ended.length === 1);
    await server.stop(signal);
    await until('the first attempt', () => codes.length > 0);
    await Server.start(t, { args: unlimited, db: server.db, port: server.port });
    await until('the connection', () => back === 1);
    assert.equal(codes[0], signal === 'SIGTERM' ? 1012 : 1006);
    create({ previous_response_id: ended[0].id, input: 'And then?' });
    await until('the second response', () => ended.length === 2);
    assert.equal(ended[1].previous_response_id, ended[0].id);
    assert.ok(ended[1].usage.input_tokens > ended[0].usage.input_tokens + ended[0].usage.output_tokens);
  });

longTest('what kill -9 leaves of store: false is removed at the next start', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const s = await Socket.open(t, server);
  s.create({ store: false });
  s.create({ stream_id: 'kept' });
  await s.until('both ends', () => s.ends().length === 2);
  const [lost, kept] = ['false', 'true'].map((store) => s.ends().find((e) => String(e.response.store) === store).response.id);
  assert.equal((await clientOf(server).responses.retrieve(lost)).id, lost);
  await server.stop('SIGKILL');
  const again = await Server.start(t, { args: unlimited, db: server.db });
  assert.equal((await clientOf(again).responses.retrieve(kept)).id, kept);
  await assert.rejects(clientOf(again).responses.retrieve(lost), (e) => e.status === 404);
  const parley = await again.connect();
  assert.deepEqual((await parley.request({ type: 'session.list' })).sessions.length, 1);
});

longTest('a reader that is too slow is cut off', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--slow-reader-timeout', '1'] });
  const s = await Socket.open(t, server);
  s.socket.pause();
  const user = 'x'.repeat(60000); // which each response repeats
  let n = 0;
  await until('the cut', async () => {
    for (let i = 0; i < 16; i++) s.create({ stream_id: `s${n++}`, max_output_tokens: 3, user });
    return (await server.metric('parley_slow_readers_total')) >= 1;
  });
  s.socket.resume();
  assert.ok([4001, 1006].includes(await s.closed), `closed with ${s.code}`); // 1006: later than the server waits for it
  const other = await Socket.open(t, server);
  other.create({});
  await other.until('an end', () => other.ends().length === 1);
});

longTest('a message that cannot be read ends the socket, after an error if there is one to send', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--max-message-bytes', '64KiB'] });
  const long = await Socket.open(t, server);
  long.create({ input: 'x'.repeat(70_000) });
  assert.equal(await long.closed, 1009);
  assert.deepEqual(long.errors().map((e) => e.status), [413]);
  const binary = await Socket.open(t, server);
  binary.socket.send(Buffer.from('{}'));
  assert.equal(await binary.closed, 1003);
});

test('tokens', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, 'alice:alice-token-0123456789\nbob:bob-token-0123456789ab\n');
  chmodSync(file, 0o600);
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  for (const headers of [{}, { Authorization: 'Bearer wrong-token-012345' }]) {
    const s = await Socket.open(t, server, headers);
    assert.match(s.error.message, /401/);
  }
  const alice = await Socket.open(t, server, { Authorization: 'Bearer alice-token-0123456789' });
  alice.create({});
  await alice.until('its end', () => alice.ends().length === 1);
  const { id } = alice.ends()[0].response;
  const bob = await Socket.open(t, server, { Authorization: 'Bearer bob-token-0123456789ab' });
  bob.create({ previous_response_id: id });
  await bob.until('its refusal', () => bob.errors().length === 1);
  assert.equal(bob.errors()[0].error.code, 'previous_response_not_found');
  await assert.rejects(clientOf(server, 'bob-token-0123456789ab').responses.retrieve(id), (e) => e.status === 404);
  assert.equal((await clientOf(server, 'alice-token-0123456789').responses.retrieve(id)).id, id);
});

longTest('steering: what a response did not hear, its successor answers with the same settings', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server), long = { max_output_tokens: few(300), ignore_eos: true };
  const begun = (s, n) => s.until(`response ${n} to begin`, () => s.of('response.created').length === n);
  const steer = (s, previous_response_id, input) => s.send({ type: 'response.steer', previous_response_id, input });
  await t.test('two inputs go into one successor, ahead of what waits in the lane', async () => {
    const s = await Socket.open(t, server);
    s.create({ stream_id: 'a', metadata: { of: 'both' }, instructions: 'Be brief.', ...long });
    s.create({ stream_id: 'a', input: 'Waits.' });
    await begun(s, 1);
    const [{ response: first }] = s.of('response.created');
    steer(s, first.id, 'About a "cat".');
    steer(s, first.id, [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'In the rain.' }] }]);
    await s.until('three ends', () => s.ends().length === 3);
    const accepted = s.of('response.steer.accepted');
    assert.equal(accepted.length, 2);
    assert.notEqual(accepted[0].steer.id, accepted[1].steer.id);
    for (const e of accepted) assert.deepEqual([e.stream_id, e.steer.previous_response_id], ['a', first.id]);
    const [, { response: next }, { response: last }] = s.ends();
    assert.deepEqual([next.previous_response_id, next.metadata, next.instructions], [first.id, { of: 'both' }, 'Be brief.']);
    assert.equal(last.previous_response_id, null);
    const { usage } = s.ends()[0].response;
    assert.equal(next.usage.input_tokens_details.cached_tokens, usage.input_tokens + usage.output_tokens - 1);
    const { data } = await openai.responses.inputItems.list(next.id, { order: 'asc' });
    assert.deepEqual(data.map((item) => [item.role, item.content[0].text]), [['user', 'About a "cat".'], ['user', 'In the rain.']]);
    const numbers = s.events.slice(0, s.events.indexOf(s.ends()[0]) + 1).map((e) => e.sequence_number);
    assert.deepEqual(numbers, numbers.map((_, i) => i));
    s.socket.close();
  });
  await t.test('a response that is not stored has a successor too, which can be steered', async () => {
    const s = await Socket.open(t, server);
    s.create({ store: false, ...long });
    for (let n = 1; n <= 3; n++) {
      await begun(s, n);
      if (n < 3) steer(s, s.of('response.created').at(-1).response.id, `Input ${n}.`);
    }
    await s.until('three ends', () => s.ends().length === 3);
    const ids = s.ends().map((e) => e.response.id);
    assert.deepEqual(s.ends().map((e) => e.response.previous_response_id), [null, ids[0], ids[1]]);
    s.socket.close();
    await s.closed;
    for (const id of ids) await until(`${id} to be gone`, () => openai.responses.retrieve(id).then(() => false, (error) => error.status === 404));
  });
  await t.test('input that nothing answers comes back', async () => {
    const s = await Socket.open(t, server);
    const failed = async (n) => { await s.until(`failure ${n}`, () => s.of('response.steer.failed').length === n); return s.of('response.steer.failed').at(-1); };
    s.create({ max_output_tokens: 1 });
    await s.until('the end', () => s.ends().length === 1);
    const { id } = s.ends()[0].response;
    steer(s, id, 'Late.');
    const late = await failed(1);
    assert.deepEqual([late.steer, late.error.code], [{ previous_response_id: id, input: 'Late.' }, 'response_not_active']);
    const conversation = (await openai.conversations.create()).id;
    s.create({ conversation, ...long });
    await begun(s, 2);
    steer(s, s.of('response.created').at(-1).response.id, 'x');
    assert.equal((await failed(2)).error.code, 'unsupported');
    await s.until('its end', () => s.ends().length === 2);
    const tools = [{ type: 'function', name: 'weather', parameters: { type: 'object', properties: { text: { type: 'string', minLength: 400, maxLength: 500 } }, required: ['text'], additionalProperties: false } }];
    s.create({ tools, tool_choice: 'required', max_output_tokens: 1000 });
    await begun(s, 3);
    steer(s, s.of('response.created').at(-1).response.id, 'Wait.');
    const called = await failed(3);
    assert.deepEqual([called.error.code, called.steer.input], ['required_input_missing', 'Wait.']);
    assert.equal(called.steer.id, s.of('response.steer.accepted').at(-1).steer.id);
    s.create({ max_output_tokens: 1, input: 'Goes on.' });
    await s.until('its end', () => s.ends().length === 4);
    s.socket.close();
  });
});
