// Every family through the server: the tokens that a client gets over the wire equal the reference's, for a session
// of four turns on one cache and under each window.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { root, Server, unlimited } from './harness.mjs';

const families = ['llama', 'mistral', 'qwen2', 'qwen3', 'gpt2', 'gptj', 'gpt_neox', 'bloom', 'opt', 'xglm'];
const models = path.join(root, 'tests/fixtures/models');
const closest = 1e-3; // if the best logit leads by less, another order of additions may choose the second

const reference = (family) => JSON.parse(readFileSync(path.join(models, family, 'golden.json'), 'utf8'));

/** Ids are those wanted; where the reference itself was near a tie, up to a token that was as good. True: all are the same. */
function compare(what, turn, want, gap) {
  const logprobs = turn.deltas.flatMap((delta) => delta.logprobs);
  const alternatives = turn.deltas.flatMap((delta) => delta.top_logprobs);
  assert.equal(turn.ids.length, want.length, `${what}: tokens`);
  assert.deepEqual([logprobs.length, alternatives.length], [want.length, want.length], `${what}: log-probabilities`);
  const at = want.findIndex((id, i) => turn.ids[i] !== id);
  if (at < 0) return true;
  assert.ok(gap < closest, `${what}: token ${at} is ${turn.ids[at]}, not ${want[at]}`);
  const other = alternatives[at].find((token) => token.id === want[at]);
  assert.ok(other && logprobs[at] - other.logprob <= gap + 2 * closest, `${what}: token ${at} was no near tie`);
  return false;
}

for (const family of families) {
  test(family, async (t) => {
    const { turns, windows } = reference(family);
    // Chunks of 8: every prompt but the shortest is prefilled in several.
    const server = await Server.start(t, { model: path.join(models, family),
      args: [...unlimited, '--compute-dtype', 'f32', '--prefill-chunk-tokens', '8', '--block-tokens', '8'] });
    const client = await server.connect();
    const run = (session, ids, n) => client.turn(session, { ids },
      { sampling: { temperature: 0, max_tokens: n, ignore_eos: true, logprobs: true, top_logprobs: 3 } });
    const session = await client.open({ sink_len: 0 });
    let n = 0, compared = 0;
    for (const { context, generated, min_top2_gap } of turns) {
      const turn = await run(session, context, generated.length);
      assert.equal(turn.done.cache.source, n ? 'kept' : 'none');
      assert.equal(turn.done.cache.computed_tokens, context.length + (n ? 1 : 0), 'only what is new is computed');
      if (!compare(`turn ${compared}`, turn, generated, min_top2_gap)) break; // from here on the logs differ
      n += context.length + generated.length;
      compared++;
    }
    assert.ok(compared >= 3, `${compared} turns compared`);
    for (const { memory_len, sink_len, prompt, greedy, min_top2_gap } of windows) {
      const turn = await run(await client.open({ memory_len, sink_len }), prompt, greedy.length);
      compare(`memory_len ${memory_len}, sink_len ${sink_len}`, turn, greedy, min_top2_gap);
    }
    await client.close();
  });
}
