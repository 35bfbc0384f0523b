// A session is a tree: rewind, regenerate, edit, continue and fork, over the real socket. Afterwards the log is the
// current path, nothing is lost, and the next tokens are those of a fresh session with that log.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Follower, transcript } from './follower.mjs';
import { few, isWellFormed, longTest, parley, root, Server, shortTest as test, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

const model = path.join(root, 'configs/demo-model');
const greedy = { temperature: 0, max_tokens: 8 };

/** The ids of the path in use, as export has them. */
function logOf(server, id) {
  const file = JSON.parse(execFileSync(parley, ['sessions', 'export', id, '--db', server.db], { maxBuffer: 1 << 28 }));
  const ids = [];
  for (let turn = file.session.head; turn >= 0; turn = file.turns[turn].parent)
    ids.unshift(...file.turns[turn].input_ids, ...file.turns[turn].ids);
  assert.equal(ids.length, file.session.n_tokens);
  return ids;
}

/** What a fresh session with the same log says next, greedily; sizes as the session's. */
async function freshAnswer(client, ids, sizes = {}, n = 6) {
  const id = await client.open(sizes);
  const { ids: answer } = await client.turn(id, { ids }, { sampling: { temperature: 0, max_tokens: n, ignore_eos: true } });
  await client.request({ type: 'session.close', session: id, delete: true });
  return answer;
}
async function nextAnswer(client, id, input, n = 6) {
  return (await client.turn(id, input, { sampling: { temperature: 0, max_tokens: n, ignore_eos: true } })).ids;
}
const state = async (client, id) => client.request({ type: 'session.get', session: id });
const rewind = async (client, id, turn, more = {}) => client.request({ type: 'session.rewind', session: id, turn, ...more });

test('versions of a message, and the way between them', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ system: 'Be brief.', sampling: greedy });
  const first = await client.turn(id, 'My name is Zora.');
  await client.turn(id, 'What is my name?');
  // Editing the second message: the same parent, other words.
  const edited = await client.turn(id, 'What is the capital of France?', { after: 0 });
  assert.equal(edited.accepted.turn, 2);
  const events = client.frames.filter((frame) => frame.session === id || frame.session?.id === id);
  const rewound = events.findIndex((frame) => frame.type === 'session.rewound');
  assert.equal(events[rewound].head, 0);
  assert.equal(events[rewound].session.head, 0);
  const started = events.find((frame) => frame.type === 'turn.started' && frame.turn === 2);
  assert.equal(started.parent, 0);
  assert.equal(started.seq, events[rewound].seq + 1);

  let now = await state(client, id);
  assert.deepEqual(now.turns.map((turn) => turn.turn), [0, 2]);
  assert.deepEqual(now.turns.map((turn) => turn.parent), [null, 0]);
  assert.deepEqual([now.turns[1].siblings, now.turns[1].inputs], [[1, 2], [0, 1]]); // two messages
  assert.equal(now.turns[0].siblings, undefined);
  assert.deepEqual([now.session.head, now.session.below], [2, false]);
  assert.equal(now.session.n_turns, 3);

  // Another answer to the first message, then back to the newest turn of the other branch.
  const again = await client.request({ type: 'turn.regenerate', session: id, turn: 0, sampling: { temperature: 1, seed: '5' } });
  assert.equal(again.type, 'turn.accepted');
  await client.next((frame) => frame.type === 'turn.done' && frame.turn === again.turn);
  now = await state(client, id);
  assert.deepEqual(now.turns.map((turn) => turn.turn), [3]);
  assert.deepEqual([now.turns[0].siblings, now.turns[0].inputs], [[0, 3], [0, 0]]); // two answers
  assert.equal(now.turns[0].input.content, 'My name is Zora.');
  assert.equal(now.turns[0].seed, '5');

  const back = await rewind(client, id, 0, { leaf: true });
  assert.equal(back.type, 'session.rewound');
  assert.equal(back.head, 2);
  now = await state(client, id);
  assert.deepEqual(now.turns.map((turn) => turn.turn), [0, 2]);
  assert.equal(now.turns[0].text, first.text);
  assert.equal(now.turns[1].text, edited.text);
  const there = await rewind(client, id, 2);
  assert.equal(there.type, 'session.rewound');
  assert.equal(there.seq, undefined); // where it was

  // The empty log: the system prompt is rendered again.
  assert.equal((await rewind(client, id, null)).head, null);
  assert.equal((await state(client, id)).session.n_tokens, 0);
  const anew = await client.turn(id, 'My name is Zora.');
  assert.deepEqual(anew.ids, first.ids);
  // The first message in other words: another title, because no user has set one.
  const titled = async () => (await state(client, id)).session.title;
  assert.equal(await titled(), 'My name is Zora.');
  await client.turn(id, 'My name is Ada.', { after: null });
  assert.equal(await titled(), 'My name is Ada.');
  now = await state(client, id);
  assert.deepEqual([now.turns[0].siblings, now.turns[0].inputs], [[0, 3, 4, 5], [0, 0, 0, 1]]);
  assert.deepEqual((await rewind(client, id, null)).session.below, true);
  assert.equal((await rewind(client, id, 4)).session.below, false);
  assert.equal((await rewind(client, id, 0)).session.below, true); // turns 1 and 2
  await rewind(client, id, 4);

  // Every turn of the tree is run again on the log of its own path; what-if goes along one.
  const replayed = JSON.parse(execFileSync(parley, ['replay', id, '--db', server.db, '--model', model, '--json']));
  assert.equal(replayed.turns.length, 6);
  assert.ok(replayed.turns.every((turn) => turn.verdict === 'equal'), JSON.stringify(replayed.turns));
  const whatIf = JSON.parse(execFileSync(parley, ['replay', id, '--db', server.db, '--model', model, '--what-if', 'top_k=1',
    '--from-turn', '0', '--json']));
  assert.deepEqual(whatIf.turns.map((turn) => turn.turn), [0, 2]);
  assert.match(String(execFileSync(parley, ['sessions', 'show', id, '--db', server.db])), /turn 2 after 0, not on the current path/);
  // Exported and imported, it is the same tree.
  const file = execFileSync(parley, ['sessions', 'export', id, '--db', server.db]);
  const imported = path.join(server.folder, 'other.db');
  execFileSync(parley, ['sessions', 'import', '-', '--keep-owner', '--db', imported], { input: file });
  assert.deepEqual(execFileSync(parley, ['sessions', 'export', id, '--db', imported]), file);

  // Only what is on the path is in the log.
  const log = logOf(server, id);
  assert.deepEqual(await nextAnswer(client, id, { ids: [5, 6] }), await freshAnswer(client, [...log, 5, 6]));
});

