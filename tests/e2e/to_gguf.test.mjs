// GGUF files from the command line: `parley quantize --format gguf` writes what Parley reads back as the same model; what it
// costs; refusals.
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, root, shortIf, shortTest as test, temporaryFolder } from './harness.mjs';
import { readTensor } from './safetensors.mjs';
import { chat, good, json as jsonOf, run } from './run.mjs';

const demo = 'configs/demo-model';

const json = (args, options) => jsonOf([...args, '--json'], options);
const quantize = (out, type, model = demo) => ['quantize', '--model', model, '--output', out, '--format', 'gguf', '--weight-dtype', type];
async function refused(args, why, code = 1) {
  const result = await run(args);
  assert.equal(result.code, code, `parley ${args.join(' ')}`);
  assert.match(result.stderr, why);
}

test('a GGUF file of 16 bits answers as the folder does, with its tokenizer and chat template', async (t) => {
  const out = path.join(temporaryFolder(t), 'm.gguf');
  const written = await json(quantize(out, 'bf16'));
  assert.deepEqual([written.output, written.matrices], [out, 57]);
  const generate = ['--prompt', '-', '--max-tokens', '40', '--temperature', '0'];
  const read = await json(['generate', '--model', out, ...generate], { input: chat });
  const source = await json(['generate', '--model', demo, ...generate], { input: chat });
  assert.ok(read.ids.length > 0);
  assert.deepEqual(read, source);
  const idsOf = async (model) => (await json(['tokenize', '--model', model], { input: chat })).ids;
  assert.deepEqual(await idsOf(out), await idsOf(demo));
  const cost = await json(['score', '--model', demo, '--compare-model', out, '--text', '-'], { input: chat });
  assert.deepEqual([cost.top1_agreement, cost.perplexity_ratio], [1, 1]);
});

longTest('a GGUF file of few bits: its size and what it costs', async (t) => {
  const folder = temporaryFolder(t);
  const kl = {};
  for (const [type, same, most] of [['q8_0', 'int8', 0.55], ['q4_0', 'int4', 0.33]]) {
    const out = path.join(folder, `${type}.gguf`);
    const written = await json(quantize(out, type));
    assert.ok(written.bytes_after < most * written.bytes_before, `${type}: ${written.bytes_after} bytes`);
    assert.ok(statSync(out).size > written.bytes_after);
    const cost = await json(['score', '--model', demo, '--compare-model', out, '--text', '-'], { input: chat });
    kl[type] = cost.mean_kl;
    // The other spelling writes the same file.
    const again = path.join(folder, `${same}.gguf`);
    await good(quantize(again, same));
    assert.equal(statSync(again).size, statSync(out).size);
  }
  assert.ok(kl.q8_0 > 0 && kl.q8_0 < 0.001, `KL ${kl.q8_0}`);
  assert.ok(kl.q4_0 > kl.q8_0 && kl.q4_0 < 0.2, `KL ${kl.q4_0}`);
});

// SentencePiece with scores, and Llama 3's pattern: each with a model of its size.
for (const [name, size] of [['llama2_spm', 2048], ['llama3', 2000]]) {
  shortIf(name === 'llama3')(`a GGUF file has the tokenizer of its folder: ${name}`, async (t) => {
    const folder = temporaryFolder(t), config = path.join(folder, 'config.json'), model = path.join(folder, 'm'), out = path.join(folder, 'm.gguf');
    writeFileSync(config, JSON.stringify({ model_type: 'llama', hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, num_key_value_heads: 2,
      num_hidden_layers: 1, vocab_size: size, max_position_embeddings: 128, rms_norm_eps: 1e-5, rope_theta: 1e4, tie_word_embeddings: true,
      bos_token_id: 1, eos_token_id: 2 }));
    await good(['synth', '--config', config, '--output', model, '--tokenizer-from', `tests/fixtures/text/${name}`]);
    await good(quantize(out, 'q8_0', model));
    const input = "Hello world, it's 12345  na\u00efve \u4f60\u597d\u{1f642} <s> ok\n\n\tend";
    const [source, read] = [await json(['tokenize', '--model', model], { input }), await json(['tokenize', '--model', out], { input })];
    assert.ok(source.ids.length > 10);
    assert.deepEqual(read.ids, source.ids);
  });
}

