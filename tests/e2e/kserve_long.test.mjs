// Inference requests longer than other requests: tables of virtual tokens beyond 16 MiB, over HTTP (binary, JSON, gzip,
// chunks) and gRPC, with the ids of the same table as a task of the server. Longer ones, and those for which the owner
// or the server has no memory left, are refused before they are read.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import test from 'node:test';
import { gzipSync } from 'node:zlib';
import { absent, column, connect, grpc, idsOf, inputsOf, startServer } from './grpc.mjs';
import { Server, afterwards, root, temporaryFolder, unlimited, until } from './harness.mjs';
import { readTensor } from './safetensors.mjs';

const model = path.join(root, 'tests/fixtures/models/gptj'), adapter = path.join(root, 'tests/fixtures/prompts/gptj/prefix');
const table = readTensor(path.join(adapter, 'adapter_model.safetensors'), 'prompt_embeddings');
const [tokens, width] = table.shape;
const MIB = 1 << 20;
const rows = [[5, 9, 301, 77], [33, 4, 250, 18, 200, 6]];

/** Tensors in raw form: the table of each row, padded to `longest` tokens. */
function inputsWithTable(longest) {
  const data = Buffer.alloc(rows.length * longest * width * 4);
  rows.forEach((_, row) => table.data.forEach((v, i) => data.writeFloatLE(v, 4 * (row * longest * width + i))));
  const bytes = (values) => Buffer.from(Uint32Array.from(values).buffer);
  return [
    ...[...inputsOf(rows, 6), column('request_prompt_type', 'UINT32', [2, 2]), column('request_prompt_lengths', 'UINT32', [tokens, tokens])]
      .map((t) => ({ ...t, raw: bytes(t.data) })),
    { name: 'request_prompt_embedding', datatype: 'FP32', shape: [rows.length, longest, width], raw: data },
  ];
}
function binaryBody(inputs) {
  const head = Buffer.from(JSON.stringify({
    inputs: inputs.map(({ name, datatype, shape, raw }) => ({ name, datatype, shape, parameters: { binary_data_size: raw.length } })),
  }));
  return { body: Buffer.concat([head, ...inputs.map(({ raw }) => raw)]), headers: { 'inference-header-content-length': String(head.length) } };
}
/** Numbers as text: more of them than a tree of JSON values may have. */
function jsonBody(inputs) {
  const text = (v) => (v === 0 ? '0.00' : String(v)), numbers = ({ datatype, raw }) => (datatype === 'FP32'
    ? Array.from(new Float32Array(raw.buffer, raw.byteOffset, raw.length / 4), text) : Array.from(new Uint32Array(raw.buffer, raw.byteOffset, raw.length / 4)));
  return Buffer.from(`{"inputs":[${inputs.map((t) => `{"name":"${t.name}","datatype":"${t.datatype}","shape":${JSON.stringify(t.shape)},"data":[${numbers(t).join(',')}]}`).join(',')}]}`);
}
const post = (server, body, headers = {}) => new Promise((resolve, reject) => {
  const { hostname, port } = new URL(server.url);
  const request = http.request({ hostname, port, path: '/v2/models/fastertransformer/infer', method: 'POST', headers }, (response) => {
    const parts = [];
    response.on('data', (part) => parts.push(part)).on('end', () => resolve({
      status: response.statusCode, headers: response.headers, answer: JSON.parse(Buffer.concat(parts)),
    })).on('error', reject);
  }).on('error', reject);
  request.end(body);
});
function answered({ status, answer }) {
  assert.equal(status, 200, answer.error);
  const out = Object.fromEntries(answer.outputs.map((o) => [o.name, o]));
  const wide = out.output_ids.shape.at(-1);
  return out.sequence_length.data.map((n, row) => out.output_ids.data.slice(row * wide, row * wide + n));
}
/** A request that declares `length` bytes and sends none; its reply, or null while there is none. */
function declare(t, server, length, headers = {}, at = '/v2/models/fastertransformer/infer') {
  const { hostname, port } = new URL(server.url);
  const request = http.request({ hostname, port, path: at, method: 'POST', headers: { 'content-length': String(length), ...headers } });
  const held = { request, reply: null };
  request.on('error', () => {}).on('response', (response) => {
    let text = '';
    response.on('data', (part) => { text += part; }).on('end', () => { held.reply = { status: response.statusCode, headers: response.headers, answer: JSON.parse(text) }; }).on('error', () => {});
  });
  request.flushHeaders();
  afterwards(t, () => request.destroy());
  return held;
}
const replied = (held) => until('a reply', () => held.reply);
const held = (server) => server.metric('parley_long_request_bytes');

