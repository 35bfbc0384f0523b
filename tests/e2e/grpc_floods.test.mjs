// Clients of HTTP/2 by hand, without a token, that send frames as fast as they can: the server's memory stays, and
// another client's calls are answered. gRPC itself bounds none of these (ws/net/frame_meter.h).
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { test } from 'node:test';
import { absent, connect, startServer } from './grpc.mjs';
import { afterwards, sleep, temporaryFolder } from './harness.mjs';
import { residentBytes } from './processes.mjs';

const skip = absent;
const token = 'bob-token-0123456789';
const bytes = (...values) => Buffer.from(values);

function frame(type, flags, stream, payload = Buffer.alloc(0)) {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}
const literal = (text) => Buffer.concat([bytes(text.length), Buffer.from(text)]); // of less than 127 bytes
const header = (name, value) => Buffer.concat([bytes(0), literal(name), literal(value)]);
const call = (method) => Buffer.concat([[':method', 'POST'], [':scheme', 'http'], [':path', `/inference.GRPCInferenceService/${method}`],
  [':authority', 'localhost'], ['te', 'trailers'], ['content-type', 'application/grpc']].map(([k, v]) => header(k, v)));
const [DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION] = [0, 1, 3, 4, 6, 9];
const END_STREAM = 1, END_HEADERS = 4;
const preface = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(SETTINGS, 0, 0)]);

/** Each makes one piece of its flood; `next` is the number of the connection's next stream. */
const floods = {
  'calls that are reset at once': ({ next }) => Buffer.concat([frame(HEADERS, END_HEADERS, next, call('ModelInfer')), frame(RESET, 0, next, bytes(0, 0, 0, 8))]),
  'calls of a method that there is not': ({ next }) => Buffer.concat([frame(HEADERS, END_HEADERS, next, call('Other')), frame(DATA, END_STREAM, next, bytes(0, 0, 0, 0, 0))]),
  'calls without a token': ({ next }) => Buffer.concat([frame(HEADERS, END_HEADERS, next, call('ModelMetadata')), frame(DATA, END_STREAM, next, bytes(0, 0, 0, 0, 0))]),
  'headers without an end': ({ first }) => (first ? frame(HEADERS, 0, 1, call('ServerLive')) : frame(CONTINUATION, 0, 1, header('name', 'value'.repeat(20)))),
  'pings': () => frame(PING, 0, 0, Buffer.alloc(8)),
};
const PIECES = 200, CONNECTIONS = 8, CALLS = 50, ROOM = 64 << 20;

/** Runs until the function that it returns is called. */
function begin(server, make) {
  const sockets = [];
  let over = false;
  const open = () => {
    if (over) return;
    const socket = net.connect(server.grpc, '127.0.0.1');
    let next = 1, first = true;
    const push = () => {
      if (socket.destroyed || over) return;
      const pieces = Array.from({ length: PIECES }, () => {
        const piece = make({ next, first });
        next += 2;
        first = false;
        return piece;
      });
      if (socket.write(Buffer.concat(pieces))) setImmediate(push);
      else socket.once('drain', push);
    };
    socket.on('error', () => {}).on('close', open).on('data', () => {}).on('connect', () => {
      socket.write(preface);
      push();
    });
    sockets.push(socket);
  };
  for (let i = 0; i < CONNECTIONS; i++) open();
  return () => {
    over = true;
    for (const socket of sockets) socket.destroy();
  };
}

for (const [name, make] of Object.entries(floods))
  test(`a flood of ${name} takes no memory, and another client's calls are answered`, { skip }, async (t) => {
    const file = path.join(temporaryFolder(t), 'tokens');
    writeFileSync(file, `bob:${token}\n`, { mode: 0o600 });
    const server = await startServer(t, { args: ['--token-file', file] });
    const bob = connect(t, server, { token });
    for (let i = 0; i < 20; i++) await bob.call('ServerReady');
    const before = residentBytes(server);
    const end = begin(server, make);
    afterwards(t, end);
    for (let i = 0; i < CALLS; i++) {
      assert.equal((await bob.call('ModelReady', { name: 'fastertransformer' })).ready, true);
      await sleep(10); // the flood's time: it is what counts
    }
    const grown = residentBytes(server) - before;
    end();
    assert.ok(grown < ROOM, `the server has grown by ${grown >> 20} MB`);
  });
