// Models that give embeddings and no text: folders of sentence-transformers, whose weights have neither a head nor the prefix "model.".
// Beside each lies the same model with a head, which says what the embeddings must be.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { read, write as writeGguf } from './gguf.mjs';
import { parley, root, Server, temporaryFolder, unlimited } from './harness.mjs';
import { putTogether, takeApart } from './safetensors.mjs';

const demo = path.join(root, 'configs/demo-model');
const shape = { model_type: 'qwen3', architectures: ['Qwen3ForCausalLM'], hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,
  head_dim: 16, max_position_embeddings: 256, rms_norm_eps: 1e-6, vocab_size: JSON.parse(readFileSync(path.join(demo, 'config.json'))).vocab_size, hidden_act: 'silu',
  rope_theta: 10000, tie_word_embeddings: false, torch_dtype: 'float32', attention_bias: false };
const write = (folder, name, json) => writeFileSync(path.join(folder, name), JSON.stringify(json));
const modules = (...types) => types.map((type, idx) => ({ idx, name: `${idx}`, path: type === 'Transformer' ? '' : `${idx}_${type}`, type: `sentence_transformers.models.${type}` }));

/** A model with its head, and a function that makes folders without one of it. */
function models(t) {
  const folder = temporaryFolder(t), whole = path.join(folder, 'whole'), end = '<|im_end|>';
  write(folder, 'shape.json', shape);
  const { status, stderr } = spawnSync(parley, ['synth', '--config', path.join(folder, 'shape.json'), '--dtype', 'f32', '--output', whole, '--tokenizer-from', demo], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  const tokenizer = JSON.parse(readFileSync(path.join(whole, 'tokenizer.json'))), { id } = tokenizer.added_tokens.find(({ content }) => content === end);
  const headless = (name, { pooling, list = modules('Transformer', 'Pooling', 'Normalize'), architecture, ends = true }) => {
    const to = path.join(folder, name);
    cpSync(whole, to, { recursive: true });
    const { header, data } = takeApart(path.join(to, 'model.safetensors'));
    const kept = Object.entries(header).filter(([key]) => key !== '__metadata__' && key !== 'lm_head.weight'), stored = {};
    let at = 0;
    for (const [key, value] of kept) {
      const [from, end] = value.data_offsets;
      stored[key.replace(/^model\./, '')] = { ...value, data_offsets: [at, at += end - from] };
    }
    putTogether(path.join(to, 'model.safetensors'), stored, Buffer.concat(kept.map(([, { data_offsets: [from, end] }]) => data.subarray(from, end))));
    if (architecture) write(to, 'config.json', { ...shape, architectures: [architecture] });
    if (ends) write(to, 'tokenizer.json', { ...tokenizer, post_processor: { type: 'TemplateProcessing', special_tokens: { [end]: { id: end, ids: [id], tokens: [end] } },
      single: [{ Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: end, type_id: 0 } }], pair: [] } });
    if (list) write(to, 'modules.json', list);
    if (pooling) { mkdirSync(path.join(to, '1_Pooling')); write(to, '1_Pooling/config.json', { word_embedding_dimension: 64, ...pooling }); }
    return to;
  };
  return { whole, headless, id };
}

async function serve(t, model, more = []) {
  const server = await Server.start(t, { model, args: [...unlimited, '--device', 'cpu', '--threads', '1', ...more] });
  const post = async (target, body) => { const answer = await fetch(server.url + target, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model: path.basename(model, '.gguf'), ...body }) }); return { status: answer.status, body: await answer.json() }; };
  return { server, post, embed: async (input, more) => (await post('/v1/embeddings', { input, ...more })).body.data[0].embedding };
}

const near = (a, b, what) => { assert.equal(a.length, b.length); a.forEach((x, i) => assert.ok(Math.abs(x - b[i]) < 1e-5, `${what} [${i}]: ${x}, not ${b[i]}`)); };
const length = (v) => Math.sqrt(v.reduce((sum, x) => sum + x * x, 0));
const text = 'The little dog ran to the park.';

