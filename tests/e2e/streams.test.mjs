// Streams that break: a client that reconnects with the number of its last event gets all later ones, once, in order.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after } from 'node:test';
import { Follower, transcript } from './follower.mjs';
import { few, longTest, scale, Server, shortTest as test, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

const events = few(200); // of the answer that is cut at every place
const endless = (max_tokens, fields = {}) => ({ max_tokens, ignore_eos: true, temperature: 0.8, seed: '11', logprobs: true, ...fields });
const server = await Server.start({ after }, { args: unlimited });
const longPrompt = Array.from({ length: few(3000) }, (_, i) => 300 + (i * 131) % 3500);

test('attaching with `after` at every event of an answer, while it runs and when it is over', async () => {
  const author = await Follower.open(await server.connect());
  const turn = await author.start('Tell me a story.', { sampling: endless(events) });
  const live = [];
  const follow = async (at) => {
    const client = await server.connect();
    return [client, await Follower.attach(client, author.session, at)];
  };
  await author.wait('the end', () => { // each event that arrives sends another reader off to ask for what follows it
    while (live.length <= author.seq) live.push(follow(live.length));
    return author.turns.get(turn)?.done;
  });
  const whole = transcript(author.turns.get(turn));
  assert.equal(whole.ids.length, events);
  const check = async (reader, from) => {
    await reader.wait('the last event', () => reader.seq === author.seq);
    const got = transcript(reader.turns.get(turn) ?? { text: '', ids: [], logprobs: [] }); // nothing follows the end
    const had = Math.max(0, from - author.turns.get(turn).started.seq); // tokens before that place
    assert.deepEqual(got.ids, whole.ids.slice(had), `after ${from}`);
    assert.deepEqual(got.logprobs, whole.logprobs.slice(had), `after ${from}`);
    assert.ok(whole.text.endsWith(got.text), `after ${from}`);
    assert.equal(reader.attached.reset, false);
    if (from === 0) assert.deepEqual(got, whole);
  };
  assert.equal(live.length, author.seq + 1);
  for (const [at, pending] of live.entries()) {
    const [client, reader] = await pending;
    await check(reader, at);
    client.terminate();
  }
  const other = await server.connect();
  for (let at = 0; at <= author.seq; at++) {
    const reader = await Follower.attach(other, author.session, at);
    await check(reader, at);
    reader.leave();
  }
});

longTest('a reader that drops its connection after every event it gets', async () => {
  let drops = 0, early = 0;
  // Again, and longer, where the machine is so busy that the turn was over after a few drops.
  for (let n = few(1200), tries = 0; tries < 5 && (drops <= 5 || early <= 2); n = Math.min(2 * n, 3900), tries++) {
    const author = await Follower.open(await server.connect());
    const reader = new Follower(author.session);
    const turn = await author.start('Tell me a long story.', { sampling: endless(n) });
    drops = early = 0;
    while (!reader.turns.get(turn)?.done) {
      const client = await server.connect();
      const before = reader.seq;
      await reader.attach(client);
      await reader.wait('an event', () => reader.seq > before);
      reader.leave();
      client.terminate();
      drops++;
      if (!author.turns.get(turn).done) early++;
    }
    await author.done(turn);
    assert.deepEqual(transcript(reader.turns.get(turn)), transcript(author.turns.get(turn)));
  }
  assert.ok(drops > 5 && early > 2, `dropped ${drops} times, ${early} of them while the turn ran`);
});

longTest('a connection for every event, dropped when that event has come: what each client has is what the server has', async () => {
  const author = await Follower.open(await server.connect());
  const { session } = author;
  const last = 2 + events + 1; // opened, started, the tokens, done
  const gone = [];
  const readers = await Promise.all(Array.from({ length: last }, async (_, i) => {
    const client = await server.connect();
    const reader = await Follower.attach(client, session);
    const place = i + 1; // 1 and 2: during the prefill; the last one: behind the end
    const drop = () => {
      if (reader.seq < place || reader.dropped) return;
      reader.dropped = reader.seq;
      reader.leave();
      gone.push(client.terminate());
    };
    client.listeners.add(drop);
    drop(); // of what came with the answer
    return reader;
  }));
  const turn = await author.start({ ids: longPrompt.slice(0, few(600)) }, { sampling: endless(events) });
  await author.done(turn);
  await until('everybody to have left', () => gone.length === last);
  const places = new Set(readers.map((reader) => reader.dropped)); // later where tokens came in one frame, as on a busy machine
  assert.ok(places.size > 5, `they left at ${places.size} places`);
  const fresh = await server.connect();
  const record = await fresh.ask({ type: 'turn.get', session, turn });
  const { turns: [shown], seq } = await fresh.ask({ type: 'session.get', session });
  assert.deepEqual([seq, record.tokens.length], [last, events]);
  for (const reader of readers) {
    await reader.attach(fresh);
    const got = await reader.done(turn);
    const where = `dropped behind event ${reader.dropped}`;
    assert.equal(reader.seq, last, where);
    assert.equal(got.text, shown.text, where);
    assert.deepEqual(got.ids, record.tokens.map(({ id }) => id), where);
    assert.deepEqual(got.logprobs, record.tokens.map(({ logprob }) => logprob), where);
    assert.deepEqual(got.done.usage, shown.usage, where);
    reader.leave();
  }
});

longTest('attaching during the prefill, in the middle, after the end, after eviction and after a restart', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: [...unlimited, '--prefill-chunk-tokens', String(few(64)),
    '--max-sequence-idle-microseconds', '700000'] };
  let own = await Server.start(t, options);
  const client = await own.connect();
  const author = await Follower.open(client);
  const turn = await author.start({ ids: longPrompt }, { sampling: endless(few(300)) });
  const progress = await client.next((frame) => frame.type === 'turn.progress' && frame.done < frame.total);
  const first = client.frames.findIndex((frame) => frame.type === 'turn.delta');
  assert.ok(first < 0 || client.frames.indexOf(progress) < first, 'progress comes before the first token');
  const readers = { prefill: await Follower.attach(await own.connect(), author.session) };
  await author.tokens(turn, 20);
  readers.middle = await Follower.attach(await own.connect(), author.session);
  await author.done(turn);
  readers.end = await Follower.attach(await own.connect(), author.session);
  const whole = transcript(author.turns.get(turn));
  assert.equal(whole.ids.length, few(300));
  for (const [when, reader] of Object.entries(readers))
    assert.deepEqual(transcript(await reader.done(turn)), whole, when);
  await author.wait('the eviction', () => author.evictions[0]);
  for (const reader of Object.values(readers)) await reader.wait('the eviction', () => reader.evictions[0]);
  const evicted = await Follower.attach(await own.connect(), author.session);
  assert.deepEqual(transcript(await evicted.done(turn)), whole);
  await evicted.wait('the eviction', () => evicted.evictions[0]?.seq === author.evictions[0].seq);
  const { seq } = author;
  await own.stop();
  own = await Server.start(t, options);
  const restarted = await Follower.attach(await own.connect(), author.session);
  assert.deepEqual(transcript(await restarted.done(turn)), whole);
  await restarted.wait('every event', () => restarted.seq === seq);
  // Where it had been when the first server ended, it can go on.
  const back = await Follower.attach(await own.connect(), author.session, seq);
  assert.equal(back.attached.reset, false);
  await back.say({ ids: [5] }, { sampling: endless(3) });
  assert.equal(back.turns.size, 1);
});

