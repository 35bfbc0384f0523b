// parley eval: the last word, answers and perplexity, against what `parley score` and `parley generate` say of each item.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { parley, root, Server, temporaryFolder, unlimited, until } from './harness.mjs';
import { run } from './run.mjs';
import { readTensor } from './safetensors.mjs';

const model = path.join(root, 'configs/demo-model'), data = path.join(root, 'tests/fixtures/eval');
const texts = readFileSync(path.join(data, 'lambada.jsonl'), 'utf8').trim().split('\n').map((line) => JSON.parse(line).text);
const command = (args, input) => JSON.parse(execFileSync(parley, args, { encoding: 'utf8', input, stdio: ['pipe', 'pipe', 'pipe'] }));
const evaluate = (task, file, results, ...more) => command(['eval', task, '--model', model, '--data', file, '--results', results, '--json', ...more]);
const tokens = (text) => command(['tokenize', '--model', model, '--json'], text).ids;
const linesOf = (file) => readFileSync(file, 'utf8').trim().split('\n').slice(1).map((line) => JSON.parse(line)).sort((a, b) => a.item - b.item);
const close = (have, want, what) => assert.ok(Math.abs(have - want) <= 1e-3 * (1 + Math.abs(want)), `${what}: ${have}, not ${want}`);

/** Of ids[from..]: their log-probability, and whether each is the likeliest; from the logits of parley score. */
function reference(folder, ids, from) {
  const file = path.join(folder, 'logits.safetensors');
  command(['score', '--model', model, '--ids', ids.join(','), '--logits', file]);
  const { data: logits, shape: [, width] } = readTensor(file, 'logits');
  let logprob = 0, correct = true;
  for (let i = from; i < ids.length; i++) {
    const row = logits.subarray((i - 1) * width, i * width);
    let best = 0;
    row.forEach((x, id) => { if (x > row[best]) best = id; });
    logprob += row[ids[i]] - row[best] - Math.log(row.reduce((sum, x) => sum + Math.exp(x - row[best]), 0));
    correct = correct && best === ids[i];
  }
  return { logprob, correct };
}

test('lambada: every item as its logits say, in batches of any size', (t) => {
  const folder = temporaryFolder(t), results = path.join(folder, 'results.jsonl');
  const have = evaluate('lambada', path.join(data, 'lambada.jsonl'), results);
  const want = texts.map((text) => {
    const ids = tokens(text);
    return reference(folder, ids, tokens(text.slice(0, text.lastIndexOf(' '))).length);
  });
  const lines = linesOf(results);
  assert.equal(lines.length, texts.length);
  lines.forEach((line, i) => {
    assert.equal(line.correct, want[i].correct, texts[i]);
    close(line.logprob, want[i].logprob, texts[i]);
  });
  const accuracy = want.filter((one) => one.correct).length / want.length;
  assert.ok(accuracy > 0.5 && accuracy < 1, 'the items tell something');
  assert.deepEqual([have.task, have.items, have.resumed, have.cut], ['lambada', texts.length, 0, 0]);
  close(have.accuracy, accuracy, 'accuracy');
  close(have.perplexity, Math.exp(-want.reduce((sum, one) => sum + one.logprob, 0) / want.length), 'perplexity');
  const plain = path.join(folder, 'plain.txt'); // one text a line, one at a time
  writeFileSync(plain, texts.filter((text) => !text.includes('\n')).join('\n'));
  const alone = evaluate('lambada', plain, path.join(folder, 'alone.jsonl'), '--batch', '1');
  assert.equal(alone.items, texts.filter((text) => !text.includes('\n')).length);
});

test('accuracy and perplexities are those of the reference', (t) => {
  const folder = temporaryFolder(t), want = JSON.parse(readFileSync(path.join(data, 'reference.json'), 'utf8'));
  const lambada = evaluate('lambada', path.join(data, 'lambada.jsonl'), path.join(folder, 'lambada'));
  assert.equal(lambada.accuracy, want.lambada.accuracy);
  close(lambada.perplexity, want.lambada.perplexity, 'perplexity of the last words');
  linesOf(path.join(folder, 'lambada')).forEach((line, i) => {
    assert.equal(line.correct, want.lambada.items[i].correct, texts[i]);
    close(line.logprob, want.lambada.items[i].logprob, texts[i]);
  });
  const perplexity = evaluate('perplexity', path.join(data, 'text.txt'), path.join(folder, 'perplexity'));
  assert.equal(perplexity.tokens, want.perplexity.tokens);
  close(perplexity.perplexity, want.perplexity.perplexity, 'perplexity');
});