test('a folder of sentence-transformers gives embeddings by its own pooling, and no text', async (t) => {
  const { whole, headless, id } = models(t), full = await serve(t, whole);
  const plain = (await full.post('/tokenize', { content: text })).body.tokens, ids = [...plain, id], expected = {};
  for (const pooling of ['last', 'mean', 'first']) expected[pooling] = await full.embed(ids, { pooling });
  assert.notDeepEqual(expected.first, expected.last);
  near(await full.embed(text), await full.embed(plain, { pooling: 'mean' }), 'a model with a head adds nothing, and takes the mean');
  near(expected.first, await full.embed([plain[0]], { pooling: 'last' }), 'the first of many is the last of one');
  await full.server.stop();

  const last = headless('last', { pooling: { pooling_mode_cls_token: false, pooling_mode_mean_tokens: false, pooling_mode_lasttoken: true, include_prompt: true } });
  const { server, post, embed } = await serve(t, last);
  near(await embed(text), expected.last, 'the last token, behind the text');
  near(await embed(ids), expected.last, 'ids as they are');
  near(await embed(text, { pooling: 'mean' }), expected.mean, 'a request may choose');
  assert.equal((await post('/v1/embeddings', { input: text })).body.usage.prompt_tokens, ids.length);
  for (const [target, body] of [['/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }] }], ['/v1/completions', { prompt: 'Hi' }]]) {
    const refused = await post(target, { ...body, max_tokens: 4 });
    assert.ok(refused.status >= 400 && refused.status < 500, `${target}: ${refused.status}`);
    assert.match(JSON.stringify(refused.body), /last is an embedding model: it gives embeddings \(\/v1\/embeddings\) and no text/);
  }
  near(await embed(text), expected.last, 'after the refusals');
  await server.stop();

  const first = await serve(t, headless('first', { pooling: { pooling_mode: 'cls' }, list: modules('Transformer', 'Pooling') }));
  const raw = await first.embed(text);
  assert.ok(Math.abs(length(raw) - 1) > 1e-3, 'not normalised, as modules.json has it');
  near(raw.map((x) => x / length(raw)), expected.first, 'the first token');
  await first.server.stop();

  const bare = headless('bare', { list: null, architecture: 'Qwen3Model', ends: false });
  const { stderr, status } = spawnSync(parley, ['generate', '--model', bare, '--prompt', 'Hi', '--max-tokens', '2', '--device', 'cpu'], { encoding: 'utf8' });
  assert.notEqual(status, 0);
  assert.match(stderr, /bare is an embedding model/);
});

test('what the files of sentence-transformers cannot say is refused by name; without them a head must be there', (t) => {
  const { headless } = models(t);
  const says = (model) => spawnSync(parley, ['generate', '--model', model, '--ids', '5', '--max-tokens', '1', '--device', 'cpu'], { encoding: 'utf8' }).stderr;
  const refused = [
    [{ list: null }, /lm_head/],
    [{ pooling: { pooling_mode_mean_tokens: true }, list: modules('Transformer', 'Pooling', 'Dense') }, /models\.Dense'; known are/],
    [{ pooling: { pooling_mode_max_tokens: true } }, /the pooling 'pooling_mode_max_tokens' is not supported/],
    [{ pooling: { pooling_mode: 'weightedmean' } }, /the pooling 'weightedmean' is not supported/],
    [{ pooling: { pooling_mode_mean_tokens: true, pooling_mode_lasttoken: true } }, /its poolings are 2; known is one/],
    [{}, /1_Pooling\/config\.json: it is missing/],
    [{ list: [{ type: 'x.Pooling', path: '../../etc' }] }, /'path' is no folder's name/],
    [{ list: { a: 1 } }, /modules\.json is no list/],
    [{ list: [{}] }, /a module without a 'type'/],
  ];
  refused.forEach(([options, message], i) => { const model = headless(`m${i}`, options); assert.match(says(model), message); rmSync(model, { recursive: true }); });
});

test('a GGUF file with a pooling_type gives embeddings by it, and no text', async (t) => {
  const { whole, id } = models(t), plain = path.join(path.dirname(whole), 'plain.gguf');
  const made = spawnSync(parley, ['quantize', '--model', whole, '--format', 'gguf', '--weight-dtype', 'bf16', '--output', plain], { encoding: 'utf8' });
  assert.equal(made.status, 0, made.stderr);
  const full = await serve(t, plain), ids = [...(await full.post('/tokenize', { content: text })).body.tokens, id], expected = {};
  for (const pooling of ['mean', 'first', 'last']) expected[pooling] = await full.embed(ids, { pooling });
  await full.server.stop();
  const file = (name, keys) => {
    const contents = read(plain);
    Object.assign(contents.metadata, keys);
    return writeGguf(path.join(path.dirname(whole), `${name}.gguf`), { ...contents, tensors: contents.tensors.filter(({ name: tensor }) => tensor !== 'output.weight') });
  };
  const ends = { 'tokenizer.ggml.add_eos_token': ['bool', true], 'tokenizer.ggml.eos_token_id': ['u32', id] };
  for (const [type, pooling] of [[1, 'mean'], [2, 'first'], [3, 'last']]) {
    const { server, post, embed } = await serve(t, file(pooling, { ...ends, 'qwen3.pooling_type': ['u32', type] }));
    near(await embed(text), expected[pooling], pooling);
    const refused = await post('/v1/completions', { prompt: 'Hi', max_tokens: 4 });
    assert.match(JSON.stringify(refused.body), /is an embedding model: it gives embeddings/);
    await server.stop();
  }
  const says = (name, keys) => spawnSync(parley, ['generate', '--model', file(name, keys), '--ids', '5', '--max-tokens', '1', '--device', 'cpu'], { encoding: 'utf8' });
  assert.equal(says('none', { 'qwen3.pooling_type': ['u32', 0] }).status, 0);
  assert.match(says('rank', { 'qwen3.pooling_type': ['u32', 4] }).stderr, /its pooling_type is 4; known are/);
  assert.match(says('both', { 'qwen3.attention.causal': ['bool', false] }).stderr, /'qwen3\.attention\.causal' is false/);
  assert.match(says('gated', { 'qwen3.expert_gating_func': ['u32', 2] }).stderr, /'qwen3\.expert_gating_func' is 2; known is 1 here/);
});

test('on two ranks the embeddings are those of one', async (t) => {
  const probe = spawnSync(parley, ['generate', '--model', path.join(root, 'tests/fixtures/models/llama'), '--device', 'cpu', '--ids', '5', '--max-tokens', '1', '--tensor-parallel', '2'], { encoding: 'utf8' });
  if (/without MPI/.test(probe.stderr)) return t.skip(probe.stderr);
  const { headless } = models(t), last = headless('last', { pooling: { pooling_mode_cls_token: false, pooling_mode_mean_tokens: false, pooling_mode_lasttoken: true, include_prompt: true } });
  const one = await serve(t, last), expected = await one.embed(text);
  await one.server.stop();
  for (const ranks of [['--tensor-parallel', '2'], ['--pipeline-parallel', '2']]) {
    const { server, embed } = await serve(t, last, ranks);
    near(await embed(text), expected, ranks[0]);
    await server.stop();
  }
});
