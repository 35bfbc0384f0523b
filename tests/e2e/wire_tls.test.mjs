// TLS on the connection's own buffers: clients that we did not make, records cut into pieces, slow readers, ends of one
// direction, many connections. What may be negotiated is in wire_access.test.mjs.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import https from 'node:https';
import net from 'node:net';
import path from 'node:path';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import tls from 'node:tls';
import { promisify } from 'node:util';
import WebSocket from 'ws';
import { root, sleep, temporaryFolder, until } from './harness.mjs';
import { Wire } from './wire.mjs';

const run = promisify(execFile);

async function start(t, args = []) {
  const folder = temporaryFolder(t);
  const [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
    '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=localhost'], { stdio: 'ignore' });
  return Wire.start(t, { tls: true, args: ['--tls-cert', cert, '--tls-key', key, '--messages-per-second', '100000', ...args] });
}

/** The largest file of the page. */
async function largest(wire) {
  const folder = path.join(root, 'build/web');
  const [name] = readdirSync(folder).filter((n) => n.endsWith('.js')).sort((a, b) => statSync(path.join(folder, b)).size - statSync(path.join(folder, a)).size);
  return { name, body: await read(wire, `/${name}`) };
}

function read(wire, target, { agent, before = () => {}, method = 'GET', body, headers } = {}) {
  return new Promise((resolve, reject) => {
    const request = https.request(`${wire.url}${target}`, { agent, method, headers, rejectUnauthorized: false }, async (response) => {
      await before(response);
      const pieces = [];
      response.on('data', (bytes) => pieces.push(bytes));
      response.on('end', () => resolve(Buffer.concat(pieces)));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(body);
  });
}

/** A socket whose every write goes out as pieces of `size` bytes. */
function inPieces(wire, size) {
  const socket = net.connect({ port: wire.port, host: wire.host, noDelay: true });
  const cut = new Duplex({
    read() { socket.resume(); },
    write(bytes, _, done) {
      for (let at = 0; at < bytes.length; at += size) socket.write(bytes.subarray(at, at + size));
      done();
    },
    final(done) { socket.end(done); },
    destroy(error, done) { socket.destroy(); done(error); },
  });
  socket.on('data', (bytes) => cut.push(bytes) || socket.pause());
  socket.on('end', () => cut.push(null));
  socket.on('error', (error) => cut.destroy(error));
  return new Promise((resolve, reject) => {
    const client = tls.connect({ socket: cut, rejectUnauthorized: false }, () => resolve(client));
    client.once('error', reject);
  });
}

/** How many answers clients wait for. */
async function followers(wire) {
  const text = (await read(wire, '/metrics', { agent: false })).toString();
  return Number(/^parley_followers (\d+)/m.exec(text)[1]);
}

/** A client of TLS whose end is a close_notify alone: { client, socket }, where socket is the TCP connection. */
function withoutFin(wire) {
  const socket = net.connect({ port: wire.port, host: wire.host, noDelay: true, allowHalfOpen: true });
  const kept = new Duplex({
    read() { socket.resume(); },
    write(bytes, _, done) { socket.write(bytes, done); },
    final(done) { done(); },
    destroy(error, done) { done(error); },
  });
  socket.on('data', (bytes) => kept.push(bytes));
  socket.on('error', () => {});
  return new Promise((resolve, reject) => {
    const client = tls.connect({ socket: kept, rejectUnauthorized: false, allowHalfOpen: true }, () => resolve({ client, socket }));
    client.on('error', reject);
  });
}

/** All that a socket says until its end. */
const rest = (socket) => new Promise((resolve) => {
  let text = '';
  socket.on('data', (bytes) => { text += bytes.toString('latin1'); });
  socket.on('error', () => {});
  for (const end of ['end', 'close']) socket.on(end, () => resolve(text));
});

const request = (wire, target, lines = '') => `GET ${target} HTTP/1.1\r\nHost: ${wire.host}:${wire.port}\r\n${lines}\r\n`;
const completion = (content, stream) => JSON.stringify({ model: 'fake', stream, messages: [{ role: 'user', content }] });

test('clients of TLS that others wrote', async (t) => {
  const wire = await start(t);
  const file = await largest(wire);
  assert.ok(file.body.length > 200000);

  await t.test('curl: one connection for several requests, a long reply, a stream', async () => {
    const url = `${wire.url}/${file.name}`;
    const { stdout } = await run('curl', ['-sk', '--http1.1', '-w', '%{num_connects} %{size_download}\n', '-o', '/dev/null', '-o', '/dev/null', url, url]);
    assert.deepEqual(stdout.trim().split('\n'), [`1 ${file.body.length}`, `0 ${file.body.length}`]);
    const stream = await run('curl', ['-skN', '--http1.1', '-H', 'content-type: application/json', '-d', completion('one two', true), `${wire.url}/v1/chat/completions`]);
    assert.match(stream.stdout, /data: \[DONE\]\n\n$/);
  });

  await t.test('openssl s_client: new keys in the middle of a connection; no renegotiation', async () => {
    const talk = async (options, lines) => {
      const client = spawn('openssl', ['s_client', '-connect', `${wire.host}:${wire.port}`, '-crlf', ...options]);
      let out = '';
      for (const stream of [client.stdout, client.stderr]) stream.on('data', (bytes) => { out += bytes; });
      const ended = new Promise((resolve) => client.once('exit', resolve));
      await until('the handshake', () => /read R BLOCK|Verify return code/.test(out));
      for (const [text, seen] of lines) {
        client.stdin.write(text);
        await until(`s_client to say ${seen}`, () => seen.test(out));
      }
      client.kill();
      await ended;
      return out;
    };
    const get = request(wire, '/healthz').replaceAll('\r', '');
    const ok = /200 OK[^]*200 OK/;
    await talk(['-tls1_3'], [[get, /200 OK/], ['K\n', /KEYUPDATE/], [get, ok], ['k\n', /KEYUPDATE[^]*KEYUPDATE/], [get, /200 OK[^]*200 OK[^]*200 OK/]]);
    await talk(['-tls1_2'], [[get, /200 OK/], ['R\n', /RENEGOTIATING[^]*no renegotiation/]]);
  });

  await t.test('records in pieces of 1 to 7 bytes, requests and WebSockets', async () => {
    for (const size of [1, 2, 3, 5, 7]) {
      const socket = await inPieces(wire, size);
      const said = rest(socket);
      socket.write(request(wire, '/healthz'));
      socket.write(request(wire, `/${file.name}`, 'Connection: close\r\n'));
      const text = await said;
      assert.match(text, /^HTTP\/1\.1 200 OK/, `pieces of ${size}`);
      assert.ok(text.endsWith(file.body.toString('latin1')), `pieces of ${size}`);
    }
    const socket = await inPieces(wire, 1);
    const client = new WebSocket(`${wire.url.replace('http', 'ws')}/ws`, ['parley.v1'], { createConnection: () => socket });
    await new Promise((resolve, reject) => {
      client.on('error', reject);
      client.on('message', (bytes) => {
        const { type } = JSON.parse(bytes);
        if (type === 'hello') client.send('{"type":"ping"}');
        if (type === 'pong') resolve();
      });
    });
    client.terminate();
  });

  await t.test('a long body in records of 16 KiB', async () => {
    const content = randomBytes(150000).toString('base64');
    const body = completion(content, false);
    const reply = JSON.parse(await read(wire, '/v1/chat/completions', { method: 'POST', body, headers: { 'content-type': 'application/json' } }));
    assert.equal(reply.object, 'chat.completion', JSON.stringify(reply).slice(0, 300));
  });

  await t.test('a reader that waits gets all bytes', async () => {
    const agent = new https.Agent({ highWaterMark: 1024 });
    const body = await read(wire, `/${file.name}`, { agent, before: async (response) => { response.pause(); await sleep(500); response.resume(); } });
    assert.ok(body.equals(file.body));
  });

  await t.test('a client may end its direction: what is ready is still sent', async () => {
    const socket = tls.connect({ port: wire.port, host: wire.host, rejectUnauthorized: false, allowHalfOpen: true });
    const said = rest(socket);
    socket.end(request(wire, `/${file.name}`, 'Connection: close\r\n'));
    assert.ok((await said).endsWith(file.body.toString('latin1')));
  });

  await t.test('close_notify ends a turn, also on a socket that stays open', async () => {
    const fds = () => readdirSync(`/proc/${wire.process.pid}/fd`).length;
    await until('the others to leave', async () => (await followers(wire)) === 0);
    const before = fds();
    for (const [content, stream] of [['silence', false], ['silence', true], ['count 1000000', false], ['count 1000000', true]]) {
      const what = `${content}, ${stream ? 'streamed' : 'awaited'}`;
      const body = completion(content, stream);
      const post = `POST /v1/chat/completions HTTP/1.1\r\nHost: ${wire.host}:${wire.port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
      // The next request is there already: the end is behind it.
      for (const next of ['', request(wire, '/healthz')]) {
        const { socket, client } = await withoutFin(wire);
        client.on('data', () => {});
        client.write(post + next);
        await until(`a turn (${what})`, async () => (await followers(wire)) === 1);
        client.end();
        await until(`the turn to end (${what}, ${next ? 'with' : 'without'} a next request)`, async () => (await followers(wire)) === 0);
        assert.equal(socket.writableEnded, false, 'the client sent no FIN');
        socket.destroy();
      }
    }
    await until('the descriptors', () => fds() <= before);
  });

  await t.test('a next request that comes during a stream is answered behind it', async () => {
    const body = completion('count 200', true);
    const { text } = await wire.raw([[0, `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`],
      [50, request(wire, '/healthz', 'Connection: close\r\n').slice(0, 20)], [20, request(wire, '/healthz', 'Connection: close\r\n').slice(20)]]);
    assert.match(text, /w199 [^]*\[DONE\][^]*HTTP\/1\.1 200 OK/);
  });

  await t.test('more bytes than a head during a stream do not make the loop spin', async () => {
    const body = completion('silence', true);
    const socket = wire.socket();
    socket.on('error', () => {});
    socket.on('data', () => {});
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await until('a turn', async () => (await followers(wire)) === 1);
    socket.write('x'.repeat(40000));
    await wire.rests(1500, 0.15, 'bytes ahead');
    socket.destroy();
    await until('the turn to end', async () => (await followers(wire)) === 0);
  });

  await t.test('the server says that it ends', async () => {
    const { stdout, stderr } = await run('curl', ['-skv', '--http1.1', '-H', 'Connection: close', '-o', '/dev/null', `${wire.url}/healthz`]);
    assert.match(stdout + stderr, /close notify|TLS alert, close/i);
  });
});

test('200 connections under TLS: one descriptor each, three where a WebSocket follows', async (t) => {
  const wire = await start(t, ['--max-connections', '400']);
  const fds = () => readdirSync(`/proc/${wire.process.pid}/fd`).length;
  const before = fds();
  const sockets = await Promise.all(Array.from({ length: 200 }, () => new Promise((resolve, reject) => {
    const socket = tls.connect({ port: wire.port, host: wire.host, rejectUnauthorized: false }, () => socket.write(request(wire, '/healthz')));
    socket.once('data', (bytes) => resolve([socket, bytes.toString('latin1')]));
    socket.once('error', reject);
  })));
  for (const [, text] of sockets) assert.match(text, /^HTTP\/1\.1 200 OK/);
  assert.equal(fds() - before, 200);
  const [socket] = sockets[0];
  socket.write(wire.upgrade());
  await new Promise((resolve) => socket.once('data', resolve));
  assert.equal(fds() - before, 202);
  for (const [s] of sockets) s.destroy();
  await until('the connections to end', () => fds() === before);
});
