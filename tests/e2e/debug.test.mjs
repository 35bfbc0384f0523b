// The debug wire: a recorded turn, a session's events, and a turn replayed by the server that recorded it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { after } from 'node:test';
import { Follower } from './follower.mjs';
import { few, isWellFormed, longTest, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';

const hot = (max_tokens, fields = {}) => ({ max_tokens, ignore_eos: true, temperature: 0.9, top_p: 0.95, ...fields });
const server = await Server.start({ after }, { args: unlimited });
const client = await server.connect();

/** Asks for a replay: the acknowledgement, then what it found (or the error that came instead of either). */
async function replay(on, session, turn) {
  const request_id = on.newId();
  const frames = [];
  const listener = (frame) => { if (frame.request_id === request_id) frames.push(frame); };
  on.listeners.add(listener);
  on.send({ type: 'turn.replay', session, turn, request_id });
  await until('the replay', () => frames.some((frame) => frame.type !== 'turn.replaying'));
  on.listeners.delete(listener);
  if (frames.length === 1) return frames[0];
  assert.deepEqual(frames[0], { type: 'turn.replaying', session, turn, request_id });
  assert.equal(frames.length, 2);
  return frames[1];
}

test('turn.get gives all that is on record of a turn', async () => {
  const session = await client.open({ sampling: { seed: '5' } });
  const first = await client.turn(session, 'My name is Zora.', { sampling: hot(12, { logprobs: true, top_logprobs: 3 }) });
  const second = await client.turn(session, { ids: [300, 301, 302] }, { sampling: hot(5), request_id: 'mine' });
  const state = await client.request({ type: 'turn.get', session, turn: 0 });
  assert.equal(state.type, 'turn.state');
  assert.equal(state.session, session);
  const shown = (await client.request({ type: 'session.get', session })).turns;
  for (const key of ['turn', 'state', 'input', 'text', 'finish_reason', 'seed', 'sampling', 'usage', 'timings', 'cache', 'seq_first', 'seq_last'])
    assert.deepEqual(state.turn[key], shown[0][key], key);
  assert.deepEqual(state.request, { sampling: hot(12, { logprobs: true, top_logprobs: 3 }), queue: false });
  assert.match(state.build, /\d/);
  assert.match(state.instance, /^cpu: /);
  assert.ok(state.started_ms > 1.6e12 && state.ended_ms >= state.started_ms);
  assert.equal(state.log_first, 0);
  assert.equal(state.input_ids.length, first.done.usage.input_tokens);
  assert.equal(state.input_tokens.length, state.input_ids.length);
  assert.match(state.input_tokens.join(''), /My name is Zora\./);
  assert.deepEqual(state.tokens.map((token) => token.id), first.ids);
  assert.deepEqual(state.tokens.map((token) => token.logprob), first.deltas.flatMap((delta) => delta.logprobs));
  assert.deepEqual(state.tokens.map((token) => token.top), first.deltas.flatMap((delta) => delta.top_logprobs));
  assert.ok(state.tokens.every((token) => isWellFormed(token.text)));
  const raw = await client.request({ type: 'turn.get', session, turn: 1 });
  assert.deepEqual(raw.input_ids, [300, 301, 302]);
  assert.equal(raw.log_first, first.done.usage.log_tokens);
  assert.deepEqual(raw.turn.input, { n_ids: 3 });
  assert.deepEqual(raw.tokens.map((token) => token.id), second.ids);
  assert.ok(raw.tokens.every((token) => token.logprob < 0 && token.top === undefined)); // recorded, asked for or not
  const careless = await server.connect({ malformed: true });
  for (const [turn, code] of [[2, 'invalid'], [-1, 'invalid'], ['0', 'bad_message'], [undefined, 'bad_message']])
    assert.equal((await careless.request({ type: 'turn.get', session, turn })).code, code, String(turn));
  await careless.close();
});

test('turn.get of a turn that waits and of one that runs', async () => {
  const author = await Follower.open(await server.connect());
  const running = await author.start('Go on.', { sampling: hot(few(2000)) });
  const queued = await author.start('And then?', { queue: true });
  await author.tokens(running, 5);
  const state = await until('tokens on record', async () => {
    const now = await client.request({ type: 'turn.get', session: author.session, turn: running });
    return now.tokens.length > 0 && now;
  });
  assert.equal(state.turn.state, 'running');
  assert.equal(state.turn.finish_reason, null);
  assert.equal(state.turn.usage, undefined);
  const waiting = await client.request({ type: 'turn.get', session: author.session, turn: queued });
  assert.equal(waiting.turn.state, 'queued');
  assert.equal(waiting.log_first, null);
  assert.deepEqual(waiting.tokens, []);
  assert.equal((await replay(client, author.session, running)).code, 'invalid');
  author.client.send({ type: 'turn.cancel', session: author.session });
  const { ids } = await author.done(running);
  assert.deepEqual(state.tokens.map((token) => token.id), ids.slice(0, state.tokens.length));
});

test('session.events: what happened, in pages, without the deltas', async (t) => {
  const own = await Server.start(t, { args: [...unlimited, '--max-sequence-idle-microseconds', '200000'] });
  const author = await Follower.open(await own.connect());
  const { session } = author;
  await author.say('Hello', { sampling: hot(8) });
  await author.wait('the eviction', () => author.evictions[0]);
  await author.client.request({ type: 'session.update', session, title: 'Other' });
  await author.say('Hello again', { sampling: hot(8) });
  const all = await author.client.request({ type: 'session.events', session });
  const kinds = all.events.map((event) => event.kind);
  assert.deepEqual(kinds.slice(0, 7), ['opened', 'started', 'done', 'parked', 'updated', 'started', 'done']);
  assert.equal(all.more, false);
  assert.deepEqual(all.events.find((event) => event.kind === 'parked').reason, 'idle');
  assert.deepEqual(all.events.filter((event) => event.kind === 'done').map((event) => event.cache?.source), [undefined, 'host']);
  const copy = await author.client.ask({ type: 'session.fork', session });
  const forked = await author.client.ask({ type: 'session.events', session: copy.session.id });
  assert.deepEqual(forked.events.map(({ kind, forked_from }) => [kind, forked_from]), [['opened', { session, turn: 1 }]]);
  assert.deepEqual(all.events.filter((event) => event.kind === 'started').map((event) => event.turn), [0, 1]);
  assert.ok(all.events.every((event, i) => i === 0 || (event.seq > all.events[i - 1].seq && event.at_ms >= all.events[i - 1].at_ms)));
  let pages = [], before;
  for (;;) {
    const page = await author.client.request({ type: 'session.events', session, last: 2, ...(before && { before }) });
    pages = [...page.events, ...pages];
    if (!page.more) break;
    before = page.events[0].seq;
    assert.equal(page.events.length, 2);
  }
  assert.deepEqual(pages.slice(0, all.events.length), all.events);
});

test('turn.replay: equal to the last bit, with alternatives, while others talk', async () => {
  const author = await Follower.open(await server.connect());
  const { session } = author;
  const noise = await Follower.open(await server.connect());
  const busy = await noise.start('Noise', { sampling: hot(3900) });
  for (const text of ['One', 'Two', 'Three']) await author.say(text, { sampling: hot(16) });
  const before = author.seq;
  for (const turn of [0, 1, 2]) {
    const state = await client.request({ type: 'turn.get', session, turn });
    const found = await replay(client, session, turn);
    assert.equal(found.type, 'turn.replayed', JSON.stringify(found));
    assert.equal(found.equal, true);
    assert.equal(found.ended_alike, true);
    assert.equal(found.compared_tokens, 16);
    assert.equal(found.divergence, undefined);
    assert.deepEqual(found.differs, []);
    assert.deepEqual(found.tokens.map(({ id, text, logprob }) => ({ id, text, logprob })), state.tokens);
    for (const token of found.tokens) {
      assert.equal(token.top.length, 5);
      assert.ok(token.top.every((other, i) => i === 0 || other.logprob <= token.top[i - 1].logprob));
      assert.ok(token.top.every((other) => other.id !== token.id || other.logprob === token.logprob));
    }
  }
  noise.client.send({ type: 'turn.cancel', session: noise.session });
  await noise.done(busy);
  const cut = await replay(client, noise.session, busy); // as far as it came
  assert.equal(cut.equal, true);
  assert.equal(cut.cut_short, true);
  assert.equal(cut.ended_alike, null);
  // The replay is not recorded, and the sessions keep their caches.
  assert.equal(author.seq, before);
  assert.equal((await author.say('Four', { sampling: hot(4) })).done.cache.source, 'kept');
});

test('turn.replay of a turn that ended before its first token: equal, and nothing compared', async () => {
  for (const way of [{}, { n: 2 }, { beam_width: 2 }]) {
    const session = await client.open();
    const { done } = await client.turn(session, { ids: Array(3000).fill(311) }, { sampling: hot(5, { deadline_ms: 1, ...way }) });
    assert.equal(done.finish_reason, 'deadline');
    assert.equal(done.usage.output_tokens, 0);
    const found = await replay(client, session, done.turn);
    assert.equal(found.equal, true, JSON.stringify(found));
    assert.equal(found.compared_tokens, 0);
    assert.equal(found.cut_short, true);
  }
});

test('turn.replay of a beam search that was cut short is refused: nothing of it can be compared', async () => {
  const beams = await Follower.open(await server.connect());
  const turn = await beams.start('Hello', { sampling: hot(2000, { beam_width: 2 }) });
  await beams.client.next((frame) => frame.type === 'turn.delta' && frame.ids.length > 0);
  beams.client.send({ type: 'turn.cancel', session: beams.session });
  assert.equal((await beams.done(turn)).done.finish_reason, 'cancelled');
  const found = await replay(client, beams.session, turn);
  assert.equal(found.code, 'invalid', JSON.stringify(found));
  assert.match(found.message, /cut short/);
});

longTest('turn.replay after a restart and beyond the window; one at a time; it ends with its client', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  let own = await Server.start(t, options);
  let speaker = await own.connect();
  const session = await speaker.open({ memory_len: 64, sink_len: 4 });
  for (const text of ['One', 'Two']) await speaker.turn(session, text, { sampling: hot(80) });
  const long = await speaker.open({});
  await speaker.turn(long, 'Long', { sampling: hot(few(800)) });
  await own.stop();
  own = await Server.start(t, options);
  speaker = await own.connect();
  const found = await replay(speaker, session, 1);
  assert.equal(found.equal, true, JSON.stringify(found.divergence));
  assert.equal(found.compared_tokens, 80);
  // A second one of the same connection, and one whose client leaves.
  const cancelled = async () => (await own.metrics()).get('parley_engine_requests_finished_total{reason="cancelled"}');
  const free = () => until('the engine to be free', async () => await own.metric('parley_engine_requests_running') === 0);
  for (let attempt = 0; attempt < 5 && !(await cancelled()); attempt++) { // where it was over before its client was gone: again
    const leaver = await own.connect();
    leaver.send({ type: 'turn.replay', session: long, turn: 0, request_id: 'a' });
    await leaver.next((frame) => frame.type === 'turn.replaying');
    const second = await leaver.request({ type: 'turn.replay', session, turn: 0 });
    const over = () => leaver.frames.some((frame) => frame.type === 'turn.replayed' && frame.session === long);
    if (!over()) assert.equal(second.code, 'session_busy');
    await until('the engine to be at it', async () => over() || await own.metric('parley_engine_requests_running') > 0);
    leaver.terminate();
    await free();
  }
  assert.ok(await cancelled(), 'a replay ends with its client');
  assert.equal((await replay(speaker, session, 0)).equal, true);
  const closer = await own.connect();
  // The client that asked for it cancels it; the next one may begin at once.
  const ended = replay(speaker, long, 0);
  await speaker.next((frame) => frame.type === 'turn.replaying' && frame.session === long);
  assert.equal((await closer.ask({ type: 'turn.cancel', session: long, replay: true })).type, 'turn.cancelling'); // another's: untouched
  assert.equal((await speaker.ask({ type: 'turn.cancel', session: long, replay: true })).type, 'turn.cancelling');
  assert.equal((await ended).code ?? 'cancelled', 'cancelled'); // or it was faster
  await free();
  assert.equal((await replay(speaker, session, 1)).equal, true);
  // Its session is deleted meanwhile.
  let gone;
  for (let attempt = 0; attempt < 10 && !gone?.code; attempt++) { // where the replay was faster: again
    const copy = (await speaker.ask({ type: 'session.fork', session: long })).session.id;
    const pending = replay(speaker, copy, 0);
    await speaker.next((frame) => frame.type === 'turn.replaying' && frame.session === copy);
    closer.send({ type: 'session.close', session: copy, delete: true });
    gone = await pending;
  }
  assert.equal(gone.code, 'session_not_found');
});

