// One owner asks for more exports and lists than it reads. The server's memory stays what it was, and another owner's
// tokens come as ever.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { Server, parley, scale, sleep, temporaryFolder, unlimited, until } from './harness.mjs';
import { residentBytes } from './processes.mjs';

const MB = 1048576;
const tokens = { alice: 'alice-token-0123456789', bob: 'bob-token-0123456789' };

function tokenFile(t) {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''));
  chmodSync(file, 0o600);
  return file;
}

/** A server with a session `long` of alice's, or of the only owner: 40 turns of 64 KB. */
async function serverWithLongSession(t, owner, args = []) {
  const db = path.join(temporaryFolder(t), 'parley.db');
  const options = { db, args: [...unlimited, ...args, ...(owner === 'local' ? [] : ['--token-file', tokenFile(t)])] };
  let server = await Server.start(t, options);
  const client = await server.connect({ token: tokens[owner] });
  const follower = await Follower.open(client, { session: 'short', sampling: { max_tokens: 1 } });
  for (let i = 0; i < 40; i++) await follower.say(`turn ${i}`);
  const { archive } = await client.ask({ type: 'session.export', session: 'short' });
  await server.stop();
  const record = JSON.parse(archive);
  record.session.id = 'long';
  record.turns.forEach((turn, i) => { turn.input_text = `${i} grüße </script> "\\ `.repeat(2800); });
  const file = path.join(temporaryFolder(t), 'long.json');
  writeFileSync(file, JSON.stringify(record));
  execFileSync(parley, ['sessions', 'import', file, '--db', db, '--owner', owner]);
  server = await Server.start(t, options);
  return { server, db };
}

/** Milliseconds from a turn's start to its first token. */
async function firstToken(follower) {
  const begun = performance.now();
  let came;
  const listener = (frame) => { if (frame.type === 'turn.delta') came ??= performance.now(); };
  follower.client.listeners.add(listener);
  await follower.say('Hello!');
  follower.client.listeners.delete(listener);
  return came - begun;
}
async function firstTokens(follower, n) {
  const took = [];
  for (let i = 0; i < n; i++) took.push(await firstToken(follower));
  return took.sort((a, b) => a - b);
}

function isSame(answer, text) { // a message of assert.equal would have megabytes
  assert.deepEqual(answer.error, undefined);
  let at = 0;
  while (at < text.length && answer.archive[at] === text[at]) at++;
  assert.ok(answer.archive === text, `${answer.archive.slice(at - 40, at + 40)} instead of ${text.slice(at - 40, at + 40)}`);
}

const exported = (db) => execFileSync(parley, ['sessions', 'export', 'long', '--db', db], { maxBuffer: 64 * MB, encoding: 'utf8' }).trimEnd();

test('exports and lists that are not read cost no memory, and no other owner waits for them', async (t) => {
  const { server, db } = await serverWithLongSession(t, 'alice');
  const text = exported(db);
  assert.ok(text.length > 2.5 * MB, `${text.length} bytes`);
  const bob = await Follower.open(await server.connect({ token: tokens.bob }), { sampling: { temperature: 0, max_tokens: 8 } });
  await firstTokens(bob, 3);
  const alone = (await firstTokens(bob, 9)).at(-1);

  const n = Math.max(1, Math.round(6 * scale));
  const clients = await Promise.all(Array.from({ length: n }, () => server.connect({ token: tokens.alice })));
  const before = residentBytes(server);
  for (const client of clients) {
    client.socket._socket.pause();
    for (let i = 0; i < 40; i++) client.send({ type: 'session.export', session: 'long', request_id: `x${i}` });
  }
  const loaded = await firstTokens(bob, 15);
  const grown = residentBytes(server) - before;
  t.diagnostic(`${n} x 40 exports of ${(text.length / MB).toFixed(1)} MB unread: ${(grown / MB).toFixed(1)} MB more; `
    + `first token ${loaded.at(-1).toFixed(1)} ms at most, alone ${alone.toFixed(1)}`);
  if (scale === 1) {
    assert.ok(grown < 64 * MB, `${(grown / MB).toFixed(1)} MB more`);
    assert.ok(loaded[7] < alone + 200, `first token after ${loaded.map(Math.round)} ms, alone ${alone}`);
  }
  // Pieces that are read late are whole.
  clients.slice(1).forEach((client) => client.terminate());
  clients[0].socket._socket.resume();
  const answers = () => clients[0].frames.filter((frame) => frame.type === 'session.exported');
  await until('all exports', () => answers().length === 40);
  for (const answer of answers()) isSame(answer, text);
  assert.deepEqual(new Set(answers().map((answer) => answer.request_id)).size, 40);
});

