// Beam search of parley generate: ids and scores equal Hugging Face's for every family; the score of a beam is that of
// its ids, computed again in one piece; windows; bad values.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, parley, root, shortIf, shortTest as test, temporaryFolder } from './harness.mjs';
import { logSoftmax, readTensor } from './safetensors.mjs';

const families = ['llama', 'mistral', 'qwen2', 'qwen3', 'gpt2', 'gptj', 'gpt_neox', 'bloom', 'opt', 'xglm'];
const models = path.join(root, 'tests/fixtures/models');
const run = (...args) => spawnSync(parley, ['generate', '--threads', '1', ...args], { encoding: 'utf8' });
const generate = (family, ids, ...args) => {
  const got = run('--model', path.join(models, family), '--ids', ids.join(','), '--json', ...args.map(String));
  assert.equal(got.status, 0, got.stderr);
  return JSON.parse(got.stdout);
};

for (const family of families) {
  shortIf(['llama', 'bloom'].includes(family))(`${family}: as Hugging Face`, () => {
    const cases = JSON.parse(readFileSync(path.join(models, family, 'golden.json'), 'utf8')).beam;
    assert.ok(cases.length >= 4);
    for (const { prompt, beam_width, length_penalty, max_new_tokens, eos, sequences, sequences_scores } of cases) {
      const got = generate(family, prompt, '--beam-width', beam_width, '--length-penalty', length_penalty,
        '--max-tokens', max_new_tokens, '--end-id', eos, '--block-tokens', 8);
      assert.deepEqual(got.beams.map((beam) => beam.ids), sequences, `width ${beam_width}, penalty ${length_penalty}`);
      for (const [i, want] of sequences_scores.entries())
        assert.ok(Math.abs(got.beams[i].score - want) < 1e-4, `beam ${i}: ${got.beams[i].score}, not ${want}`);
      assert.deepEqual(got.ids, got.beams[0].ids);
      assert.equal(got.logprobs.length, got.ids.length);
    }
  });
}

const prompt = Array.from({ length: 40 }, (_, i) => 5 + (i * 37) % 300);

longTest('in a wrapped window the score of each beam is that of its ids, computed in one piece', (t) => {
  const file = path.join(temporaryFolder(t), 'logits.safetensors');
  const window = ['--memory-len', '24', '--sink-len', '4', '--block-tokens', '8'];
  const { beams } = generate('llama', prompt, '--beam-width', 4, '--max-tokens', 30, '--ignore-eos', ...window);
  assert.equal(new Set(beams.map((beam) => beam.ids.join())).size, 4);
  for (const beam of beams) {
    const ids = [...prompt, ...beam.ids];
    const got = spawnSync(parley, ['score', '--model', path.join(models, 'llama'), '--ids', ids.join(','), '--logits', file,
      '--threads', '1', ...window], { encoding: 'utf8' });
    assert.equal(got.status, 0, got.stderr);
    const { data, shape } = readTensor(file, 'logits');
    let total = 0;
    for (let at = prompt.length; at < ids.length; at++)
      total += logSoftmax([...data.subarray((at - 1) * shape[1], at * shape[1])], ids[at]);
    assert.equal(beam.ids.length, 30);
    assert.ok(Math.abs(total / 30 - beam.score) < 1e-4, `${total / 30}, not ${beam.score}`);
  }
});

test('without a beam width there are no beams', () => {
  assert.equal(generate('llama', prompt, '--max-tokens', 2).beams, undefined);
});

longTest('the same bits in every chunking and block size', () => {
  const args = ['--beam-width', 5, '--max-tokens', 20, '--memory-len', 24, '--sink-len', 4];
  const want = generate('qwen3', prompt, ...args, '--block-tokens', 8);
  for (const other of [['--block-tokens', 16], ['--prefill-chunk-tokens', 7, '--block-tokens', 8]])
    assert.deepEqual(generate('qwen3', prompt, ...args, ...other), want);
});

longTest('diversity makes beams differ', () => {
  const starts = (rate) => new Set(generate('bloom', prompt, '--beam-width', 4, '--max-tokens', 6, '--ignore-eos',
    `--beam-diversity=${rate}`).beams.map((beam) => beam.ids[0])).size;
  assert.ok(starts(-2) > starts(0));
});

test('bad values', () => {
  const model = ['--model', path.join(models, 'llama'), '--ids', '5,6'];
  for (const [args, what] of [
    [['--beam-width', '0'], /beam.width/], [['--beam-width', '1000'], /beam.width/], [['--beam-width', 'x'], /beam.width/],
    [['--beam-width', '2', '--length-penalty', 'nan'], /len_penalty/], [['--n', '0'], /'n'/], [['--n', '65'], /'n'/]]) {
    const got = run(...model, ...args);
    assert.equal(got.status, 2, args.join(' '));
    assert.match(got.stderr, what);
    assert.equal(got.stdout, '');
  }
  for (const [args, what] of [[['--beam-width', '2', '--n', '2'], /n, beam_width/], [['--beam-width', '2', '--stop', 'x'], /stop/]]) {
    const got = run(...model, ...args);
    assert.equal(got.status, 1, args.join(' '));
    assert.match(got.stderr, what);
  }
});

longTest('penalties and forbidden tokens count in the search', () => {
  const free = generate('llama', prompt, '--beam-width', 3, '--max-tokens', 8, '--ignore-eos');
  const word = free.ids[0];
  const got = generate('llama', prompt, '--beam-width', 3, '--max-tokens', 8, '--ignore-eos', '--bad-words', `[[${word}]]`);
  for (const beam of got.beams) assert.ok(!beam.ids.includes(word));
  const stopped = generate('llama', prompt, '--beam-width', 3, '--max-tokens', 8, '--ignore-eos', '--stop', `[[${free.ids[2]}]]`);
  for (const beam of stopped.beams) assert.ok([-1, beam.ids.length - 1].includes(beam.ids.indexOf(free.ids[2])));
  const [first] = generate('llama', prompt, '--beam-width', 3, '--max-tokens', 1, '--ignore-eos', '--stop', `[[${free.ids[0]}]]`).beams;
  assert.deepEqual([first.ids, first.finish_reason], [[free.ids[0]], 'stop']);
});

longTest('sample b of n is what branch b draws, whatever n is', () => {
  const draw = (...args) => generate('llama', prompt, '--max-tokens', 12, '--ignore-eos', '--temperature', 1, '--seed', 5,
    '--memory-len', 24, '--sink-len', 4, '--block-tokens', 8, ...args);
  const one = draw(), three = draw('--n', 3), nine = draw('--n', 9);
  assert.equal(one.samples, undefined);
  assert.equal(three.samples.length, 3);
  for (const many of [three, nine]) {
    assert.deepEqual(many.ids, one.ids);
    assert.deepEqual(many.logprobs, one.logprobs);
    assert.deepEqual(many.samples[0].ids, one.ids);
  }
  assert.deepEqual(nine.samples.slice(0, 3), three.samples);
  assert.equal(new Set(nine.samples.map((sample) => sample.ids.join())).size, 9);
});
