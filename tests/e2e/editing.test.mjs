// Answers that a client rewrites, turns that it deletes, and the outline of the tree, over the real socket. An edited
// answer is part of the log like a sampled one; of a deleted turn nothing is left but its number.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { few, longTest, parley, root, Server, shortTest as test, unlimited, until } from './harness.mjs';

const model = path.join(root, 'configs/demo-model');
const greedy = { temperature: 0, max_tokens: 8 };
const state = async (client, id) => client.request({ type: 'session.get', session: id, last: 1000 });
const numbers = (answer) => answer.turns.map((turn) => turn.turn);
const edit = (client, session, turn, text, more = {}) => client.ask({ type: 'turn.edit', session, turn, text, ...more });
const erase = (client, session, turn) => client.request({ type: 'turn.delete', session, turn });
const run = (...args) => String(execFileSync(parley, args, { maxBuffer: 1 << 28 }));
const exported = (server, id) => JSON.parse(run('sessions', 'export', id, '--db', server.db));
const found = async (client, query) => (await client.request({ type: 'session.list', query })).sessions.map((s) => s.id);

async function outline(client, id, limit) {
  const turns = [];
  for (let from = 0; from !== null; ) {
    const page = await client.request({ type: 'session.outline', session: id, from, limit });
    assert.equal(page.type, 'session.outline', JSON.stringify(page));
    turns.push(...page.turns);
    from = page.next;
  }
  return turns;
}

test('an edited answer is a version that the conversation goes on from', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ sampling: greedy });
  const first = await client.turn(id, 'What is my name?');
  const answer = await edit(client, id, 0, 'Your name is Quetzal, as you told me.');
  assert.equal(answer.type, 'session.rewound', JSON.stringify(answer));
  assert.equal(answer.head, 1);
  let now = await state(client, id);
  assert.deepEqual(numbers(now), [1]);
  const [turn] = now.turns;
  assert.deepEqual([turn.text, turn.finish_reason, turn.branch], ['Your name is Quetzal, as you told me.', 'stop', { edited: 0 }]);
  assert.deepEqual([turn.siblings, turn.inputs], [[0, 1], [0, 0]]);
  assert.deepEqual(turn.input, { content: 'What is my name?' });
  assert.equal(turn.timings.decode_ms, 0);
  // The next turn stands on it: its log has the edited tokens, and they are the tokens of those words.
  await client.turn(id, 'And now?');
  now = await state(client, id);
  assert.deepEqual(now.turns.map((one) => one.parent), [null, 1]);
  const file = exported(server, id);
  assert.equal(file.turns[2].log_first, file.turns[1].log_first + file.turns[1].input_ids.length + file.turns[1].ids.length);
  assert.deepEqual(await found(client, 'quetzal'), [id]);
  // The answer of before is as it was.
  await client.request({ type: 'session.rewind', session: id, turn: 0 });
  assert.equal((await state(client, id)).turns[0].text, first.text);

  // A continuation goes on with the words; the same request twice makes one version.
  const again = await edit(client, id, 0, 'The capital of France is', { request_id: 'twice' });
  assert.equal(again.head, 3);
  const twice = await edit(client, id, 0, 'The capital of France is', { request_id: 'twice' });
  assert.deepEqual([twice.type, twice.head, twice.session.n_turns], ['session.rewound', 3, 4]);
  assert.equal((await client.turn(id, { continue: true })).accepted.turn, 4);

  // It was not sampled: a replay says so, alone and with the session.
  const refused = await client.request({ type: 'turn.replay', session: id, turn: 1 });
  assert.deepEqual([refused.type, refused.code], ['error', 'invalid']);
  assert.match(refused.message, /not sampled/);
  const record = await client.request({ type: 'turn.get', session: id, turn: 1 });
  assert.deepEqual([record.build, record.turn.branch], ['', { edited: 0 }]);
  assert.ok(record.tokens.length > 3);
  const replayed = JSON.parse(run('replay', id, '--db', server.db, '--model', model, '--json'));
  assert.deepEqual(replayed.turns.map((one) => one.verdict), ['equal', 'empty', 'equal', 'empty', 'equal']);

  // Restarted, exported, imported and forked it is the same.
  const before = (await state(client, id)).turns.map(({ turn: n, text }) => [n, text]);
  await client.close();
  await server.stop();
  const second = await Server.start(t, { db: server.db });
  const later = await second.connect();
  assert.deepEqual((await state(later, id)).turns.map(({ turn: n, text }) => [n, text]), before);
  const { archive } = await later.request({ type: 'session.export', session: id });
  const imported = await later.request({ type: 'session.import', archive });
  assert.equal(imported.type, 'session.imported', JSON.stringify(imported));
  const fork = await later.request({ type: 'session.fork', session: id, turn: 1 });
  assert.deepEqual((await state(later, fork.session.id)).turns[0].branch, { edited: 0 });
  assert.match(run('sessions', 'doctor', '--db', server.db), /no faults/);
});

