// KServe v2 with FasterTransformer's models and tensors, as raw HTTP: JSON and binary tensors, sequences, batches, errors.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { few, longTest, parley, root, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';

const gpt2 = path.join(root, 'tests/fixtures/models/gpt2');
const sizes = { UINT32: 4, INT32: 4, FP32: 4, UINT64: 8, BOOL: 1 };
const put = {
  UINT32: (b, v, at) => b.writeUInt32LE(v, at), INT32: (b, v, at) => b.writeInt32LE(v, at), FP32: (b, v, at) => b.writeFloatLE(v, at),
  UINT64: (b, v, at) => b.writeBigUInt64LE(BigInt(v), at), BOOL: (b, v, at) => b.writeUInt8(v ? 1 : 0, at),
};
const get = { UINT32: (b, at) => b.readUInt32LE(at), INT32: (b, at) => b.readInt32LE(at), FP32: (b, at) => b.readFloatLE(at) };

const tensor = (name, datatype, shape, data) => ({ name, datatype, shape, data: [].concat(data) });
const column = (name, datatype, values) => tensor(name, datatype, [1, values.length, 1], values);
/** Inputs as FasterTransformer's interactive clients send them: rows of equal length, with the pseudo batch dimension. */
function inputsOf(rows, outputLen, more = []) {
  const width = Math.max(...rows.map((row) => row.length));
  return [
    tensor('input_ids', 'UINT32', [1, rows.length, width], rows.flatMap((row) => [...row, ...Array(width - row.length).fill(0)])),
    column('input_lengths', 'UINT32', rows.map((row) => row.length)),
    column('request_output_len', 'UINT32', rows.map(() => outputLen)),
    ...more,
  ];
}
const lengths = (rows, session, memory = session) => [column('session_len', 'UINT32', rows.map(() => session)), column('memory_len', 'UINT32', rows.map(() => memory))];

async function post(server, body, { model = 'fastertransformer', verb = 'infer', headers = {} } = {}) {
  const response = await fetch(`${server.url}/v2/models/${model}/${verb}`, {
    method: 'POST', body: body instanceof Uint8Array || typeof body === 'string' ? body : JSON.stringify(body), headers,
  });
  return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
}
async function infer(server, inputs, parameters, options) {
  const { status, bytes } = await post(server, { inputs, ...(parameters ? { parameters } : {}) }, options);
  const answer = JSON.parse(bytes);
  assert.equal(status, 200, answer.error);
  const out = Object.fromEntries(answer.outputs.map((o) => [o.name, o]));
  const [batch, rows, beams, width] = out.output_ids.shape;
  assert.deepEqual([batch, beams], [1, 1]);
  const ids = Array.from({ length: rows }, (_, row) => out.output_ids.data.slice(row * width, row * width + out.sequence_length.data[row]));
  return { ids, out, answer };
}
async function refused(server, body, status, sentence, options) {
  const answer = await post(server, body, options);
  const { error } = JSON.parse(answer.bytes);
  assert.equal(answer.status, status, error);
  assert.match(error, sentence);
}
const generate = (ids, n, more = []) => JSON.parse(execFileSync(parley, ['generate', '--model', gpt2, '--ids', ids.join(','),
  '--max-tokens', String(n), '--temperature', '0', '--json', ...more], { encoding: 'utf8' }));

test('outputs are no wider than a session is long', async (t) => {
  const server = await Server.start(t, { model: gpt2, args: unlimited });
  const { default_generation_settings: { n_ctx: longest } } = await (await fetch(`${server.url}/props`)).json();
  const flag = [column('is_return_log_probs', 'BOOL', [true])];
  for (const n of [longest, 2 ** 31 - 1]) {
    const { ids: [row], out } = await infer(server, inputsOf([[5, 9, 33]], n, flag));
    assert.deepEqual([out.output_ids.shape.at(-1), out.output_log_probs.shape.at(-1)], [longest, longest], `${n} tokens`);
    assert.ok(row.length <= longest);
  }
  const { out } = await infer(server, inputsOf([[5, 9, 33]], 4, flag));
  assert.deepEqual([out.output_ids.shape.at(-1), out.output_log_probs.shape.at(-1)], [7, 4]);
});

