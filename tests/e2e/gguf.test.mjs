// GGUF files as other programs write them: the same model in another lawful form has the same logits, and so has a
// folder's model in a file of each architecture that no fixture has.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client, longTest, parley, root, Server, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';
import { build, list, read, write } from './gguf.mjs';
import { readTensor, takeApart } from './safetensors.mjs';

const IDS = Array.from({ length: 40 }, (_, i) => 3 + i * 37 % 90).join(',');

function logits(t, model, options = []) {
  const file = path.join(temporaryFolder(t), 'logits.safetensors');
  const { status, stderr } = spawnSync(parley, ['score', '--model', model, '--ids', IDS, '--logits', file, ...options], { encoding: 'utf8' });
  return status === 0 ? { rows: readTensor(file, 'logits').data } : { error: stderr };
}

const isSame = (a, b) => Boolean(a) && Buffer.from(a.buffer).equals(Buffer.from(b.buffer));

// --- one model in many forms ---------------------------------------------------------------------------------------

const source = path.join(root, 'tests/fixtures/quantised/llama_q4_0.gguf');
const padded = (tensor) => Math.ceil(tensor.data.length / 32) * 32;
const dataBegins = (file) => build(file).length - file.tensors.reduce((sum, tensor) => sum + padded(tensor), 0);

/** Lays the data out in this order, with unused bytes between, behind a list that keeps its own. */
function laidOut(file, order, gap) {
  const filler = (tensor) => Buffer.alloc(padded(tensor) - tensor.data.length + gap, 0xff);
  let offset = 0;
  for (const tensor of order) { tensor.offset = offset; offset += padded(tensor) + gap; }
  return Buffer.concat([build(file).subarray(0, dataBegins(file)), ...order.flatMap((tensor) => [tensor.data, filler(tensor)])]);
}

const everyCount = (file, type) => { for (const [key, value] of Object.entries(file.metadata)) if (key.startsWith('llama.') && value[0] === 'u32') value[0] = type; };
const forms = {
  'version 2': (file) => { file.version = 2; },
  ...Object.fromEntries([1, 4, 64, 4096, 1 << 20].map((n) => [`an alignment of ${n}`, (file) => { file.metadata['general.alignment'] = ['u32', n]; }])),
  'an alignment of another type': (file) => { file.metadata['general.alignment'] = ['u64', 64]; },
  'keys in another order': (file) => { file.metadata = Object.fromEntries(Object.entries(file.metadata).reverse()); },
  'tensors in another order': (file) => { file.tensors.reverse(); },
  'data in another order than the list, with gaps': (file) => laidOut(file, [...file.tensors].reverse(), 64),
  'counts of 64 bits': (file) => everyCount(file, 'u64'),
  'counts that have a sign': (file) => everyCount(file, 'i32'),
  'counts of 16 bits': (file) => everyCount(file, 'u16'),
  'reals of 64 bits': (file) => { for (const value of Object.values(file.metadata)) if (value[0] === 'f32') value[0] = 'f64'; },
  'heads and widths as lists': (file) => {
    for (const key of ['attention.head_count', 'attention.head_count_kv', 'feed_forward_length'].map((name) => `llama.${name}`))
      file.metadata[key] = list('i32', Array(Number(file.metadata['llama.block_count'][1])).fill(file.metadata[key][1]));
  },
  'keys left out that have a default': (file) => {
    for (const key of Object.keys(file.metadata)) if (/^general\.(?!arch)|rope\.dimension_count|vocab_size|(key|value)_length/.test(key)) delete file.metadata[key];
  },
  'keys that nobody knows': (file) => Object.assign(file.metadata, {
    'x.text': ['text', ''], 'x.none': list('text', []), 'x.truths': list('bool', [true, false]), 'x.byte': ['i8', -3], 'x.no_number': ['f64', NaN],
    'x.long': list('u8', Array(100000).fill(7)), 'x.large': ['u64', 18446744073709551615n], 'llama.unknown': ['u32', 3],
    'x.nested': ['list', { type: 9, values: [{ type: 0, values: [1, 2] }, { type: 8, values: ['a', '😀'] }] }],
  }) && undefined,
  'a last tensor without padding': (file) => { file.padLast = false; },
  'bytes behind the last tensor': (file) => Buffer.concat([build(file), Buffer.alloc(1000, 7)]),
};

