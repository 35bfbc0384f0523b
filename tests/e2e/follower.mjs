// Follows one session, possibly over several connections: checks that every event arrives exactly once, in order,
// without a gap, and collects the turns. Any number of followers can share a connection.
import { patience, until } from './harness.mjs';

const events = new Set(['session.opened', 'session.updated', 'session.closed', 'session.evicted', 'session.parked', 'session.rewound', 'turn.queued', 'turn.started',
  'turn.delta', 'turn.done']);

/** The id of the session that a frame is about. */
export const sessionOf = (frame) => (typeof frame.session === 'object' && frame.session ? frame.session.id : frame.session);

export class Follower {
  constructor(session, after = 0) {
    this.session = session;
    this.seq = after; // of the last event taken
    this.whole = after === 0; // it sees every turn from its start
    this.turns = new Map();
    this.evictions = [];
    this.head = null; // where the events have put it
    this.facts = []; // [seq, type, turn, parent, head] of every event but deltas
    this.joined = 0; // deltas of more than one token
    this.mayLose = false; // the server was killed since
    this.lost = 0;
    this.fault = null;
    this.listener = (frame) => this.take(frame);
  }

  /** Opens a session on a connection and follows it from its first event. */
  static async open(client, fields = {}) {
    const follower = new Follower(fields.session);
    const early = [];
    const keep = (frame) => early.push(frame);
    client.listeners.add(keep); // the answer is an event itself
    const answer = await client.ask({ type: 'session.open', ...fields });
    client.listeners.delete(keep);
    if (answer.type !== 'session.opened') throw Object.assign(new Error(`session.open: ${JSON.stringify(answer)}`), { answer });
    follower.session = answer.session.id;
    early.forEach(follower.listener);
    follower.client = client;
    client.listeners.add(follower.listener);
    return follower;
  }

  /** A copy of a session's path up to a turn, followed from its first event. */
  static fork(client, session, turn) { return Follower.open(client, { type: 'session.fork', session, turn }); }

  /** Follows a session from `after` on; says so when the server does not know that place. */
  static async attach(client, session, after = 0) {
    const follower = new Follower(session, after);
    await follower.attach(client);
    return follower;
  }

  /** Goes on with what was missed, on this connection. */
  async attach(client) {
    this.leave();
    this.client = client;
    const request_id = client.newId();
    const begin = (frame) => { // with the answer: what comes before it belongs to an earlier attach
      if (frame.request_id !== request_id) return;
      client.listeners.delete(begin);
      client.listeners.add(this.listener);
    };
    client.listeners.add(begin);
    this.attached = await client.ask({ type: 'session.attach', session: this.session, after: this.seq, request_id });
    if (this.attached.type !== 'session.attached') throw new Error(`session.attach: ${JSON.stringify(this.attached)}`);
    return this.attached;
  }

  /** Looks no more at what its connection receives. */
  leave() {
    this.client?.listeners.delete(this.listener);
    this.client = null;
  }

  take(frame) {
    if (!events.has(frame.type) || sessionOf(frame) !== this.session) return;
    if (frame.type === 'session.rewound' && frame.seq === undefined) return; // an answer: the head was there already
    const first = frame.first_seq ?? frame.seq;
    if (first !== this.seq + 1 || frame.seq < first) {
      this.fault ??= new Error(`after event ${this.seq} came ${JSON.stringify(frame)}`);
      return;
    }
    this.seq = frame.seq;
    // Either way the cache has left the device.
    if (frame.type === 'session.evicted' || frame.type === 'session.parked') this.evictions.push(frame);
    if (frame.type === 'session.closed') this.closed = frame;
    if (frame.type !== 'turn.delta') this.facts.push([frame.seq, frame.type, frame.turn ?? null, frame.parent ?? null, frame.head ?? null]);
    if (frame.type === 'session.opened') this.head = frame.session.head;
    if (frame.type === 'session.rewound') this.head = frame.head;
    if (frame.turn === undefined) return;
    if (!this.turns.has(frame.turn)) this.turns.set(frame.turn, { text: '', ids: [], logprobs: [], top: [], arrivals: [] });
    const turn = this.turns.get(frame.turn);
    if (frame.type === 'turn.queued') turn.queued = frame;
    if (frame.type === 'turn.started') turn.started = frame;
    if ((frame.type === 'turn.queued' || frame.type === 'turn.started') && turn.parent === undefined) {
      turn.parent = frame.parent;
      this.head = frame.turn; // with the first event of a turn
    }
    if (frame.type === 'turn.delta') this.takeDelta(turn, frame);
    if (frame.type === 'turn.done') {
      if (turn.done) this.fault ??= new Error(`turn ${frame.turn} ended twice`);
      turn.done = frame;
      turn.text += frame.text ?? '';
    }
  }

  takeDelta(turn, frame) {
    const n = frame.seq - frame.first_seq + 1;
    const lost = frame.ids.length === 0 && this.mayLose; // numbers whose tokens a crash took
    if (lost) this.lost += n;
    if ((frame.ids.length !== n && !lost) || turn.done || (!turn.started && this.whole))
      this.fault ??= new Error(`out of place: ${JSON.stringify(frame)}`);
    if (frame.ids.length > 1) this.joined++;
    turn.text += frame.text;
    turn.ids.push(...frame.ids);
    turn.logprobs.push(...(frame.logprobs ?? []));
    turn.top.push(...(frame.top_logprobs ?? []));
    turn.arrivals.push(performance.now());
  }

  /** Waits until check(this) gives something truthy. */
  async wait(what, check, timeoutMs = patience) {
    const value = await until(`${what} (session ${this.session}, after event ${this.seq})`, async () => {
      if (this.fault) throw this.fault;
      const closed = this.client && this.client.closeCode !== undefined; // asked first: what came before it counts
      const value = await check(this);
      if (closed && !value) throw new Error(`the connection closed with ${this.client.closeCode} before ${what}`);
      return value;
    }, timeoutMs);
    if (this.fault) throw this.fault;
    return value;
  }

  started(turn) { return this.wait(`turn ${turn} to start`, () => this.turns.get(turn)?.started && this.turns.get(turn)); }
  tokens(turn, n) { return this.wait(`${n} tokens of turn ${turn}`, () => this.turns.get(turn)?.ids.length >= n && this.turns.get(turn)); }
  done(turn, timeoutMs) { return this.wait(`turn ${turn} to end`, () => this.turns.get(turn)?.done && this.turns.get(turn), timeoutMs); }

  /** Asks something about its session; throws what the server refuses it with. */
  async ask(message, want) {
    const answer = await this.client.ask({ session: this.session, ...message });
    if (answer.type !== want) throw Object.assign(new Error(`${message.type}: ${JSON.stringify(answer)}`), { answer });
    return answer;
  }

  /** Starts a turn: its number; throws what the server refuses it with. */
  async start(input, fields = {}) {
    return (await this.ask({ type: 'turn.start', input: typeof input === 'string' ? { content: input } : input, ...fields }, 'turn.accepted')).turn;
  }
  async regenerate(turn, fields = {}) { return (await this.ask({ type: 'turn.regenerate', turn, ...fields }, 'turn.accepted')).turn; }
  rewind(turn, leaf) { return this.ask({ type: 'session.rewind', turn, leaf }, 'session.rewound'); }

  /** Runs a whole turn. */
  async say(input, fields) { return this.done(await this.start(input, fields)); }
}

/** What a reader must have got of a turn, whichever way it came. */
export const transcript = ({ text, ids, logprobs, top, done }) =>
  ({ text, ids, logprobs, top, finish_reason: done?.finish_reason, usage: done?.usage });
