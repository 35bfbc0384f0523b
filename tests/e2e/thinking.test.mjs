// Budgets of thinking, and grammars behind it, over the real wire. The demo model does not think by itself; under a template that opens
// its thinking, it writes free text there until the budget, or the room that its answer needs, ends it. ajv is the oracle of schemas.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { after } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import Ajv from 'ajv/dist/2020.js';
import { few, longTest, parley, patience, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { clientOf, sessionOf } from './openai_client.mjs';
import { shallowDemo } from './shallow.mjs';

const demo = shallowDemo({ after }); // what stands in the thinking is free text of any sense
// As Qwen's: the thinking is opened in the prompt, or closed there, or (lazy) left to the model.
const template = (lazy) => `{{ bos_token }}{% for tool in tools or [] %}{{ '<|im_start|>system\n' + tool | tojson + '\nCalls: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>\n' }}{% endfor %}`
  + `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}{{ (m.content or '') + '<|im_end|>\n' }}{% endfor %}`
  + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}${lazy ? '' : `{% if enable_thinking is not defined or enable_thinking %}{{ '<think>\n' }}{% else %}{{ '<think>\n\n</think>\n\n' }}{% endif %}`}{% endif %}`;
const schema = { type: 'object', properties: { city: { type: 'string', maxLength: 30 }, year: { type: 'integer', minimum: 1900, maximum: 2100 } }, required: ['city', 'year'], additionalProperties: false };
const valid = new Ajv({ strict: false }).compile(schema);
const checkJson = (text, what) => {
  let value;
  try { value = JSON.parse(text); } catch (error) { assert.fail(`${what}: ${error.message}: ${JSON.stringify(text)}`); }
  assert.ok(valid(value), `${what}: ${text}`);
};
const mark = '</think>';
/** The parts of an answer whose thinking was opened by the prompt. */
const parts = (text) => {
  const at = text.indexOf(mark);
  assert.ok(at >= 0, `not closed: ${JSON.stringify(text)}`);
  return { thought: text.slice(0, at), answer: text.slice(at + mark.length) };
};
const free = { temperature: 2, top_p: 1, ignore_eos: true };

async function start(t, lazy = false) {
  const file = path.join(temporaryFolder(t), 'template.jinja');
  writeFileSync(file, template(lazy));
  return { file, server: await Server.start(t, { model: demo, args: [...unlimited, '--chat-template', file] }) };
}

test('a call that ends the thinking, with nothing behind it, is a call: whole, streamed, and from the record', async (t) => {
  const { server } = await start(t, true);
  const openai = clientOf(server);
  const parameters = { type: 'object', properties: { a: { type: 'integer' } } };
  const call = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', said = `<think>I add. ${call}</think>`;
  const ask = { model: 'demo-model', max_tokens: 100, messages: [{ role: 'user', content: 'Add 1.' }], tools: [{ type: 'function', function: { name: 'add', parameters } }], choice: [said] };
  const whole = await openai.chat.completions.create(ask);
  const [{ message, finish_reason }] = whole.choices;
  assert.deepEqual([finish_reason, message.content, message.reasoning_content], ['tool_calls', null, `I add. ${call}`]);
  assert.deepEqual(message.tool_calls.map((one) => [one.function.name, one.function.arguments]), [['add', '{"a": 1}']]);
  let thought = '', passed = '', finish, streamed;
  for await (const { id, choices: [choice] } of await openai.chat.completions.create({ ...ask, stream: true })) {
    streamed = id;
    thought += choice?.delta.reasoning_content ?? '';
    passed += choice?.delta.tool_calls?.[0].function.arguments ?? '';
    finish = choice?.finish_reason ?? finish;
  }
  assert.deepEqual([thought, passed, finish], [`I add. ${call}`, '{"a": 1}', 'tool_calls']);
  // The conversation goes on behind that turn, or behind the other one, which answered alike.
  const next = await openai.chat.completions.create({ ...ask, choice: undefined, max_tokens: 2,
    messages: [...ask.messages, message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: '2' }] });
  assert.ok([whole.id, streamed].map(sessionOf).includes(sessionOf(next.id)), `${next.id} ${whole.id} ${streamed}`);
  // Words behind the call, or behind the thinking, are an answer.
  for (const other of [`<think>Not ${call} so.</think>`, `<think>${call}</think>No.`]) {
    const answer = await openai.chat.completions.create({ ...ask, choice: [other] });
    assert.deepEqual([answer.choices[0].finish_reason, answer.choices[0].message.tool_calls], ['stop', undefined], other);
  }
  const response = await openai.responses.create({ model: 'demo-model', max_output_tokens: 100, input: 'Add 1.', tools: [{ type: 'function', name: 'add', parameters }], choice: [said] });
  assert.deepEqual(response.output.map((item) => item.type), ['reasoning', 'function_call']);
  assert.deepEqual((await openai.responses.retrieve(response.id)).output.map((item) => item.type), ['reasoning', 'function_call']);
});

test('thinking is closed after exactly its budget: alone, with drafts, samples and beams', async (t) => {
  const { server } = await start(t);
  const client = await server.connect();
  const id = await client.open({ sampling: free });
  const again = (sampling) => client.request({ type: 'session.rewind', session: id, turn: null }).then(() => client.turn(id, 'Think.', { sampling }));
  const none = await again({ thinking_budget: 0, max_tokens: 20, seed: '1' });
  assert.ok(none.text.startsWith(`${mark}\n\n`), none.text);
  for (const budget of [1, 2, 7, 30]) {
    const sampling = { thinking_budget: budget, max_tokens: budget + 20, seed: String(budget) };
    const unbound = await again({ ...sampling, thinking_budget: -1 });
    const made = await again(sampling);
    assert.deepEqual(made.ids.slice(0, budget), unbound.ids.slice(0, budget), 'the same thinking');
    const { thought, answer } = parts(made.text);
    assert.ok(unbound.text.startsWith(thought.replace(/\n$/, '').replace(/\ufffd+$/, '')), `${JSON.stringify(thought)} of ${JSON.stringify(unbound.text)}`);
    // A token that is the mark's beginning is completed.
    assert.ok((thought.endsWith('\n') || unbound.text.startsWith(`${thought}<`)) && answer.startsWith('\n\n'), JSON.stringify(made.text));
    const drafted = await again({ ...sampling, draft_tokens: 8 });
    assert.deepEqual(drafted.ids, made.ids, `drafts, budget ${budget}`);
    const sampled = await again({ ...sampling, n: 3 });
    assert.deepEqual(sampled.ids, made.ids, `the first of three, budget ${budget}`);
    await until('the versions', async () => (await client.request({ type: 'session.get', session: id })).turns.at(-1).siblings?.length >= 3);
    const beams = await again({ ...sampling, beam_width: 3, temperature: 1 });
    parts(beams.text);
  }
  const all = JSON.parse(execFileSync(parley, ['sessions', 'export', id, '--db', server.db], { maxBuffer: 1 << 28 })).turns;
  for (const turn of all.filter((one) => one.branch)) parts(turn.text);
  assert.ok(all.filter((one) => one.branch).length >= 8);
});

longTest('replays, a fork, an evicted cache and kill -9 in the midst of thinking', async (t) => {
  const { file, server: first } = await start(t);
  let server = first, client = await server.connect();
  const id = await client.open({ sampling: { ...free, thinking_budget: 60 } });
  await client.turn(id, 'Think.', { sampling: { max_tokens: 90, seed: '1' } });
  await client.turn(id, 'Answer.', { sampling: { json_schema: schema, ignore_eos: false, max_tokens: 120, seed: '2' } });
  const fork = (await client.request({ type: 'session.fork', session: id })).session.id;
  const forked = await client.turn(fork, 'And again.', { sampling: { max_tokens: 90, seed: '3' } });
  parts(forked.text);
  await client.start(id, 'More.', { sampling: { max_tokens: 400, thinking_budget: 350, seed: '4' } });
  await client.next((frame) => frame.type === 'turn.delta' && frame.session === id);
  await server.stop('SIGKILL');
  server = await Server.start(t, { db: server.db, model: demo, args: [...unlimited, '--chat-template', file] });
  client = await server.connect();
  await client.request({ type: 'session.attach', session: id });
  const after = await client.turn(id, 'More.', { sampling: { max_tokens: 90, seed: '5' } });
  parts(after.text);
  await server.stop();
  for (const session of [id, fork]) {
    const replayed = spawnSync(parley, ['replay', session, '--db', server.db, '--model', demo, '--chat-template', file, '--json'], { encoding: 'utf8' });
    assert.equal(replayed.status, 0, replayed.stderr);
    assert.deepEqual(JSON.parse(replayed.stdout).turns.filter((turn) => turn.verdict !== 'equal'), [], replayed.stderr);
  }
});

longTest('turns say that their answer begins inside the thinking: live, on record, continued, copied, after a restart', async (t) => {
  const { file, server: first } = await start(t);
  let server = first, client = await server.connect();
  // No special tokens: thinking ends at one, and which tokens a seed draws depends on the processor's arithmetic.
  const id = await client.open({ sampling: { ...free, logit_bias: { 0: -100, 1: -100, 2: -100 } } });
  const said = async (input, sampling) => {
    const { accepted: { turn } } = await client.turn(id, input, { sampling });
    return client.frames.find((frame) => frame.type === 'turn.started' && frame.turn === turn).thinking;
  };
  const recorded = async (session) => (await client.request({ type: 'session.get', session })).turns.map(({ thinking }) => thinking);
  assert.equal(await said('Think.', { max_tokens: 8, seed: '1' }), true);
  // An answer that was cut off in its thinking goes on inside it; one that was cut off after the closing mark does not.
  assert.equal(await said({ continue: true }, { max_tokens: 20, thinking_budget: 0 }), true);
  assert.equal(await said({ continue: true }, { max_tokens: 4 }), undefined);
  assert.deepEqual(await recorded(id), [true, true, undefined]);
  assert.equal((await client.request({ type: 'turn.get', session: id, turn: 0 })).turn.thinking, true);
  const fork = (await client.request({ type: 'session.fork', session: id })).session.id;
  assert.deepEqual(await recorded(fork), [true, true, undefined]);
  const saved = path.join(path.dirname(file), 'session.json');
  writeFileSync(saved, execFileSync(parley, ['sessions', 'export', id, '--db', server.db]));
  await server.stop('SIGKILL');
  server = await Server.start(t, { model: demo, args: [...unlimited, '--chat-template', file] });
  execFileSync(parley, ['sessions', 'import', saved, '--keep-owner', '--db', server.db]);
  client = await server.connect();
  assert.deepEqual(await recorded(id), [true, true, undefined]);
  await server.stop();
  // A template that leaves the opening to the model.
  client = await (await start(t, true)).server.connect();
  const plain = await client.open({ sampling: { max_tokens: 4 } });
  await client.turn(plain, 'Hello.');
  assert.deepEqual(await recorded(plain), [undefined]);
});

longTest('a written answer stands behind the thinking that the prompt opens', async (t) => {
  const { server } = await start(t);
  const client = await server.connect();
  const id = await client.open();
  const write = async (text) => assert.equal((await client.ask({ type: 'turn.write', session: id, input: { content: 'Hello.' }, text })).type, 'session.rewound');
  await write('Good day.');
  await write(`I greet back.${mark}Good morning.`);
  const { turns } = await client.request({ type: 'session.get', session: id });
  assert.deepEqual(turns.map(({ text, thinking }) => [text, thinking]), [[`\n${mark}\n\nGood day.`, true], [`I greet back.${mark}Good morning.`, true]]);
});

longTest('a grammar holds behind the thinking: every answer is valid at temperature 2, whatever max_tokens is', async (t) => {
  const { server } = await start(t);
  const client = await server.connect();
  const id = await client.open({ sampling: { temperature: 2, top_p: 1 } });
  let short = 0; // that had to end before they were whole
  for (let i = 0; i < few(60); i++) {
    await client.request({ type: 'session.rewind', session: id, turn: null });
    const max_tokens = 12 + i * 3, thinking_budget = i % 3 === 0 ? -1 : (i * 7) % 40;
    const grammar = i % 4 === 3 ? { regex: '(red|green)( [a-z]{1,9}){0,4}' } : { json_schema: schema };
    const sampling = { ...grammar, max_tokens, thinking_budget, seed: String(i), ...(i % 5 === 4 ? { draft_tokens: 4 } : {}) };
    const made = await client.turn(id, 'Where?', { sampling });
    if (made.done.finish_reason === 'length') {
      assert.equal(made.ids.length, max_tokens);
      short++;
      continue;
    }
    assert.equal(made.done.finish_reason, 'eos');
    const { answer } = parts(made.text);
    assert.ok(answer.startsWith('\n\n'), JSON.stringify(made.text));
    if (grammar.regex) assert.match(answer.slice(2), /^(red|green)( [a-z]{1,9}){0,4}$/);
    else checkJson(answer.slice(2), `max_tokens ${max_tokens}, budget ${thinking_budget}`);
  }
  assert.ok(short < few(60) / 2, `${short} ended before they were whole`);
  const { text } = await client.turn(id, 'Where?', { sampling: { json_schema: schema, n: 3, max_tokens: 80, seed: '1' } });
  checkJson(parts(text).answer, 'the first of three');
  const beams = await client.turn(id, 'Where?', { sampling: { json_schema: schema, beam_width: 3, temperature: 1, max_tokens: 80 } });
  checkJson(parts(beams.text).answer, 'beams');
});

longTest('a model that opens the thinking itself may do so before a grammar', async (t) => {
  const { server } = await start(t, true);
  const client = await server.connect();
  const id = await client.open({ sampling: { temperature: 1.5, top_p: 1 } });
  const open = (await client.turn(id, 'Spell it.', { sampling: { choice: ['<think>'], max_tokens: 12 } })).ids;
  const logit_bias = { [open[0]]: 100 }; // '<'
  for (let seed = 0; seed < few(20); seed++) {
    await client.request({ type: 'session.rewind', session: id, turn: null });
    const biased = { json_schema: schema, max_tokens: 60 + seed * 3, seed: String(seed), logit_bias, thinking_budget: 10 };
    const made = await client.turn(id, 'Where?', { sampling: biased });
    assert.ok(made.text.startsWith('<think>'), made.text);
    checkJson(parts(made.text).answer, `seed ${seed}`);
    checkJson((await client.turn(id, 'Where?', { sampling: { ...biased, thinking_budget: 0 } })).text, 'no budget, so no thinking');
    checkJson((await client.turn(id, 'Where?', { sampling: { ...biased, max_tokens: 24 } })).text.replace(/^<think>.*<\/think>/s, ''), 'little room');
  }
  // A grammar that describes the thinking too has its way.
  const whole = await client.turn(id, 'Where?', { sampling: { choice: ['<think>\nHm.\n</think>\n\nHere.'], thinking_budget: 0 } });
  assert.equal(whole.text, '<think>\nHm.\n</think>\n\nHere.');
});

longTest('chat completions: budgets by every name, response_format and a forced call behind thinking', async (t) => {
  const { server } = await start(t);
  const openai = clientOf(server);
  const ask = (more) => openai.chat.completions.create({ model: 'demo-model', messages: [{ role: 'user', content: 'Tell me.' }], temperature: 2, max_tokens: 120, seed: 1, ...more });
  const thought = (made) => made.usage.completion_tokens_details.reasoning_tokens;
  for (const budget of [{ thinking_budget: 10 }, { thinking_token_budget: 10 }, { thinking_budget_tokens: 10 }, { reasoning_budget: 10 }, { reasoning: { max_tokens: 10 } },
    { thinking: { type: 'enabled', budget_tokens: 10 } }]) {
    const made = await ask({ ...budget, ignore_eos: true });
    assert.ok(thought(made) >= 10 && thought(made) <= 16, `${JSON.stringify(budget)}: ${thought(made)}`);
    assert.ok(made.choices[0].message.content.length > 0);
    assert.ok(made.choices[0].message.reasoning_content.length > 0);
  }
  // Clients read the thinking under one of two names, and send it back under that name.
  const { choices: [{ message: both }] } = await ask({ thinking_budget: 10, ignore_eos: true });
  assert.equal(both.reasoning, both.reasoning_content);
  const streamed = { reasoning: '', reasoning_content: '' };
  for await (const { choices: [{ delta }] } of await ask({ thinking_budget: 10, ignore_eos: true, stream: true }))
    for (const name of Object.keys(streamed)) streamed[name] += delta[name] ?? '';
  assert.deepEqual(streamed, { reasoning: both.reasoning, reasoning_content: both.reasoning });
  const tokensWith = async (thinking) => (await ask({ max_tokens: 1, thinking_budget: 0, messages: [{ role: 'user', content: 'Never asked.' },
    { role: 'assistant', content: 'Yes.', ...thinking }, { role: 'user', content: 'And then?' }] })).usage.prompt_tokens;
  const shown = await tokensWith({ reasoning_content: 'Hm, so be it.' });
  assert.equal(await tokensWith({ reasoning: 'Hm, so be it.' }), shown);
  assert.equal(await tokensWith({ reasoning: 'Hm, so be it.', reasoning_content: 'Hm, so be it.' }), shown);
  assert.ok(await tokensWith({ reasoning: null }) < shown);
  for (const off of [{ reasoning_effort: 'none' }, { enable_thinking: false }, { thinking: { type: 'disabled' } }, { thinking_budget: 0 }])
    assert.equal((await ask({ ...off, max_tokens: 20 })).choices[0].message.reasoning_content ?? '', '', JSON.stringify(off));
  for (const bad of [{ thinking_budget: -2 }, { reasoning_budget: 'much' }, { reasoning: { max_tokens: 1.5 } }])
    await assert.rejects(ask(bad), (error) => error.status === 400 && /budget|max_tokens/.test(error.message), JSON.stringify(bad));
  const response_format = { type: 'json_schema', json_schema: { name: 'it', strict: true, schema } };
  for (let seed = 0; seed < few(10); seed++) {
    const { message } = (await ask({ response_format, seed, reasoning_effort: 'low' })).choices[0];
    checkJson(message.content, 'json_schema');
    assert.ok(message.reasoning_content.length > 0);
    checkJson((await ask({ response_format, seed, reasoning_effort: 'none', max_tokens: 40 })).choices[0].message.content, 'without thinking');
  }
  const tools = [{ type: 'function', function: { name: 'visit', parameters: schema } }];
  for (let seed = 0; seed < few(5); seed++) {
    const made = await ask({ tools, tool_choice: 'required', seed, reasoning_effort: 'low', thinking_budget: 20 });
    const [call] = made.choices[0].message.tool_calls;
    assert.deepEqual([made.choices[0].finish_reason, call.function.name], ['tool_calls', 'visit']);
    checkJson(call.function.arguments, 'a forced call');
    assert.ok(thought(made) >= 1);
  }
});

test('responses: thinking that the prompt opens stays thinking in the record', async (t) => {
  const { server } = await start(t);
  const openai = clientOf(server);
  const ask = { model: 'demo-model', input: 'Tell me.', temperature: 2, max_output_tokens: 60, thinking_budget: 10 };
  const itemsOf = ({ output }) => output.map(({ type, content }) => [type, content[0].text]);
  const all = async (stream) => {
    const events = [];
    for await (const event of stream) events.push(event);
    return events;
  };
  for (const more of [{}, { reasoning: { effort: 'low' } }, { instructions: 'Be brief.' }]) {
    let made, seed = 0; // the model has learned to end anywhere
    while (made?.output.length !== 2) made = await openai.responses.create({ ...ask, ...more, seed: ++seed });
    assert.deepEqual(made.output.map(({ type }) => type), ['reasoning', 'message']);
    const read = await openai.responses.retrieve(made.id);
    assert.deepEqual([read.output, read.usage], [made.output, made.usage]);
    const events = await all(await openai.responses.create({ ...ask, ...more, seed, stream: true }));
    assert.deepEqual(await all(await openai.responses.retrieve(events[0].response.id, { stream: true })), events);
    // Other instructions: the conversation is made again from the record, as from the items themselves.
    const rest = { ...ask, seed, input: 'And then?', instructions: 'Tell stories.' };
    const again = await openai.responses.create({ ...rest, previous_response_id: made.id });
    const given = await openai.responses.create({ ...rest, input: [{ role: 'user', content: ask.input }, ...made.output, { role: 'user', content: 'And then?' }] });
    assert.equal(again.usage.input_tokens, given.usage.input_tokens);
    assert.deepEqual(itemsOf(again), itemsOf(given));
  }
  const behind = await all(await openai.responses.create({ ...ask, background: true, stream: true }).then(async (stream) => {
    for await (const event of stream) return openai.responses.retrieve(event.response.id, { stream: true });
  }));
  assert.ok(behind.some(({ type }) => type === 'response.reasoning_text.delta'));
});

longTest('responses: thinking as a summary, which most clients show, and as what they send back', async (t) => {
  const { server } = await start(t);
  const openai = clientOf(server);
  const ask = { model: 'demo-model', input: 'Tell me.', temperature: 2, max_output_tokens: 60, thinking_budget: 10 };
  const all = async (stream) => {
    const events = [];
    for await (const event of stream) events.push(event);
    return events;
  };
  let plain, seed = 0; // the model has learned to end anywhere
  while (plain?.output.length !== 2) plain = await openai.responses.create({ ...ask, seed: ++seed });
  const thought = plain.output[0].content[0].text;
  assert.equal(plain.output[0].encrypted_content, undefined);
  for (const summary of ['auto', 'concise', 'detailed']) {
    const events = await all(await openai.responses.create({ ...ask, seed, reasoning: { summary }, stream: true }));
    const of = (type) => events.filter((event) => event.type === `response.reasoning_summary_${type}`);
    assert.equal(of('text.delta').map(({ delta, summary_index }) => (summary_index === 0 ? delta : '?')).join(''), thought);
    assert.equal(of('text.done')[0].text, thought);
    assert.deepEqual([of('part.added')[0].part, of('part.done')[0].part], [{ type: 'summary_text', text: '' }, { type: 'summary_text', text: thought }]);
    assert.ok(!events.some(({ type }) => type.startsWith('response.reasoning_text')));
    const { response } = events.at(-1);
    const [item] = response.output;
    assert.deepEqual([item.summary, item.content, response.reasoning.summary], [[{ type: 'summary_text', text: thought }], [], summary]);
    assert.deepEqual(await all(await openai.responses.retrieve(response.id, { stream: true })), events, 'from the record');
    assert.deepEqual((await openai.responses.retrieve(response.id)).output, response.output);
  }
  await assert.rejects(openai.responses.create({ ...ask, reasoning: { summary: 'short' } }), (e) => e.status === 400 && e.param === 'reasoning.summary');

  // In every form that a client sends the thinking back in, the model sees it.
  const [{ summary, encrypted_content }] = (await openai.responses.create({ ...ask, seed, include: ['reasoning.encrypted_content'], reasoning: { summary: 'auto' } })).output;
  assert.equal(summary[0].text, thought);
  const tokensOf = async (form) => {
    const input = [{ role: 'user', content: 'Never asked.' }, { type: 'reasoning', ...form }, { role: 'assistant', content: 'Yes.' }, { role: 'user', content: 'And then?' }];
    return (await openai.post('/responses/input_tokens', { body: { model: 'demo-model', input } })).input_tokens;
  };
  const shown = await tokensOf({ summary: [], content: [{ type: 'reasoning_text', text: thought }] });
  for (const form of [{ summary, content: [] }, { summary: [], encrypted_content }, { summary, encrypted_content: 'gAAAAABo' }])
    assert.equal(await tokensOf(form), shown, JSON.stringify(form));
  assert.ok(await tokensOf({ summary: [] }) < shown);
});

test('messages: budget_tokens ends the thinking block', async (t) => {
  const { server } = await start(t);
  const client = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, timeout: patience });
  const ask = { model: 'demo-model', messages: [{ role: 'user', content: 'Tell me.' }], max_tokens: 200, temperature: 2 };
  let made; // the model has learned to end anywhere
  for (let seed = 1; !made || made.content.length < 2; seed++)
    made = await client.messages.create({ ...ask, seed, thinking: { type: 'enabled', budget_tokens: 12 } });
  assert.deepEqual(made.content.map((block) => block.type), ['thinking', 'text']);
  const n = made.usage.output_tokens_details.thinking_tokens;
  assert.ok(n >= 12 && n <= 18, String(n));
  const formed = await client.messages.create({ ...ask, thinking: { type: 'enabled', budget_tokens: 12 }, output_config: { format: { type: 'json_schema', schema } } });
  assert.deepEqual(formed.content.map((block) => block.type), ['thinking', 'text']);
  checkJson(formed.content[1].text, 'output_config.format');
});