test('exports and imports count among the jobs that an owner may have outstanding', async (t) => {
  const { server, db } = await serverWithLongSession(t, 'alice', ['--owner-outstanding-jobs', '3']);
  const small = JSON.parse(exported(db)); // a message holds a mebibyte
  small.turns.forEach((turn) => { turn.input_text = turn.input_text.slice(0, 100); });
  const [reader, other] = [await server.connect({ token: tokens.alice }), await server.connect({ token: tokens.alice })];
  const jobs = async () => (await other.ask({ type: 'usage.get' })).usage.limits.outstanding_jobs;
  reader.socket._socket.pause();
  for (let i = 0; i < 5; i++) reader.send({ type: 'session.export', session: 'long', request_id: `x${i}` });
  await until('two refusals', async () => (await jobs()).refused === 2);
  assert.equal((await jobs()).used, 3);
  const archive = JSON.stringify(small);
  for (const message of [{ type: 'session.import', archive }, { type: 'session.export', session: 'long' }]) {
    const refused = await other.ask(message);
    assert.deepEqual([refused.code, /\b3\b/.test(refused.message)], ['overloaded', true], refused.message); // names the limit
  }
  reader.socket._socket.resume();
  const answers = () => reader.frames.filter((frame) => frame.request_id?.startsWith('x'));
  await until('all answers', () => answers().length === 5);
  assert.deepEqual(answers().map((frame) => frame.type).sort(), ['error', 'error', ...Array(3).fill('session.exported')]);
  await until('no job', async () => (await jobs()).used === 0);
  const imports = await Promise.all([archive, archive, 'no archive'].map((one) => other.ask({ type: 'session.import', archive: one })));
  assert.deepEqual(imports.map((frame) => frame.type), ['session.imported', 'session.imported', 'error']);
  assert.equal(imports[2].code, 'invalid');
  assert.equal((await jobs()).used, 0);
  reader.socket._socket.pause(); // a client that leaves frees its places
  for (let i = 0; i < 3; i++) reader.send({ type: 'session.export', session: 'long' });
  await until('three', async () => (await jobs()).used === 3);
  reader.terminate();
  await until('none', async () => (await jobs()).used === 0);
});

test('an export is of the session as it was when it began; its end says when the session was deleted', async (t) => {
  const { server, db } = await serverWithLongSession(t, 'local');
  const text = exported(db);
  const writer = await server.connect();
  const exports = async (change) => {
    const reader = await server.connect(); // one that has read much gets a buffer that the whole export fits
    const seen = reader.frames.length;
    reader.socket._socket.pause();
    reader.send({ type: 'session.export', session: 'long', request_id: 'x' });
    await until('the export to begin', async () => (await server.metric('parley_waiting_bytes')) > 0);
    reader.send({ type: 'ping', request_id: 'behind' });
    await change();
    reader.socket._socket.resume();
    await until('the pong behind it', () => reader.frames.slice(seen).some((frame) => frame.request_id === 'behind'));
    const [first, second] = reader.frames.slice(seen).filter((frame) => frame.request_id);
    assert.deepEqual([first.type, second.type], ['session.exported', 'pong']);
    return first;
  };
  const follower = await Follower.attach(writer, 'long', 0);
  const old = await exports(() => follower.say('one more', { sampling: { max_tokens: 1 } }));
  isSame(old, text); // without what came after its beginning
  const cut = await exports(() => writer.ask({ type: 'session.close', session: 'long', delete: true }));
  assert.equal(cut.error.code, 'session_not_found');
  assert.ok(cut.archive.length < text.length && cut.archive.startsWith('{"format":"parley.session"'));
  assert.equal((await writer.ask({ type: 'session.export', session: 'long' })).code, 'session_not_found');
});

