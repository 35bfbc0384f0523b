// POST /v1/embeddings by OpenAI's own client and by raw HTTP, on the demo model. That the hidden states are the right ones
// is shown by context.test.mjs: under the head they are the logits.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import OpenAI from 'openai';
import { few, longTest, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { clientOf } from './openai_client.mjs';

const tokensOf = async (server, content) => (await (await fetch(`${server.url}/tokenize`, { method: 'POST', body: JSON.stringify({ content }) })).json()).tokens;
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const unit = (v) => { const length = Math.sqrt(dot(v, v)); return v.map((x) => x / length); };
const same = (a, b, what) => {
  assert.equal(a.length, b.length, what);
  a.forEach((x, i) => assert.ok(Math.abs(x - b[i]) < 1e-5, `${what}: [${i}] ${x}, not ${b[i]}`));
};
const texts = ['The little dog ran to the park.', 'A small puppy was running in a garden.', 'Lily', 'naïve 你好 👍'];

test('embeddings of the demo model', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const parley = await server.connect();
  const width = 384;
  const embed = async (input, fields) => (await openai.embeddings.create({ model: 'demo-model', input, ...fields })).data.map(({ embedding }) => embedding);
  const sessions = async () => (await parley.request({ type: 'session.list' })).sessions.filter(({ id }) => id.startsWith('embd-'));
  const all = await embed(texts);

  await t.test('the form: OpenAI\'s client asks for base64, numbers say the same', async () => {
    const answer = await openai.embeddings.create({ model: 'demo-model', input: texts, encoding_format: 'float' });
    assert.deepEqual([answer.object, answer.model, answer.data.length], ['list', 'demo-model', texts.length]);
    assert.deepEqual(answer.data.map(({ object, index }) => [object, index]), texts.map((_, i) => ['embedding', i]));
    const n = (await Promise.all(texts.map((text) => tokensOf(server, text)))).reduce((sum, { length }) => sum + length, 0);
    assert.deepEqual(answer.usage, { prompt_tokens: n, total_tokens: n });
    answer.data.forEach(({ embedding }, i) => {
      same(embedding, all[i], texts[i]);
      assert.equal(embedding.length, width);
      assert.ok(Math.abs(dot(embedding, embedding) - 1) < 1e-5, 'not of length 1');
    });
  });

  await t.test('they are the mean of the hidden states after the final norm, or the last one', async () => {
    for (const [pooling, number] of [['mean', 1], ['last', 2]])
      for (const [i, text] of texts.entries()) {
        const { session } = await parley.request({ type: 'session.open' });
        const turn = await parley.turn(session.id, { text }, { sampling: { temperature: 0, max_tokens: 1, context_embedding: true, context_pooling: number } });
        same((await embed(text, { pooling }))[0], unit(turn.done.context.embedding), `${pooling} of ${texts[i]}`);
      }
  });

  await t.test('of one token the mean is the last; of more it is not', async () => {
    const [one] = await tokensOf(server, 'dog');
    same((await embed([one]))[0], (await embed([one], { pooling: 'last' }))[0], 'one token');
    const [mean] = await embed(texts[0]), [last] = await embed(texts[0], { pooling: 'last' });
    assert.ok(dot(mean, last) < 0.999);
  });

  await t.test('alone, in a list, as ids, among many: the same', async () => {
    for (const [i, text] of texts.entries()) {
      assert.deepEqual((await embed(text))[0], all[i]);
      assert.deepEqual((await embed(await tokensOf(server, text)))[0], all[i]);
    }
    assert.deepEqual(await embed(await Promise.all(texts.map((text) => tokensOf(server, text)))), all);
    const many = await embed(Array.from({ length: few(100) }, (_, i) => texts[i % texts.length]));
    many.forEach((embedding, i) => assert.deepEqual(embedding, all[i % texts.length]));
  });

  await t.test('dimensions cut, and bring to length 1 again', async () => {
    const cut = await embed(texts, { dimensions: 64 });
    cut.forEach((embedding, i) => same(embedding, unit(all[i].slice(0, 64)), texts[i]));
    assert.deepEqual(await embed(texts, { dimensions: width }), all);
  });

  await t.test('no session stays, also not of a client that leaves', async () => {
    await until('the sessions to be gone', async () => (await sessions()).length === 0);
    const leaving = new AbortController();
    const gone = fetch(`${server.url}/v1/embeddings`, { method: 'POST', signal: leaving.signal,
      body: JSON.stringify({ model: 'demo-model', input: Array(few(500)).fill(`${texts[0]} `.repeat(50)) }) }).then(() => 'answered', () => 'gone');
    await until('its first session', async () => (await sessions()).length > 0 || (await Promise.race([gone, null])) === 'answered');
    leaving.abort();
    await gone;
    await until('the sessions to be gone', async () => (await sessions()).length === 0);
  });

  await t.test('what is not served says so', async () => {
    const refused = async (fields, param, code = 'invalid_value', status = 400) => {
      await assert.rejects(openai.embeddings.create({ model: 'demo-model', input: 'a', ...fields }), (e) => {
        assert.deepEqual([e.status, e.code, e.param, e.type], [status, code, param, 'invalid_request_error'], `${JSON.stringify(fields).slice(0, 100)}: ${e.message}`);
        return true;
      });
    };
    await refused({ model: 'other' }, 'model', 'model_not_found', 404);
    await refused({ input: 'word '.repeat(100000) }, null, 'context_length_exceeded');
    await refused({ input: ['a', 'word '.repeat(100000)] }, null, 'context_length_exceeded');
    for (const [key, values] of Object.entries({
      input: [null, '', [], [''], [[]], 5, {}, ['a', 5], [5, 'a'], [[1], 'a', 5], [-1], [1e9], [2.5], [[[1]]], Array(2049).fill('a')],
      encoding_format: ['hex', 5], dimensions: [0, -1, width + 1, 1.5, 'all'], pooling: ['cls', 1],
    })) for (const value of values) await refused({ [key]: value }, key);
    for (const body of ['', '[]', '{', '{"input":"a","input":"b"}', '['.repeat(100000)]) {
      const answer = await fetch(`${server.url}/v1/embeddings`, { method: 'POST', body });
      assert.deepEqual([answer.status, Object.keys((await answer.json()).error).sort()], [400, ['code', 'message', 'param', 'type']], body.slice(0, 40));
    }
    await until('the sessions to be gone', async () => (await sessions()).length === 0);
  });
});

longTest('a long list stays within its owner\'s limit on turns; SIGTERM ends it with a clear error', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const token = 'alice-token-of-thirty-two-characters';
  writeFileSync(file, `alice:${token} outstanding_jobs=8 running_turns=1\n`, { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, '--drain-timeout', '0'] });
  await assert.rejects(clientOf(server, 'wrong').embeddings.create({ model: 'demo-model', input: 'a' }), (e) => e.status === 401);
  const openai = clientOf(server, token);
  const { data } = await openai.embeddings.create({ model: 'demo-model', input: Array(few(60)).fill(texts[0]) });
  assert.equal(data.length, few(60));
  const cut = openai.embeddings.create({ model: 'demo-model', input: Array(2000).fill(`${texts[0]} `.repeat(10)) })
    .then(() => null, (e) => e);
  const me = await server.connect({ token });
  await until('its first session', async () => (await me.request({ type: 'session.list' })).sessions.length > 0);
  server.process.kill('SIGTERM');
  const failed = await cut;
  assert.ok(failed?.status === 503 || failed instanceof OpenAI.APIConnectionError, String(failed));
  await server.exited;
});
