// /v1/conversations and responses in them, by OpenAI's own client on the demo model.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { few, longTest, parley, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { clientOf, refused } from './openai_client.mjs';

const model = 'demo-model';
const ask = { model, seed: 3, max_output_tokens: few(8) };
const all = async (page) => {
  const items = [];
  for await (const item of page) items.push(item);
  return items;
};
const words = (item) => item.content?.[0]?.text ?? item.output ?? item.arguments;
const message = (role, content) => ({ type: 'message', role, content });

test('a conversation is made, read, changed and deleted', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const made = await openai.conversations.create({ metadata: { topic: 'dogs' }, items: [message('user', 'Hello!')] });
  assert.match(made.id, /^conv_[0-9a-f]{32}$/);
  assert.deepEqual([made.object, made.metadata, typeof made.created_at], ['conversation', { topic: 'dogs' }, 'number']);
  assert.deepEqual(await openai.conversations.retrieve(made.id), made);
  const changed = await openai.conversations.update(made.id, { metadata: { topic: 'cats', more: '1' } });
  assert.deepEqual(changed.metadata, { topic: 'cats', more: '1' });
  assert.deepEqual((await all(openai.conversations.items.list(made.id))).map(words), ['Hello!']);
  await server.stop('SIGKILL');
  const again = await Server.start(t, { args: unlimited, db: server.db });
  const after = clientOf(again);
  assert.deepEqual(await after.conversations.retrieve(made.id), changed);
  assert.deepEqual((await all(after.conversations.items.list(made.id))).map(words), ['Hello!']);
  assert.deepEqual(await after.conversations.delete(made.id), { id: made.id, object: 'conversation.deleted', deleted: true });
  await refused(after.conversations.retrieve(made.id), 404, 'conversation_not_found');
  await refused(after.conversations.delete(made.id), 404, 'conversation_not_found');
  const empty = await after.conversations.create();
  assert.deepEqual(empty.metadata, {});
  assert.deepEqual(await all(after.conversations.items.list(empty.id)), []);
});

test('items: order, pages, one by one', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const { id } = await openai.conversations.create({ items: [message('system', 'Be kind.'), message('user', 'one')] });
  const added = await openai.conversations.items.create(id, { items: [
    message('assistant', 'two'),
    { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{"at":1}' },
    { type: 'function_call_output', call_id: 'c1', output: 'three' }] });
  assert.deepEqual([added.object, added.has_more, added.first_id, added.last_id], ['list', false, added.data[0].id, added.data[2].id]);
  assert.deepEqual(added.data.map((i) => [i.type, i.status, words(i)]),
    [['message', 'completed', 'two'], ['function_call', 'completed', '{"at":1}'], ['function_call_output', 'completed', 'three']]);
  assert.equal(added.data[0].content[0].type, 'output_text');
  const order = ['Be kind.', 'one', 'two', '{"at":1}', 'three'];
  assert.deepEqual((await all(openai.conversations.items.list(id, { order: 'asc' }))).map(words), order);
  assert.deepEqual((await all(openai.conversations.items.list(id))).map(words), [...order].reverse());
  for (const limit of [1, 2, 3]) {
    for (const way of ['asc', 'desc']) {
      const page = await openai.conversations.items.list(id, { limit, order: way });
      assert.equal(page.data.length, limit);
      assert.equal(page.has_more, true);
      assert.deepEqual((await all(openai.conversations.items.list(id, { limit, order: way }))).map(words), way === 'asc' ? order : [...order].reverse());
    }
  }
  const ids = (await all(openai.conversations.items.list(id, { order: 'asc' }))).map((i) => i.id);
  assert.equal(new Set(ids).size, 5);
  assert.deepEqual(await openai.conversations.items.retrieve(ids[2], { conversation_id: id }), added.data[0]);
  const left = await openai.conversations.items.delete(ids[1], { conversation_id: id });
  assert.equal(left.id, id);
  await refused(openai.conversations.items.retrieve(ids[1], { conversation_id: id }), 404, 'item_not_found');
  assert.deepEqual((await all(openai.conversations.items.list(id, { order: 'asc' }))).map((i) => i.id), ids.filter((_, i) => i !== 1));
  // Requests at the same time all count.
  await Promise.all([...Array(6).keys()].map((i) => openai.conversations.items.create(id, { items: [message('user', `at once ${i}`)] })));
  assert.equal((await all(openai.conversations.items.list(id))).length, 10);
});

