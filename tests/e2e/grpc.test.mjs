// KServe v2 over gRPC with FasterTransformer's models: tensors both ways, streams, sequences, health and metadata, tokens,
// TLS, and the end of the server.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { absent, column, connect, generate, gpt2, grpc, idsOf, inputsOf, outputsOf, requestOf, startServer, tensor } from './grpc.mjs';
import { longTest, parley, root, shortTest as test, temporaryFolder, until } from './harness.mjs';
import { readTensor } from './safetensors.mjs';

const skip = absent;
const rows = [[5, 9, 33], [7, 8, 9, 10, 11]];
const lengths = (n, session = 200) => [column('session_len', 'UINT32', Array(n).fill(session)), column('memory_len', 'UINT32', Array(n).fill(session))];
const isFinal = (answer) => answer.infer_response.parameters.triton_final_response.bool_param;

test('ModelInfer: raw and typed tensors give the ids of parley generate', { skip }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server);
  const want = rows.map((row) => generate(row, 6));
  const inputs = inputsOf(rows, 6, [column('is_return_log_probs', 'BOOL', [true, true])]);

  for (const typed of [false, true])
    await t.test(typed ? 'typed contents' : 'raw contents', async () => {
      const answer = await client.call('ModelInfer', requestOf(inputs, {}, { typed, id: 'a1' }));
      assert.deepEqual([answer.model_name, answer.model_version, answer.id], ['fastertransformer', '1', 'a1']);
      assert.equal(answer.raw_output_contents.length, answer.outputs.length); // as Triton's, whatever came
      rows.forEach((row, i) => assert.deepEqual(idsOf(answer)[i], [...row, ...want[i].ids]));
      const { output_log_probs: probs, response_input_lengths: before } = outputsOf(answer);
      assert.deepEqual([probs.shape, before.data], [['2', '1', '6'], [3, 5]]);
      rows.forEach((_, i) => want[i].ids.forEach((_, n) => assert.ok(Math.abs(probs.data[i * 6 + n] - want[i].logprobs[n]) < 1e-5)));
    });

  await t.test('typed outputs where binary_data_output is false, and outputs by name', async () => {
    const answer = await client.call('ModelInfer', requestOf(inputs, { binary_data_output: false }, { outputs: ['output_ids', 'cum_log_probs'] }));
    assert.deepEqual([answer.outputs.map((o) => o.name), answer.raw_output_contents], [['output_ids', 'cum_log_probs'], []]);
    assert.deepEqual(answer.outputs[0].contents.uint_contents.slice(0, 9), [...rows[0], ...want[0].ids]);
    assert.equal(answer.outputs[1].contents.fp32_contents.length, 2);
  });

  await t.test('the pseudo batch dimension, the same answer as over HTTP', async () => {
    const outer = inputs.map((input) => ({ ...input, shape: [1, ...input.shape] }));
    const { output_ids: ids } = outputsOf(await client.call('ModelInfer', requestOf(outer)));
    const response = await fetch(`${server.url}/v2/models/fastertransformer/infer`, { method: 'POST', body: JSON.stringify({ inputs: outer }) });
    const http = (await response.json()).outputs.find((o) => o.name === 'output_ids');
    assert.deepEqual([ids.shape.map(Number), ids.data], [http.shape, http.data]);
  });
});

longTest('compressed messages: calls and streams', { skip }, async (t) => {
  const server = await startServer(t);
  const want = [...rows[0], ...generate(rows[0], 6).ids];
  const long = inputsOf([rows[0]], 6, [tensor('bad_words_list', 'INT32', [1, 2, 400], Array(800).fill(0).fill(-1, 400))]);
  for (const algorithm of [1, 2]) { // deflate, gzip
    const client = connect(t, server, { 'grpc.default_compression_algorithm': algorithm });
    for (const inputs of [inputsOf([rows[0]], 6), long])
      assert.deepEqual(idsOf(await client.call('ModelInfer', requestOf(inputs)))[0], want);
    const stream = client.stream();
    stream.send(requestOf(inputsOf([rows[0]], 6)));
    stream.send(requestOf(long));
    const answers = await stream.end();
    assert.deepEqual(answers.filter(isFinal).map((a) => idsOf(a.infer_response)[0]), [want, want]);
  }
  await t.test('one in the middle of a stream that unpacks to too much ends the stream', async () => {
    const client = connect(t, server, { 'grpc.default_compression_algorithm': 2 });
    const stream = client.stream();
    stream.send(requestOf(inputsOf([rows[0]], 200, [column('min_length', 'INT32', [200])])));
    await until('a token', () => stream.answers.length);
    stream.send({ model_name: 'x'.repeat(8 << 20) });
    await assert.rejects(stream.end(), { code: grpc.status.RESOURCE_EXHAUSTED });
    assert.deepEqual(await client.call('ServerLive'), { live: true });
    await until('the stream\'s turn to end', async () => (await server.metric('parley_turns')) === 0);
  });
});