// Experts in one tensor, numbers of an activation in the metadata, layers without positions, latent attention.
const small = { hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 160, max_position_embeddings: 512,
  vocab_size: 320, rms_norm_eps: 1e-5, rope_theta: 10000, bos_token_id: 1, eos_token_id: 2, tie_word_embeddings: false };
const families = {
  granitemoe: { num_local_experts: 4, num_experts_per_tok: 2, attention_multiplier: 0.25, embedding_multiplier: 2, residual_multiplier: 0.5, logits_scaling: 1.5 },
  apertus: { hidden_act: 'xielu', rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 64 } },
  exaone4: { head_dim: 16, sliding_window: null },
  'exaone4, of 64 layers': { head_dim: 16, sliding_window: 128, sliding_window_pattern: 'LLLG', num_hidden_layers: 64 },
  hunyuan_v1_dense: { head_dim: 32, rope_scaling: { rope_type: 'dynamic', alpha: 50, factor: 1 } },
};
const sameLogits = async (model, file) => {
  const ids = Array.from({ length: 40 }, (_, i) => 3 + i * 37 % 300).join();
  const [a, b] = await Promise.all([model, file].map(async (from, i) => {
    const to = `${file}.${i}.logits`;
    await good(['score', '--model', from, '--ids', ids, '--logits', to, '--compute-dtype', 'f32', '--device', 'cpu']);
    return readTensor(to, 'logits').data;
  }));
  assert.equal(a.length, b.length);
  const off = a.reduce((most, v, i) => Math.max(most, Math.abs(v - b[i])), 0);
  const spread = Math.sqrt(a.reduce((sum, v) => sum + v * v, 0) / a.length);
  assert.ok(spread > 0 && off <= 1e-5 * spread, `the logits differ by ${off / spread}`);
};
for (const [name, more] of Object.entries(families))
  longTest(`a GGUF file is the model of its folder: ${name}`, async (t) => {
    const folder = temporaryFolder(t), config = path.join(folder, 'config.json'), model = path.join(folder, 'm'), out = path.join(folder, 'm.gguf');
    writeFileSync(config, JSON.stringify({ ...small, model_type: name.split(',')[0], ...more }));
    await good(['synth', '--config', config, '--dtype', 'bf16', '--output', model]);
    await good(quantize(out, 'bf16', model));
    await sameLogits(model, out);
  });

// Shapes by layer, and a tokenizer of pieces without scores.
longTest('a GGUF file is the model of its folder: gemma4, with its tokenizer', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'm.gguf'), from = path.join(root, 'tests/fixtures/later/gemma4_e');
  for (const name of ['config.json', 'model.safetensors']) copyFileSync(path.join(from, name), path.join(folder, name));
  const special = ['<pad>', '<eos>', '<bos>', '<unk>', '<|turn>', '<turn|>'], bytes = Array.from({ length: 256 }, (_, i) => `<0x${i.toString(16).toUpperCase().padStart(2, '0')}>`);
  const pieces = ['▁', 'a', 'b', 'h', 'e', 'l', 'o', 'he', 'll', 'hell', 'hello', '▁hello', '▁▁', '\n', '\n\n', '\n\n\n', 'ö'];
  const vocab = Object.fromEntries([...special, ...bytes, ...pieces].map((token, id) => [token, id]));
  const tokenizer = { version: '1.0', added_tokens: special.map((content, id) => ({ id, content, special: true, normalized: false, lstrip: false, rstrip: false, single_word: false })),
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: '▁' }, pre_tokenizer: null, post_processor: null,
    decoder: { type: 'Sequence', decoders: [{ type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'ByteFallback' }, { type: 'Fuse' }] },
    model: { type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true, ignore_merges: false, vocab,
      merges: [['h', 'e'], ['l', 'l'], ['he', 'll'], ['hell', 'o'], ['▁', 'hello'], ['▁', '▁'], ['\n', '\n'], ['\n\n', '\n']] } };
  writeFileSync(path.join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  writeFileSync(path.join(folder, 'tokenizer_config.json'), JSON.stringify({ bos_token: '<bos>', eos_token: '<eos>', add_bos_token: true }));
  await good(quantize(out, 'bf16', folder));
  await sameLogits(folder, out);
  const input = ' hello  hello\n\n\nhello<turn|> ö你 a\n';
  const [source, read] = [await json(['tokenize', '--model', folder], { input }), await json(['tokenize', '--model', out], { input })];
  assert.ok(source.ids.includes(vocab['<turn|>']) && source.ids.includes(vocab['▁hello']));
  assert.deepEqual(read.ids, source.ids);
});

