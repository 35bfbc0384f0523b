// Weights of few bits from the command line, int8, fp8 and int4: the same answers whether quantised at load or by `parley
// quantize`; the loss of accuracy; refusals.
import assert from 'node:assert/strict';
import { cpSync, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { temporaryFolder } from './harness.mjs';
import { chat, good, json as jsonOf, run } from './run.mjs';
import { putTogether, takeApart } from './safetensors.mjs';

const demo = 'configs/demo-model';

const json = (args, options) => jsonOf([...args, '--json'], options);
async function refused(args, why, code = 1) {
  const result = await run(args);
  assert.equal(result.code, code, `parley ${args.join(' ')}`);
  assert.match(result.stderr, why);
}

test('quantize: a folder that gives the answers that weight_dtype int8 gives, to the last bit', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'q');
  const written = await json(['quantize', '--model', demo, '--output', out]);
  assert.equal(written.output, out);
  assert.ok(written.matrices === 57 && written.bytes_after < 0.51 * written.bytes_before);
  assert.deepEqual(readdirSync(folder), ['q']);
  const config = JSON.parse(readFileSync(path.join(out, 'config.json'), 'utf8'));
  assert.equal(config.quantization_config.quant_method, 'parley_int8');
  const generate = ['--prompt', '-', '--max-tokens', '40', '--temperature', '0'];
  const read = await json(['generate', '--model', out, ...generate], { input: chat });
  const made = await json(['generate', '--model', demo, '--weight-dtype', 'int8', ...generate], { input: chat });
  assert.ok(read.ids.length > 0);
  assert.deepEqual(read, made);
  const inspected = await json(['inspect', out]);
  assert.equal(inspected.weight_dtype, 'int8');
  assert.equal(inspected.tensors.dtypes.u8.count, 57);
  assert.equal(inspected.weight_bytes_int8, inspected.tensors.bytes);
  assert.equal((await json(['inspect', demo])).weight_bytes_int8, inspected.tensors.bytes);
  const both = await json(['score', '--model', demo, '--weight-dtype', 'int8', '--compare-model', out, '--text', '-'], { input: chat });
  assert.deepEqual([both.top1_agreement, both.max_logit_difference, both.max_kl], [1, 0, 0]);
});

test('score --compare-weights: what 8 bits cost, and nothing where both are the same', async () => {
  const score = ['score', '--model', demo, '--text', '-'];
  const cost = await json([...score, '--compare-weights', 'int8'], { input: chat });
  assert.deepEqual([cost.reference.weight_dtype, cost.compared.weight_dtype], ['bf16', 'int8']);
  assert.equal(cost.scored, cost.positions - 1);
  assert.ok(cost.top1_agreement > 0.95, `top-1 agreement ${cost.top1_agreement}`);
  assert.ok(Math.abs(cost.perplexity_ratio - 1) < 0.02, `perplexity ratio ${cost.perplexity_ratio}`);
  assert.ok(cost.mean_kl > 0 && cost.mean_kl < 0.002, `KL ${cost.mean_kl}`);
  assert.ok(cost.rms_logit_difference < 0.04 * cost.logit_spread);
  const none = await json([...score, '--compare-weights', 'model'], { input: chat });
  assert.deepEqual([none.top1_agreement, none.max_logit_difference, none.perplexity_ratio], [1, 0, 1]);
  // The log-probabilities are those that score gives without comparing.
  const ids = (await json(['tokenize', '--model', demo], { input: chat })).ids.join(',');
  const plain = JSON.parse(await good(['score', '--model', demo, '--ids', ids]));
  assert.ok(Math.abs(plain.logprob - cost.reference.logprob) < 1e-6 * Math.abs(plain.logprob));
  // In pieces: each a log of its own.
  const pieces = await json([...score, '--compare-weights', 'int8', '--session-len', '20'], { input: chat });
  assert.equal(pieces.positions, cost.positions);
  assert.equal(pieces.scored, cost.positions - Math.ceil(cost.positions / 20));
  assert.ok(pieces.reference.perplexity > cost.reference.perplexity);
  assert.match(await good([...score, '--compare-weights', 'int8'], { input: chat }), /top-1 agreement +\d+\.\d+ %/);
});