test('a list of long sessions comes whole, and unread lists cost no memory', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = await server.connect();
  const system = 'You are a helpful assistant. '.repeat(1100);
  const ids = Array.from({ length: 100 }, (_, i) => `s${i}`);
  for (const session of ids) await client.ask({ type: 'session.open', session, system });
  const all = await client.ask({ type: 'session.list', limit: 200 });
  assert.deepEqual([all.sessions.length, all.cursor, new Set(all.sessions.map((one) => one.id)).size], [100, null, 100]);
  assert.ok(all.sessions.every((one) => one.system_start === system.slice(0, 256) && !('system' in one)));
  assert.equal((await client.ask({ type: 'session.get', session: 's7' })).session.system, system, 'the whole is in its state');
  await client.ask({ type: 'session.open', session: 'wide', system: `x${'ü'.repeat(200)}` });
  assert.equal((await client.ask({ type: 'session.list', limit: 1 })).sessions[0].system_start, `x${'ü'.repeat(127)}`, 'whole characters');
  await client.ask({ type: 'session.close', session: 'wide', delete: true });
  const page = await client.ask({ type: 'session.list', limit: 30 });
  assert.deepEqual(page.sessions.map((one) => one.id), all.sessions.slice(0, 30).map((one) => one.id));
  const rest = await client.ask({ type: 'session.list', limit: 200, cursor: page.cursor });
  assert.deepEqual(rest.sessions.map((one) => one.id), all.sessions.slice(30).map((one) => one.id));
  const slow = await server.connect();
  const before = residentBytes(server);
  slow.socket._socket.pause();
  for (let i = 0; i < 200; i++) slow.send({ type: 'session.list', limit: 200, request_id: `x${i}` });
  await until('the first list', async () => (await server.metric('parley_waiting_bytes')) > 0);
  for (let i = 0; i < 20; i++) await client.ask({ type: 'session.list', limit: 200 });
  const grown = residentBytes(server) - before;
  assert.ok((await server.metric('parley_waiting_bytes')) < MB);
  t.diagnostic(`200 lists of 100 sessions unread: ${(grown / MB).toFixed(1)} MB more`);
  if (scale === 1) assert.ok(grown < 32 * MB, `${(grown / MB).toFixed(1)} MB more`);
  slow.socket._socket.resume();
  await until('all lists', () => slow.frames.filter((frame) => frame.type === 'session.list').length === 200);
  assert.ok(slow.frames.filter((frame) => frame.type === 'session.list').every((frame) => frame.sessions.length === 100));
});

test('a state with long turns comes in pages that take the net thread no long time', async (t) => {
  const { server } = await serverWithLongSession(t, 'local');
  const client = await server.connect();
  const turns = [];
  for (let more = true; more;) {
    const state = await client.ask({ type: 'session.get', session: 'long', last: 1000, ...(turns.length ? { before: turns[0].turn } : {}) });
    assert.ok(state.turns.length > 0 && JSON.stringify(state).length < MB, `${state.turns.length} turns`);
    turns.unshift(...state.turns);
    more = state.more;
  }
  assert.deepEqual(turns.map((turn) => turn.turn), Array.from({ length: 40 }, (_, i) => i));
});

