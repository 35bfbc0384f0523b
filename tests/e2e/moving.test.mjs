// A session is moved from one database to another with the real program and continues there unchanged.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Follower, transcript } from './follower.mjs';
import { longTest, parley, root, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { run } from './run.mjs';

const greedy = { sampling: { temperature: 0 } };

async function good(args, options) {
  const result = await run(args, options);
  assert.deepEqual([result.code, result.signal], [0, null], `parley ${args.join(' ')}: ${result.stderr}`);
  return result.stdout;
}

/** A session that knows a name, exported; its server has ended. */
async function made(t) {
  const folder = temporaryFolder(t);
  const db = path.join(folder, 'old.db');
  const server = await Server.start(t, { db, args: unlimited });
  const session = await Follower.open(await server.connect(), { session: 'zora', title: 'Red \u001b[31malert' });
  await session.say('My name is Zora.', greedy);
  await session.say('What is 2 plus 3?', { sampling: { temperature: 0.8, seed: '18446744073709551615', top_logprobs: 2 } });
  const file = path.join(folder, 'zora.json');
  writeFileSync(file, await good(['sessions', 'export', 'zora', '--db', db])); // beside the server
  const turns = [0, 1].map((turn) => transcript(session.turns.get(turn)));
  await server.stop();
  return { folder, db, file, turns };
}

async function remembers(client, id, mayLose = false) {
  const session = new Follower(id);
  session.mayLose = mayLose;
  await session.attach(client);
  const turn = await session.say('What is my name?', greedy);
  assert.match(turn.text, /Zora/);
  return session;
}

test('import: into a new database, and a server continues the conversation', async (t) => {
  const { folder, file, turns } = await made(t);
  const db = path.join(folder, 'new.db');
  // Anyone can have written the file's owner: another one than local is used only on request.
  const foreign = path.join(folder, 'alice.json');
  writeFileSync(foreign, readFileSync(file, 'utf8').replace('"owner":"local"', '"owner":"alice"'));
  const unasked = await run(['sessions', 'import', foreign, '--db', db]);
  assert.equal(unasked.code, 1);
  assert.match(unasked.stderr, /^parley: .*'alice'.*--keep-owner.*--owner/);
  assert.deepEqual(readdirSync(folder).filter((name) => name.startsWith('new')), []);
  assert.match(await good(['sessions', 'import', file, '--db', db]), /^imported zora .*\blocal\b.*new\.db.* 2 turns, \d+ tokens\n$/);
  assert.equal(await good(['sessions', 'export', 'zora', '--db', db]), readFileSync(file, 'utf8'), 'the same bytes');
  const server = await Server.start(t, { db, args: unlimited });
  const session = await remembers(await server.connect(), 'zora');
  assert.deepEqual([0, 1].map((turn) => transcript(session.turns.get(turn))), turns);
  assert.equal(session.turns.get(2).done.cache.source, 'recomputed');
});

test('over the wire: out of one server and into another, the same record, and it goes on', async (t) => {
  const { folder, db, file, turns } = await made(t);
  const from = await (await Server.start(t, { db, args: unlimited })).connect();
  const { archive } = await from.ask({ type: 'session.export', session: 'zora' });
  assert.equal(`${archive}\n`, readFileSync(file, 'utf8'), 'what the command writes');
  const to = path.join(folder, 'to.db');
  const server = await Server.start(t, { db: to, args: unlimited });
  const client = await server.connect();
  const { type, session } = await client.ask({ type: 'session.import', archive });
  assert.deepEqual([type, session.state, session.n_turns], ['session.imported', 'cold', 2]);
  const follower = await remembers(client, session.id);
  assert.deepEqual([0, 1].map((turn) => transcript(follower.turns.get(turn))), turns);
  assert.match(await good(['replay', session.id, '--db', to, '--model', 'configs/demo-model', '--threads', '1']), /^3 equal, /m);
  assert.equal((await client.ask({ type: 'session.import', archive: archive.replace('"n_tokens":', '"n_tokens":9') })).code, 'invalid');
  assert.equal((await client.ask({ type: 'session.list' })).sessions.length, 1);
});

longTest('import beside a running server: listed, found, continued; a taken id needs --new-id', async (t) => {
  const { folder, file } = await made(t);
  const db = path.join(folder, 'new.db');
  const server = await Server.start(t, { db, args: unlimited });
  const client = await server.connect();
  const own = await Follower.open(client, { session: 'own' });
  const list = async () => (await client.ask({ type: 'session.list' })).sessions.map(({ id }) => id).sort();
  const talking = own.say('Tell me a story.', { sampling: { temperature: 0, max_tokens: 60 } }); // while it writes, too
  await good(['sessions', 'import', '-', '--owner', 'local', '--db', db], { input: readFileSync(file) });
  await talking;
  assert.deepEqual(await list(), ['own', 'zora']);
  await remembers(client, 'zora');
  // A watcher of the list learns of an import without asking; other owners' watchers do not.
  const watcher = await server.connect();
  await watcher.ask({ type: 'sessions.watch' });
  const stranger = await good(['sessions', 'import', file, '--db', db, '--new-id', '--owner', 'somebody']);
  const told = JSON.parse(await good(['sessions', 'import', file, '--db', db, '--owner', 'local', '--new-id', '--json'])).session;
  const heard = (await watcher.next((frame) => frame.type === 'session.changed' && frame.session.id === told.id)).session;
  assert.deepEqual([heard.title, heard.n_turns, heard.n_tokens, heard.state], [told.title, 2, told.n_tokens, 'cold']);
  assert.ok(!watcher.frames.some((frame) => stranger.includes(frame.session?.id)));
  await client.request({ type: 'session.close', session: told.id, delete: true });
  const taken = await run(['sessions', 'import', file, '--keep-owner', '--db', db]);
  assert.equal(taken.code, 1);
  assert.match(taken.stderr, /^parley: .*'zora'.*--new-id/);
  const { session } = JSON.parse(await good(['sessions', 'import', file, '--db', db, '--keep-owner', '--new-id', '--json']));
  assert.match(session.id, /^[0-9a-f]{32}$/);
  assert.deepEqual(await list(), ['own', 'zora', session.id].sort());
  await remembers(client, session.id);
  await own.say('And then?', greedy); // the server's own goes on
});

longTest('import of what is no session: one line that names the file and the field, and no database', async (t) => {
  const { folder, file } = await made(t);
  const db = path.join(folder, 'none.db');
  const whole = JSON.parse(readFileSync(file));
  const change = (edit) => { const copy = structuredClone(whole); edit(copy); return JSON.stringify(copy); };
  const wrong = [
    ['', /not valid JSON/], ['{}', /Not a Parley session file/], [change((s) => { s.version = 7; }), /newer Parley/],
    [change((s) => { s.turns[1].ids[0] = -1; }), /turns\[1\]: ids\[0\] is not a whole number from 0/],
    [change((s) => { s.turns[0].log_first = 5; }), /turns\[0\]\.log_first/],
    [change((s) => { s.events.splice(1, 1); }), /events\[1\]/],
  ];
  for (const [text, words] of wrong) {
    const bad = path.join(folder, 'bad.json');
    writeFileSync(bad, text);
    const { code, stderr } = await run(['sessions', 'import', bad, '--db', db]);
    assert.equal(code, 1, text.slice(0, 80));
    assert.match(stderr, /^parley: .*bad\.json: .+\n$/);
    assert.match(stderr, words);
  }
  const missing = await run(['sessions', 'import', path.join(folder, 'missing.json'), '--db', db]);
  assert.match(missing.stderr, /^parley: .*missing\.json: No such file or directory\n$/);
  assert.equal((await run(['sessions', 'import', '--db', db])).code, 2);
  assert.deepEqual(readdirSync(folder).filter((name) => name.startsWith('none')), []);
});

longTest('two owners with one id: tools ask whose, and take --owner', async (t) => {
  const { folder, db, file, turns } = await made(t);
  const stranger = await good(['sessions', 'import', file, '--db', db, '--owner', 'somebody']); // the id is theirs to use
  assert.match(stranger, /^imported zora of owner somebody /);
  const verbs = [['sessions', 'show', 'zora'], ['sessions', 'export', 'zora'], ['sessions', 'rm', 'zora'],
    ['replay', 'zora', '--model', 'configs/demo-model', '--export', path.join(folder, 'again.json')]];
  for (const verb of verbs) {
    const { code, stderr } = await run([...verb, '--db', db]);
    assert.equal(code, 1, verb.join(' '));
    assert.match(stderr, /^parley: .*'zora'.*local, somebody.*--owner/, verb.join(' '));
    assert.match((await run([...verb, '--db', db, '--owner', 'nobody'])).stderr, /there is no session 'zora'/);
  }
  assert.equal(await good(['sessions', 'export', 'zora', '--owner', 'local', '--db', db]), readFileSync(file, 'utf8'));
  await good([...verbs[3], '--db', db, '--owner', 'somebody']);
  assert.equal(JSON.parse(readFileSync(path.join(folder, 'again.json'))).session.owner, 'somebody');
  const listed = async (...args) => JSON.parse(await good(['sessions', 'list', '--json', '--db', db, ...args])).sessions.length;
  assert.deepEqual([await listed(), await listed('--owner', 'local'), await listed('--query', 'red'),
    await listed('--query', 'red', '--owner', 'somebody'), await listed('--query', 'blue')], [2, 1, 2, 1, 0]);
  assert.match(await good(['sessions', 'doctor', '--db', db, '--output', path.join(folder, 'saved')]), /^2 sessions, no faults/);
  assert.equal(readdirSync(path.join(folder, 'saved')).length, 2);
  await good(['sessions', 'rm', 'zora', '--owner', 'somebody', '--db', db]);
  const session = await remembers(await (await Server.start(t, { db, args: unlimited })).connect(), 'zora');
  assert.deepEqual([0, 1].map((turn) => transcript(session.turns.get(turn))), turns);
});

longTest('list and show print no escape sequences of any author', async (t) => {
  const { db } = await made(t);
  for (const verb of [['list'], ['show', 'zora']]) {
    const text = await good(['sessions', ...verb, '--db', db]);
    assert.ok(text.includes('Red ␛[31malert'), text);
    assert.doesNotMatch(text, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/);
  }
  assert.ok((await good(['sessions', 'show', 'zora', '--db', db, '--json'])).includes('Red \\u001b[31malert'));
});

longTest('backup of a running server: a database of its own that a second server serves', async (t) => {
  const folder = temporaryFolder(t);
  const [db, copy] = [path.join(folder, 'parley.db'), path.join(folder, 'copy.db')];
  const server = await Server.start(t, { db, args: unlimited });
  const client = await server.connect();
  const session = await Follower.open(client, { session: 'zora' });
  await session.say('My name is Zora.', greedy);
  const talking = session.say('Tell me a story.', { sampling: { temperature: 0, max_tokens: 200, ignore_eos: true } });
  await until('the first words', () => session.turns.get(1)?.ids.length > 0);
  await good(['sessions', 'backup', '--db', db, '--output', copy]);
  await talking;
  const again = await run(['sessions', 'backup', '--db', db, '--output', copy]);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /^parley: .*copy\.db: .+\n$/);
  assert.equal((await run(['sessions', 'backup', '--db', db])).code, 2);
  const second = await Server.start(t, { db: copy, args: unlimited });
  const there = await remembers(await second.connect(), 'zora', true); // the turn that ran is cut off in the copy
  assert.match(there.turns.get(1).done.finish_reason, /^(interrupted|length)$/);
  assert.deepEqual(readdirSync(folder).filter((name) => name.includes('.part')), []);
});