test('fp8: a folder that gives the answers that weight_dtype fp8 gives, to the last bit; what it costs', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'q');
  const written = await json(['quantize', '--model', demo, '--output', out, '--weight-dtype', 'fp8']);
  assert.ok(written.matrices === 57 && written.bytes_after < 0.51 * written.bytes_before);
  const config = JSON.parse(readFileSync(path.join(out, 'config.json'), 'utf8'));
  assert.equal(config.quantization_config.quant_method, 'compressed-tensors');
  assert.equal(config.quantization_config.config_groups.group_0.weights.strategy, 'channel');
  const generate = ['--prompt', '-', '--max-tokens', '40', '--temperature', '0'];
  const read = await json(['generate', '--model', out, ...generate], { input: chat });
  const made = await json(['generate', '--model', demo, '--weight-dtype', 'fp8', ...generate], { input: chat });
  assert.ok(read.ids.length > 0);
  assert.deepEqual(read, made);
  const inspected = await json(['inspect', out]);
  assert.equal(inspected.weight_dtype, 'fp8');
  assert.equal(inspected.tensors.dtypes.f8_e4m3.count, 57);
  assert.equal(inspected.weight_bytes_fp8, inspected.tensors.bytes);
  assert.equal((await json(['inspect', demo])).weight_bytes_fp8, inspected.tensors.bytes);
  const score = ['score', '--model', demo, '--text', '-'];
  const both = await json([...score, '--weight-dtype', 'fp8', '--compare-model', out], { input: chat });
  assert.deepEqual([both.top1_agreement, both.max_logit_difference, both.max_kl], [1, 0, 0]);
  const cost = await json([...score, '--compare-weights', 'fp8'], { input: chat });
  assert.deepEqual([cost.reference.weight_dtype, cost.compared.weight_dtype], ['bf16', 'fp8']);
  assert.ok(cost.top1_agreement > 0.9, `top-1 agreement ${cost.top1_agreement}`);
  assert.ok(Math.abs(cost.perplexity_ratio - 1) < 0.04, `perplexity ratio ${cost.perplexity_ratio}`);
  assert.ok(cost.mean_kl > 0 && cost.mean_kl < 0.01, `KL ${cost.mean_kl}`);
  await refused(['generate', '--model', out, '--weight-dtype', 'int8', '--ids', '1'], /stored in fp8, which int8/);
  // Nothing is rounded in silence where it would not be, nor left unrounded.
  await refused(['generate', '--model', demo, '--fp8-activations', '--ids', '1'], /fp8_activations needs weights of fp8/);
  await refused(['generate', '--model', out, '--device', 'cpu', '--fp8-activations', '--ids', '1'], /fp8_activations needs a GPU/);
  await refused(['generate', '--model', out, '--fp8-activations', '--deterministic', '--ids', '1'], /exclude each other/);
});

test('score --compare-compute: what products of bf16 cost, where the processor has them', async (t) => {
  const score = ['score', '--model', demo, '--text', '-', '--json'];
  const { stdout, stderr } = await run([...score, '--compare-compute', 'bf16'], { input: chat });
  if (/AVX512-BF16 or AMX/.test(stderr)) return t.skip('this processor has neither AVX512-BF16 nor AMX');
  const cost = JSON.parse(stdout);
  assert.ok(cost.top1_agreement > 0.98, `top-1 agreement ${cost.top1_agreement}`);
  assert.ok(Math.abs(cost.perplexity_ratio - 1) < 0.005, `perplexity ratio ${cost.perplexity_ratio}`);
  assert.ok(cost.rms_logit_difference > 0 && cost.rms_logit_difference < 0.01 * cost.logit_spread);
  // 8-bit weights take x as ever.
  const int8 = await json(['score', '--model', demo, '--text', '-', '--weight-dtype', 'int8', '--compare-compute', 'bf16'], { input: chat });
  assert.equal(int8.max_logit_difference, 0);
});

