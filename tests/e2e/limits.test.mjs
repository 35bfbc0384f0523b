// Owners and their limits: shared by all connections and protocols, refused with a sentence and a true time, changed and
// removed while the server runs.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { RawSocket, sleep, Wire } from './wire.mjs';

const ALICE = 'alice-token-of-thirty-two-characters';
const BOB = 'bob-token-0123456789';
const ADMIN = 'admin-token-of-thirty-two-characters';

/** A token file; write(text) replaces it. */
function tokens(t, text) {
  const file = path.join(temporaryFolder(t), 'tokens');
  const write = (lines) => writeFileSync(file, lines, { mode: 0o600 });
  write(text);
  return { file, write };
}
const start = (t, file, ...args) => Server.start(t, { args: [...unlimited, '--token-file', file, ...args] });
const get = (server, target, token) => fetch(`${server.url}${target}`, { headers: { Authorization: `Bearer ${token}` } });
const usage = async (client) => (await client.request({ type: 'usage.get' })).usage.limits;
/** Sends the message on each client and gives all answers. */
const ask = (clients, n, message) =>
  Promise.all(clients.flatMap((client) => Array.from({ length: n }, async () => ({ client, answer: await client.ask(message) }))));
const reload = async (server) => {
  const n = server.log.split('event=server.reload').length;
  server.process.kill('SIGHUP');
  await until('the reload', () => server.log.split('event=server.reload').length > n);
};

longTest('requests: all sockets and protocols of an owner share one rate, and the times told are true', async (t) => {
  const { file } = tokens(t, `alice:${ALICE} requests_per_minute=240\nalice:${ADMIN} admin\nbob:${BOB}\n`);
  const server = await start(t, file);
  const alice = await Promise.all(Array.from({ length: 4 }, (_, i) => server.connect({ token: i % 2 ? ALICE : ADMIN })));
  const bob = await server.connect({ token: BOB });
  const begun = Date.now();
  const answers = await ask(alice, 30, { type: 'ping' });
  const refused = answers.filter(({ answer }) => answer.type === 'error');
  const most = 60 + ((Date.now() - begun) / 1000 + 1) * 4;
  assert.ok(refused.length >= 120 - most, `${answers.length - refused.length} of 120 at once, with 60 for a burst`);
  assert.ok(refused.every(({ answer }) => answer.code === 'rate_limited' && answer.message === 'your limit is 240 requests a minute'));
  assert.ok((await ask([bob], 30, { type: 'ping' })).every(({ answer }) => answer.type === 'pong'), 'the other owner is served');
  const page = await get(server, '/v1/usage', ALICE);
  // On a busy machine so much time has passed that the next request is due. Then this one took the place of a refused one.
  const late = page.status === 200 && Date.now() - begun > 250;
  assert.ok(page.status === 429 || late, `status ${page.status}`);
  assert.equal(Number(page.headers.get('retry-after')), Math.ceil(Number(page.headers.get('retry-after-ms')) / 1000));
  // They got different times, and each is served when its own has passed.
  const ten = refused.slice(0, 10);
  assert.equal(new Set(ten.map(({ answer }) => answer.retry_after_ms)).size, 10);
  await Promise.all(ten.map(async ({ client, answer }) => {
    await sleep(answer.retry_after_ms + (late ? 250 : 0));
    assert.equal((await client.ask({ type: 'ping' })).type, 'pong', `after ${answer.retry_after_ms} ms`);
  }));
  // The requests that wait above may have taken what became free: then the server names a later time, which must hold.
  let again = page;
  for (let i = 0; i < 5 && (i === 0 || again.status === 429); i++) {
    await sleep(Number(again.headers.get('retry-after-ms')));
    again = await get(server, '/v1/usage', ALICE);
  }
  assert.equal(again.status, 200);
  const counts = (await again.json()).usage.limits;
  assert.ok(counts.requests_per_minute.refused >= refused.length);
  assert.equal(counts.connections.used, 4 + 1); // the fetch is one
});

