// Folders of few bits in shapes and options that no fixture has: each is written here, beside the same values as floats, and both
// give the same logits. What would change a value is refused by name.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, parley, shortIf, shortTest as test, temporaryFolder } from './harness.mjs';
import { Random } from './random.mjs';
import { putTogether, readTensor, takeApart } from './safetensors.mjs';

const IDS = Array.from({ length: 24 }, (_, i) => 3 + i * 37 % 90).join(',');
const base = { model_type: 'llama', architectures: ['LlamaForCausalLM'], hidden_size: 256, intermediate_size: 320, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 2, head_dim: 40, max_position_embeddings: 256, rms_norm_eps: 1e-5, vocab_size: 96, bos_token_id: 0, eos_token_id: 1, hidden_act: 'silu',
  rope_theta: 10000, tie_word_embeddings: false, torch_dtype: 'float32' };

// --- numbers --------------------------------------------------------------------------------------------------------

const random = new Random(35), draw = (n) => random.below(n);
const view = new DataView(new ArrayBuffer(4));
const bf16 = (x) => { view.setFloat32(0, x); view.setUint16(2, 0); return view.getFloat32(0); };
const bf16Bytes = (values) => Buffer.from(Uint16Array.from(values, (x) => { view.setFloat32(0, x); return view.getUint16(0); }).buffer);
const f32Bytes = (values) => Buffer.from(Float32Array.from(values).buffer);
/** A normal half: 2^(e - 15) (1 + m / 1024). */
const half = () => { const e = 7 + draw(2), m = draw(1024); return { value: 2 ** (e - 15) * (1 + m / 1024), bits: e << 10 | m }; };
const e4m3 = (b) => (b & 128 ? -1 : 1) * (b >> 3 & 15 ? 2 ** ((b >> 3 & 15) - 7) * (1 + (b & 7) / 8) : (b & 7) * 2 ** -9);
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];
const e2m1 = (c) => (c & 8 ? -1 : 1) * E2M1[c & 7];
/** Packs codes of b bits, `length` a line, into words. */
function words(codes, b, length) {
  const per = 32 / b, lines = codes.length / length, width = Math.ceil(length / per), out = new Uint32Array(lines * width);
  codes.forEach((code, i) => { out[Math.floor(i / length) * width + Math.floor(i % length / per)] |= code << (i % length % per * b); });
  return { bytes: Buffer.from(out.buffer), width };
}
const grid = (n, f) => Array.from({ length: n }, (_, i) => f(i));
const turned = (a, rows, cols) => grid(a.length, (i) => a[i % rows * cols + Math.floor(i / rows)]);

// --- formats: (rows, columns) to the tensors of a matrix, by the end of their names, and its values ------------------------------

/** GPTQ: words of inputs, scales and zeros by group; order: which group an input has. */
const gptq = ({ bits = 4, group, v2 = false, order = (k) => Math.floor(k / group) }) => (N, K) => {
  const G = Math.ceil(K / group), most = 2 ** bits, s = grid(G * N, half), z = grid(G * N, () => 1 + draw(most - 1)), q = grid(K * N, () => draw(most)), g = grid(K, (k) => order(k, K));
  const plus = bits === 8 ? 1 / 16 : 1; // so that both widths have weights of one size
  s.forEach((x) => { if (plus < 1) { x.bits -= 4 << 10; x.value /= 16; } });
  return { values: grid(N * K, (i) => { const n = Math.floor(i / K), k = i % K; return (q[k * N + n] - z[g[k] * N + n]) * s[g[k] * N + n].value; }),
    parts: { qweight: ['I32', [K * bits / 32, N], Buffer.from(Uint32Array.from(grid(K * bits / 32 * N, (i) => {
      const per = 32 / bits, row = Math.floor(i / N); let w = 0;
      for (let j = 0; j < per; j++) w |= q[(row * per + j) * N + i % N] << (j * bits);
      return w >>> 0;
    })).buffer)], qzeros: ['I32', [G, N * bits / 32], words(z.map((x) => v2 ? x : x - 1), bits, N).bytes],
    scales: ['F16', [G, N], Buffer.from(Uint16Array.from(s, (x) => x.bits).buffer)], g_idx: ['I32', [K], Buffer.from(Int32Array.from(g).buffer)] } };
};