test('tensors as JSON and as bytes give the ids of parley generate', async (t) => {
  const server = await Server.start(t, { model: gpt2, args: unlimited });
  const rows = [[5, 9, 33], [7, 8, 9, 10, 11]];
  const want = rows.map((row) => generate(row, 6));

  await t.test('a batch of two lengths', async () => {
    const { ids, out } = await infer(server, inputsOf(rows, 6, [column('is_return_log_probs', 'BOOL', [true, true])]));
    rows.forEach((row, i) => assert.deepEqual(ids[i], [...row, ...want[i].ids]));
    assert.deepEqual([out.response_input_lengths.data, out.response_input_lengths.shape], [[3, 5], [1, 2, 1]]);
    assert.deepEqual(out.output_log_probs.shape, [1, 2, 1, 6]);
    rows.forEach((_, i) => want[i].ids.forEach((_, n) => assert.ok(Math.abs(out.output_log_probs.data[i * 6 + n] - want[i].logprobs[n]) < 1e-5)));
    const sum = want[1].logprobs.reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(out.cum_log_probs.data[1] - sum) < 1e-4);
  });

  await t.test('without the pseudo batch dimension', async () => {
    const plain = inputsOf([rows[0]], 6).map((input) => ({ ...input, shape: input.shape.slice(1) }));
    const { bytes } = await post(server, { id: 'a', inputs: plain, outputs: [{ name: 'output_ids' }] });
    const answer = JSON.parse(bytes);
    assert.equal(answer.id, 'a');
    assert.deepEqual(answer.outputs.map((o) => [o.name, o.shape]), [['output_ids', [1, 1, 9]]]);
    assert.deepEqual(answer.outputs[0].data, [...rows[0], ...want[0].ids]);
  });

  const binary = (inputs, extra = {}) => {
    const parts = inputs.map((input) => {
      const bytes = Buffer.alloc(input.data.length * sizes[input.datatype]);
      input.data.forEach((v, i) => put[input.datatype](bytes, v, i * sizes[input.datatype]));
      return bytes;
    });
    const json = Buffer.from(JSON.stringify({ ...extra, inputs: inputs.map(({ data, ...input }, i) => ({ ...input, parameters: { binary_data_size: parts[i].length } })) }));
    return { body: Buffer.concat([json, ...parts]), headers: { 'Inference-Header-Content-Length': String(json.length) } };
  };
  await t.test('binary both ways, also compressed', async () => {
    const seed = column('random_seed', 'UINT64', ['18446744073709551615', 3]);
    const { body, headers } = binary(inputsOf(rows, 6, [seed]), { parameters: { binary_data_output: true } });
    for (const [bytes, more] of [[body, {}], [gzipSync(body), { 'Content-Encoding': 'gzip' }]]) {
      const answer = await post(server, bytes, { headers: { ...headers, ...more } });
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get('content-type'), 'application/octet-stream');
      const jsonLength = Number(answer.headers.get('inference-header-content-length'));
      const { outputs } = JSON.parse(answer.bytes.subarray(0, jsonLength));
      let at = jsonLength;
      const read = Object.fromEntries(outputs.map((o) => {
        const values = Array.from({ length: o.parameters.binary_data_size / 4 }, (_, i) => get[o.datatype](answer.bytes, at + i * 4));
        at += o.parameters.binary_data_size;
        return [o.name, values];
      }));
      assert.equal(at, answer.bytes.length);
      assert.deepEqual(read.sequence_length, [9, 11]);
      assert.deepEqual(read.output_ids.slice(0, 9), [...rows[0], ...want[0].ids]);
    }
  });

  await t.test('bytes that do not add up', async () => {
    const { body, headers } = binary(inputsOf([rows[0]], 6));
    const send = (bytes, length) => refused(server, bytes, 400, /input|body|number/, { headers: { 'Inference-Header-Content-Length': String(length) } });
    const length = Number(headers['Inference-Header-Content-Length']);
    await send(body.subarray(0, body.length - 1), length);
    await send(Buffer.concat([body, Buffer.from([0])]), length);
    await send(body, body.length + 1);
    await send(body, '0x10');
    const lies = JSON.stringify({ inputs: [{ name: 'input_ids', datatype: 'UINT32', shape: [1, 1, 2147483647], parameters: { binary_data_size: 4 } }] });
    await send(Buffer.concat([Buffer.from(lies), Buffer.alloc(4)]), lies.length);
  });

  await t.test('parameters: an end token of the request, bad words, stop words, samples', async () => {
    const [first, , third] = want[0].ids;
    const ended = await infer(server, inputsOf([rows[0]], 6, [column('end_id', 'UINT32', [third])]));
    assert.deepEqual(ended.ids[0], [...rows[0], ...want[0].ids.slice(0, want[0].ids.indexOf(third) + 1)]);
    const banned = await infer(server, inputsOf([rows[0]], 6, [tensor('bad_words_list', 'INT32', [1, 1, 2, 1], [first, 1])]));
    assert.ok(!banned.ids[0].slice(3).includes(first));
    const sampled = [column('runtime_top_k', 'UINT32', [40]), column('temperature', 'FP32', [0.9]), column('random_seed', 'UINT64', [11])];
    const again = await infer(server, inputsOf([rows[0]], 6, sampled));
    assert.deepEqual((await infer(server, inputsOf([rows[0]], 6, sampled))).ids, again.ids);
    assert.deepEqual(again.ids[0].slice(3), generate(rows[0], 6, ['--temperature', '0.9', '--top-k', '40', '--seed', '11']).ids);
    // A seed that a double cannot hold.
    const seed = '18446744073709551557';
    const exact = { inputs: inputsOf([rows[0]], 6, [...sampled.slice(0, 2), column('random_seed', 'UINT64', ['SEED'])]) };
    const { outputs } = JSON.parse((await post(server, JSON.stringify(exact).replace('"SEED"', seed))).bytes);
    assert.deepEqual(outputs[0].data.slice(3), generate(rows[0], 6, ['--temperature', '0.9', '--top-k', '40', '--seed', seed]).ids);
  });

  await t.test("a seed in the types that FasterTransformer's tools send", async () => {
    const draw = (type) => infer(server, inputsOf(rows, 6, [column('runtime_top_k', 'UINT32', [8, 8]), column('random_seed', type, [7, 7])]));
    const { ids } = await draw('UINT64');
    for (const type of ['INT32', 'UINT32', 'INT64']) assert.deepEqual((await draw(type)).ids, ids, type);
    await refused(server, { inputs: inputsOf(rows, 6, [column('random_seed', 'FP32', [7, 7])]) }, 400, /random_seed.*expects 'UINT64'/);
  });
  await t.test('nothing is kept of requests without a sequence', async () => {
    const client = await server.connect();
    await until('the sessions to be deleted', async () => (await client.request({ type: 'session.list' })).sessions.length === 0);
  });
});

