// Thousands of opens, turns, cancels, disconnects and closes in random order over several connections. Afterwards
// every session's log equals that of the same session alone, every counter adds up, and nothing leaks.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower, sessionOf } from './follower.mjs';
import { root, scale, Server, sleep, unlimited, until } from './harness.mjs';
import { Random, seed } from './random.mjs';

const operations = Math.round(10000 * scale);
const connections = 8;
const random = new Random();

const memory = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const files = (pid) => readdirSync(`/proc/${pid}/fd`).length;

/** One session and what should have become of it. */
class Subject {
  constructor(follower, slot) {
    this.follower = follower;
    this.slot = slot; // its connection
    this.turns = []; // inputs and sampling, by turn number
    this.closed = false;
  }

  get session() { return this.follower.session; }

  async start(queue) {
    const ids = Array.from({ length: 1 + random.below(6) }, () => 2 + random.below(300));
    const sampling = { max_tokens: 1 + random.below(10), ignore_eos: true,
      ...(random.below(2) ? { temperature: 0 } : { temperature: 1, seed: String(random.below(1e9)) }) };
    const answer = await this.follower.client.ask({ type: 'turn.start', session: this.session, input: { ids }, sampling, queue });
    if (answer.type === 'turn.accepted') {
      assert.equal(answer.session, this.session);
      this.turns[answer.turn] = { ids, sampling };
    } else {
      assert.ok(['session_busy', 'session_full', 'session_closed', 'overloaded', 'session_not_found'].includes(answer.code), JSON.stringify(answer));
    }
    return answer;
  }
}