const awq = ({ group, zeros = true }) => (N, K) => {
  const G = K / group, s = grid(G * N, half), z = grid(G * N, () => zeros ? draw(16) : 8), q = grid(K * N, () => draw(16)), place = [0, 2, 4, 6, 1, 3, 5, 7];
  const ordered = (a) => words(grid(a.length, (i) => a[i - i % 8 + place[i % 8]]), 4, N).bytes;
  const parts = { qweight: ['I32', [K, N / 8], ordered(q)], scales: ['F16', [G, N], Buffer.from(Uint16Array.from(s, (x) => x.bits).buffer)] };
  if (zeros) parts.qzeros = ['I32', [G, N / 8], ordered(z)];
  return { parts, values: grid(N * K, (i) => { const n = Math.floor(i / K), k = i % K, g = Math.floor(k / group); return (q[k * N + n] - z[g * N + n]) * s[g * N + n].value; }) };
};

/** compressed-tensors' pack-quantized; group 0: one scale a row. */
const packed = ({ bits = 4, group = 0, zeros = false, order }) => (N, K) => {
  const size = group || K, G = K / size, zero = 2 ** (bits - 1), s = grid(N * G, () => bf16(half().value * (bits === 8 ? 1 / 16 : 1)));
  const z = grid(N * G, () => zeros ? draw(2 * zero) : zero), q = grid(N * K, () => draw(2 * zero)), g = grid(K, (k) => order ? order(k, G) : Math.floor(k / size));
  const parts = { weight_packed: ['I32', [N, Math.ceil(K * bits / 32)], words(q, bits, K).bytes], weight_scale: ['BF16', [N, G], bf16Bytes(s)],
    weight_shape: ['I64', [2], Buffer.from(BigInt64Array.of(BigInt(N), BigInt(K)).buffer)] };
  if (zeros) { const w = words(turned(z, N, G), bits, N); parts.weight_zero_point = ['I32', [w.width, G], Buffer.from(Uint32Array.from(turned([...new Uint32Array(w.bytes.buffer)], G, w.width)).buffer)]; }
  if (order) parts.weight_g_idx = ['I32', [K], Buffer.from(Int32Array.from(g).buffer)];
  return { parts, values: grid(N * K, (i) => { const n = Math.floor(i / K), at = n * G + g[i % K]; return (q[i] - z[at]) * s[at]; }) };
};

/** int-quantized: a byte a value; `zeros`: asymmetric. */
const bytes = ({ zeros = false, group = 0 } = {}) => (N, K) => {
  const size = group || K, G = K / size, s = grid(N * G, () => bf16(half().value / 16)), z = grid(N * G, () => zeros ? draw(64) - 32 : 0), q = Int8Array.from(grid(N * K, () => draw(255) - 127));
  const parts = { weight: ['I8', [N, K], Buffer.from(q.buffer)], weight_scale: ['BF16', [N, G], bf16Bytes(s)] };
  if (zeros) parts.weight_zero_point = ['I8', [N, G], Buffer.from(Int8Array.from(z).buffer)];
  return { parts, values: grid(N * K, (i) => { const at = Math.floor(i / K) * G + Math.floor(i % K / size); return (q[i] - z[at]) * s[at]; }) };
};

/** e4m3 with a scale a row, for all, or for each 128 x 128. */
const fp8 = ({ strategy, name = 'weight_scale', type = 'F32' }) => (N, K) => {
  const [rows, cols] = { channel: [1, K], tensor: [N, K], block: [128, 128] }[strategy], R = Math.ceil(N / rows), C = Math.ceil(K / cols);
  const s = grid(R * C, () => bf16(half().value)), q = Uint8Array.from(grid(N * K, () => draw(2) << 7 | draw(0x48)));
  const shape = strategy === 'tensor' ? [1] : [R, C];
  return { parts: { weight: ['F8_E4M3', [N, K], Buffer.from(q.buffer)], [name]: [type, shape, type === 'F32' ? f32Bytes(s) : bf16Bytes(s)] },
    values: grid(N * K, (i) => e4m3(q[i]) * s[Math.floor(Math.floor(i / K) / rows) * C + Math.floor(i % K / cols)]) };
};

const fp4 = ({ group, global }) => (N, K) => {
  const G = K / group, q = grid(N * K, () => draw(16)), isNv = group === 16, s = Uint8Array.from(grid(N * G, () => isNv ? 0x28 + draw(0x20) : 122 + draw(3)));
  const by = isNv ? Math.fround(global === 'divided' ? 20.5 : 1 / 19) : 1, scale = (i) => isNv ? (global === 'divided' ? e4m3(s[i]) / by : e4m3(s[i]) * by) : 2 ** (s[i] - 127);
  const two = Buffer.from(Uint8Array.from(grid(N * K / 2, (i) => q[2 * i] | q[2 * i + 1] << 4)).buffer), codes = global === 'times' ? 'weight' : 'weight_packed';
  const parts = { [codes]: ['U8', [N, K / 2], two], weight_scale: [isNv ? 'F8_E4M3' : 'U8', [N, G], Buffer.from(s.buffer)] };
  if (isNv) parts[global === 'divided' ? 'weight_global_scale' : 'weight_scale_2'] = ['F32', global === 'divided' ? [1] : [], f32Bytes([by])];
  return { parts, values: grid(N * K, (i) => e2m1(q[i]) * scale(Math.floor(i / K) * G + Math.floor(i % K / group))) };
};

