// A real server on a free port with a database of its own, and a client of parley.v1 over the `ws` package. Used by
// every end-to-end test; the tests themselves contain no protocol details beyond the messages that they test.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os, { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import WebSocket from 'ws';
import { Conversation } from './schema.mjs';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const parley = path.resolve(root, process.env.PARLEY ?? 'build/release/parley');
/** Work left out under the sanitizers, which are ten times slower: loops multiply their count by this. */
export const scale = Number(process.env.E2E_SCALE ?? (/asan|tsan/.test(parley) ? 0.1 : 1));
/** As many tokens, or a fifth of them where each takes so much longer. */
export const few = (n) => (scale < 1 ? Math.ceil(n / 5) : n);
/** Options of a server whose limits on one client a test may exceed. */
export const unlimited = ['--messages-per-second', '100000', '--message-burst', '1000000', '--max-connections-per-ip', '4096',
  ...['requests-per-minute', 'tokens-per-minute', 'running-turns', 'connections', 'outstanding-jobs'].flatMap((limit) => [`--owner-${limit}`, '0'])];
/** How long anything is waited for that comes at once on a quiet machine: a minute, or longer by how often the work that the
 * machine has exceeds its processors, and by what a sanitizer costs. */
const slower = /asan/.test(parley) ? 4 : /tsan/.test(parley) ? 8 : Math.ceil(os.loadavg()[0] / os.cpus().length);
export const patience = 60000 * Math.min(Math.max(slower, 1), 8);
/** A test that shares the machine with twenty others may need longer than five seconds for its first message, than twenty
 * for the answer to a ping and than thirty to read what it paused: the server, which runs ahead of it, would end its
 * connection. */
export const unhurried = { PARLEY_HELLO_TIMEOUT: '120', PARLEY_PING_INTERVAL: '600', PARLEY_SLOW_READER_TIMEOUT: '600' };
/** The tests of a file that is two programs for the runner: those of `make test`, and those that run only as NAME-long, in
 * `make check-long`. By hand all run. */
const part = process.env.PARLEY_TEST_PART, elsewhere = () => {};
export const shortTest = part === 'long' ? elsewhere : test;
export const longTest = part === 'short' ? elsewhere : test;
/** Whether this is `make test`: for a test that runs in both, and looks at more as NAME-long. */
export const brief = part === 'short';
/** Of tests that all look at one rule: those of `make test` are `short`. */
export const shortIf = (short) => (short ? shortTest : longTest);
/** Rounds that all look at one rule, by other numbers: a sixth of them in `make test`, all of them as NAME-long. */
export const rounds = (n) => few(part === 'short' ? Math.ceil(n / 6) : n);
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const servers = new Set();
let clients = 0;
process.on('exit', () => servers.forEach((server) => server.process.kill('SIGKILL')));

// A test that failed leaves sockets and timers behind, a paused socket even after its server's end, and each would keep
// the program until the runner ends it. Nothing is awaited any more behind the last test, so the program ends.
// `ended` tells the runner (run/results.mjs) that all tests had their turn.
if (process.env.NODE_TEST_CONTEXT || /(\.test|together)\.mjs$/.test(process.argv[1] ?? ''))
  after(async () => {
    await endOfFile();
    while (ofProcess.length > 0) await ofProcess.pop()();
    console.log('# ended');
    setTimeout(() => process.exit(), 2000).unref();
  });

/** A listener on this port of loopback, or null where another one has it. */
const listenOn = (port) => new Promise((resolve) => {
  const listener = net.createServer().once('error', () => resolve(null));
  listener.listen(port, '127.0.0.1', () => resolve(listener));
});

// Another process must not get a port between its choice here and a server's start, which takes seconds on a busy machine.
// So each process has a hundred ports of its own, as long as it listens on the first of them. They lie below those that
// the kernel gives to clients.
let range, taken = 0;
async function ownRange() {
  for (;;) {
    const first = 11000 + 100 * Math.floor(Math.random() * 215);
    const holder = await listenOn(first);
    if (holder) {
      holder.unref();
      return first;
    }
  }
}

