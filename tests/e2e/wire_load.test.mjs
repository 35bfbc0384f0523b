// What one client does must not be what another one waits for: the net thread works for milliseconds at a time.
import assert from 'node:assert/strict';
import { Worker } from 'node:worker_threads';
import { test } from 'node:test';
import { residentBytes } from './processes.mjs';
import { RawSocket, Wire, frame, sleep, until } from './wire.mjs';

const eager = ['--messages-per-second', '1000', '--max-connections-per-ip', '2000', '--max-connections', '2000'];
const percentile = (list, p) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * p))];

/** Connections in a thread of their own, so that sending costs the one that measures nothing; each sends a message of
 * 1 MB a second. */
function senders(wire, n, bytes, request) {
  const worker = new Worker(`
    const { workerData: { n, port, bytes, request, upgrade } } = require('node:worker_threads');
    const net = require('node:net');
    for (let i = 0; i < n; i++) {
      const socket = net.connect(port, '127.0.0.1');
      socket.on('error', () => {});
      socket.on('data', () => {});
      if (upgrade) socket.write(upgrade);
      setTimeout(() => setInterval(() => socket.write(bytes), 1000), 200 + (i * 1000) / n);
    }`, { eval: true, workerData: { n, port: wire.port, bytes, request, upgrade: request ? null : wire.upgrade() } });
  return worker;
}

/** The 99th percentile of pings to a server, and of as many to one that has nothing else to do: what a busy machine
 * adds is in both. */
async function pings(wire, idle, seconds) {
  const clients = [await wire.connect(), await idle.connect()];
  const took = [[], []];
  for (const end = Date.now() + seconds * 1000; Date.now() < end;)
    for (const i of [0, 1]) {
      const begun = performance.now();
      await clients[i].request({ type: 'ping' }, 60000);
      took[i].push(performance.now() - begun);
      await sleep(3);
    }
  clients.forEach((client) => client.terminate());
  return took.map((list) => percentile(list, 0.99));
}

/** Rounds of the net thread's loop that took more processor time than `seconds`, and all. */
async function rounds(wire, seconds) {
  const page = await (await fetch(`${wire.url}/metrics`)).text();
  const within = (bound) => Number(new RegExp(`parley_loop_round_seconds_bucket\\{le="${bound}"\\} (\\d+)`).exec(page)[1]);
  return { all: within('\\+Inf'), over: within('\\+Inf') - within(seconds) };
}

const strings = Array.from({ length: 18500 }, (_, i) => [i, `some words that are parsed ${i}`, { a: [1, 2, 3] }]);
const padded = (message) => JSON.stringify({ ...message, pad: strings });