longTest('a sequence is a session: turns, restart, END, and what must be refused', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  let server = await Server.start(t, { model: gpt2, db, args: unlimited });
  const rows = [[5, 9, 33], [7, 8, 9, 10, 11]];
  const next = [[21, 22], [23, 24]];
  const start = { sequence_id: 42, sequence_start: true, sequence_end: false };
  const go = { sequence_id: 42, sequence_start: false, sequence_end: false };
  const one = await infer(server, inputsOf(rows, 4, lengths(rows, 128, 64)), start);
  rows.forEach((row, i) => assert.deepEqual(one.ids[i], [...row, ...generate(row, 4).ids]));

  const two = await infer(server, inputsOf(next, 4), go);
  next.forEach((row, i) => assert.deepEqual(two.ids[i], [...one.ids[i], ...row, ...generate([...one.ids[i], ...row], 4).ids]));

  const client = await server.connect();
  const { sessions } = await client.request({ type: 'session.list' });
  assert.deepEqual(sessions.map((s) => [s.title, s.memory_len, s.session_len, s.n_turns]), [['Sequence 42', 64, 128, 2], ['Sequence 42', 64, 128, 2]]);

  await t.test('goes on after kill -9, which lost nothing', async () => {
    await server.stop('SIGKILL');
    server = await Server.start(t, { model: gpt2, db, args: unlimited });
    const three = await infer(server, inputsOf(next, 3), go);
    next.forEach((row, i) => assert.deepEqual(three.ids[i], [...two.ids[i], ...row, ...generate([...two.ids[i], ...row], 3).ids]));
  });

  await t.test('requests of one sequence run in order, and 42 and "42" are two', async () => {
    const more = { ...go, sequence_id: '42' };
    await infer(server, inputsOf([[3]], 2, lengths([[3]], 128)), { ...more, sequence_start: true });
    const answers = await Promise.all([1, 2, 3, 4].map((id) => infer(server, inputsOf([[id]], 2), more)));
    const logs = answers.map((a) => a.ids[0]).sort((a, b) => a.length - b.length);
    logs.forEach((log, i) => assert.deepEqual(log.slice(0, 3 + i * 3), logs[3].slice(0, 3 + i * 3)));
    assert.equal(logs[3].length, 3 + 4 * 3);
  });

  await t.test('timeout: a request does not wait longer behind another one', async () => {
    const id = { sequence_id: 'slow' }, batch = Array.from({ length: few(240) }, (_, n) => [n + 3]); // more than run at once
    let over = false;
    const first = infer(server, inputsOf(batch, 250, lengths(batch, 256)), { ...id, sequence_start: true }).finally(() => { over = true; });
    const watcher = await server.connect();
    await until('the sequence to run', async () => (await watcher.request({ type: 'session.list' })).sessions.some((s) => s.title === 'Sequence slow'));
    await refused(server, { inputs: inputsOf(batch, 2), parameters: { ...id, timeout: 1000 } }, 400, /^timeout of the corresponding sequence has been expired$/);
    assert.equal(over, false);
    assert.ok((await first).ids.some((ids) => ids.length === 251));
  });

  await t.test('ids of 64 bits are exact', async () => {
    const body = (id, begin) => JSON.stringify({ inputs: inputsOf([[begin ? 3 : 4]], 2, begin ? lengths([[3]], 128) : []),
      parameters: { sequence_id: 'ID', sequence_start: begin } }).replace('"ID"', id);
    assert.equal((await post(server, body('18446744073709551615', true))).status, 200);
    await refused(server, body('18446744073709551614', false), 400, /must specify the START flag/);
  });

  await t.test('one row too long for the session takes no row further', async () => {
    const before = await infer(server, inputsOf([[1], [1]], 1), go);
    const long = Array.from({ length: 110 }, (_, i) => i + 1);
    await refused(server, { inputs: inputsOf([[2], long], 4), parameters: go }, 400, /Session size too low \(128\) vs\. total output size \(\d+\)/);
    const after = await infer(server, inputsOf([[1], [1]], 1), go);
    after.ids.forEach((ids, i) => assert.deepEqual(ids.slice(0, before.ids[i].length), before.ids[i]));
    after.ids.forEach((ids, i) => assert.equal(ids.length, before.ids[i].length + 2));
  });

  await t.test('START on a live id begins anew; END frees it', async () => {
    const anew = await infer(server, inputsOf(rows, 4, lengths(rows, 128)), start);
    assert.deepEqual(anew.ids, one.ids);
    await infer(server, inputsOf(next, 1), { ...go, sequence_end: true });
    await refused(server, { inputs: inputsOf(next, 1), parameters: go }, 400,
      /^inference request for sequence 42 to model 'fastertransformer' must specify the START flag on the first request of the sequence$/);
    await server.stop();
    server = await Server.start(t, { model: gpt2, db, args: unlimited });
    await refused(server, { inputs: inputsOf(next, 1), parameters: go }, 400, /must specify the START flag/);
  });

  await t.test('START without session_len, another number of rows, two owners', async () => {
    await refused(server, { inputs: inputsOf(rows, 4), parameters: start }, 400, /session_len/);
    await infer(server, inputsOf(rows, 4, lengths(rows, 128)), start);
    await refused(server, { inputs: inputsOf([[1]], 1), parameters: go }, 400, /2 rows, this request has 1/);
    await refused(server, { inputs: inputsOf([[1]], 1), parameters: { triton_x: 1 } }, 400, /^parameter keys starting with 'triton_'/);
  });
});