longTest('prompt learning: a table of the request, in pieces; a task without a table is refused', { skip }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server);
  const folder = path.join(root, 'tests/fixtures/prompts/gpt2/soft');
  const { data, shape } = readTensor(path.join(folder, 'adapter_model.safetensors'), 'prompt_embeddings');
  const own = [
    column('request_prompt_type', 'UINT32', [1]), column('request_prompt_lengths', 'UINT32', [shape[0]]),
    tensor('request_prompt_embedding', 'FP32', [1, ...shape], Array.from(data)),
  ];
  const want = [...rows[0], ...generate(rows[0], 6, ['--prompt-task', folder]).ids];
  const inputs = inputsOf([rows[0]], 6, own);
  for (const typed of [false, true]) assert.deepEqual(idsOf(await client.call('ModelInfer', requestOf(inputs, {}, { typed })))[0], want);
  const stream = client.stream();
  stream.send(requestOf(inputs));
  const answers = await stream.end(); // virtual tokens are in none of them
  answers.forEach((a, k) => assert.deepEqual(idsOf(a.infer_response)[0], want.slice(0, rows[0].length + k + 1)));
  assert.equal(answers.length, 6);
  const task = inputsOf([rows[0]], 6, [column('prompt_learning_task_name_ids', 'UINT32', [0])]);
  await assert.rejects(client.call('ModelInfer', requestOf(task)), /prompt_learning_task_name_ids/);
});

test('text: ensemble, preprocessing, postprocessing', { skip }, async (t) => {
  const server = await startServer(t, { model: path.join(root, 'configs/demo-model') });
  const client = connect(t, server);
  const ensemble = [tensor('INPUT_0', 'BYTES', [1, 1], ['2 + 2 =']), tensor('INPUT_1', 'UINT32', [1, 1], [5])];
  for (const typed of [false, true]) {
    const encoded = outputsOf(await client.call('ModelInfer', requestOf(
      [tensor('QUERY', 'BYTES', [1, 1], ['2 + 2 =']), tensor('REQUEST_OUTPUT_LEN', 'UINT32', [1, 1], [5])], {}, { model: 'preprocessing', typed })));
    const ids = await client.call('ModelInfer', requestOf(inputsOf([encoded.INPUT_ID.data], 5), {}, { typed }));
    const decoded = outputsOf(await client.call('ModelInfer', requestOf(
      [tensor('TOKENS_BATCH', 'UINT32', [1, 1, idsOf(ids)[0].length], idsOf(ids)[0])], {}, { model: 'postprocessing', typed })));
    const whole = outputsOf(await client.call('ModelInfer', requestOf(ensemble, {}, { model: 'ensemble', typed })));
    assert.deepEqual(whole.OUTPUT_0.data, decoded.OUTPUT.data);
    assert.match(whole.OUTPUT_0.data[0], /^2 \+ 2 =./);
  }
  await t.test('streamed: the text grows with each answer', async () => {
    const stream = client.stream();
    stream.send(requestOf(ensemble, {}, { model: 'ensemble' }));
    const texts = (await stream.end()).map((a) => outputsOf(a.infer_response).OUTPUT_0.data[0]);
    texts.slice(1).forEach((text, i) => assert.ok(text.startsWith(texts[i].replace(/\ufffd+$/, ''))));
    assert.deepEqual([texts.at(-1)], outputsOf(await client.call('ModelInfer', requestOf(ensemble, {}, { model: 'ensemble' }))).OUTPUT_0.data);
  });
});

