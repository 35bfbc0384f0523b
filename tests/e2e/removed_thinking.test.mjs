// Templates that remove the thinking of earlier answers: the conversation stays one session, whose turns store only what is new.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Server, few, temporaryFolder, unlimited } from './harness.mjs';
import { cached, clientOf, sessionOf, turnOf, user } from './openai_client.mjs';
import { run } from './run.mjs';

const model = 'demo-model';

/** A template that shows the model thinking where `shown`, an expression, holds. */
const template = (shown) => `{{ bos_token }}{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}`
  + `{% for tool in tools or [] %}{{ '<|im_start|>system\n' + tool | tojson + '\nA call is written as <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>\n' }}{% endfor %}`
  + `{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['reasoning_content'] and (${shown}) %}{{ '<think>\n' + m['reasoning_content'] + '\n</think>\n' }}{% endif %}{{ m['content'] }}`
  + `{% for call in m['tool_calls'] or [] %}{{ '<tool_call>{"name": ' + call['function']['name'] | tojson + ', "arguments": ' + call['function']['arguments'] | tojson + '}</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}`
  + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`;

async function start(t, shown, more = {}) {
  const file = path.join(temporaryFolder(t), 'template.jinja');
  writeFileSync(file, template(shown));
  const server = await Server.start(t, { args: [...unlimited, '--chat-template', file], ...more });
  return { server, openai: clientOf(server), parley: await server.connect() };
}
const say = (openai, messages, answer, more = {}) => openai.chat.completions.create({ model, messages, max_tokens: 100, choice: [answer], ...more });
// As most clients give answers back: without the thinking.
const given = ({ role, content, tool_calls }) => ({ role, content, tool_calls });
/** What the two counts of tokens say of a conversation without tools. */
const counts = (server, messages) => {
  const system = messages[0].role === 'system' ? messages[0].content : undefined;
  const asked = { '/v1/messages/count_tokens': { model, system, messages: system ? messages.slice(1) : messages }, '/v1/responses/input_tokens': { model, input: messages } };
  return Promise.all(Object.entries(asked).map(async ([path_, body]) => {
    const answer = await fetch(server.url + path_, { method: 'POST', headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' }, body: JSON.stringify(body) });
    return (await answer.json()).input_tokens;
  }));
};
const pathOf = async (parley, session) => (await parley.request({ type: 'session.get', session, last: 100 })).turns;

test('thinking removed: every turn stores what is new, and the changed part of the answer before is computed', async (t) => {
  const { server, openai, parley } = await start(t, 'false');
  const messages = [{ role: 'system', content: 'You are brief.' }];
  const n = Math.max(4, few(10));
  let before;
  for (let i = 0; i < n; i++) {
    messages.push(user(`Question ${i}`));
    const expected = await counts(server, messages);
    const answer = await say(openai, messages, `<think>\nHm ${i}.\n</think>\nYes ${i}.`);
    assert.deepEqual(expected, [answer.usage.prompt_tokens, answer.usage.prompt_tokens]);
    const { message } = answer.choices[0];
    assert.deepEqual([message.content, message.reasoning_content], [`Yes ${i}.`, `Hm ${i}.`]);
    if (before) assert.equal(sessionOf(answer.id), sessionOf(before.id));
    if (before) assert.ok(cached(answer) >= before.usage.prompt_tokens, `turn ${i}: ${cached(answer)} of ${before.usage.prompt_tokens}`);
    before = answer;
    messages.push(given(message));
  }
  const turns = await pathOf(parley, sessionOf(before.id));
  assert.equal(turns.length, n);
  assert.deepEqual(turns.map((turn) => turn.input.content), Array.from({ length: n }, (_, i) => `Question ${i}`));
  assert.deepEqual(turns.slice(0, -1).map((turn) => turn.text), Array.from({ length: n - 1 }, (_, i) => `Yes ${i}.`));
  // Marked as what they are: no user has written them. The sampled answer is the turn before each.
  assert.deepEqual(turns.map((turn) => turn.branch), [...Array.from({ length: n - 1 }, (_, i) => ({ edited: 2 * i, sent_back: true })), undefined]);
  const [first, ...later] = turns.map((turn) => turn.usage.input_tokens);
  for (const tokens of later) assert.ok(tokens <= first, `${later} behind ${first}`);

  await t.test('what was sampled is still there, beside it', async () => {
    const { sessions } = await parley.request({ type: 'session.list' });
    assert.equal(sessions.length, 1);
    const back = await parley.request({ type: 'session.rewind', session: sessionOf(before.id), turn: 0 });
    assert.ok(back);
    const [sampled] = await pathOf(parley, sessionOf(before.id));
    assert.equal(sampled.text, '<think>\nHm 0.\n</think>\nYes 0.');
  });
  await t.test('it goes on after kill -9, and the record is sound', async () => {
    await server.stop('SIGKILL');
    const again = await start(t, 'false', { db: server.db });
    messages.push(user('Once more'));
    const answer = await say(again.openai, messages, 'Yes.');
    assert.equal(sessionOf(answer.id), sessionOf(before.id));
    const path_ = await pathOf(again.parley, sessionOf(before.id));
    assert.equal(path_.length, n + 1);
    await again.server.stop();
    const doctor = await run(['sessions', 'doctor', '--db', server.db]);
    assert.deepEqual([doctor.code, doctor.stderr], [0, ''], doctor.stdout);
  });
});

test('thinking kept: turns follow each other; the counts know of thinking that the client leaves out', async (t) => {
  const { server, openai, parley } = await start(t, 'true');
  const messages = [];
  let id;
  for (let i = 0; i < 4; i++) {
    messages.push(user(`Question ${i}`));
    const expected = await counts(server, messages);
    const answer = await say(openai, messages, `<think>\nHm ${i}.\n</think>\nYes ${i}.`);
    assert.deepEqual(expected, [answer.usage.prompt_tokens, answer.usage.prompt_tokens]);
    assert.equal(turnOf(answer.id), i);
    id = answer.id;
    messages.push(given(answer.choices[0].message));
  }
  assert.equal((await parley.request({ type: 'session.list' })).sessions.length, 1, 'counting opens no session');
  const turns = await pathOf(parley, sessionOf(id));
  assert.deepEqual(turns.map((turn) => turn.text), [0, 1, 2, 3].map((i) => `<think>\nHm ${i}.\n</think>\nYes ${i}.`));
});

test('thinking kept until the next question: a loop of tool calls is stored once more, not with each turn', async (t) => {
  const { openai, parley } = await start(t, 'loop.index0 > ns.last');
  const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
  const messages = [];
  let id;
  for (let i = 0; i < 3; i++) {
    messages.push(user(`Question ${i}`));
    for (let k = 0; k < 2; k++) {
      const answer = await say(openai, messages, `<think>\nHm ${k}.\n</think>\n<tool_call>{"name": "add", "arguments": {"a": ${k}}}</tool_call>`, { tools });
      const { message } = answer.choices[0];
      assert.equal(message.tool_calls?.length, 1, JSON.stringify(answer));
      if (id) assert.equal(sessionOf(answer.id), sessionOf(id));
      messages.push(given(message), { role: 'tool', tool_call_id: message.tool_calls[0].id, content: String(k) });
    }
    const answer = await say(openai, messages, `<think>\nAh.\n</think>\nIt is ${i}.`, { tools });
    id = answer.id;
    messages.push(given(answer.choices[0].message));
  }
  messages.push(user('Thanks.'));
  const last = await say(openai, messages, 'Bye.', { tools });
  const turns = await pathOf(parley, sessionOf(last.id));
  assert.equal(turns.length, 4, JSON.stringify(turns.map((turn) => [turn.turn, turn.text])));
  const [first, ...later] = turns.map((turn) => turn.usage.input_tokens);
  for (const tokens of later) assert.ok(tokens <= first + 8, `${later} behind ${first}`);
});

test('a session that is busy is forked with its answers', async (t) => {
  const { openai, parley } = await start(t, 'false');
  const messages = [user('One')];
  const one = await say(openai, messages, '<think>\nHm.\n</think>\nYes.');
  messages.push(given(one.choices[0].message), user('Two'));
  const both = await Promise.all([1, 2, 3].map((i) => say(openai, messages, `<think>\nSo ${i}.\n</think>\nNo ${i}, and this is a long answer.`)));
  assert.equal(new Set(both.map((b) => b.id)).size, 3);
  for (const answer of both) {
    const turns = await pathOf(parley, sessionOf(answer.id));
    assert.deepEqual(turns.slice(0, 1).map((turn) => turn.text), ['Yes.']);
  }
});
