// What a turn tells of its input: log-probability and embedding. The references are the logits of `parley score` and the
// model's own final norm and head, applied here to the hidden states.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { after } from 'node:test';
import { Follower } from './follower.mjs';
import { longTest, parley, root, Server, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';
import { readTensor } from './safetensors.mjs';

const model = path.join(root, 'tests/fixtures/models/gpt2');
const server = await Server.start({ after }, { model, args: unlimited });
const client = await server.connect();
const vocabulary = client.hello.models[0].n_vocab;
const ids = Array.from({ length: 90 }, (_, i) => (i * 37 + 11) % vocabulary);

const command = (...args) => JSON.parse(execFileSync(parley, args, { encoding: 'utf8' }));
const generate = (prompt, ...more) => command('generate', '--model', model, '--ids', prompt.join(','), '--max-tokens', '2', '--ignore-eos', '--json', ...more);
const close = (have, want, tolerance, what) => assert.ok(Math.abs(have - want) <= tolerance, `${what}: ${have}, not ${want}`);
const same = (have, want, tolerance, what) => {
  assert.equal(have.length, want.length, what);
  have.forEach((value, i) => close(value, want[i], tolerance * (1 + Math.abs(want[i])), `${what}[${i}]`));
};

/** The log-probabilities of ids[1..], from the logits of `parley score`. */
function reference(t, log) {
  const file = path.join(temporaryFolder(t), 'logits.safetensors');
  command('score', '--model', model, '--ids', log.join(','), '--logits', file);
  const { data, shape: [, width] } = readTensor(file, 'logits');
  const rows = log.map((_, i) => Array.from(data.subarray(i * width, (i + 1) * width)));
  const logprob = (row, id) => { // in double precision, with the maximum taken out
    const max = Math.max(...row);
    return row[id] - max - Math.log(row.reduce((sum, x) => sum + Math.exp(x - max), 0));
  };
  return { rows, logprobs: log.slice(1).map((id, i) => logprob(rows[i], id)) };
}
const sum = (values) => values.reduce((a, b) => a + b, 0);

async function turnOf(input, sampling = {}, follower = null) {
  const author = follower ?? await Follower.open(client);
  const turn = await author.start({ ids: input }, { sampling: { temperature: 0, max_tokens: 4, ignore_eos: true, ...sampling } });
  const { done, ids: answer } = await author.done(turn);
  if (!follower) author.leave();
  return { ...done.context, done, answer, turn };
}
const both = { context_logprob: true, context_embedding: true };

longTest('the hidden states, under the final norm and the head, are the logits', (t) => {
  const weights = path.join(model, 'model.safetensors');
  const find = (...names) => {
    for (const name of names) try { return readTensor(weights, name); } catch { /* another spelling */ }
    return assert.fail(`none of ${names}`);
  };
  const gain = find('transformer.ln_f.weight', 'ln_f.weight').data, bias = find('transformer.ln_f.bias', 'ln_f.bias').data;
  const head = find('lm_head.weight', 'transformer.wte.weight', 'wte.weight');
  const width = gain.length, log = ids.slice(0, 6), { rows } = reference(t, log);
  const normed = [];
  let before = new Float64Array(width);
  for (let n = 1; n <= log.length; n++) {
    const { context_embedding: total } = generate(log.slice(0, n), '--context-embedding');
    const hidden = total.map((x, i) => x - before[i]); // of the last position alone
    before = total;
    const mean = sum(hidden) / width, variance = sum(hidden.map((x) => (x - mean) ** 2)) / width;
    normed.push(hidden.map((x, i) => ((x - mean) / Math.sqrt(variance + 1e-5)) * gain[i] + bias[i]));
    const logits = rows[n - 1].map((_, id) => sum(normed[n - 1].map((x, i) => x * head.data[id * width + i])));
    same(logits, rows[n - 1], 2e-3, `logits at ${n - 1}`);
    // The other poolings are made of the states under the norm.
    const pooled = (pooling) => generate(log.slice(0, n), '--context-embedding', '--context-pooling', String(pooling)).context_embedding;
    same(pooled(2), normed[n - 1], 1e-3, `the last of ${n}`);
    same(pooled(1), normed[0].map((_, i) => sum(normed.map((x) => x[i])) / n), 1e-3, `the mean of ${n}`);
  }
});

test('log-probability and embedding in generate, on the wire and over KServe', async (t) => {
  const log = ids.slice(0, 40), { logprobs } = reference(t, log);
  const cli = generate(log, '--context-logprob', '--context-embedding');
  close(cli.context_logprob, sum(logprobs), 1e-3, 'logprob');
  const wire = await turnOf(log, both);
  const float = (values) => values.map(Math.fround); // however many digits each writer spends
  assert.deepEqual(float([wire.logprob, ...wire.embedding]), float([cli.context_logprob, ...cli.context_embedding]));
  assert.equal((await turnOf(log)).done.context, undefined);
  const only = await turnOf(log, { context_logprob: true });
  assert.deepEqual(only.done.context, { logprob: wire.logprob });

  const rows = [log, ids.slice(50, 60)];
  const tensor = (name, datatype, shape, data) => ({ name, datatype, shape, data });
  const flag = (name) => tensor(name, 'BOOL', [2, 1], [true, true]);
  const inputs = [tensor('input_ids', 'UINT32', [2, 40], [...log, ...rows[1], ...Array(30).fill(0)]), tensor('input_lengths', 'UINT32', [2, 1], [40, 10]),
    tensor('request_output_len', 'UINT32', [2, 1], [2, 2]), flag('is_return_log_probs'), flag('is_return_context_cum_log_probs'), flag('is_return_context_embeddings')];
  const response = await fetch(`${server.url}/v2/models/fastertransformer/infer`, { method: 'POST', body: JSON.stringify({ inputs }) });
  const answer = await response.json();
  assert.equal(response.status, 200, answer.error);
  const out = Object.fromEntries(answer.outputs.map((o) => [o.name, o]));
  const width = wire.embedding.length;
  assert.deepEqual(out.context_embeddings.shape, [2, 1, width]);
  for (const [i, row] of rows.entries()) {
    const want = generate(row, '--context-logprob', '--context-embedding');
    same(out.context_embeddings.data.slice(i * width, (i + 1) * width), want.context_embedding, 1e-6, 'embedding');
    const drawn = out.output_log_probs.data.slice(i * 2, i * 2 + 2);
    close(out.cum_log_probs.data[i], want.context_logprob + sum(drawn), 1e-3, 'cum_log_probs');
  }
});

longTest('what the cache has of the input is computed again: shared with another session, regenerated', async () => {
  const prompt = ids.slice(0, 80), first = await turnOf(prompt, both);
  const plain = await turnOf(prompt);
  assert.ok(plain.done.cache.kept_tokens >= 32, JSON.stringify(plain.done.cache)); // the prefix is shared
  const again = await turnOf(prompt, both);
  assert.equal(again.done.cache.kept_tokens, 0);
  assert.deepEqual([again.logprob, again.embedding, again.answer], [first.logprob, first.embedding, first.answer]);

  const author = await Follower.open(client);
  const { turn, answer } = await turnOf(prompt, {}, author);
  const known = new Set(author.turns.keys());
  await client.ask({ type: 'turn.regenerate', session: author.session, turn, sampling: { temperature: 0, max_tokens: 4, ignore_eos: true, ...both } });
  const next = await author.wait('the second answer', () => [...author.turns.entries()].find(([n, one]) => !known.has(n) && one.done));
  const { done, ids: same2 } = next[1];
  assert.deepEqual([done.context.logprob, done.context.embedding, same2], [first.logprob, first.embedding, answer]);
  author.leave();
});

test('a later turn tells of its own input, given all before it', async (t) => {
  const author = await Follower.open(client);
  const one = await turnOf(ids.slice(0, 30), both, author);
  const two = await turnOf(ids.slice(30, 55), both, author);
  const log = [...ids.slice(0, 30), ...one.answer, ...ids.slice(30, 55)], { logprobs } = reference(t, log);
  close(two.logprob, sum(logprobs.slice(30 + one.answer.length - 1)), 1e-3, 'logprob');
  const whole = generate(log, '--context-embedding').context_embedding;
  const before = generate(log.slice(0, 30 + one.answer.length), '--context-embedding').context_embedding;
  same(two.embedding, whole.map((x, i) => x - before[i]), 1e-3, 'embedding');
  assert.ok(two.done.cache.kept_tokens >= 30); // what lies before its input is not computed again
  author.leave();
});

longTest('the record has it after kill -9', async (t) => {
  const own = await Server.start(t, { model, args: unlimited });
  const author = await Follower.open(await own.connect());
  const turn = await author.start({ ids: ids.slice(0, 20) }, { sampling: { max_tokens: 3, ignore_eos: true, ...both } });
  const { done } = await author.done(turn);
  await own.stop('SIGKILL');
  const later = await Server.start(t, { model, args: unlimited, db: own.db });
  const state = await (await later.connect()).ask({ type: 'session.get', session: author.session });
  assert.deepEqual(state.turns[0].context, done.context);
  assert.equal(state.turns[0].context.embedding.length, done.context.embedding.length);
});