longTest('two clients of one session see the same, whoever speaks', async () => {
  const one = await Follower.open(await server.connect());
  const two = await Follower.attach(await server.connect(), one.session);
  const first = await one.start('My name is Zora.', { sampling: { temperature: 0 } });
  await two.done(first);
  const second = await two.start('What is my name?', { sampling: { temperature: 0 } });
  await one.done(second);
  for (const turn of [first, second]) {
    assert.deepEqual(transcript(await one.done(turn)), transcript(await two.done(turn)));
    assert.deepEqual(one.turns.get(turn).started, two.turns.get(turn).started);
  }
  assert.match(one.turns.get(second).text, /Zora/);
});

longTest('a place that the server does not know answers with reset, and what follows is live', async () => {
  const author = await Follower.open(await server.connect());
  await author.say('Hello!', { sampling: endless(4) });
  const client = await server.connect();
  const answer = await client.ask({ type: 'session.attach', session: author.session, after: author.seq + 1000 });
  assert.deepEqual([answer.type, answer.reset, answer.session.seq], ['session.attached', true, author.seq]);
  const state = await client.ask({ type: 'session.get', session: author.session, attach: true });
  assert.deepEqual([state.type, state.seq, state.turns.length], ['session.state', author.seq, 1]);
  assert.equal(state.turns[0].text, author.turns.get(0).text);
  const reader = new Follower(author.session, state.seq);
  client.listeners.add(reader.listener);
  const turn = await author.start('Again!', { sampling: endless(4) });
  assert.deepEqual(transcript(await reader.done(turn)), transcript(await author.done(turn)));
});

