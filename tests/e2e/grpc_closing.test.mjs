// What gRPC's clients see of a server that closes: every call is served or ends as UNAVAILABLE, which they try again.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { absent, connect, grpc, inputsOf, requestOf, startServer } from './grpc.mjs';
import { temporaryFolder, until } from './harness.mjs';

const skip = absent;
const request = requestOf(inputsOf([[5, 9, 33]], 4));

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

test('a call that comes while the server closes is UNAVAILABLE, until its connection is cut', { skip }, async (t) => {
  const server = await startServer(t);
  const client = connect(t, server), idle = connect(t, server, { 'grpc.use_local_subchannel_pool': 1 });
  await client.call('ServerLive');
  await idle.call('ServerLive'); // and nothing more: its connection does not hold the server up
  const ended = server.stop();
  let status;
  while ((status = await statusOf(client.call('ServerLive'))) === 'OK');
  assert.equal(status, 'UNAVAILABLE: the server is shutting down');
  const stream = client.stream();
  stream.send(request);
  const statuses = await Promise.all([client.call('ServerLive'), client.call('ModelInfer', request), client.call('ModelMetadata', { name: 'nothing' }),
    stream.end()].map(statusOf));
  for (const each of statuses) assert.equal(each, 'UNAVAILABLE: the server is shutting down');
  while (!/ECONNREFUSED/.test(status) && !server.status) {
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
