// Prompt learning over KServe, as FasterTransformer's clients ask for it: tables of a FasterTransformer checkpoint by
// task, tables that come with the request, and virtual ids in input_ids. The ids are those of `parley generate` with
// the Hugging Face model and PEFT's folder of the same table.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { parley, root, Server, temporaryFolder, unlimited } from './harness.mjs';
import { run } from './run.mjs';
import { readTensor } from './safetensors.mjs';

const VOCABULARY = 320, HEADS = 4, LAYERS = 3, HEAD = 16, ROWS = 5;
const modelOf = (family) => path.join(root, 'tests/fixtures/models', family);
const adapterOf = (family, task) => path.join(root, 'tests/fixtures/prompts', family, task);
const table = (family, task) => readTensor(path.join(adapterOf(family, task), 'adapter_model.safetensors'), 'prompt_embeddings');
const rows = [[5, 9, 301, 77], [33, 4, 250, 18, 200, 6]];

const generate = (family, task, ids, n, more = []) => JSON.parse(execFileSync(parley, ['generate', '--model', modelOf(family),
  ...(task ? ['--prompt-task', adapterOf(family, task)] : []), '--ids', ids.join(','), '--max-tokens', String(n), '--json', ...more], { encoding: 'utf8' })).ids;

const tensor = (name, datatype, shape, data) => ({ name, datatype, shape, data: Array.from(data) });
const column = (name, datatype, values) => tensor(name, datatype, [values.length, 1], values);
function inputsOf(batch, n, more = []) {
  const width = Math.max(...batch.map((row) => row.length));
  return [
    tensor('input_ids', 'UINT32', [batch.length, width], batch.flatMap((row) => [...row, ...Array(width - row.length).fill(0)])),
    column('input_lengths', 'UINT32', batch.map((row) => row.length)),
    column('request_output_len', 'UINT32', batch.map(() => n)), ...more,
  ];
}
/** A table for each row of the batch, in the request. */
function ownTables(type, tables, lengths = tables.map(({ shape }) => shape[0])) {
  const [most, width] = tables[0].shape;
  return [
    column('request_prompt_type', 'UINT32', tables.map(() => type)), column('request_prompt_lengths', 'UINT32', lengths),
    tensor('request_prompt_embedding', 'FP32', [tables.length, most, width], tables.flatMap(({ data }) => Array.from(data))),
  ];
}
async function post(server, inputs, parameters, model = 'fastertransformer') {
  const response = await fetch(`${server.url}/v2/models/${model}/infer`, { method: 'POST', body: JSON.stringify({ inputs, ...(parameters ? { parameters } : {}) }) });
  return { status: response.status, answer: await response.json() };
}
async function infer(server, inputs, parameters) {
  const { status, answer } = await post(server, inputs, parameters);
  assert.equal(status, 200, answer.error);
  const out = Object.fromEntries(answer.outputs.map((o) => [o.name, o]));
  const [n, , width] = out.output_ids.shape;
  return { out, width, ids: Array.from({ length: n }, (_, row) => out.output_ids.data.slice(row * width, row * width + out.sequence_length.data[row])) };
}
async function refused(server, inputs, says, parameters) {
  const { status, answer } = await post(server, inputs, parameters);
  assert.equal(status, 400, JSON.stringify(answer));
  assert.match(answer.error, says);
}

const floats = (values) => Buffer.from(Float32Array.from(values).buffer);
/** A FasterTransformer checkpoint of a fixture, with tables of these tasks. */
function checkpoint(t, family, type, tasks, ranks = 1) {
  const folder = path.join(temporaryFolder(t), 'ft');
  execFileSync(parley, ['export', '--model', modelOf(family), '--format', 'ft', '--tensor-parallel', String(ranks), '--dtype', 'fp32', '--output', folder]);
  const ft = path.join(folder, `${ranks}-gpu`), config = path.join(ft, 'config.ini');
  const section = family === 'gptj' ? '[gptj]' : '[gpt]';
  writeFileSync(config, readFileSync(config, 'utf8').replace(section, `${section}\nprompt_learning_type = ${type}\nprompt_learning_start_id = ${VOCABULARY}\nnum_tasks = ${tasks.length}`));
  tasks.forEach((task, i) => {
    const { data } = table(family, task);
    appendFileSync(config, `\n[task_${i}]\ntask_name = ${task}\nprompt_length = ${ROWS}\n`);
    if (type === 3) writeFileSync(path.join(ft, `model.prompt_table.${task}.weight.bin`), floats(data));
    else
      for (let rank = 0; rank < ranks; rank++) { // (layers, 2, the rank's heads, rows, head)
        const of = [];
        for (let part = 0; part < LAYERS * 2; part++)
          for (let head = 0; head < HEADS / ranks; head++)
            for (let row = 0; row < ROWS; row++)
              for (let i = 0; i < HEAD; i++) of.push(data[((row * LAYERS * 2 + part) * HEADS + (rank * HEADS) / ranks + head) * HEAD + i]);
        writeFileSync(path.join(ft, `model.prefix_prompt.${task}.weight.${rank}.bin`), floats(of));
      }
  });
  return ft;
}

