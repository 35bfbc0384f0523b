// After any end of the process, every turn that a client was told is done is still there, and the sessions continue.
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower, transcript } from './follower.mjs';
import { few, longTest, processorMs, root, scale, Server, shortTest, sleep, temporaryFolder, unlimited, until, withinOnce } from './harness.mjs';
import { Random, seed } from './random.mjs';
import { run } from './run.mjs';

const model = path.join(root, 'tests/fixtures/models/llama');
// The rest of the kills is crash-long's; `make torture`: 1,000.
const share = process.env.PARLEY_TEST_PART === 'short' ? 0.15 : 1;
const rounds = Number(process.env.KILLS) || Math.max(4, Math.round(40 * share * scale));
const random = new Random();
const sampling = () => ({ temperature: 1, seed: String(random.below(1e9)), max_tokens: 1 + random.below(60), ignore_eos: true, logprobs: true });

const someIds = () => Array.from({ length: 1 + random.below(random.below(8) ? 4 : 120) }, () => 2 + random.below(300)); // now and then a long prefill

/** What one client was told of one session, over all the lives of the server. */
class Witness {
  constructor(follower, copied = new Map()) {
    this.follower = follower;
    // Turns that were told to be done, or came with a fork, by number: { parent, text, finish_reason, transcript }.
    this.told = copied;
    this.facts = new Map(); // every event that was told but deltas, by its seq
  }

  note() {
    for (const [number, turn] of this.follower.turns)
      if (turn.done) this.told.set(number, { parent: turn.parent, text: turn.text, finish_reason: turn.done.finish_reason, transcript: transcript(turn) });
    for (const fact of this.follower.facts.splice(0)) this.facts.set(fact[0], fact);
  }

  /** The turns from a first one to this. */
  path(turn) {
    const path = [];
    for (; turn !== null; turn = this.told.get(turn).parent) path.unshift(turn);
    return path;
  }

  /** One thing that a user may do, of all that change a tree; a fork gives another witness. */
  async act(server) {
    const { follower } = this;
    const turn = this.told.size ? random.pick([...this.told.keys()]) : null;
    switch (turn === null ? 0 : random.below(12)) {
      case 6: return void await follower.done(await follower.regenerate(turn, { sampling: sampling() }));
      case 7: return void await follower.say({ ids: someIds() }, { after: this.told.get(turn).parent, sampling: sampling() }); // an edit
      case 8: {
        const { head } = await follower.rewind(random.below(10) ? turn : null, random.below(2) === 0);
        return assert.equal(follower.head, head);
      }
      case 9: return void await follower.say({ continue: true }, { sampling: sampling() });
      case 10: {
        const path = this.path(turn);
        const copied = new Map(path.map((number, i) => [i, { ...this.told.get(number), parent: i ? i - 1 : null, transcript: null }]));
        return new Witness(await Follower.fork(await server.connect(), follower.session, turn), copied);
      }
      case 11: { // the connection is lost in the middle; what becomes of the turn is the session's policy
        const number = await follower.start({ ids: someIds() }, { sampling: sampling() });
        await sleep(random.below(20));
        await follower.client.terminate();
        await sleep(random.below(40));
        await follower.attach(await server.connect());
        return void await follower.done(number);
      }
      default: return void await follower.say({ ids: someIds() }, { sampling: sampling() });
    }
  }

  /** Talks until the connection breaks. */
  async talk(server, onFork) {
    const { follower } = this;
    const refused = { session_full: () => follower.rewind(null), invalid: () => {} }; // invalid: nothing to go on with
    while (!server.status) {
      try {
        const fork = await this.act(server);
        if (fork) onFork(fork);
        if (random.below(4) === 0) await sleep(random.below(60)); // time to be parked or evicted
      } catch (error) {
        if (follower.fault) throw follower.fault;
        if (error.code === 'ERR_ASSERTION') throw error;
        const code = error.answer?.code;
        if (code && !refused[code]) throw error;
        if (!code) break; // it was killed
        await Promise.resolve(refused[code]()).catch(() => {});
      }
      this.note();
    }
    return this.note();
  }