test(`${operations} operations in random order over ${connections} connections (E2E_SEED=${seed})`, async (t) => {
  const server = await Server.start(t, { model: path.join(root, 'tests/fixtures/models/llama'),
    args: [...unlimited, '--max-sequences', '12', '--max-queued-turns', '24', '--block-tokens', '8', '--memory-len', '48', '--prefill-chunk-tokens', '16',
      '--max-sequence-idle-microseconds', '40000', '--kv-cache-bytes', String(200 * 8 * 768), '--max-resident-sessions', '32'] });
  const { pid } = server.process;
  const slots = await Promise.all(Array.from({ length: connections }, () => server.connect()));
  const subjects = [];
  const finished = []; // what closed sessions were, read before they went
  let accepted = 0, at = {};

  /** A connection gets events of its own sessions only; checked on every frame. */
  const mine = slots.map(() => new Set());
  const guard = (slot) => (frame) => {
    const about = frame.request_id === undefined && sessionOf(frame);
    if (about && !mine[slot].has(about)) server.fault ??= new Error(`connection ${slot} was told ${JSON.stringify(frame)}`);
  };
  slots.forEach((client, slot) => client.listeners.add(guard(slot)));

  const open = async () => {
    const slot = random.below(connections);
    const session = `s-${seed}-${subjects.length + finished.length}-${random.below(1e9)}`;
    mine[slot].add(session);
    const follower = await Follower.open(slots[slot], { session, ...(random.below(3) ? {} : { memory_len: 20 + random.below(28), sink_len: random.below(5) }) });
    subjects.push(new Subject(follower, slot));
  };
  const read = async (subject) => {
    const client = slots[random.below(connections)];
    const answer = await client.ask({ type: 'session.get', session: subject.session, last: 1000 });
    assert.equal(answer.type, 'session.state', JSON.stringify(answer));
    assert.equal(answer.session.id, subject.session);
    return answer;
  };
  const move = async (subject, slot) => {
    mine[slot].add(subject.session);
    await subject.follower.attach(slots[slot]);
    subject.slot = slot;
  };
  const disconnect = async () => {
    const slot = random.below(connections);
    await slots[slot].terminate();
    mine[slot].clear();
    slots[slot] = await server.connect();
    slots[slot].listeners.add(guard(slot));
    for (const subject of subjects) if (subject.slot === slot) await move(subject, random.below(4) ? slot : random.below(connections));
  };
  /** Ends a session's life: its turns are waited for (or cancelled by the close), its log is kept for the comparison. */
  const close = async (subject) => {
    subjects.splice(subjects.indexOf(subject), 1);
    const remove = random.below(2) === 1;
    if (remove) { // afterwards it cannot be read
      await subject.follower.client.ask({ type: 'turn.cancel', session: subject.session });
      await until('its turns to end', async () => {
        const { turns } = await read(subject);
        if (turns.some((turn) => turn.state === 'queued'))
          await subject.follower.client.ask({ type: 'turn.cancel', session: subject.session, turn: turns.find((turn) => turn.state === 'queued').turn });
        return turns.every((turn) => turn.state === 'done');
      });
      subject.end = await read(subject);
    }
    const client = random.below(2) ? subject.follower.client : slots[random.below(connections)];
    const answer = await client.ask({ type: 'session.close', session: subject.session, ...(remove ? { delete: true } : {}) });
    assert.equal(answer.type, 'session.closed', JSON.stringify(answer));
    assert.equal(answer.deleted, remove);
    subject.end ??= await read(subject);
    await subject.follower.wait('the close', () => subject.follower.closed || !subject.follower.client);
    finished.push(subject);
  };

  // Several actors at once, each doing one thing after another; a disconnect concerns all of them.
  let done = 0, quiet = null;
  const act = async () => {
    const kind = random.below(100);
    const subject = subjects.length ? random.pick(subjects) : null;
    if (subjects.length < 6 || (kind < 6 && subjects.length < 40)) return open();
    if (subject.busy) return null; // another actor uses it
    subject.busy = true;
    try {
      if (kind < 60) {
        if ((await subject.start(random.below(2) === 1)).type === 'turn.accepted') accepted++;
      } else if (kind < 80) {
        await slots[random.below(connections)].ask({ type: 'turn.cancel', session: subject.session });
      } else if (kind < 86) {
        await move(subject, random.below(connections));
      } else if (kind < 90) {
        await read(subject);
      } else if (kind < 92) {
        await slots[random.below(connections)].ask({ type: 'session.update', session: subject.session, title: `Title ${random.below(100)}` });
      } else if (kind < 93) {
        await sleep(random.below(60)); // long enough for an eviction
      } else {
        await close(subject);
      }
    } finally {
      subject.busy = false;
    }
    return null;
  };
  while (done < operations) {
    const burst = Math.min(operations - done, 10 + random.below(40));
    let left = burst;
    await Promise.all(Array.from({ length: 6 }, async () => { while (left-- > 0) await act(); }));
    done += burst;
    await disconnect();
    done++;
    if (server.fault) throw server.fault;
    for (const { follower } of subjects) if (follower.fault) throw follower.fault;
    if (!quiet && done > operations / 4) quiet = { memory: memory(pid), files: files(pid) };
  }
  while (subjects.length) await close(subjects[0]);
  if (server.fault) throw server.fault;
  assert.ok(accepted > operations / 10, `${accepted} turns`);

  // Nothing is left: no turn, no block, no socket, no memory.
  await until('every block to be free', async () => (await server.metric('parley_engine_kv_cache_usage_ratio')) === 0);
  at = await server.metrics();
  assert.equal(at.get('parley_turns'), 0);
  assert.equal(at.get('parley_engine_requests_running') + at.get('parley_engine_requests_waiting') + at.get('parley_engine_sequences'), 0);
  for (const state of ['open', 'active', 'idle', 'parked', 'cold']) assert.equal(at.get(`parley_sessions_resident{state="${state}"}`), 0, state);
  assert.equal(at.get('parley_websockets'), connections);
  await until('no more files than before', () => files(pid) <= quiet.files + 2);
  const grown = memory(pid) - quiet.memory;
  if (scale === 1) assert.ok(grown < 24 << 20, `${(grown / 1048576).toFixed(1)} MiB more than after a quarter of it`);

  // The counters are those of what the sessions say.
  const sum = (name) => [...at].filter(([key]) => key.startsWith(`${name}{`)).reduce((total, [, value]) => total + value, 0);
  const turns = finished.flatMap(({ end }) => end.turns);
  assert.equal(turns.length, accepted);
  assert.equal(sum('parley_sessions_turns_total'), accepted);
  for (const reason of ['length', 'cancelled'])
    assert.equal(at.get(`parley_sessions_turns_total{finish="${reason}"}`), turns.filter((turn) => turn.finish_reason === reason).length, reason);
  assert.equal(at.get('parley_engine_generated_tokens_total'), turns.reduce((total, turn) => total + turn.n_output, 0));
  assert.ok(sum('parley_sessions_evictions_total') + sum('parley_sessions_parked_total') > 0 || scale < 1, 'some caches were let go');

  // Each session alone, with the cancelled turns cut where they were: the same tokens, so none was another's.
  const alone = await Server.start(t, { model: path.join(root, 'tests/fixtures/models/llama'), args: unlimited });
  const client = await alone.connect();
  const some = finished.filter((_, i) => i % Math.ceil(finished.length / 150) === 0);
  for (const { end, turns: said, follower } of some) {
    const { memory_len, sink_len } = end.session;
    const solo = await Follower.open(client, { memory_len, sink_len });
    for (const turn of end.turns) {
      if (turn.n_input === 0) continue; // cancelled before it came to the log
      const { ids, sampling } = said[turn.turn];
      assert.equal(turn.n_input, ids.length);
      const replay = await solo.say({ ids }, { sampling: { ...sampling, max_tokens: Math.max(1, turn.n_output) } });
      const seen = follower.turns.get(turn.turn);
      if (turn.n_output === 0) { // nothing was drawn: alone, that cannot be played, so the comparison ends here
        break;
      }
      if (seen?.done && seen.ids.length === turn.n_output) assert.deepEqual(seen.ids, replay.ids, `turn ${turn.turn} of ${end.session.id}`);
      else assert.fail(`turn ${turn.turn} of ${end.session.id} was not seen whole`);
    }
    await client.ask({ type: 'session.close', session: solo.session, delete: true });
  }
});
