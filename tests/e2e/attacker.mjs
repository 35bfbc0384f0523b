// One owner that uses a server as greedily as its limits allow. Runs in a worker thread, so that sending costs the
// client that is measured nothing (attacks.mjs). Reports { type: 'begun' } once the attack is under way; ends with
// its sockets cut off.
import net from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';
import { gzipSync } from 'node:zlib';
import WebSocket from 'ws';

const { attack, port, token, figures, prepared } = workerData;
const did = { sent: 0, received_bytes: 0, closed_by_server: 0, errors: {} }; // for the report
const sockets = [];
let stopped = false;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Attacker {
  static async connect() {
    const self = new Attacker();
    self.waiting = new Map(); // request_id -> resolve
    self.n = 0;
    self.socket = new WebSocket(`ws://127.0.0.1:${port}/ws`, ['parley.v1'],
      { headers: { Authorization: `Bearer ${token}` }, perMessageDeflate: false, maxPayload: 1 << 30 });
    sockets.push(self.socket);
    self.closed = new Promise((resolve) => {
      self.socket.on('error', resolve);
      self.socket.on('close', resolve);
    });
    self.socket.on('close', () => { did.closed_by_server += !stopped && !self.leaves; });
    self.socket.on('message', (bytes) => self.take(bytes));
    await Promise.race([new Promise((resolve) => self.socket.once('open', resolve)), self.closed]);
    return self;
  }

  take(bytes) {
    did.received_bytes += bytes.length;
    if (bytes.length > 4096 && this.waiting.size === 0) return; // parsing would cost more than sending
    const frame = JSON.parse(bytes);
    if (frame.type === 'error') did.errors[frame.code] = (did.errors[frame.code] ?? 0) + 1;
    this.waiting.get(frame.request_id)?.(frame);
    this.waiting.delete(frame.request_id);
  }

  get alive() { return !stopped && this.socket.readyState === WebSocket.OPEN; }
  send(message) {
    if (!this.alive) return;
    did.sent++;
    this.socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }
  leave() {
    this.leaves = true;
    this.socket.terminate();
  }
  /** The answer, or null where the connection ends first. */
  ask(message) {
    const request_id = String(++this.n);
    const answer = new Promise((resolve) => this.waiting.set(request_id, resolve));
    this.send({ ...message, request_id });
    return this.alive ? Promise.race([answer, this.closed.then(() => null)]) : null;
  }
  /** Repeats fn at the rate that a connection may keep up, until the end. */
  async paced(perSecond, fn) {
    for (let due = Date.now(), i = 0; this.alive; due += 1000 / perSecond, i++) {
      if (due > Date.now()) await sleep(due - Date.now());
      await fn(i);
    }
  }
}

const connections = (n) => Promise.all(Array.from({ length: n }, () => Attacker.connect()));
const long = (i) => `You are number ${i}. ${'Remember this. '.repeat(2200)}`.slice(0, 32000);
const strings = Array.from({ length: 18000 }, (_, i) => [i, `some words that are parsed ${i}`, { a: [1, 2, 3] }]);

/** A connection that speaks HTTP, with a token or without; one that the server closes comes again, when `again` is given. */
function plain(begin, again = begin) {
  const socket = net.connect(port, '127.0.0.1', () => begin(socket));
  sockets.push({ terminate: () => socket.destroy() });
  socket.on('error', () => {});
  socket.on('close', () => {
    if (stopped) return;
    did.closed_by_server++;
    setTimeout(() => stopped || plain(again), 100);
  });
  socket.on('data', (bytes) => {
    did.received_bytes += bytes.length;
    const status = /^HTTP\/1.1 (\d+)/.exec(bytes.subarray(0, 16).toString('latin1'))?.[1];
    if (status) did.errors[status] = (did.errors[status] ?? 0) + 1;
  });
  return socket;
}

function post(socket, target, body, headers = '') {
  did.sent++;
  socket.write(`POST ${target} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: Bearer ${token}\r\ncontent-type: application/json\r\n`
    + `${headers}content-length: ${Buffer.byteLength(body)}\r\n\r\n`);
  socket.write(body);
}
const model = '/v2/models/fastertransformer/infer';
const tensor = (name, data) => ({ name, datatype: 'UINT32', shape: [1, data.length], data });