longTest('a sequence is found after a restart behind hundreds whose ids begin alike', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  let server = await Server.start(t, { model: gpt2, db, args: unlimited });
  const begin = (id) => infer(server, inputsOf([[id % 100]], 1, lengths([[1]], 64)), { sequence_id: id, sequence_start: true });
  const first = await begin(7);
  for (let id = 7000; id < 7300; id += 20) await Promise.all(Array.from({ length: 20 }, (_, n) => begin(id + n)));
  await server.stop();
  server = await Server.start(t, { model: gpt2, db, args: unlimited });
  const { ids } = await infer(server, inputsOf([[9]], 1), { sequence_id: 7 });
  assert.deepEqual(ids[0].slice(0, 3), [...first.ids[0], 9]);
});

test('one owner never meets the sequence of another', async (t) => {
  const tokens = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(tokens, 'ann:ann-token-0123456789\nbob:bob-token-0123456789\n', { mode: 0o600 });
  const server = await Server.start(t, { model: gpt2, args: [...unlimited, '--token-file', tokens] });
  const as = (name) => ({ headers: { Authorization: `Bearer ${name}-token-0123456789` } });
  const go = { sequence_id: 1, sequence_start: false };
  await infer(server, inputsOf([[3]], 2, lengths([[3]], 128)), { ...go, sequence_start: true }, as('ann'));
  await refused(server, { inputs: inputsOf([[4]], 2), parameters: go }, 400, /must specify the START flag/, as('bob'));
  assert.equal((await post(server, '{}')).status, 401);
  await infer(server, inputsOf([[4]], 2), go, as('ann'));
});

