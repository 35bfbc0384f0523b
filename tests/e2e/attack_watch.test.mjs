// One owner's watchers read nothing while sessions with long prompts open: each session costs a few bytes, and is
// reported once, as it is then.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { Server, scale, unlimited, until } from './harness.mjs';
import { openMany } from './long_sessions.mjs';
import { residentBytes } from './processes.mjs';

const MB = 1048576;

async function watchers(server, n) {
  const clients = await Promise.all(Array.from({ length: n }, () => server.connect()));
  await Promise.all(clients.map((client) => client.ask({ type: 'sessions.watch' })));
  return clients;
}

test('watchers that read nothing cost no memory; what they are told then is what the sessions are now', async (t) => {
  const n = Math.round(400 * scale);
  const server = await Server.start(t, { args: [...unlimited, '--max-resident-sessions', '64'] });
  const writer = await server.connect();
  await openMany(writer, 100, 'warm');
  const clients = await watchers(server, 12);
  const before = residentBytes(server);
  clients.forEach((client) => client.socket._socket.pause());
  await openMany(writer, n, 's');
  const grown = residentBytes(server) - before;
  t.diagnostic(`12 watchers and ${n} sessions with 32 KB prompts: ${(grown / MB).toFixed(1)} MB more`);
  if (scale === 1) assert.ok(grown < 40 * MB, `${(grown / MB).toFixed(1)} MB more`);
  // Changed again, and one is gone, before the watchers read.
  await writer.ask({ type: 'session.update', session: 's1', title: 'Another title' });
  await writer.ask({ type: 'session.close', session: 's2', delete: true });
  clients.forEach((client) => client.socket._socket.resume());
  for (const client of clients) {
    const told = (id) => client.frames.filter((frame) => frame.type === 'session.changed' && frame.session.id === id);
    await until('the last session', () => told(`s${n - 1}`).length > 0);
    await until('the removal', () => client.frames.some((frame) => frame.type === 'session.removed' && frame.session === 's2'));
    await until('the new title', () => told('s1').at(-1)?.session.title === 'Another title');
    for (let i = 0; i < n; i++) if (i !== 2) assert.ok(told(`s${i}`).length > 0, `s${i}`);
    assert.ok(told('s0').every((frame) => !('system' in frame.session)), 'a prompt of 32 KB is not repeated with each change');
  }
});

test('a watcher is told of the end of a turn, with the numbers of then', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const [watcher] = await watchers(server, 1);
  const follower = await Follower.open(await server.connect(), { sampling: { temperature: 0, max_tokens: 8 } });
  const turn = await follower.say('Hello!');
  const last = () => watcher.frames.filter((frame) => frame.type === 'session.changed').at(-1)?.session;
  await until('the end of the turn', () => last()?.state === 'idle');
  assert.deepEqual([last().n_turns, last().n_tokens, last().turn], [1, turn.done.usage.log_tokens, null]);
});
