// Tools through OpenAI's own client. allowed_tools: the model sees every tool, so that the conversation's cache stays
// valid, and the answer may call the allowed ones. Custom tools: their input is any text, or matches an expression.
import assert from 'node:assert/strict';
import { few, longTest, Server, shortTest as test, unlimited } from './harness.mjs';
import { clientOf } from './openai_client.mjs';

const model = 'demo-model';
const messages = [{ role: 'system', content: 'You are brief. '.repeat(10) }, { role: 'user', content: 'What is 1 plus 1?' }];
const parameters = { type: 'object', properties: { a: { enum: [1, 2] } }, required: ['a'], additionalProperties: false };
const names = ['add', 'now', 'sub'];
const tools = names.map((name) => ({ type: 'function', function: { name, parameters } }));
const flat = names.map((name) => ({ type: 'function', name, parameters }));
const allow = (mode, ...list) => ({ type: 'allowed_tools', allowed_tools: { mode, tools: list.map((name) => ({ type: 'function', function: { name } })) } });
const allowFlat = (mode, ...list) => ({ type: 'allowed_tools', mode, tools: list.map((name) => ({ type: 'function', name })) });
const says = (name) => `<tool_call>{"name": "${name}", "arguments": {"a": 1}}</tool_call>`;
const start = async (t) => clientOf(await Server.start(t, { args: unlimited }));

longTest('chat completions: allowed_tools', async (t) => {
  const openai = await start(t);
  const create = (more) => openai.chat.completions.create({ model, messages, tools, temperature: 1, max_tokens: 100, ...more });
  const called = ({ choices: [{ message }] }) => (message.tool_calls ?? []).map((call) => call.function.name);
  const first = await create({});
  for (let seed = 0; seed < few(6); seed++) {
    const answer = await create({ seed, tool_choice: allow('required', 'now', 'sub') });
    assert.equal(called(answer).length, 1);
    assert.ok(['now', 'sub'].includes(called(answer)[0]), JSON.stringify(answer.choices[0].message));
    // The prompt is the same as without the choice, and cached, but for the end of its last block.
    assert.equal(answer.usage.prompt_tokens, first.usage.prompt_tokens);
    assert.ok(answer.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 32, JSON.stringify(answer.usage));
  }
  assert.deepEqual(called(await create({ tool_choice: allow('required', 'add') })), ['add']);
  // auto: a call of another tool is text, whole and in pieces.
  assert.deepEqual(called(await create({ tool_choice: allow('auto', 'now'), choice: [says('now')] })), ['now']);
  const refused = await create({ tool_choice: allow('auto', 'now'), choice: [says('add')] });
  assert.deepEqual([refused.choices[0].message.content, refused.choices[0].finish_reason], [says('add'), 'stop']);
  let text = '';
  for await (const chunk of await create({ tool_choice: allow('auto', 'now'), choice: [says('add')], stream: true })) {
    assert.equal(chunk.choices[0]?.delta.tool_calls, undefined);
    text += chunk.choices[0]?.delta.content ?? '';
  }
  assert.equal(text, says('add'));
  const bad = (choice, param) => assert.rejects(create({ tool_choice: choice }), (e) => {
    assert.deepEqual([e.status, e.param], [400, param], e.message);
    return true;
  });
  await bad(allow('auto', 'mul'), 'tool_choice');
  await bad(allow('none', 'now'), 'tool_choice.mode');
  await bad(allow('auto'), 'tool_choice.tools');
  await bad({ type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [{ type: 'web_search' }] } }, 'tool_choice.tools');
  await bad({ type: 'allowed_tools' }, 'tool_choice.mode');
});

