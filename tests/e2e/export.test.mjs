// FasterTransformer folders through the program: export writes them, and every command accepts them like any other
// model folder. (tests/golden/test_ft.c checks their logits.)
import assert from 'node:assert/strict';
import { appendFileSync, cpSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, root, Server, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';
import { good, json, run } from './run.mjs';

const fixture = (name) => path.join(root, 'tests/fixtures/models', name);
const ids = '3,14,15,92,65,35,89,79,32,38';

async function bad(args, message) {
  const { code, stdout, stderr } = await run(args);
  assert.deepEqual([code, stdout], [1, ''], `parley ${args.join(' ')}: ${stderr}`);
  assert.match(stderr, /^parley: .+\n$/);
  assert.match(stderr, message);
}
const exported = async (model, output, ranks, more = []) =>
  (await good(['export', '--model', model, '--format', 'ft', '--tensor-parallel', String(ranks), '--output', output, ...more])).trim();

/** A model of GPT-2's family that has words: the demo model's. */
async function wordy(folder) {
  const config = path.join(folder, 'shape.json');
  writeFileSync(config, JSON.stringify({ model_type: 'gpt2', vocab_size: 4096, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 512 }));
  await good(['synth', '--config', config, '--dtype', 'f16', '--out', path.join(folder, 'hf'), '--tokenizer-from', 'configs/demo-model']);
  return path.join(folder, 'hf');
}

longTest('the logits of an export are its source\'s, byte for byte, for every family and number of ranks', async (t) => {
  const folder = temporaryFolder(t);
  const logits = async (model) => {
    const file = path.join(folder, 'logits.safetensors');
    await good(['score', '--model', model, '--ids', ids, '--logits', file]);
    return readFileSync(file);
  };
  for (const family of ['gpt2', 'opt', 'bloom', 'gptj']) {
    const want = await logits(fixture(family));
    for (const ranks of [1, 2, 4]) {
      const written = await exported(fixture(family), path.join(folder, family), ranks);
      assert.equal(written, path.join(folder, family, `${ranks}-gpu`));
      assert.ok(want.equals(await logits(written)), `${family} for ${ranks}`);
    }
    const sum = async (model) => (await json(['score', '--model', model, '--ids', ids, '--weight-dtype', 'int8'])).logprob;
    assert.equal(await sum(path.join(folder, family, '4-gpu')), await sum(fixture(family)), `${family} in 8 bits`);
  }
  await bad(['score', '--model', path.join(folder, 'gpt2'), '--ids', ids], /holds 1-gpu, 2-gpu, 4-gpu: say which, as in .*gpt2\/1-gpu$/m);
});

test('inspect: family, format, ranks, switches, sizes, dtypes, words and memory of a FasterTransformer folder', async (t) => {
  const folder = temporaryFolder(t);
  const hf = await wordy(folder);
  const written = await exported(hf, path.join(folder, 'ft'), 2);
  const report = await json(['inspect', '--model', written, '--json']);
  const source = await json(['inspect', '--model', hf, '--json']);
  assert.deepEqual([report.family, report.format, report.tensor_parallel, report.dtype], ['gpt', 'fastertransformer', 2, 'f16']);
  assert.deepEqual([source.family, source.format, source.tensor_parallel], ['gpt2', 'hugging_face', undefined]);
  for (const key of ['n_params', 'n_layers', 'width', 'n_heads', 'head_dim', 'ffn_width', 'vocab_size', 'max_positions', 'norm', 'norm_eps',
    'positions', 'activation', 'qkv_bias', 'tied_head', 'tokenizer', 'tokenizer_file', 'chat_template_file'])
    assert.deepEqual(report[key], source[key], key);
  assert.equal(path.basename(report.chat_template), path.basename(source.chat_template));
  assert.deepEqual(report.kv_bytes_per_token, source.kv_bytes_per_token);
  assert.deepEqual(report.memory, source.memory);
  assert.deepEqual(report.tensors.dtypes, { f16: { count: report.tensors.count, bytes: report.tensors.bytes } });
  assert.equal(report.tensors.bytes, source.tensors.bytes);
  const text = await good(['inspect', path.join(folder, 'ft')]);
  for (const line of [/^family +gpt$/m, /^format +fastertransformer$/m, /^tensor_parallel +2$/m, /^dtype +f16$/m, /^tokenizer +byte-level BPE/m])
    assert.match(text, line);
});

longTest('an export of a model with words chats: in a terminal, through a server, with its tokenizer beside or around it', async (t) => {
  const folder = temporaryFolder(t);
  const hf = await wordy(folder);
  const written = await exported(hf, path.join(folder, 'ft'), 4);
  const generate = (model) => json(['generate', '--model', model, '--prompt', 'Hello', '--chat', '--max-tokens', '12', '--ignore-eos', '--json']);
  const want = await generate(hf);
  assert.deepEqual(await generate(written), want);
  for (const name of readdirSync(written).filter((file) => /token|chat_template/.test(file)))
    renameSync(path.join(written, name), path.join(folder, 'ft', name));
  assert.deepEqual(await generate(path.join(folder, 'ft')), want);
  assert.deepEqual(await json(['tokenize', '--model', written, '--json'], { input: 'Hello you' }),
    await json(['tokenize', '--model', hf, '--json'], { input: 'Hello you' }));

  const server = await Server.start(t, { model: written, args: unlimited });
  const client = await server.connect();
  assert.equal(client.hello.models[0].name, 'ft', 'the folder around N-gpu names the model');
  const session = await client.open();
  for (const content of ['Hello', 'again']) {
    await client.start(session, content, { sampling: { max_tokens: 5, ignore_eos: true } });
    const done = await client.next((frame) => frame.type === 'turn.done');
    assert.equal(done.usage.output_tokens, 5, JSON.stringify(done.usage));
  }
});

longTest('a conversion of Megatron GPT: a padded vocabulary, vocab.json and merges.txt beside config.ini', async (t) => {
  const folder = temporaryFolder(t);
  const shape = { model_type: 'gpt2', vocab_size: 50257, n_embd: 16, n_layer: 2, n_head: 2, n_positions: 64 };
  const generate = (model) => json(['generate', '--model', model, '--prompt', 'Hello world', '--max-tokens', '10', '--ignore-eos', '--json']);
  writeFileSync(path.join(folder, 'shape.json'), JSON.stringify(shape));
  await good(['synth', '--config', path.join(folder, 'shape.json'), '--dtype', 'f32', '--out', path.join(folder, 'hf'),
    '--tokenizer-from', path.join(root, 'tests/fixtures/text/gpt2')]);
  const want = await generate(path.join(folder, 'hf'));
  const written = await exported(path.join(folder, 'hf'), path.join(folder, 'ft'), 2);
  rmSync(path.join(written, 'tokenizer.json'));
  appendFileSync(path.join(written, 'model.wte.bin'), Buffer.alloc(47 * 16 * 4)); // to 50304 rows, as Megatron pads
  const ini = (vocabulary) => `[gpt]\nmodel_name = gpt\nhead_num = 2\nsize_per_head = 8\ninter_size = 64\nnum_layer = 2\n`
    + `max_pos_seq_len = 64\nvocab_size = ${vocabulary}\nhas_adapters = False\nadapter_inter_size = 0\nlayernorm_eps = 1e-05\n`
    + 'start_id = 50256\nend_id = 50256\nweight_data_type = fp32\ntensor_para_size = 2\n';
  for (const vocabulary of [50304, 50257]) { // its converter says the padded number
    writeFileSync(path.join(written, 'config.ini'), ini(vocabulary));
    const got = await generate(written);
    assert.deepEqual([got.ids, got.text], [want.ids, want.text]);
    assert.equal((await json(['inspect', written, '--json'])).tokenizer_file, 'vocab.json');
  }
});

test('without words: ids work, and what needs text says what is missing', async (t) => {
  const folder = temporaryFolder(t);
  const written = await exported(fixture('opt'), folder, 1);
  assert.equal((await json(['generate', '--model', written, '--ids', '5,6', '--max-tokens', '3', '--ignore-eos', '--json'])).ids.length, 3);
  await bad(['generate', '--model', written, '--prompt', 'Hello'], /has no tokenizer/);
  await bad(['tokenize', '--model', written], /tokenizer\.json/);
  assert.match((await json(['inspect', '--model', written, '--json'])).tokenizer_error, /tokenizer\.json/);
});

longTest('a damaged folder is refused, with the file that is at fault', async (t) => {
  const folder = temporaryFolder(t);
  const whole = await exported(fixture('bloom'), path.join(folder, 'ft'), 2);
  const damaged = path.join(folder, 'damaged', '2-gpu');
  const spoil = async (message, change, commands = [['score', '--ids', ids]]) => {
    mkdirSync(path.dirname(damaged), { recursive: true });
    cpSync(whole, damaged, { recursive: true });
    change(damaged);
    for (const [command, ...more] of commands) await bad([command, '--model', damaged, ...more], message);
    rmSync(damaged, { recursive: true });
  };
  const file = 'model.layers.1.mlp.dense_4h_to_h.weight.1.bin';
  const ini = (from, to) => (at) => writeFileSync(path.join(at, 'config.ini'), readFileSync(path.join(at, 'config.ini'), 'utf8').replace(from, to));
  await spoil(/dense_4h_to_h\.weight\.1\.bin is missing$/m, (at) => rmSync(path.join(at, file)),
    [['score', '--ids', ids], ['inspect'], ['generate', '--ids', ids], ['export', '--output', path.join(folder, 'out')]]);
  await spoil(/dense_4h_to_h\.weight\.1\.bin has 32764 bytes; by config\.ini it must have 32768/, (at) => truncateSync(path.join(at, file), 32764));
  await spoil(/dense_4h_to_h\.weight\.1\.bin has 0 bytes/, (at) => truncateSync(path.join(at, file), 0));
  await spoil(/config\.ini: 'num_layer' is missing in \[gpt\]/, ini(/num_layer=3\n/, ''));
  await spoil(/layers\.3\..* is missing/, ini('num_layer=3', 'num_layer=4'));
  await spoil(/'num_layer' is '-1'/, ini('num_layer=3', 'num_layer=-1'));
  await spoil(/config\.ini:3: a second model_name/, ini('model_name=bloom\n', 'model_name=bloom\nmodel_name=gpt\n'));
  await spoil(/'has_adapters' is not supported/, ini('[gpt]\n', '[gpt]\nhas_adapters=True\n'));
  await spoil(/called 2-gpu/, ini('tensor_para_size=2', 'tensor_para_size=4'));
  await spoil(/none of \[gpt\], \[gptj\], \[gptneox\]; it has \[t5\]/, ini('[gpt]', '[t5]'));
});

test('export refuses what the format cannot hold, and overwrites nothing', async (t) => {
  const folder = temporaryFolder(t);
  const to = ['--output', path.join(folder, 'ft')];
  await bad(['export', '--model', fixture('llama'), ...to], /the family llama is not exported .*gpt2, opt, bloom and gptj are$/m);
  await bad(['export', '--model', fixture('gpt2'), '--tensor-parallel', '3', ...to], /4 heads do not divide by 3/);
  await bad(['export', '--model', fixture('gpt2'), '--dtype', 'int4', ...to], /not fp32, fp16 or bf16/);
  await bad(['export', '--model', path.join(folder, 'nothing'), ...to], /nothing/);
  assert.deepEqual(readdirSync(folder), []);
  const written = await exported(fixture('gpt2'), path.join(folder, 'ft'), 1);
  const before = readdirSync(written).length;
  await bad(['export', '--model', fixture('bloom'), ...to], /1-gpu exists already and is not overwritten/);
  assert.deepEqual(readdirSync(path.join(folder, 'ft')), ['1-gpu']);
  assert.equal(readdirSync(written).length, before);
  for (const args of [['export'], ['export', '--model', fixture('gpt2')], ['export', '--model', fixture('gpt2'), ...to, '--format', 'gguf'],
    ['export', '--model', fixture('gpt2'), ...to, '--tensor-parallel', '0'], ['export', '--model', fixture('gpt2'), ...to, 'extra']]) {
    const { code, stderr } = await run(args);
    assert.equal(code, 2, `${args.join(' ')}: ${stderr}`);
  }
});

longTest('pytorch_model.bin alone: a refusal that says how to convert', async (t) => {
  const folder = temporaryFolder(t);
  cpSync(path.join(fixture('gpt2'), 'config.json'), path.join(folder, 'config.json'));
  writeFileSync(path.join(folder, 'pytorch_model.bin'), 'x');
  for (const args of [['score', '--ids', ids], ['inspect'], ['export', '--output', path.join(folder, 'out')]])
    await bad([args[0], '--model', folder, ...args.slice(1)], /pytorch_model\.bin.*convert it.*save_pretrained\(DIR, safe_serialization=True\)/);
});