test('what counts as a request: messages, bytes, control frames, HTTP', async (t) => {
  const { file } = tokens(t, `alice:${ALICE} requests_per_minute=100000\n`);
  const server = await start(t, file);
  const client = await server.connect({ token: ALICE, malformed: true });
  const total = async () => (await usage(client)).requests_per_minute.total;
  const costs = async (fn) => {
    const before = await total();
    await fn();
    return (await total()) - before - 1; // its own question
  };
  const post = (content) => fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify({ model: 'other', messages: [{ role: 'user', content }] }),
    headers: { Authorization: `Bearer ${ALICE}`, 'content-type': 'application/json' } });
  assert.equal(await costs(() => client.request({ type: 'ping' })), 1);
  assert.equal(await costs(() => client.request({ type: 'ping', padding: 'x'.repeat(5 * 65536) })), 6);
  assert.equal(await costs(() => client.request({ type: 'nonsense' }).catch(() => {})), 1);
  assert.equal(await costs(() => get(server, '/v1/usage', ALICE)), 1);
  assert.equal(await costs(() => post('short')), 1);
  assert.equal(await costs(() => post('x'.repeat(3 * 65536))), 4);
  assert.equal(await costs(() => fetch(`${server.url}/healthz`)), 0);
  assert.equal(await costs(async () => {
    for (let i = 0; i < 5; i++) {
      const pong = new Promise((resolve) => client.socket.once('pong', resolve));
      client.socket.ping();
      await pong;
    }
  }), 5);
});