longTest('ModelStreamInfer: an answer for each token, the last one marked', { skip }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server);

  await t.test('rows of a batch go in step, and one that ends early waits', async () => {
    const stream = client.stream();
    stream.send(requestOf(inputsOf(rows, [8, 3]), {}, { id: 'x' }));
    const answers = await stream.end();
    const want = rows.map((row, i) => [...row, ...generate(row, [8, 3][i]).ids]);
    const n = Math.max(...rows.map((row, i) => want[i].length - row.length));
    assert.equal(answers.length, n);
    answers.forEach((a, k) => {
      assert.deepEqual([a.error_message, a.infer_response.id, isFinal(a)], ['', 'x', k === n - 1]);
      rows.forEach((row, i) => assert.deepEqual(idsOf(a.infer_response)[i], want[i].slice(0, row.length + k + 1)));
    });
  });

  await t.test('an end token ends it with the answer that has it', async () => {
    const [first] = generate(rows[0], 6).ids;
    const stream = client.stream();
    stream.send(requestOf(inputsOf([rows[0]], 20, [column('end_id', 'UINT32', [first])])));
    const answers = await stream.end();
    assert.deepEqual(answers.map(isFinal), [true]);
    assert.deepEqual(idsOf(answers[0].infer_response)[0], [...rows[0], first]);
  });

  await t.test('triton_enable_empty_final_response: every token at once, then an empty answer', async () => {
    const stream = client.stream();
    stream.send(requestOf(inputsOf([rows[0]], 5), { triton_enable_empty_final_response: true }, { id: 'e' }));
    const answers = await stream.end();
    assert.deepEqual(answers.map(isFinal), [...Array(5).fill(false), true]);
    assert.deepEqual(idsOf(answers[4].infer_response)[0], [...rows[0], ...generate(rows[0], 5).ids]);
    assert.deepEqual([answers[5].infer_response.outputs, answers[5].infer_response.id], [[], 'e']);
  });

  await t.test('many requests beside each other, errors among them, and the stream goes on', async () => {
    const stream = client.stream();
    for (let i = 0; i < 40; i++) stream.send(requestOf(inputsOf([[5 + i, 9]], 4), {}, { id: `q${i}`, model: i % 10 === 7 ? 'nope' : 'fastertransformer' }));
    const answers = await stream.end();
    for (let i = 0; i < 40; i++) {
      const mine = answers.filter((a) => a.infer_response.id === `q${i}`);
      if (i % 10 === 7) {
        assert.deepEqual(mine.map((a) => a.error_message), ["Request for unknown model: 'nope' is not found"]);
      } else {
        assert.equal(mine.filter(isFinal).length, 1);
        assert.deepEqual(idsOf(mine.at(-1).infer_response)[0], [5 + i, 9, ...generate([5 + i, 9], 4).ids]);
      }
    }
  });

  await t.test('decoupled = off: one answer for each request, as ModelConfig says', async () => {
    const other = await startServer(t, { args: ['--no-decoupled'] });
    const whole = connect(t, other);
    const stream = whole.stream();
    stream.send(requestOf(inputsOf([rows[0]], 5)));
    stream.send(requestOf(inputsOf([rows[1]], 5)));
    const answers = await stream.end();
    assert.deepEqual(answers.map(isFinal), [true, true]);
    assert.deepEqual((await whole.call('ModelConfig', { name: 'fastertransformer' })).config.model_transaction_policy, { decoupled: false });
  });
});

