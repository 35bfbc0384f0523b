// gRPC clients that break the rules or vanish: each gets a clear error in the protocol's own form, and nothing of it is left.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import path from 'node:path';
import { test } from 'node:test';
import { deflateSync, gzipSync } from 'node:zlib';
import { absent, column, connect, grpc, idsOf, inputsOf, requestOf, startServer, tensor } from './grpc.mjs';
import { afterwards, few, root, sleep, temporaryFolder, until } from './harness.mjs';

const skip = absent;
const { INVALID_ARGUMENT, RESOURCE_EXHAUSTED } = grpc.status;
const whole = inputsOf([[5, 9]], 2);
const without = (name) => whole.filter((input) => input.name !== name);

/** One message over bare HTTP/2: { status, message, headers }; prefix: the length that its frame says. */
function post(t, server, method, bytes, { prefix = bytes.length, compressed = 0, headers = {} } = {}) {
  const client = http2.connect(`http://127.0.0.1:${server.grpc}`);
  afterwards(t, () => client.destroy());
  client.on('error', () => {});
  return new Promise((resolve, reject) => {
    const stream = client.request({ ':method': 'POST', ':path': `/inference.GRPCInferenceService/${method}`, 'content-type': 'application/grpc', te: 'trailers', ...headers });
    const head = Buffer.alloc(5);
    head.writeUInt8(compressed);
    head.writeUInt32BE(prefix, 1);
    let first, last;
    stream.on('response', (h) => { first = h; });
    stream.on('trailers', (h) => { last = h; });
    stream.on('error', reject);
    stream.on('close', () => {
      const end = last ?? first ?? {};
      client.destroy();
      resolve({ status: Number(end['grpc-status']), message: decodeURIComponent(end['grpc-message'] ?? ''), headers: first });
    });
    stream.resume();
    stream.write(head);
    stream.end(bytes);
  });
}
/** Sends zeros of a message that says it is so long, until the server has enough. */
async function flood(t, server, length) {
  const client = http2.connect(`http://127.0.0.1:${server.grpc}`);
  afterwards(t, () => client.destroy());
  client.on('error', () => {});
  const stream = client.request({ ':method': 'POST', ':path': '/inference.GRPCInferenceService/ModelInfer', 'content-type': 'application/grpc', te: 'trailers' });
  let status, over = false, sent = 0;
  const closed = new Promise((resolve) => stream.on('close', resolve)).then(() => { over = true; });
  for (const event of ['response', 'trailers']) stream.on(event, (h) => { status = Number(h['grpc-status']); });
  stream.on('error', () => {}).resume();
  const head = Buffer.alloc(5);
  head.writeUInt32BE(length, 1);
  stream.write(head);
  for (const chunk = Buffer.alloc(65536); !over && sent < length; sent += chunk.length)
    if (!stream.write(chunk)) await Promise.race([closed, new Promise((resolve) => stream.once('drain', resolve))]);
  const reset = stream.rstCode;
  client.destroy();
  return { status, reset, sent };
}
/** No call, no turn, no connection but ours to /metrics is left. */
const nothingLeft = (server, ...clients) => until('nothing to be left', async () => {
  clients.forEach((client) => client.stub.close());
  const all = await server.metrics();
  return all.get('parley_turns') === 0 && all.get('parley_followers') === 0 && all.get('parley_connections') <= 2;
});