test('an answer that was cut off goes on', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const whole = await client.open({ sampling: { temperature: 0, ignore_eos: true } });
  const all = await client.turn(whole, 'Tell me a story.', { sampling: { max_tokens: 24 } });
  const id = await client.open({ sampling: { temperature: 0, ignore_eos: true } });
  const a = await client.turn(id, 'Tell me a story.', { sampling: { max_tokens: 10 } });
  const b = await client.turn(id, { continue: true }, { sampling: { max_tokens: 14 } });
  assert.deepEqual([...a.ids, ...b.ids], all.ids);
  const [, second] = (await state(client, id)).turns;
  assert.deepEqual(second.input, { continue: true });
  assert.equal(second.n_input, 0);
  assert.equal(second.parent, 0);
  // Before the first turn there is no answer to continue.
  const fresh = await client.open();
  assert.equal((await client.start(fresh, { continue: true })).code, 'invalid');
});

// A model may be cut off in the middle of a character: bytes of SentencePiece (<0xE2> ...), or of a byte-level BPE.
const halves = {
  'byte-level BPE': { make: () => model, euro: [161, 227, 108] },
  'SentencePiece bytes': {
    make(t) {
      const folder = path.join(temporaryFolder(t), 'model');
      const config = JSON.parse(readFileSync(path.join(root, 'tests/fixtures/models/llama/config.json')));
      writeFileSync(`${folder}.json`, JSON.stringify({ ...config, vocab_size: 1500 }));
      execFileSync(parley, ['synth', '--config', `${folder}.json`, '--out', folder, '--tokenizer-from', path.join(root, 'tests/fixtures/text/llama2_spm')]);
      return folder;
    },
    euro: [0xe2 + 3, 0x82 + 3, 0xac + 3],
  },
};
for (const [kind, { make, euro }] of Object.entries(halves))
longTest(`an answer cut in the middle of a character goes on, and every text of it is whole (${kind})`, async (t) => {
  const folder = make(t), args = ['--compute-dtype', 'f32']; // so computed, the model says words then, no special tokens
  const server = await Server.start(t, { model: folder, args });
  const client = await server.connect();
  const id = await client.open({ sampling: { temperature: 0, ignore_eos: true, logprobs: true } });
  const forced = (token) => ({ sampling: { max_tokens: 1, logit_bias: { [token]: 100 } } });
  const turns = [await client.turn(id, { text: 'A price:' }, forced(euro[0]))];
  for (const token of euro.slice(1)) turns.push(await client.turn(id, { continue: true }, forced(token)));
  turns.push(await client.turn(id, { continue: true }, { sampling: { max_tokens: 6 } }));
  assert.deepEqual(turns.slice(0, 3).flatMap((turn) => turn.ids), euro);
  for (const turn of turns) {
    assert.equal(turn.done.finish_reason, 'length');
    for (const piece of [...turn.deltas.map((delta) => delta.text), turn.done.text ?? '', turn.text]) assert.ok(isWellFormed(piece), JSON.stringify(piece));
  }
  // The stored text is the streamed text: in memory, after a restart, for tools, and after an import.
  const texts = turns.map((turn) => turn.text);
  const kept = async (c) => (await state(c, id)).turns.map((turn) => turn.text);
  assert.deepEqual(await kept(client), texts);
  const shown = JSON.parse(execFileSync(parley, ['sessions', 'show', id, '--db', server.db, '--json']));
  assert.deepEqual(shown.turns.map((turn) => turn.text), texts);
  const file = execFileSync(parley, ['sessions', 'export', id, '--db', server.db]);
  assert.deepEqual(JSON.parse(file).turns.map((turn) => turn.text), texts);
  const late = await server.connect(); // from the first event on
  await late.request({ type: 'session.attach', session: id, after: 0 });
  await until('all of it', () => late.frames.filter((frame) => frame.type === 'turn.done').length === turns.length);
  const told = (n) => late.frames.filter((f) => (f.type === 'turn.delta' || f.type === 'turn.done') && f.turn === n).map((f) => f.text ?? '').join('');
  assert.deepEqual(texts.map((_, n) => told(n)), texts);
  await server.stop('SIGKILL');
  const again = await Server.start(t, { model: folder, db: server.db });
  const other = await again.connect();
  assert.deepEqual(await kept(other), texts);
  const replayed = JSON.parse(execFileSync(parley, ['replay', id, '--db', server.db, '--model', folder, '--json']));
  assert.ok(replayed.turns.every((turn) => turn.verdict === 'equal'), JSON.stringify(replayed.turns));
  // The character is there, once, where its last byte is; until then an answer that ends has the mark of a half one.
  assert.equal(texts.slice(0, 3).join('').replaceAll('\ufffd', ''), '\u20ac');
  assert.ok(texts[2].endsWith('\u20ac') && !texts[2].includes('\ufffd'), JSON.stringify(texts));
  // What the tokenizer makes of all of it, but for those marks.
  const ids = turns.flatMap((turn) => turn.ids);
  const whole = JSON.parse(execFileSync(parley, ['tokenize', '--model', folder, '--decode', '--json'], { input: JSON.stringify({ ids }) })).text;
  assert.equal(texts.slice(0, 2).join('').replaceAll('\ufffd', '') + texts.slice(2).join(''), whole);
});