longTest('an archive comes over the wire in pieces; one that is missing ends it', async (t) => {
  const { folder, file } = await made(t);
  const server = await Server.start(t, { db: path.join(folder, 'new.db'), args: unlimited });
  const client = await server.connect();
  const archive = readFileSync(file, 'utf8');
  const piece = (from, to, fields) => client.ask({ type: 'session.import', archive: archive.slice(from, to), ...fields });
  const half = Math.floor(archive.length / 2);
  const size = (to) => Buffer.byteLength(archive.slice(0, to));
  assert.equal((await piece(0, 10, { more: true })).bytes, size(10));
  assert.equal((await piece(half, undefined, { at: half + 1 })).code, 'invalid');
  assert.equal((await piece(10, half, { at: size(10), more: true })).code, 'invalid', 'the first piece went with it');
  // A session begun anew on one connection: another connection's upload is not affected.
  assert.equal((await piece(0, half, { at: 0, more: true })).bytes, size(half));
  const other = await server.connect();
  assert.equal((await other.ask({ type: 'session.import', archive: archive.slice(half), at: size(half) })).code, 'invalid');
  const imported = await piece(half, undefined, { at: size(half) });
  assert.equal(imported.type, 'session.imported', JSON.stringify(imported));
  assert.equal(imported.session.n_turns, JSON.parse(archive).turns.length);
  assert.equal((await client.request({ type: 'session.list' })).sessions.length, 1);
});