longTest('what cannot be edited is refused, a long answer is made by a worker', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ sampling: { ...greedy, ignore_eos: true, max_tokens: 3000, temperature: 1 }, session_len: 600 });
  const refused = async (wanted, ...args) => {
    const answer = await edit(client, id, ...args);
    assert.deepEqual([answer.type, answer.code], ['error', wanted], JSON.stringify(answer));
  };
  await refused('invalid', 0, 'Nothing is there.');
  await client.turn(id, 'Hello.', { sampling: { max_tokens: 4 } });
  await refused('invalid', 0, '');
  await refused('session_full', 0, 'One two three four five six seven. '.repeat(100));
  // Without a pause: the machine may be held up between two sends.
  const [running] = await Promise.all([client.ask({ type: 'turn.start', session: id, input: { content: 'Go on.' } }), refused('session_busy', 0, 'Not now.')]);
  await client.request({ type: 'turn.cancel', session: id });
  await client.next((frame) => frame.type === 'turn.done' && frame.turn === running.turn);
  const long = await client.open();
  await client.turn(long, 'Hello.', { sampling: { max_tokens: 4 } });
  const words = 'one two three four five six seven eight nine ten\n'.repeat(few(120));
  assert.equal((await edit(client, long, 0, words)).head, 1);
  assert.equal((await state(client, long)).turns[0].text, words);
  assert.equal((await client.turn(long, 'And?', { sampling: { max_tokens: 4 } })).accepted.turn, 2);
});

test('a deleted turn takes its branch along, and nothing of it is left', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const watching = await server.connect();
  const id = await client.open({ sampling: greedy });
  await client.turn(id, 'My name is Zora.');
  await client.turn(id, 'The secret is xylophone.');
  await client.turn(id, 'The other secret is marzipan.');
  await client.turn(id, 'Another branch.', { after: 0 }); // turn 3
  const fork = (await client.request({ type: 'session.fork', session: id, turn: 3 })).session.id;
  await watching.request({ type: 'session.get', session: id, attach: true });
  const old = (await state(client, id)).seq;
  assert.deepEqual(await found(client, 'xylophone'), [id]);

  // Off the path: the head stays where it is.
  const gone = await erase(client, id, 1);
  assert.deepEqual([gone.type, gone.head, gone.reason], ['session.rewound', 3, 'deleted'], JSON.stringify(gone));
  assert.equal((await watching.next((frame) => frame.type === 'session.rewound')).reason, 'deleted');
  const now = await state(client, id);
  assert.deepEqual(numbers(now), [0, 3]);
  assert.equal(now.turns[1].siblings, undefined); // it is the only one now
  assert.deepEqual(await found(client, 'xylophone'), []);
  assert.deepEqual(await found(client, 'marzipan'), []);
  for (const type of ['turn.get', 'turn.replay', 'turn.delete', 'session.rewind', 'session.fork', 'turn.regenerate']) {
    const answer = await client.request({ type, session: id, turn: 2 });
    assert.deepEqual([answer.type, answer.code], ['error', 'invalid'], type);
  }
  assert.deepEqual((await outline(client, id)).map((turn) => turn.turn), [0, 3]);
  assert.deepEqual((await state(client, fork)).turns.map((turn) => turn.turn), [0, 1]);

  // A client that comes back from before the turns counts on without them.
  const late = await server.connect();
  const attached = await late.request({ type: 'session.attach', session: id, after: 1 });
  if (!attached.reset) {
    await late.next((frame) => frame.type === 'session.rewound' && frame.reason === 'deleted');
    let seq = 1;
    for (const frame of late.frames.filter((one) => one.seq > 1 && (one.session === id || one.session?.id === id) && one.type !== 'session.attached')) {
      assert.equal(frame.first_seq ?? frame.seq, seq + 1, JSON.stringify(frame));
      seq = frame.seq;
    }
    assert.doesNotMatch(JSON.stringify(late.frames), /xylophone|marzipan/);
  }

  // On the path: the head goes to before it. Numbers are not given again.
  const cut = await erase(client, id, 3);
  assert.equal(cut.head, 0);
  assert.equal((await client.turn(id, 'Once more.')).accepted.turn, 4);
  assert.deepEqual(numbers(await state(client, id)), [0, 4]);
  // The first one: its words leave the title too.
  const all = await client.open();
  await client.turn(all, 'Tell me of pumpernickel.', { sampling: greedy });
  assert.equal((await erase(client, all, 0)).head, null);
  assert.deepEqual([(await state(client, all)).session.title, (await state(client, all)).session.n_tokens], ['', 0]);
  assert.deepEqual(await found(client, 'pumpernickel'), []);
  await client.turn(all, 'Begin anew.', { sampling: greedy });

  // Loaded again, moved to another place, examined: the same tree.
  const file = exported(server, id);
  assert.deepEqual(file.turns.filter((turn) => turn.error_code === 'deleted').map((turn) => turn.turn), [1, 2, 3]);
  assert.doesNotMatch(JSON.stringify(file), /xylophone|marzipan/);
  for (const one of [client, watching, late]) await one.close();
  await server.stop();
  const second = await Server.start(t, { db: server.db });
  const again = await second.connect();
  assert.deepEqual(numbers(await state(again, id)), [0, 4]);
  const back = await again.request({ type: 'session.attach', session: id, after: old - 3 });
  assert.equal(back.type, 'session.attached');
  assert.equal((await again.turn(id, 'Still here?')).accepted.turn, 5);
  const { archive } = await again.request({ type: 'session.export', session: id });
  const imported = await again.request({ type: 'session.import', archive });
  assert.equal(imported.type, 'session.imported', JSON.stringify(imported));
  assert.deepEqual(numbers(await state(again, imported.session.id)), [0, 4, 5]);
  const replayed = JSON.parse(run('replay', id, '--db', server.db, '--model', model, '--json'));
  assert.deepEqual(replayed.turns.filter((turn) => turn.verdict !== 'empty').map((turn) => [turn.turn, turn.verdict]), [[0, 'equal'], [4, 'equal'], [5, 'equal']]);
  const secrets = /xylophone|marzipan|pumpernickel/i;
  const left = () => ['', '-wal', '.tail'].filter((end) => existsSync(server.db + end) && secrets.test(readFileSync(server.db + end, 'latin1')));
  await until('the bytes to be gone', () => left().length === 0).catch(() => assert.deepEqual(left(), []));
  assert.match(run('sessions', 'doctor', '--db', server.db), /no faults/);
});