test('responses: allowed_tools, and the same items from the record', async (t) => {
  const openai = await start(t);
  const create = (more) => openai.responses.create({ model, input: 'What is 1 plus 1?', tools: flat, max_output_tokens: 100, ...more });
  const calls = ({ output }) => output.filter((item) => item.type === 'function_call').map((item) => item.name);
  const first = await create({});
  const choice = allowFlat('required', 'sub');
  const forced = await create({ tool_choice: choice });
  assert.deepEqual([calls(forced), forced.tool_choice, forced.tools.length], [['sub'], choice, 3]);
  assert.equal(forced.usage.input_tokens, first.usage.input_tokens);
  const again = await openai.responses.retrieve(forced.id);
  assert.deepEqual(again.output, forced.output);
  const next = await create({ previous_response_id: forced.id, tool_choice: allowFlat('required', 'now'),
    input: [{ type: 'function_call_output', call_id: forced.output.find(({ type }) => type === 'function_call').call_id, output: '2' }] });
  assert.deepEqual(calls(next), ['now']);
  assert.ok(next.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 32, JSON.stringify(next.usage));
  await assert.rejects(create({ tool_choice: allowFlat('auto', 'mul') }), (e) => e.status === 400 && e.param === 'tool_choice' && /'mul'/.test(e.message));
});

const note = { name: 'note', description: 'Writes a note.' };
const written = 'a "b"\n\t\\ \u00e9\ud83d\ude00 </tool_call> {';
const calls = (args) => `<tool_call>{"name": "note", "arguments": ${args}}</tool_call>`;
const escaped = '{"input": "a \\"b\\"\\n\\t\\\\ \\u00e9\\ud83d\\ude00 </tool_call> {"}';

