// Commands with a table of prompt learning: generate (beams, context outputs), score and eval. A table whose rows are
// the embeddings of real tokens must give what these tokens give.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { parley, root, Server, temporaryFolder, unlimited } from './harness.mjs';
import { Random } from './random.mjs';
import { run } from './run.mjs';
import { readTensor, writeAdapter } from './safetensors.mjs';

const gpt2 = path.join(root, 'tests/fixtures/models/gpt2');
const command = (args, input) => JSON.parse(execFileSync(parley, args, { encoding: 'utf8', input, stdio: ['pipe', 'pipe', 'pipe'] }));
const near = (have, want, what) => assert.ok(Math.abs(have - want) <= 1e-4 * (1 + Math.abs(want)), `${what}: ${have}, not ${want}`);

test('a table of real tokens gives what the tokens give: answers, beams, scores, context outputs', async (t) => {
  const folder = temporaryFolder(t), front = [12, 250, 7, 99], ids = [5, 33, 301, 20, 6];
  const { data, shape: [, width] } = readTensor(path.join(gpt2, 'model.safetensors'), 'transformer.wte.weight');
  const task = writeAdapter(folder, 'real', front.map((id) => Array.from(data.subarray(id * width, (id + 1) * width))));
  const generate = (prompt, ...more) => command(['generate', '--model', gpt2, '--ids', prompt.join(','), '--max-tokens', '6', '--ignore-eos', '--json', ...more]);
  const both = ['--context-logprob', '--context-embedding'];
  const real = generate([...front, ...ids], ...both), virtual = generate(ids, '--prompt-task', task, ...both);
  assert.deepEqual(virtual.ids, real.ids);
  virtual.context_embedding.forEach((value, i) => near(value, real.context_embedding[i], `embedding ${i}`));
  // The virtual tokens themselves are not scored, and the first real one is: given them.
  const score = (list, ...more) => command(['score', '--model', gpt2, '--ids', list.join(','), ...more]);
  near(virtual.context_logprob, real.context_logprob - score(front).logprob, 'context_logprob');
  const scored = score(ids, '--prompt-task', task, '--logits', path.join(folder, 'virtual.safetensors'));
  assert.equal(scored.tokens, ids.length);
  near(scored.logprob, score([...front, ...ids]).logprob - score([...front, ids[0]]).logprob, 'score');
  score([...front, ...ids], '--logits', path.join(folder, 'real.safetensors'));
  const logits = (name) => readTensor(path.join(folder, name), 'logits');
  const have = logits('virtual.safetensors'), want = logits('real.safetensors');
  assert.deepEqual(have.shape, [ids.length, want.shape[1]]);
  have.data.forEach((value, i) => near(value, want.data[front.length * want.shape[1] + i], `logit ${i}`));
  const beams = (prompt, ...more) => generate(prompt, '--beam-width', '4', ...more).beams;
  const searched = beams(ids, '--prompt-task', task);
  beams([...front, ...ids]).forEach((beam, i) => {
    assert.deepEqual(searched[i].ids, beam.ids);
    near(searched[i].score, beam.score, 'score of a beam');
  });

  // The same in a session, by name, over the wire; a second turn's context is that turn's input.
  const server = await Server.start(t, { model: gpt2, args: [...unlimited, '--prompt-tasks', `real=${task}`] });
  const client = await server.connect();
  const sampling = { temperature: 0, max_tokens: 6, ignore_eos: true, context_logprob: true, context_embedding: true };
  const session = await Follower.open(client, { prompt_task: 'real', sampling });
  const plain = await Follower.open(client, { sampling });
  const first = await session.say({ ids }), other = await plain.say({ ids: [...front, ...ids] });
  assert.deepEqual(first.ids, real.ids);
  near(first.done.context.logprob, virtual.context_logprob, 'context of a session');
  first.done.context.embedding.forEach((value, i) => near(value, other.done.context.embedding[i], 'embedding of a session'));
  const second = await session.say({ ids: [8, 9] }), same = await plain.say({ ids: [8, 9] });
  near(second.done.context.logprob, same.done.context.logprob, 'second turn');

  const usage = await run(['score', '--model', gpt2, '--ids', '1,2', '--prompt-task', task, '--compare-kv', 'int8']);
  assert.deepEqual([usage.code, /--prompt-task cannot be combined/.test(usage.stderr)], [2, true], usage.stderr);
  const missing = await run(['score', '--model', gpt2, '--ids', '1,2', '--prompt-task', 'nothing']);
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /nothing/);
});