longTest('tokens: turns are refused beyond the limit until the time that is told', async (t) => {
  const { file } = tokens(t, `alice:${ALICE} tokens_per_minute=240\nbob:${BOB}\n`); // 4 a second, 60 at once
  const server = await start(t, file);
  const [one, two] = await Promise.all([server.connect({ token: ALICE }), server.connect({ token: ALICE })]);
  const session = await one.open();
  const other = await two.open();
  let refused, whole;
  do { // again where the machine is so busy that as many tokens were granted meanwhile
    const long = () => one.start(session, 'Tell me a story.', { sampling: { max_tokens: 80, ignore_eos: true } });
    let begun = await long();
    while (begun.type === 'error') { // not the first time: one of the two below had been refused
      assert.equal(begun.code, 'rate_limited');
      await sleep(begun.retry_after_ms);
      begun = await long();
    }
    await one.next((f) => f.type === 'turn.done' && f.turn === begun.turn);
    refused = await two.start(other, 'Hello', { sampling: { max_tokens: 2 } });
    if (refused.type === 'turn.accepted') await two.next((f) => f.type === 'turn.done' && f.turn === refused.turn);
    whole = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST',
      headers: { Authorization: `Bearer ${ALICE}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'demo-model', max_tokens: 2, messages: [{ role: 'user', content: 'Hello' }] }) });
  } while (refused.type === 'turn.accepted' || whole.status === 200);
  assert.equal(refused.code, 'rate_limited');
  assert.match(refused.message, /240 tokens/);
  assert.equal(whole.status, 429);
  assert.equal((await whole.json()).error.code, 'rate_limit_exceeded');
  assert.ok(Number(whole.headers.get('retry-after')) >= 1);
  await sleep(Math.max(0, refused.retry_after_ms - 500));
  const hello = { sampling: { max_tokens: 2, ignore_eos: true } };
  const early = await two.start(other, 'Hello', hello);
  if (early.type === 'error') await sleep(early.retry_after_ms); // a busy machine may have slept longer
  const { done } = early.type === 'error' ? await two.turn(other, 'Hello', hello)
    : { done: await two.next((f) => f.type === 'turn.done' && f.turn === early.turn) };
  assert.equal(done.usage.output_tokens, 2);
  assert.ok((await usage(one)).tokens_per_minute.total > 66);
});

test('turns beyond running_turns wait for each other, not for another owner', async (t) => {
  const { file } = tokens(t, `alice:${ALICE} running_turns=2 outstanding_jobs=4\nbob:${BOB}\n`);
  const server = await start(t, file);
  const alice = await server.connect({ token: ALICE });
  const bob = await server.connect({ token: BOB });
  const sessions = await Promise.all(Array.from({ length: 5 }, () => alice.open()));
  const accepted = [];
  // The two that run do so until all has been asked, and are cancelled then.
  const length = (i) => (i < 2 ? 3900 : 60);
  for (const [i, session] of sessions.entries()) accepted.push(await alice.start(session, 'Count.', { sampling: { max_tokens: length(i), ignore_eos: true } }));
  assert.deepEqual(accepted.map((a) => a.type), [...Array(4).fill('turn.accepted'), 'error']);
  assert.equal(accepted[4].code, 'overloaded');
  assert.match(accepted[4].message, /4 turns/);
  const counts = await usage(alice);
  assert.equal(counts.running_turns.used, 2);
  assert.equal(counts.outstanding_jobs.used, 4);
  await bob.turn(await bob.open(), 'Hello', { sampling: { max_tokens: 2 } });
  assert.equal((await usage(alice)).running_turns.used, 2, 'the other owner was served meanwhile');
  for (const session of sessions.slice(0, 2)) await alice.ask({ type: 'turn.cancel', session });
  for (const [i, session] of sessions.slice(0, 4).entries()) {
    const done = alice.frames.find((f) => f.type === 'turn.done' && f.session === session)
      ?? await alice.next((f) => f.type === 'turn.done' && f.session === session);
    assert.equal(done.finish_reason, i < 2 ? 'cancelled' : 'length');
    if (i >= 2) assert.equal(done.usage.output_tokens, length(i));
  }
  const order = alice.frames.filter((f) => f.type === 'turn.started').map((f) => f.session);
  assert.deepEqual(order, sessions.slice(0, 4));
  assert.equal(alice.frames.filter((f) => f.type === 'turn.queued').length, 2);
  assert.equal((await usage(alice)).outstanding_jobs.used, 0);
  assert.equal(await server.metric('parley_limited_total{limit="running_turns"}'), undefined, 'metrics are an administrator\'s');
});

test('connections and sessions', async (t) => {
  const { file } = tokens(t, `alice:${ALICE} connections=3 sessions=2\nbob:${BOB}\n`);
  const server = await start(t, file);
  const open = [await server.connect({ token: ALICE }), await server.connect({ headers: { Authorization: `Bearer ${ALICE}` } })];
  open.push(await server.connect({ token: ALICE }));
  const fourth = await server.connect({ token: ALICE, hello: false });
  const error = await fourth.next((f) => f.type === 'error');
  assert.equal(error.code, 'limit_reached');
  assert.match(error.message, /3 open connections/);
  assert.equal(await fourth.closed, 1008);
  const page = await get(server, '/v1/usage', ALICE);
  assert.equal(page.status, 429);
  assert.equal((await page.json()).error.code, 'insufficient_quota'); // as OpenAI's clients know it
  await (await server.connect({ token: BOB })).close();
  open[1].terminate();
  await until('a place', async () => (await get(server, '/v1/usage', ALICE)).status === 200);
  const ids = [await open[0].open(), await open[0].open()];
  for (const message of [{ type: 'session.open' }, { type: 'session.fork', session: ids[0] }]) {
    const refused = await open[2].request(message);
    assert.equal(refused.code, 'limit_reached');
    assert.match(refused.message, /2 stored sessions/);
  }
  await open[0].request({ type: 'session.close', session: ids[0], delete: true });
  await open[2].open();
});

test('administrators see settings, metrics and the counts of others; nobody else does', async (t) => {
  const { file } = tokens(t, `alice:${ALICE}\nroot:${ADMIN} admin\n`);
  const server = await start(t, file, '--owner-sessions', '1');
  const alice = await server.connect({ token: ALICE });
  const root = await server.connect({ token: ADMIN });
  await alice.open();
  assert.equal((await alice.request({ type: 'session.open' })).code, 'limit_reached');
  for (const target of ['/metrics', '/metrics/history', '/config']) {
    assert.equal((await get(server, target, ALICE)).status, 403);
    assert.equal((await get(server, target, ADMIN)).status, 200);
    assert.equal((await fetch(`${server.url}${target}`)).status, 401);
  }
  assert.equal((await alice.request({ type: 'usage.get', owners: true })).code, 'forbidden');
  assert.equal((await alice.request({ type: 'usage.get' })).usage.limits.sessions.used, 1);
  assert.equal((await usage(alice)).stored_bytes.limit, 4 * 2 ** 30, 'every digit of a limit');
  const all = (await root.request({ type: 'usage.get', owners: true })).owners;
  assert.deepEqual(all.map((o) => [o.owner, o.limits.sessions.used, o.limits.sessions.refused]), [['alice', 1, 1], ['root', 0, 0]]);
  assert.equal((await (await get(server, '/v1/usage', ALICE)).json()).owners, undefined);
  const page = await (await get(server, '/metrics', ADMIN)).text();
  assert.match(page, /^parley_limited_total\{limit="sessions"\} 1$/m);
  assert.doesNotMatch(page, /alice/);
});

longTest('every limit of owners and every budget is in /metrics, by its own name and by nobody else\'s', async (t) => {
  const { file } = tokens(t, `alice:${ALICE}\nroot:${ADMIN} admin\n`);
  const server = await start(t, file);
  const root = await server.connect({ token: ADMIN });
  const raw = await RawSocket.open(Object.assign(new Wire(), { host: '127.0.0.1', port: server.port }), { Authorization: `Bearer ${ALICE}` });
  const page = async () => (await get(server, '/metrics', ADMIN)).text();
  const counts = (text, metric, label) => Object.fromEntries([...text.matchAll(new RegExp(`^${metric}\\{${label}="([a-z_]+)"\\} (\\S+)$`, 'gm'))].map((m) => [m[1], Number(m[2])]));
  const before = await page();
  assert.deepEqual(Object.keys(counts(before, 'parley_limited_total', 'limit')).sort(), Object.keys(await usage(root)).sort());
  assert.deepEqual(counts(before, 'parley_over_budget_total', 'budget'), { connection_bytes: 0, owner_bytes: 0, server_bytes: 0, owner_changes: 0 });
  // Answers that are left unread: the client is read no further.
  raw.socket.pause();
  for (let over = 0; over === 0;) {
    for (let i = 0; i < 200; i++) raw.send(JSON.stringify({ type: 'usage.get' }));
    await sleep(5);
    over = counts(await page(), 'parley_over_budget_total', 'budget').connection_bytes;
  }
  raw.socket.destroy();
  assert.doesNotMatch(await page(), /alice|root/);
});

for (const policy of ['cancel', 'finish'])
  longTest(`a token that is removed: its connections end, its turns ${policy}`, async (t) => {
    const both = `alice:${ALICE} sessions=2\nbob:${BOB}\n`;
    const { file, write } = tokens(t, both);
    const server = await start(t, file, '--on-token-removed', policy);
    const alice = await Promise.all([server.connect({ token: ALICE }), server.connect({ headers: { Authorization: `Bearer ${ALICE}` } })]);
    const bob = await server.connect({ token: BOB });
    const session = await alice[0].open();
    // The turn to cancel is as long as a session can be, so that it still runs when the token is removed.
    const [length, streamedLength] = policy === 'cancel' ? [3900, 3900] : [700, 100];
    const stream = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST',
      headers: { Authorization: `Bearer ${ALICE}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'demo-model', stream: true, max_tokens: streamedLength, ignore_eos: true, messages: [{ role: 'user', content: 'Count.' }] }) });
    const streamed = stream.text().catch(() => 'cut off');
    const bobs = await bob.open();
    const theirs = bob.turn(bobs, 'Count.', { sampling: { max_tokens: 200, ignore_eos: true } });
    write(`bob:${BOB}\n`);
    await alice[0].start(session, 'Count.', { sampling: { max_tokens: length, ignore_eos: true } });
    await alice[0].next((f) => f.type === 'turn.delta');
    await reload(server);
    for (const client of alice) {
      assert.equal(await client.closed, 4003);
      assert.equal(client.closeReason, 'the token was removed');
      assert.equal(client.frames.at(-1).code, 'unauthorized');
    }
    assert.equal((await streamed).trimEnd().endsWith('[DONE]'), policy === 'finish');
    assert.equal((await theirs).done.usage.output_tokens, 200, 'the other owner is not touched');
    assert.equal((await get(server, '/v1/usage', ALICE)).status, 401);
    write(both.replace('sessions=2', 'sessions=3'));
    await reload(server);
    const again = await server.connect({ token: ALICE });
    await again.request({ type: 'session.attach', session });
    const state = async () => (await again.request({ type: 'session.get', session })).turns[0];
    await until('the end of the turn', async () => (await state()).state === 'done');
    assert.equal((await state()).finish_reason, policy === 'cancel' ? 'cancelled' : 'length');
    await again.open(); // its limit is 3 now
    assert.equal((await again.request({ type: 'session.open' })).code, 'limit_reached');
  });