/** e4m3 with a scale e8m0 for 32 columns. */
const mxfp8 = (N, K) => {
  const G = K / 32, q = Uint8Array.from(grid(N * K, () => draw(2) << 7 | draw(0x48))), s = Uint8Array.from(grid(N * G, () => 121 + draw(3)));
  return { parts: { weight: ['F8_E4M3', [N, K], Buffer.from(q.buffer)], weight_scale: ['U8', [N, G], Buffer.from(s.buffer)] },
    values: grid(N * K, (i) => e4m3(q[i]) * 2 ** (s[Math.floor(i / K) * G + Math.floor(i % K / 32)] - 127)) };
};

/** To the nearest number with `bits` bits less behind the point than F32 has. */
const shorter = (x, bits) => { view.setFloat32(0, x); const b = view.getUint32(0), half = 2 ** (bits - 1); view.setUint32(0, (b + half - 1 + (b >>> bits & 1)) >>> bits << bits); return view.getFloat32(0); };
const ROUND = { bfloat16: (x) => shorter(x, 16), float16: (x) => shorter(x, 13), float32: Math.fround };
const NF4 = [-1, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0, 0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1];
const HALF = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], FP4 = HALF.concat(HALF.map((x) => -x));

/** bitsandbytes' 4 bits: blocks of values in the matrix's order, whatever rows they cross. nested: scales in 8 bits. */
const bnb4 = ({ type = 'nf4', block = 64, dtype = 'float32', nested = 0, storage = 'U8' } = {}) => (N, K) => {
  const n = N * K, B = Math.ceil(n / block), map = (type === 'nf4' ? NF4 : FP4).map(Math.fround), q = grid(n, () => draw(16));
  const codes = Uint8Array.from(grid(Math.ceil(n / 2), (i) => q[2 * i] << 4 | (q[2 * i + 1] ?? 0)));
  const state = { quant_type: type, blocksize: block, dtype, shape: [N, K] }, parts = { 'weight.quant_map': ['F32', [16], f32Bytes(map)] };
  let absmax = grid(B, () => Math.fround(half().value / 8));
  if (!nested) parts['weight.absmax'] = ['F32', [B], f32Bytes(absmax)];
  else {
    const offset = 0.0234375, numbers = grid(256, (i) => Math.fround((i - 127) / 128)), outer = grid(Math.ceil(B / nested), () => Math.fround(0.01 + draw(10) / 1000)), bytes = Uint8Array.from(grid(B, () => draw(256)));
    absmax = grid(B, (i) => Math.fround(Math.fround(numbers[bytes[i]] * outer[Math.floor(i / nested)]) + offset));
    Object.assign(state, { nested_blocksize: nested, nested_dtype: 'float32', nested_offset: offset });
    Object.assign(parts, { 'weight.absmax': ['U8', [B], Buffer.from(bytes)], 'weight.nested_absmax': ['F32', [outer.length], f32Bytes(outer)], 'weight.nested_quant_map': ['F32', [256], f32Bytes(numbers)] });
  }
  const text = Buffer.from(JSON.stringify(state)), wide = storage === 'U8' ? 1 : 2;
  parts.weight = [storage, [codes.length / wide, 1], Buffer.from(codes)];
  parts[`weight.quant_state.bitsandbytes__${type}`] = ['U8', [text.length], text];
  return { parts, values: q.map((c, i) => ROUND[dtype](Math.fround(map[c] * absmax[Math.floor(i / block)]))) };
};

/** bitsandbytes' LLM.int8(): a byte a value, and 127 times each row's scale. */
const bnb8 = (N, K) => {
  const s = grid(N, () => Math.fround(half().value * 8)), q = Int8Array.from(grid(N * K, () => draw(255) - 127));
  return { parts: { weight: ['I8', [N, K], Buffer.from(q.buffer)], SCB: ['F32', [N], f32Bytes(s)], weight_format: ['U8', [], Buffer.from([0])] },
    values: grid(N * K, (i) => q[i] * s[Math.floor(i / K)] / 127) };
};