test('perplexity: pieces of a text', (t) => {
  const folder = temporaryFolder(t), file = path.join(data, 'text.txt');
  const ids = tokens(readFileSync(file, 'utf8'));
  const have = evaluate('perplexity', file, path.join(folder, 'results.jsonl'), '--session-len', '300');
  let logprob = 0, n = 0;
  for (let at = 0; at + 1 < ids.length; at += 300) {
    const piece = ids.slice(at, at + 300);
    logprob += reference(folder, piece, 1).logprob;
    n += piece.length - 1;
  }
  assert.deepEqual([have.items, have.tokens], [Math.ceil((ids.length - 1) / 300), n]);
  close(have.perplexity, Math.exp(-logprob / n), 'perplexity');
});

// As SQuAD's evaluate-v2.0.py has them.
const normal = (text) => text.toLowerCase().replace(/[!-/:-@[-`{-~]/g, '').replace(/\b(a|an|the)\b/g, ' ').split(/\s+/).filter(Boolean);
function f1(answer, truth) {
  const a = normal(answer), b = normal(truth), left = [...b];
  if (!a.length || !b.length) return Number(a.length === b.length);
  const common = a.filter((word) => left.includes(word) && left.splice(left.indexOf(word), 1)).length;
  return common ? (2 * (common / a.length) * (common / b.length)) / (common / a.length + common / b.length) : 0;
}

test('squad: greedy answers, exact match and F1', (t) => {
  const folder = temporaryFolder(t), results = path.join(folder, 'results.jsonl');
  const { data: articles } = JSON.parse(readFileSync(path.join(data, 'squad.json'), 'utf8'));
  const items = articles.flatMap((a) => a.paragraphs).flatMap(({ context, qas }) => qas.map((qa) => ({ context, ...qa })));
  assert.equal(evaluate('squad', path.join(data, 'squad.json'), results).items, items.length);
  const answers = linesOf(results).map((line) => line.answer);
  items.forEach(({ context, question }, i) => {
    const prompt = `Context: ${context}\n\nQuestion: ${question}\n\nAnswer:`;
    const { text } = command(['generate', '--model', model, '--prompt', '-', '--max-tokens', '32', '--stop', '["\\n"]', '--json'], prompt);
    assert.equal(answers[i], text.trim());
  });
  // The same questions, with truths that these answers meet in part; as lines.
  const truths = answers.map((answer, i) => [['nothing of it'], [`The  ${answer.toUpperCase()}!`, 'x'], [answer.split(' ').slice(1).join(' ')], [`${answer} indeed`, 'x']][i % 4]);
  const file = path.join(folder, 'lines.jsonl');
  writeFileSync(file, items.map(({ context, question }, i) => JSON.stringify({ context, question, answers: truths[i] })).join('\n'));
  const have = evaluate('squad', file, path.join(folder, 'lines.results'));
  const best = (measure) => answers.map((answer, i) => Math.max(...truths[i].map((truth) => measure(answer, truth))));
  const mean = (values) => (100 * values.reduce((a, b) => a + b, 0)) / values.length;
  close(have.exact_match, mean(best((a, b) => Number(normal(a).join(' ') === normal(b).join(' ')))), 'exact match');
  close(have.f1, mean(best(f1)), 'F1');
  assert.ok(have.exact_match >= 25 && have.f1 > have.exact_match && have.f1 < 100);
});

test('a run that is killed is gone on with, and another evaluation is not', async (t) => {
  const folder = temporaryFolder(t), results = path.join(folder, 'results.jsonl'), file = path.join(folder, 'many.jsonl');
  const many = Array.from({ length: 10 }, () => texts).flat();
  writeFileSync(file, many.map((text) => JSON.stringify({ text })).join('\n'));
  const args = ['eval', 'lambada', '--model', model, '--data', file, '--results', results, '--json', '--batch', '2'];
  const child = spawn(parley, args, { stdio: 'ignore' });
  const ended = new Promise((resolve) => child.once('close', resolve));
  await until('some results', () => existsSync(results) && readFileSync(results, 'utf8').split('\n').length > 8);
  child.kill('SIGKILL');
  await ended;
  writeFileSync(results, `${readFileSync(results, 'utf8').replace(/\n[^\n]*$/, '\n')}{"item":1,"cor`); // as if cut off
  const found = readFileSync(results, 'utf8').split('\n').length - 2;
  const have = command(args);
  assert.ok(found >= 6);
  assert.deepEqual([have.items, have.resumed], [many.length, found]);
  const whole = evaluate('lambada', path.join(data, 'lambada.jsonl'), path.join(folder, 'whole.jsonl'));
  close(have.accuracy, whole.accuracy, 'accuracy');
  close(have.perplexity, whole.perplexity, 'perplexity');
  assert.equal(command(args).resumed, many.length);
  const other = await run(['eval', 'lambada', '--model', model, '--data', path.join(data, 'lambada.jsonl'), '--results', results]);
  assert.deepEqual([other.code, /another evaluation/.test(other.stderr)], [1, true], other.stderr);
});

test('what cannot be evaluated is said', async (t) => {
  const folder = temporaryFolder(t), file = path.join(folder, 'items');
  const refused = async (code, sentence, ...args) => {
    const { code: have, stderr } = await run(['eval', ...args]);
    assert.deepEqual([have, sentence.test(stderr)], [code, true], stderr);
  };
  await refused(2, /lambada, squad or perplexity/);
  await refused(2, /lambada, squad or perplexity/, 'hellaswag', '--model', model, '--data', file);
  await refused(2, /--data/, 'lambada', '--model', model);
  await refused(1, /items/, 'lambada', '--model', model, '--data', file);
  for (const [task, text, sentence] of [['lambada', 'word', /last word/], ['lambada', '{"text":5}', /text/], ['lambada', '', /no item/], ['lambada', '{"txt":"a b"}', /text/],
    ['squad', '{"context":"a","question":"b"}', /answers/], ['squad', 'x', /./], ['squad', '{"data":[]}', /no item/], ['perplexity', 'a', /no item/]]) {
    writeFileSync(file, text);
    await refused(1, sentence, task, '--model', model, '--data', file);
  }
});

test('the same over KServe, as FasterTransformer\'s evaluations ask: ragged batches, word by word', async (t) => {
  const folder = temporaryFolder(t), results = path.join(folder, 'results.jsonl');
  const server = await Server.start(t, { model, args: [...unlimited, '--compute-dtype', 'f32'] });
  const infer = async (name, inputs) => {
    const response = await fetch(`${server.url}/v2/models/${name}/infer`, { method: 'POST', body: JSON.stringify({ inputs }) });
    const answer = await response.json();
    assert.equal(response.status, 200, answer.error);
    return Object.fromEntries(answer.outputs.map((o) => [o.name, o.data]));
  };
  const tensor = (name, datatype, shape, values) => ({ name, datatype, shape, data: values.flat() });
  const column = (name, datatype, values) => tensor(name, datatype, [values.length, 1], values);
  const encode = async (list) => {
    const { INPUT_ID: ids, REQUEST_INPUT_LEN: lengths } = await infer('preprocessing', [column('QUERY', 'BYTES', list), column('REQUEST_OUTPUT_LEN', 'UINT32', list.map(() => 1))]);
    return lengths.map((n, i) => ids.slice(i * ids.length / list.length, i * ids.length / list.length + n));
  };
  const batch = (rows, n, more) => {
    const width = Math.max(...rows.map((row) => row.length));
    return infer('fastertransformer', [tensor('input_ids', 'UINT32', [rows.length, width], rows.map((row) => [...row, ...Array(width - row.length).fill(0)])),
      column('input_lengths', 'UINT32', rows.map((row) => row.length)), column('request_output_len', 'UINT32', n), ...more]);
  };

  evaluate('lambada', path.join(data, 'lambada.jsonl'), results);
  const lines = linesOf(results);
  for (let at = 0; at < texts.length; at += 8) {
    const some = texts.slice(at, at + 8);
    const whole = await encode(some), before = await encode(some.map((text) => text.slice(0, text.lastIndexOf(' '))));
    const n = whole.map((ids, i) => ids.length - before[i].length);
    const drawn = await batch(before, n, []);
    const width = drawn.output_ids.length / some.length;
    const context = [column('is_return_context_cum_log_probs', 'BOOL', some.map(() => true)), column('is_return_log_probs', 'BOOL', some.map(() => true))];
    const scores = await Promise.all([whole, before].map((rows) => batch(rows, rows.map(() => 1), context)));
    some.forEach((text, i) => {
      const answer = drawn.output_ids.slice(i * width + before[i].length, i * width + whole[i].length);
      assert.equal(answer.join() === whole[i].slice(before[i].length).join(), lines[at + i].correct, text);
      const [all, first] = scores.map((out) => out.cum_log_probs[i] - out.output_log_probs[i]);
      close(all - first, lines[at + i].logprob, text);
    });
  }

  const { data: articles } = JSON.parse(readFileSync(path.join(data, 'squad.json'), 'utf8'));
  const prompts = articles.flatMap((a) => a.paragraphs).flatMap(({ context, qas }) => qas.map(({ question }) => `Context: ${context}\n\nQuestion: ${question}\n\nAnswer:`));
  evaluate('squad', path.join(data, 'squad.json'), path.join(folder, 'squad'));
  const { OUTPUT_0: outputs } = await infer('ensemble', [column('INPUT_0', 'BYTES', prompts), column('INPUT_1', 'UINT32', prompts.map(() => 32)), column('INPUT_3', 'BYTES', prompts.map(() => '\n'))]);
  linesOf(path.join(folder, 'squad')).forEach(({ answer }, i) => {
    assert.ok(outputs[i].startsWith(prompts[i]), outputs[i]);
    assert.equal(outputs[i].slice(prompts[i].length).split('\n')[0].trim(), answer);
  });
});
