// Read-only sharing: links that owners make and take back, and what a reader without a token gets by one.
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, Server, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';

const tokens = { alice: 'alice-token-0123456789', mallory: 'mallory-token-0123456789' };
const sampling = { max_tokens: 4, ignore_eos: true };
const wrong = 'f'.repeat(64);

function owners(t) {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''));
  chmodSync(file, 0o600);
  return ['--token-file', file, ...unlimited];
}

/** A reader has no token and gets no cookie. */
async function read(server, token, method = 'GET') {
  const reply = await fetch(`${server.url}/share/${token}`, { method });
  return { status: reply.status, headers: reply.headers, text: await reply.text() };
}
const shown = async (server, token) => JSON.parse((await read(server, token)).text);

/** That a token opens nothing looks like this, whatever the reason; the date alone differs. */
async function assertNothing(server, token) {
  const { status, headers, text } = await read(server, token);
  const without = ({ date, ...rest }) => rest;
  const other = await read(server, wrong);
  assert.deepEqual([status, text, without(Object.fromEntries(headers))], [404, other.text, without(Object.fromEntries(other.headers))]);
  assert.equal(JSON.parse(text).error.code, 'not_found');
}

test('a link shows the title and the current path to a reader without a token, until it is taken back', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: [...owners(t), '--sharing'] };
  let server = await Server.start(t, options);
  const alice = await server.connect({ token: tokens.alice });
  const session = await alice.open({ title: 'Names', system: 'The system prompt is private.' });
  const first = await alice.turn(session, 'My name is Zora.', { sampling });
  await alice.turn(session, 'A version that is not shown.', { sampling });
  await alice.turn(session, 'What is my name?', { sampling, after: first.turn ?? 0 });
  const made = await alice.request({ type: 'session.share', session });
  assert.match(made.token, /^[0-9a-f]{64}$/);
  assert.deepEqual([made.type, made.session.id, made.session.shared], ['session.shared', session, true]);

  const { status, headers, text } = await read(server, made.token);
  assert.equal(status, 200);
  const { turns } = await alice.request({ type: 'session.get', session });
  assert.deepEqual(JSON.parse(text), {
    title: 'Names',
    turns: turns.map((turn) => ({ input: turn.input.content, answer: turn.text.trim() })),
  });
  assert.deepEqual(JSON.parse(text).turns.map(({ input }) => input), ['My name is Zora.', 'What is my name?']);
  for (const secret of ['private', 'not shown', session, 'alice', 'temperature']) assert.ok(!text.includes(secret), secret);
  assert.deepEqual(['cache-control', 'referrer-policy', 'x-robots-tag', 'content-type', 'set-cookie'].map((name) => headers.get(name)),
    ['no-store', 'no-referrer', 'noindex', 'application/json', null]);
  const head = await read(server, made.token, 'HEAD');
  assert.deepEqual([head.status, head.text], [200, '']);

  // What is said later shows too, and so does a moved head.
  await alice.request({ type: 'session.rewind', session, turn: 0 });
  assert.deepEqual((await shown(server, made.token)).turns.map(({ input }) => input), ['My name is Zora.']);

  // It is kept over a restart; a new one replaces it.
  await server.stop();
  server = await Server.start(t, options);
  const again = await server.connect({ token: tokens.alice });
  assert.equal((await shown(server, made.token)).title, 'Names');
  const newer = await again.request({ type: 'session.share', session });
  assert.notEqual(newer.token, made.token);
  await assertNothing(server, made.token);
  assert.equal((await shown(server, newer.token)).title, 'Names');

  const back = await again.request({ type: 'session.unshare', session });
  assert.deepEqual([back.type, back.session.shared], ['session.updated', undefined]);
  await assertNothing(server, newer.token);
});

longTest('a link is gone with its session, is in no copy and no file, and the server keeps no token', async (t) => {
  const server = await Server.start(t, { args: ['--sharing', ...unlimited] });
  const client = await server.connect();
  const session = await client.open({ title: 'Short' });
  await client.turn(session, 'Hello.', { sampling });
  const { token } = await client.request({ type: 'session.share', session });
  const { session: copy } = await client.request({ type: 'session.fork', session });
  assert.equal(copy.shared, undefined);
  const { archive } = await client.request({ type: 'session.export', session });
  assert.ok(!archive.includes('"share"') && !archive.includes(token));
  const { session: imported } = await client.request({ type: 'session.import', archive });
  assert.equal(imported.shared, undefined);
  const { sessions } = await client.request({ type: 'session.list' });
  assert.deepEqual(sessions.filter(({ shared }) => shared).map(({ id }) => id), [session]);
  assert.ok(!JSON.stringify(sessions).includes(token));
  for (const bad of ['', 'x', wrong.slice(1), `${token}0`, token.toUpperCase() === token ? wrong : token.toUpperCase(), `${token}/`])
    await assertNothing(server, bad);
  await client.request({ type: 'session.close', session, delete: true });
  await assertNothing(server, token);
  assert.ok(!server.log.includes(token));
});

