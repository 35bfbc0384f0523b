// Beam search through KServe, as FasterTransformer's clients ask for it: the tensors of every beam over HTTP (JSON and
// binary) and gRPC, sequences, prompt tables, and what is refused.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { absent, column, connect, gpt2, inputsOf, outputsOf, requestOf, startServer, tensor } from './grpc.mjs';
import { longTest, parley, root, Server, shortTest as test, unlimited, until } from './harness.mjs';
import { readTensor } from './safetensors.mjs';

const rows = [[5, 9, 33], [7, 8, 9, 10, 11]];
const beams = (ids, n, more = []) => JSON.parse(execFileSync(parley, ['generate', '--model', gpt2, '--ids', ids.join(','),
  '--max-tokens', String(n), '--beam-width', '4', '--length-penalty', '0', '--json', ...more], { encoding: 'utf8' })).beams;
const asked = (n, more = []) => [column('beam_width', 'UINT32', Array(n).fill(4)), column('is_return_log_probs', 'BOOL', Array(n).fill(true)), ...more];
const lengths = (n, session = 128) => [column('session_len', 'UINT32', Array(n).fill(session))];

async function post(server, body, headers = {}, model = 'fastertransformer') {
  const response = await fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', headers, body: body instanceof Uint8Array ? body : JSON.stringify(body) });
  return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
}
async function infer(server, inputs, parameters = {}) {
  const { status, bytes } = await post(server, { inputs, parameters });
  const answer = JSON.parse(bytes);
  assert.equal(status, 200, answer.error);
  return Object.fromEntries(answer.outputs.map((o) => [o.name, o]));
}
/** What a row's beams are in the outputs of either protocol: whole logs and sums. */
function beamsOf(out, row) {
  const [, n, width] = out.output_ids.shape.map(Number);
  return Array.from({ length: n }, (_, beam) => {
    const at = row * n + beam, length = out.sequence_length.data[at];
    return { ids: out.output_ids.data.slice(at * width, at * width + length), sum: out.cum_log_probs?.data[at] };
  });
}
/** log: what stands before the answers. */
function assertBeams(got, want, log) {
  assert.deepEqual(got.map((beam) => beam.ids), want.map((beam) => [...log, ...beam.ids]));
  got.forEach((beam, i) => assert.ok(Math.abs(beam.sum - want[i].score) < 1e-4, `${beam.sum}, not ${want[i].score}`));
}