/** Each gives once it is under way. */
const attacks = {
  async search() {
    const all = await connections(figures.connections);
    for (const one of all)
      for (let i = 0; i < figures.requests; i++) one.send({ type: 'session.list', query: prepared.query, limit: 200 });
    sleep(figures.stay_ms).then(() => all.forEach((one) => one.leave()));
  },

  async exports() {
    for (const one of await connections(figures.connections)) {
      one.socket.pause();
      for (let i = 0; i < figures.requests; i++) one.send({ type: 'session.export', session: prepared.session });
    }
  },

  async places() {
    const all = await connections(Math.min(figures.connections, figures.turns));
    await Promise.all(Array.from({ length: figures.turns }, async (_, i) => {
      const one = all[i % all.length];
      const opened = await one.ask({ type: 'session.open' });
      if (opened?.session)
        await one.ask({ type: 'turn.start', session: opened.session.id, input: { ids: [5 + i] }, sampling: { max_tokens: figures.tokens, ignore_eos: true } });
    }));
  },

  async replays() {
    for (const one of await connections(figures.connections)) {
      one.socket.on('message', (bytes) => {
        const frame = JSON.parse(bytes);
        if (frame.type === 'turn.replayed' || frame.type === 'error')
          setTimeout(() => one.send({ type: 'turn.replay', session: prepared.session, turn: 0 }), 100);
      });
      one.send({ type: 'turn.replay', session: prepared.session, turn: 0 });
    }
  },

  async megabytes() {
    const messages = [ // as large in values as in words
      JSON.stringify({ type: 'session.get', session: 'none', pad: strings }),
      JSON.stringify({ type: 'turn.start', session: prepared.session, input: { content: 'word and word '.repeat(71000) } }),
    ];
    const all = await connections(figures.connections);
    all.forEach((one, i) => void sleep((i * 1000) / all.length).then(() => one.paced(1, () => one.send(messages[i % 2]))));
  },

  async watchers() {
    const all = await connections(figures.connections);
    await Promise.all(all.map((one) => one.ask({ type: 'sessions.watch' })));
    all.forEach((one, i) => void one.paced(figures.rate, (n) => one.send({ type: 'session.open', system: long(i * 1000 + n) })));
  },

  async attached() {
    let left = figures.sessions;
    const all = await connections(figures.connections);
    all.forEach((one, i) => void one.paced(figures.rate, (n) => (left-- > 0 ? one.send({ type: 'session.open', system: long(i * 100000 + n) }) : sleep(1000))));
  },

  async streams() {
    for (let i = 0; i < figures.connections; i++)
      plain((socket) => {
        socket.pause();
        post(socket, '/v2/models/demo-model/generate_stream', JSON.stringify({ text_input: `Tell me story ${i}.`, parameters: { max_tokens: figures.tokens, ignore_eos: true } }));
      });
  },

  async starts() {
    for (let i = 0; i < figures.connections; i++)
      plain(async (socket) => {
        for (let n = 0; !stopped && !socket.destroyed; n++) {
          post(socket, model, JSON.stringify({ parameters: { sequence_id: i * 1000000 + n + 1, sequence_start: true },
            inputs: [tensor('input_ids', [5, 6, 7]), tensor('input_lengths', [3]), tensor('request_output_len', [1]), tensor('session_len', [4000])] }));
          await sleep(1000 / figures.rate);
        }
      });
  },

  async bombs() {
    const bomb = gzipSync(Buffer.alloc(figures.bytes, ' '));
    for (let i = 0; i < figures.connections; i++)
      plain(async (socket) => {
        while (!stopped && !socket.destroyed) {
          post(socket, i % 2 ? model : '/v1/chat/completions', bomb, 'content-encoding: gzip\r\n');
          await sleep(200);
        }
      });
  },

  async slowloris() {
    for (let i = 0; i < figures.connections; i++)
      plain(async (socket) => {
        for (const byte of `GET /${'x'.repeat(1000)}`) {
          if (stopped || socket.destroyed) return;
          did.sent++;
          socket.write(byte);
          await sleep(1000);
        }
      });
  },

  async pings() {
    for (let i = 0; i < figures.connections; i++)
      void (async () => {
        while (!stopped) { // one that is cut off comes again
          const one = await Attacker.connect();
          while (one.alive) {
            for (let k = 0; k < 500 && one.alive; k++) {
              did.sent++;
              one.socket.ping('beat');
            }
            await sleep(1);
          }
          await sleep(50);
        }
      })();
  },
};

parentPort.on('message', () => {
  stopped = true;
  sockets.forEach((socket) => socket.terminate());
  parentPort.postMessage({ type: 'stopped', did });
  parentPort.close();
});
await attacks[attack]();
parentPort.postMessage({ type: 'begun' });
