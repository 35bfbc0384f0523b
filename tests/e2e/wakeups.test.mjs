// No answer depends on a thread's patience (base/patience.h): where threads sleep for a minute unless they are woken, requests
// that wait for each other take no longer. With a wakeup that is lost, each test takes minutes.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Server, unlimited } from './harness.mjs';

const env = { PARLEY_PATIENCE_MS: '60000' }, MOST_S = 30;
const chat = (server, more) => fetch(`${server.url}/v1/chat/completions`, { method: 'POST',
  headers: { 'content-type': 'application/json' }, signal: AbortSignal.timeout(MOST_S * 1000),
  body: JSON.stringify({ model: 'demo-model', messages: [{ role: 'user', content: 'hi' }], max_tokens: 5, temperature: 1, ...more }) });

async function all(server, n, more) {
  const begun = Date.now();
  const answers = await Promise.all(Array.from({ length: n }, () => chat(server, more)));
  for (const answer of answers) {
    assert.equal(answer.status, 200, await answer.clone().text());
    assert.equal((await answer.json()).choices.length, more.n ?? 1);
  }
  assert.ok(Date.now() - begun < MOST_S * 1000);
}

const kinds = [
  ['chats whose samples need all places', 16, 8, { n: 16 }],
  ['chats with more samples than places', 4, 6, { n: 5 }],
  ['chats, one place', 1, 16, {}],
  ['chats with grammars, one place', 1, 8, { response_format: { type: 'json_object' }, max_tokens: 12 }],
  ['chats that end with their first token, two places', 2, 24, { max_tokens: 1 }]];
for (const [what, places, n, more] of kinds)
  test(`${n} ${what}`, async (t) => {
    const server = await Server.start(t, { env, args: [...unlimited, '--device', 'cpu', '--threads', '1',
      '--engine-process', 'off', '--engine-timeout', '600', '--max-sequences', String(places)] });
    await all(server, n, more);
    await all(server, n, more);
    assert.doesNotMatch(server.log, /unknown_variable/);
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
  });
