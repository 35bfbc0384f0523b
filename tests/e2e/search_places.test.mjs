// Where a search has found its words: the turn, and its text around them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Server } from './harness.mjs';

test('a search tells the turn that has most of its words, and the text around them', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ title: 'About music', sampling: { max_tokens: 4, temperature: 0 } });
  await client.turn(id, 'Does the ÖBOE sound like a bagpipe, or is it more like a violin?');
  await client.turn(id, 'I play the theremin and the bagpipe.');
  await client.turn(id, 'Who built the first theremin?');
  const search = async (query, from = client) => (await from.request({ type: 'session.list', query })).sessions;
  const place = async (query) => {
    const [{ found }] = await search(query);
    for (const [i, part] of found.parts.entries()) if (i % 2) assert.ok(part.length > 0);
    return [found.turn, found.parts.filter((_, i) => i % 2), found.parts.join('')];
  };
  assert.deepEqual((await place('theremin')).slice(0, 2), [2, ['theremin']]); // the newest
  assert.deepEqual((await place('theremin bagp')).slice(0, 2), [1, ['theremin', 'bagpipe']]); // has both
  assert.deepEqual((await place('bagpipe first')).slice(0, 2), [1, ['bagpipe']]); // no turn has both
  const [turn, words, text] = await place('oboe');
  assert.deepEqual([turn, words], [0, ['ÖBOE']]);
  assert.ok(text.startsWith('Does the ÖBOE sound like a bagpipe'), text);
  assert.deepEqual((await place('music bagpipe'))[0], 1); // one word in the title
  assert.equal((await search('music'))[0].found, undefined); // all of them there
  assert.equal((await search(''))[0].found, undefined);
  assert.deepEqual(await search('tuba'), []);
  // A fork has the words in turns of its own.
  const copy = (await client.request({ type: 'session.fork', session: id, turn: 0, title: 'A copy' })).session.id;
  const both = await search('oboe');
  assert.deepEqual(both.map((session) => [session.id, session.found.turn]).sort(), [[copy, 0], [id, 0]].sort());
  // A deleted turn is not found any more.
  await client.request({ type: 'turn.delete', session: id, turn: 2 });
  assert.deepEqual((await place('theremin')).slice(0, 2), [1, ['theremin']]);
  await client.close();
});

test('a script without spaces is found by any part of a run, and marked there', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ sampling: { max_tokens: 4, temperature: 0 } });
  for (const text of ['我在北京大学学习物理。', '東京タワーへ行きました。', 'วันนี้อากาศดีมาก']) await client.turn(id, text);
  for (const [query, turn, marks] of [['大学学习', 0, ['大学学习']], ['物理 北京', 0, ['北京', '物理']], ['タワー', 1, ['タワー']],
    ['อากาศ', 2, ['อากาศ']], ['学', 0, ['学', '学']]]) {
    const { sessions } = await client.request({ type: 'session.list', query });
    assert.equal(sessions.length, 1, query);
    assert.equal(sessions[0].found.turn, turn, query);
    assert.deepEqual(sessions[0].found.parts.filter((_, i) => i % 2), marks, query);
  }
  assert.deepEqual((await client.request({ type: 'session.list', query: '大北' })).sessions, []);
  await client.close();
});