test('a fork goes its own way', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ title: 'The source', system: 'Be brief.', sampling: greedy });
  await client.turn(id, 'One.');
  await client.turn(id, 'Two.');
  await client.turn(id, 'Two, said otherwise.', { after: 0 });
  const opened = await client.request({ type: 'session.fork', session: id, turn: 2, new_session: 'copy' });
  assert.equal(opened.type, 'session.opened');
  assert.equal(opened.seq, 1);
  assert.deepEqual(opened.session.forked_from, { session: id, turn: 2 });
  assert.equal(opened.session.title, 'The source');
  assert.equal(opened.session.system, 'Be brief.');
  assert.equal(opened.session.head, 1);
  const [source, copy] = [await state(client, id), await state(client, 'copy')];
  assert.deepEqual(copy.turns.map((turn) => [turn.turn, turn.parent, turn.text, turn.input.content]),
    source.turns.map((turn, i) => [i, i ? i - 1 : null, turn.text, turn.input.content]));
  assert.deepEqual(logOf(server, 'copy'), logOf(server, id));
  // Each continues alone: the same log, the same answer.
  const log = logOf(server, id);
  const there = await client.turn('copy', 'And now?');
  const here = await client.turn(id, 'And now?');
  assert.deepEqual(there.ids, here.ids);
  assert.equal(there.done.cache.source, 'kept'); // its blocks are shared
  assert.equal((await state(client, id)).session.n_turns, 4);
  assert.equal((await state(client, 'copy')).session.n_turns, 3);
  const begun = await client.request({ type: 'session.fork', session: id, turn: null, title: 'From nothing' });
  assert.equal(begun.session.n_turns, 0);
  assert.equal(begun.session.title, 'From nothing');
  assert.equal((await client.request({ type: 'session.fork', session: id, new_session: 'copy' })).code, 'session_exists');
  assert.equal((await client.request({ type: 'session.fork', session: id, turn: 99 })).code, 'invalid');
  assert.equal((await client.request({ type: 'session.fork', session: 'nobody' })).code, 'session_not_found');
  assert.ok(log.length > 0);
  // While the source runs: at its last finished turn. And it is found by its words.
  const long = await client.start(id, 'A long story.', { sampling: { temperature: 0, max_tokens: 3000, ignore_eos: true } });
  const during = await client.request({ type: 'session.fork', session: id });
  assert.equal(during.session.n_turns, 3);
  assert.equal((await rewind(client, id, 0)).code, 'session_busy');
  assert.equal((await client.request({ type: 'session.fork', session: id, turn: long.turn })).code, 'session_busy');
  await client.request({ type: 'turn.cancel', session: id });
  const found = await client.request({ type: 'session.list', query: 'said otherwise' });
  assert.equal(found.sessions.length, 3);
});

