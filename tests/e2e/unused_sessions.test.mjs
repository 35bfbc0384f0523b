// Sessions without a turn, over restarts: one that a client opened stays until it is closed; one that the server made for a
// single request is gone with it, also when kill -9 ends both.
import assert from 'node:assert/strict';
import path from 'node:path';
import { Follower } from './follower.mjs';
import { longTest, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';

const post = (server, address, body) => fetch(`${server.url}${address}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
const listed = async (server) => (await (await server.connect()).ask({ type: 'session.list', limit: 200 })).sessions.map(({ id }) => id).sort();

test('what session.open, session.fork and /v1/conversations made is listed after every kind of end', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  const known = [];
  for (const signal of ['SIGKILL', 'SIGTERM', 'SIGKILL', 'SIGKILL', 'SIGTERM', 'SIGTERM']) {
    const server = await Server.start(t, { db, args: unlimited });
    assert.deepEqual(await listed(server), known);
    const client = await server.connect();
    const opened = await client.ask({ type: 'session.open' });
    const forked = await client.ask({ type: 'session.fork', session: opened.session.id });
    const conversation = await (await post(server, '/v1/conversations', {})).json();
    known.push(opened.session.id, forked.session.id, conversation.id.slice('conv_'.length));
    known.sort();
    if (signal === 'SIGTERM') await client.close();
    await server.stop(signal);
  }
  const server = await Server.start(t, { db, args: unlimited });
  assert.deepEqual(await listed(server), known);
  const follower = await Follower.attach(await server.connect(), known[0]);
  await follower.say('Hello!', { sampling: { max_tokens: 3 } });
});

longTest('sessions of single requests are gone after kill -9', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  const first = await Server.start(t, { db, args: unlimited });
  const rows = 12; // of one request: together they take longer than everything below
  const tensor = (name, width, value, datatype = 'UINT32') => ({ name, datatype, shape: [rows, width], data: Array(rows * width).fill(value) });
  const requests = [
    ['/v2/models/fastertransformer/infer', { inputs: [tensor('input_ids', 3, 5), tensor('input_lengths', 1, 3), tensor('request_output_len', 1, 3500),
      tensor('min_length', 1, 3500, 'INT32')] }], // without min_length each row ends after its first token
    ['/v1/responses', { model: 'demo-model', input: 'Once', store: false, max_output_tokens: 3500, ignore_eos: true }]];
  const cut = requests.map(([address, body]) => post(first, address, body).then((answer) => answer.text(), () => null));
  const client = await first.connect();
  await until('them to run', async () => (await client.ask({ type: 'session.list', query: '' })).sessions.filter(({ state }) => state === 'active').length > rows / 2);
  await first.stop('SIGKILL');
  await Promise.all(cut);
  assert.deepEqual(await listed(await Server.start(t, { db, args: unlimited })), []);
});

test('a generate request names its sequence beside its text, as Triton takes it', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const say = (body) => post(server, '/v2/models/demo-model/generate', { max_tokens: 4, ignore_eos: true, ...body });
  assert.equal((await say({ text_input: 'Hello', sequence_id: '18446744073709551615', sequence_start: true, session_len: 500 })).status, 200);
  assert.equal((await say({ text_input: 'Again', sequence_id: 7, sequence_start: true, session_len: 500 })).status, 200);
  assert.equal((await say({ text_input: 'And?', sequence_id: 7 })).status, 200);
  assert.equal((await say({ text_input: 'Well?', parameters: { sequence_id: 7, sequence_end: true } })).status, 200);
  const unknown = await say({ text_input: 'Who?', sequence_id: 9 });
  assert.equal(unknown.status, 400, await unknown.text());
  const { sessions } = await (await server.connect()).ask({ type: 'session.list' });
  assert.deepEqual(sessions.map(({ title, n_turns }) => [title, n_turns]).sort(), [['Sequence 18446744073709551615', 1], ['Sequence 7', 3]]);
});
