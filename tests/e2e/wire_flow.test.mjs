// Delivery of events: order, slow readers, reconnecting, watching, long frames, shutdown.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { residentBytes, residentMib } from './processes.mjs';
import { RawSocket, Wire, sleep, until } from './wire.mjs';

const eager = ['--messages-per-second', '1000', '--message-burst', '1000'];

/** Every seq from first to last exactly once and in order; gives the text. */
function whole(frames, session, first, last) {
  let seq = first - 1;
  let text = '';
  for (const f of frames.filter((m) => m.session === session || m.session?.id === session)) {
    if (!f.seq || f.type === 'session.attached') continue;
    assert.equal(f.first_seq ?? f.seq, seq + 1, `a gap or a repeat before ${JSON.stringify(f).slice(0, 120)}`);
    seq = f.seq;
    text += f.type === 'turn.delta' ? f.text : '';
    if (f.type === 'turn.delta') assert.equal(f.ids.length, f.seq - f.first_seq + 1);
  }
  assert.equal(seq, last);
  return text;
}
const words = (n) => Array.from({ length: n }, (_, i) => `w${i} `).join('');

test('a turn, seen by its caller and by a second tab', async (t) => {
  const wire = await Wire.start(t, { args: eager });
  const one = await wire.connect();
  const two = await wire.connect();
  await one.open({ session: 's' });
  await two.request({ type: 'session.attach', session: 's', after: 0 });
  await one.start('s', 'count 200');
  for (const client of [one, two]) {
    await client.next((m) => m.type === 'turn.done');
    assert.equal(whole(client.frames, 's', 1, 203), words(200));
  }
  assert.ok(one.frames.findIndex((m) => m.type === 'session.opened') < one.frames.findIndex((m) => m.type === 'turn.accepted'),
    'an answer overtook an earlier event of its session');
});

test('coming back with `after` at any point loses nothing and repeats nothing', async (t) => {
  const wire = await Wire.start(t, { args: eager, env: { FAKE_TOKEN_US: '3000' } });
  let client = await wire.connect();
  await client.open({ session: 's' });
  await client.start('s', 'count 300');
  const seen = [];
  let last = 0;
  while (seen.at(-1)?.type !== 'turn.done') {
    await sleep(60);
    await client.terminate();
    for (const m of client.frames) if (m.seq > last && m.type !== 'session.attached') { seen.push(m); last = m.seq; }
    client = await wire.connect();
    assert.equal((await client.request({ type: 'session.attach', session: 's', after: last })).reset, false);
  }
  assert.equal(whole(seen, 's', 1, 303), words(300));
});

test('a session ahead of the client: reset', async (t) => {
  const wire = await Wire.start(t, { args: eager });
  const client = await wire.connect();
  await client.open({ session: 's' });
  assert.equal((await client.request({ type: 'session.attach', session: 's', after: 99 })).reset, true);
});

test('a slow reader is cut off, costs no memory, and loses nothing', async (t) => {
  const timeout = 4;
  const wire = await Wire.start(t, { args: [...eager, '--slow-reader-timeout', String(timeout), '--max-message-bytes', '16MiB'] });
  const memory = () => residentMib(wire);
  const feeder = await wire.connect();
  await feeder.open({ session: 's' });
  const slow = await RawSocket.open(wire);
  slow.send(JSON.stringify({ type: 'session.attach', session: 's', after: 0 }));
  await slow.message((m) => m.type === 'session.attached');
  slow.socket.pause();
  const paused = Date.now(); // the cut comes after the timeout, but may come before the flood has ended
  await feeder.turn('s', 'flood 20000 1000');
  const before = memory();
  const neighbour = await wire.connect();
  for (let i = 0; i < 20; i++) {
    const begun = Date.now();
    await neighbour.request({ type: 'ping' });
    assert.ok(Date.now() - begun < timeout * 1000, 'a neighbour waits until the slow reader is cut off');
    await sleep(100);
  }
  await until('the cut', async () => (await wire.metric('parley_slow_readers_total')) === 1);
  assert.ok(wire.sanitized || memory() - before < 4, `${memory() - before} MiB for one slow reader`);
  slow.socket.resume();
  // The close frame is read within the server's grace of ten seconds, unless this machine is too busy for that.
  const code = await slow.close();
  assert.ok(code === 4001 || (code === undefined && Date.now() - paused > (timeout + 10) * 1000), `closed with ${code}`);
  await until('the end of the socket', async () => (await wire.metric('parley_websockets')) === 2);
  const received = slow.messages();
  const last = received.filter((m) => m.seq && m.type !== 'session.attached').at(-1).seq;
  assert.ok(last < 20003);
  const again = await wire.connect();
  await again.request({ type: 'session.attach', session: 's', after: last });
  await again.next((m) => m.type === 'turn.done');
  assert.equal(whole([...received, ...again.frames], 's', 1, 20003).length, 20000 * 1000);
});