for (const [what, make] of [
  ['WebSocket messages', () => frame(padded({ type: 'session.get', session: 'nobody' }))],
  ['HTTP bodies', () => {
    const body = padded({ model: 'fake', messages: [] });
    return Buffer.from(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  }]])
  test(`20 connections that each send ${what} of a megabyte a second delay no ping`, async (t) => {
    const wire = await Wire.start(t, { args: eager });
    const bytes = make();
    assert.ok(bytes.length > 900000 && bytes.length < 1048576, `${bytes.length} bytes`);
    const idle = await Wire.start(t, { args: eager });
    const worker = senders(wire, 20, bytes, what === 'HTTP bodies');
    await sleep(1500);
    const before = await rounds(wire, '0.005');
    // Each message would make a round of its own, some hundred in all; a machine that pauses the server makes a few. That is
    // measured in processor time. The pings are there for what is much worse.
    const limit = wire.sanitized ? 500 : 100;
    const seen = [];
    for (let round = 0; round < 5; round++) {
      const [loaded, quiet] = await pings(wire, idle, 3);
      seen.push([loaded, quiet]);
      if (loaded < quiet + limit) break;
    }
    const after = await rounds(wire, '0.005');
    await worker.terminate();
    const text = seen.map(([loaded, quiet]) => `${loaded.toFixed(1)} (${quiet.toFixed(1)})`).join(', ');
    t.diagnostic(`p99 of a ping, and of one to a server at rest: ${text} ms; ${after.over - before.over} of ${after.all - before.all} rounds above 5 ms`);
    assert.ok(seen.some(([loaded, quiet]) => loaded < quiet + limit), `p99 of another client's ping: ${text} ms`);
    if (!wire.sanitized) assert.ok(after.over - before.over <= (after.all - before.all) / 100, `${after.over - before.over} of ${after.all - before.all} rounds above 5 ms`);
  });

test('a long text that is all escapes goes out in pieces', async (t) => {
  const wire = await Wire.start(t, { args: eager });
  const client = await wire.connect();
  const text = '"'.repeat(500000); // a megabyte as JSON
  await client.open({ session: 's' });
  await client.request({ type: 'session.detach', session: 's' }); // a real server's deltas are short
  await client.request({ type: 'turn.start', session: 's', input: { content: text } });
  const before = await rounds(wire, '0.001');
  for (let i = 0; i < 40; i++) {
    const state = await client.request({ type: 'session.get', session: 's' });
    assert.ok(state.turns[0].text === text && state.more === false);
  }
  const after = await rounds(wire, '0.001');
  t.diagnostic(`${after.over - before.over} of ${after.all - before.all} rounds above 1 ms`);
  if (!wire.sanitized) assert.ok(after.over - before.over < 20, `${after.over - before.over} rounds above 1 ms for 40 answers`);
});

test('a flood of pings ends its connection, and the others do not notice', async (t) => {
  const wire = await Wire.start(t);
  const s = await RawSocket.open(wire);
  await s.message((m) => m.type === 'hello');
  for (let i = 0; i < 40; i++) { // as a heart beats
    s.send('beat', { opcode: 9 });
    if (i % 10 === 9) await sleep(500);
  }
  assert.equal(s.closeCode, undefined);
  const one = frame('', { opcode: 9 });
  const flood = Buffer.concat(Array(1000).fill(one));
  for (let i = 0; i < 500 && s.closeCode === undefined && !s.closed; i++) {
    s.socket.write(flood);
    await sleep(2);
  }
  assert.equal(await s.close(), 4002);
});

test('a flood of short fragments ends its connection; a message in some is taken', async (t) => {
  const wire = await Wire.start(t);
  const s = await RawSocket.open(wire);
  await s.message((m) => m.type === 'hello');
  for (const [size, ping] of [[5, { type: 'ping', request_id: 'short' }], [16384, { type: 'ping', request_id: 'long', pad: 'x'.repeat(900000) }]]) {
    const text = JSON.stringify(ping);
    for (let at = 0; at < text.length; at += size)
      s.send(text.slice(at, at + size), { opcode: at ? 0 : 1, fin: at + size >= text.length });
    assert.equal((await s.message((m) => m.request_id === ping.request_id)).type, 'pong');
  }
  for (const bytes of ['', 'x']) {
    const other = await RawSocket.open(wire);
    await other.message((m) => m.type === 'hello');
    other.send('{', { fin: false });
    const flood = Buffer.concat(Array(1000).fill(frame(bytes, { opcode: 0, fin: false })));
    for (let i = 0; i < 500 && other.closeCode === undefined && !other.closed; i++) {
      other.socket.write(flood);
      await sleep(2);
    }
    assert.equal(await other.close(), 4002, bytes);
  }
});

// More than any two socket buffers hold, so a server that reads on would take it all.
const FLOOD_BYTES = 256 << 20;

test('after 4002 nothing more is read from a flooder, and it still gets the close frame', async (t) => {
  const wire = await Wire.start(t, { args: ['--messages-per-second', '5', '--message-burst', '10'] });
  const flooder = await RawSocket.open(wire);
  await flooder.message((m) => m.type === 'hello');
  const ping = frame(JSON.stringify({ type: 'ping' }));
  const long = frame('x'.repeat(1 << 20));
  const { socket } = flooder;
  while (flooder.closeCode === undefined && !flooder.closed) {
    socket.write(Buffer.concat(Array(50).fill(ping)));
    await sleep(2);
  }
  assert.equal(flooder.closeCode, 4002);
  const taken = () => socket.bytesWritten - socket.writableLength;
  const before = taken();
  while (!flooder.closed && taken() - before < FLOOD_BYTES) {
    if (socket.writableLength < 4 << 20) socket.write(long);
    await new Promise(setImmediate);
  }
  assert.ok(flooder.closed, 'the server ended the socket by itself');
  assert.ok(taken() - before < FLOOD_BYTES, `${taken() - before} bytes`);
  const other = await wire.connect();
  assert.equal((await other.request({ type: 'ping' })).type, 'pong');
});

test('before hello a message has at most 4 KiB', async (t) => {
  const { writeFileSync, chmodSync } = await import('node:fs');
  const { temporaryFolder } = await import('./wire.mjs');
  const file = `${temporaryFolder(t)}/tokens`;
  writeFileSync(file, 'alice:alice-token-0123456789\n');
  chmodSync(file, 0o600);
  const wire = await Wire.start(t, { args: ['--token-file', file] });
  const s = await RawSocket.open(wire);
  s.send(JSON.stringify({ type: 'hello', token: 'alice-token-0123456789', pad: 'x'.repeat(4096) }));
  assert.equal(await s.close(), 1009);
  const client = await wire.connect({ token: 'alice-token-0123456789' });
  assert.equal((await client.request({ type: 'ping', pad: 'x'.repeat(100000) })).type, 'pong');
});

test('a thousand idle streams cost no processor time, and the end of each is noticed', async (t) => {
  const n = 1000;
  const wire = await Wire.start(t, { args: eager });
  const body = JSON.stringify({ model: 'fake', messages: [{ role: 'user', content: 'silence' }], stream: true });
  const request = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  const memory = () => residentBytes(wire) / 1024;
  const sockets = [];
  let heads = 0;
  const open = () => new Promise((resolve) => {
    const socket = wire.socket();
    socket.on('error', () => {});
    socket.write(request);
    socket.once('data', () => { heads++; resolve(); });
    sockets.push(socket);
  });
  await open();
  const before = memory();
  for (let i = 1; i < n; i += 37) await Promise.all(Array.from({ length: Math.min(37, n - i) }, open));
  assert.equal(heads, n);
  const each = (memory() - before) / n;
  assert.equal(await wire.metric('parley_turns'), n);
  const used = await wire.rests(3000, 0.1, 'idle streams');
  t.diagnostic(`${each.toFixed(1)} kB per idle stream with a session, ${used.toFixed(2)} s of processor time in 3 s`);
  if (!wire.sanitized) assert.ok(each < 24, `${each} kB per idle stream`);
  // Half by FIN, half by RST: each client's turn is cancelled.
  sockets.forEach((socket, i) => (i % 2 ? socket.end() : socket.resetAndDestroy()));
  await until('the turns to be cancelled', async () => (await wire.metric('parley_turns')) === 0);
  await until('the followers to go', async () => (await wire.metric('parley_followers')) === 0);
  sockets.forEach((socket) => socket.destroy());
});