longTest('wrong tokens lock their address out, longer each time; a long right one passes', async (t) => {
  const { file } = tokens(t, `alice:${ALICE}\nbob:${BOB}\n`);
  const attempt = async () => {
    const wire = await Wire.start(t, { args: ['--token-file', file] });
    const upgrade = (token) => wire.raw(wire.upgrade({ Authorization: `Bearer ${token}` }), { until: '\r\n\r\n' });
    const wait = (answer) => Number(/retry-after-ms: (\d+)/i.exec(answer.text)?.[1]);
    for (let i = 0; i < 10; i++) assert.equal((await upgrade(`wrong-token-number-${i}`)).status, 401);
    let begun = performance.now();
    const late = (ms) => performance.now() - begun > ms;
    assert.equal((await upgrade('wrong-token-number-10')).status, 401);
    const locked = await upgrade(BOB);
    const answers = [locked, await upgrade('wrong-token-of-more-than-thirty-two-characters'), await upgrade(ALICE)];
    const hello = await RawSocket.open(wire);
    hello.send(JSON.stringify({ type: 'hello', token: BOB }));
    await until('an answer', () => hello.closed || hello.frames.length > 0);
    if (late(1000)) return wire.stop('SIGKILL').then(() => false);
    assert.deepEqual(answers.map(({ status }) => status), [429, 429, 101]);
    assert.ok(wait(locked) <= 1001);
    assert.equal(await hello.close(), 1008);
    assert.equal(hello.messages().at(-1).code, 'rate_limited');
    await sleep(wait(locked));
    begun = performance.now();
    assert.equal((await upgrade(BOB)).status, 101, 'the time was true, and refusals did not lengthen it');
    assert.equal((await upgrade('wrong-token-number-12')).status, 401);
    const longer = wait(await upgrade(BOB));
    if (late(990)) return wire.stop('SIGKILL').then(() => false);
    assert.ok(longer > 1001 && longer <= 2001, `${longer} ms`);
    return true;
  };
  await until('an attempt that is faster than the lock of a second', attempt);
});