test('session.get of a running turn and then its events make the whole answer', async () => {
  const author = await Follower.open(await server.connect());
  const client = await server.connect();
  const turn = await author.start('Tell me a story.', { sampling: endless(few(1500)) });
  await author.tokens(turn, few(50));
  const reader = new Follower(author.session);
  client.listeners.add((frame) => { // listening begins with the answer's seq
    if (frame.type !== 'session.state') return;
    reader.seq = frame.seq;
    reader.turns.set(turn, { text: frame.turns[0].text, ids: [], logprobs: [], top: [], arrivals: [], started: {} });
    client.listeners.add(reader.listener);
  });
  const state = await client.ask({ type: 'session.get', session: author.session, attach: true });
  assert.equal(state.turns[0].state, 'running');
  const whole = transcript(await author.done(turn));
  assert.equal((await reader.done(turn)).text, whole.text);
});

test('a disconnect ends no turn', async () => {
  const client = await server.connect();
  const author = await Follower.open(client);
  const turn = await author.start('Tell me a story.', { sampling: endless(few(400)) });
  await author.tokens(turn, 3);
  await client.terminate();
  const reader = await Follower.attach(await server.connect(), author.session);
  const { done, ids } = await reader.done(turn);
  assert.deepEqual([done.finish_reason, ids.length], ['length', few(400)]);
});

test('on_disconnect: a turn that nobody follows ends in its time, with what it said; who comes back in time has it all', async () => {
  const client = await server.connect();
  const other = await server.connect();
  for (const comesBack of [false, true]) {
    const dropped = await server.connect();
    const author = await Follower.open(dropped, { on_disconnect: { cancel_after_ms: comesBack ? 200000 : 200 } });
    const turn = await author.start('Tell me a story.', { sampling: endless(few(comesBack ? 200 : 3000)) });
    await author.tokens(turn, 3);
    await dropped.terminate();
    if (!comesBack) await until('the end', async () => (await client.ask({ type: 'session.get', session: author.session })).turns[0].state === 'done');
    await author.attach(other);
    const { done, ids } = await author.done(turn);
    assert.equal(done.finish_reason, comesBack ? 'length' : 'cancelled');
    assert.equal(done.error?.code, comesBack ? undefined : 'client_lost');
    assert.ok(ids.length >= 3 && ids.length === done.usage.output_tokens);
    author.leave();
  }
  // A client that came back, started a turn without attaching anew, and went: it was the turn's last client too.
  let session, turn, caller;
  const state = async () => (await client.ask({ type: 'session.get', session })).turns.at(-1);
  for (let cancelled = false; !cancelled;) { // again where it was over before it could be cancelled
    session = await client.open({ on_disconnect: { cancel_after_ms: 200 } });
    await client.ask({ type: 'session.detach', session });
    caller = await server.connect();
    ({ turn } = await caller.ask({ type: 'turn.start', session, input: { content: 'Tell me a story.' }, sampling: endless(few(3000)) }));
    await sleep(350);
    const { state: now, finish_reason } = await state();
    if (now !== 'running') assert.equal(finish_reason, 'length', 'its author is there');
    await caller.terminate();
    await until('the end', async () => (await state()).state === 'done');
    cancelled = (await state()).finish_reason !== 'length';
  }
  assert.deepEqual([(await state()).turn, (await state()).finish_reason, (await state()).error.code], [turn, 'cancelled', 'client_lost']);
  const updated = await client.ask({ type: 'session.update', session, on_disconnect: { cancel_after_ms: 1234 } });
  assert.deepEqual(updated.session.on_disconnect, { cancel_after_ms: 1234 });
  assert.equal((await client.ask({ type: 'session.update', session, on_disconnect: 'finish' })).session.on_disconnect, 'finish');
});