longTest('a file rewritten in any lawful form is the same model', async (t) => {
  const expected = logits(t, source).rows;
  for (const [name, change] of Object.entries(forms)) {
    const file = read(source);
    const bytes = change(file) ?? build(file);
    const { rows, error } = logits(t, write(path.join(temporaryFolder(t), 'model.gguf'), bytes));
    assert.ok(isSame(rows, expected), `${name}: ${error}`);
  }
});

test('split files, with tensors in the first part and without', async (t) => {
  const expected = logits(t, source).rows, of = (n) => `of-${String(n).padStart(5, '0')}.gguf`;
  for (const places of [(i) => i % 3, (i) => 1 + i % 2]) {
    const folder = temporaryFolder(t), { metadata, tensors } = read(source);
    for (let part = 0; part < 3; part++)
      write(path.join(folder, `model-${String(part + 1).padStart(5, '0')}-${of(3)}`), {
        metadata: { ...(part === 0 ? metadata : {}), 'split.no': ['u16', part], 'split.count': ['u16', 3], 'split.tensors.count': ['i32', tensors.length] },
        tensors: tensors.filter((_, i) => places(i) === part),
      });
    assert.ok(isSame(logits(t, path.join(folder, `model-00001-${of(3)}`)).rows, expected));
    assert.match(logits(t, path.join(folder, `model-00002-${of(3)}`)).error, /part 2 of a split file: name the first part/);
  }
});

longTest('a factor of positions without a type, or by its old name, is a linear scaling', async (t) => {
  const scaled = (keys) => {
    const file = read(source);
    for (const [key, value] of Object.entries(keys)) file.metadata[`llama.rope.${key}`] = value;
    return logits(t, write(path.join(temporaryFolder(t), 'model.gguf'), file)).rows;
  };
  const expected = scaled({ 'scaling.type': ['text', 'linear'], 'scaling.factor': ['f32', 4] }), plain = logits(t, source).rows;
  assert.ok(!isSame(expected, plain));
  assert.ok(isSame(scaled({ 'scaling.factor': ['f32', 4] }), expected));
  assert.ok(isSame(scaled({ scale_linear: ['f32', 4] }), expected));
  assert.ok(isSame(scaled({ 'scaling.type': ['text', 'none'], 'scaling.factor': ['f32', 4] }), plain));
});

test('norms of 16 bits are those of F32, also where the file has 1 + w', (t) => {
  const fixture = path.join(root, 'tests/fixtures/gguf/gemma3_scaled.gguf'), folder = temporaryFolder(t), file = read(fixture);
  const vectors = file.tensors.filter(({ type, dims }) => type === 0 && dims.length === 1);
  assert.ok(vectors.length > 4);
  for (const vector of vectors) { // values that bf16 has
    vector.data = Buffer.from(vector.data);
    for (let i = 0; i < vector.data.length; i += 4) vector.data.writeUInt16LE(0, i);
  }
  const expected = logits(t, write(path.join(folder, 'wide.gguf'), file)).rows;
  for (const vector of vectors) {
    vector.type = 30;
    vector.data = Buffer.concat(Array.from({ length: vector.data.length / 4 }, (_, i) => vector.data.subarray(4 * i + 2, 4 * i + 4)));
  }
  assert.ok(isSame(logits(t, write(path.join(folder, 'halves.gguf'), file)).rows, expected));
});