test('a prefix has context outputs of what is computed', () => {
  const prefix = path.join(root, 'tests/fixtures/prompts/gpt2/prefix'), ids = [5, 33, 301, 20, 6];
  const task = ['--model', gpt2, '--prompt-task', prefix, '--ids', ids.join(',')];
  const { context_logprob: logprob, context_embedding: embedding } = command(['generate', ...task, '--max-tokens', '1', '--json', '--context-logprob', '--context-embedding']);
  near(logprob, command(['score', ...task]).logprob, 'the first token behind a prefix has none');
  const chunked = command(['generate', ...task, '--max-tokens', '1', '--json', '--context-embedding', '--prefill-chunk-tokens', '2']);
  assert.deepEqual(chunked.context_embedding, embedding);
});

test('eval: every item behind the task, whose results are its own', async (t) => {
  const folder = temporaryFolder(t), random = new Random();
  const model = path.join(root, 'configs/demo-model'), data = path.join(root, 'tests/fixtures/eval');
  const task = writeAdapter(folder, 'noise', Array.from({ length: 3 }, () => Array.from({ length: 384 }, () => random.below(2000) / 10000 - 0.1)));
  const evaluate = (name, file, ...more) => command(['eval', name, '--model', model, '--data', path.join(data, file), '--results', path.join(folder, `${name}${more.length}`), '--json', ...more]);
  const linesOf = (file) => readFileSync(file, 'utf8').trim().split('\n').slice(1).map((line) => JSON.parse(line)).sort((a, b) => a.item - b.item);
  const behind = ['--prompt-task', task];

  evaluate('squad', 'squad.json', ...behind);
  const { data: articles } = JSON.parse(readFileSync(path.join(data, 'squad.json'), 'utf8'));
  const items = articles.flatMap((a) => a.paragraphs).flatMap(({ context, qas }) => qas.map((qa) => ({ context, ...qa })));
  linesOf(path.join(folder, 'squad2')).forEach(({ answer }, i) => {
    const prompt = `Context: ${items[i].context}\n\nQuestion: ${items[i].question}\n\nAnswer:`;
    const { text } = command(['generate', '--model', model, ...behind, '--prompt', '-', '--max-tokens', '32', '--stop', '["\\n"]', '--json'], prompt);
    assert.equal(answer, text.trim());
  });

  const plain = evaluate('lambada', 'lambada.jsonl'), tuned = evaluate('lambada', 'lambada.jsonl', ...behind);
  assert.equal(tuned.items, plain.items);
  assert.notEqual(tuned.perplexity, plain.perplexity);
  const [text] = readFileSync(path.join(data, 'lambada.jsonl'), 'utf8').trim().split('\n').map((line) => JSON.parse(line).text);
  const tokens = (words) => command(['tokenize', '--model', model, '--json'], words).ids;
  const score = (words) => command(['score', '--model', model, ...behind, '--ids', tokens(words).join(',')]).logprob;
  near(linesOf(path.join(folder, 'lambada2'))[0].logprob, score(text) - score(text.slice(0, text.lastIndexOf(' '))), 'the first item');
  // Results of another table, or of none, are another evaluation's.
  const other = await run(['eval', 'lambada', '--model', model, '--data', path.join(data, 'lambada.jsonl'), '--results', path.join(folder, 'lambada2')]);
  assert.deepEqual([other.code, /another evaluation/.test(other.stderr)], [1, true], other.stderr);
});