test('a reader that never wakes is killed after a while', async (t) => {
  // A busy machine may keep the feeder from reading for a second or two: it must not be the one that is killed.
  const wire = await Wire.start(t, { args: [...eager, '--slow-reader-timeout', '4'] });
  const feeder = await wire.connect();
  await feeder.open({ session: 's' });
  const dead = await RawSocket.open(wire);
  dead.send(JSON.stringify({ type: 'session.attach', session: 's', after: 0 }));
  await dead.message((m) => m.type === 'session.attached');
  dead.socket.pause();
  await feeder.turn('s', 'flood 20000 1000');
  await until('the kill', async () => (await wire.metric('parley_websockets')) === 1);
  dead.socket.destroy();
});

test('a client that asks and does not read is not read from', async (t) => {
  const wire = await Wire.start(t, { args: ['--messages-per-second', '100000', '--message-burst', '100000', '--slow-reader-timeout', '3'] });
  const memory = () => residentMib(wire);
  const feeder = await wire.connect();
  for (let i = 0; i < 100; i++) await feeder.open({ session: `s${i}`, title: 'x'.repeat(200), system: 'y'.repeat(1000) });
  const greedy = await RawSocket.open(wire);
  greedy.socket.pause();
  const before = memory();
  for (let i = 0; i < 3000; i++) greedy.send('{"type":"session.list","limit":200}'); // 400 MB of answers
  await sleep(1500);
  assert.ok(wire.sanitized || memory() - before < 8, `${memory() - before} MiB of answers wait`);
  greedy.socket.destroy();
  assert.equal((await feeder.request({ type: 'ping' })).type, 'pong');
});

test('answers longer than a fragment arrive whole', async (t) => {
  const wire = await Wire.start(t, { args: eager });
  const client = await wire.connect();
  await client.open({ session: 's' });
  await client.turn('s', 'flood 1 900000');
  const state = await client.request({ type: 'session.get', session: 's' });
  assert.equal(state.turns[0].text.length, 900000);
  assert.equal(state.more, false);
});

test('watching: changes of one owner, coalesced, and removals', async (t) => {
  const wire = await Wire.start(t, { args: eager });
  const watcher = await wire.connect();
  const client = await wire.connect();
  assert.equal((await watcher.request({ type: 'sessions.watch' })).type, 'sessions.watching');
  const begun = Date.now();
  await client.open({ session: 's', title: 'first' });
  await watcher.next((m) => m.type === 'session.changed' && m.session.title === 'first');
  for (let i = 0; i < 300; i++) client.send({ type: 'session.update', session: 's', title: `title ${i}` });
  await watcher.next((m) => m.type === 'session.changed' && m.session.title === 'title 299');
  const changes = watcher.frames.filter((m) => m.type === 'session.changed').length;
  // One each 100 ms. On a busy machine a late frame brings the next one closer: twice as many are no fault.
  const most = 2 * Math.ceil((Date.now() - begun) / 100) + 2;
  assert.ok(changes <= most, `${changes} frames for 301 changes, at most ${most} expected`);
  const closed = await client.request({ type: 'session.close', session: 's', delete: true });
  assert.deepEqual([closed.type, closed.deleted], ['session.closed', true]);
  assert.equal((await watcher.next((m) => m.type === 'session.removed')).session, 's');
  assert.ok(!client.frames.some((m) => m.type === 'session.changed'));
});

