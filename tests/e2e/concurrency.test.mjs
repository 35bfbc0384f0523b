// Many sessions at once: each gets the same tokens as alone, and none waits for another's turn to end.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Follower, transcript } from './follower.mjs';
import { few, scale, Server, unlimited } from './harness.mjs';

const sessions = Math.max(8, Math.round(64 * scale));
const sampling = (i) => ({ max_tokens: few(40) + i % 17, ignore_eos: i % 5 !== 0, logprobs: true,
  ...(i % 2 ? { temperature: 0 } : { temperature: 1, top_p: 0.95, top_k: i % 4 ? 0 : 40, seed: String(1000 + i), repetition_penalty: 1 + i / 500 }) });
const lines = ['My name is Zora.', 'Count from 1 to 9.', 'What is the capital of France?', 'Tell me a story.', 'Hello!'];
const say = (follower, i, turn) => follower.start(`${lines[(i + turn) % lines.length]} (${i})`, { sampling: sampling(i + turn) });

test(`${sessions} sessions streaming at once, each as if it were alone`, async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--max-sequences', '64'] });
  const clients = await Promise.all([1, 2, 3, 4].map(() => server.connect()));
  const all = await Promise.all(Array.from({ length: sessions }, (_, i) => Follower.open(clients[i % 4])));
  for (let turn = 0; turn < 2; turn++) {
    await Promise.all(all.map((follower, i) => say(follower, i, turn)));
    await Promise.all(all.map((follower) => follower.done(turn)));
  }
  const wide = await server.metrics(); // steps by how many turns they served
  const bucket = sessions >= 64 ? 20 : 2;
  const narrow = wide.get(`parley_engine_batch_size_bucket{le="${bucket}"}`);
  assert.notEqual(narrow, undefined);
  assert.ok(narrow < wide.get('parley_engine_batch_size_count'), `no step served more than ${bucket} turns`);
  const alone = await Server.start(t, { args: unlimited });
  const client = await alone.connect();
  for (const [i, follower] of all.entries()) {
    const solo = await Follower.open(client);
    for (let turn = 0; turn < 2; turn++) {
      const want = await solo.done(await say(solo, i, turn));
      assert.deepEqual(transcript(follower.turns.get(turn)), transcript(want), `session ${i}, turn ${turn}`);
    }
  }
});

test('more turns than places: they wait, and all end; more than may wait are told to come again', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--max-sequences', '4', '--max-queued-turns', '8'] });
  const client = await server.connect();
  const story = (follower, max_tokens) => follower.start('Tell me a story.', { sampling: { max_tokens, ignore_eos: true } });
  // Turns in all places until the others have their answers, however long the machine takes for those.
  const first = await Promise.all(Array.from({ length: 4 }, () => Follower.open(client)));
  await Promise.all(first.map((follower) => story(follower, 3900)));
  await Promise.all(first.map((follower) => follower.tokens(0, 1)));
  const all = await Promise.all(Array.from({ length: 16 }, () => Follower.open(client)));
  const answers = await Promise.all(all.map((follower) => story(follower, 60).then((turn) => ({ follower, turn }), (error) => error.answer)));
  await Promise.all(first.map((follower) => client.ask({ type: 'turn.cancel', session: follower.session })));
  const refused = answers.filter((answer) => answer.type === 'error');
  assert.ok(refused.length >= 1 && refused.length <= 8, `${refused.length} refused`);
  for (const answer of refused) {
    assert.equal(answer.code, 'overloaded', answer.message);
    assert.ok(answer.retry_after_ms > 0);
  }
  for (const { follower, turn } of answers.filter((answer) => answer.follower))
    assert.equal((await follower.done(turn)).ids.length, 60);
  const again = await all.find((_, i) => answers[i].type === 'error').say('Hello!', { sampling: { max_tokens: 3, ignore_eos: true } });
  assert.equal(again.ids.length, 3);
});

test('a long prefill does not stall the streams beside it', async (t) => {
  const chunk = few(128), prompt = few(3000), streams = 5;
  const server = await Server.start(t, { args: [...unlimited, '--prefill-chunk-tokens', String(chunk)] });
  const client = await server.connect();
  const all = await Promise.all(Array.from({ length: streams }, () => Follower.open(client)));
  for (const follower of all) await follower.start('Tell me a story.', { sampling: { max_tokens: 3900, ignore_eos: true, temperature: 0.9 } });
  await Promise.all(all.map((follower) => follower.tokens(0, 10)));
  const together = async () => { // steps of more turns than the streams
    const metrics = await server.metrics();
    return metrics.get('parley_engine_batch_size_count') - metrics.get(`parley_engine_batch_size_bucket{le="${streams}"}`);
  };
  assert.equal(await together(), 0);
  const late = await Follower.open(await server.connect());
  const ids = Array.from({ length: prompt }, (_, i) => 300 + (i * 17) % 3600);
  await late.done(await late.start({ ids }, { sampling: { max_tokens: 5, ignore_eos: true } }));
  // Each step takes one chunk of the prompt and one token of everybody else. A prompt that was computed in one go, or
  // in steps of its own, would leave but those of its answer. Steps are counted, since a gap in time may be the machine's.
  const steps = Math.floor(prompt / chunk), n = await together();
  assert.ok(n >= steps, `${n} steps of all turns for a prompt of ${steps} chunks`);
  await Promise.all(all.map((follower) => client.ask({ type: 'turn.cancel', session: follower.session })));
});
