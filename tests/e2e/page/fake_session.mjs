// One session whose answers the test writes: the page comes from the real server, its WebSocket connects here. For
// texts that no model would generate, and for speeds that no test machine reaches.
import { check } from '../schema.mjs';

const MODEL = {
  name: 'written',
  family: 'llama',
  n_params: 1000000,
  n_vocab: 256,
  backend: 'test',
  chat: true,
  session_len: 1000000,
  max_session_len: 1000000,
  memory_len: 1000000,
  max_memory_len: 1000000,
  sink_len: 4,
  sampling: {
    temperature: 0.7,
    top_k: 0,
    top_p: 0.9,
    min_p: 0,
    repetition_penalty: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    max_tokens: 0,
  },
};

export class FakeSession {
  /**
   * @param turns [[said, answered, {keys of the turn object}?], ...] what has been said before
   * @param session keys of the session object
   */
  constructor(turns = [], session = {}) {
    this.turns = turns;
    this.more = session;
    this.seq = turns.length;
    this.read = new Promise((resolve) => (this.tellRead = resolve)); // when the page has the session's state
    this.others = []; // further sessions of the list
  }

  /** A session that takes the place of the page's WebSocket; the arguments are the constructor's. */
  static async route(page, ...args) {
    const fake = new FakeSession(...args);
    await page.routeWebSocket(/\/ws$/, (socket) => fake.connect(socket));
    return fake;
  }

  /** Answers what comes from a page. @param socket has send(text) and onMessage(take) */
  connect(socket) {
    this.socket = socket;
    socket.onMessage((text) => {
      const message = JSON.parse(text);
      check('client', message);
      this.#answer(message);
    });
  }

  send(frame) {
    this.socket.send(JSON.stringify(frame));
  }
  event(frame) {
    this.send({ session: 'fake', seq: ++this.seq, ...frame });
  }

  get session() {
    return {
      id: 'fake',
      title: 'Written',
      auto_title: true,
      model: 'written',
      state: 'idle',
      created_ms: Date.now(),
      updated_ms: Date.now(),
      n_turns: this.turns.length,
      n_tokens: 100,
      session_len: 1000000,
      memory_len: 1000000,
      sink_len: 4,
      cached_tokens: 100,
      system: null,
      sampling: {},
      seq: this.seq,
      turn: null,
      head: this.turns.length - 1,
      ...this.more,
    };
  }

  /** What is on record of a turn, beside the turn itself; see `recorded`. */
  #record(turn) {
    const object = { turn, state: 'done', input: { content: this.turns[turn][0] }, text: this.turns[turn][1], finish_reason: 'eos' };
    return { session: 'fake', turn: { ...object, ...this.turns[turn][2], ...this.recorded.turn }, ...this.recorded.keys };
  }

  #answer({ type, request_id, last, before, turn, forked_from }) {
    switch (type) {
      case 'hello':
        this.send({
          type: 'hello',
          sampling_parameters: [],
          protocol: 'parley.v1',
          server: { name: 'fake', version: '0' },
          models: [MODEL],
          limits: { messages_per_second: 100 },
          idle_eviction_ms: 1000,
        });
        break;
      case 'sessions.watch':
        this.send({ type: 'sessions.watching', request_id });
        break;
      case 'session.list':
        this.send({ type: 'session.list', request_id, sessions: forked_from ? [] : [this.session, ...this.others], cursor: null });
        break;
      case 'session.get': {
        this.reads = (this.reads ?? 0) + 1;
        const end = Math.min(this.turns.length, before ?? Infinity);
        const first = Math.max(0, end - last);
        const turns = this.turns.slice(first, end).map(([said, answered, keys], i) => ({
          turn: first + i,
          state: 'done',
          input: { content: said },
          text: answered,
          finish_reason: 'eos',
          n_input: 5,
          n_output: 20,
          seed: '1',
          sampling: {},
          created_ms: Date.now(),
          usage: { input_tokens: 5, output_tokens: 20, log_tokens: 25 },
          timings: { queue_ms: 0, prefill_ms: 1, first_token_ms: 1, decode_ms: 1, paused_ms: 0, tokens_per_second: 1000 },
          cache: { source: 'kept', kept_tokens: 0, computed_tokens: 5 },
          seq_first: first + i,
          seq_last: first + i,
          parent: first + i ? first + i - 1 : null,
          ...keys,
        }));
        this.send({
          type: 'session.state',
          request_id,
          session: this.session,
          turns,
          seq: this.seq,
          ...(before === undefined ? {} : { before }),
          more: first > 0,
        });
        this.tellRead();
        break;
      }
      case 'turn.start':
        this.send({ type: 'error', request_id, session: 'fake', ...this.refusal });
        break;
      case 'turn.get':
        this.send({ type: 'turn.state', request_id, ...this.#record(turn) });
        break;
      case 'session.events':
        this.send({ type: 'session.events', request_id, session: 'fake', events: this.recorded.events, more: false });
        break;
      case 'turn.replay':
        this.send({ type: 'turn.replaying', request_id, session: 'fake', turn });
        this.replay = (found) => this.send({ type: 'turn.replayed', request_id, session: 'fake', turn, ...found });
        break;
      case 'ping':
        this.send({ type: 'pong', request_id });
        break;
    }
  }

  /**
   * Waits until the page has read the session: a turn that begins before would reach it as one that is done.
   * more: keys of turn.started that the turn object has too
   */
  async begin(said, more = {}) {
    await this.read;
    this.turn = this.turns.length;
    this.turns.push([said, '', more]);
    this.event({
      type: 'turn.started',
      turn: this.turn,
      input: { content: said },
      n_input: 5,
      seed: '1',
      sampling: {},
      created_ms: Date.now(),
      ...more,
    });
  }
  progress(done, total) {
    this.send({ type: 'turn.progress', session: 'fake', turn: this.turn, done, total });
  }
  delta(text) {
    this.turns[this.turn][1] += text;
    this.event({ type: 'turn.delta', first_seq: this.seq + 1, turn: this.turn, text, ids: [1] });
  }
  /** text: what was still held back; log_tokens: of the session, with this turn */
  done(finish_reason = 'eos', text = undefined, log_tokens = 125) {
    this.turns[this.turn][1] += text ?? '';
    this.event({
      type: 'turn.done',
      turn: this.turn,
      finish_reason,
      text,
      usage: { input_tokens: 5, output_tokens: 20, log_tokens },
      timings: { queue_ms: 0, prefill_ms: 1, first_token_ms: 1, decode_ms: 1, paused_ms: 0, tokens_per_second: 1000 },
      cache: { source: 'kept', kept_tokens: 100, computed_tokens: 5 },
    });
  }
}