test('p-tuning: tables of the checkpoint by task, and virtual ids in input_ids', async (t) => {
  const server = await Server.start(t, { model: checkpoint(t, 'gpt2', 3, ['soft', 'other']), args: unlimited });
  const want = [generate('gpt2', 'soft', rows[0], 6), generate('gpt2', 'other', rows[1], 6)];
  const virtual = Array.from({ length: ROWS }, (_, i) => VOCABULARY + i);
  // Rows of one batch with different tasks; the virtual ids are not part of the output, whose width shrinks.
  const given = await infer(server, inputsOf(rows.map((row) => [...virtual, ...row]), 6, [column('prompt_learning_task_name_ids', 'UINT32', [0, 1])]));
  rows.forEach((row, i) => assert.deepEqual(given.ids[i], [...row, ...want[i]]));
  assert.equal(given.width, 6 + 6);
  assert.deepEqual(given.out.response_input_lengths.data, [4, 6]);
  // Without virtual ids the whole table precedes the input.
  const without = await infer(server, inputsOf(rows, 6, [column('prompt_learning_task_name_ids', 'UINT32', [0, 1])]));
  assert.deepEqual(without.ids, given.ids);
  // No task, and ids above the vocabulary.
  assert.deepEqual((await infer(server, inputsOf(rows, 6))).ids, rows.map((row) => [...row, ...generate('gpt2', null, row, 6)]));
  await refused(server, inputsOf([[5, VOCABULARY]], 6), /'input_ids' has an id outside the vocabulary/);
  await refused(server, inputsOf([[5, VOCABULARY + ROWS]], 6, [column('prompt_learning_task_name_ids', 'UINT32', [0])]), /'input_ids' has 325; the table's 5 rows are the ids from 320/);
  await refused(server, inputsOf(rows, 6, [column('prompt_learning_task_name_ids', 'UINT32', [0, 2])]), /'prompt_learning_task_name_ids' is 2, and the model has 2 tasks, numbered from 0/);
  await refused(server, inputsOf(rows, 6, [column('prompt_learning_task_name_ids', 'UINT32', [0, 1, 1])]), /'prompt_learning_task_name_ids'.*(one for each row|shape)/);
});

test('a sequence keeps its table: over turns, idle time, kill -9, and against another one', async (t) => {
  const folder = temporaryFolder(t), db = path.join(folder, 'parley.db');
  const options = { model: checkpoint(t, 'gpt2', 3, ['soft', 'other']), db, args: [...unlimited, '--max-sequence-idle-microseconds', '100000'] };
  let server = await Server.start(t, options);
  const session = [column('session_len', 'UINT32', [64]), column('memory_len', 'UINT32', [64])];
  const task = (id) => [column('prompt_learning_task_name_ids', 'UINT32', [id])];
  const first = await infer(server, inputsOf([rows[0]], 6, [...session, ...task(0)]), { sequence_id: 7, sequence_start: true });
  const own = ownTables(1, [table('gpt2', 'ptuning')]);
  const client = await infer(server, inputsOf([rows[0]], 6, [...session, ...own]), { sequence_id: 8, sequence_start: true });
  assert.deepEqual(client.ids[0], [...rows[0], ...generate('gpt2', 'ptuning', rows[0], 6)]);
  await server.stop('SIGKILL');
  server = await Server.start(t, options);
  for (const [sequence, before, adapter, again] of [[7, first, 'soft', task(0)], [8, client, 'ptuning', []]]) {
    const next = await infer(server, inputsOf([rows[1]], 6, [...session, ...again]), { sequence_id: sequence });
    const log = [...before.ids[0], ...rows[1]];
    assert.deepEqual(next.ids[0], [...log, ...generate('gpt2', adapter, log, 6)], `sequence ${sequence}`);
  }
  await refused(server, inputsOf([rows[1]], 6, [...session, ...task(1)]), /started with another table/, { sequence_id: 7 });
  const { sessions } = await (await server.connect()).ask({ type: 'session.list' });
  assert.deepEqual(sessions.map(({ prompt }) => prompt.task).sort(), [null, 'soft'].sort());
  for (const { id } of sessions) {
    await server.stop();
    const replayed = await run(['replay', id, '--db', db, '--model', options.model]);
    assert.equal(replayed.code, 0, replayed.stdout + replayed.stderr);
  }
});

test("a client's own tables: types 1, 2 and 3, each row its own; what FasterTransformer only warned about is refused", async (t) => {
  for (const family of ['gptj', 'bloom']) {
    const server = await Server.start(t, { model: modelOf(family), args: unlimited });
    for (const [type, tasks] of [[1, ['soft', 'other']], [2, ['prefix', 'prefix']], [3, ['other', 'ptuning']]]) {
      const { ids } = await infer(server, inputsOf(rows, 6, ownTables(type, tasks.map((task) => table(family, task)))));
      rows.forEach((row, i) => assert.deepEqual(ids[i], [...row, ...generate(family, tasks[i], row, 6)], `${family}, type ${type}`));
    }
    // Virtual ids amid the text, named from the vocabulary's end on.
    const amid = await infer(server, inputsOf([[5, 321, 9, 320]], 4, ownTables(3, [table(family, 'soft')])));
    assert.deepEqual(amid.ids[0].slice(0, 2), [5, 9]);
    assert.equal((await (await server.connect()).ask({ type: 'session.list' })).sessions.length, 0);
    await server.stop();
  }
  const server = await Server.start(t, { model: modelOf('gpt2'), args: unlimited });
  const soft = table('gpt2', 'soft'), [type, lengths, embedding] = ownTables(1, [soft]);
  const one = (...more) => inputsOf([rows[0]], 4, more);
  await refused(server, one(type, lengths), /'request_prompt_embedding' is missing/);
  await refused(server, one(type, embedding), /'request_prompt_lengths' is missing/);
  await refused(server, one(lengths, embedding), /'request_prompt_type' is missing/);
  await refused(server, one(column('request_prompt_type', 'UINT32', [4]), lengths, embedding), /'request_prompt_type' must be from 0 to 3/);
  await refused(server, one(...ownTables(1, [soft], [6])), /'request_prompt_lengths' must be from 1 to the 5 rows/);
  await refused(server, one(...ownTables(1, [soft], [0])), /'request_prompt_lengths' must be from 1/);
  await refused(server, one(...ownTables(2, [soft])), /'request_prompt_embedding' has 64 values for a virtual token; this model needs 384 for type 2/);
  await refused(server, one(type, lengths, { ...embedding, shape: [5, 64] }), /'request_prompt_embedding' must have the shape/);
  await refused(server, one(type, lengths, { ...embedding, datatype: 'INT32', data: embedding.data.map(() => 1) }), /request_prompt_embedding.*INT32/);
  await refused(server, one(type, lengths, embedding, column('prompt_learning_task_name_ids', 'UINT32', [0])), /exclude each other/);
  await refused(server, one(column('prompt_learning_task_name_ids', 'UINT32', [0])), /the model has 0 tasks of prompt learning/);
  // NaN cannot stand in JSON: in binary form, as FP16 like FasterTransformer's clients send it.
  const half = Buffer.alloc(5 * 64 * 2);
  half.writeUInt16LE(0x7e00, 2 * 64 * 2);
  const binary = { name: 'request_prompt_embedding', datatype: 'FP16', shape: [1, 5, 64], parameters: { binary_data_size: half.length } };
  const send = async (bytes) => {
    const json = Buffer.from(JSON.stringify({ inputs: [...one(type, lengths), binary] }));
    const response = await fetch(`${server.url}/v2/models/fastertransformer/infer`, {
      method: 'POST', body: Buffer.concat([json, bytes]), headers: { 'Inference-Header-Content-Length': String(json.length) },
    });
    return { status: response.status, text: await response.text() };
  };
  const nan = await send(half);
  assert.equal(nan.status, 400);
  assert.match(nan.text, /request_prompt_embedding.*value 0 of virtual token 2 is not finite/);
  half.writeUInt16LE(0x3c00, 2 * 64 * 2); // 1
  assert.equal((await send(half)).status, 200);
});

test('prefixes of a GPT-J checkpoint, of one rank and of two; broken checkpoints are named', async (t) => {
  for (const ranks of [1, 2]) {
    const model = checkpoint(t, 'gptj', 2, ['prefix'], ranks);
    const server = await Server.start(t, { model, args: unlimited });
    const { ids, out } = await infer(server, inputsOf(rows, 6, [column('prompt_learning_task_name_ids', 'UINT32', [0, 0])]));
    rows.forEach((row, i) => assert.deepEqual(ids[i], [...row, ...generate('gptj', 'prefix', row, 6)]));
    assert.deepEqual(out.response_input_lengths.data, [4, 6]);
    await server.stop();
    const fails = async (says) => {
      const result = await run(['serve', '--model', model, '--port', '0', '--db', path.join(temporaryFolder(t), 'x.db')]);
      assert.equal(result.code, 1);
      assert.match(result.stderr, says);
    };
    const file = path.join(model, `model.prefix_prompt.prefix.weight.${ranks - 1}.bin`);
    truncateSync(file, 100);
    await fails(/model\.prefix_prompt\.prefix\.weight\.\d\.bin: by config.ini it must have \d+ bytes .* is shorter/);
    rmSync(file);
    await fails(/model\.prefix_prompt\.prefix\.weight\.\d\.bin/);
  }
});