test('a sequence over gRPC is a session: streamed turns, HTTP beside it, a restart, END', { skip }, async (t) => {
  let server = await startServer(t);
  let client = connect(t, server);
  const turns = [[5, 9, 33], [40, 41], [12]];
  const reference = [];
  for (const turn of turns) reference.push(...turn, ...generate([...reference, ...turn], 4, ['--ignore-eos']).ids);
  const want = (n) => reference.slice(0, turns.slice(0, n).flat().length + 4 * n);

  const first = client.stream();
  first.send(requestOf(inputsOf([turns[0]], 4, lengths(1)), { sequence_id: 'room-1', sequence_start: true, sequence_end: false, priority: 0, timeout: 0 }));
  const pieces = await first.end();
  assert.deepEqual(idsOf(pieces.at(-1).infer_response)[0], want(1));

  const response = await fetch(`${server.url}/v2/models/fastertransformer/infer`, {
    method: 'POST', body: JSON.stringify({ parameters: { sequence_id: 'room-1' }, inputs: inputsOf([turns[1]], 4) }) });
  const answer = await response.json();
  assert.deepEqual(answer.outputs.find((o) => o.name === 'output_ids').data, want(2), answer.error);

  await server.stop('SIGKILL');
  server = await startServer(t, { db: server.db });
  client = connect(t, server);
  const last = await client.call('ModelInfer', requestOf(inputsOf([turns[2]], 4), { sequence_id: 'room-1', sequence_end: true }));
  assert.deepEqual(idsOf(last)[0], want(3));
  await assert.rejects(client.call('ModelInfer', requestOf(inputsOf([[1]], 4), { sequence_id: 'room-1' })),
    { code: grpc.status.INVALID_ARGUMENT, details: /inference request for sequence room-1 to model 'fastertransformer' must specify the START flag on the first request of the sequence/ });

  await t.test('all requests of a sequence sent at once on one stream run in order', async () => {
    for (let k = 0; k < 5; k++) {
      const send = (stream, i) => stream.send(requestOf(inputsOf([turns[i]], 4, i ? [] : lengths(1)),
        { sequence_id: `at-once-${k}`, sequence_start: i === 0, sequence_end: i === 2 }, { id: `q${i}` }));
      const stream = client.stream();
      [0, 1, 2].forEach((i) => send(stream, i));
      const answers = await stream.end();
      assert.deepEqual(answers.map((a) => a.error_message), Array(12).fill(''));
      [0, 1, 2].forEach((i) => assert.deepEqual(idsOf(answers.filter((a) => a.infer_response.id === `q${i}`).at(-1).infer_response)[0], want(i + 1)));
      assert.deepEqual(answers.map((a) => a.infer_response.id), answers.map((_, n) => `q${Math.floor(n / 4)}`));
    }
    assert.deepEqual(await client.call('ServerLive'), { live: true });
  });

  await t.test('ids of 64 bits, as either kind of number', async () => {
    const id = 2n ** 64n - 1n;
    await client.call('ModelInfer', requestOf(inputsOf([[5]], 2, lengths(1)), { sequence_id: id, sequence_start: true }));
    await client.call('ModelInfer', requestOf(inputsOf([[6]], 2), { sequence_id: id }));
    await client.call('ModelInfer', requestOf(inputsOf([[5]], 2, lengths(1)), { sequence_id: 9, sequence_start: true }));
    await client.call('ModelInfer', requestOf(inputsOf([[6]], 2), { sequence_id: 9n }));
    await assert.rejects(client.call('ModelInfer', requestOf(inputsOf([[6]], 2), { sequence_id: -9 })), { code: grpc.status.INVALID_ARGUMENT });
  });
});