test('int4: a folder in the format of compressed-tensors, and what it costs', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'q');
  const written = await json(['quantize', '--model', demo, '--output', out, '--weight-dtype', 'int4']);
  assert.ok(written.matrices === 56 && written.bytes_after < 0.36 * written.bytes_before); // the embedding stays
  const { quantization_config: config } = JSON.parse(readFileSync(path.join(out, 'config.json'), 'utf8'));
  assert.deepEqual([config.quant_method, config.format], ['compressed-tensors', 'pack-quantized']);
  assert.equal(config.config_groups.group_0.weights.group_size, 128);
  const score = ['score', '--model', demo, '--text', '-'];
  const stored = await json([...score, '--compare-model', out], { input: chat });
  const made = await json([...score, '--compare-weights', 'int4'], { input: chat, env: { TMPDIR: folder } });
  assert.ok(stored.mean_kl > 0 && stored.mean_kl < 0.2, `KL ${stored.mean_kl}`);
  assert.deepEqual([made.mean_kl, made.perplexity_ratio], [stored.mean_kl, stored.perplexity_ratio]);
  assert.deepEqual(readdirSync(folder), ['q']); // no folder is left behind
  await refused(['quantize', '--model', 'tests/fixtures/models/llama', '--output', path.join(folder, 'x'), '--weight-dtype', 'int4'],
    /no matrix of outputs by inputs whose inputs 128 divides/);
  await refused(['quantize', '--model', out, '--output', path.join(folder, 'x'), '--weight-dtype', 'int4'], /quantization_config already/);
});

test('int4 --calibrate: less changes on the text, and other matrices than those of linear layers are as without it', async (t) => {
  const folder = temporaryFolder(t), kl = {}, weights = {}, file = path.join(folder, 'chat.txt');
  writeFileSync(file, chat);
  for (const [name, more] of [['plain', []], ['calibrated', ['--calibrate', file]], ['again', ['--calibrate', '-']]]) {
    const out = path.join(folder, name);
    const written = await json(['quantize', '--model', demo, '--output', out, '--weight-dtype', 'int4', ...more], { input: chat });
    assert.equal(written.matrices, 56);
    kl[name] = (await json(['score', '--model', demo, '--text', '-', '--compare-model', out], { input: chat })).mean_kl;
    weights[name] = takeApart(path.join(out, 'model.safetensors'));
  }
  assert.ok(kl.calibrated < 0.7 * kl.plain, `KL ${kl.calibrated}, ${kl.plain} without`);
  assert.deepEqual(weights.again.data, weights.calibrated.data);
  const score = ['score', '--model', demo, '--text', '-', '--calibrate', file, '--compare-weights'];
  assert.equal((await json([...score, 'int4'], { input: chat, env: { TMPDIR: folder } })).mean_kl, kl.calibrated);
  assert.deepEqual(readdirSync(folder).sort(), ['again', 'calibrated', 'chat.txt', 'plain']); // no folder is left behind
  await refused([...score, 'int8'], /--calibrate needs --compare-weights int4/, 2);
  const { header, data } = weights.calibrated, bytes = ({ data: all }, name) => all.subarray(...header[name].data_offsets);
  for (const name of Object.keys(header).filter((key) => key !== '__metadata__'))
    assert.equal(bytes({ data }, name).equals(bytes(weights.plain, name)), !/weight_(packed|scale)$/.test(name), name);
  const quantize = ['quantize', '--model', demo, '--output', path.join(folder, 'x'), '--calibrate'];
  await refused([...quantize, file], /--calibrate needs --weight-dtype int4 and --format folder/, 2);
  await refused([...quantize, path.join(folder, 'none.txt'), '--weight-dtype', 'int4'], /none\.txt/);
  writeFileSync(file, '');
  await refused([...quantize, file, '--weight-dtype', 'int4'], /the calibration text has no token/);
  assert.ok(!existsSync(path.join(folder, 'x')));
});

// A random model whose experts have inputs of unlike size: every eighth channel of the norm before them and every eighth
// output of their up is six times as large.
async function unlikeExperts(folder) {
  const model = path.join(folder, 'model'), shape = path.join(folder, 'config.json'), file = path.join(model, 'model.safetensors');
  writeFileSync(shape, JSON.stringify({ model_type: 'qwen3_moe', vocab_size: 4096, hidden_size: 256, num_hidden_layers: 3, num_attention_heads: 4,
    num_key_value_heads: 2, head_dim: 64, intermediate_size: 512, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 256,
    norm_topk_prob: true, rms_norm_eps: 1e-6, max_position_embeddings: 2048, tie_word_embeddings: false, torch_dtype: 'float32' }));
  await good(['synth', '--config', shape, '--output', model, '--dtype', 'f32', '--tokenizer-from', demo]);
  const { header, data } = takeApart(file);
  for (const name of Object.keys(header).filter((key) => /post_attention_layernorm|experts.*up_proj/.test(key))) {
    const { shape: [, cols = 1], data_offsets: [from, to] } = header[name];
    for (let at = from; at < to; at += 4)
      if (Math.floor((at - from) / 4 / cols) % 8 === 0) data.writeFloatLE(6 * data.readFloatLE(at), at);
  }
  putTogether(file, header, data);
  return model;
}
// Words of the chat in an order of their own.
const words = (n, step) => Array.from({ length: n }, (_, i) => chat.split(/\s+/)[(i * i * step + i) % 61 % chat.split(/\s+/).length]).join(' ');