longTest('doctor: a sound database, beside its server too; a damaged one is repaired, and read out', async (t) => {
  const { folder, db } = await made(t);
  const server = await Server.start(t, { db, args: unlimited });
  assert.equal(await good(['sessions', 'doctor', '--db', db]), '1 session, no faults\n');
  const busy = await run(['sessions', 'doctor', '--db', db, '--repair']);
  assert.equal(busy.code, 1);
  assert.match(busy.stderr, /in use by another Parley/);
  await server.stop();
  execFileSync('sqlite3', [db, "UPDATE turns SET log_first = 99 WHERE turn = 1; DELETE FROM search_content WHERE id = 1"]);
  const found = await run(['sessions', 'doctor', '--db', db, '--output', path.join(folder, 'saved')]);
  assert.equal(found.code, 1);
  assert.match(found.stdout, /^session zora: turns\[1\]\.log_first is 99, the log has \d+ tokens there$/m);
  assert.match(found.stdout, /^1 turns are not in the index of words$/m);
  assert.match(found.stderr, /^parley: .*: 2 faults\n$/);
  assert.match((await run(['sessions', 'doctor', '--db', db])).stderr, /\b2 faults\b.*--repair.*--output/);
  await good(['sessions', 'import', path.join(folder, 'saved/zora.json'), '--keep-owner', '--db', path.join(folder, 'new.db')]);
  const report = JSON.parse(await good(['sessions', 'doctor', '--db', db, '--repair', '--json']));
  assert.deepEqual([report.sessions, report.faults.length, report.faults.every((fault) => fault.repaired), report.left], [1, 2, true, 0]);
  assert.equal(await good(['sessions', 'doctor', '--db', db]), '1 session, no faults\n');
  for (const name of [db, path.join(folder, 'new.db')]) {
    const again = await Server.start(t, { db: name, args: unlimited });
    await remembers(await again.connect(), 'zora', true);
    await again.stop();
  }
});