  /** After a restart every reported event is there; a turn that was cut off keeps all tokens that were seen, or more. */
  async check(server) {
    const { follower } = this;
    const client = await server.connect();
    const fresh = new Follower(follower.session);
    fresh.mayLose = true;
    await fresh.attach(client);
    const { session, turns } = await client.ask({ type: 'session.get', session: follower.session, last: 1000 });
    await fresh.wait('every event', () => fresh.seq === session.seq);
    const shown = new Map(turns.map((turn) => [turn.turn, turn]));
    for (const [number, told] of this.told) {
      const where = `turn ${number} of ${follower.session}`;
      if (told.transcript) assert.deepEqual(transcript(fresh.turns.get(number)), told.transcript, where);
      // Of those off the path some; the events have told of them already, but for what came with a fork.
      if (!shown.has(number) && told.transcript && random.below(4)) continue;
      const turn = shown.get(number) ?? (await client.ask({ type: 'turn.get', session: follower.session, turn: number })).turn;
      assert.deepEqual([turn.parent, turn.text, turn.finish_reason], [told.parent, told.text, told.finish_reason], where);
    }
    // No reported number has another number or meaning now: starts, ends, moves of the head.
    const facts = new Map(fresh.facts.map((fact) => [fact[0], fact]));
    for (const [seq, fact] of this.facts) assert.deepEqual(facts.get(seq), fact, `event ${seq} of ${follower.session}`);
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
    for (const [number, turn] of fresh.turns)
      this.told.set(number, { parent: turn.parent, text: turn.text, finish_reason: turn.done.finish_reason, transcript: transcript(turn) });
    this.facts = facts;
    // The path in use is the one that the events lead to, and its tokens are the log.
    assert.equal(session.turn, null);
    assert.equal(session.head, fresh.head);
    assert.deepEqual(turns.map((turn) => turn.turn), this.path(session.head));
    assert.equal(session.n_tokens, turns.reduce((sum, turn) => sum + turn.n_input + turn.n_output, 0));
    // Going on where the old connection stood: without a gap, or with a reset that says so.
    const { seq } = follower;
    const back = await client.ask({ type: 'session.attach', session: follower.session, after: seq });
    assert.equal(back.type, 'session.attached');
    if (seq > session.seq) assert.equal(back.reset, true);
    fresh.leave();
    await client.close();
    this.follower = await Follower.attach(await server.connect(), follower.session, session.seq);
    this.follower.head = session.head;
    return kept;
  }
}

/** Every life of the server has settings of its own, so that kills meet commits, evictions, checkpoints and caches on their way to files alike. */
const settings = (folder) => [...unlimited, ...(random.below(3) ? ['--snapshot-dir', path.join(folder, 'snapshots')] : []), '--max-sequences', '8', '--max-resident-sessions', '16',
  '--commit-interval-us', random.pick(['0', '2000', '20000', '1000000']), '--durable', random.pick(['delta', 'delta', 'power']),
  '--max-sequence-idle-microseconds', random.pick(['1000', '20000', '60000000']),
  '--host-cache-bytes', random.pick(['0', '8MiB', '64MiB'])];
/** As a crash left it: SQLite's integrity, and every session's record by the doctor's rules. */
async function whole(db, round) {
  const { code, stdout, stderr } = await run(['sessions', 'doctor', '--db', db]);
  assert.equal(code, 0, `round ${round}: ${stdout}${stderr}`);
}
const loadMs = 1000; // of the model
const draining = (server) => until('the drain to begin', async () =>
  (await fetch(`${server.url}/readyz`).catch(() => ({ status: 503 }))).status === 503);