test('requests that cannot be read or served are refused by name', { skip }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server);
  const huge = '9223372036854775807';
  const change = (name, more, options) => {
    const request = requestOf(whole, {}, options);
    const at = request.inputs.findIndex((input) => input.name === name);
    Object.assign(request.inputs[at], more);
    if (more.raw) request.raw_input_contents[at] = more.raw;
    return request;
  };
  const nan = Buffer.from([0, 0, 0xc0, 0x7f]);
  const half = [tensor('stop_words_list', 'INT32', [1, 2, 2], [5, 6, 2, 1])];
  const cases = {
    'an unknown input': [requestOf([...whole, column('nope', 'UINT32', [1])]), /unexpected inference input 'nope' for model 'fastertransformer'/],
    'an input twice': [requestOf([...whole, whole[0]]), /input 'input_ids' is given twice/],
    'an input missing': [requestOf(without('request_output_len')), /input 'request_output_len' is missing/],
    'another datatype': [change('input_lengths', { datatype: 'INT64', raw: Buffer.alloc(8) }), /data-type is 'INT64', but model 'fastertransformer' expects 'UINT32'/],
    'no datatype': [change('input_lengths', { datatype: 'UINT31' }), /input 'input_lengths': unknown datatype/],
    'no name': [change('input_lengths', { name: '' }), /an input has no name/],
    'a shape of 2^63 elements': [change('input_ids', { shape: [huge] }), /input 'input_ids': a dimension must be/],
    'a shape whose product overflows': [change('input_ids', { shape: [2147483647, 2147483647, 2147483647, 2] }), /input 'input_ids' has too many elements/],
    'a negative dimension': [change('input_ids', { shape: [-1, 2] }), /a dimension must be/],
    'seven dimensions': [change('input_ids', { shape: [1, 1, 1, 1, 1, 1, 2] }), /at most 6/],
    'too few bytes': [change('input_ids', { raw: Buffer.alloc(7) }), /input 'input_ids' has 7 bytes of data, its shape needs 8/],
    'too many bytes': [change('input_ids', { raw: Buffer.alloc(9) }), /has 9 bytes of data, its shape needs 8/],
    'too few typed elements': [change('input_ids', { contents: { uint_contents: [5] } }, { typed: true }), /input 'input_ids' has 1 elements of type UINT32, its shape needs 2/],
    'elements of another type': [change('input_ids', { contents: { int_contents: [5, 9] } }, { typed: true }), /has 0 elements of type UINT32/],
    'no elements': [change('input_ids', { contents: null }, { typed: true }), /input 'input_ids' has no data/],
    'typed and raw': [change('input_ids', { contents: { uint_contents: [5, 9] } }), /contents field must not be specified when using raw_input_contents/],
    'fewer raw entries than inputs': [{ ...requestOf(whole), raw_input_contents: [Buffer.alloc(8)] }, /raw_input_contents has 1 entries, but the request has 3 inputs/],
    'shared memory': [change('input_ids', { parameters: { shared_memory_region: { string_param: 'x' } } }), /shared memory is not served/],
    'NaN': [{ ...requestOf([...whole, column('temperature', 'FP32', [1])]), raw_input_contents: [...requestOf(whole).raw_input_contents, nan] }, /input 'temperature' must be/],
    'typed NaN': [requestOf([...whole, column('temperature', 'FP32', [NaN])], {}, { typed: true }), /input 'temperature': element 0/],
    'a text cut short': [{ ...requestOf([tensor('INPUT_0', 'BYTES', [1, 1], ['hello']), column('INPUT_1', 'UINT32', [2])], {}, { model: 'ensemble' }),
      raw_input_contents: [Buffer.from([5, 0, 0, 0, 104]), Buffer.from([2, 0, 0, 0])] }, /input 'INPUT_0': element 0 is cut short/],
    'offsets that run backwards': [requestOf([...whole, ...half]), /input 'stop_words_list'/],
    'an id outside the vocabulary': [requestOf(inputsOf([[5, 99999]], 2)), /outside the vocabulary/],
    '300 rows': [requestOf(inputsOf(Array(300).fill([5]), 2)), /from 1 to 256 rows/],
    'an unknown output': [requestOf(whole, {}, { outputs: ['nope'] }), /unexpected inference output 'nope'/],
    'START without session_len': [requestOf(whole, { sequence_id: 5, sequence_start: true }), /input 'session_len' is missing: a sequence is started with it/],
    'END before a START': [requestOf(whole, { sequence_id: 6, sequence_end: true }), /must specify the START flag on the first request of the sequence/],
    'a session too short': [requestOf([...whole, column('session_len', 'UINT32', [3])], { sequence_id: 7, sequence_start: true }), /Session size too low \(3\) vs\. total output size \(4\)/],
    'a sequence id that is none': [requestOf(whole, { sequence_id: true }), /sequence_id must be an unsigned integer or a string/],
    'a flag that is a number': [requestOf(whole, { sequence_id: 5, sequence_start: 1 }), /parameter 'sequence_start' must be true or false/],
    'a reserved parameter': [requestOf(whole, { triton_x: true }), /parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified\./],
    'a final flag outside of streams': [requestOf(whole, { triton_enable_empty_final_response: true }), /reserved for Triton usage/],
    'a long sequence id': [requestOf(whole, { sequence_id: 'x'.repeat(129) }), /more than 128 bytes/],
    'another version': [{ ...requestOf(whole), model_version: '2' }, /unknown model/, grpc.status.NOT_FOUND],
  };
  for (const [name, [request, sentence, code = INVALID_ARGUMENT]] of Object.entries(cases)) {
    await assert.rejects(client.call('ModelInfer', request), { code, details: sentence }, name);
  }
  const stream = client.stream();
  Object.values(cases).forEach(([request], i) => stream.send({ ...request, id: String(i) }));
  const answers = await stream.end();
  Object.entries(cases).forEach(([name, [, sentence]], i) => {
    const mine = answers.find((a) => a.infer_response.id === String(i));
    if (name === 'a final flag outside of streams') assert.equal(mine.error_message, '');
    else assert.match(mine.error_message, sentence, name);
  });
  assert.equal(idsOf(await client.call('ModelInfer', requestOf(whole)))[0].length, 4);
});

