// POST /v1/completions by OpenAI's own client and by raw HTTP, on the demo model.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { few, longTest, root, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { clientOf } from './openai_client.mjs';

const prompt = 'Once upon a time there was a';
const tokensOf = async (server, content, token) => (await (await fetch(`${server.url}/tokenize`, { method: 'POST', body: JSON.stringify({ content }),
  headers: token ? { authorization: `Bearer ${token}` } : {} })).json()).tokens;

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}
const textsOf = (chunks, n) => Array.from({ length: n }, (_, index) =>
  chunks.map((c) => c.choices.filter((choice) => choice.index === index).map((choice) => choice.text).join('')).join(''));

// The reference is what the model said of these tokens when it drew them.
test('echo with logprobs scores the prompt', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model: 'demo-model', logprobs: 2, temperature: 0 };
  const drawn = (await openai.completions.create({ ...ask, prompt, max_tokens: few(24) })).choices[0];
  const ids = await tokensOf(server, prompt + drawn.text);
  const n = ids.length, m = drawn.logprobs.tokens.length, front = n - m;
  const close = (got, want) => { for (let i = 0; i < want.length; i++) assert.ok(Math.abs(got[i] - want[i]) < 1e-3, `${i}: ${got[i]} and ${want[i]}`); };
  const scored = async (body) => (await openai.completions.create({ ...ask, echo: true, ...body })).choices;

  await t.test('of ids and of a text, with and without a token behind it', async () => {
    const [none] = await scored({ prompt: ids, max_tokens: 0 });
    const l = none.logprobs;
    assert.equal(none.text, prompt + drawn.text);
    for (const list of Object.values(l)) assert.equal(list.length, n);
    assert.deepEqual([l.token_logprobs[0], l.top_logprobs[0]], [null, null]);
    assert.ok(l.token_logprobs.slice(1).every((x) => x <= 0));
    assert.deepEqual(l.tokens.slice(front), drawn.logprobs.tokens);
    close(l.token_logprobs.slice(front), drawn.logprobs.token_logprobs);
    for (let i = front; i < n; i++) {
      assert.deepEqual(Object.keys(l.top_logprobs[i]), Object.keys(drawn.logprobs.top_logprobs[i - front]));
      close(Object.values(l.top_logprobs[i]), Object.values(drawn.logprobs.top_logprobs[i - front]));
    }
    assert.deepEqual(l.tokens.map((_, i) => none.text.slice(l.text_offset[i], l.text_offset[i + 1])), l.tokens);
    const [text] = await scored({ prompt: none.text, max_tokens: 0 });
    assert.deepEqual(text.logprobs, l);
    // As lm-eval-harness asks: everything but the last token is the prompt's.
    const [one] = await scored({ prompt: ids, max_tokens: 1, logprobs: 1 });
    assert.equal(one.logprobs.tokens.length, n + 1);
    assert.deepEqual(one.logprobs.token_logprobs.slice(0, -1), l.token_logprobs);
    assert.ok(Object.values(one.logprobs.top_logprobs[n - 1]).length <= 2);
    const [sure] = await scored({ prompt: ids.slice(0, 1), max_tokens: 1, logprobs: 0 });
    assert.deepEqual(sure.logprobs.token_logprobs.map((x) => x === null), [true, false]);
  });

  await t.test('many prompts, several choices, streamed', async () => {
    const prompts = [ids, ids.slice(0, 3), ids.slice(2)];
    const many = await scored({ prompt: prompts, n: 2, max_tokens: few(8), seed: 3, temperature: 1 });
    assert.equal(many.length, 6);
    for (const [i, choice] of many.entries()) {
      const known = prompts[i >> 1].length;
      assert.equal(choice.logprobs.token_logprobs[0], null);
      assert.equal(choice.logprobs.tokens.filter((_, k) => choice.logprobs.token_logprobs[k] === null).length, 1);
      assert.deepEqual(choice.logprobs.tokens.slice(0, known), many[i & ~1].logprobs.tokens.slice(0, known));
      assert.equal(choice.logprobs.tokens.map((x) => x).join(''), choice.text);
    }
    const chunks = await collect(await openai.completions.create({ ...ask, echo: true, stream: true, prompt: prompts, n: 2, max_tokens: few(8), seed: 3, temperature: 1 }));
    assert.deepEqual(textsOf(chunks, 6), many.map((c) => c.text));
    for (const [i, choice] of many.entries()) {
      const parts = chunks.flatMap((c) => c.choices).filter((c) => c.index === i).map((c) => c.logprobs);
      assert.deepEqual(parts.flatMap((p) => p.token_logprobs), choice.logprobs.token_logprobs);
    }
  });

  await t.test('a client that leaves meanwhile takes its turns with it', async () => {
    const long = Array.from({ length: few(1500) }, (_, i) => ids[i % n]);
    for (let left = false, tries = 0; !left; tries++) { // again where a busy machine was late to leave
      assert.ok(tries < 5);
      const stop = new AbortController();
      const answer = openai.completions.create({ ...ask, echo: true, logprobs: 20, prompt: [long, long, long], max_tokens: 1 }, { signal: stop.signal });
      setTimeout(() => stop.abort(), 100);
      left = await answer.then(() => false, () => true);
    }
    const [all] = await scored({ prompt: long, max_tokens: 0, logprobs: 20 });
    assert.equal(all.logprobs.top_logprobs.length, long.length);
    assert.ok(all.logprobs.top_logprobs.slice(1).every((top) => Object.keys(top).length >= 20));
  });
});