test('over HTTP: every beam of every row, best first, is that of parley generate', async (t) => {
  const server = await Server.start(t, { model: gpt2, args: [...unlimited, '--block-tokens', '8'] });
  const want = rows.map((row) => beams(row, 6));
  const out = await infer(server, inputsOf(rows, 6, asked(2)));
  assert.deepEqual(['output_ids', 'sequence_length', 'response_input_lengths', 'cum_log_probs', 'output_log_probs'].map((name) => out[name].shape),
    [[2, 4, 11], [2, 4], [2, 4], [2, 4], [2, 4, 6]]);
  rows.forEach((row, i) => assertBeams(beamsOf(out, i), want[i], row));
  for (let at = 0; at < 8; at++) {
    const sum = out.output_log_probs.data.slice(at * 6, at * 6 + 6).reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum - out.cum_log_probs.data[at]) < 1e-4);
  }

  await t.test('one value for all rows, the pseudo batch dimension, binary outputs', async () => {
    const outer = inputsOf(rows, 6, [column('beam_width', 'UINT32', [4])]).map((input) => ({ ...input, shape: [1, ...input.shape] }));
    const { status, headers, bytes } = await post(server, { inputs: outer, parameters: { binary_data_output: true } });
    assert.equal(status, 200, bytes.toString());
    const json = Number(headers.get('inference-header-content-length'));
    const [ids] = JSON.parse(bytes.subarray(0, json)).outputs;
    assert.deepEqual([ids.name, ids.shape], ['output_ids', [1, 2, 4, 11]]);
    assert.deepEqual(Array.from({ length: 2 * 4 * 11 }, (_, i) => bytes.readUInt32LE(json + 4 * i)), out.output_ids.data);
  });

  await t.test('len_penalty and diversity of each row', async () => {
    const more = [column('len_penalty', 'FP32', [0, 2]), column('beam_search_diversity_rate', 'FP32', [-2, 0.5]), column('repetition_penalty', 'FP32', [1, 1.3])];
    const other = await infer(server, inputsOf(rows, 6, asked(2, more)));
    const options = [['--beam-diversity=-2'], ['--beam-diversity=0.5', '--length-penalty', '2', '--repetition-penalty', '1.3']];
    rows.forEach((row, i) => assert.deepEqual(beamsOf(other, i).map((beam) => beam.ids), beams(row, 6, options[i]).map((beam) => [...row, ...beam.ids])));
  });

  await t.test('an end token of the request ends beams, which differ in length', async () => {
    const end = want[0][0].ids[2];
    const found = await infer(server, inputsOf([rows[0]], 6, asked(1, [column('end_id', 'UINT32', [end])])));
    const ended = beams(rows[0], 6, ['--end-id', String(end)]);
    assertBeams(beamsOf(found, 0), ended, rows[0]);
    assert.ok(new Set(ended.map((beam) => beam.ids.length)).size > 1);
    const width = found.output_ids.shape[2];
    ended.forEach((beam, i) => assert.ok(found.output_ids.data.slice(i * width + 3 + beam.ids.length, (i + 1) * width).every((id) => id === end)));
  });

  await t.test('context outputs are every beam\'s', async () => {
    const more = [column('is_return_context_cum_log_probs', 'BOOL', [true]), column('is_return_context_embeddings', 'BOOL', [true])];
    const one = await infer(server, inputsOf([rows[0]], 6, [...more, column('is_return_log_probs', 'BOOL', [true])]));
    const all = await infer(server, inputsOf([rows[0]], 6, asked(1, more)));
    const wide = one.context_embeddings.shape.at(-1);
    assert.deepEqual(all.context_embeddings.shape, [1, 4, wide]);
    for (let beam = 0; beam < 4; beam++) assert.deepEqual(all.context_embeddings.data.slice(beam * wide, (beam + 1) * wide), one.context_embeddings.data);
    const context = one.cum_log_probs.data[0] - one.output_log_probs.data.reduce((a, b) => a + b, 0);
    beamsOf(all, 0).forEach((beam, i) => assert.ok(Math.abs(beam.sum - context - want[0][i].score) < 1e-3));
  });

  await t.test('a table of virtual tokens', async () => {
    const folder = path.join(root, 'tests/fixtures/prompts/gpt2/soft');
    const { data, shape } = readTensor(path.join(folder, 'adapter_model.safetensors'), 'prompt_embeddings');
    const table = [column('request_prompt_type', 'UINT32', [1]), column('request_prompt_lengths', 'UINT32', [shape[0]]),
      tensor('request_prompt_embedding', 'FP32', [1, ...shape], Array.from(data))];
    assertBeams(beamsOf(await infer(server, inputsOf([rows[0]], 6, asked(1, table))), 0), beams(rows[0], 6, ['--prompt-task', folder]), rows[0]);
  });

  await t.test('64 beams; what is refused, by name', async () => {
    const widest = await infer(server, inputsOf([rows[0]], 2, [column('beam_width', 'UINT32', [64])]));
    assert.equal(new Set(beamsOf(widest, 0).map((beam) => beam.ids.join())).size, 64);
    for (const [width, sentence, more = []] of [
      [[0], /^input 'beam_width' must be from 1 to 64$/], [[65], /beam_width/], [[1000], /beam_width/], [[4294967295], /beam_width/],
      [[2, 3], /^input 'beam_width' must be the same for all rows$/], [[1, 2], /same for all rows/], [[4, 4, 4], /beam_width/],
      [[2], /len_penalty/, [column('len_penalty', 'FP32', [11])]], [[2], /diversity/, [column('beam_search_diversity_rate', 'FP32', [101])]]]) {
      const { status, bytes } = await post(server, { inputs: inputsOf(rows, 2, [column('beam_width', 'UINT32', width), ...more]) });
      assert.equal(status, 400, bytes.toString());
      assert.match(JSON.parse(bytes).error, sentence);
    }
    const many = Array.from({ length: 17 }, (_, i) => [i + 3]);
    const { status, bytes } = await post(server, { inputs: inputsOf(many, 2, [column('beam_width', 'UINT32', [64])]) });
    assert.deepEqual([status, /1024 beams/.test(bytes)], [400, true]);
  });
});