test('what no reader can know is refused by name', async (t) => {
  const refused = (change, message) => {
    const file = read(source);
    change(file);
    assert.match(logits(t, write(path.join(temporaryFolder(t), 'model.gguf'), file)).error, message);
  };
  refused((file) => { file.bigEndian = true; }, /this file is big-endian/);
  refused((file) => { file.version = 1; }, /GGUF of version 1; known are 2 and 3/);
  refused((file) => { file.metadata['general.architecture'][1] = 'llamb'; }, /general\.architecture is 'llamb'/);
  refused((file) => { file.tensors.push({ ...file.tensors[0], name: 'blk.0..weight' }); }, /'blk\.0\.\.weight' is unknown/);
  refused((file) => { file.tensors.push({ ...file.tensors[3], name: 'blk.1.attn_k.weight' }); }, /'blk\.1\.attn_k\.weight' is of layer 1 of 1/);
  refused((file) => { file.metadata['llama.rope.scaling.type'] = ['text', 'strange']; }, /'strange'; known are linear and yarn/);
});

longTest('`parley quantize` makes a folder or another file of a file, with its tokenizer', (t) => {
  for (const name of ['llama3.gguf', 'llama2_spm.gguf', 'llama_q4_0.gguf']) {
    const file = path.join(root, 'tests/fixtures/quantised', name), to = path.join(temporaryFolder(t), 'folder');
    const made = spawnSync(parley, ['quantize', '--model', file, '--weight-dtype', 'int8', '--output', to], { encoding: 'utf8' });
    assert.equal(made.status, 0, made.stderr);
    const expected = logits(t, file, ['--weight-dtype', 'int8']), { rows, error } = logits(t, to);
    assert.ok(isSame(rows, expected.rows), `${name}: ${error ?? expected.error}`);
    if (name === 'llama_q4_0.gguf') continue; // it has no tokenizer
    const ids = (model) => spawnSync(parley, ['tokenize', '--model', model, '--json'], { input: ' Hello,  wörld 你好 12345\n</s><|end_of_text|>', encoding: 'utf8' }).stdout;
    assert.match(ids(to), /"ids":\[\d+,/);
    assert.equal(ids(to), ids(file));
    const again = path.join(temporaryFolder(t), 'again.gguf'); // the file's floats are F16
    const written = spawnSync(parley, ['quantize', '--model', file, '--format', 'gguf', '--weight-dtype', 'f16', '--output', again], { encoding: 'utf8' });
    assert.equal(written.status, 0, written.stderr);
    assert.ok(isSame(logits(t, again).rows, logits(t, file).rows));
    assert.equal(ids(again), ids(file));
  }
});

test('a raw text begins with bos where the file says so, the next turn does not', async (t) => {
  for (const [name, bos] of [['llama3.gguf', '<|begin_of_text|>'], ['llama2_spm.gguf', '<s>']]) {
    const model = path.join(root, 'tests/fixtures/quantised', name);
    const server = await Server.start(t, { model, args: [...unlimited, '--device', 'cpu', '--threads', '1'] });
    const post = async (target, body) => (await fetch(server.url + target, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })).json();
    const served = (await (await fetch(`${server.url}/v1/models`)).json()).data[0].id;
    const idsOf = async (content, more) => (await post('/tokenize', { content, ...more })).tokens;
    const [first] = await idsOf(bos), plain = await idsOf('Hello');
    assert.deepEqual(await idsOf('Hello', { add_special: true }), [first, ...plain]);
    assert.deepEqual(await idsOf(`${bos}Hello`, { add_special: true }), await idsOf(`${bos}Hello`), 'it is not put there twice');
    const complete = async (prompt) => {
      const { choices, usage, error } = await post('/v1/completions', { model: served, prompt, max_tokens: 5, temperature: 0 });
      assert.equal(error, undefined, JSON.stringify(error));
      return { text: choices[0].text, prompt_tokens: usage.prompt_tokens };
    };
    assert.deepEqual(await complete('Hello'), await complete([first, ...plain]));
    assert.equal((await complete('Hello')).prompt_tokens, plain.length + 1);
    assert.equal((await complete(plain)).prompt_tokens, plain.length, 'ids are taken as they are');
    const printed = (args) => spawnSync(parley, ['generate', '--model', model, '--max-tokens', '5', '--json', '--device', 'cpu', ...args], { encoding: 'utf8' }).stdout;
    assert.match(printed(['--prompt', 'Hello']), /"ids":\[\d+/);
    assert.equal(printed(['--prompt', 'Hello']), printed(['--ids', [first, ...plain].join()]));
    const client = await Client.connect(server);
    const session = await client.open();
    const turn = async () => (await client.turn(session, { text: 'Hello' }, { sampling: { temperature: 0, max_tokens: 1, ignore_eos: true } })).done.usage.input_tokens;
    assert.equal(await turn(), plain.length + 1);
    assert.ok(await turn() <= plain.length);
    await client.close();
    await server.stop();
  }
});

// --- NVFP4 -----------------------------------------------------------------------------------------------------------

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6], e2m1 = (code) => (code & 8 ? -1 : 1) * E2M1[code & 7];
const e4m3 = (b) => (b >> 3 ? 2 ** ((b >> 3) - 7) * (1 + (b & 7) / 8) : (b & 7) * 2 ** -9);

