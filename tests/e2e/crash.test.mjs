// Whatever ends the process, what a client was told is done is there afterwards, and the sessions go on.
import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { Follower, transcript } from './follower.mjs';
import { few, root, scale, Server, temporaryFolder, unlimited, until } from './harness.mjs';
import { Random, seed } from './random.mjs';
import { run } from './run.mjs';

const model = path.join(root, 'tests/fixtures/models/llama');
const rounds = Number(process.env.KILLS) || Math.max(4, Math.round(40 * scale)); // `make torture`: 1,000
const random = new Random();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const sampling = () => ({ temperature: 1, seed: String(random.below(1e9)), max_tokens: 1 + random.below(60), ignore_eos: true, logprobs: true });

/** What one client was told of one session, over all the lives of the server. */
class Witness {
  constructor(follower) {
    this.follower = follower;
    this.told = []; // turns that were told to be done, by number
  }

  note() {
    for (const [number, turn] of this.follower.turns) if (turn.done) this.told[number] = transcript(turn);
  }

  /** Talks until the connection breaks. */
  async talk() {
    try {
      for (;;) { // now and then a long prefill
        const ids = Array.from({ length: 1 + random.below(random.below(8) ? 4 : 120) }, () => 2 + random.below(300));
        await this.follower.say({ ids }, { sampling: sampling() });
        if (random.below(4) === 0) await pause(random.below(60)); // and time to be evicted
      }
    } catch (error) {
      if (this.follower.fault) throw this.follower.fault;
      if (error.answer?.code !== 'session_full') return this.note();
    }
    return this.note();
  }

  /** After a restart: everything told is there; a turn that was cut off keeps all of it that was seen, or more. */
  async check(server) {
    const { follower } = this;
    const client = await server.connect();
    const fresh = new Follower(follower.session);
    fresh.mayLose = true;
    await fresh.attach(client);
    const { session, turns } = await client.ask({ type: 'session.get', session: follower.session });
    await fresh.wait('every event', () => fresh.seq === session.seq);
    for (const [number, told] of this.told.entries()) {
      if (!told) continue;
      assert.deepEqual(transcript(fresh.turns.get(number)), told, `turn ${number} of ${follower.session}`);
      assert.equal(turns[number].text, told.text);
      assert.equal(turns[number].finish_reason, told.finish_reason);
    }
    let kept = 0;
    for (const number of follower.turns.keys()) assert.ok(fresh.turns.has(number), `turn ${number} of ${follower.session} is there`);
    for (const [number, turn] of fresh.turns) {
      assert.ok(turn.done, `turn ${number} has an end`);
      if (turn.done.finish_reason !== 'interrupted') continue;
      const seen = follower.turns.get(number)?.ids ?? [];
      assert.deepEqual(turn.ids.slice(0, seen.length), seen, `interrupted turn ${number} of ${follower.session}`);
      assert.ok(turn.text.startsWith(follower.turns.get(number)?.text ?? ''));
      assert.equal(turn.done.usage.output_tokens, turn.ids.length);
      kept += turn.ids.length;
    }
    assert.equal(session.turn, null);
    assert.equal(session.n_tokens, turns.reduce((sum, turn) => sum + turn.n_input + turn.n_output, 0));
    // Going on where the old connection stood: without a gap, or with a reset that says so.
    const { seq } = follower;
    const back = await client.ask({ type: 'session.attach', session: follower.session, after: seq });
    assert.equal(back.type, 'session.attached');
    if (seq > session.seq) assert.equal(back.reset, true);
    fresh.leave();
    this.follower = await Follower.attach(await server.connect(), follower.session, session.seq);
    for (const [number, turn] of fresh.turns) this.told[number] = transcript(turn);
    return kept;
  }
}

/** Every life of the server has settings of its own, so that kills meet commits, evictions and checkpoints alike. */
const settings = () => [...unlimited, '--max-sequences', '8', '--max-resident-sessions', '16',
  '--commit-interval-us', random.pick(['0', '2000', '20000', '1000000']), '--durable', random.pick(['delta', 'delta', 'power']),
  '--max-sequence-idle-microseconds', random.pick(['1000', '20000', '60000000'])];