longTest('prompts of the demo model are continued', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model: 'demo-model', prompt, seed: 7, temperature: 0.8, max_tokens: few(24) };
  const whole = await openai.completions.create(ask);

  await t.test('whole', async () => {
    assert.match(whole.id, /^cmpl-[0-9a-f]{32}$/);
    assert.deepEqual([whole.object, whole.model, whole.choices.length], ['text_completion', 'demo-model', 1]);
    assert.ok(Math.abs(whole.created - Date.now() / 1000) < 3600);
    const { text, index, logprobs, finish_reason } = whole.choices[0];
    assert.ok(text.length > 0);
    assert.deepEqual([index, logprobs], [0, null]);
    assert.ok(['stop', 'length'].includes(finish_reason));
    assert.equal(whole.usage.prompt_tokens, (await tokensOf(server, prompt)).length);
    assert.ok(whole.usage.completion_tokens > 0 && whole.usage.completion_tokens <= ask.max_tokens);
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  });

  await t.test('the same words streamed, as ids, after echo, and in parley.v1', async () => {
    const chunks = await collect(await openai.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } }));
    assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
    assert.deepEqual(textsOf(chunks, 1), [whole.choices[0].text]);
    assert.equal(chunks.at(-2).choices[0].finish_reason, whole.choices[0].finish_reason);
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.equal(chunks.at(-1).usage.total_tokens, whole.usage.total_tokens);
    assert.ok(chunks.slice(0, -1).every(({ usage }) => usage === null));
    const ids = await tokensOf(server, prompt);
    assert.equal((await openai.completions.create({ ...ask, prompt: ids })).choices[0].text, whole.choices[0].text);
    const echoed = `${prompt}${whole.choices[0].text}`;
    assert.equal((await openai.completions.create({ ...ask, echo: true })).choices[0].text, echoed);
    assert.equal((await openai.completions.create({ ...ask, prompt: ids, echo: true })).choices[0].text, echoed);
    assert.deepEqual(textsOf(await collect(await openai.completions.create({ ...ask, echo: true, stream: true })), 1), [echoed]);
    const parley = await server.connect();
    const state = await parley.request({ type: 'session.get', session: whole.id });
    assert.deepEqual([state.turns.length, state.turns[0].text], [1, whole.choices[0].text]);
    assert.equal(state.turns[0].input.text, prompt);
  });

  await t.test('16 tokens unless asked otherwise, 0 for none, stop strings', async () => {
    const { model, seed, temperature } = ask;
    const plain = await openai.completions.create({ model, prompt, seed, temperature, logit_bias: { 0: -100 } });
    assert.ok(plain.usage.completion_tokens <= 16);
    const none = await openai.completions.create({ ...ask, max_tokens: 0, echo: true });
    assert.deepEqual([none.choices[0].text, none.choices[0].finish_reason, none.usage.completion_tokens], [prompt, 'length', 0]);
    const { text } = whole.choices[0];
    const stop = text.slice(3, 6);
    const stopped = await openai.completions.create({ ...ask, stop: ['never to be found', stop] });
    assert.equal(stopped.choices[0].text, text.slice(0, text.indexOf(stop)));
    assert.equal(stopped.choices[0].finish_reason, 'stop');
  });

  await t.test('several prompts with several choices each, whole and streamed', async () => {
    const prompts = [prompt, 'The little dog', 'One day, Lily'];
    const many = { ...ask, prompt: prompts, n: 2, max_tokens: few(10) };
    const answer = await openai.completions.create(many);
    assert.deepEqual(answer.choices.map(({ index }) => index), [0, 1, 2, 3, 4, 5]);
    for (const [i, each] of prompts.entries())
      for (const k of [0, 1]) {
        const alone = await openai.completions.create({ ...many, prompt: each, n: 1, seed: ask.seed + k });
        assert.equal(answer.choices[2 * i + k].text, alone.choices[0].text, `prompt ${i}, choice ${k}`);
      }
    const lengths = await Promise.all(prompts.map(async (each) => (await tokensOf(server, each)).length));
    assert.equal(answer.usage.prompt_tokens, lengths.reduce((a, b) => a + b));
    const chunks = await collect(await openai.completions.create({ ...many, stream: true }));
    assert.deepEqual(textsOf(chunks, 6), answer.choices.map(({ text }) => text));
    for (const index of [0, 1, 2, 3, 4, 5])
      assert.equal(chunks.filter((c) => c.choices.some((choice) => choice.index === index && choice.finish_reason)).length, 1);
    const ids = await openai.completions.create({ ...many, prompt: await Promise.all(prompts.map((each) => tokensOf(server, each))) });
    assert.deepEqual(ids.choices.map(({ text }) => text), answer.choices.map(({ text }) => text));
  });

  await t.test('logprobs in the form of this address', async () => {
    const told = (await openai.completions.create({ ...ask, logprobs: 3 })).choices[0];
    assert.equal(told.text, whole.choices[0].text);
    const { tokens, token_logprobs, top_logprobs, text_offset } = told.logprobs;
    assert.equal(tokens.join(''), told.text);
    for (const list of [token_logprobs, top_logprobs, text_offset]) assert.equal(list.length, tokens.length);
    tokens.forEach((token, i) => {
      assert.equal(text_offset[i], [...tokens.slice(0, i).join('')].length);
      assert.equal(top_logprobs[i][token], token_logprobs[i]);
      const n = Object.keys(top_logprobs[i]).length;
      assert.ok(token_logprobs[i] <= 0 && n >= 3 && n <= 4);
      assert.ok(Object.values(top_logprobs[i]).every((p) => p <= 0));
    });
    const chunks = await collect(await openai.completions.create({ ...ask, logprobs: 3, stream: true }));
    const streamed = chunks.flatMap((c) => c.choices.map(({ logprobs }) => logprobs)).filter(Boolean);
    for (const key of ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset'])
      assert.deepEqual(streamed.flatMap((l) => l[key]), told.logprobs[key], key);
    const stop = told.text.slice(5, 11), stopped = { ...ask, logprobs: 3, stop: [stop, 'never to be found'] }; // of several tokens
    const { text: said, logprobs: logged } = (await openai.completions.create(stopped)).choices[0];
    assert.equal(said, told.text.slice(0, told.text.indexOf(stop)));
    assert.ok(tokens.length > logged.tokens.length + 1 && logged.tokens.join('').startsWith(said));
    assert.ok(logged.text_offset.at(-1) < said.length, `${logged.tokens}: a token of the stop sequence alone`);
    const pieces = await collect(await openai.completions.create({ ...stopped, stream: true }));
    for (const key of ['tokens', 'token_logprobs', 'top_logprobs', 'text_offset']) {
      assert.deepEqual(logged[key], told.logprobs[key].slice(0, logged[key].length), key);
      assert.deepEqual(pieces.flatMap((c) => c.choices.map(({ logprobs }) => logprobs)).filter(Boolean).flatMap((l) => l[key]), logged[key], key);
    }
    const zero = (await openai.completions.create({ ...ask, logprobs: 0 })).choices[0].logprobs;
    assert.ok(zero.top_logprobs.every((top, i) => top[zero.tokens[i]] === zero.token_logprobs[i] && Object.keys(top).length === 1));
  });

  await t.test('a client that leaves cancels its turns', async () => {
    const stream = await openai.completions.create({ ...ask, n: 2, max_tokens: 3000, stop: 'never to be found', stream: true });
    let id;
    for await (const chunk of stream) {
      id = chunk.id;
      break;
    }
    stream.controller.abort();
    const parley = await server.connect();
    for (const session of [id, `${id}-1`]) {
      const reason = await until('the end of the turn', async () => (await parley.request({ type: 'session.get', session })).turns[0]?.finish_reason);
      assert.ok(['cancelled', 'eos'].includes(reason), reason);
    }
  });

  await t.test('what does not fit, and what is not served, says so', async () => {
    const refused = async (fields, status, code, param) => {
      await assert.rejects(openai.completions.create({ ...ask, ...fields }), (e) => {
        assert.deepEqual([e.status, e.code, e.param], [status, code, param], `${JSON.stringify(fields).slice(0, 100)}: ${e.message}`);
        assert.equal(e.type, 'invalid_request_error');
        return true;
      });
    };
    await refused({ prompt: 'word '.repeat(100000) }, 400, 'context_length_exceeded', null);
    await refused({ prompt: [prompt, 'word '.repeat(100000)], stream: true }, 400, 'context_length_exceeded', null);
    await refused({ model: 'other' }, 404, 'model_not_found', 'model');
    await refused({ suffix: 'the end' }, 400, 'invalid_value', 'suffix');
    await refused({ best_of: 4 }, 400, 'invalid_value', 'best_of');
    for (const [key, values] of Object.entries({
      prompt: [null, '', [], [''], [[]], 5, {}, [prompt, 5], [5, prompt], [[1], prompt, 5], [[1, 'a']], [-1], [1e9], [2.5], [[[1]]], Array(129).fill('a')],
      n: [0, 129, 1.5, 'two'], logprobs: [true, -1, 21, 'all'], max_tokens: [-1, 1e12, 'all'], stream: ['yes'], echo: [1], best_of: [0],
      logit_bias: [{ x: 1 }, { 0: 101 }, []],
    })) for (const value of values) await refused({ [key]: value }, 400, 'invalid_value', key);
    await refused({ temperature: -1 }, 400, 'invalid_value', 'temperature');
    await refused({ prompt: Array(65).fill('a'), n: 2 }, 400, 'invalid_value', 'prompt');
    for (const body of ['', '[]', '{', '{"prompt":"a","prompt":"b"}', '5', '{"model":"demo-model","prompt\\u0000":"x"}', '['.repeat(100000)]) {
      const answer = await fetch(`${server.url}/v1/completions`, { method: 'POST', body });
      const { error } = await answer.json();
      assert.deepEqual([answer.status, Object.keys(error).sort()], [400, ['code', 'message', 'param', 'type']], body.slice(0, 40));
    }
    const same = await openai.completions.create({ ...ask, suffix: '', best_of: 1, user: 'me', logprobs: null, stop: null, echo: false, whatever: { a: 1 } });
    assert.equal(same.choices[0].text, whole.choices[0].text);
  });
});