longTest('the package\'s daily backup: beside a server, the newest stay, and one is restored', async (t) => {
  const { folder, db } = await made(t), copies = path.join(folder, 'backups');
  const server = await Server.start(t, { db, args: unlimited });
  const backup = (...more) => execFileSync(path.join(root, 'configs/debian/parley-backup'), [db, copies, ...more],
    { env: { ...process.env, PATH: `${path.dirname(path.resolve(root, parley))}:${process.env.PATH}` } });
  backup();
  const [first] = readdirSync(copies);
  const session = await remembers(await server.connect(), 'zora');
  const n = session.turns.size;
  for (const day of ['20250101T000000Z', '20250102T000000Z']) writeFileSync(path.join(copies, `parley-${day}.db`), '');
  writeFileSync(path.join(copies, 'notes.txt'), '');
  await until('another second', async () => new Date().toISOString().replace(/[-:]|\..*/g, '').slice(0, 15) !== first.slice(7, 22));
  backup('2');
  const kept = readdirSync(copies);
  assert.equal(kept.length, 3, kept.join(' '));
  assert.ok(kept.includes(first) && kept.includes('notes.txt'), kept.join(' '));
  await server.stop();
  for (const end of ['', '-wal', '-shm', '.tail']) rmSync(db + end, { force: true });
  copyFileSync(path.join(copies, first), db); // the older one: without the last turn
  const again = await Server.start(t, { db, args: unlimited });
  const restored = await remembers(await again.connect(), 'zora');
  assert.equal(restored.turns.size, n);
});