/** As a crash left it: SQLite's integrity, and every session's record by the doctor's rules. */
async function whole(db, round) {
  const { code, stdout, stderr } = await run(['sessions', 'doctor', '--db', db]);
  assert.equal(code, 0, `round ${round}: ${stdout}${stderr}`);
}
const loadMs = 1000; // of the model

test(`kill -9 at ${rounds} random moments under load (E2E_SEED=${seed})`, async (t) => {
  const folder = temporaryFolder(t);
  const options = () => ({ model, db: path.join(folder, 'parley.db'), args: settings() });
  let witnesses = [];
  let kept = 0, told = 0;
  const ready = [];
  for (let round = 0; round < rounds; round++) {
    if (random.below(4) === 0) { // while it starts, and recovers from the last one
      const early = await Server.start(t, { ...options(), wait: false });
      await pause(random.below(60));
      await early.stop('SIGKILL');
    }
    const begun = performance.now();
    const server = await Server.start(t, options());
    ready.push(performance.now() - begun);
    for (const witness of witnesses) kept += await witness.check(server);
    // Old sessions fill up: some are left behind, checked for the last time just now.
    witnesses = witnesses.slice(-6);
    const client = await server.connect();
    for (let i = 0; i < 3; i++) witnesses.push(new Witness(await Follower.open(client)));
    const talks = witnesses.map((witness) => witness.talk());
    await pause(20 + random.below(180));
    const { signal } = await server.stop('SIGKILL');
    assert.equal(signal, 'SIGKILL');
    await Promise.all(talks);
    told += witnesses.reduce((sum, witness) => sum + witness.told.filter(Boolean).length, 0);
    await whole(path.join(folder, 'parley.db'), round);
    if (rounds > 100 && round % 50 === 49) console.log(`# ${round + 1} kills, ${told} turns done, ${kept} tokens of interrupted ones kept`);
  }
  const last = await Server.start(t, options());
  for (const witness of witnesses) {
    kept += await witness.check(last);
    const next = await witness.follower.say({ ids: [5] }, { sampling: { max_tokens: 2, ignore_eos: true } }).catch((error) => error.answer);
    assert.ok(next.done || next.code === 'session_full', 'the session goes on');
  }
  const median = ready.sort((a, b) => a - b)[ready.length >> 1]; // one start may have met a busy machine
  assert.ok(median < (2000 + loadMs) / Math.min(scale, 1), `ready after ${median} ms`);
  assert.ok(told > rounds && kept > 0, `${told} turns done, ${kept} tokens of interrupted ones kept`);
});

test('kill -9 while the database is made: the next start makes it, or goes on', async (t) => {
  for (let i = 0; i < Math.max(4, 15 * scale); i++) {
    const options = { model, db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
    const first = await Server.start(t, { ...options, wait: false });
    await pause(random.below(80));
    await first.stop('SIGKILL');
    const second = await Server.start(t, options);
    await (await Follower.open(await second.connect())).say({ ids: [5] }, { sampling: { max_tokens: 2, ignore_eos: true } });
    await second.stop('SIGKILL');
    await whole(options.db, i);
  }
});

test('an interrupted session goes on as one that was told the same from the start', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: [...unlimited, '--commit-interval-us', '1000'] };
  const first = await Server.start(t, options);
  const author = await Follower.open(await first.connect());
  const ids = [1, 463, 273, 201, 899, 2, 201];
  const turn = await author.start({ ids }, { sampling: { temperature: 0, max_tokens: 2000, ignore_eos: true, logprobs: true } });
  await author.tokens(turn, 40);
  await first.stop('SIGKILL');
  const second = await Server.start(t, options);
  const client = await second.connect();
  const reader = new Follower(author.session);
  reader.mayLose = true;
  await reader.attach(client);
  const cut = await reader.done(turn);
  assert.equal(cut.done.finish_reason, 'interrupted');
  assert.ok(cut.ids.length > 0);
  const next = await reader.say({ ids: [42] }, { sampling: { temperature: 0, max_tokens: 20, ignore_eos: true, logprobs: true } });
  const straight = await (await Follower.open(client)).say({ ids: [...ids, ...cut.ids, 42] }, { sampling: { temperature: 0, max_tokens: 20, ignore_eos: true, logprobs: true } });
  assert.deepEqual([next.ids, next.logprobs], [straight.ids, straight.logprobs]);
});

