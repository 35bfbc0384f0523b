// A session far longer than its memory: its cache stays within the bound, and every token follows the window rule.
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { Follower } from './follower.mjs';
import { scale, Server, shortIf, unlimited, until } from './harness.mjs';
import { run } from './run.mjs';

const blockTokens = 16, chunk = 32;
const blocks = 512;
const perBlock = blockTokens * 8 * 2 * 2 * 64 * 4; // layers, keys and values, heads, width, f32
const server = await Server.start({ after }, { args: [...unlimited, '--block-tokens', String(blockTokens), '--prefill-chunk-tokens', String(chunk),
  '--kv-cache-bytes', String(blocks * perBlock)] });
const client = await server.connect();
const held = async () => Math.round((await server.metric('parley_engine_kv_cache_usage_ratio')) * blocks);
const words = (n, from) => Array.from({ length: n }, (_, i) => 300 + ((from + i) * 53) % 3700);

for (const [memory_len, sink_len] of scale < 1 ? [[48, 0], [37, 5]] : [[64, 4], [48, 0], [37, 5], [100, 20]]) {
  shortIf(memory_len === 37)(`ten times memory_len ${memory_len} with ${sink_len} sinks`, async () => {
    const base = await held();
    const author = await Follower.open(client, { memory_len, sink_len });
    const log = [];
    const most = []; // blocks held, turn by turn
    const sampling = { temperature: 0, max_tokens: 40, ignore_eos: true, logprobs: true };
    let last;
    for (let turn = 0; log.length < 10 * memory_len; turn++) {
      const input = words(5 + (turn * 31) % 90, log.length);
      const number = await author.start({ ids: input }, { sampling });
      let peak = 0;
      last = await author.wait('the end', async () => {
        peak = Math.max(peak, (await held()) - base);
        return author.turns.get(number)?.done && author.turns.get(number);
      });
      last.before = [...log, ...input];
      log.push(...input, ...last.ids);
      most.push(peak);
      const { session } = await client.ask({ type: 'session.get', session: author.session });
      assert.equal(session.n_tokens, log.length);
      assert.ok(session.cached_tokens <= memory_len, `${session.cached_tokens} of ${memory_len} tokens cached`);
      assert.equal(last.done.cache.source, turn ? 'kept' : 'none');
      assert.ok(last.done.cache.computed_tokens <= input.length + 1, 'only what is new is computed');
    }
    // The window's blocks, a part of one at each end, one chunk of slack, and the sinks'.
    const bound = Math.ceil((memory_len - sink_len + chunk) / blockTokens) + 2 + Math.ceil(sink_len / blockTokens);
    assert.ok(Math.max(...most) <= bound, `${Math.max(...most)} blocks held; the bound is ${bound}`);
    assert.ok((await held()) - base <= bound);
    const generate = ['generate', '--model', 'configs/demo-model', '--compute-dtype', 'auto', '--ids']; // as the server
    const { code, stdout, stderr } = await run([...generate, last.before.join(','), '--max-tokens', '40',
      '--ignore-eos', '--temperature', '0', '--memory-len', String(memory_len), '--sink-len', String(sink_len), '--json']);
    assert.equal(code, 0, stderr);
    const straight = JSON.parse(stdout);
    assert.deepEqual([last.ids, last.logprobs], [straight.ids, straight.logprobs]);
    const unbounded = JSON.parse((await run([...generate, last.before.join(','), '--max-tokens', '40',
      '--ignore-eos', '--temperature', '0', '--json'])).stdout);
    assert.notDeepEqual(last.logprobs, unbounded.logprobs, 'the window makes a difference here');
    await client.ask({ type: 'session.close', session: author.session });
    await until('closing to give every block back', async () => (await held()) === base);
  });
}