longTest('responses in a conversation', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const { id } = await openai.conversations.create({ items: [message('system', 'You tell stories.')] });
  const first = await openai.responses.create({ ...ask, conversation: id, input: 'Tell me a story.' });
  assert.deepEqual(first.conversation, { id });
  assert.equal(first.id, id.replace('conv_', 'resp_') + '-0');
  const items = await all(openai.conversations.items.list(id, { order: 'asc' }));
  assert.deepEqual(items.map((i) => [i.role, words(i)]), [['system', 'You tell stories.'], ['user', 'Tell me a story.'], ['assistant', first.output_text]]);
  assert.equal(items[2].id, first.output[0].id);
  assert.deepEqual(await openai.conversations.items.retrieve(items[2].id, { conversation_id: id }), first.output[0]);

  const same = await openai.responses.create({ ...ask, input: [message('system', 'You tell stories.'), message('user', 'Tell me a story.')] });
  assert.equal(same.output_text, first.output_text, 'the model sees the same');
  assert.equal(same.usage.input_tokens, first.usage.input_tokens);

  await t.test('the next one computes what is new', async () => {
    const next = await openai.responses.create({ ...ask, conversation: { id }, input: 'And then?' });
    assert.equal(next.usage.input_tokens_details.cached_tokens, first.usage.input_tokens + first.usage.output_tokens - 1);
    const third = await openai.responses.create({ ...ask, conversation: id, input: 'Why?' });
    assert.equal(third.usage.input_tokens_details.cached_tokens, next.usage.input_tokens + next.usage.output_tokens - 1);
    assert.equal((await all(openai.conversations.items.list(id, { limit: 2 }))).length, 7);
  });
  await t.test('what is added and deleted between is what the model sees', async () => {
    await openai.conversations.items.create(id, { items: [message('user', 'A cat comes.'), message('assistant', 'Good.')] });
    const now = await all(openai.conversations.items.list(id, { order: 'asc' }));
    await openai.conversations.items.delete(now[2].id, { conversation_id: id });
    const seen = now.filter((_, i) => i !== 2);
    const got = await openai.responses.create({ ...ask, conversation: id, input: 'Go on.' });
    const alone = await openai.responses.create({ ...ask, input: [...seen, message('user', 'Go on.')] });
    assert.equal(got.usage.input_tokens, alone.usage.input_tokens);
    assert.equal(got.output_text, alone.output_text);
    assert.deepEqual((await all(openai.conversations.items.list(id, { order: 'asc' }))).map((i) => i.id),
      [...seen.map((i) => i.id), got.output[0].id.replace(/-0$/, '-i0'), got.output[0].id]);
  });
  await t.test('instructions count for one response', async () => {
    const brief = await openai.responses.create({ ...ask, conversation: id, instructions: 'Be brief.', input: 'End.' });
    assert.equal(brief.instructions, 'Be brief.');
    assert.equal((await all(openai.conversations.items.list(id, { order: 'asc' }))).at(-1).id, brief.output[0].id);
  });
  await t.test('a conversation is locked while a response is under way', async () => {
    const long = { ...ask, max_output_tokens: few(2000), ignore_eos: true, conversation: id, input: 'Tell me a long story.' };
    // Two at the same time; where one has ended before the other began, once more.
    await until('a refusal', async () => {
      const { id: other } = await openai.conversations.create();
      const both = await Promise.allSettled([0, 1].map(() => openai.responses.create({ ...long, conversation: other })));
      const refusals = both.filter((r) => r.status === 'rejected').map((r) => [r.reason.status, r.reason.code, r.reason.param]);
      if (refusals.length > 0) assert.deepEqual(refusals, [[409, 'conversation_locked', 'conversation']]);
      return refusals.length > 0;
    });
  });
  await t.test('it is the session in the page, and previous_response_id goes on from it', async () => {
    const parley = await server.connect();
    const state = await parley.request({ type: 'session.get', session: id.slice(5) });
    assert.ok(state.turns.length > 0);
    const on = await openai.responses.create({ ...ask, previous_response_id: first.id, input: 'And then?' });
    assert.equal(on.conversation, null);
    assert.ok(on.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens);
    await refused(openai.responses.create({ ...ask, previous_response_id: first.id, instructions: 'No.', input: 'x' }), 400, 'invalid_value', 'previous_response_id');
  });
});