test('SIGTERM: running turns finish, new ones are refused, exit status 0', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  const server = await Server.start(t, options);
  const client = await server.connect();
  const author = await Follower.open(client);
  const idle = await Follower.open(client);
  const turn = await author.start('Tell me a story.', { sampling: { max_tokens: few(800), ignore_eos: true } });
  await author.tokens(turn, 5);
  server.process.kill('SIGTERM');
  await until('the drain to begin', async () => (await fetch(`${server.url}/readyz`).catch(() => ({ status: 503 }))).status === 503);
  const refused = await client.ask({ type: 'turn.start', session: idle.session, input: { content: 'Hello!' } });
  assert.deepEqual([refused.type, refused.code], ['error', 'shutting_down']);
  assert.equal((await client.ask({ type: 'session.open' })).code, 'shutting_down');
  const { done, ids } = await author.done(turn);
  assert.deepEqual([done.finish_reason, ids.length], ['length', few(800)]);
  assert.equal(await client.closed, 1001);
  assert.deepEqual(await server.exited, { code: 0, signal: null });
  const again = await Server.start(t, options);
  const reader = await Follower.attach(await again.connect(), author.session);
  assert.deepEqual(transcript(await reader.done(turn)), transcript(author.turns.get(turn)));
});

test('SIGTERM at any moment of a turn: its client is told how it ended before the connection closes', async (t) => {
  for (let i = 0; i < Math.max(5, 20 * scale); i++) {
    const server = await Server.start(t, { model, args: unlimited });
    const author = await Follower.open(await server.connect());
    const turn = await author.start({ ids: [5] }, { sampling: { max_tokens: 100, ignore_eos: true } });
    await pause(i % 10);
    server.process.kill('SIGTERM');
    assert.equal((await author.done(turn)).ids.length, 100);
    assert.deepEqual(await server.exited, { code: 0, signal: null });
  }
});

test('SIGTERM and no time to finish: what ran is recorded as interrupted, with its tokens; exit status 0', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: [...unlimited, '--drain-timeout', '0.3'] };
  const server = await Server.start(t, options);
  const author = await Follower.open(await server.connect());
  const turn = await author.start('Tell me a story.', { sampling: { max_tokens: 3500, ignore_eos: true } });
  await author.tokens(turn, 5);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  const seen = author.turns.get(turn).ids;
  const again = await Server.start(t, options);
  const reader = await Follower.attach(await again.connect(), author.session);
  const { done, ids } = await reader.done(turn);
  assert.equal(done.finish_reason, 'interrupted');
  assert.ok(ids.length >= seen.length && ids.length < 3500, `${ids.length} of at least ${seen.length} tokens`);
  assert.deepEqual(ids.slice(0, seen.length), seen);
});

test('a second SIGTERM ends at once, and loses nothing either', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  const server = await Server.start(t, options);
  const author = await Follower.open(await server.connect());
  const turn = await author.start('Tell me a story.', { sampling: { max_tokens: 3500, ignore_eos: true } });
  await author.tokens(turn, 5);
  server.process.kill('SIGTERM');
  await pause(50);
  assert.equal(server.status, undefined, 'the first one waits for the turn');
  const begun = performance.now();
  await server.stop('SIGTERM');
  assert.ok(performance.now() - begun < 2000 / Math.min(scale, 1), `${performance.now() - begun} ms`);
  assert.equal(server.status.signal, null);
  const again = await Server.start(t, options);
  const reader = new Follower(author.session);
  reader.mayLose = true;
  await reader.attach(await again.connect());
  assert.equal((await reader.done(turn)).done.finish_reason, 'interrupted');
});

test('ready again in under two seconds', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  const first = await Server.start(t, options);
  const author = await Follower.open(await first.connect());
  await author.say('My name is Zora.');
  await first.stop('SIGKILL');
  const begun = performance.now();
  await Server.start(t, options);
  assert.ok(performance.now() - begun < 2000 / Math.min(scale, 1), `${performance.now() - begun} ms`);
});
