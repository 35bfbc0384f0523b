// One owner's searches delay no other one: not its tokens, its searches, nor the server's end.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { attacks, harmless, percentile } from './attacks.mjs';
import { processorMs, scale, Server, temporaryFolder, unlimited } from './harness.mjs';

const asan = scale < 1; // a sanitizer's server is slow by itself

test('a flood of searches, whose client is gone before their answers', (t) =>
  harmless(t, 'search', { figures: { sessions: asan ? 500 : 3000, connections: 30, requests: 40 },
    bounds: { first_token_ms: asan ? 2000 : 50, stop_ms: 10000 } }));

test('a search takes as long for a word that only another owner uses as for one that nobody does', async (t) => {
  const folder = temporaryFolder(t), file = path.join(folder, 'tokens');
  const tokens = { alice: 'alice-token-0123456789', bob: 'bob-token-0123456789' };
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''));
  chmodSync(file, 0o600);
  const server = await Server.start(t, { args: ['--token-file', file, ...unlimited] });
  const alice = await server.connect({ token: tokens.alice }), bob = await server.connect({ token: tokens.bob });
  const { query } = await attacks.search.prepare(alice, { sessions: asan ? 300 : 3000 });
  await bob.ask({ type: 'session.open', title: 'quite other words' });
  const search = async (client, words) => {
    const before = processorMs(server.process.pid);
    const { sessions } = await client.ask({ type: 'session.list', query: words });
    return { ms: processorMs(server.process.pid) - before, n: sessions.length };
  };
  // In processor time, since a busy machine makes all of them late. The words as one each, the last one as a prefix.
  const took = { absent: [], foreign: [], own: [] };
  const absent = query.split(' ').map((word) => `q${word}q`).join(' ');
  for (let i = 0; i < 60; i++) {
    for (const [kind, client, words, n] of [['absent', bob, absent, 0], ['foreign', bob, query, 0], ['own', alice, query, 50]]) {
      const seen = await search(client, words);
      assert.equal(seen.n, n, kind);
      took[kind].push(seen.ms);
    }
  }
  const median = (kind) => percentile(took[kind], 0.5);
  const words = Object.keys(took).map((kind) => `${kind} ${median(kind).toFixed(2)} ms`).join(', ');
  t.diagnostic(words);
  assert.ok(median('foreign') < median('absent') * 2 + 1, words);
  assert.ok(asan || median('foreign') * 3 < median('own'), words); // else the test would see nothing
});