test('request_id comes back with the event that answers, to the caller only', async (t) => {
  const wire = await Wire.start(t, { args: eager });
  const [one, two] = [await wire.connect(), await wire.connect()];
  const ids = await Promise.all(Array.from({ length: 10 }, () => one.request({ type: 'session.open' })));
  assert.equal(new Set(ids.map((m) => m.session.id)).size, 10);
  await one.open({ session: 's' });
  await two.request({ type: 'session.attach', session: 's' });
  const updated = await one.request({ type: 'session.update', session: 's', title: 'new' });
  assert.equal(updated.type, 'session.updated');
  const seen = await two.next((m) => m.type === 'session.updated');
  assert.equal(seen.request_id, undefined);
  await two.request({ type: 'session.detach', session: 's' });
  const elsewhere = await two.request({ type: 'session.update', session: 's', title: 'newer' });
  assert.equal(elsewhere.session.title, 'newer');
  const closed = await two.request({ type: 'session.close', session: 's' });
  assert.deepEqual([closed.type, closed.deleted], ['session.closed', false]);
});

test('detached means silent', async (t) => {
  const wire = await Wire.start(t, { args: eager });
  const client = await wire.connect();
  const other = await wire.connect();
  await client.open({ session: 's' });
  await other.request({ type: 'session.attach', session: 's', after: 0 });
  await client.start('s', 'count 300');
  const detached = await client.request({ type: 'session.detach', session: 's' });
  assert.equal(detached.session, 's');
  const at = client.frames.length;
  await other.next((frame) => frame.type === 'turn.done');
  await client.request({ type: 'ping' }); // its answer comes behind all that was sent before
  assert.deepEqual(client.frames.slice(at).map((frame) => frame.type), ['pong']);
});

test('health: stuck engine, broken store', async (t) => {
  const stuck = await Wire.start(t, { env: { FAKE_STUCK: '1' } });
  assert.equal((await stuck.get('/healthz')).status, 503);
  assert.match((await stuck.get('/readyz')).text, /"ready":false,"reason":"model"/);
  const store = await Wire.start(t, { env: { FAKE_STORE_DOWN: '1' } });
  assert.equal((await store.get('/healthz')).status, 200);
  const answer = await store.get('/readyz');
  assert.equal(answer.status, 503);
  assert.match(answer.text, /"reason":"store","detail":"disk full"/);
  const tail = await (await Wire.start(t, { env: { FAKE_TAIL_DOWN: '1' } })).get('/readyz');
  assert.equal(tail.status, 200);
  assert.match(tail.text, /"ready":true,"degraded":"tail","detail":"no room"/);
});

test('SIGTERM: running turns finish, new ones are refused, then 1001 and status 0', async (t) => {
  const wire = await Wire.start(t, { args: [...eager, '--drain-timeout', '300'], env: { FAKE_TOKEN_US: '10000' } });
  const client = await wire.connect();
  await client.open({ session: 's' });
  await client.open({ session: 'other' });
  await client.start('s', 'count 1000'); // 10 s, for what is asked meanwhile
  wire.process.kill('SIGTERM');
  await until('draining', async () => (await wire.get('/readyz')).text.includes('"reason":"draining"'));
  assert.equal((await client.start('other', 'x')).code, 'shutting_down');
  assert.equal((await client.request({ type: 'session.open' })).code, 'shutting_down');
  assert.equal((await client.next((m) => m.type === 'turn.done')).finish_reason, 'eos');
  assert.equal(await client.closed, 1001);
  assert.deepEqual(await wire.exited, { code: 0, signal: null });
});