/** A server whose session `s` has one turn that fills a log of 4,096 tokens, with 20 alternatives for each. */
async function serverWithLongTurn(t) {
  const db = path.join(temporaryFolder(t), 'parley.db');
  let server = await Server.start(t, { db, args: unlimited });
  const client = await server.connect();
  const follower = await Follower.open(client, { session: 's', sampling: { max_tokens: 8, ignore_eos: true, logprobs: true, top_logprobs: 20 } });
  await follower.say('Hello!');
  const { archive } = await client.ask({ type: 'session.export', session: 's' });
  await server.stop();
  const record = JSON.parse(archive), [turn] = record.turns;
  const n = record.session.session_len - turn.n_input, grown = n - turn.ids.length;
  const repeat = (list) => Array.from({ length: n }, (_, i) => list[i % list.length]);
  for (const key of ['ids', 'logprob_bits', 'alternatives']) turn[key] = repeat(turn[key]);
  turn.text = '"'.repeat(n);
  turn.text_ends = Array.from({ length: n }, (_, i) => i + 1);
  turn.log_tokens = turn.n_input + n;
  turn.seq_last += grown;
  for (const event of record.events) if (event.seq > turn.seq_first) event.seq += grown;
  Object.assign(record.session, { id: 'long', n_tokens: turn.n_input + n, seq: record.session.seq + grown, seq_reserved: record.session.seq + grown });
  const file = path.join(temporaryFolder(t), 'long.json');
  writeFileSync(file, JSON.stringify(record));
  execFileSync(parley, ['sessions', 'import', file, '--db', db, '--owner', 'local']);
  server = await Server.start(t, { db, args: unlimited });
  return { server, turn, n };
}

test('records of the longest turn that are not read cost no memory, and no other client waits for them', async (t) => {
  const { server, turn, n } = await serverWithLongTurn(t);
  const other = await server.connect();
  const [reader, deleted] = [await server.connect(), await server.connect()];
  const get = (client) => { for (let i = 0; i < 20; i++) client.send({ type: 'turn.get', session: 'long', turn: 0, request_id: `x${i}` }); };
  const before = residentBytes(server);
  for (const client of [reader, deleted]) client.socket._socket.pause();
  get(reader);
  await until('the first record', async () => (await server.metric('parley_waiting_bytes')) > 0);
  for (let i = 0; i < 20; i++) assert.equal((await other.ask({ type: 'ping' })).type, 'pong');
  const grown = residentBytes(server) - before;
  t.diagnostic(`20 records of ${n} tokens with 20 alternatives unread: ${(grown / MB).toFixed(1)} MB more`);
  assert.ok((await server.metric('parley_waiting_bytes')) < MB);
  if (scale === 1) assert.ok(grown < 32 * MB, `${(grown / MB).toFixed(1)} MB more`);

  // Read at last, they are whole.
  reader.socket._socket.resume();
  const states = (client) => client.frames.filter((frame) => frame.type === 'turn.state');
  let most = 0;
  await until('all records', async () => {
    most = Math.max(most, await server.metric('parley_waiting_bytes'));
    assert.equal((await other.ask({ type: 'ping' })).type, 'pong');
    return states(reader).length === 20;
  });
  assert.ok(most < MB, `${most} bytes wait`);
  assert.equal(new Set(states(reader).map((state) => state.request_id)).size, 20);
  for (const state of states(reader)) {
    assert.deepEqual(state.tokens.map((token) => token.id), turn.ids);
    assert.ok(state.tokens.every((token) => token.top.length === 20));
    assert.equal(state.turn.text, '"'.repeat(n));
    assert.deepEqual(state.input_ids, turn.input_ids);
    assert.equal(state.error, undefined);
  }
  // If the record is removed while it is sent, the answer ends there, with the reason.
  deleted.send({ type: 'turn.get', session: 'long', turn: 0, request_id: 'cut' });
  await until('its beginning', async () => (await server.metric('parley_waiting_bytes')) > 0);
  await other.ask({ type: 'session.close', session: 'long', delete: true });
  deleted.socket._socket.resume();
  const cut = await until('its end', () => states(deleted)[0]);
  assert.equal(cut.error.code, 'session_not_found');
  assert.equal((await deleted.ask({ type: 'ping' })).type, 'pong');
});