test(`kill -9 at ${rounds} random moments under load (E2E_SEED=${seed})`, async (t) => {
  const folder = temporaryFolder(t);
  const options = () => ({ model, db: path.join(folder, 'parley.db'), args: settings(folder) });
  let witnesses = [];
  let kept = 0, told = 0, forks = 0, moves = 0;
  const ready = [];
  // A few rounds of a slow server may not reach everything that a kill can hit: then some more run.
  const met = () => told > rounds && kept > 0 && moves > 0 && forks > 0;
  for (let round = 0; round < rounds || (!met() && round < 10 * rounds); round++) {
    if (random.below(4) === 0) { // while it starts, and recovers from the last one
      const early = await Server.start(t, { ...options(), wait: false });
      await sleep(random.below(60));
      await early.stop('SIGKILL');
    }
    const server = await Server.start(t, options());
    ready.push(processorMs(server.process.pid));
    for (const witness of witnesses) kept += await witness.check(server);
    // Some are left behind, checked for the last time just now.
    witnesses = witnesses.slice(-6);
    for (let i = 0; i < 3; i++)
      witnesses.push(new Witness(await Follower.open(await server.connect(), { on_disconnect: random.pick(['finish', { cancel_after_ms: 1 + random.below(30) }]) })));
    const copies = [];
    const talks = witnesses.map((witness) => witness.talk(server, (fork) => copies.push(fork)));
    await sleep(20 + random.below(180));
    const { signal } = await server.stop('SIGKILL');
    assert.equal(signal, 'SIGKILL');
    await Promise.all(talks);
    for (const copy of copies) copy.note();
    witnesses.push(...copies.slice(0, 2));
    forks += copies.length;
    for (const witness of witnesses) {
      told += witness.told.size;
      for (const [, type] of witness.facts.values()) moves += type === 'session.rewound';
    }
    await whole(path.join(folder, 'parley.db'), round);
    if (rounds > 100 && round % 50 === 49) console.log(`# ${round + 1} kills, ${told} turns done, ${moves} moves of the head, ${forks} forks, ${kept} tokens of interrupted ones kept`);
  }
  const last = await Server.start(t, options());
  for (const witness of witnesses) {
    kept += await witness.check(last);
    const next = await witness.follower.say({ ids: [5] }, { sampling: { max_tokens: 2, ignore_eos: true } }).catch((error) => error.answer);
    assert.ok(next?.done || next?.code === 'session_full', 'the session goes on');
  }
  const quartile = ready.sort((a, b) => a - b)[ready.length >> 2];
  assert.ok(quartile < (2000 + loadMs) / Math.min(scale, 1), `ready after ${quartile} ms of processor time`);
  assert.ok(met(), `${told} turns done, ${moves} moves, ${forks} forks, ${kept} tokens of interrupted ones kept`);
});