// DeepSeek's models have the tensors of GLM-4.7-Flash's fixture.
for (const [name, more] of Object.entries({
  deepseek_v3: { n_group: 4, topk_group: 2 },
  deepseek_v2: { norm_topk_prob: false, topk_method: 'greedy', scoring_func: 'softmax', routed_scaling_factor: 1 },
}))
  longTest(`a GGUF file is the model of its folder: ${name}`, async (t) => {
    const folder = temporaryFolder(t), out = path.join(folder, 'm.gguf'), from = 'tests/fixtures/later/glm4_moe_lite';
    const mscale = name === 'deepseek_v3' ? 1 : 0.707;
    const { mlp_layer_types: _, rope_parameters: __, norm_topk_prob: ___, ...rest } = JSON.parse(readFileSync(path.join(root, from, 'config.json')));
    writeFileSync(path.join(folder, 'config.json'), JSON.stringify({ ...rest, model_type: name, architectures: [], first_k_dense_replace: 1, moe_layer_freq: 1,
      rope_theta: 10000, ...more, rope_scaling: { type: 'yarn', factor: 40, beta_fast: 32, beta_slow: 1, mscale, mscale_all_dim: mscale, original_max_position_embeddings: 16 } }));
    copyFileSync(path.join(root, from, 'model.safetensors'), path.join(folder, 'model.safetensors'));
    await good(quantize(out, 'bf16', folder));
    await sameLogits(folder, out);
  });

test('what a GGUF file cannot be is said before anything is written', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'm.gguf');
  await refused(quantize(out, 'fp8'), /not fp8/, 2);
  await refused(['quantize', '--model', demo, '--output', path.join(folder, 'm'), '--weight-dtype', 'q8_0'], /--format gguf/, 2);
  await refused(['quantize', '--model', demo, '--format', 'gguf'], /--output is missing: the file to write/, 2);
  await refused(quantize(path.join(folder, 'm.bin'), 'q8_0'), /does not end in \.gguf/);
  await refused(quantize(out, 'q8_0', 'tests/fixtures/models/gpt2'), /models of type 'gpt2' are not written/);
  await refused(quantize(path.join(folder, 'none', 'm.gguf'), 'q8_0'), /No such file or directory/);
  assert.deepEqual(readdirSync(folder), []);
  await good(quantize(out, 'q8_0'));
  await refused(quantize(out, 'q4_0'), /exists already/);
  await refused(quantize(path.join(folder, 'twice.gguf'), 'q4_0', out), /m\.gguf has weights in Q8_0 already; a file is written from floats/);
  assert.deepEqual(readdirSync(folder), ['m.gguf']);
});

longTest('a disk without room leaves no file and says so', async (t) => {
  const folder = temporaryFolder(t), out = path.join(folder, 'm.gguf');
  const wrap = ['sh', '-c', 'trap "" XFSZ; exec prlimit --fsize=5000000 "$@"', 'sh']; // writing past it fails
  const result = await run(quantize(out, 'q8_0'), { wrap });
  assert.equal(result.code, 1);
  assert.match(result.stderr, /cannot write .*m\.partial\.gguf/);
  assert.ok(!existsSync(out));
  assert.deepEqual(readdirSync(folder), []);
});