// --- folders --------------------------------------------------------------------------------------------------------

const run = (...args) => spawnSync(parley, args, { encoding: 'utf8' });

/** A random model in floats: its tensors. */
function floats(t, config) {
  const folder = temporaryFolder(t), shape = path.join(folder, 'shape.json');
  writeFileSync(shape, JSON.stringify(config));
  const { status, stderr } = run('synth', '--config', shape, '--dtype', 'f32', '--output', path.join(folder, 'hf'));
  assert.equal(status, 0, stderr);
  const { header, data } = takeApart(path.join(folder, 'hf/model.safetensors'));
  return Object.entries(header).filter(([name]) => name !== '__metadata__').map(([name, { dtype, shape: dims, data_offsets: [from, to] }]) => [name, dtype, dims, data.subarray(from, to)]);
}

function writeFolder(folder, config, tensors) {
  const header = {};
  let at = 0;
  for (const [name, dtype, shape, data] of tensors) { header[name] = { dtype, shape, data_offsets: [at, at + data.length] }; at += data.length; }
  mkdirSync(folder);
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(config));
  putTogether(path.join(folder, 'model.safetensors'), header, Buffer.concat(tensors.map(([, , , data]) => data)));
  return folder;
}

function logits(folder) {
  const file = path.join(folder, 'logits.safetensors');
  const { status, stderr } = run('score', '--model', folder, '--ids', IDS, '--logits', file, '--device', 'cpu', '--compute-dtype', 'f32', '--threads', '1');
  return status === 0 ? { rows: readTensor(file, 'logits').data } : { error: stderr };
}

function pair(t, { config = {}, q, choose, tidy = (tensors) => tensors }) {
  const all = { ...base, ...config }, folder = temporaryFolder(t), plain = [], few = [];
  for (const tensor of floats(t, all)) {
    const [name, , [N, K]] = tensor, stem = name.replace(/\.weight$/, ''), format = K && choose(stem);
    if (!format) { plain.push(tensor); few.push(tensor); continue; }
    const made = format(N, K);
    plain.push([name, 'F32', [N, K], f32Bytes(made.values)]);
    for (const [part, rest] of Object.entries(made.parts)) few.push([`${stem}.${part}`, ...rest]);
  }
  return { plain: writeFolder(path.join(folder, 'plain'), all, plain), few: writeFolder(path.join(folder, 'few'), { ...all, ...q }, tidy(few)) };
}

const inLayers = (format) => (stem) => /layers.*_proj$/.test(stem) && format;
const ct = (format, groups, more) => ({ quantization_config: { quant_method: 'compressed-tensors', format, quantization_status: 'compressed', config_groups: groups, ignore: ['lm_head'], ...more } });
const ints = (weights) => ({ group_0: { targets: ['Linear'], weights: { num_bits: 4, type: 'int', symmetric: true, dynamic: false, ...weights } } });
const gptqConfig = (bits, group_size, more) => ({ quantization_config: { quant_method: 'gptq', bits, group_size, desc_act: false, sym: false, ...more } });
const awqConfig = (group_size, more) => ({ quantization_config: { quant_method: 'awq', bits: 4, group_size, version: 'gemm', zero_point: true, ...more } });
const bnbConfig = (more) => ({ quantization_config: { quant_method: 'bitsandbytes', _load_in_4bit: true, load_in_4bit: true, load_in_8bit: false, bnb_4bit_quant_type: 'nf4', bnb_4bit_quant_storage: 'uint8', llm_int8_skip_modules: ['lm_head'], ...more } });
const scattered = (k, G) => (k * 7 + (k >> 3)) % G;
const mixed = (stem) => /layers\.0\..*(q|k|v)_proj$/.test(stem) ? packed({ bits: 8, group: 64 }) : /layers\.0\.mlp\.down_proj$/.test(stem) ? fp4({ group: 16, global: 'divided' })
  : /layers\.1\.mlp\.(gate|up)_proj$/.test(stem) ? fp8({ strategy: 'channel', type: 'BF16' }) : /layers\.1\.self_attn\.o_proj$/.test(stem) && packed({ group: 32, zeros: true });
const experts = { model_type: 'qwen3_moe', architectures: ['Qwen3MoeForCausalLM'], num_experts: 4, num_experts_per_tok: 3, moe_intermediate_size: 128, norm_topk_prob: true };
const odd = { intermediate_size: 333 }; // rows of gate and up: neither even nor a multiple of anything

