// Reading and writing safetensors files, enough for tests.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const arrays = { F32: Float32Array, I32: Int32Array };

export function readTensor(file, name) {
  const bytes = readFileSync(file);
  const header = Number(bytes.readBigUInt64LE(0));
  const { dtype, shape, data_offsets: [from, to] } = JSON.parse(bytes.subarray(8, 8 + header))[name];
  const data = bytes.subarray(8 + header + from, 8 + header + to);
  return { shape, data: new arrays[dtype](data.buffer.slice(data.byteOffset, data.byteOffset + data.length)) };
}

/** The file's header as an object, and its data; for putting a spoiled one together. */
export function takeApart(file) {
  const bytes = readFileSync(file);
  const length = Number(bytes.readBigUInt64LE(0));
  return { header: JSON.parse(bytes.subarray(8, 8 + length)), data: bytes.subarray(8 + length) };
}

export function putTogether(file, header, data, length) {
  const text = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(length ?? text.length));
  writeFileSync(file, Buffer.concat([size, text, data]));
}

/** A folder of PEFT's prompt tuning with these rows: folder/name. */
export function writeAdapter(folder, name, rows) {
  const to = path.join(folder, name), data = Buffer.from(Float32Array.from(rows.flat()).buffer);
  mkdirSync(to);
  writeFileSync(path.join(to, 'adapter_config.json'), JSON.stringify({ peft_type: 'PROMPT_TUNING', num_virtual_tokens: rows.length }));
  putTogether(path.join(to, 'adapter_model.safetensors'), { prompt_embeddings: { dtype: 'F32', shape: [rows.length, rows[0].length], data_offsets: [0, data.length] } }, data);
  return to;
}

/** The log-probability of a token by its row of logits. */
export const logSoftmax = (row, id) => row[id] - Math.max(...row) - Math.log(row.reduce((sum, x) => sum + Math.exp(x - Math.max(...row)), 0));
