// A Llama-architecture Hugging Face folder as GGUF for llama.cpp, so that both engines read the same weights: matrices in
// bf16, vectors in f32. One tensor at a time goes through memory, in pieces.
// usage: node gguf.mjs MODEL_DIR OUT.gguf
//
// Two things differ from a plain copy. llama.cpp turns neighbouring elements of q and k (x0,x1), (x2,x3).. where Hugging
// Face turns halves (x0,xn/2), (x1,xn/2+1)..: the rows of q and k inside each head change places. And Llama 3's stretched
// rotary frequencies are a tensor of divisors, rope_freqs.
// Layout of the file: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
import { closeSync, existsSync, openSync, readFileSync, readSync, readdirSync, renameSync, writeSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, INT32 = 5; // types of metadata values
const TENSOR_F32 = 0, TENSOR_BF16 = 30, FILE_BF16 = 32;
const ALIGNMENT = 32, PIECE = 16 << 20;

// --- reading: the folder's tensors, by name ---------------------------------------------------------------------

function tensorsOf(folder) {
  const tensors = new Map();
  for (const name of readdirSync(folder).filter((file) => file.endsWith('.safetensors')).sort()) {
    const file = openSync(path.join(folder, name));
    const size = Buffer.alloc(8);
    readSync(file, size, 0, 8, 0);
    const header = Buffer.alloc(Number(size.readBigUInt64LE()));
    readSync(file, header, 0, header.length, 8);
    for (const [key, { dtype, shape, data_offsets: range }] of Object.entries(JSON.parse(header)))
      if (key !== '__metadata__') tensors.set(key, { file, dtype, shape, at: 8 + header.length + range[0], bytes: range[1] - range[0] });
  }
  return tensors;
}

function read(tensor, from, length) {
  const bytes = Buffer.alloc(length);
  if (readSync(tensor.file, bytes, 0, length, tensor.at + from) !== length) throw new Error('a safetensors file is shorter than its header says');
  return bytes;
}

// --- numbers ----------------------------------------------------------------------------------------------------

const ELEMENT = { BF16: 2, F16: 2, F32: 4 };
const view = (bytes, Type) => new Type(bytes.buffer, bytes.byteOffset, bytes.length / Type.BYTES_PER_ELEMENT);

function halfToFloat(h) {
  const sign = h & 0x8000 ? -1 : 1, exponent = (h >> 10) & 31, mantissa = h & 1023;
  if (exponent === 31) return mantissa ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + mantissa / 1024) * 2 ** (exponent - 15) : (mantissa / 1024) * 2 ** -14);
}

function toFloats(bytes, dtype) {
  if (dtype === 'F32') return view(bytes, Float32Array);
  const halves = view(bytes, Uint16Array);
  if (dtype === 'F16') return Float32Array.from(halves, halfToFloat);
  const bits = Uint32Array.from(halves, (half) => half << 16);
  return view(Buffer.from(bits.buffer), Float32Array);
}

function toBf16(bytes, dtype) { // rounds to nearest, ties to even
  if (dtype === 'BF16') return bytes;
  const bits = view(Buffer.from(toFloats(bytes, dtype).buffer), Uint32Array);
  return Buffer.from(Uint16Array.from(bits, (u) => (u + 0x7fff + ((u >>> 16) & 1)) >>> 16).buffer);
}

// --- names, shapes, order of rows -------------------------------------------------------------------------------

const LAYER = {
  'input_layernorm': 'attn_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output', 'post_attention_layernorm': 'ffn_norm', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
};
const OUTER = { 'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight', 'lm_head.weight': 'output.weight' };

function rename(name) {
  const match = /^model\.layers\.(\d+)\.(.+)\.weight$/.exec(name);
  const found = match ? LAYER[match[2]] && `blk.${match[1]}.${LAYER[match[2]]}.weight` : OUTER[name];
  if (!found) throw new Error(`${name}: no such tensor in a Llama`);
  return found;
}