longTest('many forks of one session at once, under load, wherever its cache is: each as if it were alone', async (t) => {
  const lines = ['My name is Zora.', 'Hello!', 'Tell me a joke.', 'What is 2 plus 3?', 'Thank you.'];
  const sampling = { temperature: 1, seed: '11', max_tokens: 16, ignore_eos: true, logprobs: true };
  const converse = async (client) => {
    const follower = await Follower.open(client, { sampling });
    for (const line of lines) await follower.say(line);
    return follower;
  };
  const ask = (copy) => copy.say('What is my name?');
  const calm = await Server.start(t, { args: unlimited });
  const quiet = await calm.connect();
  const alone = await converse(quiet);
  const want = [];
  for (let turn = 0; turn < lines.length; turn++) want.push(transcript(await ask(await Follower.fork(quiet, alone.session, turn))));
  await calm.stop();

  const seen = new Set();
  for (const host of ['64MiB', '0']) {
    const folder = temporaryFolder(t);
    const server = await Server.start(t, { db: path.join(folder, 'parley.db'), args: [...unlimited, '--host-cache-bytes', host,
      '--snapshot-dir', path.join(folder, 'snapshots'), '--max-sequence-idle-microseconds', '20000', '--max-sequences', '8'] });
    const source = await converse(await server.connect());
    let over = false;
    const noise = [0, 1].map(async (i) => { // others run turns, and the source continues too
      const other = i ? await Follower.open(await server.connect(), { sampling: { ...sampling, max_tokens: 60 } }) : source;
      while (!over) await other.say('Tell me a story.').catch((error) => { if (error.answer?.code !== 'session_full') throw error; over = true; });
    });
    const clients = await Promise.all([0, 1, 2].map(() => server.connect()));
    for (let round = 0; round < few(3); round++) {
      await Promise.all(Array.from({ length: 2 * lines.length }, async (_, i) => {
        const copy = await Follower.fork(clients[i % 3], source.session, i % lines.length);
        if (i % 2) await sleep(15 * i); // some have left the device by then
        const turn = await ask(copy);
        assert.deepEqual(transcript(turn), want[i % lines.length], `fork at turn ${i % lines.length}`);
        seen.add(turn.done.cache.source);
      }));
    }
    over = true;
    await Promise.all(noise);
    await server.stop();
  }
  assert.ok(seen.has('kept') || seen.has('host'), [...seen].join());
  t.diagnostic(`caches: ${[...seen].join(', ')}`);
});

