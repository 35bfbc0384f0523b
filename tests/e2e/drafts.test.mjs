// draft_tokens over the real wire, on the demo model: sessions with drafts have the answers of sessions without them,
// greedy and drawn, with penalties, log-probabilities and grammars; they replay with equal bits; generate reports how
// many drafts were right.
import assert from 'node:assert/strict';
import path from 'node:path';
import { few, longTest, root, Server, shortTest as test, unlimited } from './harness.mjs';
import { clientOf } from './openai_client.mjs';
import { run } from './run.mjs';

const demo = path.join(root, 'configs/demo-model');
const said = 'The cat sat on the mat. The dog lay by the door. The cat sat on the mat. The dog lay by the door. Say it all again.';

longTest('the same answers with drafts, in a ring that wraps, and equal replays', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--max-sequences', '4'] });
  const settings = [{ temperature: 0 }, { temperature: 1, seed: '3' }, { temperature: 2, top_k: 40, seed: '4', repetition_penalty: 1.1, presence_penalty: 0.2 },
    { temperature: 1, seed: '5', regex: '(The (cat|dog) sat\\. ){6,12}' }, { temperature: 0.7, seed: '6', logprobs: true, top_logprobs: 3, stop: ['door'] }];
  const play = async (name, draft_tokens) => {
    const client = await server.connect();
    const id = await client.open({ session: name, memory_len: 160, sink_len: 4 });
    const turns = [];
    for (let i = 0; i < few(10); i++) {
      const turn = await client.turn(id, said, { sampling: { ...settings[i % settings.length], max_tokens: 60, draft_tokens } });
      turns.push([turn.text, turn.ids, turn.deltas.flatMap((delta) => delta.logprobs ?? []), turn.deltas.flatMap((delta) => delta.top_logprobs ?? []), turn.done.finish_reason]);
    }
    return turns;
  };
  const [plain, ...drafted] = await Promise.all([play('plain', 0), play('one', 1), play('some', 7), play('many', 64)]);
  for (const turns of drafted) assert.deepEqual(turns, plain);
  const checked = await server.metric('parley_engine_draft_tokens_total'), right = await server.metric('parley_engine_accepted_draft_tokens_total');
  assert.ok(right > 0 && right <= checked, `${right} of ${checked}`);
  await server.stop();
  const replayed = await run(['replay', 'some', '--db', server.db, '--model', demo, '--json'], { timeoutMs: 300000 });
  assert.deepEqual(JSON.parse(replayed.stdout).turns.filter((turn) => turn.verdict !== 'equal'), [], replayed.stderr);
});

test('what is out of range is refused; several answers ignore it', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = await server.connect({ malformed: true });
  const id = await client.open({});
  for (const draft_tokens of [-1, 65, 'all']) {
    const refused = await client.start(id, said, { sampling: { draft_tokens } });
    assert.match(refused.message, /draft_tokens/);
  }
  const { text } = await client.turn(id, said, { sampling: { draft_tokens: 8, n: 2, seed: '1', max_tokens: 20 } });
  const other = await client.open({});
  assert.equal((await client.turn(other, said, { sampling: { n: 2, seed: '1', max_tokens: 20 } })).text, text);
});

test('generate counts drafts', async () => {
  const generate = async (...more) => {
    const { code, stdout, stderr } = await run(['generate', '--model', demo, '--prompt', said, '--max-tokens', '80', '--ignore-eos', '--json', ...more]);
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout);
  };
  const plain = await generate(), drafted = await generate('--draft-tokens', '12');
  assert.deepEqual([drafted.ids, drafted.logprobs], [plain.ids, plain.logprobs]);
  assert.equal(plain.drafted_tokens, undefined);
  assert.ok(drafted.accepted_draft_tokens > 0 && drafted.accepted_draft_tokens <= drafted.drafted_tokens, JSON.stringify(drafted));
});

longTest('prediction of a chat completion: the same answer, and how much of it was right', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = clientOf(server);
  const asked = { model: 'demo-model', messages: [{ role: 'user', content: said }], temperature: 0.8, seed: 5, max_tokens: 60 };
  const ask = (fields) => client.chat.completions.create({ ...asked, ...fields });
  const plain = await ask({});
  assert.equal(plain.usage.completion_tokens_details.accepted_prediction_tokens, undefined);
  const text = plain.choices[0].message.content;
  for (const content of [text, [{ type: 'text', text: text.slice(0, 20) }, { type: 'text', text: text.slice(20) }]]) {
    const { choices, usage } = await ask({ prediction: { type: 'content', content } });
    assert.equal(choices[0].message.content, text);
    const { accepted_prediction_tokens: right, rejected_prediction_tokens: wrong } = usage.completion_tokens_details;
    assert.ok(right > usage.completion_tokens / 3 && wrong >= 0, JSON.stringify(usage));
  }
  let streamed = '';
  const stream = await ask({ stream: true, stream_options: { include_usage: true }, prediction: { type: 'content', content: `No. ${text}` } });
  for await (const chunk of stream) streamed += chunk.choices[0]?.delta.content ?? '';
  assert.equal(streamed, text);
  for (const prediction of [{ type: 'text', content: 'a' }, { type: 'content' }, { type: 'content', content: [{ type: 'image' }] }, 'a'])
    await assert.rejects(ask({ prediction }), (error) => error.status === 400 && error.param === 'prediction');
});