test('text: ensemble, generate, generate_stream; health, metadata, statistics', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const name = (await server.connect()).hello.models[0].name;
  const ask = [tensor('INPUT_0', 'BYTES', [2, 1], ['The cat', 'One, two,']), tensor('INPUT_1', 'UINT32', [2, 1], [5, 5])];
  const { status, bytes } = await post(server, { inputs: ask, outputs: [{ name: 'OUTPUT_0' }] }, { model: 'ensemble' });
  assert.equal(status, 200, bytes.toString());
  const [output] = JSON.parse(bytes).outputs;
  assert.deepEqual([output.datatype, output.shape], ['BYTES', [2]]);
  output.data.forEach((text, i) => assert.ok(text.startsWith(ask[0].data[i]), text));

  await t.test('preprocessing, fastertransformer and postprocessing give what ensemble gives', async () => {
    const run = async (model, inputs) => {
      const answer = await post(server, { inputs }, { model });
      assert.equal(answer.status, 200, answer.bytes.toString());
      return Object.fromEntries(JSON.parse(answer.bytes).outputs.map((o) => [o.name, o]));
    };
    const words = (name, list) => tensor(name, 'BYTES', [2, 1], list);
    const before = await run('preprocessing', [words('QUERY', ask[0].data), { ...ask[1], name: 'REQUEST_OUTPUT_LEN' },
      words('BAD_WORDS_DICT', ['dog, cat', '']), words('STOP_WORDS_DICT', ['', ''])]);
    assert.deepEqual([before.BAD_WORDS_IDS.shape.slice(0, 2), before.STOP_WORDS_IDS.data], [[2, 2], [0, -1, 0, -1]]);
    const named = (name, o) => ({ name, datatype: o.datatype, shape: o.shape, data: o.data });
    const middle = await run('fastertransformer', [named('input_ids', before.INPUT_ID), named('input_lengths', before.REQUEST_INPUT_LEN),
      named('request_output_len', before.REQUEST_OUTPUT_LEN), named('stop_words_list', before.STOP_WORDS_IDS)]);
    const rows = middle.output_ids.shape[0], width = middle.output_ids.shape[2];
    for (let row = 0; row < rows; row++) { // without the padding behind the answer
      const ids = middle.output_ids.data.slice(row * width, row * width + middle.sequence_length.data[row]);
      const after = await run('postprocessing', [tensor('TOKENS_BATCH', 'UINT32', [1, 1, ids.length], ids)]);
      assert.ok(after.OUTPUT.data[0].startsWith(output.data[row]), `${after.OUTPUT.data[0]} ${output.data[row]}`);
    }
  });

  const prompt = { text_input: 'Once upon a time', max_tokens: 300, parameters: { temperature: 0, ignore_eos: true } };
  const whole = JSON.parse((await post(server, prompt, { model: name, verb: 'generate' })).bytes);
  const streamed = await post(server, { ...prompt, id: 's' }, { model: name, verb: 'generate_stream' });
  assert.equal(streamed.headers.get('content-type'), 'text/event-stream; charset=utf-8');
  const events = streamed.bytes.toString().split('\n\n').filter(Boolean).map((event) => JSON.parse(event.replace(/^data: /, '')));
  assert.equal(events.map((event) => event.text_output).join(''), whole.text_output);
  assert.ok(whole.text_output.length > 0 && events.length > 1 && events.every((event) => event.id === 's'));

  const get = async (url) => {
    const response = await fetch(server.url + url);
    const text = await response.text();
    return { status: response.status, json: text ? JSON.parse(text) : null };
  };
  for (const url of ['/v2/health/live', '/v2/health/ready', `/v2/models/${name}/ready`, '/v2/models/ensemble/versions/1/ready']) assert.deepEqual(await get(url), { status: 200, json: null });
  assert.ok((await get('/v2')).json.extensions.includes('sequence(string_id)'));
  const metadata = (await get('/v2/models/fastertransformer')).json;
  assert.deepEqual(metadata.inputs.find((i) => i.name === 'input_ids'), { name: 'input_ids', datatype: 'UINT32', shape: [-1, -1] });
  assert.deepEqual(metadata.versions, ['1']);
  assert.ok((await get('/v2/models/ensemble/config')).json.input.some((i) => i.name === 'INPUT_0' && i.data_type === 'TYPE_STRING'));
  assert.equal((await get('/v2/models/ensemble/stats')).json.model_stats[0].inference_count, 1);
  assert.equal((await get('/v2/models/fastertransformer/infer')).status, 405);
  assert.equal((await get('/v2/models/nosuch')).status, 404);
  assert.equal((await get('/v2/models/nosuch/ready')).status, 400);
  assert.equal((await get('/v2/models/ensemble/versions/2')).status, 404);

  await t.test("what Triton's clients ask for beside inferences: every answer has Triton's form", async () => {
    const { host, hostname, port } = new URL(server.url);
    const ask = async (method, url, body = '') => { // as Triton's Python client: a POST without a body has no length either
      const length = body ? `Content-Length: ${Buffer.byteLength(body)}\r\n` : '';
      const socket = connect(Number(port), hostname);
      socket.write(`${method} ${url} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n${length}\r\n${body}`);
      const parts = [];
      for await (const part of socket) parts.push(part);
      const [head, json] = Buffer.concat(parts).toString().split('\r\n\r\n');
      return { status: Number(head.split(' ')[1]), json: json ? JSON.parse(json) : null };
    };
    const models = ['fastertransformer', 'ensemble', 'preprocessing', 'postprocessing', name];
    for (const body of ['', '{"ready":true}'])
      assert.deepEqual(await ask('POST', '/v2/repository/index', body), { status: 200, json: models.map((model) => ({ name: model, version: '1', state: 'READY' })) });
    const { json: { model_stats: all } } = await ask('GET', '/v2/models/stats');
    assert.deepEqual(all.map((model) => model.name), models);
    for (const memory of ['systemsharedmemory', 'cudasharedmemory']) {
      assert.deepEqual(await ask('GET', `/v2/${memory}/status`), { status: 200, json: [] });
      for (const url of [`/v2/${memory}/unregister`, `/v2/${memory}/region/a/unregister`]) assert.deepEqual(await ask('POST', url), { status: 200, json: null });
    }
    for (const [method, url, body, status] of [
      ['POST', `/v2/repository/models/${name}/load`, '{}', 503], ['POST', `/v2/repository/models/${name}/unload`, '', 503],
      ['GET', '/v2/trace/setting', '', 503], ['POST', '/v2/trace/setting', '{}', 503], ['GET', `/v2/models/${name}/trace/setting`, '', 503],
      ['POST', `/v2/models/${name}/trace/setting`, '{}', 503], ['GET', '/v2/logging', '', 503], ['POST', '/v2/logging', '{}', 503],
      ['POST', '/v2/systemsharedmemory/region/a/register', '{"key":"/a","offset":0,"byte_size":16}', 501],
      ['GET', '/v2/cudasharedmemory/region/a/status', '', 404], ['GET', '/v2/systemsharedmemory/unregister', '', 405],
      ['GET', '/v2/repository/index', '', 405], ['POST', '/v2/health/live', '', 405], ['GET', '/v2/nothing', '', 404], ['POST', '/v2/nothing', '{}', 404],
      ['POST', `/v2/models/${name}/infer`, '', 411]]) {
      const answer = await ask(method, url, body);
      assert.deepEqual([answer.status, typeof answer.json.error], [status, 'string'], `${method} ${url}`);
    }
  });

  await t.test('bad input is named', async () => {
    const one = inputsOf([[1]], 1);
    const cases = [
      ['{', /./], ['[]', /object/], [{}, /inputs is missing/], [{ inputs: [] }, /'input_ids' is missing/],
      [{ inputs: [...one, tensor('nosuch', 'FP32', [1], [1])] }, /^unexpected inference input 'nosuch' for model 'fastertransformer'$/],
      [{ inputs: one.map((i) => ({ ...i, datatype: 'INT32' })) }, /data-type is 'INT32', but model 'fastertransformer' expects 'UINT32'/],
      [{ inputs: one, outputs: [{ name: 'nosuch' }] }, /unexpected inference output 'nosuch'/],
      [{ inputs: one, outputs: [{ name: 'output_ids', parameters: { shared_memory_region: 'a', shared_memory_byte_size: 8 } }] }, /'output_ids': shared memory is not served/],
      [{ inputs: one, outputs: [{ name: 'output_ids', parameters: { classification: 2 } }] }, /'output_ids': classification is not served/],
      [{ inputs: [{ ...one[0], data: undefined, parameters: { shared_memory_region: 'a', shared_memory_byte_size: 4 } }, ...one.slice(1)] }, /'input_ids': shared memory is not served/],
      [{ inputs: [...one, one[0]] }, /given twice/],
      [{ inputs: [{ ...one[0], shape: [1, 1, 3] }, ...one.slice(1)] }, /its shape needs 3/],
      [{ inputs: [{ ...one[0], shape: [9223372036854775807] }, ...one.slice(1)] }, /dimension/],
      [{ inputs: [{ ...one[0], data: [-1] }, ...one.slice(1)] }, /is not a valid UINT32/],
      [{ inputs: [{ ...one[0], data: [4294967295] }, ...one.slice(1)] }, /vocabulary/],
      [{ inputs: [one[0], column('input_lengths', 'UINT32', [2]), one[2]] }, /input_lengths/],
      [{ inputs: [...one, column('beam_width', 'UINT32', [1000])] }, /beam_width/],
      [{ inputs: [...one, column('temperature', 'FP32', [-1])] }, /temperature/],
      [{ inputs: [...one, tensor('stop_words_list', 'INT32', [1, 1, 2, 2], [5, 6, 2, 1])] }, /backwards/],
    ];
    for (const [body, sentence] of cases) await refused(server, body, 400, sentence);
  });
});

