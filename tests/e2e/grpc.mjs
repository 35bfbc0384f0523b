// A client of KServe over gRPC: @grpc/grpc-js with the project's inference.proto.
import grpc from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { Server, afterwards, freePort, parley, root, unlimited } from './harness.mjs';

export { grpc };
/** Why this build has nothing to test; undefined: it has. */
export const absent = JSON.parse(execFileSync(parley, ['--version', '--json'], { encoding: 'utf8' })).grpc === 'no'
  ? 'this build has no gRPC' : undefined;
const definition = loadSync(path.join(root, 'ws/kserve/grpc/inference.proto'), { keepCase: true, enums: String, longs: String, defaults: true, oneofs: true });
const { GRPCInferenceService: Service } = grpc.loadPackageDefinition(definition).inference;
export const gpt2 = path.join(root, 'tests/fixtures/models/gpt2');

export async function startServer(t, options = {}) {
  const port = await freePort();
  const server = await Server.start(t, { model: gpt2, ...options, args: [...unlimited, '--grpc-port', String(port), ...(options.args ?? [])] });
  server.grpc = port;
  return server;
}

export function connect(t, server, { credentials = grpc.credentials.createInsecure(), token, ...options } = {}) {
  const stub = new Service(`127.0.0.1:${server.grpc}`, credentials, { 'grpc.max_receive_message_length': -1, ...options });
  if (t) afterwards(t, () => stub.close());
  const metadata = new grpc.Metadata();
  if (token) metadata.set('authorization', `Bearer ${token}`);
  /** One answer; throws { code, details, metadata }. */
  const call = (method, request = {}, more = {}) => new Promise((resolve, reject) => {
    stub[method](request, metadata, more, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
  return { stub, metadata, call, stream: () => new Stream(stub.ModelStreamInfer(metadata)) };
}

/** A ModelStreamInfer: what came, in order, and its end. */
class Stream {
  constructor(stream) {
    this.stream = stream;
    this.answers = [];
    this.ended = new Promise((resolve) => {
      stream.on('status', resolve);
      stream.on('error', () => {}); // the status has it
    });
    stream.on('data', (answer) => this.answers.push(answer));
  }
  send(request) { this.stream.write(request); }
  /** No more requests: waits for the end. */
  async end() {
    this.stream.end();
    const status = await this.ended;
    if (status.code !== grpc.status.OK) throw Object.assign(new Error(status.details), status);
    return this.answers;
  }
}

const sizes = { UINT32: 4, INT32: 4, FP32: 4, UINT64: 8, BOOL: 1 };
const members = { UINT32: 'uint_contents', INT32: 'int_contents', FP32: 'fp32_contents', UINT64: 'uint64_contents', BOOL: 'bool_contents', BYTES: 'bytes_contents' };
function raw(datatype, data) {
  if (datatype === 'BYTES')
    return Buffer.concat(data.map((text) => { const b = Buffer.from(text); const n = Buffer.alloc(4); n.writeUInt32LE(b.length); return Buffer.concat([n, b]); }));
  const bytes = Buffer.alloc(sizes[datatype] * data.length);
  data.forEach((v, i) => {
    if (datatype === 'FP32') bytes.writeFloatLE(v, 4 * i);
    else if (datatype === 'UINT64') bytes.writeBigUInt64LE(BigInt(v), 8 * i);
    else if (datatype === 'BOOL') bytes.writeUInt8(v ? 1 : 0, i);
    else if (datatype === 'INT32') bytes.writeInt32LE(v, 4 * i);
    else bytes.writeUInt32LE(v, 4 * i);
  });
  return bytes;
}
export const tensor = (name, datatype, shape, data) => ({ name, datatype, shape, data: [].concat(data) });
export const column = (name, datatype, values) => tensor(name, datatype, [values.length, 1], values);
export function inputsOf(rows, outputLen, more = []) {
  const width = Math.max(...rows.map((row) => row.length));
  return [
    tensor('input_ids', 'UINT32', [rows.length, width], rows.flatMap((row) => [...row, ...Array(width - row.length).fill(0)])),
    column('input_lengths', 'UINT32', rows.map((row) => row.length)),
    column('request_output_len', 'UINT32', rows.map((_, i) => outputLen[i] ?? outputLen)),
    ...more,
  ];
}
const parameter = (v) => (typeof v === 'boolean' ? { bool_param: v }
  : typeof v === 'string' ? { string_param: v } : typeof v === 'bigint' ? { uint64_param: String(v) } : { int64_param: v });
export const parametersOf = (values) => Object.fromEntries(Object.entries(values).map(([name, v]) => [name, parameter(v)]));
/** A ModelInferRequest; typed: elements in contents instead of raw_input_contents. */
export function requestOf(inputs, parameters = {}, { model = 'fastertransformer', typed = false, id = '', outputs = [] } = {}) {
  return {
    model_name: model, id, parameters: parametersOf(parameters), outputs: outputs.map((name) => ({ name })),
    inputs: inputs.map(({ name, datatype, shape, data }) => ({ name, datatype, shape, ...(typed ? { contents: { [members[datatype]]: datatype === 'BYTES' ? data.map((d) => Buffer.from(d)) : data } } : {}) })),
    ...(typed ? {} : { raw_input_contents: inputs.map(({ datatype, data }) => raw(datatype, data)) }),
  };
}
/** The outputs of a ModelInferResponse by name: { datatype, shape, data }. */
export function outputsOf(answer) {
  return Object.fromEntries(answer.outputs.map((o, i) => {
    const bytes = answer.raw_output_contents[i];
    if (!bytes) return [o.name, { ...o, data: o.contents[members[o.datatype]] }];
    if (o.datatype === 'BYTES') {
      const data = [];
      for (let at = 0; at < bytes.length; at += 4 + bytes.readUInt32LE(at)) data.push(bytes.subarray(at + 4, at + 4 + bytes.readUInt32LE(at)).toString());
      return [o.name, { ...o, data }];
    }
    const n = bytes.length / sizes[o.datatype];
    const read = { UINT32: 'readUInt32LE', INT32: 'readInt32LE', FP32: 'readFloatLE' }[o.datatype];
    return [o.name, { ...o, data: Array.from({ length: n }, (_, k) => bytes[read](4 * k)) }];
  }));
}
/** The ids of every row, to its sequence_length. */
export function idsOf(answer) {
  const { output_ids: ids, sequence_length: lengths } = outputsOf(answer);
  const width = Number(ids.shape.at(-1));
  return lengths.data.map((n, row) => ids.data.slice(row * width, row * width + n));
}
export const generate = (ids, n, more = []) => JSON.parse(execFileSync(parley, ['generate', '--model', gpt2, '--ids', ids.join(','),
  '--max-tokens', String(n), '--temperature', '0', '--json', ...more], { encoding: 'utf8' }));