test('the answers that wait for an owner are bounded over all its connections', async (t) => {
  const n = Math.round(200 * scale);
  const server = await Server.start(t, { args: unlimited });
  const writer = await server.connect();
  await writer.ask({ type: 'session.open', session: 's', system: 'You are a helpful assistant. '.repeat(1100) });
  const clients = [];
  for (let i = 0; i < n; i += 20) clients.push(...await Promise.all(Array.from({ length: 20 }, () => server.connect())));
  for (const client of clients) {
    client.socket._socket.pause();
    for (let i = 0; i < 60; i++) client.send({ type: 'session.get', session: 's', request_id: `x${i}` });
  }
  let most = 0, same = 0; // until nothing more comes in
  for (let before = -1; same < 5;) {
    await sleep(100);
    const now = await server.metric('parley_waiting_bytes');
    same = now === before ? same + 1 : 0;
    before = now;
    most = Math.max(most, now);
  }
  t.diagnostic(`${n} connections with 60 unread answers of 34 KB: ${(most / MB).toFixed(1)} MB wait`);
  assert.ok(most < (16 + (n * 100) / 1024) * MB, `${most} bytes`);
  if (scale === 1) await until('the budget', async () => (await server.metric('parley_over_budget_total{budget="owner_bytes"}')) > 0);
  clients.forEach((client) => client.socket._socket.resume());
  for (const client of clients)
    await until('all answers', () => client.frames.filter((frame) => frame.type === 'session.state').length === 60);
  await until('nothing to wait', async () => (await server.metric('parley_waiting_bytes')) === 0);
});

test('the answers that wait are bounded over all owners, and so are the changes that an owner is sent', async (t) => {
  const names = Array.from({ length: 6 }, (_, i) => `owner${i}`), per = Math.round(70 * scale) || 1;
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, names.map((name) => `${name}:${name}-token-0123456789 admin\n`).join(''));
  chmodSync(file, 0o600);
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file, '--max-connections', '1024'] });
  const page = async () => (await fetch(`${server.url}/metrics`, { headers: { Authorization: `Bearer ${names[0]}-token-0123456789` } })).text();
  const metric = async (name) => Number((await page()).split('\n').find((row) => row.startsWith(`${name} `)).split(' ').pop());
  const over = (budget) => metric(`parley_over_budget_total{budget="${budget}"}`);
  const clients = [];
  for (const name of names) {
    const owner = await Promise.all(Array.from({ length: per }, () => server.connect({ token: `${name}-token-0123456789` })));
    await owner[0].ask({ type: 'session.open', session: 's', system: 'You are a helpful assistant. '.repeat(1100) });
    clients.push(...owner);
    for (const client of owner) {
      client.socket._socket.pause();
      for (let i = 0; i < 60; i++) client.send({ type: 'session.get', session: 's', request_id: `x${i}` });
    }
  }
  if (scale === 1) await until('the budget of the server', async () => (await over('server_bytes')) > 0);
  const most = await metric('parley_waiting_bytes');
  t.diagnostic(`${clients.length} connections of ${names.length} owners with 60 unread answers of 34 KB: ${(most / MB).toFixed(1)} MB wait`);
  assert.ok(most < 64 * MB + clients.length * 100 * 1024, `${most} bytes`);
  clients.forEach((client) => client.terminate());

  const watchers = await Promise.all(Array.from({ length: 60 }, () => server.connect({ token: `${names[0]}-token-0123456789` })));
  await Promise.all(watchers.map((client) => client.ask({ type: 'sessions.watch' })));
  const n = 100;
  await Promise.all(Array.from({ length: n }, (_, i) => watchers[i % 60].ask({ type: 'session.open', session: `w${i}`, title: 'new' })));
  await Promise.all(Array.from({ length: n }, (_, i) => watchers[i % 60].ask({ type: 'session.update', session: `w${i}`, title: 'last' })));
  for (const client of watchers) // each gets the last state in the end
    await until('all last titles', () => new Set(client.frames.filter((f) => f.type === 'session.changed' && f.session.title === 'last').map((f) => f.session.id)).size === n);
  assert.ok((await over('owner_changes')) > 0);
});
