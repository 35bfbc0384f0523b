// Items of an input that are named by their id, as clients send them that let the server keep the conversation.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Server, temporaryFolder, unlimited, until } from './harness.mjs';
import { clientOf, refused, user } from './openai_client.mjs';

const model = 'demo-model';
const reference = (item) => ({ type: 'item_reference', id: item.id });
const itemsOf = async (openai, response) => {
  const items = [];
  for await (const item of openai.responses.inputItems.list(response.id, { order: 'asc' })) items.push(item);
  return items;
};

test('references stand for the items of stored responses', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const ask = { model, seed: 3, max_output_tokens: 8 };
  const first = await openai.responses.create({ ...ask, input: 'Tell me a story.' });
  const [asked] = await itemsOf(openai, first);
  // The next turn, as the words themselves and as references to them.
  const spelled = await openai.responses.create({ ...ask, input: [user('Tell me a story.'), first.output[0], user('And then?')] });
  const named = await openai.responses.create({ ...ask, input: [reference(asked), reference(first.output[0]), user('And then?')] });
  assert.equal(named.output_text, spelled.output_text);
  assert.equal(named.usage.input_tokens, spelled.usage.input_tokens);
  assert.ok(named.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens + first.usage.output_tokens - 1);
  const strip = (items) => items.map(({ id, ...rest }) => rest);
  assert.deepEqual(strip(await itemsOf(openai, named)), strip(await itemsOf(openai, spelled)));

  await t.test('without a type, mixed, and behind what the response continues', async () => {
    const bare = await openai.responses.create({ ...ask, input: [user('Tell me a story.'), { id: first.output[0].id }, user('And then?')] });
    assert.equal(bare.output_text, spelled.output_text);
    const other = await openai.responses.create({ ...ask, input: 'A dog.' });
    const behind = await openai.responses.create({ ...ask, previous_response_id: first.id, input: [reference((await itemsOf(openai, other))[0])] });
    assert.equal((await itemsOf(openai, behind))[0].content[0].text, 'A dog.');
    assert.ok(behind.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens + first.usage.output_tokens - 1);
    const both = await openai.responses.create({ ...ask, input: [reference(other.output[0]), reference(first.output[0]), user('Which?')] });
    assert.deepEqual((await itemsOf(openai, both)).slice(0, 2).map((i) => i.content[0].text), [other.output_text, first.output_text]);
  });

  await t.test('a call and its output', async () => {
    const tools = [{ type: 'function', name: 'add', parameters: { type: 'object', properties: { a: { enum: [1, 2] } }, required: ['a'] } }];
    const called = await openai.responses.create({ ...ask, max_output_tokens: 80, input: 'Add.', tools, tool_choice: { type: 'function', name: 'add' } });
    const call = called.output.find((i) => i.type === 'function_call');
    const output = { type: 'function_call_output', call_id: call.call_id, output: '3' };
    const known = called.output.map(reference);
    const answer = await openai.responses.create({ ...ask, input: [user('Add.'), ...known, output], tools });
    const again = await openai.responses.create({ ...ask, input: [user('Add.'), ...called.output, output], tools });
    assert.equal(answer.output_text, again.output_text);
    assert.equal(answer.usage.input_tokens, again.usage.input_tokens);
    const items = await itemsOf(openai, answer);
    // An item of an input that was itself named there.
    const further = await openai.responses.create({ ...ask, input: [...items.map(reference), user('Thanks.')], tools });
    assert.deepEqual(strip((await itemsOf(openai, further)).slice(0, -1)), strip(items));
  });

  await t.test('items of a conversation, and what was deleted from it', async () => {
    const { id } = await openai.conversations.create({ items: [{ type: 'message', role: 'user', content: 'One.' }] });
    const said = await openai.responses.create({ ...ask, conversation: id, input: 'Two.' });
    const list = (await openai.conversations.items.list(id, { order: 'asc' })).data;
    assert.equal(list.length, 3);
    const used = await openai.responses.create({ ...ask, input: list.map(reference) });
    assert.deepEqual((await itemsOf(openai, used)).map((i) => i.content[0].text), ['One.', 'Two.', said.output_text]);
    for (const item of list) {
      await openai.conversations.items.delete(item.id, { conversation_id: id });
      await refused(openai.responses.create({ ...ask, input: [reference(item)] }), 404, 'item_not_found', 'input');
    }
  });

  await t.test('what is not there, comes twice, or runs', async () => {
    const create = (...input) => openai.responses.create({ ...ask, input: [user('x'), ...input] });
    const session = /^resp_(.*)-0$/.exec(first.id)[1];
    for (const id of ['msg_no-0-0', 'nothing', `msg_${session}-0-7`, `msg_${session}-9-0`, `rs_${session}-0-0`, `msg_${session}-c0`, `msg_${session}-0-i5`, first.id])
      await refused(create({ type: 'item_reference', id }), 404, 'item_not_found', 'input');
    await assert.rejects(create({ type: 'item_reference', id: 'msg_no-0-0' }), /Item with id 'msg_no-0-0' not found/);
    await refused(create({ type: 'item_reference' }), 400, 'invalid_value', 'input[1].id');
    await refused(create(reference(asked), reference(asked)), 400, 'invalid_value', 'input');
    await refused(create(reference(asked), { type: 'message', role: 'user', content: 7 }), 400, 'invalid_value', 'input[2].content');
    await refused(openai.post('/responses/input_tokens', { body: { model, input: [reference(asked)] } }), 400, 'invalid_value', 'input');
    const gone = await openai.responses.create({ ...ask, input: 'y', store: false });
    await until('the response to go', () => create(reference(gone.output[0])).then(() => false, (e) => e.status === 404));
    const background = await openai.responses.create({ ...ask, max_output_tokens: 3000, ignore_eos: true, input: 'z', background: true });
    const runs = { type: 'item_reference', id: background.id.replace('resp_', 'msg_') + '-0' };
    await refused(create(runs), 409, 'response_in_progress', 'input');
    await openai.responses.cancel(background.id);
    const { output } = await openai.responses.retrieve(background.id);
    if (output.length) await create(reference(output[0]));
  });

  await t.test('after kill -9', async () => {
    await server.stop('SIGKILL');
    const again = await Server.start(t, { args: unlimited, db: server.db });
    const after = await clientOf(again).responses.create({ ...ask, input: [reference(asked), reference(first.output[0]), user('And then?')] });
    assert.equal(after.output_text, named.output_text);
  });
});

test('references lead to nothing of other owners', async (t) => {
  const tokens = { alice: 'alice-token-of-thirty-two-characters', bob: 'bob-token-of-thirty-two-characters' };
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''), { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  const [alice, bob] = [clientOf(server, tokens.alice), clientOf(server, tokens.bob)];
  const ask = { model, max_output_tokens: 4 };
  const mine = await alice.responses.create({ ...ask, input: 'A secret.' });
  await alice.responses.create({ ...ask, input: [reference(mine.output[0])] });
  await refused(bob.responses.create({ ...ask, input: [reference(mine.output[0])] }), 404, 'item_not_found', 'input');
});