test('generate and generate_stream in a sequence', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const name = (await server.connect()).hello.models[0].name;
  const said = { temperature: 0, max_tokens: 8, ignore_eos: true };
  const generate = async (text_input, parameters, verb = 'generate') => {
    const { status, bytes } = await post(server, { text_input, parameters: { ...said, ...parameters } }, { model: name, verb });
    if (verb === 'generate') return { status, ...JSON.parse(bytes) };
    return { status, text_output: bytes.toString().split('\n\n').filter(Boolean).map((event) => JSON.parse(event.replace(/^data: /, '')).text_output).join('') };
  };
  const first = await generate('Once upon a time', { sequence_id: 'tale', sequence_start: true, session_len: 200, memory_len: 64 });
  assert.equal(first.status, 200, first.error);
  const second = await generate(' The king', { sequence_id: 'tale' }, 'generate_stream');
  const client = await server.connect();
  const { sessions: [session] } = await client.request({ type: 'session.list' });
  assert.deepEqual([session.title, session.session_len, session.memory_len], ['Sequence tale', 200, 64]);
  const { turns } = await client.request({ type: 'session.get', session: session.id });
  assert.deepEqual(turns.map((turn) => turn.text), [first.text_output, second.text_output]);
  // As parley.v1 goes on with a text; infer goes on with the same log.
  const own = await client.open({ session_len: 200, memory_len: 64 });
  await client.turn(own, { text: 'Once upon a time' }, { sampling: said });
  await client.turn(own, { text: ' The king' }, { sampling: said });
  const { turns: ours } = await client.request({ type: 'session.get', session: own });
  assert.deepEqual(ours.map((turn) => turn.text), turns.map((turn) => turn.text));
  const log = await infer(server, inputsOf([[5]], 1), { sequence_id: 'tale' });
  assert.ok(log.ids[0].length > 2 * 8 + 2);

  await t.test('what is refused; END frees it; an answer ends where the session does', async () => {
    const cases = [[{ sequence_id: 'nosuch' }, /must specify the START flag/], [{ sequence_id: 'b', sequence_start: true }, /session_len/],
      [{ sequence_id: 'b', sequence_start: true, session_len: 0 }, /session_len/], [{ sequence_id: 'b', sequence_start: true, session_len: 20, memory_len: 'x' }, /memory_len/],
      [{ sequence_id: true }, /sequence_id/]];
    for (const [parameters, sentence] of cases) {
      const { status, error } = await generate('Hello', parameters);
      assert.equal(status, 400, error);
      assert.match(error, sentence);
    }
    const short = await generate('Hello there', { sequence_id: 'b', sequence_start: true, session_len: 12, max_tokens: 500 });
    assert.equal(short.status, 200, short.error);
    const full = await generate('and more words than there is room for in it', { sequence_id: 'b' });
    assert.equal(full.status, 400);
    assert.equal((await generate(' The end', { sequence_id: 'tale', sequence_end: true })).status, 200);
    assert.match((await generate('?', { sequence_id: 'tale' })).error, /must specify the START flag/);
  });
});