longTest('kill -9 while the database is made: the next start makes it, or goes on', async (t) => {
  for (let i = 0; i < Math.max(4, 15 * share * scale); i++) {
    const options = { model, db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
    const first = await Server.start(t, { ...options, wait: false });
    await sleep(random.below(80));
    await first.stop('SIGKILL');
    const second = await Server.start(t, options);
    await (await Follower.open(await second.connect())).say({ ids: [5] }, { sampling: { max_tokens: 2, ignore_eos: true } });
    await second.stop('SIGKILL');
    await whole(options.db, i);
  }
});

// However far an interrupted start came, the next one has the same result.
for (const schema of [1, 2, 3])
longTest(`kill -9 while a database of schema ${schema} is brought forward: nothing of it is lost`, async (t) => {
  const old = path.join(root, `tests/fixtures/sessions/schema-${schema}.sqlite`);
  const seen = async (db) => {
    const server = await Server.start(t, { model, db, args: unlimited });
    const client = await server.connect();
    const { sessions } = await client.ask({ type: 'session.list' });
    const states = await Promise.all(sessions.map(({ id }) => client.ask({ type: 'session.get', session: id })));
    await server.stop();
    return states.map(({ session, turns, seq }) => ({ session: { ...session, updated_ms: 0 }, turns, seq })).sort((a, b) => (a.session.id < b.session.id ? -1 : 1));
  };
  const copy = () => {
    const db = path.join(temporaryFolder(t), 'parley.db');
    copyFileSync(old, db);
    copyFileSync(`${old}.tail`, `${db}.tail`);
    return db;
  };
  const calm = await seen(copy());
  assert.ok(calm.length >= 5);
  for (let i = 0; i < Math.max(3, 10 * share * scale); i++) {
    const db = copy();
    const first = await Server.start(t, { model, db, args: unlimited, wait: false });
    await sleep(random.below(60));
    await first.stop('SIGKILL');
    assert.deepEqual(await seen(db), calm);
    await whole(db, i);
  }
});

shortTest('an interrupted session goes on as one that was told the same from the start', async (t) => {
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

longTest('SIGTERM: running turns finish, new ones are refused, exit status 0', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: [...unlimited, '--drain-timeout', '300'] };
  const server = await Server.start(t, options);
  const client = await server.connect();
  const author = await Follower.open(client);
  const idle = await Follower.open(client);
  const turn = await author.start('Tell me a story.', { sampling: { max_tokens: few(3000), ignore_eos: true } });
  await author.tokens(turn, 5);
  server.process.kill('SIGTERM');
  await draining(server);
  // A kept connection would end under its client's next request.
  assert.equal((await fetch(`${server.url}/healthz`)).headers.get('connection'), 'close');
  const refused = await client.ask({ type: 'turn.start', session: idle.session, input: { content: 'Hello!' } });
  assert.deepEqual([refused.type, refused.code], ['error', 'shutting_down']);
  assert.equal((await client.ask({ type: 'session.open' })).code, 'shutting_down');
  const { done, ids } = await author.done(turn);
  assert.deepEqual([done.finish_reason, ids.length], ['length', few(3000)]);
  assert.equal(await client.closed, 1001);
  assert.deepEqual(await server.exited, { code: 0, signal: null });
  const again = await Server.start(t, options);
  const reader = await Follower.attach(await again.connect(), author.session);
  assert.deepEqual(transcript(await reader.done(turn)), transcript(author.turns.get(turn)));
});

longTest('SIGTERM at any moment of a turn: its client is told how it ended before the connection closes', async (t) => {
  for (let i = 0; i < Math.max(5, 20 * scale); i++) {
    const server = await Server.start(t, { model, args: unlimited });
    const author = await Follower.open(await server.connect());
    const turn = await author.start({ ids: [5] }, { sampling: { max_tokens: 100, ignore_eos: true } });
    await sleep(i % 10);
    server.process.kill('SIGTERM');
    assert.equal((await author.done(turn)).ids.length, 100);
    assert.deepEqual(await server.exited, { code: 0, signal: null });
  }
});

shortTest('SIGTERM and no time to finish: what ran is recorded as interrupted, with its tokens; exit status 0', async (t) => {
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

shortTest('a second SIGTERM ends at once, and loses nothing either', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: [...unlimited, '--drain-timeout', '300'] };
  const server = await Server.start(t, options);
  const author = await Follower.open(await server.connect());
  const turn = await author.start('Tell me a story.', { sampling: { max_tokens: 3500, ignore_eos: true } });
  await author.tokens(turn, 5);
  server.process.kill('SIGTERM');
  await draining(server);
  await sleep(600); // what comes within half a second is the same signal
  assert.equal(server.status, undefined, 'the first one waits for the turn');
  await server.stop('SIGTERM');
  assert.equal(server.status.signal, null);
  const again = await Server.start(t, options);
  const reader = new Follower(author.session);
  reader.mayLose = true;
  await reader.attach(await again.connect());
  assert.equal((await reader.done(turn)).done.finish_reason, 'interrupted');
});

longTest('ready again in under two seconds of processor time', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  const first = await Server.start(t, options);
  const author = await Follower.open(await first.connect());
  await author.say('My name is Zora.');
  await first.stop('SIGKILL');
  await withinOnce(2000 / Math.min(scale, 1), 'from the start to ready', async () => {
    const again = await Server.start(t, options);
    const took = processorMs(again.process.pid);
    await again.stop('SIGKILL');
    return took;
  });
});