test('health, metadata, configuration, statistics, names; unknown methods', { skip }, async (t) => {
  const server = await startServer(t, { args: ['--model-name', 'my-gpt'] });
  const client = connect(t, server);
  assert.deepEqual(await client.call('ServerLive'), { live: true });
  assert.deepEqual(await client.call('ServerReady'), { ready: true });
  for (const [name, version, ready] of [['fastertransformer', '', true], ['my-gpt', '1', true], ['gpt2', '', true], ['gpt2', '2', false], ['no', '', false]])
    assert.deepEqual(await client.call('ModelReady', { name, version }), { ready }, name);
  const http = async (address) => (await fetch(`${server.url}${address}`)).json();
  assert.deepEqual(await client.call('ServerMetadata'), await http('/v2'));
  const numbers = (fields) => fields.map((f) => ({ ...f, shape: f.shape.map(Number) }));
  const metadata = await client.call('ModelMetadata', { name: 'my-gpt' });
  assert.deepEqual({ ...metadata, inputs: numbers(metadata.inputs), outputs: numbers(metadata.outputs) }, await http('/v2/models/my-gpt'));
  const { config } = await client.call('ModelConfig', { name: 'ensemble' });
  const stated = await http('/v2/models/ensemble/config');
  assert.deepEqual([config.input.map((f) => [f.name, f.data_type, f.dims.map(Number)]), config.max_batch_size, config.model_transaction_policy],
    [stated.input.map((f) => [f.name, f.data_type, f.dims]), stated.max_batch_size, stated.model_transaction_policy]);
  const { output_ids: ids } = outputsOf(await client.call('ModelInfer', requestOf(inputsOf([rows[0]], 3), {}, { model: 'my-gpt' })));
  assert.deepEqual(ids.data, [...rows[0], ...generate(rows[0], 3).ids]);
  await assert.rejects(client.call('ModelInfer', requestOf(inputsOf([rows[0]], 0))), { code: grpc.status.INVALID_ARGUMENT });
  const { model_stats: stats } = await client.call('ModelStatistics', { name: 'my-gpt' });
  assert.deepEqual([stats.length, stats[0].name, stats[0].inference_count, stats[0].inference_stats.success.count], [1, 'my-gpt', '1', '1']);
  assert.ok(Number(stats[0].inference_stats.compute_infer.ns) > 0);
  const { models } = await client.call('RepositoryIndex');
  assert.deepEqual(models.map((m) => [m.name, m.state]), ['fastertransformer', 'ensemble', 'preprocessing', 'postprocessing', 'gpt2', 'my-gpt'].map((name) => [name, 'READY']));
  assert.equal((await client.call('ModelStatistics')).model_stats.length, 6);
  await assert.rejects(client.call('ModelMetadata', { name: 'no' }), { code: grpc.status.NOT_FOUND });

  const raw = (address, bytes) => new Promise((resolve, reject) => {
    client.stub.makeUnaryRequest(address, (v) => v, (v) => v, bytes, new grpc.Metadata(), {}, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
  assert.deepEqual([...await raw('/grpc.health.v1.Health/Check', Buffer.alloc(0))], [8, 1]); // SERVING
  const service = '/inference.GRPCInferenceService/';
  for (const [method, code] of [[`${service}TraceSetting`, 'UNAVAILABLE'], [`${service}LogSettings`, 'UNAVAILABLE'], [`${service}RepositoryModelLoad`, 'UNAVAILABLE'],
    [`${service}RepositoryModelUnload`, 'UNAVAILABLE'], [`${service}SystemSharedMemoryRegister`, 'UNIMPLEMENTED'],
    [`${service}CudaSharedMemoryRegister`, 'UNIMPLEMENTED'], ['/a.B/C', 'UNIMPLEMENTED']])
    await assert.rejects(raw(method, Buffer.alloc(0)), { code: grpc.status[code] }, method);
  for (const memory of ['System', 'Cuda']) {
    for (const verb of ['Status', 'Unregister']) assert.deepEqual(await raw(`${service}${memory}SharedMemory${verb}`, Buffer.alloc(0)), Buffer.alloc(0));
    await assert.rejects(raw(`${service}${memory}SharedMemoryStatus`, Buffer.from('\n\x01a')), { code: grpc.status.NOT_FOUND });
  }
});

test('tokens, owners and limits are those of HTTP', { skip }, async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const [alice, bob] = ['alice-0123456789abcdef', 'bob-0123456789abcdef'];
  writeFileSync(file, `alice:${alice}\nbob:${bob} requests_per_minute=4\n`, { mode: 0o600 });
  const server = await startServer(t, { args: ['--token-file', file] });
  const infer = (client, parameters = {}, more = []) => client.call('ModelInfer', requestOf(inputsOf([[5, 9]], 2, more), parameters));
  const none = connect(t, server);
  assert.deepEqual(await none.call('ServerLive'), { live: true });
  await assert.rejects(none.call('ServerMetadata'), { code: grpc.status.UNAUTHENTICATED });
  await assert.rejects(infer(connect(t, server, { token: 'wrong-0123456789abcdef' })), { code: grpc.status.UNAUTHENTICATED });
  const stream = none.stream();
  assert.equal((await stream.ended).code, grpc.status.UNAUTHENTICATED);

  const a = connect(t, server, { token: alice });
  const b = connect(t, server, { token: bob });
  await infer(a, { sequence_id: 7, sequence_start: true }, lengths(1));
  await assert.rejects(infer(b, { sequence_id: 7 }), { code: grpc.status.INVALID_ARGUMENT, details: /must specify the START flag/ });
  let refusal;
  for (let i = 0; i < 12 && !refusal; i++) await infer(b).catch((error) => { refusal = error; });
  assert.equal(refusal.code, grpc.status.RESOURCE_EXHAUSTED);
  assert.ok(Number(refusal.metadata.get('grpc-retry-pushback-ms')[0]) > 0);
  assert.match(refusal.metadata.get('grpc-status-details-bin')[0].toString(), /google\.rpc\.RetryInfo/);
  await infer(a, { sequence_id: 7 }); // the other owner goes on

  await t.test('a removed token ends its streams and calls', async () => {
    const open = a.stream();
    open.send(requestOf(inputsOf([[5]], 2)));
    await until('an answer', () => open.answers.length);
    writeFileSync(file, `bob:${bob}\n`, { mode: 0o600 });
    server.process.kill('SIGHUP');
    assert.notEqual((await open.ended).code, grpc.status.OK);
    await assert.rejects(infer(a), { code: grpc.status.UNAUTHENTICATED });
  });
});

longTest('TLS: the certificate of the other port, HTTP/2 by ALPN', { skip }, async (t) => {
  const folder = temporaryFolder(t);
  const [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2',
    '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'], { stdio: 'ignore' });
  const server = await startServer(t, { wait: false, args: ['--tls-cert', cert, '--tls-key', key] });
  await until('the port', () => server.log.includes('gRPC at port'));
  const client = connect(t, server, { credentials: grpc.credentials.createSsl(readFileSync(cert)) });
  const stream = client.stream();
  stream.send(requestOf(inputsOf(rows, 6)));
  const answers = await stream.end();
  rows.forEach((row, i) => assert.deepEqual(idsOf(answers.at(-1).infer_response)[i], [...row, ...generate(row, 6).ids]));
  const plain = connect(t, server);
  await assert.rejects(plain.call('ServerLive', {}, { deadline: Date.now() + 20000 }), { code: grpc.status.UNAVAILABLE });
});

longTest('SIGTERM: what runs ends with its answer, new requests are refused, exit status 0', { skip }, async (t) => {
  const server = await startServer(t, { model: path.join(root, 'configs/demo-model'), args: ['--drain-timeout', '200'] });
  const client = connect(t, server);
  const running = client.call('ModelInfer', requestOf(inputsOf([[5, 9, 33]], 900, [column('min_length', 'INT32', [900])])));
  const stream = client.stream();
  stream.send(requestOf(inputsOf([[7, 8, 9]], 900, [column('min_length', 'INT32', [900])])));
  await until('tokens', () => stream.answers.length > 3);
  const queued = [0, 1, 2, 3].map((i) => client.call('ModelInfer', requestOf(inputsOf([[5 + i]], 30, i ? [] : lengths(1, 400)), { sequence_id: 3, sequence_start: i === 0 })));
  const http = fetch(`${server.url}/v2/models/fastertransformer/infer`, { method: 'POST', body: JSON.stringify({ inputs: inputsOf([[5, 9]], 100) }) });
  const done = async () => Number((await client.call('ModelStatistics', { name: 'fastertransformer' })).model_stats[0].inference_count);
  await until('all to be accepted', async () => (await server.metric('parley_followers')) + (await done()) >= 7);
  const ended = server.stop('SIGTERM');
  await until('draining', () => server.log.includes('server.draining'));
  await assert.rejects(client.call('ModelInfer', requestOf(inputsOf([[1, 2]], 100))), { code: grpc.status.UNAVAILABLE });
  assert.ok(idsOf(await running)[0].length > 3);
  const lengthsSeen = (await Promise.all(queued)).map((a) => idsOf(a)[0].length); // each waited for the one before it
  lengthsSeen.slice(1).forEach((n, i) => assert.ok(n > lengthsSeen[i]));
  assert.equal((await http).status, 200);
  await stream.ended; // by the server: the client has not half-closed
  assert.ok(isFinal(stream.answers.at(-1)));
  assert.deepEqual(await ended, { code: 0, signal: null });
});

longTest('a repository says whether the model is decoupled', { skip }, async (t) => {
  const folder = temporaryFolder(t);
  const { mkdirSync } = await import('node:fs');
  mkdirSync(path.join(folder, 'fastertransformer'));
  const config = (decoupled) => writeFileSync(path.join(folder, 'fastertransformer/config.pbtxt'), `name: "fastertransformer"
model_transaction_policy { decoupled: ${decoupled} }
parameters { key: "model_checkpoint_path" value: { string_value: "${gpt2}" } }\n`);
  for (const [word, decoupled] of [['False', false], ['True', true]]) {
    config(word);
    const server = await startServer(t, { args: ['--model-repository', folder] });
    const { config: told } = await connect(t, server).call('ModelConfig', { name: 'fastertransformer' });
    assert.deepEqual(told.model_transaction_policy, { decoupled });
    await server.stop();
  }
  config('maybe');
  const wrong = spawnSync(parley, ['serve', '--model-repository', folder, '--print-config'], { encoding: 'utf8' });
  assert.match(wrong.stderr, /config\.pbtxt:2: decoupled 'maybe' must be True or False/);
});

longTest('a port that is in use is named before a model is loaded; parley doctor names it too', { skip }, async (t) => {
  const server = await startServer(t);
  const folder = temporaryFolder(t);
  const line = ['--model', gpt2, '--db', path.join(folder, 'other.db'), '--port', '0', '--grpc-port', String(server.grpc)];
  const serve = spawnSync(parley, ['serve', ...line], { encoding: 'utf8' });
  assert.equal(serve.status, 1);
  assert.match(serve.stderr, new RegExp(`port ${server.grpc} of 127\\.0\\.0\\.1 is in use by another program: stop it, or choose another with --grpc-port`));
  const doctor = spawnSync(parley, ['doctor', ...line, '--json'], { encoding: 'utf8' });
  const finding = JSON.parse(doctor.stdout).findings.find((f) => JSON.stringify(f).includes('"grpc_port"'));
  assert.match(JSON.stringify(finding), /is in use/);
});

longTest('a start that fails behind the port of gRPC says why', { skip }, (t) => {
  const folder = temporaryFolder(t);
  const line = ['--model', gpt2, '--port', '0', '--grpc-port', '0', '--db', path.join(folder, 'no/such/folder.db')];
  const serve = spawnSync(parley, ['serve', ...line], { encoding: 'utf8' });
  assert.deepEqual([serve.status, serve.signal], [1, null], serve.stderr);
  assert.match(serve.stderr, /no\/such/);
});

longTest('kill -9 of the engine process: streams and calls go on with the same tokens, each answer once', { skip }, async (t) => {
  const server = await startServer(t, { model: path.join(root, 'configs/demo-model'),
    args: ['--device', 'cpu', '--threads', '1', '--engine-process', 'on', '--engine-backoff', '0.2'] });
  const processes = () => [...server.log.matchAll(/engine\.process instance=\S* pid=(\d+)/g)].map((match) => Number(match[1]));
  const client = connect(t, server);
  const length = 200;
  const request = () => requestOf(inputsOf([rows[1]], length, [column('min_length', 'INT32', [length])]), {}, { model: 'demo-model' });
  const want = idsOf(await client.call('ModelInfer', request()))[0];
  assert.equal(want.length, rows[1].length + length);
  for (let k = 1; k <= 2; k++) {
    const stream = client.stream();
    const call = client.call('ModelInfer', request());
    stream.send(request());
    await until('tokens of the stream', () => stream.answers.length > 4);
    process.kill(processes().at(-1), 'SIGKILL');
    await until('another process', () => processes().length > k);
    const answers = await stream.end();
    assert.deepEqual(answers.map(({ error_message: error }) => error).filter(Boolean), []);
    assert.deepEqual(answers.map((answer) => idsOf(answer.infer_response)[0]), want.slice(rows[1].length).map((_, i) => want.slice(0, rows[1].length + i + 1)));
    assert.deepEqual(idsOf(await call)[0], want);
  }
  assert.ok(await server.metric('parley_sessions_moved_turns_total{reason="lost"}') > 0);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});