/** Rows of a head in pairs instead of halves, as the architecture `llama` has those of queries and keys. */
const paired = (rows, heads) => Array.from({ length: rows }, (_, i) => { const d = rows / heads, j = i % d; return i - j + (j % 2 ? d / 2 : 0) + Math.floor(j / 2); });

/** ModelOpt's matrix as blocks of 64: four scales, and of each 16 values the first eight in low halves. */
function nvfp4(codes, scales, rows, columns, order) {
  const out = Buffer.alloc(rows * columns / 64 * 36);
  for (let row = 0; row < rows; row++)
    for (let k = 0; k < columns; k++) {
      const from = order[row], block = (row * columns + k - k % 64) / 64 * 36, group = k % 64 >> 4;
      out[block + group] = scales[(from * columns + k) >> 4];
      out[block + 4 + group * 8 + k % 8] |= (codes[(from * columns + k) >> 1] >> (k % 2 * 4) & 15) << (k & 8 ? 4 : 0);
    }
  return out;
}

test('NVFP4, as llama.cpp\'s converter packs it of a folder of ModelOpt\'s, has the folder\'s logits', (t) => {
  const folder = path.join(root, 'tests/fixtures/quantised/modelopt_nvfp4'), { header, data } = takeApart(path.join(folder, 'model.safetensors'));
  const config = JSON.parse(readFileSync(path.join(folder, 'config.json'), 'utf8')), names = { ...NORMS, ...ATTENTION, ...DENSE }, tensors = [];
  const bytes = (name) => data.subarray(...header[name].data_offsets), f32 = (values) => Buffer.from(Float32Array.from(values).buffer);
  for (const [hf, { dtype, shape }] of Object.entries(header)) {
    const [, layer, stem] = /^(?:model\.layers\.(\d+)\.)?(.+)\.weight$/.exec(hf) ?? [];
    if (!stem) continue;
    const to = layer === undefined ? OUTER[stem] : `blk.${layer}.${names[stem]}`, whole = hf.replace(/\.weight$/, ''), plain = { name: `${to}.weight`, dims: [...shape].reverse(), type: 0 };
    if (dtype === 'BF16') { // in F32, since norms have to be
      const values = bytes(hf);
      tensors.push({ ...plain, data: f32(Array.from({ length: values.length / 2 }, (_, i) => Buffer.from([0, 0, values[2 * i], values[2 * i + 1]]).readFloatLE(0))) });
      continue;
    }
    const [rows, half] = shape, codes = bytes(hf), scales = bytes(`${whole}.weight_scale`), by = bytes(`${whole}.weight_scale_2`).readFloatLE(0), columns = 2 * half;
    plain.dims = [columns, rows];
    if (columns % 64) { // no blocks
      const value = (i) => e2m1(codes[i >> 1] >> (i % 2 * 4) & 15) * Math.fround(e4m3(scales[i >> 4]) * by);
      tensors.push({ ...plain, data: f32(Array.from({ length: rows * columns }, (_, i) => value(i))) });
      continue;
    }
    const heads = { 'self_attn.q_proj': config.num_attention_heads, 'self_attn.k_proj': config.num_key_value_heads }[stem];
    tensors.push({ ...plain, type: 40, data: nvfp4(codes, scales, rows, columns, heads ? paired(rows, heads) : [...Array(rows).keys()]) });
    tensors.push({ name: `${to}.scale`, dims: [1], type: 0, data: f32([by]) }, { name: `${to}.input_scale`, dims: [1], type: 0, data: f32([0.5]) });
  }
  const keys = { block_count: ['u32', config.num_hidden_layers], context_length: ['u32', 512], embedding_length: ['u32', config.hidden_size], feed_forward_length: ['u32', config.intermediate_size],
    'attention.head_count': ['u32', config.num_attention_heads], 'attention.head_count_kv': ['u32', config.num_key_value_heads], 'attention.layer_norm_rms_epsilon': ['f32', config.rms_norm_eps],
    'rope.freq_base': ['f32', config.rope_theta], vocab_size: ['u32', config.vocab_size] };
  const metadata = { 'general.architecture': ['text', 'llama'], 'tokenizer.ggml.model': ['text', 'none'], ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`llama.${key}`, value])) };
  const file = write(path.join(temporaryFolder(t), 'model.gguf'), { metadata, tensors });
  const exactly = ['--compute-dtype', 'f32', '--kv-dtype', 'f32'], { rows, error } = logits(t, file, exactly), expected = logits(t, folder, exactly).rows;
  assert.equal(error, undefined);
  const largest = expected.reduce((most, x) => Math.max(most, Math.abs(x)), 0), off = rows.reduce((most, x, i) => Math.max(most, Math.abs(x - expected[i])), 0);
  assert.ok(off <= 3e-4 * largest, `${off} of ${largest}`);
});