longTest('a sequence goes on with the best beam; the others are versions of its turn', async (t) => {
  let server = await Server.start(t, { model: gpt2, args: unlimited });
  const go = { sequence_id: 9, sequence_start: false };
  const first = await infer(server, inputsOf(rows, 5, asked(2, lengths(2))), { ...go, sequence_start: true });
  const logs = rows.map((row, i) => { assertBeams(beamsOf(first, i), beams(row, 5), row); return beamsOf(first, i)[0].ids; });
  const client = await server.connect();
  const { sessions } = await client.request({ type: 'session.list' });
  assert.deepEqual(sessions.map((s) => s.title), ['Sequence 9', 'Sequence 9']);
  for (const { id } of sessions)
    await until('the versions', async () => (await client.request({ type: 'session.get', session: id })).turns[0].siblings?.length === 4);

  await t.test('the next turn, with beams', async () => {
    const second = await infer(server, inputsOf([[21, 22], [23]], 5, asked(2)), go);
    [[21, 22], [23]].forEach((input, i) => assertBeams(beamsOf(second, i), beams([...logs[i], ...input], 5), [...logs[i], ...input]));
    rows.forEach((_, i) => { logs[i] = beamsOf(second, i)[0].ids; });
  });
  await t.test('a row that does not fit takes no row further; kill -9 loses nothing', async () => {
    const long = Array.from({ length: 120 }, (_, i) => i + 1);
    const { status, bytes } = await post(server, { inputs: inputsOf([[5], long], 5, asked(2)), parameters: go });
    assert.deepEqual([status, /Session size too low/.test(bytes)], [400, true]);
    await server.stop('SIGKILL');
    server = await Server.start(t, { model: gpt2, db: server.db, args: unlimited });
    const third = await infer(server, inputsOf([[31], [32]], 3, asked(2)), go);
    [[31], [32]].forEach((input, i) => assertBeams(beamsOf(third, i), beams([...logs[i], ...input], 3), [...logs[i], ...input]));
    rows.forEach((_, i) => { logs[i] = beamsOf(third, i)[0].ids; });
  });
  await t.test('and one without', async () => {
    const third = await infer(server, inputsOf([[21], [23]], 2), go);
    assert.deepEqual(third.output_ids.shape.slice(0, 2), [2, 1]);
    logs.forEach((log, i) => assert.deepEqual(beamsOf(third, i)[0].ids.slice(0, log.length), log));
  });
});

longTest('ensemble: a text of each beam', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const ask = [tensor('INPUT_0', 'BYTES', [2, 1], ['The cat', 'One, two,']), tensor('INPUT_1', 'UINT32', [2, 1], [5, 5]), column('beam_width', 'UINT32', [3])];
  const { status, bytes } = await post(server, { inputs: ask, outputs: [{ name: 'OUTPUT_0' }] }, {}, 'ensemble');
  assert.equal(status, 200, bytes.toString());
  const [output] = JSON.parse(bytes).outputs;
  assert.deepEqual(output.shape, [6]);
  output.data.forEach((text, i) => assert.ok(text.startsWith(ask[0].data[i < 3 ? 0 : 1]), text));
  assert.equal(new Set(output.data).size, 6);
  await t.test('stop words as texts end every beam that writes one, however it is tokenised', async () => {
    const words = ['e', ' t'];
    const stopped = [ask[0], tensor('INPUT_1', 'UINT32', [2, 1], [24, 24]), tensor('INPUT_3', 'BYTES', [2, 1], [words.join(','), 'NEVER WRITTEN']), ask[2]];
    const answer = await post(server, { inputs: stopped, outputs: [{ name: 'OUTPUT_0' }] }, {}, 'ensemble');
    assert.equal(answer.status, 200, answer.bytes.toString());
    const texts = JSON.parse(answer.bytes).outputs[0].data;
    const model = path.join(root, 'configs/demo-model');
    const line = (prompt, ...more) => JSON.parse(execFileSync(parley, ['generate', '--model', model, '--prompt', prompt, '--beam-width', '3', '--max-tokens', '24', '--json',
      '--length-penalty', '0', '--sink-len', '4', ...more], { encoding: 'utf8' })).beams.map((beam) => beam.text);
    // The token that writes the word stays in the output, as that of a list of ids does.
    line('The cat', '--stop', JSON.stringify(words)).forEach((text, i) => {
      const told = texts[i].slice('The cat'.length), last = told.slice(text.length);
      assert.ok(words.every((word) => !text.includes(word)), text);
      assert.ok(told.startsWith(text) && words.some((word) => last.includes(word)), `${told}, not ${text}`);
    });
    assert.deepEqual(texts.slice(3), line('One, two,').map((text) => `One, two,${text}`));
  });
});

longTest('over gRPC: ModelInfer and ModelStreamInfer', { skip: absent }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server);
  const want = rows.map((row) => beams(row, 6));
  const inputs = inputsOf(rows, 6, asked(2));
  for (const typed of [false, true]) {
    const out = outputsOf(await client.call('ModelInfer', requestOf(inputs, {}, { typed })));
    assert.deepEqual(out.output_log_probs.shape.map(Number), [2, 4, 6]);
    rows.forEach((row, i) => assertBeams(beamsOf(out, i), want[i], row));
  }
  await t.test('a stream answers once, since no beam is certain before the end', async () => {
    for (const empty of [false, true]) {
      const stream = client.stream();
      stream.send(requestOf(inputs, empty ? { triton_enable_empty_final_response: true } : {}));
      const answers = await stream.end();
      assert.deepEqual(answers.map((a) => [a.error_message, a.infer_response.parameters.triton_final_response.bool_param]), empty ? [['', false], ['', true]] : [['', true]]);
      rows.forEach((row, i) => assertBeams(beamsOf(outputsOf(answers[0].infer_response), i), want[i], row));
    }
  });
  await t.test('widths that differ', async () => {
    await assert.rejects(client.call('ModelInfer', requestOf(inputsOf(rows, 6, [column('beam_width', 'UINT32', [1, 4])]))), /same for all rows/);
  });
});
