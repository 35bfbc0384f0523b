// parley inspect: its output for every family, for shards, and for faulty folders.
import assert from 'node:assert/strict';
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { root, shortIf, shortTest as test, temporaryFolder } from './harness.mjs';
import { run } from './run.mjs';
import { putTogether, takeApart } from './safetensors.mjs';

const fixture = (name) => path.join(root, 'tests/fixtures/models', name);

async function inspect(folder) {
  const { code, stdout, stderr } = await run(['inspect', '--model', folder, '--json']);
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
}

// As the classes of transformers have them, and the fixtures' sizes.
const rms = { norm: 'rms', norm_bias: false, norm_eps: 1e-6, positions: 'rotary', activation: 'silu', gated: true, ffn_width: 160,
  max_positions: 512, o_bias: false, ffn_bias: false };
const layer = { norm: 'layer', norm_bias: true, norm_eps: 1e-5, gated: false, ffn_width: 256, max_positions: 256, n_kv_heads: 4, ffn_bias: true };
const half = (rot_dim) => ({ style: 'half', rot_dim, scale: 1 });
const families = {
  llama: { ...rms, dtype: 'bf16', n_kv_heads: 2, qkv_bias: false, tied_head: false, rope: half(16) },
  mistral: { ...rms, dtype: 'bf16', n_kv_heads: 1, qkv_bias: false, tied_head: false, rope: half(16) },
  qwen2: { ...rms, dtype: 'bf16', n_kv_heads: 2, qkv_bias: true, tied_head: true, rope: half(16) },
  qwen3: { ...rms, dtype: 'bf16', n_kv_heads: 2, qkv_bias: false, tied_head: true, qk_norm: true, head_dim: 32, rope: half(32) },
  gpt2: { ...layer, dtype: 'f32', positions: 'learned', activation: 'gelu_tanh', qkv_bias: true, o_bias: true, tied_head: true },
  gptj: { ...layer, dtype: 'f16', positions: 'rotary', activation: 'gelu_tanh', qkv_bias: false, o_bias: false, tied_head: false,
    head_bias: true, parallel_residual: true, shared_norm: true, rope: { style: 'interleaved', rot_dim: 8, scale: 1 } },
  gpt_neox: { ...layer, dtype: 'f16', positions: 'rotary', activation: 'gelu', qkv_bias: true, o_bias: true, tied_head: false,
    parallel_residual: true, rope: half(4) },
  bloom: { ...layer, dtype: 'f32', positions: 'alibi', activation: 'gelu_tanh', qkv_bias: true, o_bias: true, tied_head: true,
    embed_norm: true, max_positions: 2048 },
  opt: { ...layer, dtype: 'f32', positions: 'learned', position_offset: 2, activation: 'relu', qkv_bias: true, o_bias: true,
    tied_head: true, ffn_width: 128 },
  xglm: { ...layer, dtype: 'f32', positions: 'sinusoidal', position_offset: 2, activation: 'gelu', qkv_bias: true, o_bias: true,
    tied_head: true, ffn_width: 128, embed_scale: 8 },
};
const everywhere = { format: 'hugging_face', n_layers: 3, width: 64, n_heads: 4, head_dim: 16, vocab_size: 320, norm_placement: 'pre',
  final_norm: true, qk_norm: false, embed_norm: false, position_offset: 0, head_bias: false, parallel_residual: false, shared_norm: false,
  embed_scale: 1, embed_width: 64, sliding_window: 0, bos_id: 0 };

for (const [family, switches] of Object.entries(families)) {
  shortIf(['llama', 'bloom'].includes(family))(family, async () => {
    const report = await inspect(fixture(family));
    const want = { family, ...everywhere, ...switches };
    for (const [key, value] of Object.entries(want)) {
      if (key === 'rope') assert.deepEqual({ ...report.rope, lowest_frequency: undefined }, { ...value, lowest_frequency: undefined });
      else assert.deepEqual(report[key], value, key);
    }
    assert.equal('rope' in report, want.positions === 'rotary');
    assert.ok(!('weights_error' in report) && report.tokenizer_file === null && /tokenizer/.test(report.tokenizer_error));
    // Sizes, counted here from the file's own header.
    const { header } = takeApart(path.join(fixture(family), 'model.safetensors'));
    delete header.__metadata__;
    const tensors = Object.values(header);
    const bytes = tensors.reduce((sum, { data_offsets: [from, to] }) => sum + to - from, 0);
    assert.deepEqual(report.tensors, { count: tensors.length, bytes, dtypes: { [want.dtype]: { count: tensors.length, bytes } } });
    const elements = tensors.reduce((sum, { shape }) => sum + shape.reduce((n, d) => n * d, 1), 0);
    assert.equal(report.n_params, elements);
    const perToken = 2 * want.n_layers * want.n_kv_heads * want.head_dim;
    const int8 = perToken + 2 * want.n_layers * want.n_kv_heads * 4; // a scale for each head's K and V
    assert.deepEqual(report.kv_bytes_per_token, { f32: 4 * perToken, bf16: 2 * perToken, int8 });
    const tokens = Math.min(want.max_positions, 4096);
    assert.deepEqual(report.memory, [1, 8, 64].map((sessions) => ({ sessions, tokens_each: tokens,
      bytes_kv_f32: bytes + sessions * tokens * 4 * perToken, bytes_kv_bf16: bytes + sessions * tokens * 2 * perToken,
      bytes_kv_int8: bytes + sessions * tokens * int8 })));
    // For people: the same keys, one a line.
    const { stdout } = await run(['inspect', fixture(family)]);
    for (const key of Object.keys(report)) assert.match(stdout, new RegExp(`^${key} `, 'm'), key);
    assert.match(stdout, new RegExp(`^n_params +${elements}$`, 'm'));
  });
}