test('bytes that are no message, frames that lie, another protocol', { skip }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server);
  const bad = (i) => Buffer.from(Array.from({ length: 1 + (i * 37) % 300 }, (_, k) => (i * 131 + k * 17) % 256));
  for (let i = 0; i < few(100); i++) {
    const { status } = await post(t, server, i % 2 ? 'ModelInfer' : 'ModelStreamInfer', bad(i));
    assert.ok([INVALID_ARGUMENT, grpc.status.NOT_FOUND, grpc.status.OK].includes(status), String(status)); // a stream ends well
  }
  const said = async (bytes, more, status, sentence) => {
    const answer = await post(t, server, 'ModelInfer', bytes, more);
    assert.equal(answer.status, status, answer.message);
    assert.match(answer.message, sentence);
  };
  await said(Buffer.from([0xff]), {}, INVALID_ARGUMENT, /not a valid ModelInferRequest/);
  // inputs: 60,000 empty messages, each of which takes 30 times its two bytes in memory
  await said(Buffer.alloc(120000, Buffer.from([0x2a, 0])), {}, INVALID_ARGUMENT, /not a valid ModelInferRequest/);
  await said(Buffer.alloc((1 << 20) + 1), {}, RESOURCE_EXHAUSTED, /larger/);
  const packed = (encoding) => ({ compressed: 1, headers: { 'grpc-encoding': encoding } });
  await said(Buffer.alloc(50), packed('gzip'), INVALID_ARGUMENT, /not valid gzip or deflate/);
  await said(gzipSync(Buffer.alloc(50)).subarray(0, 20), packed('gzip'), INVALID_ARGUMENT, /not valid gzip or deflate/);
  await said(gzipSync(Buffer.alloc(64 << 20)), packed('gzip'), RESOURCE_EXHAUSTED, /max_message_bytes/); // 64 KB that unpack to 64 MB
  await said(deflateSync(Buffer.from([0xff])), packed('deflate'), INVALID_ARGUMENT, /not a valid ModelInferRequest/);
  for (const prefix of [2 ** 30, 0xffffffff]) {
    const before = await server.metric('process_resident_memory_bytes');
    const { status, reset, sent } = await flood(t, server, prefix);
    assert.ok(status === RESOURCE_EXHAUSTED || reset === http2.constants.NGHTTP2_ENHANCE_YOUR_CALM, `${status} ${reset}`);
    assert.ok(sent < 300e6, `${sent} bytes`); // refused long before its end, and not kept
    assert.ok((await server.metric('process_resident_memory_bytes')) < before + 200e6);
  }
  const cut = await post(t, server, 'ModelInfer', Buffer.alloc(10), { prefix: 100 });
  assert.notEqual(cut.status, grpc.status.OK);

  const talk = (bytes) => new Promise((resolve) => {
    const socket = net.connect(server.grpc, '127.0.0.1', () => socket.end(bytes));
    socket.on('data', () => {}).on('error', () => {}).on('close', resolve);
  });
  for (const bytes of ['GET / HTTP/1.1\r\n\r\n', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', bad(77), Buffer.alloc(100000), '']) await talk(bytes);
  assert.deepEqual(await client.call('ServerLive'), { live: true });
  await nothingLeft(server, client);
});