longTest('recorded alone and replayed under load', async () => {
  const author = await Follower.open(client, { memory_len: 96 });
  const { session } = author;
  for (const text of ['Alone', 'Still alone', 'And again']) await author.say(text, { sampling: hot(few(60)) });
  let stop = false;
  const talk = async (i) => { // batches of changing sizes, prefills among them
    const other = await Follower.open(client, { memory_len: 96 + 32 * (i % 3) });
    for (let turn = 0; !stop; turn++) await other.say(`Number ${turn}. `.repeat(1 + i * 8), { sampling: hot(10 + 15 * i) });
  };
  const talking = Array.from({ length: 4 }, (_, i) => talk(i));
  const asking = await server.connect();
  for (const turn of [0, 1, 2, 1, 0]) {
    const found = await replay(asking, session, turn);
    assert.equal(found.equal, true, JSON.stringify(found));
  }
  stop = true;
  await Promise.all(talking);
});

longTest('turn.replay finds a token that was changed on record, and what differs from the recorder', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  let own = await Server.start(t, options);
  let speaker = await own.connect();
  const session = await speaker.open({});
  const first = await speaker.turn(session, 'One', { sampling: hot(20) });
  await speaker.turn(session, 'Two', { sampling: hot(20) });
  await own.stop();
  const sql = (statement) => execFileSync('sqlite3', [options.db, statement]).toString().trim();
  const ids = Buffer.from(sql('SELECT hex(ids) FROM tokens WHERE turn = 0'), 'hex');
  const changed = first.ids[7] === 300 ? 301 : 300;
  ids.writeInt32LE(changed, 7 * 4);
  sql(`UPDATE tokens SET ids = X'${ids.toString('hex')}' WHERE turn = 0; UPDATE turns SET build = 'older 0.0.1', instance = 'cpu: other' WHERE turn = 0`);
  own = await Server.start(t, options);
  speaker = await own.connect();
  const found = await replay(speaker, session, 0);
  assert.equal(found.type, 'turn.replayed', JSON.stringify(found));
  assert.equal(found.equal, false);
  assert.equal(found.ended_alike, false);
  assert.equal(found.compared_tokens, 7);
  const { divergence } = found;
  assert.equal(divergence.kind, 'token');
  assert.equal(divergence.index, 7);
  assert.equal(divergence.position, first.done.usage.input_tokens + 7);
  assert.equal(divergence.recorded.id, changed);
  assert.equal(divergence.replayed.id, first.ids[7]);
  assert.equal(divergence.replayed.top.length, 5);
  assert.ok(divergence.recorded.logprob_now < 0);
  assert.deepEqual(found.tokens.slice(0, 20).map((token) => token.id), first.ids);
  assert.deepEqual(found.differs.map(({ what, recorded }) => [what, recorded]), [['build', 'older 0.0.1'], ['instance', 'cpu: other']]);
  assert.equal((await replay(speaker, session, 1)).equal, false); // its log is another one than when it was computed
});