longTest('what is wrong is refused by name', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const openai = clientOf(server);
  const { id } = await openai.conversations.create();
  await refused(openai.conversations.retrieve('conv_0'), 404, 'conversation_not_found');
  await refused(openai.conversations.retrieve('nothing'), 404, 'conversation_not_found');
  await refused(openai.conversations.create({ metadata: { a: 1 } }), 400, 'invalid_value', 'metadata');
  await refused(openai.conversations.create({ items: 'x' }), 400, 'invalid_value', 'items');
  await refused(openai.conversations.create({ items: Array(21).fill(message('user', 'x')) }), 400, 'invalid_value', 'items');
  await refused(openai.conversations.create({ items: [{ type: 'image', url: 'x' }] }), 400, 'unsupported', 'items[0].type');
  await refused(openai.conversations.create({ model: 'gpt-9' }), 404, 'model_not_found', 'model');
  await refused(openai.conversations.update(id, {}), 400, 'invalid_value', 'metadata');
  await refused(openai.conversations.items.create(id, {}), 400, 'invalid_value', 'items');
  await refused(openai.conversations.items.create('conv_0', { items: [] }), 404, 'conversation_not_found');
  await refused(openai.conversations.items.create(id, { items: [message('user', 'x'.repeat(300000))] }), 400, 'limit_reached');
  await refused(openai.conversations.items.list(id, { limit: 0 }), 400, 'invalid_value', 'limit');
  await refused(openai.conversations.items.list(id, { order: 'up' }), 400, 'invalid_value', 'order');
  await refused(openai.conversations.items.list(id, { after: 'msg_x-1-0' }), 400, 'invalid_value', 'after');
  await refused(openai.conversations.items.retrieve('msg_no', { conversation_id: id }), 404, 'item_not_found');
  await refused(openai.conversations.items.delete(`msg_${id.slice(5)}-c7`, { conversation_id: id }), 404, 'item_not_found');
  const response = await openai.responses.create({ ...ask, input: 'x' });
  await refused(openai.conversations.retrieve(response.id.replace('resp_', 'conv_').replace(/-0$/, '')), 404, 'conversation_not_found');
  await refused(openai.responses.create({ ...ask, input: 'x', conversation: 'conv_0' }), 404, 'conversation_not_found', 'conversation');
  await refused(openai.responses.create({ ...ask, input: 'x', conversation: 'dogs' }), 404, 'conversation_not_found', 'conversation');
  await refused(openai.responses.create({ ...ask, input: 'x', conversation: 7 }), 400, 'invalid_value', 'conversation');
  await refused(openai.responses.create({ ...ask, input: 'x', conversation: id, previous_response_id: response.id }), 400, 'invalid_value', 'conversation');
  await refused(openai.responses.create({ ...ask, input: 'x', conversation: id, store: false }), 400, 'invalid_value', 'conversation');
  for (const [method, path] of [['put', `/conversations/${id}`], ['post', `/conversations/${id}/items/msg_x`], ['get', `/conversations/${id}/nothing`], ['get', '/conversations']])
    await assert.rejects(openai[method](path), (e) => e.status === 404 || e.status === 405);
  const bad = await fetch(`${server.url}/v1/conversations`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"metadata":' });
  assert.equal(bad.status, 400);
  assert.equal((await bad.json()).error.code, 'invalid_json');
});

test('a conversation belongs to its owner', async (t) => {
  const tokens = { ann: 'ann-token-of-thirty-two-characters', bob: 'bob-token-of-thirty-two-characters' };
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''), { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  const of = (name) => clientOf(server, tokens[name]);
  const { id } = await of('ann').conversations.create({ items: [message('user', 'mine')] });
  await refused(of('bob').conversations.retrieve(id), 404, 'conversation_not_found');
  await refused(of('bob').conversations.update(id, { metadata: {} }), 404, 'conversation_not_found');
  await refused(all(of('bob').conversations.items.list(id)), 404, 'conversation_not_found');
  await refused(of('bob').conversations.items.create(id, { items: [message('user', 'x')] }), 404, 'conversation_not_found');
  await refused(of('bob').conversations.delete(id), 404, 'conversation_not_found');
  await refused(of('bob').responses.create({ ...ask, input: 'x', conversation: id }), 404, 'conversation_not_found', 'conversation');
  assert.equal((await all(of('ann').conversations.items.list(id))).length, 1);
});

longTest('an exported conversation goes on where it is imported', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const { id } = await clientOf(server).conversations.create({ metadata: { a: 'b' }, items: [message('system', 'Be kind.')] });
  await clientOf(server).responses.create({ ...ask, conversation: id, input: 'Tell me a story.' });
  const items = await all(clientOf(server).conversations.items.list(id));
  await server.stop();
  const file = execFileSync(parley, ['sessions', 'export', id.slice(5), '--db', server.db]);
  const db = path.join(temporaryFolder(t), 'other.db');
  execFileSync(parley, ['sessions', 'import', '-', '--keep-owner', '--db', db], { input: file });
  const other = clientOf(await Server.start(t, { args: unlimited, db }));
  assert.deepEqual((await other.conversations.retrieve(id)).metadata, { a: 'b' });
  assert.deepEqual(await all(other.conversations.items.list(id)), items);
  assert.equal((await other.responses.create({ ...ask, conversation: id, input: 'And then?' })).conversation.id, id);
});
