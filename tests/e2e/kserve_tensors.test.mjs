// Inputs of FasterTransformer that no other file here sends: words as texts, a least length, START and END as tensors,
// tables in BF16; and the same rows over HTTP and gRPC, one by one and as a batch.
import assert from 'node:assert/strict';
import path from 'node:path';
import { test } from 'node:test';
import { absent, column, connect, generate, gpt2, idsOf, inputsOf, outputsOf, requestOf, startServer, tensor } from './grpc.mjs';
import { Server, root, unlimited } from './harness.mjs';
import { readTensor } from './safetensors.mjs';

async function infer(server, inputs, { model = 'fastertransformer', parameters = {} } = {}) {
  const response = await fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body: JSON.stringify({ inputs, parameters }) });
  const answer = await response.json();
  assert.equal(response.status, 200, answer.error);
  return Object.fromEntries(answer.outputs.map((o) => [o.name, o]));
}
const idsOfRow = (out, row) => {
  const width = out.output_ids.shape.at(-1);
  return out.output_ids.data.slice(row * width, row * width + out.sequence_length.data[row]);
};

test('ensemble: bad words and stop words as texts, for each row', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const prompts = ['The cat sat on', 'One, two, three,'];
  const run = async (bad, stop) => {
    const out = await infer(server, [tensor('INPUT_0', 'BYTES', [2, 1], prompts), tensor('INPUT_1', 'UINT32', [2, 1], [24, 24]),
      tensor('INPUT_2', 'BYTES', [2, 1], bad), tensor('INPUT_3', 'BYTES', [2, 1], stop)], { model: 'ensemble' });
    return out.OUTPUT_0.data;
  };
  const plain = await run(['', ''], ['', '']);
  const answers = plain.map((text, i) => { assert.ok(text.startsWith(prompts[i]), text); return text.slice(prompts[i].length); });
  const words = answers.map((text) => /[A-Za-z]{3,}/.exec(text)?.[0]);
  assert.ok(words.every(Boolean), JSON.stringify(answers));
  const banned = await run([words[0], ''], ['', '']);
  assert.ok(!new RegExp(`(^|[^A-Za-z])${words[0]}([^A-Za-z]|$)`).test(banned[0].slice(prompts[0].length)), banned[0]);
  assert.equal(banned[1], plain[1]);
  const stopped = await run(['', ''], ['', `nosuchword,${words[1]}`]);
  assert.equal(stopped[0], plain[0]);
  assert.ok(plain[1].startsWith(stopped[1]) && stopped[1].length < plain[1].length, stopped[1]);
  assert.ok(stopped[1].length <= prompts[1].length + answers[1].indexOf(words[1]) + words[1].length + 8, stopped[1]);
});

test('min_length holds the end token back; START and END as tensors change nothing', async (t) => {
  const server = await Server.start(t, { model: gpt2, args: unlimited });
  const row = [5, 9, 33], [first] = generate(row, 1).ids;
  const ended = [column('end_id', 'UINT32', [first])];
  assert.deepEqual(idsOfRow(await infer(server, inputsOf([row], 6, ended)), 0), [...row, first]);
  const held = idsOfRow(await infer(server, inputsOf([row], 6, [...ended, column('min_length', 'INT32', [4])])), 0).slice(row.length);
  assert.ok(held.length >= 5 && !held.slice(0, 4).includes(first), held.join());
  const flags = (start, end) => [column('START', 'INT32', [start]), column('END', 'INT32', [end])];
  const id = { sequence_id: 5 };
  const session = column('session_len', 'UINT32', [64]);
  const one = await infer(server, inputsOf([row], 3, [session, ...flags(1, 0)]), { parameters: { ...id, sequence_start: true } });
  const two = await infer(server, inputsOf([[7]], 3, flags(0, 0)), { parameters: id });
  const log = [...row, ...generate(row, 3).ids];
  assert.deepEqual(idsOfRow(one, 0), log);
  assert.deepEqual(idsOfRow(two, 0), [...log, 7, ...generate([...log, 7], 3).ids]);
});

test('a table in BF16, and rows with every parameter their own: over both protocols, alone and together', { skip: absent }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server);
  const rows = [[5, 9, 33], [7, 8, 9, 10, 11], [21]];
  const each = { // for each row
    runtime_top_k: ['UINT32', [0, 5, 0]], runtime_top_p: ['FP32', [0.9, 0.5, 0.95]], temperature: ['FP32', [1, 0.5, 2]], random_seed: ['UINT64', [3, 4, 5]],
    repetition_penalty: ['FP32', [1, 1.5, 1.1]], presence_penalty: ['FP32', [0, 0.5, 1]], min_length: ['INT32', [0, 2, 4]],
    top_p_decay: ['FP32', [0.5, 1, 0.9]], top_p_min: ['FP32', [0.1, 0.000001, 0.2]], top_p_reset_ids: ['UINT32', [7, 8, 9]], end_id: ['UINT32', [100, 150, 200]],
  };
  const inputs = (which) => inputsOf(which.map((i) => rows[i]), 8, Object.entries(each).map(([name, [type, values]]) => column(name, type, which.map((i) => values[i]))));
  const together = await infer(server, inputs([0, 1, 2]));
  const grpc = idsOf(await client.call('ModelInfer', requestOf(inputs([0, 1, 2]))));
  for (let i = 0; i < rows.length; i++) {
    assert.deepEqual(idsOfRow(await infer(server, inputs([i])), 0), idsOfRow(together, i));
    assert.deepEqual(grpc[i], idsOfRow(together, i));
  }

  await t.test('BF16', async () => {
    const { data, shape } = readTensor(path.join(root, 'tests/fixtures/prompts/gpt2/soft/adapter_model.safetensors'), 'prompt_embeddings');
    const cut = Float32Array.from(data);
    const bits = new Uint32Array(cut.buffer);
    bits.forEach((v, i) => { bits[i] = v & 0xffff0000; });
    const half = Buffer.alloc(cut.length * 2);
    bits.forEach((v, i) => half.writeUInt16LE(v >>> 16, 2 * i));
    const own = inputsOf([rows[0]], 6, [column('request_prompt_type', 'UINT32', [1]), column('request_prompt_lengths', 'UINT32', [shape[0]])]);
    const request = requestOf(own);
    request.inputs.push({ name: 'request_prompt_embedding', datatype: 'BF16', shape: [1, ...shape] });
    request.raw_input_contents.push(half);
    const whole = requestOf([...own, tensor('request_prompt_embedding', 'FP32', [1, ...shape], Array.from(cut))]);
    const [got, want] = [await client.call('ModelInfer', request), await client.call('ModelInfer', whole)];
    assert.deepEqual(outputsOf(got).output_ids.data, outputsOf(want).output_ids.data);
  });
});