/** A copy of the fixture's configuration, without weights. */
function copy(t, family, change = (config) => config) {
  const folder = temporaryFolder(t);
  const config = JSON.parse(readFileSync(path.join(fixture(family), 'config.json')));
  cpSync(path.join(fixture(family), 'generation_config.json'), path.join(folder, 'generation_config.json'));
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(change(config)));
  return folder;
}

/** One safetensors file of some of a file's tensors. */
function write(file, { header, data }, keep) {
  const out = {}, parts = [];
  let at = 0;
  for (const [name, tensor] of Object.entries(header)) {
    if (name === '__metadata__' || !keep(name)) continue;
    const [from, to] = tensor.data_offsets;
    parts.push(data.subarray(from, to));
    out[name] = { ...tensor, data_offsets: [at, (at += to - from)] };
  }
  putTogether(file, out, Buffer.concat(parts));
  return Object.keys(out);
}

/** In two shards with an index. */
function shard(folder, whole) {
  const names = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
  const weight_map = {};
  names.forEach((file, i) => {
    for (const name of write(path.join(folder, file), whole, (tensor) => /layers\.[12]\./.test(tensor) === (i === 1))) weight_map[name] = file;
  });
  writeFileSync(path.join(folder, 'model.safetensors.index.json'), JSON.stringify({ metadata: {}, weight_map }));
  return names;
}

test('shards are one model; one that is not there is named', async (t) => {
  const folder = copy(t, 'llama');
  const names = shard(folder, takeApart(path.join(fixture('llama'), 'model.safetensors')));
  assert.deepEqual({ ...(await inspect(folder)), tokenizer_error: '' }, { ...(await inspect(fixture('llama'))), tokenizer_error: '' });
  rmSync(path.join(folder, names[1]));
  const { code, stdout, stderr } = await run(['inspect', folder, '--json']);
  assert.deepEqual([code, stdout], [1, '']);
  assert.ok(stderr.includes(names[1]), stderr);
});

test('a tensor that is missing or has another shape is named', async (t) => {
  const whole = takeApart(path.join(fixture('qwen2'), 'model.safetensors'));
  const folder = copy(t, 'qwen2'), file = path.join(folder, 'model.safetensors');
  const lost = 'model.layers.2.self_attn.k_proj.bias';
  write(file, whole, (name) => name !== lost);
  assert.ok((await inspect(folder)).weights_error.includes(lost));
  const { header, data } = whole;
  const spoiled = 'model.layers.1.mlp.up_proj.weight';
  putTogether(file, { ...header, [spoiled]: { ...header[spoiled], shape: [...header[spoiled].shape].reverse() } }, data);
  assert.ok((await inspect(folder)).weights_error.includes(spoiled));
});

for (const [what, family, change, names] of [
  ['an unknown family', 'llama', { model_type: 'frobnicate' }, ['frobnicate']],
  ['an unknown activation', 'gpt2', { activation_function: 'frob' }, ['activation_function', 'frob']],
  ['an unknown rotary scaling', 'llama', { rope_parameters: { rope_type: 'frob', rope_theta: 1e4 } }, ['frob']],
  ['a number of heads that does not divide', 'qwen3', { num_key_value_heads: 3 }, ['num_key_value_heads']],
  ['an unknown quantisation', 'mistral', { quantization_config: { quant_method: 'frobnicate' } }, ['quantization_config', 'frobnicate']],
]) {
  test(`${what} is refused by name`, async (t) => {
    const folder = copy(t, family, (config) => ({ ...config, ...change }));
    cpSync(path.join(fixture(family), 'model.safetensors'), path.join(folder, 'model.safetensors'));
    const { code, stdout, stderr } = await run(['inspect', folder]);
    assert.deepEqual([code, stdout], [1, ''], stderr);
    for (const name of ['config.json', ...names]) assert.ok(stderr.includes(name), `${stderr} names ${name}`);
  });
}

test('pytorch_model.bin alone is refused with the way to convert it', async (t) => {
  const folder = copy(t, 'opt');
  writeFileSync(path.join(folder, 'pytorch_model.bin'), 'PK');
  const { code, stdout, stderr } = await run(['inspect', folder]);
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /pytorch_model\.bin/);
  assert.match(stderr, /save_pretrained/);
  assert.match(stderr, /convert/i);
});