test('SIGTERM: one that comes twice, as from timeout(1), is one', async (t) => {
  const wire = await Wire.start(t, { args: [...eager, '--drain-timeout', '300'], env: { FAKE_TOKEN_US: '10000' } });
  const client = await wire.connect();
  await client.open({ session: 's' });
  await client.start('s', 'count 100');
  wire.process.kill('SIGTERM');
  await until('draining', async () => (await wire.get('/readyz')).text.includes('"reason":"draining"'));
  wire.process.kill('SIGTERM');
  wire.process.kill('SIGINT');
  assert.equal((await client.next((m) => m.type === 'turn.done')).finish_reason, 'eos');
  assert.deepEqual(await wire.exited, { code: 0, signal: null });
});

test('SIGTERM: what does not finish in time is cut; a second one ends at once', async (t) => {
  for (const [args, twice] of [[['--drain-timeout', '1'], false], [['--drain-timeout', '1000'], true]]) {
    const wire = await Wire.start(t, { args: [...eager, ...args], env: { FAKE_TOKEN_US: '1000000' } });
    const client = await wire.connect();
    await client.open({ session: 's' });
    await client.start('s', 'count 1000');
    const begun = Date.now();
    wire.process.kill('SIGTERM');
    const more = twice && setInterval(() => wire.process.kill('SIGTERM'), 300); // what comes within half a second is no second one
    const status = await wire.exited;
    clearInterval(more);
    assert.equal(status.code, twice ? 1 : 0);
    assert.ok(Date.now() - begun < 600000, 'the turn takes 1,000 s, the longer drain_timeout as long');
    if (!twice) assert.equal(await client.closed, 1001);
    else assert.match(wire.log, /second signal; 1 running/);
  }
});

test('a device that is lost: turns end with an error, connections with 1001, the process with 75', async (t) => {
  const wire = await Wire.start(t, { args: eager, env: { FAKE_TOKEN_US: '5000' } });
  const client = await wire.connect();
  await client.open({ session: 's' });
  await client.open({ session: 'other' });
  await client.start('s', 'count 1000000');
  await client.next((m) => m.type === 'turn.delta');
  await client.start('other', 'lose the device');
  for (const session of ['s', 'other'])
    assert.ok(client.frames.concat(await client.next((m) => m.type === 'turn.done')).some((m) => m.type === 'turn.done' && m.session === session && m.finish_reason === 'error'));
  assert.equal(await client.closed, 1001);
  assert.deepEqual(await wire.exited, { code: 75, signal: null }, wire.log);
  assert.match(wire.log, /server\.device_lost/);
  assert.match(wire.log, /the GPU failed; all sessions and turns are stored; start Parley again/);
});

test('idle connections: small, and no work', async (t) => {
  const n = 1000;
  // No pings: these sockets answer none.
  const wire = await Wire.start(t, { args: [...eager, '--max-connections-per-ip', '2000', '--max-connections', '2000', '--ping-interval', '3600'] });
  const memory = () => residentBytes(wire) / 1024;
  const first = await RawSocket.open(wire);
  const before = memory();
  const sockets = [];
  for (let i = 0; i < n; i += 50) {
    const some = await Promise.all(Array.from({ length: 50 }, () => RawSocket.open(wire)));
    some.forEach((s, k) => s.send(JSON.stringify({ type: 'session.open', session: `s${i + k}` })));
    await Promise.all(some.map((s) => s.message((m) => m.type === 'session.opened')));
    sockets.push(...some);
  }
  const each = (memory() - before) / n;
  const used = await wire.rests(2000, 0.05, 'idle connections');
  t.diagnostic(`${each.toFixed(1)} kB per idle connection with a session, ${used.toFixed(2)} s of processor time in 2 s`);
  if (!wire.sanitized) assert.ok(each < 20, `${each} kB per idle connection`);
  sockets.forEach((s) => s.socket.destroy());
  first.socket.destroy();
});