longTest('generate and generate_stream take sampling parameters that are lists and objects', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const name = (await server.connect()).hello.models[0].name;
  const said = { temperature: 0, max_tokens: 12 };
  const ask = async (parameters, members = {}, verb = 'generate') => {
    const { status, bytes } = await post(server, { text_input: 'Once upon a time', parameters: { ...said, ...parameters }, ...members }, { model: name, verb });
    return { status, text: String(bytes), ...(verb === 'generate' ? JSON.parse(bytes) : {}) };
  };
  const json_schema = { type: 'integer', minimum: 40, maximum: 49 };
  for (const answer of [await ask({ json_schema }), await ask({}, { json_schema }), await ask({ json_schema: JSON.stringify(json_schema) })]) {
    assert.equal(answer.status, 200, answer.text);
    assert.match(answer.text_output, /^\s*4\d$/);
  }
  assert.match((await ask({ choice: ['left'] })).text_output, /^left$/);
  assert.match((await ask({ choice: ['left'] }, {}, 'generate_stream')).text, /"text_output":"l/);
  const { text_output: plain } = await ask({ ignore_eos: true });
  const cut = plain.slice(2, 4);
  assert.equal((await ask({ ignore_eos: true, stop: ['\u0001', cut] })).text_output, plain.slice(0, plain.indexOf(cut)));
  const [first] = (await (await fetch(`${server.url}/tokenize`, { method: 'POST', body: JSON.stringify({ content: plain }) })).json()).tokens;
  assert.notEqual((await ask({ ignore_eos: true, logit_bias: { [first]: -100 } })).text_output, plain);
  assert.equal((await ask({ ignore_eos: true, mine: [1], other: { a: 1 } })).text_output, plain); // unknown names
  for (const [parameters, named] of [[{ json_schema: [] }, /json_schema/], [{ json_schema: { $ref: '#' } }, /\$ref|schema/], [{ stop: [5] }, /stop/], [{ temperature: [] }, /temperature/],
    [{ max_tokens: {} }, /max_tokens/], [{ priority: [] }, /priority/], [{ timeout: {} }, /timeout/], [{ sequence_id: [] }, /sequence_id/], [{ triton_x: [] }, /triton_/]])
    for (const verb of ['generate', 'generate_stream']) {
      const { status, text } = await ask(parameters, {}, verb);
      assert.equal(status, 400, text);
      assert.match(text, named);
    }
});