test('tables beyond 16 MiB: the ids are those of the same table as a task', async (t) => {
  const server = await startServerOrHttp(t, ['--prompt-tasks', `prefix=${adapter}`, '--max-infer-bytes', '64MiB']);
  const plain = inputsOf(rows, 6).map(({ name, datatype, shape, data }) => ({ name, datatype, shape, data }));
  const task = await post(server, JSON.stringify({ inputs: [...plain, { name: 'prompt_learning_task_name_ids', datatype: 'UINT32', shape: [2, 1], data: [0, 0] }] }));
  const want = answered(task);
  assert.notDeepEqual(want, answered(await post(server, JSON.stringify({ inputs: plain }))));

  const inputs = inputsWithTable(6000), { body, headers } = binaryBody(inputs);
  assert.ok(body.length > 16 * MIB);
  assert.deepEqual(answered(await post(server, body, headers)), want, 'binary');
  assert.deepEqual(answered(await post(server, body, { ...headers, 'transfer-encoding': 'chunked' })), want, 'chunked');
  const json = jsonBody(inputs);
  assert.ok(json.length > 16 * MIB && json.length < 64 * MIB, `${json.length}`);
  assert.deepEqual(answered(await post(server, json)), want, 'JSON');
  // Packed, a long request may be 16 times as long; this one is hardly packed. Zeros would be an attack.
  assert.deepEqual(answered(await post(server, gzipSync(body, { level: 0 }), { ...headers, 'content-encoding': 'gzip' })), want, 'gzip');
  const bomb = await post(server, gzipSync(Buffer.alloc(60 * MIB)), { 'content-encoding': 'gzip' });
  assert.equal(bomb.status, 413, bomb.answer.error);
  if (server.grpc) {
    const client = connect(t, server, { 'grpc.max_send_message_length': -1 });
    const request = {
      model_name: 'fastertransformer', raw_input_contents: inputs.map(({ raw }) => raw),
      inputs: inputs.map(({ name, datatype, shape }) => ({ name, datatype, shape })),
    };
    assert.deepEqual(idsOf(await client.call('ModelInfer', request)), want, 'ModelInfer');
    const stream = client.stream();
    stream.send(request);
    assert.deepEqual(idsOf((await stream.end()).at(-1).infer_response), want, 'ModelStreamInfer');
    await assert.rejects(client.call('ModelInfer', { ...request, raw_input_contents: [Buffer.alloc(65 * MIB)] }),
      { code: grpc.status.RESOURCE_EXHAUSTED, details: /larger than max/ });
    assert.deepEqual(await client.call('ServerLive'), { live: true });
  }
  await until('nothing is counted any more', async () => (await held(server)) === 0);
});

/** With gRPC if the build has it. */
const startServerOrHttp = (t, args) => (absent ? Server.start(t, { model, args: [...unlimited, ...args] }) : startServer(t, { model, args }));

test('other requests stay short, and longer inferences are refused before they are read', async (t) => {
  const server = await Server.start(t, { model, args: [...unlimited, '--max-infer-bytes', '64MiB'] });
  for (const at of ['/v1/chat/completions', '/v1/completions', '/v1/messages', '/v2/models/fastertransformer/generate', '/v2/repository/index'])
    assert.equal((await replied(declare(t, server, 2 * MIB, { 'content-type': 'application/json' }, at))).status, 413, at);
  const { status, answer } = await replied(declare(t, server, 64 * MIB + 1));
  assert.equal(status, 413);
  assert.match(answer.error, /the body is too long: more than 67108864 bytes/);
  assert.equal(await held(server), 0);
  // Without the setting the bound follows from the model: this one's tables are small.
  const small = await Server.start(t, { model, args: unlimited });
  assert.equal((await replied(declare(t, small, 2 * MIB))).status, 413);
});

test('what an owner and the server may have of long requests', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const names = ['a', 'b', 'c', 'd', 'e'], token = Object.fromEntries(names.map((name) => [name, `${name}-${'x'.repeat(40)}`]));
  writeFileSync(file, names.map((name) => `${name}:${token[name]}${name === 'e' ? ' admin' : ''}\n`).join(''), { mode: 0o600 });
  const server = await Server.start(t, { model, token: token.e, args: [...unlimited, '--token-file', file, '--max-infer-bytes', '64MiB'] });
  const as = (name) => ({ authorization: `Bearer ${token[name]}` });
  const metric = async () => Number(/^parley_long_request_bytes (\S+)$/m.exec(await (await fetch(`${server.url}/metrics`, { headers: as('e') })).text())[1]);
  // Nothing is accepted before the token.
  assert.equal((await replied(declare(t, server, 40 * MIB))).status, 401);
  assert.equal(await metric(), 0);
  const first = declare(t, server, 40 * MIB, as('a'));
  await until('it is counted', async () => (await metric()) === 40 * MIB);
  const second = await replied(declare(t, server, 40 * MIB, as('a')));
  assert.equal(second.status, 503);
  assert.match(second.answer.error, /your long requests take all the memory/);
  assert.ok(Number(second.headers['retry-after']) >= 1);
  // One that has fewer bytes than a message is not concerned, nor is another owner.
  const small = await post(server, JSON.stringify({ inputs: inputsOf([[5, 9]], 2) }), as('a'));
  assert.equal(small.status, 200, small.answer.error);
  const { body, headers } = binaryBody(inputsWithTable(6000));
  answered(await post(server, body, { ...headers, ...as('b') }));
  // The server's own bound: four of the longest.
  const all = ['b', 'c', 'd'].map((name) => declare(t, server, 64 * MIB, as(name)));
  await until('all are counted', async () => (await metric()) === (40 + 3 * 64) * MIB);
  const last = await replied(declare(t, server, 30 * MIB, as('e')));
  assert.equal(last.status, 503);
  assert.match(last.answer.error, /^long requests take all the memory/);
  // A client that goes gives its part back.
  for (const { request } of [first, ...all]) request.destroy();
  await until('nothing is counted any more', async () => (await metric()) === 0);
  answered(await post(server, body, { ...headers, ...as('a') }));
});