test('attaching again on the same connection: everything behind `after` comes behind the answer', async () => {
  const client = await server.connect();
  const author = await Follower.open(await server.connect());
  const turn = await author.start('Tell me a story.', { sampling: endless(few(400)) });
  await author.tokens(turn, 5);
  for (let i = 0; i < few(40); i++) {
    // The second and third find the first one's events waiting to be sent.
    const first = new Follower(author.session), second = new Follower(author.session), third = new Follower(author.session);
    const answers = [first.attach(client), second.attach(client), third.attach(client)];
    await Promise.all(answers);
    first.leave();
    second.leave();
    await third.wait('some events', () => third.seq > 3 + i);
    third.leave();
  }
  const reader = await Follower.attach(client, author.session, 0);
  assert.deepEqual(transcript(await reader.done(turn)), transcript(await author.done(turn)));
});

longTest('detached is quiet; attached again, nothing is missing', async () => {
  const client = await server.connect();
  const author = await Follower.open(client);
  await author.say('Hello!', { sampling: endless(4) });
  assert.equal((await client.ask({ type: 'session.detach', session: author.session })).type, 'session.detached');
  const other = await Follower.attach(await server.connect(), author.session, author.seq);
  const before = author.seq;
  const turn = await other.start('Hello again!', { sampling: endless(8) });
  await other.done(turn);
  await client.ask({ type: 'ping', request_id: 'p' }).catch(() => {}); // everything before it has arrived
  assert.equal(author.seq, before);
  await author.attach(client);
  assert.deepEqual(transcript(await author.done(turn)), transcript(other.turns.get(turn)));
});

longTest('a turn started by a connection that does not follow the session: it follows from then on', async () => {
  const author = await server.connect(), other = await server.connect();
  const session = await author.open();
  await author.turn(session, 'Hello!', { sampling: endless(4) });
  const { deltas, ids, done } = await other.turn(session, 'Hello again!', { sampling: endless(6) });
  assert.ok(deltas.length > 0);
  assert.deepEqual([ids.length, done.finish_reason], [6, 'length']);
  await author.turn(session, 'And again!', { sampling: endless(5) });
  await other.next((f) => f.type === 'turn.done' && f.session === session && f.turn === 2);
  assert.equal((await author.request({ type: 'session.detach', session })).type, 'session.detached');
  const again = await author.request({ type: 'turn.regenerate', session, sampling: endless(3) });
  assert.equal((await author.next((f) => f.type === 'turn.done' && f.session === session && f.turn === again.turn)).finish_reason, 'length');
});

longTest('a reader that stops reading gets joined deltas or 4001, and loses nothing', async (t) => {
  // A busy machine may keep the fast one from reading for some seconds: it must not be the one that is cut off.
  const own = await Server.start(t, { args: [...unlimited, '--slow-reader-timeout', '15'], model: 'tests/fixtures/models/llama' });
  const sessions = Math.max(3, Math.round(12 * scale)); // each turn's frames with 20 alternatives are about half a megabyte
  const fast = await own.connect();
  const slow = await own.connect();
  const authors = [], readers = [];
  for (let i = 0; i < sessions; i++) {
    authors.push(await Follower.open(fast));
    readers.push(await Follower.attach(slow, authors[i].session));
  }
  slow.socket.pause();
  const more = { top_logprobs: 20 };
  const turns = await Promise.all(authors.map((author, i) => author.start({ ids: [i + 2] }, { sampling: endless(480, more) })));
  await Promise.all(authors.map((author, i) => author.done(turns[i])));
  const behind = async () => (await own.metric('parley_slow_readers_total')) > 0;
  if (scale === 1) await until('the cut', behind); // fewer frames fit into the sockets' buffers
  slow.socket.resume();
  const again = await own.connect();
  await until('all of it, or the cut', () => slow.closeCode !== undefined || readers.every((reader, i) => reader.turns.get(turns[i])?.done));
  const cut = slow.closeCode !== undefined || await behind();
  // A client that leaves even the close frame unread for some seconds sees 1006 instead; on a busy machine that can
  // be this test.
  if (cut) assert.ok([4001, 1006].includes(await slow.closed));
  for (const [i, reader] of readers.entries()) {
    if (cut) await reader.attach(again);
    assert.deepEqual(transcript(await reader.done(turns[i])), transcript(authors[i].turns.get(turns[i])), `session ${i}`);
  }
  if (cut) assert.ok(readers.some((reader) => reader.joined > 0));
});
