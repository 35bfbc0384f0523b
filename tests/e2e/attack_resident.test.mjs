// max_resident_sessions holds for sessions that clients follow: an idle one leaves memory, and is back when it is
// asked for something. What a burst took goes back to the system.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { Server, scale, unlimited, until } from './harness.mjs';

const MB = 1048576;
const residentBytes = (server) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.process.pid}/status`, 'utf8'))[1]) * 1024;
const system = 'You are a helpful assistant. '.repeat(1100); // 32 KB

/** Opens n sessions, a few at a time, each followed by its opener. */
async function openMany(client, n, prefix) {
  for (let i = 0; i < n; i += 50)
    await Promise.all(Array.from({ length: Math.min(50, n - i) }, (_, k) =>
      client.ask({ type: 'session.open', session: `${prefix}${i + k}`, system })));
}

test('thousands of followed sessions take no more memory than max_resident_sessions allows', async (t) => {
  const n = Math.round(3000 * scale);
  const server = await Server.start(t, { args: [...unlimited, '--max-resident-sessions', '64'] });
  const client = await server.connect();
  const first = await Follower.open(client, { sampling: { temperature: 0, max_tokens: 8 } });
  const said = await first.say('Hello!');
  await openMany(client, 100, 'warm');
  const before = residentBytes(server);
  await openMany(client, n, 's');
  const grown = residentBytes(server) - before;
  t.diagnostic(`${n} followed sessions with 32 KB prompts: ${(grown / MB).toFixed(1)} MB more`);
  const resident = async () => [...await server.metrics()].filter(([name]) => name.startsWith('parley_sessions_resident'))
    .reduce((sum, [, value]) => sum + value, 0);
  if (scale === 1) assert.ok(grown < 32 * MB, `${(grown / MB).toFixed(1)} MB more`);
  await until('the sessions to leave memory', async () => (await resident()) <= 66);
  // The first one has left memory long ago. It goes on, its follower misses nothing, and another sees it whole.
  const again = await first.say('Hello!');
  assert.ok(said.done && again.done);
  const other = await Follower.attach(await server.connect(), first.session, 0);
  await other.wait('the second turn', () => other.seq >= first.seq);
  const { session } = await client.ask({ type: 'session.get', session: first.session });
  assert.equal(session.n_turns, 2);
});

test('memory that a burst took goes back once the server is at rest', async (t) => {
  const n = Math.round(2000 * scale);
  const server = await Server.start(t, { args: unlimited });
  const client = await server.connect();
  await openMany(client, 100, 'warm');
  await client.close();
  const before = residentBytes(server);
  const writer = await server.connect();
  await openMany(writer, n, 's');
  const most = residentBytes(server) - before;
  await new Promise((resolve) => setTimeout(resolve, 5000)); // a rest before what is freed
  for (let i = 0; i < n; i += 50)
    await Promise.all(Array.from({ length: Math.min(50, n - i) }, (_, k) => // leaves holes: every tenth stays
      (k % 10 === 0 ? null : writer.ask({ type: 'session.close', session: `s${i + k}`, delete: true }))));
  await writer.close();
  if (scale < 1) return; // a sanitizer keeps what is freed
  assert.ok(most > 50 * MB, `${(most / MB).toFixed(1)} MB more`);
  await until('the memory to go back', () => residentBytes(server) - before < most / 2);
  t.diagnostic(`${(most / MB).toFixed(1)} MB more with ${n} sessions, ${((residentBytes(server) - before) / MB).toFixed(1)} after nine of ten went`);
});