longTest('every tab hears of it in order, also after a restart', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ sampling: greedy });
  const other = await server.connect();
  await other.request({ type: 'session.attach', session: id, after: 0 });
  await client.turn(id, 'One.');
  await client.turn(id, 'Two.');
  await rewind(client, id, 0);
  await client.turn(id, 'Three.');
  await rewind(client, id, 1);
  const last = (await state(client, id)).seq;
  const told = (c) => c.frames.filter((f) => f.seq && (f.session === id || f.session?.id === id) && f.type !== 'session.attached' && f.type !== 'session.state');
  const spoken = (frames) => frames.filter((f) => f.type !== 'turn.delta').map((f) => [f.type, f.seq, f.turn, f.head]);
  await until('the other tab', () => told(other).at(-1)?.seq === last);
  assert.deepEqual(spoken(told(other)).slice(1), spoken(told(client)).slice(1));
  await server.stop('SIGKILL');
  const again = await Server.start(t, { db: server.db });
  const late = await again.connect();
  await late.request({ type: 'session.attach', session: id, after: 0 });
  await until('all of it again', () => told(late).at(-1)?.seq === last);
  assert.deepEqual(spoken(told(late)).slice(1), spoken(told(client)).slice(1));
  let seq = 0;
  for (const frame of told(late)) {
    assert.equal(frame.first_seq ?? frame.seq, seq + 1);
    seq = frame.seq;
  }
  const now = await state(late, id);
  assert.equal(now.session.head, 1);
  assert.deepEqual(now.turns.map((turn) => turn.turn), [0, 1]);
  assert.deepEqual(now.turns[1].siblings, [1, 2]);
});


longTest('from the terminal: another answer, back, on, a copy', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect();
  const id = await client.open({ session: 'typed' });
  const lines = ['My name is Zora.', '/regenerate', 'What is my name?', '/rewind 2', '/rewind 9', 'Another start.', '/continue', '/fork', 'In the copy.'];
  const out = execFileSync(parley, ['chat', '--url', `ws://127.0.0.1:${server.port}/ws`, '--session', id, '--max-tokens', '5'],
    { input: `${lines.join('\n')}\n`, stdio: ['pipe', 'pipe', 'ignore'] });
  assert.match(String(out), /Returned[^]*copy of the session/);
  const now = await state(client, id);
  assert.equal(now.session.n_turns, 5);
  assert.deepEqual(now.turns.map((turn) => turn.turn), [3, 4]);
  assert.deepEqual(now.turns[0].siblings, [0, 1, 3]);
  assert.deepEqual(now.turns[1].input, { continue: true });
  const { sessions } = await client.request({ type: 'session.list' });
  const copy = sessions.find((session) => session.forked_from?.session === id);
  assert.equal(copy.n_turns, 3);
  assert.deepEqual((await state(client, copy.id)).turns.map((turn) => turn.input.content), ['Another start.', undefined, 'In the copy.']);
});