longTest('while a turn runs nothing of its session is deleted; the outline has every turn', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = await server.connect();
  const id = await client.open({ sampling: greedy });
  const n = few(60);
  await client.turn(id, 'Count with me.');
  for (let i = 1; i < n; i++) await client.turn(id, `Number ${i}.`, { after: i % 7 ? i - 1 : 0, sampling: { max_tokens: 2 } });
  const turns = await outline(client, id, 7);
  assert.deepEqual(turns.map((turn) => turn.turn), Array.from({ length: n }, (_, i) => i));
  assert.deepEqual(turns.map((turn) => turn.parent), turns.map((_, i) => (i === 0 ? null : i % 7 ? i - 1 : 0)));
  assert.equal(turns[5].input_start, 'Number 5.');
  const running = await client.request({ type: 'turn.start', session: id, input: { content: 'Go on.' },
    sampling: { ignore_eos: true, max_tokens: 3000, temperature: 1 } });
  const busy = await erase(client, id, 1);
  assert.deepEqual([busy.type, busy.code], ['error', 'session_busy']);
  await client.request({ type: 'turn.cancel', session: id });
  await client.next((frame) => frame.type === 'turn.done' && frame.turn === running.turn);
  assert.equal((await erase(client, id, 0)).head, null);
  assert.deepEqual(await outline(client, id), []);
  assert.deepEqual(await outline(await server.connect(), (await client.open())), []);
});

