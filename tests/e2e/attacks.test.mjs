// One owner that uses all of its limits slows no other one: the attacks of attacks.mjs for some seconds each.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import net from 'node:net';
import path from 'node:path';
import { test } from 'node:test';
import { harmless } from './attacks.mjs';
import { scale, temporaryFolder, withinOnce } from './harness.mjs';
import { residentMib } from './processes.mjs';
import { Wire } from './wire.mjs';

const asan = scale < 1; // a sanitizer's server is slow by itself

test('a flood of ping frames', (t) =>
  harmless(t, 'pings', { scale: 1, bounds: { first_token_ms: asan ? 2000 : 50, ping_ms: asan ? 1000 : 20, memory_mib: 64, stop_ms: 30000 } }));

// Without fairness Bob waits for one of Alice's long turns: tens of seconds.
for (const [name, what] of [['places', 'long turns in all places'], ['replays', 'replays in all places']])
  test(what, (t) => harmless(t, name, { scale: 0.4, patience: 60, args: ['--drain-timeout', '2'], bounds: { first_token_ms: asan ? 4000 : 250, refused: 0, stop_ms: 30000 } }));

// Texts that can never fit a session are refused unread; the rest is parsed by workers.
test('messages of a megabyte from all connections', (t) =>
  harmless(t, 'megabytes', { scale: 1, bounds: { first_token_ms: asan ? 4000 : 50, ping_ms: asan ? 2000 : 20, memory_mib: asan ? 1000 : 256, stop_ms: 30000 } }));

test('watchers of sessions with long prompts that are opened all the time', (t) =>
  harmless(t, 'watchers', { scale: 0.3, bounds: { first_token_ms: asan ? 4000 : 50, memory_mib: asan ? 500 : 64, stop_ms: 30000 } }));

for (const [name, what, mib] of [['streams', 'KServe streams that are not read', 192],
  ['starts', 'KServe sequences that are started and never ended', 600], // the KV cache, 512 MiB, that idle sessions may use
  ['bombs', 'gzip bodies that are a thousand times as large unpacked', 64], ['slowloris', 'heads that come a byte a second', 32]])
  test(what, (t) =>
    harmless(t, name, { scale: 0.4, figures: { bytes: 64e6 }, seconds: 4, args: ['--drain-timeout', '2'],
      bounds: { first_token_ms: asan ? 4000 : 250, memory_mib: asan ? 1000 : mib, refused: 0, stop_ms: 30000 } }));

// A handshake that is begun and not ended costs a place without a token for seconds, and nothing else.
test('unfinished TLS handshakes', async (t) => {
  const folder = temporaryFolder(t);
  const [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
    '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=x'], { stdio: 'ignore' });
  const wire = await Wire.start(t, { tls: true, args: ['--tls-cert', cert, '--tls-key', key] });
  const rss = () => residentMib(wire);
  const victim = wire.socket();
  await new Promise((resolve) => victim.once('secureConnect', resolve));
  const ask = () => new Promise((resolve) => {
    const begun = performance.now();
    victim.once('data', () => resolve(performance.now() - begun));
    victim.write('GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
  });
  const before = rss(), sockets = [];
  const hello = Buffer.from('16030100c8010000c40303', 'hex'); // the beginning of a ClientHello
  for (let i = 0; i < 60; i++) {
    const socket = net.connect(wire.port, '127.0.0.1', () => { if (i % 3) socket.write(hello.subarray(0, i % 2 ? 5 : 11)); });
    socket.on('error', () => {});
    socket.closed_ = new Promise((resolve) => socket.once('close', resolve));
    sockets.push(socket);
  }
  await withinOnce(1000, 'the 90th percentile of 20 requests beside them', async () => {
    const took = [];
    for (let i = 0; i < 20; i++) took.push(await ask());
    return took.sort((a, b) => a - b)[17];
  });
  t.diagnostic(`60 unfinished handshakes: ${(rss() - before).toFixed(1)} MiB more`);
  assert.ok(asan || rss() - before < 32, `${rss() - before} MiB more`);
  await Promise.all(sockets.map((socket) => socket.closed_)); // the server ends them
  const late = wire.socket();
  await new Promise((resolve, reject) => late.once('secureConnect', resolve).once('error', reject));
  [victim, late].forEach((socket) => socket.destroy());
});