/** Row i of a turned head's first half goes to 2i, of its second half to 2i + 1. */
function interleaveRows(bytes, rows, heads) {
  const out = Buffer.alloc(bytes.length), row = bytes.length / rows, head = rows / heads, half = head / 2;
  for (let r = 0; r < rows; r++) {
    const i = r % head;
    bytes.copy(out, (r - i + (i < half ? 2 * i : 2 * (i - half) + 1)) * row, r * row, (r + 1) * row);
  }
  return out;
}

/** Divisors of the rotary frequencies (Llama 3.1's rule, as in transformers' modeling_rope_utils). */
function rotaryDivisors(scaling, theta, headDim) {
  const { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: trained } = scaling;
  return Float32Array.from({ length: headDim / 2 }, (_, i) => {
    const wavelength = 2 * Math.PI * theta ** (2 * i / headDim);
    if (wavelength < trained / high) return 1;
    if (wavelength > trained / low) return factor;
    const smooth = (trained / wavelength - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  });
}

// --- writing ----------------------------------------------------------------------------------------------------

const integer = (Type, write) => (value) => { const b = Buffer.alloc(Type); b[write](value); return b; };
const u32 = integer(4, 'writeUInt32LE'), i32 = integer(4, 'writeInt32LE'), f32 = integer(4, 'writeFloatLE');
const u64 = (value) => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(value)); return b; };
const string = (text) => { const bytes = Buffer.from(text); return Buffer.concat([u64(bytes.length), bytes]); };
const VALUE = { [U32]: u32, [INT32]: i32, [F32]: f32, [STRING]: string, [BOOL]: (value) => Buffer.from([value ? 1 : 0]) };

function pair(key, type, value) {
  if (!Array.isArray(value)) return Buffer.concat([string(key), u32(type), VALUE[type](value)]);
  return Buffer.concat([string(key), u32(ARRAY), u32(type), u64(value.length), ...value.map(VALUE[type])]);
}

function modelPairs(config, rope, headDim) {
  return [
    pair('general.architecture', STRING, 'llama'), pair('general.name', STRING, 'model'), pair('general.file_type', U32, FILE_BF16),
    pair('llama.context_length', U32, config.max_position_embeddings), pair('llama.embedding_length', U32, config.hidden_size),
    pair('llama.block_count', U32, config.num_hidden_layers), pair('llama.feed_forward_length', U32, config.intermediate_size),
    pair('llama.attention.head_count', U32, config.num_attention_heads),
    pair('llama.attention.head_count_kv', U32, config.num_key_value_heads ?? config.num_attention_heads),
    pair('llama.attention.key_length', U32, headDim), pair('llama.attention.value_length', U32, headDim),
    pair('llama.attention.layer_norm_rms_epsilon', F32, config.rms_norm_eps), pair('llama.rope.dimension_count', U32, headDim),
    pair('llama.rope.freq_base', F32, rope.rope_theta ?? 10000), pair('llama.vocab_size', U32, config.vocab_size),
  ];
}

// The bytes as byte-level BPE spells them (those that print as themselves, the others from U+0100), and one merge.
function byteVocabulary() {
  const prints = (byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let other = 0x100;
  const spelled = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(prints(byte) ? byte : other++));
  return { vocab: Object.fromEntries([...spelled, 'ĊĊ'].map((token, id) => [token, id])), merges: ['Ċ Ċ'] };
}

/** Without a tokenizer.json the words are made up: a measurement needs ids only, but both engines want to load some. */
function tokenizerPairs(folder, config) {
  const file = path.join(folder, 'tokenizer.json');
  const { model, added_tokens: added, pre_tokenizer: pre } = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8'))
    : { model: byteVocabulary(), added_tokens: [], pre_tokenizer: null };
  const tokens = Array.from({ length: config.vocab_size }, (_, id) => `<unused${id}>`), types = tokens.map(() => 1);
  for (const [token, id] of Object.entries(model.vocab)) tokens[id] = token;
  for (const { id, content } of added) [tokens[id], types[id]] = [content, 3];
  return [
    pair('tokenizer.ggml.model', STRING, 'gpt2'),
    pair('tokenizer.ggml.pre', STRING, JSON.stringify(pre).includes('{1,3}') ? 'llama-bpe' : 'qwen2'),
    pair('tokenizer.ggml.tokens', STRING, tokens), pair('tokenizer.ggml.token_type', INT32, types),
    pair('tokenizer.ggml.merges', STRING, model.merges.map((merge) => [merge].flat().join(' '))),
    pair('tokenizer.ggml.bos_token_id', U32, config.bos_token_id),
    pair('tokenizer.ggml.eos_token_id', U32, [config.eos_token_id].flat()[0]),
    pair('tokenizer.ggml.add_bos_token', BOOL, false),
  ];
}