longTest('connections without a token take a part of the places, and the oldest goes first', async (t) => {
  const { file } = tokens(t, `alice:${ALICE}\nroot:${ADMIN} admin\n`);
  const wire = await Wire.start(t, { args: ['--token-file', file, '--max-connections', '12', '--max-connections-per-ip', '100'] });
  const silent = [];
  for (let i = 0; i < 8; i++) silent.push(await RawSocket.open(wire));
  await until('the oldest to be closed', () => silent.slice(0, 4).every((s) => s.closed));
  assert.ok(silent.slice(4).every((s) => !s.closed));
  const known = [];
  for (let i = 0; i < 12; i++) known.push(await wire.connect({ headers: { Authorization: `Bearer ${i ? ALICE : ADMIN}` } }));
  await until('the silent ones to give way', () => silent.every((s) => s.closed));
  assert.ok(known.every((client) => client.closeCode === undefined));
  assert.ok(!(await wire.raw(wire.upgrade({ Authorization: `Bearer ${ALICE}` }), { until: '\r\n\r\n' })).text.includes('101'), 'all places are taken');
  known.pop().terminate();
  // Eight, and these requests where they come before the server has seen that a place is free.
  await until('a place', async () => Number(/limit="no_token"\} (\d+)/.exec((await wire.get('/metrics', [`Authorization: Bearer ${ADMIN}`])).text)?.[1]) >= 8);
  known.forEach((client) => client.terminate());
});

for (const scheme of ['http', 'https'])
  longTest(`hello_timeout is what it says, over ${scheme}`, async (t) => {
    const { file } = tokens(t, `alice:${ALICE}\n`);
    const folder = temporaryFolder(t);
    const [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
      '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=x'], { stdio: 'ignore' });
    const wire = await Wire.start(t, { tls: scheme === 'https',
      args: ['--token-file', file, '--hello-timeout', '2', ...(scheme === 'https' ? ['--tls-cert', cert, '--tls-key', key] : [])] });
    const begun = Date.now();
    const s = await RawSocket.open(wire);
    assert.equal(await s.close(), 1008);
    const took = Date.now() - begun;
    assert.ok(took >= 1900 && took < 100000, `${took} ms`); // without the option these servers wait for two minutes
  });

longTest('imports at once pass neither the number of sessions nor the stored bytes', async (t) => {
  const { file } = tokens(t, `alice:${ALICE} sessions=4 outstanding_jobs=64\nbob:${BOB} stored_bytes=60000\n`);
  const server = await start(t, file);
  const clients = await Promise.all(Array.from({ length: 12 }, () => server.connect({ token: ALICE })));
  const { session } = await clients[0].request({ type: 'session.open', system: 'Be brief. '.repeat(2000) });
  const { archive } = await clients[0].ask({ type: 'session.export', session: session.id });
  const answers = await ask(clients, 1, { type: 'session.import', archive });
  const kinds = answers.map(({ answer }) => answer.code ?? answer.type).sort();
  assert.deepEqual(kinds, [...Array(9).fill('limit_reached'), ...Array(3).fill('session.imported')]);
  assert.equal((await usage(clients[0])).sessions.used, 4);
  const bob = await Promise.all(Array.from({ length: 6 }, () => server.connect({ token: BOB })));
  const told = (await ask(bob, 1, { type: 'session.import', archive })).map(({ answer }) => answer.code ?? answer.type);
  assert.ok(told.filter((kind) => kind === 'session.imported').length <= 3 && told.includes('limit_reached'), told.join());
});