test('chat completions: custom tools', async (t) => {
  const openai = await start(t);
  const create = (more) => openai.chat.completions.create({ model, messages, tools: [...tools, { type: 'custom', custom: note }], temperature: 1, max_tokens: 100, ...more });
  const whole = await create({ choice: [calls(escaped)] });
  const [{ message, finish_reason: reason }] = whole.choices;
  assert.equal(reason, 'tool_calls');
  assert.deepEqual(message.tool_calls, [{ id: message.tool_calls[0].id, type: 'custom', custom: { name: 'note', input: written } }]);
  const parts = [];
  for await (const chunk of await create({ choice: [calls(escaped)], stream: true })) parts.push(...(chunk.choices[0]?.delta.tool_calls ?? []));
  assert.deepEqual([parts[0].type, parts[0].custom], ['custom', { name: 'note', input: '' }]);
  assert.equal(parts.map((part) => part.custom.input).join(''), written);
  // Arguments of another form are given as the model wrote them; a function beside it stays one.
  const other = await create({ choice: [calls('{"text": [1]}')] });
  assert.equal(other.choices[0].message.tool_calls[0].custom.input, '{"text": [1]}');
  assert.equal((await create({ choice: [says('add')] })).choices[0].message.tool_calls[0].type, 'function');
  // The call comes back with its result: the session goes on where it was.
  const plain = await create({ choice: [calls('{"input": "plain"}')] });
  const [said] = plain.choices.map((choice) => choice.message);
  const next = await create({ messages: [...messages, said, { role: 'tool', tool_call_id: said.tool_calls[0].id, content: 'written' }], temperature: 0, max_tokens: 8 });
  assert.equal(next.id.slice(0, next.id.lastIndexOf('-')), plain.id.slice(0, plain.id.lastIndexOf('-')));
  assert.ok(next.usage.prompt_tokens_details.cached_tokens >= plain.usage.prompt_tokens + plain.usage.completion_tokens - 32, JSON.stringify([plain.usage, next.usage]));
  // A grammar holds in forced calls.
  const formed = (syntax, definition) => [{ type: 'custom', custom: { ...note, format: { type: 'grammar', grammar: { syntax, definition } } } }];
  for (const choice of ['required', { type: 'custom', custom: { name: 'note' } }]) {
    const forced = await create({ tools: formed('regex', '[a-c]{2,6}|x"y'), tool_choice: choice });
    assert.match(forced.choices[0].message.tool_calls[0].custom.input, /^(?:[a-c]{2,6}|x"y)$/);
  }
  const bad = (more, sentence) => assert.rejects(create(more), (e) => {
    assert.deepEqual([e.status, e.param], [400, 'tools'], e.message);
    assert.match(e.message, sentence);
    return true;
  });
  await bad({ tools: formed('lark', 'start: "a"'), tool_choice: 'required' }, /'lark' is not served here, only regex/);
  await bad({ tools: formed('yacc', 'start: "a"') }, /'yacc' is not served here/);
  // Else the model reads it in the description, and writes what it likes: Codex's apply_patch comes so.
  for (const [syntax, definition] of [['lark', 'start: begin hunk+\nbegin: "*** Begin Patch"'], ['regex', 'a+']]) {
    const described = { ...note, description: `${note.description ? `${note.description}\n` : ''}The input has this form (${syntax}):\n${definition}` };
    const free = await create({ tools: formed(syntax, definition), max_tokens: 2 });
    const alike = await create({ tools: [{ type: 'custom', custom: described }], max_tokens: 2 });
    assert.equal(free.usage.prompt_tokens, alike.usage.prompt_tokens);
    assert.ok(free.usage.prompt_tokens > (await create({ tools: [{ type: 'custom', custom: note }], max_tokens: 2 })).usage.prompt_tokens);
  }
  await bad({ tools: [{ type: 'custom' }] }, /custom tools need/);
});

longTest('responses: custom tools, their events, and the same items from the record', async (t) => {
  const openai = await start(t);
  const custom = { type: 'custom', ...note, format: { type: 'grammar', syntax: 'regex', definition: '[a-c]{2,6} "z"' } };
  const create = (more) => openai.responses.create({ model, input: 'Write.', tools: [...flat, custom], tool_choice: { type: 'custom', name: 'note' }, max_output_tokens: 100, ...more });
  const whole = await create({});
  const item = whole.output.find(({ type }) => type === 'custom_tool_call');
  assert.match(item.input, /^[a-c]{2,6} "z"$/);
  assert.deepEqual([item.name, item.status, item.id.slice(0, 4), item.call_id.slice(0, 5)], ['note', 'completed', 'ctc_', 'call_']);
  assert.deepEqual([whole.tools.at(-1), whole.tool_choice], [custom, { type: 'custom', name: 'note' }]);
  assert.deepEqual((await openai.responses.retrieve(whole.id)).output, whole.output);
  const events = [];
  for await (const event of await create({ stream: true })) events.push(event);
  const of = (type) => events.filter((event) => event.type === type);
  const [done] = of('response.custom_tool_call_input.done');
  assert.match(done.input, /^[a-c]{2,6} "z"$/);
  assert.equal(of('response.custom_tool_call_input.delta').map(({ delta }) => delta).join(''), done.input);
  const added = of('response.output_item.added').at(-1).item;
  assert.deepEqual([added.type, added.name, added.input, added.id], ['custom_tool_call', 'note', '', done.item_id]);
  assert.equal(of('response.completed')[0].response.output.at(-1).input, done.input);
  // The result, behind the response and with the whole conversation.
  const result = { type: 'custom_tool_call_output', call_id: item.call_id, output: [{ type: 'input_text', text: 'written' }] };
  const plain = { tools: [...flat, { type: 'custom', ...note }], tool_choice: 'auto', max_output_tokens: 8 };
  const behind = await create({ ...plain, input: [result], previous_response_id: whole.id });
  assert.ok(behind.usage.input_tokens > whole.usage.input_tokens);
  const { data } = await openai.responses.inputItems.list(behind.id);
  assert.deepEqual([data[0].type, data[0].call_id], ['custom_tool_call_output', item.call_id]);
  const again = await create({ ...plain, input: [{ role: 'user', content: 'Write.' }, ...whole.output, result] });
  assert.ok(again.usage.input_tokens > whole.usage.input_tokens);
});
