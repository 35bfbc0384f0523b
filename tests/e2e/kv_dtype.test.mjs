// A cache of 8 bits over the real program: its loss of accuracy, parked and recomputed sessions, and a replay with
// the recorded number format; unknown formats are refused by name.
import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { Server, sleep, temporaryFolder, unlimited } from './harness.mjs';
import { chat, good, json as jsonOf, run } from './run.mjs';

const demo = 'configs/demo-model';

const json = (args, options) => jsonOf([...args, '--json'], { timeoutMs: 300000, ...options });

test('score --compare-kv: what 8 bits cost, and nothing where both are the same', async () => {
  const score = ['score', '--model', demo, '--text', '-', '--device', 'cpu'];
  const bounds = { int8: { top1: 0.97, kl: 0.0005, rms: 0.02 }, fp8: { top1: 0.9, kl: 0.01, rms: 0.08 } };
  for (const [kv, bound] of Object.entries(bounds)) {
    const cost = await json([...score, '--compare-kv', kv], { input: chat });
    assert.deepEqual([cost.reference.kv_dtype, cost.compared.kv_dtype], ['f32', kv]);
    assert.equal(cost.reference.weight_dtype, cost.compared.weight_dtype);
    const dim = 64, share = (dim + 4) / (4 * dim); // 8 bits and a scale for each head, beside 32
    assert.ok(Math.abs(cost.compared.kv_bytes_per_token / cost.reference.kv_bytes_per_token - share) < 0.01);
    assert.ok(cost.top1_agreement >= bound.top1, `${kv}: top-1 agreement ${cost.top1_agreement}`);
    assert.ok(cost.mean_kl > 0 && cost.mean_kl < bound.kl, `${kv}: KL ${cost.mean_kl}`);
    assert.ok(cost.rms_logit_difference < bound.rms * cost.logit_spread, `${kv}: ${cost.rms_logit_difference / cost.logit_spread}`);
    assert.ok(Math.abs(cost.perplexity_ratio - 1) < 0.05);
  }
  const none = await json([...score, '--kv-dtype', 'int8', '--compare-kv', 'int8'], { input: chat });
  assert.deepEqual([none.top1_agreement, none.max_logit_difference, none.reference.kv_dtype], [1, 0, 'int8']);
  const both = await json([...score, '--compare-kv', 'int8', '--compare-weights', 'int8'], { input: chat });
  assert.deepEqual([both.compared.kv_dtype, both.compared.weight_dtype], ['int8', 'int8']);
  assert.match(await good([...score, '--compare-kv', 'int8'], { input: chat }), /compared .*int8 cache, [\d.]+ kB per token/);
});

test('generate: any chunks, blocks and threads give the same answer with a cache of 8 bits', async () => {
  for (const kv of ['int8', 'fp8']) {
    const generate = ['generate', '--model', demo, '--device', 'cpu', '--kv-dtype', kv, '--prompt', '-', '--max-tokens', '40', '--ignore-eos'];
    const one = await json(generate, { input: chat });
    const other = await json([...generate, '--prefill-chunk-tokens', '5', '--block-tokens', '8', '--threads', '2'], { input: chat });
    assert.equal(one.ids.length, 40);
    assert.deepEqual(other, one);
  }
});

test('serve: sessions are parked and recomputed with 8 bits; a replay is equal, and with another format says so', async (t) => {
  const folder = temporaryFolder(t), db = path.join(folder, 'kv.db');
  const small = ['--kv-dtype', 'int8', '--kv-cache-bytes', '1m', '--host-cache-bytes', '1m', '--prefill-chunk-tokens', '32', '--memory-len', '96'];
  const server = await Server.start(t, { db, args: [...unlimited, ...small, '--device', 'cpu', '--max-sequence-idle-microseconds', '30000'] });
  const bytes = await server.metric('parley_engine_kv_cache_bytes{dtype="int8"}');
  assert.ok(bytes > 0.8 * (1 << 20) && bytes <= 1 << 20, `a cache of ${bytes} bytes`);
  const client = await server.connect();
  const sessions = [];
  for (let i = 0; i < 3; i++) sessions.push(await Follower.open(client, { session: `s${i}`, memory_len: 64 + 8 * i }));
  for (let turn = 0; turn < 3; turn++) {
    await Promise.all(sessions.map((session, i) => session.say(`My name is number ${i}. Tell me a story about ${turn}.`,
      { sampling: { temperature: 0.9, seed: String(10 * i + turn), max_tokens: 20, ignore_eos: true } })));
    await sleep(60); // past the idle clock
  }
  await server.stop();
  const replay = (...more) => run(['replay', 's1', '--db', db, '--model', demo, '--device', 'cpu', '--json', ...more], { timeoutMs: 300000 });
  const same = await replay('--kv-dtype', 'int8');
  assert.equal(same.code, 0, same.stdout);
  assert.ok(JSON.parse(same.stdout).turns.every((turn) => turn.same_instance && / int8 cache/.test(turn.instance)));
  const other = JSON.parse((await replay()).stdout);
  assert.ok(other.turns.every((turn) => !turn.same_instance));
  assert.match(other.instance, / f32 cache/);
});

test('a number format that is not known is refused by its name', async () => {
  for (const args of [['serve', '--kv-dtype', 'int4'], ['generate', '--model', demo, '--ids', '1', '--kv-dtype', 'int4'],
    ['score', '--model', demo, '--ids', '1', '--compare-kv', 'int4'], ['bench', '--model', demo, '--kv-dtype', 'int4']]) {
    const result = await run(args);
    assert.equal(result.code, 2, args.join(' '));
    assert.match(result.stderr, /int4.*fp8.*int8|fp8.*int8.*int4/s, args.join(' '));
  }
});
