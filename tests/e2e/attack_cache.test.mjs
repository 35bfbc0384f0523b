// One owner's many idle sessions do not push another owner's parked caches out of host memory.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { Server, temporaryFolder, unlimited, until } from './harness.mjs';

test('an owner with many parked caches makes room among its own', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const tokens = { alice: 'alice-token-0123456789', bob: 'bob-token-0123456789' };
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''), { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, '--host-cache-bytes', '16MiB', '--max-sequence-idle-microseconds', '50000'] });
  const sampling = { temperature: 0, max_tokens: 4 };
  const parked = async (owner, content) => {
    const follower = await Follower.open(await server.connect({ token: tokens[owner] }), { sampling });
    await follower.say(content);
    await until('its cache to be parked', () => follower.client.frames.some((frame) => frame.type === 'session.parked'));
    return follower;
  };
  const words = 'one two three four five six seven eight nine ten. '.repeat(30);
  const bob = await parked('bob', `Bob: ${words}`);
  for (let i = 0; i < 12; i++) await parked('alice', `Alice ${i}: ${words}`); // three of them fill the rest
  const { done } = await bob.say('And then?');
  assert.equal(done.cache.source, 'host');
});