const forms = {
  'AWQ, groups of 32': { q: awqConfig(32), choose: inLayers(awq({ group: 32 })) },
  'AWQ, groups of 64, some modules not converted': { q: awqConfig(64, { modules_to_not_convert: ['self_attn.k_proj', 'model.layers.1.mlp'] }),
    choose: (stem) => !/(k|o)_proj|layers\.1\.mlp/.test(stem) && inLayers(awq({ group: 64 }))(stem) },
  'AWQ without zero points': { q: awqConfig(32, { zero_point: false }), choose: inLayers(awq({ group: 32, zeros: false })) },
  'GPTQ, groups of 32, acts in order': { q: gptqConfig(4, 32, { desc_act: true }), choose: inLayers(gptq({ group: 32, order: (k, K) => scattered(k, K / 32) })) },
  'GPTQ, groups of 16 in 8 bits, version 2': { q: gptqConfig(8, 16, { checkpoint_format: 'gptq_v2' }), choose: inLayers(gptq({ bits: 8, group: 16, v2: true })) },
  'GPTQ in 8 bits, acts in order': { q: gptqConfig(8, 64, { desc_act: true }), choose: inLayers(gptq({ bits: 8, group: 64, order: (k, K) => scattered(k, Math.ceil(K / 64)) })) },
  'GPTQ, last group not whole': { q: gptqConfig(4, 128), choose: inLayers(gptq({ group: 128 })) },
  'GPTQ, one group': { q: gptqConfig(4, -1), choose: (stem) => /layers.*(q|k|v|gate|up)_proj$/.test(stem) && gptq({ group: 256 }) },
  'integers of 4 bits, groups of 32': { q: ct('pack-quantized', ints({ strategy: 'group', group_size: 32 })), choose: inLayers(packed({ group: 32 })) },
  'integers of 4 bits, groups of 64, asymmetric': { q: ct('pack-quantized', ints({ strategy: 'group', group_size: 64, symmetric: false })), choose: (stem) => !/o_proj/.test(stem) && inLayers(packed({ group: 64, zeros: true }))(stem) },
  'integers of 4 bits by channel, asymmetric': { q: ct('pack-quantized', ints({ strategy: 'channel', symmetric: false })), choose: inLayers(packed({ zeros: true })) },
  'integers of 8 bits by channel': { q: ct('pack-quantized', ints({ num_bits: 8, strategy: 'channel' })), choose: inLayers(packed({ bits: 8 })) },
  'integers of 8 bits, groups of 32, asymmetric': { q: ct('pack-quantized', ints({ num_bits: 8, strategy: 'group', group_size: 32, symmetric: false })), choose: inLayers(packed({ bits: 8, group: 32, zeros: true })) },
  'integers of 4 bits, acts in order': { q: ct('pack-quantized', ints({ strategy: 'group', group_size: 32, actorder: 'group' })), choose: inLayers(packed({ group: 32, order: scattered })) },
  'integers of 4 bits, odd rows, asymmetric': { config: odd, q: ct('pack-quantized', ints({ strategy: 'group', group_size: 32, symmetric: false })), choose: (stem) => /(gate|up)_proj$/.test(stem) && packed({ group: 32, zeros: true }) },
  'integers of 4 bits, columns that no word fills': { config: odd, q: ct('pack-quantized', ints({ strategy: 'channel' })), choose: (stem) => /down_proj$/.test(stem) && packed({}) },
  'bytes by channel, odd rows': { config: odd, q: ct('int-quantized', ints({ num_bits: 8, strategy: 'channel' })), choose: inLayers(bytes()) },
  'bytes in groups of 32': { q: ct('int-quantized', ints({ num_bits: 8, strategy: 'group', group_size: 32 })), choose: inLayers(bytes({ group: 32 })) },
  'bytes with zero points': { q: ct('int-quantized', ints({ num_bits: 8, strategy: 'channel', symmetric: false })), choose: inLayers(bytes({ zeros: true })) },
  'fp8 blocks, rows and columns that 128 does not divide': { config: odd, q: { quantization_config: { quant_method: 'fp8', weight_block_size: [128, 128], fmt: 'e4m3', activation_scheme: 'dynamic' } },
    choose: inLayers(fp8({ strategy: 'block', name: 'weight_scale_inv', type: 'BF16' })) },
  'fp8 blocks of compressed-tensors': { config: odd, q: ct('float-quantized', { group_0: { targets: ['Linear'], weights: { num_bits: 8, type: 'float', strategy: 'block', block_structure: [128, 128], symmetric: true, dynamic: false } } }),
    choose: inLayers(fp8({ strategy: 'block', type: 'BF16' })) },
  'fp8 by tensor, odd rows': { config: odd, q: ct('float-quantized', { group_0: { targets: ['Linear'], weights: { num_bits: 8, type: 'float', strategy: 'tensor', symmetric: true, dynamic: false } } }), choose: inLayers(fp8({ strategy: 'tensor' })) },
  'NVFP4, odd rows': { config: odd, q: ct('nvfp4-pack-quantized', ints({ type: 'float', strategy: 'tensor_group', group_size: 16 })), choose: (stem) => /(q|o|gate|up)_proj$/.test(stem) && fp4({ group: 16, global: 'divided' }) },
  'NVFP4 of ModelOpt, odd rows': { config: odd, q: { quantization_config: { quant_method: 'modelopt', quant_algo: 'NVFP4', exclude_modules: ['lm_head', '*down_proj'] } }, choose: (stem) => /(q|o|gate|up)_proj$/.test(stem) && fp4({ group: 16, global: 'times' }) },
  'FP8 of ModelOpt, odd rows': { config: odd, q: { quantization_config: { quant_method: 'modelopt', quant_algo: 'FP8', exclude_modules: ['lm_head'] } }, choose: inLayers(fp8({ strategy: 'tensor' })) },
  'MXFP4, odd rows': { config: odd, q: ct('mxfp4-pack-quantized', ints({ type: 'float', strategy: 'group', group_size: 32 })), choose: (stem) => /(q|o|gate|up)_proj$/.test(stem) && fp4({ group: 32 }) },
  'MXFP8': { q: ct('mxfp8-quantized', ints({ num_bits: 8, type: 'float', strategy: 'group', group_size: 32, scale_dtype: 'torch.uint8' })), choose: inLayers(mxfp8) },
  'bitsandbytes nf4 with double quantisation, to bf16': { q: bnbConfig({ bnb_4bit_use_double_quant: true }), choose: inLayers(bnb4({ dtype: 'bfloat16', nested: 256 })) },
  'bitsandbytes nf4, blocks over rows, to f16': { config: odd, q: bnbConfig(), choose: inLayers(bnb4({ dtype: 'float16' })) },
  'bitsandbytes fp4 in blocks of 128': { q: bnbConfig({ bnb_4bit_quant_type: 'fp4' }), choose: inLayers(bnb4({ type: 'fp4', block: 128 })) },
  'bitsandbytes nf4 stored as bf16 numbers, some layers skipped': { q: bnbConfig({ bnb_4bit_quant_storage: 'bfloat16' }), choose: (stem) => !/layers.1.mlp/.test(stem) && inLayers(bnb4({ storage: 'BF16', dtype: 'bfloat16', nested: 64 }))(stem) },
  'bitsandbytes in 8 bits, odd rows': { config: odd, q: bnbConfig({ load_in_4bit: false, _load_in_4bit: false, load_in_8bit: true }), choose: inLayers(bnb8) },
  'bitsandbytes without its name': { q: { quantization_config: { load_in_4bit: true, bnb_4bit_quant_type: 'nf4' } }, choose: inLayers(bnb4({ nested: 256 })) },
  'several groups by regular expressions, and an ignore list': { q: ct('mixed-precision', {
    a: { targets: ['re:.*layers\\.0\\..*(q|k|v)_proj$'], format: 'pack-quantized', weights: { num_bits: 8, type: 'int', strategy: 'group', group_size: 64 } },
    b: { targets: ['model.layers.0.mlp.down_proj'], format: 'nvfp4-pack-quantized', weights: { num_bits: 4, type: 'float', strategy: 'tensor_group', group_size: 16 } },
    c: { targets: ['re:.*layers\\.1\\.mlp\\.(gate|up)_proj'], format: 'float-quantized', weights: { num_bits: 8, type: 'float', strategy: 'channel' } },
    d: { targets: ['re:.*o_proj'], format: 'pack-quantized', weights: { num_bits: 4, type: 'int', symmetric: false, strategy: 'group', group_size: 32 } },
  }, { ignore: ['lm_head', 're:.*layers\\.0\\.self_attn\\.o_proj', 're:.*layers\\.1\\.self_attn\\.(q|k|v)_proj'] }), choose: mixed },
  'an embedding and a head of 4 bits': { q: ct('pack-quantized', ints({ strategy: 'group', group_size: 32 }), { ignore: [] }), choose: (stem) => /_proj$|lm_head|embed_tokens/.test(stem) && packed({ group: 32 }) },
  'a tied embedding of 8 bits': { config: { tie_word_embeddings: true }, q: ct('pack-quantized', ints({ num_bits: 8, strategy: 'channel' }), { ignore: [] }), choose: (stem) => /_proj$|embed_tokens/.test(stem) && packed({ bits: 8 }) },
  'an expert that was not converted, and one in 8 bits': { config: experts, q: ct('mixed-precision', { a: { targets: ['re:.*experts\\.1\\..*'], format: 'pack-quantized', weights: { num_bits: 8, type: 'int', strategy: 'group', group_size: 64 } },
    b: { targets: ['Linear'], format: 'pack-quantized', weights: { num_bits: 4, type: 'int', strategy: 'group', group_size: 32 } } }, { ignore: ['lm_head', 're:.*mlp\\.gate$', 're:.*experts\\.0\\..*'] }),
  choose: (stem) => !/experts\.0/.test(stem) && (/experts\.1/.test(stem) ? packed({ bits: 8, group: 64 }) : inLayers(packed({ group: 32 }))(stem)) },
  'experts whose gate was not converted': { config: experts, q: ct('pack-quantized', ints({ strategy: 'group', group_size: 32 }), { ignore: ['lm_head', 're:.*gate$', 're:.*gate_proj$'] }),
    choose: (stem) => !/gate_proj/.test(stem) && inLayers(packed({ group: 32 }))(stem) },
  'fp8 by channel, keys and an up not converted': { q: ct('float-quantized', { group_0: { targets: ['Linear'], weights: { num_bits: 8, type: 'float', strategy: 'channel', symmetric: true, dynamic: false } } },
    { ignore: ['lm_head', 're:.*k_proj$', 're:.*1\\.mlp\\.up_proj$'] }), choose: (stem) => !/k_proj|1\.mlp\.up_proj/.test(stem) && inLayers(fp8({ strategy: 'channel' }))(stem) },
  'fp8 blocks, an expert not converted': { config: experts, q: { quantization_config: { quant_method: 'fp8', weight_block_size: [128, 128], fmt: 'e4m3', activation_scheme: 'dynamic', modules_to_not_convert: ['model.layers.1.mlp.experts.2'] } },
    choose: (stem) => !/1\.mlp\.experts\.2/.test(stem) && inLayers(fp8({ strategy: 'block', name: 'weight_scale_inv' }))(stem) },
  'the older name of the settings': { q: { compression_config: ct('pack-quantized', ints({ strategy: 'group', group_size: 32 })).quantization_config }, choose: inLayers(packed({ group: 32 })) },
};

