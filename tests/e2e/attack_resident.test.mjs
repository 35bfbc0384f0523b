// max_resident_sessions holds for sessions that clients follow: an idle one leaves memory, and is back when it is
// asked for something. What a burst took goes back to the system.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { Server, scale, sleep, temporaryFolder, unlimited, until } from './harness.mjs';
import { openMany, system } from './long_sessions.mjs';
import { residentBytes } from './processes.mjs';

const MB = 1048576;

const token = 'alice-token-0123456789';
function tokenFile(t) {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, `alice:${token}\n`, { mode: 0o600 });
  return file;
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

test('sessions that cannot leave memory, because a client reads nothing, are bounded; the time told is true', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--owner-resident-sessions', '100', '--token-file', tokenFile(t)] });
  const [deaf, other] = [await server.connect({ token }), await server.connect({ token })];
  const old = await other.open();
  const used = async () => (await other.ask({ type: 'usage.get' })).usage.limits.resident_sessions;
  deaf.socket._socket.pause();
  for (let i = 0; i < 600; i++) deaf.send({ type: 'session.open', system, request_id: `x${i}` });
  await until('a refusal', async () => (await used()).refused > 0);
  assert.ok((await used()).used <= 100 + 64, `${(await used()).used} in memory`);
  const refused = await until('no room', async () => {
    const answer = await other.ask({ type: 'session.open' });
    return answer.type === 'error' ? answer : null;
  });
  assert.equal(refused.code, 'overloaded');
  assert.match(refused.message, /\b100\b/); // names the limit
  assert.ok(refused.retry_after_ms >= 1 && refused.retry_after_ms <= 10000, `${refused.retry_after_ms} ms`);
  deaf.socket._socket.resume();
  const answers = () => deaf.frames.filter((frame) => frame.request_id?.startsWith('x'));
  await until('all answers', () => answers().length === 600);
  const late = answers().filter((frame) => frame.type === 'error');
  // How many were refused depends on how many the server had read before the client read again.
  assert.ok(late.length > 0 && late.every((frame) => frame.code === 'overloaded' && frame.retry_after_ms > 0), `${late.length} refused`);
  // Served after the time that was told, or, where a busy machine has not read its answers by then, after the next one.
  let last = late.at(-1);
  for (let i = 0; i < 5 && last.type === 'error'; i++) {
    await sleep(last.retry_after_ms);
    last = await deaf.ask({ type: 'session.open', system });
  }
  assert.equal(last.type, 'session.opened', JSON.stringify(last));
  assert.equal((await other.ask({ type: 'session.get', session: old })).type, 'session.state');
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
  await sleep(5000); // a rest before what is freed
  for (let i = 0; i < n; i += 50)
    await Promise.all(Array.from({ length: Math.min(50, n - i) }, (_, k) => // leaves holes: every tenth stays
      (k % 10 === 0 ? null : writer.ask({ type: 'session.close', session: `s${i + k}`, delete: true }))));
  await writer.close();
  if (scale < 1) return; // a sanitizer keeps what is freed
  assert.ok(most > 50 * MB, `${(most / MB).toFixed(1)} MB more`);
  await until('the memory to go back', () => residentBytes(server) - before < most / 2);
  t.diagnostic(`${(most / MB).toFixed(1)} MB more with ${n} sessions, ${((residentBytes(server) - before) / MB).toFixed(1)} after nine of ten went`);
});
