// What gRPC's clients see of a server that closes: every call is served or ends as UNAVAILABLE, which they try again.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { absent, connect, grpc, inputsOf, requestOf, startServer } from './grpc.mjs';
import { afterwards, freePort, temporaryFolder, until } from './harness.mjs';

const skip = absent;
const request = requestOf(inputsOf([[5, 9, 33]], 4));
const GOAWAY = 7;

/** A proxy whose clients do not get the server's GOAWAY: for the server they are clients that have not read it yet. */
async function withoutGoaway(t, server) {
  const proxy = { goaways: [] };
  const sockets = new Set();
  const listener = net.createServer((client) => {
    const inner = net.connect(server.grpc, '127.0.0.1');
    let bytes = Buffer.alloc(0);
    client.on('data', (b) => inner.write(b));
    inner.on('data', (b) => {
      bytes = Buffer.concat([bytes, b]);
      for (let len; bytes.length >= 9 && bytes.length >= (len = 9 + bytes.readUIntBE(0, 3)); bytes = bytes.subarray(len)) {
        if (bytes[3] === GOAWAY) proxy.goaways.push({ last: bytes.readUInt32BE(9), error: bytes.readUInt32BE(13) });
        else client.write(bytes.subarray(0, len));
      }
    });
    for (const [a, b] of [[client, inner], [inner, client]]) {
      sockets.add(a);
      a.on('error', () => {}).on('close', () => b.destroySoon());
    }
  });
  const port = await freePort();
  await new Promise((resolve) => listener.listen(port, '127.0.0.1', resolve));
  afterwards(t, () => { sockets.forEach((socket) => socket.destroy()); listener.close(); });
  proxy.grpc = port;
  return proxy;
}

async function statusOf(call) {
  try {
    await call;
    return 'OK';
  } catch (error) {
    return `${grpc.status[error.code]}: ${error.details}`;
  }
}

const secured = async (folder) => {
  const [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost'], { stdio: 'ignore' });
  return { args: ['--tls-cert', cert, '--tls-key', key], cert };
};

test('a call that comes after the GOAWAY, before its client has read it, is UNAVAILABLE', { skip }, async (t) => {
  const server = await startServer(t);
  const proxy = await withoutGoaway(t, server);
  const client = connect(t, proxy);
  await client.call('ServerLive');
  const ended = server.stop();
  await until('GOAWAY', () => proxy.goaways.length > 0);
  assert.deepEqual(proxy.goaways, [{ last: 0x7fffffff, error: 0 }]);
  const stream = client.stream();
  stream.send(request);
  const statuses = await Promise.all([client.call('ServerLive'), client.call('ModelInfer', request), client.call('ModelMetadata', { name: 'nothing' }),
    stream.end()].map(statusOf));
  for (const status of statuses) assert.match(status, /^UNAVAILABLE/);
  // Its connection stays, so the server cuts it after a while.
  for (let status = ''; !/ECONNREFUSED/.test(status) && !server.status;) {
    status = await statusOf(client.call('ServerLive'));
    assert.match(status, /^UNAVAILABLE/);
  }
  assert.deepEqual(await ended, { code: 0, signal: null });
});

for (const tls of [false, true]) {
  test(`clients that call without a pause${tls ? ', over TLS' : ''}: all calls are served or UNAVAILABLE`, { skip }, async (t) => {
    const { args = [], cert } = tls ? await secured(temporaryFolder(t)) : {};
    const credentials = tls ? grpc.credentials.createSsl(readFileSync(cert)) : undefined;
    const server = await startServer(t, { args, wait: !tls });
    if (tls) await until('the port', () => server.log.includes('gRPC at port'));
    const refused = new Map();
    let served = 0;
    /** Calls until its server is gone. */
    const caller = async (client, i) => {
      for (;;) {
        const status = await statusOf(i % 3 ? client.call('ServerLive') : client.call('ModelInfer', request));
        if (status === 'OK') served++;
        else refused.set(status, (refused.get(status) ?? 0) + 1);
        if (server.status) return;
      }
    };
    const clients = Array.from({ length: 12 }, () => connect(t, server, { credentials, 'grpc.use_local_subchannel_pool': 1 }));
    const callers = clients.flatMap((client) => [0, 1, 2].map((i) => caller(client, i)));
    await until('calls of all', () => served > 20 * callers.length);
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
    await Promise.all(callers);
    assert.ok(refused.size > 0);
    for (const status of refused.keys()) assert.match(status, /^UNAVAILABLE/);
  });
}
