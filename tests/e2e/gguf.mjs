// Reading and writing GGUF files, enough for tests.
import { readFileSync, writeFileSync } from 'node:fs';

export const TYPES = { u8: 0, i8: 1, u16: 2, i16: 3, u32: 4, i32: 5, f32: 6, bool: 7, text: 8, list: 9, u64: 10, i64: 11, f64: 12 };
const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
const BLOCKS = { 0: [1, 4], 1: [1, 2], 2: [32, 18], 8: [32, 34], 30: [1, 2] }; // values and bytes of F32, F16, Q4_0, Q8_0, BF16
export const list = (type, values) => ['list', { type: TYPES[type], values }];

const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
const setters = ['Uint8', 'Int8', 'Uint16', 'Int16', 'Uint32', 'Int32', 'Float32', 'Uint8', '', '', 'BigUint64', 'BigInt64', 'Float64'];

/** The bytes of a file with metadata {key: [type, value]} and tensors [{name, dims, type, data, offset?}]. */
export function build({ metadata, tensors = [], version = 3, bigEndian = false, padLast = true }) {
  const parts = [];
  let length = 0;
  const put = (bytes) => { parts.push(bytes); length += bytes.length; };
  const number = (type, value) => {
    const bytes = Buffer.alloc(SIZES[type]);
    view(bytes)[`set${setters[type]}`](0, type >= 10 && type < 12 ? BigInt(value) : Number(value), !bigEndian);
    put(bytes);
  };
  const text = (value) => { number(TYPES.u64, Buffer.byteLength(value)); put(Buffer.from(value)); };
  const any = (type, value) => {
    if (type === TYPES.text) return text(value);
    if (type !== TYPES.list) return number(type, value);
    number(TYPES.u32, value.type);
    number(TYPES.u64, value.values.length);
    value.values.forEach((item) => any(value.type, item));
  };
  const alignment = Number(metadata['general.alignment']?.[1] ?? 32);
  const pad = (n) => Buffer.alloc((alignment - n % alignment) % alignment);
  put(Buffer.from('GGUF'));
  number(TYPES.u32, version);
  number(TYPES.u64, tensors.length);
  number(TYPES.u64, Object.keys(metadata).length);
  for (const [key, [type, value]] of Object.entries(metadata)) { text(key); number(TYPES.u32, TYPES[type]); any(TYPES[type], value); }
  let offset = 0;
  for (const { name, dims, type, data, offset: given } of tensors) {
    text(name);
    number(TYPES.u32, dims.length);
    dims.forEach((dim) => number(TYPES.u64, dim));
    number(TYPES.u32, type);
    number(TYPES.u64, given ?? offset);
    offset += data.length + pad(data.length).length;
  }
  put(pad(length));
  tensors.forEach(({ data }, i) => { put(data); if (padLast || i < tensors.length - 1) put(pad(data.length)); });
  return Buffer.concat(parts);
}

/** What build() is given, of a file. */
export function read(file) {
  const bytes = readFileSync(file), numbers = view(bytes), names = Object.keys(TYPES);
  let at = 4;
  const number = (type) => { at += SIZES[type]; return numbers[`get${setters[type]}`](at - SIZES[type], true); };
  const count = () => Number(number(TYPES.u64));
  const text = () => { const length = count(); at += length; return bytes.toString('utf8', at - length, at); };
  const any = (type) => {
    if (type === TYPES.text) return text();
    if (type !== TYPES.list) return number(type);
    const of = number(TYPES.u32);
    return { type: of, values: Array.from({ length: count() }, () => any(of)) };
  };
  const version = number(TYPES.u32), nTensors = count(), nKeys = count(), metadata = {};
  for (let i = 0; i < nKeys; i++) { const key = text(), type = number(TYPES.u32); metadata[key] = [names[type], any(type)]; }
  const tensors = Array.from({ length: nTensors }, () => ({ name: text(), dims: Array.from({ length: number(TYPES.u32) }, count), type: number(TYPES.u32), offset: count() }));
  const alignment = Number(metadata['general.alignment']?.[1] ?? 32), data = Math.ceil(at / alignment) * alignment;
  for (const tensor of tensors) {
    const [values, size] = BLOCKS[tensor.type], from = data + tensor.offset;
    tensor.data = bytes.subarray(from, from + tensor.dims.reduce((a, b) => a * b, 1) / values * size);
    delete tensor.offset;
  }
  return { version, metadata, tensors };
}

export const write = (file, contents) => { writeFileSync(file, Buffer.isBuffer(contents) ? contents : build(contents)); return file; };