longTest("an edited answer keeps the request's sampling, not its protocol's note", async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const answer = await fetch(`${server.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo-model', input: 'What is my name?', temperature: 0, max_output_tokens: 16, metadata: { mark: 'orange' } }),
  });
  const id = /^resp_(.*)-0$/.exec((await answer.json()).id)[1];
  await edit(client, id, 0, 'Your name is Quetzal.');
  const [asked, edited] = exported(server, id).turns.map((turn) => turn.request);
  assert.match(asked.note, /orange/);
  assert.deepEqual(edited, { sampling: asked.sampling, queue: asked.queue });
});

test('a turn that a client writes is a finished turn: the conversation goes on from it', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const write = (session, content, text, more = {}) => client.ask({ type: 'turn.write', session, input: { content }, text, ...more });
  const id = await client.open({ sampling: greedy, system: 'You are brief.' });
  const first = await write(id, 'My name is Zora.', 'Hello, Zora.', { request_id: 'w1' });
  assert.deepEqual([first.type, first.head], ['session.rewound', 0], JSON.stringify(first));
  assert.deepEqual([(await write(id, 'My name is Zora.', 'Hello, Zora.', { request_id: 'w1' })).session.n_turns], [1], 'the same request once more');
  assert.equal((await write(id, 'Where is the marmot?', 'In its burrow.')).head, 1);
  await client.turn(id, 'What is my name?');
  const { turns, session } = await state(client, id);
  assert.deepEqual(turns.map(({ turn, parent, text }) => [turn, parent, text]).slice(0, 2), [[0, null, 'Hello, Zora.'], [1, 0, 'In its burrow.']]);
  assert.deepEqual([turns[0].input, turns[0].branch, turns[0].finish_reason], [{ content: 'My name is Zora.' }, { written: true }, 'stop']);
  assert.deepEqual([session.title, session.n_turns], ['My name is Zora.', 3]);
  assert.deepEqual(await found(client, 'marmot'), [id]);
  // Its tokens are those of the same words in a sampled conversation, and the system prompt is before them.
  const file = exported(server, id);
  const [a, b] = file.turns;
  assert.equal(b.log_first, a.input_ids.length + a.ids.length);
  const other = await client.open({ sampling: greedy, system: 'You are brief.' });
  await client.turn(other, 'My name is Zora.');
  assert.deepEqual(exported(server, other).turns[0].input_ids, a.input_ids);
  assert.equal((await edit(client, other, 0, 'Hello, Zora.')).head, 1);
  assert.deepEqual(exported(server, other).turns[1].ids, a.ids);
  // Elsewhere in the tree, from nothing, and long enough for a worker.
  assert.equal((await write(id, 'Another way?', 'Yes.', { after: 0 })).head, 3);
  assert.equal((await write(id, 'From the beginning.', 'Indeed.', { after: null })).head, 4);
  // In a copy, right behind the turns that it has inherited, be it none.
  for (const turn of [1, null]) {
    const { session: copy } = await client.ask({ type: 'session.fork', session: id, turn });
    assert.equal((await write(copy.id, 'And here?', 'Here too.')).head, turn === null ? 0 : 2);
    const { archive } = await client.ask({ type: 'session.export', session: copy.id });
    const { type, session: again } = await client.ask({ type: 'session.import', archive });
    assert.equal(type, 'session.imported');
    assert.equal((await state(client, again.id)).turns.at(-1).text, 'Here too.');
  }
  const long = await client.open();
  const words = 'one two three four five six seven eight nine ten\n'.repeat(few(120));
  assert.equal((await write(long, 'Count.', words)).head, 0);
  assert.equal((await state(client, long)).turns[0].text, words);
  // A time that the client brings is the turn's and the session's; one in the future is none.
  const old = Date.UTC(2024, 1, 29);
  const dated = await client.open();
  assert.equal((await write(dated, 'When?', 'Long ago.', { created_ms: old })).session.updated_ms, old);
  assert.equal((await state(client, dated)).turns[0].created_ms, old);
  const { sessions } = await client.ask({ type: 'session.list' });
  assert.deepEqual([sessions.at(-1).id, sessions.at(-1).updated_ms], [dated, old], 'the oldest of the list');
  const before = Date.now();
  assert.ok((await write(dated, 'And now?', 'Now.', { created_ms: before + 9e9 })).session.updated_ms - before < 60000);
  // It was not sampled, and no request is half carried out.
  assert.equal((await client.request({ type: 'turn.replay', session: id, turn: 0 })).code, 'invalid');
  for (const [more, code] of [[{ text: '' }, 'invalid'], [{ after: 99 }, 'invalid'], [{ text: 'word '.repeat(6000) }, 'session_full']]) {
    const answer = await write(id, 'x', 'y', more);
    assert.equal(answer.code, code, JSON.stringify(answer));
  }
  const [running, busy] = await Promise.all([
    client.ask({ type: 'turn.start', session: id, input: { content: 'Go on.' }, sampling: { ignore_eos: true, max_tokens: 2000 } }),
    write(id, 'x', 'y'),
  ]);
  assert.equal(busy.code, 'session_busy');
  await client.request({ type: 'turn.cancel', session: id });
  await client.next((frame) => frame.type === 'turn.done' && frame.turn === running.turn);
  const replayed = JSON.parse(run('replay', id, '--db', server.db, '--model', model, '--json'));
  assert.deepEqual(replayed.turns.slice(0, 3).map((one) => one.verdict), ['empty', 'empty', 'equal']);
  await client.close();
  await server.stop();
  assert.match(run('sessions', 'doctor', '--db', server.db), /no faults/);
});
