// The owner's rates as OpenAI's SDKs read them: x-ratelimit-* on every reply of /v1, retry-after on 429.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Server, temporaryFolder, unlimited } from './harness.mjs';
import { clientOf } from './openai_client.mjs';

const ALICE = 'alice-token-of-thirty-two-characters', BOB = 'bob-token-of-thirty-two-characters!!';

test('x-ratelimit-* and retry-after', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, `alice:${ALICE} requests_per_minute=80 tokens_per_minute=4000\nbob:${BOB}\n`, { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  const ask = (token, target, body) => fetch(server.url + target, { method: body ? 'POST' : 'GET', body: body && JSON.stringify(body),
    headers: { authorization: `Bearer ${token}` } });
  const rates = ({ headers }) => Object.fromEntries(['requests', 'tokens'].map((what) => [what, Object.fromEntries(['limit', 'remaining', 'reset'].map((part) =>
    [part, headers.get(`x-ratelimit-${part}-${what}`)]))]));
  const check = (answer, what) => {
    const { requests, tokens } = rates(answer);
    assert.deepEqual([requests.limit, tokens.limit], ['80', '4000'], what);
    for (const { remaining, reset } of [requests, tokens]) {
      assert.match(remaining, /^\d+$/, what);
      assert.match(reset, /^(\d+ms|\d+(\.\d+)?s|\d+m\d+s)$/, what);
    }
    return [Number(requests.remaining), Number(tokens.remaining)];
  };

  const prompt = 'Once upon a time', model = 'demo-model';
  const first = check(await ask(ALICE, '/v1/models'), 'models');
  assert.ok(first[0] > 0 && first[0] < 20 && first[1] === 1000, `a bucket holds a quarter of a minute: ${first}`);
  const targets = [['/v1/completions', { model, prompt, max_tokens: 2 }], ['/v1/completions', { model, prompt, max_tokens: 2, stream: true }],
    ['/v1/completions', {}], ['/v1/embeddings', { model, input: prompt }], ['/v1/usage'],
    ['/v1/responses', { model, input: 'Hi', max_output_tokens: 2 }], ['/v1/responses/resp_none'],
    ['/v1/chat/completions', { model, messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2 }]];
  for (const [target, body] of targets) {
    const answer = await ask(ALICE, target, body);
    check(answer, target);
    await answer.text();
  }
  const long = await ask(ALICE, '/v1/embeddings', { model, input: `${prompt} `.repeat(500) });
  await long.text();
  const [, left] = check(await ask(ALICE, '/v1/models'), 'after a long input');
  assert.equal(left, 0, 'more was computed than the bucket holds');

  let refused;
  for (let i = 0; i < 2000 && refused?.status !== 429; i++) refused = await ask(ALICE, '/v1/models');
  assert.equal(refused.status, 429);
  assert.equal(check(refused, '429')[0], 0);
  assert.deepEqual((({ type, code, param }) => [type, code, param])((await refused.json()).error), ['rate_limit_error', 'rate_limit_exceeded', null]);
  assert.ok(Number(refused.headers.get('retry-after')) >= 1 && Number(refused.headers.get('retry-after-ms')) > 0);

  const free = rates(await ask(BOB, '/v1/models'));
  assert.deepEqual(free, { requests: { limit: null, remaining: null, reset: null }, tokens: { limit: null, remaining: null, reset: null } }, 'limits that are none');
  const nobody = await ask('a-wrong-token-of-thirty-two-characters', '/v1/models');
  assert.equal(nobody.status, 401);
  assert.equal(rates(nobody).requests.limit, null);

  // OpenAI's client waits as told, and is served.
  const patient = clientOf(server, ALICE, { maxRetries: 20 });
  assert.equal((await patient.models.list()).data[0].id, model);
});