longTest('clients that follow the session hear of it without the token; another owner finds no session', async (t) => {
  const server = await Server.start(t, { args: [...owners(t), '--sharing'] });
  const alice = await server.connect({ token: tokens.alice });
  const other = await server.connect({ token: tokens.alice });
  const mallory = await server.connect({ token: tokens.mallory });
  const session = await alice.open({});
  await other.request({ type: 'session.attach', session });
  for (const type of ['session.share', 'session.unshare']) {
    const answer = await mallory.ask({ type, session });
    assert.deepEqual([answer.code, answer.message], ['session_not_found', (await mallory.ask({ type, session: 'none' })).message]);
  }
  const { token } = await alice.request({ type: 'session.share', session });
  await other.ask({ type: 'ping' });
  const updated = other.frames.findLast(({ type }) => type === 'session.updated');
  assert.equal(updated?.session.shared, true);
  assert.ok(!JSON.stringify([...other.frames, ...mallory.frames]).includes(token));
});

test('off by default: no link is made, and those of an earlier start open nothing', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  let server = await Server.start(t, { db, args: ['--sharing', ...unlimited] });
  let client = await server.connect();
  assert.equal(client.hello.sharing, true);
  const session = await client.open({});
  const { token } = await client.request({ type: 'session.share', session });
  assert.equal((await read(server, token)).status, 200);
  await server.stop();
  server = await Server.start(t, { db, args: unlimited });
  client = await server.connect();
  assert.equal(client.hello.sharing, undefined);
  await assertNothing(server, token);
  const refused = await client.ask({ type: 'session.share', session });
  assert.equal(refused.code, 'unsupported');
  const back = await client.request({ type: 'session.unshare', session });
  assert.equal(back.session.shared, undefined, 'a link can be taken back in any case');
});

longTest('thinking is not shown, however the model marks it', async (t) => {
  const server = await Server.start(t, { args: ['--sharing', ...unlimited] });
  const client = await server.connect();
  const session = await client.open({});
  const answers = ['<think>private</think>said', '[THINK]private[/THINK]said', 'private</think>said',
    '<|channel|>analysis<|message|>private<|end|><|start|>assistant<|channel|>final<|message|>said', '  <think>private', 'said'];
  for (const text of answers) await client.request({ type: 'turn.write', session, input: { content: 'Q' }, text });
  const { token } = await client.request({ type: 'session.share', session });
  assert.deepEqual((await shown(server, token)).turns.map(({ answer }) => answer), ['said', 'said', 'said', 'said', '', 'said']);
});

longTest('readers have the rate of a connection, as all others do', async (t) => {
  const server = await Server.start(t, { args: ['--sharing', '--messages-per-second', '1', '--message-burst', '1'] });
  const statuses = [];
  for (let i = 0; i < 40 && !statuses.includes(429); i++) statuses.push((await read(server, wrong)).status);
  assert.equal(statuses.at(-1), 429, statuses.join());
  assert.ok(statuses.slice(0, -1).every((status) => status === 404));
});

longTest('a long conversation comes in parts, each of which says where the next one begins', async (t) => {
  const server = await Server.start(t, { args: ['--sharing', ...unlimited] });
  const client = await server.connect();
  const session = await client.open({ title: 'Long' });
  for (let i = 0; i < 203; i++) await client.request({ type: 'turn.write', session, input: { content: `${i}` }, text: 'Yes.' });
  const { token } = await client.request({ type: 'session.share', session });
  const first = await shown(server, token);
  assert.deepEqual([first.turns.length, first.turns[0].input, first.next], [200, '0', 200]);
  const last = await shown(server, `${token}?from=${first.next}`);
  assert.deepEqual(last, { title: 'Long', turns: ['200', '201', '202'].map((input) => ({ input, answer: 'Yes.' })) });
  assert.deepEqual(await shown(server, `${token}?from=99999999999`), { title: 'Long', turns: [] });
  for (const from of ['', '-1', '1e3', 'x']) assert.equal((await read(server, `${token}?from=${from}`)).status, 400, from);
  assert.equal((await read(server, `${wrong}?from=0`)).status, 404);
  await client.close();
});