/** The tensors as they will stand in the file: { name, shape, type, bytes, pieces() }. */
function plan(tensors, config, rope, headDim) {
  const heads = { q_proj: config.num_attention_heads, k_proj: config.num_key_value_heads ?? config.num_attention_heads };
  const list = [...tensors].map(([key, tensor]) => {
    const { dtype, shape } = tensor, size = ELEMENT[dtype], matrix = shape.length > 1;
    if (!size) throw new Error(`${key}: dtype ${dtype} is none of ${Object.keys(ELEMENT).join(', ')}`);
    const turned = heads[key.split('.').at(-2)], convert = matrix ? toBf16 : (bytes, from) => Buffer.from(toFloats(bytes, from).buffer);
    function* pieces() {
      const step = turned ? tensor.bytes : PIECE; // rows change places within the whole tensor
      for (let at = 0; at < tensor.bytes; at += step) {
        const bytes = convert(read(tensor, at, Math.min(step, tensor.bytes - at)), dtype);
        yield turned ? interleaveRows(bytes, shape[0], turned) : bytes;
      }
    }
    return { name: rename(key), shape, type: matrix ? TENSOR_BF16 : TENSOR_F32, bytes: (tensor.bytes / size) * (matrix ? 2 : 4), pieces };
  });
  if ((rope.rope_type ?? rope.type) === 'llama3') {
    const divisors = Buffer.from(rotaryDivisors(rope, rope.rope_theta, headDim).buffer);
    list.push({ name: 'rope_freqs.weight', shape: [headDim / 2], type: TENSOR_F32, bytes: divisors.length, pieces: () => [divisors] });
  }
  return list;
}

const padding = (at) => Buffer.alloc((ALIGNMENT - at % ALIGNMENT) % ALIGNMENT);

export function convert(folder, out) {
  const config = JSON.parse(readFileSync(path.join(folder, 'config.json'), 'utf8'));
  if (config.model_type !== 'llama') throw new Error(`${folder}: model_type ${config.model_type} is not llama`);
  const headDim = config.head_dim ?? config.hidden_size / config.num_attention_heads;
  const rope = { rope_theta: config.rope_theta, ...config.rope_scaling, ...config.rope_parameters };
  const tensors = plan(tensorsOf(folder), config, rope, headDim);
  const pairs = [...modelPairs(config, rope, headDim), ...tokenizerPairs(folder, config)];
  const infos = [];
  let at = 0;
  for (const { name, shape, type, bytes } of tensors) {
    infos.push(Buffer.concat([string(name), u32(shape.length), ...[...shape].reverse().map(u64), u32(type), u64(at)]));
    at += bytes + padding(bytes).length;
  }
  const head = Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(pairs.length), ...pairs, ...infos]);
  const file = openSync(`${out}.part`, 'w');
  const write = (bytes) => { for (let n = 0; n < bytes.length;) n += writeSync(file, bytes, n); };
  write(head);
  write(padding(head.length));
  for (const tensor of tensors) {
    for (const piece of tensor.pieces()) write(piece);
    write(padding(tensor.bytes));
  }
  closeSync(file);
  renameSync(`${out}.part`, out); // a conversion that was cut off leaves no file that looks whole
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.length !== 4) {
    console.error('usage: node gguf.mjs MODEL_DIR OUT.gguf');
    process.exit(2);
  }
  convert(process.argv[2], process.argv[3]);
}