test('clients that vanish, cancel or stop reading leave nothing behind', { skip }, async (t) => {
  const server = await startServer(t, { model: path.join(root, 'configs/demo-model'), args: ['--slow-reader-timeout', '2'] });
  const long = () => requestOf(inputsOf([[5, 9, 33]], 900, [column('min_length', 'INT32', [900])]));

  await t.test('a connection cut in a stream and in a call', async () => {
    for (let i = 0; i < few(20); i++) {
      const client = connect(t, server, { 'grpc.enable_retries': 0 });
      const stream = client.stream();
      stream.send(long());
      const call = client.call('ModelInfer', long()).catch((error) => error);
      if (i % 2) await until('a token', () => stream.answers.length);
      stream.stream.cancel();
      client.stub.close();
      await Promise.race([call, stream.ended]);
    }
    await until('the streams\' turns to end', async () => (await server.metric('parley_turns')) <= few(20));
  });

  await t.test('a cancelled call and a deadline', async () => {
    const client = connect(t, server);
    await assert.rejects(client.call('ModelInfer', long(), { deadline: Date.now() + 60 }), { code: grpc.status.DEADLINE_EXCEEDED });
    const stream = client.stream();
    stream.send(long());
    await until('a token', () => stream.answers.length);
    stream.stream.cancel();
    assert.equal((await stream.ended).code, grpc.status.CANCELLED);
    client.stub.close();
  });

  await t.test('a socket destroyed in the middle; a sequence goes on to its end', async () => {
    const client = connect(t, server);
    await client.call('ModelInfer', requestOf(inputsOf([[5]], 1, [column('session_len', 'UINT32', [400])]), { sequence_id: 77, sequence_start: true }));
    const cut = http2.connect(`http://127.0.0.1:${server.grpc}`);
    cut.on('error', () => {});
    const stream = cut.request({ ':method': 'POST', ':path': '/inference.GRPCInferenceService/ModelStreamInfer', 'content-type': 'application/grpc', te: 'trailers' });
    stream.on('error', () => {});
    const bytes = client.stub.ModelInfer && Object.getPrototypeOf(client.stub).ModelInfer.requestSerialize(requestOf(inputsOf([[7, 8]], 30, [column('min_length', 'INT32', [30])]), { sequence_id: 77 }));
    const head = Buffer.alloc(5);
    head.writeUInt32BE(bytes.length, 1);
    stream.write(Buffer.concat([head, bytes]));
    await new Promise((resolve) => stream.once('data', resolve));
    cut.destroy();
    const { raw_output_contents: raw } = await client.call('ModelInfer', requestOf(inputsOf([[7, 8]], 3), { sequence_id: 77 }, { outputs: ['sequence_length'] }));
    const n = raw[0].readUInt32LE();
    assert.ok(n > 1 + 1 + 2 + 30 + 2, `${n} tokens`); // all of the turn that nobody read, and the new one
    client.stub.close();
  });

  await t.test('a reader that stops is cut off, and costs no memory meanwhile', async () => {
    const slow = http2.connect(`http://127.0.0.1:${server.grpc}`);
    slow.on('error', () => {});
    const client = connect(t, server);
    const stream = slow.request({ ':method': 'POST', ':path': '/inference.GRPCInferenceService/ModelStreamInfer', 'content-type': 'application/grpc', te: 'trailers' });
    stream.on('error', () => {});
    stream.pause(); // its window of 64 KiB fills with a response of some KiB for each token
    const bytes = Object.getPrototypeOf(client.stub).ModelInfer.requestSerialize(long());
    const head = Buffer.alloc(5);
    head.writeUInt32BE(bytes.length, 1);
    stream.write(Buffer.concat([head, bytes]));
    await until('the slow reader to be cut off', async () => (await server.metric('parley_slow_readers_total')) >= 1);
    slow.destroy();
    client.stub.close();
  });
  await nothingLeft(server);
  const { sessions } = await (await server.connect()).ask({ type: 'session.list' });
  assert.deepEqual(sessions.map((s) => s.title), ['Sequence 77']); // those of requests without a sequence are deleted
});