test('without a tokenizer, log-probabilities name tokens by their ids', async (t) => {
  const server = await Server.start(t, { model: path.join(root, 'tests/fixtures/models/gpt2'), args: unlimited });
  const { choices: [{ logprobs }] } = await clientOf(server).completions.create({ model: 'gpt2', prompt: [5, 6, 7], max_tokens: 4, logprobs: 3, ignore_eos: true });
  assert.equal(logprobs.tokens.length, 4);
  logprobs.tokens.forEach((token, i) => {
    assert.match(token, /^token_id:\d+$/);
    assert.equal(logprobs.top_logprobs[i][token], logprobs.token_logprobs[i]);
    assert.ok(Object.keys(logprobs.top_logprobs[i]).length >= 3);
  });
});

test('limits of an owner have OpenAI\'s form; SIGTERM ends what runs', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const token = 'alice-token-of-thirty-two-characters';
  writeFileSync(file, `alice:${token} outstanding_jobs=2\n`, { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, '--drain-timeout', '0'] });
  await assert.rejects(clientOf(server, 'wrong').completions.create({ model: 'demo-model', prompt }), (e) => e.status === 401 && e.code === 'invalid_api_key');
  const openai = clientOf(server, token);
  await assert.rejects(openai.completions.create({ model: 'demo-model', prompt, n: 3, max_tokens: 3000 }),
    (e) => e.status === 503 && e.code === 'overloaded' && e.headers.get('retry-after') !== null);
  const ends = await tokensOf(server, '<|im_end|><|endoftext|>', token);
  const endless = { model: 'demo-model', prompt, n: 2, max_tokens: 3000, logit_bias: Object.fromEntries(ends.map((id) => [id, -100])), stream: true };
  // The turns of the refused request end first.
  const stream = await until('two places', () => openai.completions.create(endless)
    .catch((e) => assert.equal(e.status, 503)));
  await assert.rejects(async () => {
    let first = true;
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      if (first) server.process.kill('SIGTERM');
      first = false;
    }
  }, (e) => /shutting down|terminated|ended/i.test(e.message));
  await server.exited;
});