/** One of each family of formats: `make test` has these. */
const SHORT = ['AWQ, groups of 32', 'GPTQ, groups of 32, acts in order', 'integers of 4 bits, groups of 64, asymmetric', 'fp8 blocks, rows and columns that 128 does not divide', 'NVFP4, odd rows', 'bitsandbytes nf4, blocks over rows, to f16', 'an expert that was not converted, and one in 8 bits'];
for (const [name, form] of Object.entries(forms))
  shortIf(SHORT.includes(name))(`few bits: ${name}`, (t) => {
    const { plain, few } = pair(t, form), a = logits(plain), b = logits(few);
    assert.equal(a.error, undefined);
    assert.equal(b.error, undefined);
    const mean = a.rows.reduce((sum, x) => sum + x, 0) / a.rows.length, spread = Math.sqrt(a.rows.reduce((sum, x) => sum + (x - mean) ** 2, 0) / a.rows.length);
    const largest = a.rows.reduce((most, x, i) => Math.max(most, Math.abs(x - b.rows[i])), 0);
    assert.ok(spread > 0 && largest <= 2e-3 * spread, `${largest / spread} of the spread`);
  });

// --- refused --------------------------------------------------------------------------------------------------------

const change = (part, f) => (tensors) => tensors.map((tensor) => tensor[0].endsWith(part) ? f([...tensor]) : tensor);
const fill = (data, bytes) => { const out = Buffer.from(data); for (let i = 0; i < out.length; i++) out[i] = bytes[i % bytes.length]; return out; };
const filled = (part, bytes) => change(part, (tensor) => { tensor[3] = fill(tensor[3], bytes); return tensor; });
const shaped = (part, shape, bytes) => change(part, (tensor) => { tensor[2] = shape; tensor[3] = tensor[3].subarray(0, bytes); return tensor; });
const down = '0.mlp.down_proj', q4 = forms['integers of 4 bits, groups of 32'], nf4 = forms['bitsandbytes nf4 with double quantisation, to bf16'], zero4 = forms['integers of 4 bits, groups of 64, asymmetric'], ordered = forms['GPTQ, groups of 32, acts in order'];
const refused = [
  [q4, filled(`${down}.weight_scale`, [0xc0, 0x7f]), /down_proj\.weight_scale' holds a scale that is infinite or no number/],
  [q4, shaped(`${down}.weight_scale`, [256, 0], 0), /down_proj\.weight': .*(impossible shape|another shape)/],
  [q4, shaped(`${down}.weight_scale`, [128, 10], 128 * 10 * 2), /down_proj\.weight': its scales have another shape/],
  [q4, (tensors) => tensors.filter(([name]) => !name.endsWith(`${down}.weight_scale`)), /down_proj\.weight': it has no scales/],
  [q4, (tensors) => tensors.filter(([name]) => !name.endsWith(`${down}.weight_shape`)), /down_proj\.weight': it has no weight_shape/],
  [q4, filled(`${down}.weight_shape`, [0xff]), /down_proj\.weight': weight_shape does not fit/],
  [zero4, shaped(`${down}.weight_zero_point`, [16, 5], 16 * 5 * 4), /down_proj\.weight': weight_zero_point has another shape/],
  [ordered, filled(`${down}.g_idx`, [0xff]), /down_proj\.g_idx' names group -1 of 10/],
  [ordered, filled(`${down}.g_idx`, [10, 0, 0, 0]), /down_proj\.g_idx' names group 10 of 10/],
  [ordered, shaped(`${down}.qzeros`, [9, 32], 9 * 32 * 4), /down_proj\.weight': qzeros have another shape/],
  [forms['bytes with zero points'], shaped(`${down}.weight_zero_point`, [16, 1], 16), /down_proj\.weight': weight_zero_point has another shape or type/],
  [forms['NVFP4 of ModelOpt, odd rows'], filled('0.mlp.up_proj.weight_scale_2', [0, 0, 0x80, 0x7f]), /up_proj\.weight_scale_2' is inf/],
  [forms['NVFP4, odd rows'], filled('0.mlp.up_proj.weight_global_scale', [0]), /up_proj\.weight_global_scale' is 0/],
  [forms['MXFP4, odd rows'], filled('0.mlp.up_proj.weight_scale', [0xff]), /up_proj\.weight_scale' holds a scale that is infinite/],
  [nf4, (tensors) => tensors.filter(([name]) => !name.endsWith(`${down}.weight.absmax`)), /down_proj\.weight': its absmax has another shape or type/],
  [nf4, (tensors) => tensors.filter(([name]) => !name.endsWith(`${down}.weight.quant_state.bitsandbytes__nf4`)), /down_proj\.weight': it has no quant_state of nf4 or fp4/],
  [nf4, (tensors) => tensors.filter(([name]) => !name.endsWith(`${down}.weight.nested_absmax`)), /down_proj\.weight': its nested_absmax has another shape or type/],
  [nf4, filled(`${down}.weight.quant_map`, [0, 0, 0xc0, 0x7f]), /down_proj\.weight\.quant_map' holds a number that is infinite or none/],
  [nf4, filled(`${down}.weight.quant_state.bitsandbytes__nf4`, [0x7b]), /down_proj\.weight': its quant_state is no JSON object/],
  [nf4, shaped(`${down}.weight`, [128, 1], 128), /down_proj\.weight': its codes do not fill the shape of its quant_state/],
  [forms['bitsandbytes in 8 bits, odd rows'], filled(`${down}.weight_format`, [1]), /down_proj\.weight': its weight_format is not 0, rows/],
  [{ ...nf4, q: bnbConfig({ bnb_4bit_quant_type: 'nf3' }) }, (tensors) => tensors, /nf3; known are the types nf4 and fp4/],
  [{ ...ordered, q: gptqConfig(3, 32) }, (tensors) => tensors, /other than 4 or 8 bits; known are 4 and 8/],
  [{ ...q4, q: awqConfig(32, { version: 'gemv' }) }, (tensors) => tensors, /gemv; known is version gemm/],
  [{ ...q4, q: ct('marlin-24', ints({})) }, (tensors) => tensors, /marlin-24; known are/],
];

longTest('few bits: parts that do not fit together are named', (t) => {
  for (const [form, tidy, says] of refused) assert.match(logits(pair(t, { ...form, tidy }).few).error ?? 'it loads', says);
});

test('few bits: a file that ends early is named', (t) => {
  const { few } = pair(t, q4), file = path.join(few, 'model.safetensors'), whole = readFileSync(file);
  for (const length of [0, 7, 8, 200, whole.length >> 1, whole.length - 1]) {
    writeFileSync(file, whole.subarray(0, length));
    assert.match(logits(few).error ?? 'it loads', /model\.safetensors/);
  }
});