test('silent connections and many calls are bounded', { skip }, async (t) => {
  const server = await startServer(t, { args: ['--max-connections', '8'] });
  const sockets = await Promise.all(Array.from({ length: 20 }, () => new Promise((resolve) => {
    const socket = net.connect(server.grpc, '127.0.0.1');
    socket.on('error', () => {}).on('close', () => { socket.gone = true; }).on('connect', () => resolve(socket));
  })));
  await until('the connections beyond the limit to be closed', () => sockets.filter((s) => s.gone).length >= 12);
  assert.ok(sockets.filter((s) => !s.gone).length <= 8);
  sockets.forEach((s) => s.destroy());
  const client = connect(t, server);
  await until('room again', () => client.call('ServerLive').then(({ live }) => live, () => false));
  const answers = await Promise.all(Array.from({ length: 300 }, () => client.call('ModelInfer', requestOf(whole))));
  assert.equal(answers.length, 300); // more than HTTP/2 lets run at once: the others wait
  await nothingLeft(server, client);
});

for (const method of ['ModelInfer', 'ModelStreamInfer'])
  test(`${method}: an owner whose messages do not end takes no other owner's memory`, { skip }, async (t) => {
    const file = path.join(temporaryFolder(t), 'tokens');
    writeFileSync(file, 'ann:ann-token-0123456789\nbob:bob-token-0123456789\n', { mode: 0o600 });
    const server = await startServer(t, { args: ['--token-file', file] });
    const bob = connect(t, server, { token: 'bob-token-0123456789' });
    const statuses = [];
    const message = 1 << 20, chunk = Buffer.alloc(65536), n = few(12) * 100;
    for (let i = 0, client; i < n; i++) {
      if (i % 100 === 0) {
        client = http2.connect(`http://127.0.0.1:${server.grpc}`);
        const mine = client;
        afterwards(t, () => mine.destroy());
        mine.on('error', () => {});
      }
      const stream = client.request({ ':method': 'POST', ':path': `/inference.GRPCInferenceService/${method}`, 'content-type': 'application/grpc', te: 'trailers', authorization: 'Bearer ann-token-0123456789' });
      for (const event of ['response', 'trailers']) stream.on(event, (h) => { if (h['grpc-status']) statuses.push(Number(h['grpc-status'])); });
      stream.on('error', () => {}).resume();
      const head = Buffer.alloc(5);
      head.writeUInt32BE(message, 1);
      stream.write(head);
      let left = 15; // of 16
      const push = () => { while (left-- > 0) if (!stream.write(chunk)) return stream.once('drain', push); };
      push();
    }
    if (n > 700) await until('calls to be refused', () => statuses.includes(RESOURCE_EXHAUSTED));
    for (let i = 0; i < 20; i++) {
      // gRPC itself may refuse a call of his while hers are being refused, which takes a moment on a busy machine.
      const answer = await until('an answer for Bob', () => bob.call('ModelInfer', requestOf(whole)).catch((error) => {
        if (error.code !== RESOURCE_EXHAUSTED) throw error;
      }));
      assert.equal(idsOf(answer)[0].length, 4);
      await sleep(50);
    }
  });