// --- architectures ------------------------------------------------------------------------------------------------

const common = { hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 512, rms_norm_eps: 1e-5,
  vocab_size: 96, bos_token_id: 0, eos_token_id: 1, tie_word_embeddings: false };
const OUTER = { 'model.embed_tokens': 'token_embd', 'model.norm': 'output_norm', lm_head: 'output' };
const ATTENTION = { 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output' };
const DENSE = { 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down' };
const NORMS = { input_layernorm: 'attn_norm', post_attention_layernorm: 'ffn_norm' };

const architectures = {
  'hunyuan-dense': {
    config: { model_type: 'hunyuan_v1_dense', head_dim: 32, intermediate_size: 160, hidden_act: 'silu', attention_bias: false,
      rope_parameters: { rope_type: 'dynamic', alpha: 50, factor: 1, rope_theta: 10000 } },
    names: { ...NORMS, ...ATTENTION, ...DENSE, 'self_attn.query_layernorm': 'attn_q_norm', 'self_attn.key_layernorm': 'attn_k_norm' },
    keys: { feed_forward_length: ['u32', 160], 'attention.key_length': ['u32', 32], 'rope.scaling.type': ['text', 'none'],
      'rope.scaling.factor': ['f32', 1], 'rope.freq_base': ['f64', 10000 * 50 ** (32 / 30)] },
  },
  internlm2: { // q and k are those of llama: rows of a head in pairs
    config: { model_type: 'llama', head_dim: 16, intermediate_size: 160, hidden_act: 'silu', rope_theta: 10000 },
    names: { ...NORMS, ...ATTENTION, ...DENSE },
    keys: { feed_forward_length: ['u32', 160], 'rope.freq_base': ['f32', 10000] },
    change: ({ tensors }) => tensors.map((tensor) => {
      const row = 64 * 4, order = paired(tensor.data.length / row, tensor.name.includes('attn_q') ? 4 : 2);
      return /attn_[qk]\./.test(tensor.name) ? { ...tensor, data: Buffer.concat(order.map((from) => tensor.data.subarray(from * row, (from + 1) * row))) } : tensor;
    }),
  },
  exaone: {
    config: { model_type: 'llama', head_dim: 16, intermediate_size: 160, hidden_act: 'silu', rope_theta: 10000 },
    names: { ...NORMS, ...ATTENTION, ...DENSE },
    keys: { feed_forward_length: ['u32', 160], 'rope.freq_base': ['f32', 10000] },
  },
  qwen2vl: {
    config: { model_type: 'qwen2', intermediate_size: 160, hidden_act: 'silu', rope_theta: 10000 },
    names: { ...NORMS, ...ATTENTION, ...DENSE },
    keys: { feed_forward_length: ['u32', 160], 'rope.freq_base': ['f32', 10000], 'rope.dimension_sections': list('i32', [2, 3, 3, 0]) },
  },
  qwen3vl: {
    config: { model_type: 'qwen3', head_dim: 32, intermediate_size: 160, hidden_act: 'silu', rope_theta: 10000 },
    names: { ...NORMS, ...ATTENTION, ...DENSE, 'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm' },
    keys: { feed_forward_length: ['u32', 160], 'attention.key_length': ['u32', 32], 'rope.freq_base': ['f32', 10000], 'rope.dimension_sections': list('i32', [6, 5, 5, 0]),
      n_deepstack_layers: ['u32', 1] },
  },
  qwen3vlmoe: {
    config: { model_type: 'qwen3_moe', head_dim: 32, intermediate_size: 160, moe_intermediate_size: 32, num_experts: 4, num_experts_per_tok: 2, norm_topk_prob: true,
      decoder_sparse_step: 1, mlp_only_layers: [], hidden_act: 'silu', rope_theta: 10000 },
    names: { ...NORMS, ...ATTENTION, 'mlp.gate': 'ffn_gate_inp', 'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm' },
    keys: { feed_forward_length: ['u32', 160], 'attention.key_length': ['u32', 32], expert_count: ['u32', 4], expert_used_count: ['u32', 2], expert_feed_forward_length: ['u32', 32],
      'rope.freq_base': ['f32', 10000], 'rope.dimension_sections': list('i32', [6, 5, 5, 0]) },
    change({ tensors }) {
      const rest = tensors.filter(({ name }) => name);
      for (let layer = 0; layer < 2; layer++)
        for (const [name, dims] of [['gate', [64, 32, 4]], ['up', [64, 32, 4]], ['down', [32, 64, 4]]])
          rest.push({ name: `blk.${layer}.ffn_${name}_exps.weight`, dims, type: 0,
            data: Buffer.concat([0, 1, 2, 3].map((e) => tensors.find(({ hf }) => hf === `model.layers.${layer}.mlp.experts.${e}.${name}_proj.weight`).data)) });
      return rest;
    },
  },
  apertus: { // the activation's numbers are metadata
    config: { model_type: 'apertus', intermediate_size: 160, hidden_act: 'xielu', attention_bias: false, rope_parameters: { rope_type: 'default', rope_theta: 10000 } },
    names: { ...ATTENTION, attention_layernorm: 'attn_norm', feedforward_layernorm: 'ffn_norm', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down',
      'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm' },
    keys: { feed_forward_length: ['u32', 160], 'rope.freq_base': ['f32', 10000] },
    change({ tensors, metadata }) {
      for (const alpha of ['alpha_p', 'alpha_n']) metadata[`xielu.${alpha}`] = list('f32', tensors.filter(({ hf }) => hf.endsWith(alpha)).map(({ data }) => data.readFloatLE(0)));
      metadata['xielu.beta'] = ['f32', 0.5];
      metadata['xielu.eps'] = list('f32', [-1e-6, -9.98e-7]);
      return tensors.filter(({ name }) => name);
    },
  },
  qwen2moe: { // llama.cpp writes the shared expert's gate, a matrix of one row, as a vector; gate and up may be one tensor
    config: { model_type: 'qwen2_moe', intermediate_size: 160, moe_intermediate_size: 32, shared_expert_intermediate_size: 64, num_experts: 4, num_experts_per_tok: 2,
      norm_topk_prob: false, decoder_sparse_step: 1, mlp_only_layers: [], hidden_act: 'silu', rope_theta: 10000 },
    names: { ...NORMS, ...ATTENTION, 'mlp.gate': 'ffn_gate_inp', 'mlp.shared_expert_gate': 'ffn_gate_inp_shexp', 'mlp.shared_expert.gate_proj': 'ffn_gate_shexp',
      'mlp.shared_expert.up_proj': 'ffn_up_shexp', 'mlp.shared_expert.down_proj': 'ffn_down_shexp' },
    keys: { feed_forward_length: ['u32', 160], expert_count: ['u32', 4], expert_used_count: ['u32', 2], expert_feed_forward_length: ['u32', 32],
      expert_shared_feed_forward_length: ['u32', 64], 'rope.freq_base': ['f32', 10000] },
    change({ tensors }) {
      const rest = tensors.filter(({ name }) => name);
      for (const tensor of rest) if (tensor.name.includes('ffn_gate_inp_shexp')) tensor.dims = [64];
      const matrix = (layer, expert, name) => tensors.find(({ hf }) => hf === `model.layers.${layer}.mlp.experts.${expert}.${name}_proj.weight`).data;
      for (let layer = 0; layer < 2; layer++) {
        const all = (names) => Buffer.concat([0, 1, 2, 3].flatMap((expert) => names.map((name) => matrix(layer, expert, name))));
        rest.push({ name: `blk.${layer}.ffn_down_exps.weight`, dims: [32, 64, 4], type: 0, data: all(['down']) });
        if (layer === 0) rest.push({ name: 'blk.0.ffn_gate_up_exps.weight', dims: [64, 64, 4], type: 0, data: all(['gate', 'up']) });
        else for (const name of ['gate', 'up']) rest.push({ name: `blk.1.ffn_${name}_exps.weight`, dims: [64, 32, 4], type: 0, data: all([name]) });
      }
      return rest;
    },
  },
};

/** The tensors of a folder under the file's names; name is undefined of those that have none. */
function tensorsOf(folder, names) {
  const { header, data } = takeApart(path.join(folder, 'model.safetensors'));
  return Object.entries(header).filter(([hf]) => hf !== '__metadata__').sort().map(([hf, { dtype, shape, data_offsets: [from, to] }]) => {
    assert.equal(dtype, 'F32');
    const [, layer, stem, ending] = /^(?:model\.layers\.(\d+)\.)?(.+?)(\.weight|\.bias)?$/.exec(hf);
    const found = layer === undefined ? OUTER[stem] : names[stem] && `blk.${layer}.${names[stem]}`;
    return { hf, name: found && found + ending, dims: [...shape].reverse(), type: 0, data: data.subarray(from, to) };
  });
}

for (const [name, { config, names, keys, change }] of Object.entries(architectures))
  test(`${name}: a folder's model in a file`, async (t) => {
    const folder = temporaryFolder(t), file = path.join(folder, 'model.gguf'), shape = path.join(folder, 'shape.json');
    writeFileSync(shape, JSON.stringify({ ...common, ...config, torch_dtype: 'float32' }));
    const made = spawnSync(parley, ['synth', '--config', shape, '--dtype', 'f32', '--output', path.join(folder, 'hf')], { encoding: 'utf8' });
    assert.equal(made.status, 0, made.stderr);
    assert.equal(JSON.parse(readFileSync(path.join(folder, 'hf/config.json'))).model_type, config.model_type);
    const metadata = { 'general.architecture': ['text', name] };
    const all = { block_count: ['u32', 2], context_length: ['u32', 512], embedding_length: ['u32', 64], 'attention.head_count': ['u32', 4],
      'attention.head_count_kv': ['u32', 2], 'attention.layer_norm_rms_epsilon': ['f64', 1e-5], ...keys };
    for (const [key, value] of Object.entries(all)) metadata[`${name}.${key}`] = value;
    const contents = { metadata, tensors: tensorsOf(path.join(folder, 'hf'), names) };
    if (change) contents.tensors = change(contents);
    write(file, contents);
    const { rows, error } = logits(t, file);
    assert.equal(error, undefined);
    assert.ok(isSame(rows, logits(t, path.join(folder, 'hf')).rows));
    if (name !== 'apertus') return;
    metadata['xielu.beta'] = ['f32', 0.25];
    assert.match(logits(t, write(file, contents)).error, /'xielu\.beta' is 0\.25 for layer 0; known is 0\.5/);
    delete metadata['xielu.alpha_n'];
    assert.match(logits(t, write(file, contents)).error, /'xielu\.alpha_n' has no number for layer 0/);
  });