/** A port that nobody listens on, and that no other process of the tests chooses. */
export async function freePort() {
  range ??= ownRange();
  const first = await range;
  for (;;) {
    const port = first + 1 + taken++ % 99;
    const probe = await listenOn(port);
    if (!probe) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

const cleanups = new WeakMap(); // test context -> its cleanup functions
const ofFile = []; // cleanup functions of the file that runs
const ofProcess = []; // and of the process

/** Ends what belongs to all tests of a file, where another file follows in the same process (together.mjs). */
export async function endOfFile() {
  while (ofFile.length > 0) await ofFile.pop()();
}

/** Runs fn behind the last test of the last file of this process. */
export const atLast = (fn) => void ofProcess.push(fn);

/** Runs fn after the test. Unlike t.after's hooks, which run in the order of their registration, the last one runs first:
 * a page closes before the server that it talks to stops. */
export function afterwards(t, fn) {
  if (!t) return void ofFile.push(fn);
  if (!cleanups.has(t)) {
    const stack = [];
    cleanups.set(t, stack);
    t.after(async () => {
      const errors = [];
      while (stack.length > 0) {
        try {
          await stack.pop()();
        } catch (error) {
          errors.push(error);
        }
      }
      if (errors.length > 0) throw errors[0];
    });
  }
  cleanups.get(t).push(fn);
}

/** A folder that is removed after the test. */
export function temporaryFolder(t) {
  const folder = mkdtempSync(path.join(tmpdir(), 'parley-test-'));
  afterwards(t, async () => {
    // A server that writes here may have been started before the folder was created.
    const here = [...servers].filter((server) => server.process.spawnargs.some((arg) => arg.startsWith(folder)));
    await Promise.all(here.map((server) => server.stop('SIGKILL')));
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

/** Whether text is a string without lone surrogates (String.prototype.isWellFormed needs Node 20). */
export const isWellFormed = (text) => typeof text === 'string' && !/\p{Surrogate}/u.test(text);

/** Waits until check() gives something truthy; says what it waited for when it never does. */
export async function until(what, check, timeoutMs = patience) {
  const begun = Date.now();
  for (;;) {
    const value = await check();
    if (value) return value;
    const waited = Date.now() - begun;
    if (waited > timeoutMs) throw new Error(`timed out waiting for ${what}`);
    await sleep(Math.min(Math.max(10, waited / 20), 50)); // what takes longer is asked for less often
  }
}

/** What takes less than `bound` ms when nothing else delays it: a busy machine holds up one attempt or another, what is
 * slow by itself all five. attempt() gives the milliseconds that it took. */
export async function withinOnce(bound, what, attempt) {
  const took = [];
  while (took.length < 5) {
    took.push(await attempt());
    if (took.at(-1) < bound) return;
  }
  throw new Error(`${what}: ${took.map(Math.round)} ms, never less than ${bound}`);
}

/** Milliseconds of processor time that the threads of a process have used: what a busy machine adds to the time on the clock
 * is not in it. */
export function processorMs(pid) {
  let ns = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`))
    try {
      ns += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'latin1').split(' ')[0]);
    } catch { /* it has ended */ }
  return ns / 1e6;
}

/** The status of /readyz, or 0. Not by fetch(), which costs a program 0.3 s of processor time at its first use. */
const readyzStatus = (url) => new Promise((resolve) => {
  const request = http.get(`${url}/readyz`, { agent: false, timeout: 10000 }, (answer) => {
    answer.resume();
    resolve(answer.statusCode);
  });
  request.once('timeout', () => request.destroy()).once('error', () => resolve(0));
});

export class Server {
  /** Options over --model configs/demo-model; { db, port, args, env, wait: false, wrap: ['prlimit', ...] }. */
  static async start(t, options = {}) {
    const server = new Server();
    server.folder = temporaryFolder(t);
    server.db = options.db ?? path.join(server.folder, 'parley.db');
    server.port = options.port ?? (await freePort());
    server.url = `http://127.0.0.1:${server.port}`;
    server.log = '';
    const line = [parley, 'serve', '--model', options.model ?? path.join(root, 'configs/demo-model'),
      '--port', String(server.port), '--db', server.db, ...(options.args ?? [])];
    const [program, ...args] = [...(options.wrap ?? []), ...line];
    server.process = spawn(program, args, {
      cwd: root, env: { ...process.env, ...unhurried, ...options.env }, stdio: ['ignore', 'pipe', 'pipe'],
    });
    servers.add(server);
    for (const stream of [server.process.stdout, server.process.stderr])
      stream.on('data', (bytes) => { server.log = (server.log + bytes).slice(-200000); });
    server.exited = new Promise((resolve) => {
      const ended = (status) => {
        servers.delete(server);
        server.status = status;
        resolve(status);
      };
      server.process.once('exit', (code, signal) => ended({ code, signal }));
      server.process.once('error', (error) => ended({ code: null, signal: null, error: error.message })); // no such program
    });
    afterwards(t, () => server.stop('SIGKILL'));
    if (options.wait !== false) await server.ready();
    return server;
  }

  async ready(timeoutMs = patience) {
    let looks = 0;
    await until('the server to be ready', async () => {
      if (this.status) throw new Error(`the server ended (${JSON.stringify(this.status)}):\n${this.log}`);
      // Asked every 10 ms, the question took as much processor time as the server's start. Its log says when to ask; a
      // log that does not say it is no reason to wait for ever.
      return (this.log.includes('event=server.ready') || ++looks % 10 === 0) && (await readyzStatus(this.url)) === 200;
    }, timeoutMs).catch((error) => { // and what it was at
      throw this.status ? error : new Error(`${error.message}; the server runs, and said:\n${this.log}`);
    });
  }

  /** Sends a signal and waits for the end; gives { code, signal }. */
  async stop(signal = 'SIGTERM') {
    if (!this.status) this.process.kill(signal);
    return this.exited;
  }

  connect(options) { return Client.connect(this, options); }
  /** Every sample of /metrics: `name{label="x"}` to number. */
  async metrics() {
    const page = await (await fetch(`${this.url}/metrics`)).text();
    const rows = page.split('\n').filter((row) => row && !row.startsWith('#'));
    return new Map(rows.map((row) => [row.slice(0, row.lastIndexOf(' ')), Number(row.slice(row.lastIndexOf(' ')))]));
  }
  async metric(name) {
    const page = await (await fetch(`${this.url}/metrics`)).text();
    const line = page.split('\n').find((row) => row.startsWith(`${name} `));
    return line === undefined ? undefined : Number(line.split(' ').pop());
  }
}

export class Client {
  /** { token, protocols, headers, query, hello: false, malformed: true for a client that breaks the protocol on purpose } */
  static async connect(server, options = {}) {
    const client = new Client();
    client.server = server;
    client.conversation = new Conversation(options.malformed);
    client.frames = []; // everything received, in order
    client.taken = 0; // frames before this index were looked at by next()
    client.counter = 0;
    client.tag = `${process.pid}.${++clients}`; // two connections that start turns with one request_id start one turn
    client.waiters = [];
    // called with every frame, for tests that follow several things at once
    client.listeners = new Set();
    client.socket = new WebSocket(`ws://127.0.0.1:${server.port}/ws${options.query ?? ''}`, options.protocols ?? ['parley.v1'],
      { headers: { Origin: server.url, ...options.headers } });
    client.closed = new Promise((resolve) => client.socket.once('close', (code, reason) => {
      client.closeCode = code;
      client.closeReason = String(reason);
      client.wake();
      resolve(code);
    }));
    client.socket.on('message', (bytes) => {
      const frame = JSON.parse(bytes);
      client.conversation.received(frame);
      client.frames.push(frame);
      client.listeners.forEach((listener) => listener(frame));
      client.wake();
    });
    await new Promise((resolve, reject) => {
      client.socket.once('open', resolve);
      client.socket.on('error', reject);
    });
    if (options.token) client.send({ type: 'hello', token: options.token });
    if (options.hello !== false) client.hello = await client.next((frame) => frame.type === 'hello');
    return client;
  }

  wake() { this.waiters.splice(0).forEach((waiter) => waiter()); }
  send(message) {
    this.conversation.sent(message);
    this.socket.send(typeof message === 'string' ? message : JSON.stringify(message));
  }
  close() { this.socket.close(); return this.closed; }
  terminate() { this.socket.terminate(); return this.closed; }

  /** The next frame not yet looked at that fits; frames before it are passed over. */
  async next(fits, timeoutMs = patience) {
    const end = Date.now() + timeoutMs;
    for (;;) {
      while (this.taken < this.frames.length) {
        const frame = this.frames[this.taken++];
        if (fits(frame)) return frame;
      }
      if (this.closeCode !== undefined)
        throw new Error(`the connection closed with ${this.closeCode} ${this.closeReason}${this.closeCode === 1006 ? await this.fate() : ''}`);
      if (Date.now() > end)
        throw new Error(`timed out; last frames: ${JSON.stringify(this.frames.slice(-3))}`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, 1000); // cleared: a timer that is left holds the test program's end up
        this.waiters.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** Sends with a request_id and gives the frame that answers it (an error too). */
  async request(message, timeoutMs) {
    const request_id = this.newId();
    this.send({ ...message, request_id });
    return this.next((frame) => frame.request_id === request_id, timeoutMs);
  }

  /** How the server ended, if it did within a second, and what it said last. */
  async fate() {
    await Promise.race([this.server.exited, new Promise((resolve) => setTimeout(resolve, 1000).unref())]);
    const { status, log = '' } = this.server;
    return `; the server ${status ? `ended (${JSON.stringify(status)})` : 'runs'}, and said last: ${log.slice(-4000)}`;
  }

  newId() { return `${this.tag}.${++this.counter}`; }

  /** As request(), for several at once: leaves alone what next() has yet to look at. */
  ask(message, timeoutMs = patience) {
    const request_id = message.request_id ?? this.newId();
    return new Promise((resolve, reject) => {
      const end = (settle, value) => {
        clearTimeout(timer);
        this.listeners.delete(listener);
        settle(value);
      };
      const listener = (frame) => { if (frame.request_id === request_id) end(resolve, frame); };
      const timer = setTimeout(() => end(reject, new Error(`no answer to ${JSON.stringify(message)}`)), timeoutMs);
      this.listeners.add(listener);
      this.closed.then(async (code) => {
        const fate = code === 1006 ? await this.fate() : '';
        end(reject, new Error(`closed with ${code} before the answer to ${JSON.stringify(message)}${fate}`));
      });
      this.send({ ...message, request_id });
    });
  }

  /** Opens a session; gives its id. */
  async open(fields = {}) {
    const before = this.taken;
    const answer = await this.request({ type: 'session.open', ...fields });
    if (answer.type !== 'session.opened') throw new Error(`session.open: ${JSON.stringify(answer)} after ${before}`);
    return answer.session.id;
  }

  /** Starts a turn without waiting for its end; gives turn.accepted or the error. */
  start(session, input, fields = {}) {
    return this.request({ type: 'turn.start', session, input: typeof input === 'string' ? { content: input } : input, ...fields });
  }

  /** Runs a whole turn: { text, ids, deltas, done, accepted }. */
  async turn(session, input, fields = {}) {
    const accepted = await this.start(session, input, fields);
    if (accepted.type !== 'turn.accepted') throw new Error(`turn.start: ${JSON.stringify(accepted)}`);
    const first = this.frames.indexOf(accepted);
    const done = await this.next((frame) => frame.type === 'turn.done' && frame.session === session && frame.turn === accepted.turn);
    const deltas = this.frames.slice(first).filter((frame) => frame.type === 'turn.delta' && frame.session === session && frame.turn === accepted.turn);
    return {
      accepted, done, deltas,
      ids: deltas.flatMap((delta) => delta.ids),
      text: deltas.map((delta) => delta.text).join('') + (done.text ?? ''),
    };
  }
}