longTest('the ensemble of a repository has the tokenizer of its preprocessing, under the names of FasterTransformer', async (t) => {
  const folder = temporaryFolder(t);
  const words = path.join(folder, 'preprocessing/1');
  for (const each of ['fastertransformer/1', 'preprocessing/1']) mkdirSync(path.join(folder, each), { recursive: true });
  cpSync(gpt2, path.join(folder, 'fastertransformer/1/1-gpu'), { recursive: true });
  writeFileSync(path.join(folder, 'fastertransformer/config.pbtxt'), 'name: "fastertransformer"\n');
  // Each byte's character, as GPT-2 writes it: bytes that no text shows stand behind the others, from U+0100 on.
  const shown = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  const bytes256 = Array.from({ length: 256 }, (_, byte) => byte);
  const characters = [...bytes256.filter(shown), ...bytes256.filter((byte) => !shown(byte)).map((_, i) => 256 + i)];
  const vocabulary = [...characters.map((code) => String.fromCharCode(code)), 'ab', '\u0120c'];
  writeFileSync(path.join(words, 'gpt2-vocab.json'), JSON.stringify(Object.fromEntries(vocabulary.map((each, id) => [each, id]))));
  writeFileSync(path.join(words, 'gpt2-merges.txt'), '#version: 0.2\na b\n\u0120 c\n');
  const checkpoint = path.join(folder, 'fastertransformer/1/1-gpu');
  const server = await Server.start(t, { model: checkpoint, args: [...unlimited, '--model-repository', folder] });
  const ask = [tensor('QUERY', 'BYTES', [1, 1], ['abba c']), tensor('REQUEST_OUTPUT_LEN', 'UINT32', [1, 1], [3])];
  const { status, bytes } = await post(server, { inputs: ask }, { model: 'preprocessing' });
  assert.equal(status, 200, bytes.toString());
  const ids = JSON.parse(bytes).outputs.find((each) => each.name === 'INPUT_ID').data;
  assert.deepEqual(ids, ['ab', 'b', 'a', '\u0120c'].map((each) => vocabulary.indexOf(each)));
  const run = (...args) => JSON.parse(execFileSync(parley, args, { encoding: 'utf8', input: 'abba c', stdio: 'pipe' }));
  assert.deepEqual(run('tokenize', '--model', checkpoint, '--tokenizer', words, '--json').ids, ids);
  assert.throws(() => run('tokenize', '--model', checkpoint, '--tokenizer', folder, '--json'),
    (error) => /tokenizer '.*' is no folder with a tokenizer/.test(error.stderr));
});

longTest('a model repository of Triton is read: checkpoint, 8-bit weights, idle time; options win over it', async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(path.join(folder, 'fastertransformer/1'), { recursive: true });
  cpSync(gpt2, path.join(folder, 'fastertransformer/1/1-gpu'), { recursive: true });
  const file = path.join(folder, 'fastertransformer/config.pbtxt');
  const parameter = (key, value) => `parameters { key: "${key}" value: { string_value: "${value}" } }\n`;
  const write = (...parameters) => writeFileSync(file, `name: "fastertransformer" # FasterTransformer
max_batch_size: 1
instance_group [ { count: 1 kind: KIND_CPU }, { count: 2 kind: KIND_CPU } ]
response_cache { enable: true }
sequence_batching { max_sequence_idle_microseconds: 5000000 direct { } control_input [ { name: "START" } ] }
${parameters.map(([key, value]) => parameter(key, value)).join('')}`);
  write(['model_type', 'GPT'], ['int8_mode', '1'], ['data_type', 'fp32'], ['tensor_para_size', '8']);
  const server = await Server.start(t, { model: path.join(folder, 'fastertransformer/1/1-gpu'), args: [...unlimited, '--model-repository', folder] });
  assert.match(server.log, /repository\.ignored parameter=tensor_para_size value="8"/);
  for (const field of ['max_batch_size', 'instance_group', 'response_cache']) assert.equal(server.log.split(`repository.ignored parameter=${field} `).length, 2, field);
  const config = await (await fetch(`${server.url}/config`)).json();
  assert.deepEqual([config.engine.weight_dtype, config.engine.compute_dtype, config.sessions.max_sequence_idle_microseconds], ['int8', 'f32', 5000000]);
  // Not '1', which is only its version.
  assert.deepEqual((await (await fetch(`${server.url}/v1/models`)).json()).data.map(({ id }) => id), ['fastertransformer']);
  const print = (...args) => execFileSync(parley, ['serve', '--model-repository', folder, '--print-config', ...args], { encoding: 'utf8', stdio: 'pipe' });
  assert.match(print(), /^model = .*\/fastertransformer\/1\/1-gpu$/m);
  assert.match(print('--weight-dtype', 'model'), /^weight_dtype = model$/m);
  const fails = (parameters, sentence) => {
    write(...parameters);
    assert.throws(() => print(), (error) => sentence.test(error.stderr));
  };
  fails([['int8_mode', '2']], /config\.pbtxt:6: int8_mode '2' is not served/);
  fails([['model_type', 'T5']], /config\.pbtxt:6: model_type 'T5' is not served/);
  writeFileSync(file, 'parameters { key: "int8_mode" }');
  assert.throws(() => print(), /config\.pbtxt:1: parameters needs a key and a value\.string_value/);
});