test('int4 --calibrate: experts are rounded by what they are multiplied by, those without rows as without a text', async (t) => {
  const folder = temporaryFolder(t), model = await unlikeExperts(folder), kl = {}, weights = {};
  const text = path.join(folder, 'text'), other = path.join(folder, 'other'), warnings = {};
  writeFileSync(text, words(1500, 3));
  writeFileSync(other, words(600, 7));
  for (const [name, more] of [['plain', []], ['calibrated', ['--calibrate', text]]]) {
    const out = path.join(folder, name);
    warnings[name] = (await run(['quantize', '--model', model, '--output', out, '--weight-dtype', 'int4', ...more])).stderr;
    kl[name] = (await json(['score', '--model', model, '--text', other, '--compare-model', out])).mean_kl;
    weights[name] = takeApart(path.join(out, 'model.safetensors'));
  }
  assert.ok(kl.calibrated < 0.82 * kl.plain, `KL ${kl.calibrated}, ${kl.plain} without`); // 0.72; with the dense matrices alone 0.91
  assert.match(warnings.calibrated, /event=calibrate\.few_rows experts=\d+ of=24/);
  assert.doesNotMatch(warnings.plain, /calibrate/);
  const names = Object.keys(weights.plain.header), few = Number(/experts=(\d+)/.exec(warnings.calibrated)[1]);
  const bytes = ({ header, data }, name) => data.subarray(...header[name].data_offsets);
  const same = (stem) => names.filter((name) => name.endsWith(`${stem}.weight_packed`) && bytes(weights.plain, name).equals(bytes(weights.calibrated, name))).length;
  assert.deepEqual([same('gate_proj'), same('up_proj'), same('down_proj')], [0, 0, few]);
});

test('score --compare-weights: as much context as the model has', async () => {
  const ids = Array.from({ length: 300 }, (_, i) => i % 90 + 5).join(',');
  const cost = await json(['score', '--model', 'tests/fixtures/models/gpt2', '--ids', ids, '--compare-weights', 'int8']);
  assert.deepEqual([cost.positions, cost.scored], [300, 298]); // a table of 256 positions: two pieces
  assert.ok(cost.top1_agreement > 0.9 && cost.rms_logit_difference < 0.03 * cost.logit_spread);
});

test('what cannot be is said: twice, over another folder, another method, wrong usage', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'q');
  await good(['quantize', '--model', demo, '--output', out]);
  await refused(['quantize', '--model', demo, '--output', out], /exists already/);
  await refused(['quantize', '--model', out, '--output', path.join(folder, 'twice')], /quantization_config/);
  await refused(['quantize', '--model', demo], /--output/, 2);
  await refused(['quantize', '--model', path.join(folder, 'none'), '--output', path.join(folder, 'x')], /none/);
  await refused(['score', '--model', demo, '--compare-weights', 'int8'], /--ids/, 2);
  await refused(['score', '--model', demo, '--ids', '1', '--text', 'x'], /exactly one of --ids and --text/, 2);
  await refused(['score', '--model', demo, '--ids', '1', '--compare-weights', 'int3'], /compare-weights|compare_weights/, 2);
  const other = path.join(folder, 'other');
  cpSync(out, other, { recursive: true });
  const file = path.join(other, 'config.json');
  writeFileSync(file, readFileSync(file, 'utf8').replace('parley_int8', 'frobnicate'));
  await refused(['generate', '--model', other, '--ids', '1'], /'frobnicate'/);
  assert.ok(!existsSync(path.join(folder, 'twice')));
});

test('quantize: a disk without room leaves nothing and says so', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'q');
  const wrap = ['sh', '-c', 'trap "" XFSZ; exec prlimit --fsize=5000000 "$@"', 'sh']; // writing past it fails
  const result = await run(['quantize', '--model', demo, '--output', out], { wrap });
  assert.equal(result.code, 1);
  assert.match(result.stderr, /cannot write .*q\.partial/);
  assert.deepEqual(readdirSync(folder), []);
});
