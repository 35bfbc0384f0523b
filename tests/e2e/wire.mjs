// For tests of the wire alone: the real server on fake sessions (tests/fakes), raw sockets, and hand-made WebSocket
// frames, because no client library would send them.
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import net from 'node:net';
import path from 'node:path';
import tls from 'node:tls';
import { afterwards, Client, freePort, parley, patience, sleep, temporaryFolder, unhurried, until, withinOnce } from './harness.mjs';
import { check } from './schema.mjs';

export const fakeServer = path.join(path.dirname(parley), 'tests/fake_server');
const sanitized = /\/build\/(asan|tsan)\//.test(fakeServer); // whose memory is not the program's
const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

export class Wire {
  /** { args, env, host, tls, wait: false, port, wrap: ['prlimit', ...] } */
  static async start(t, options = {}) {
    const wire = new Wire();
    wire.sanitized = sanitized;
    wire.folder = temporaryFolder(t);
    wire.port = options.port ?? (await freePort());
    wire.host = options.host ?? '127.0.0.1';
    wire.tls = options.tls;
    wire.url = `${wire.tls ? 'https' : 'http'}://${wire.host}:${wire.port}`;
    wire.log = '';
    const [program, ...before] = [...(options.wrap ?? []), fakeServer];
    wire.process = spawn(program, [...before, '--model', 'fake', '--db', ':memory:', '--port', String(wire.port),
      '--host', wire.host, '--hello-timeout', unhurried.PARLEY_HELLO_TIMEOUT, ...(options.args ?? [])], { env: { ...process.env, ...unhurried, ...options.env }, stdio: ['ignore', 'pipe', 'pipe'] });
    running.add(wire.process);
    wire.out = '';
    wire.process.stdout.on('data', (bytes) => { wire.out += bytes; });
    wire.process.stderr.on('data', (bytes) => { wire.log += bytes; });
    wire.exited = new Promise((resolve) => {
      const ended = (status) => {
        running.delete(wire.process);
        wire.status = status;
        resolve(status);
      };
      wire.process.once('exit', (code, signal) => ended({ code, signal }));
      wire.process.once('error', (error) => ended({ code: null, signal: null, error: error.message })); // no such program
    });
    afterwards(t, () => wire.stop('SIGKILL'));
    if (options.wait !== false)
      await until('the server to be ready', () => {
        if (wire.status) throw new Error(`the server ended: ${JSON.stringify(wire.status)} ${wire.log}`);
        return wire.out.includes('Parley serves');
      });
    return wire;
  }

  async stop(signal = 'SIGTERM') {
    if (!this.status) this.process.kill(signal);
    return this.exited;
  }

  connect(options) { return Client.connect(this, options); }

  socket() {
    return this.tls ? tls.connect({ port: this.port, host: this.host, rejectUnauthorized: false })
      : net.connect({ port: this.port, host: this.host });
  }

  /** Sends raw bytes (a string, or a list of [delayMs, string]); gives { text, closed, ms } after the end, what `until`
   * names, or `wait` ms. */
  raw(request, { wait = patience, until: enough } = {}) {
    return new Promise((resolve) => {
      const begun = Date.now();
      const socket = this.socket();
      let text = '';
      const finish = (closed) => {
        clearTimeout(timer);
        socket.destroy();
        resolve({ text, closed, ms: Date.now() - begun, status: Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]) });
      };
      const timer = setTimeout(() => finish(false), wait);
      socket.on('data', (bytes) => {
        text += bytes.toString('latin1');
        if (enough && text.includes(enough)) finish(false);
      });
      socket.on('error', () => {});
      socket.on('close', () => finish(true));
      (async () => {
        for (const [delay, piece] of typeof request === 'string' ? [[0, request]] : request) {
          await sleep(delay);
          if (socket.destroyed) return;
          socket.write(Buffer.from(piece, 'latin1'));
        }
      })();
    });
  }

  /** GET with further header lines. */
  get(target, headers = [], options) {
    return this.raw(`GET ${target} HTTP/1.1\r\nHost: ${this.host}:${this.port}\r\n${headers.map((h) => `${h}\r\n`).join('')}Connection: close\r\n\r\n`, options);
  }

  /** An upgrade by hand; changes replaces or (null) leaves out header lines. */
  upgrade(changes = {}, target = '/ws') {
    const headers = { Host: `${this.host}:${this.port}`, Upgrade: 'websocket', Connection: 'Upgrade',
      'Sec-WebSocket-Key': randomBytes(16).toString('base64'), 'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Protocol': 'parley.v1', ...changes };
    return `GET ${target} HTTP/1.1\r\n${Object.entries(headers).filter(([, v]) => v !== null).map(([k, v]) => `${k}: ${v}\r\n`).join('')}\r\n`;
  }

  async metric(name) {
    const page = await (await fetch(`${this.url}/metrics`)).text();
    return Number(page.split('\n').find((row) => row.startsWith(`${name} `))?.split(' ').pop());
  }

  /** Seconds of processor time used so far. */
  async cpu() {
    const { readFileSync } = await import('node:fs');
    const fields = readFileSync(`/proc/${this.process.pid}/stat`, 'latin1').split(') ')[1].split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }

  /** Fails where the server uses more than `most` seconds of processor time in each of three windows of `ms`: on a busy
   * machine, work of before may come into the first one. Gives what it used. */
  async rests(ms, most, what) {
    const used = [];
    while (used.length < 3) {
      const before = await this.cpu();
      await sleep(ms);
      used.push((await this.cpu()) - before);
      if (used.at(-1) <= most) return used.at(-1);
    }
    throw new Error(`${what}: ${used.map((s) => s.toFixed(2)).join(', ')} s of processor time in ${ms} ms`);
  }
}

/** A client frame. */
export function frame(payload, { opcode = 1, fin = true, rsv = 0, mask = true, length } = {}) {
  const body = Buffer.from(payload);
  const n = length ?? body.length;
  const head = [(fin ? 0x80 : 0) | (rsv << 4) | opcode];
  const bit = mask ? 0x80 : 0;
  if (n < 126) head.push(bit | n);
  else if (n < 65536) head.push(bit | 126, n >> 8, n & 255);
  else {
    const long = Buffer.alloc(8);
    long.writeBigUInt64BE(BigInt(n));
    head.push(bit | 127, ...long);
  }
  if (!mask) return Buffer.concat([Buffer.from(head), body]);
  const key = randomBytes(4);
  return Buffer.concat([Buffer.from(head), key, body.map((byte, i) => byte ^ key[i % 4])]);
}

/** A WebSocket by hand: messages and the close frame arrive in lists; masks nothing and checks nothing. */
export class RawSocket {
  static async open(wire, changes) {
    const self = new RawSocket();
    self.frames = [];
    self.bytes = Buffer.alloc(0);
    self.socket = wire.socket();
    self.socket.on('error', () => {});
    self.ended = new Promise((resolve) => self.socket.on('close', () => { self.closed = true; resolve(); }));
    self.socket.write(wire.upgrade(changes));
    let head = Buffer.alloc(0);
    await new Promise((resolve) => {
      const onData = (bytes) => {
        head = Buffer.concat([head, bytes]);
        const end = head.indexOf('\r\n\r\n');
        if (end < 0) return;
        self.socket.off('data', onData);
        self.head = head.subarray(0, end).toString();
        self.socket.on('data', (more) => self.take(more));
        self.take(head.subarray(end + 4));
        resolve();
      };
      self.socket.on('data', onData);
      self.socket.on('close', resolve);
    });
    return self;
  }

  take(more) {
    this.bytes = Buffer.concat([this.bytes, more]);
    for (;;) {
      if (this.bytes.length < 2) return;
      let n = this.bytes[1] & 127;
      let at = 2;
      if (n === 126) { if (this.bytes.length < 4) return; n = this.bytes.readUInt16BE(2); at = 4; }
      else if (n === 127) { if (this.bytes.length < 10) return; n = Number(this.bytes.readBigUInt64BE(2)); at = 10; }
      if (this.bytes.length < at + n) return;
      this.frames.push({ fin: this.bytes[0] >> 7, opcode: this.bytes[0] & 15, payload: this.bytes.subarray(at, at + n) });
      this.bytes = this.bytes.subarray(at + n);
    }
  }

  send(payload, options) { this.socket.write(frame(payload, options)); }
  get closeCode() {
    const close = this.frames.find((f) => f.opcode === 8);
    return close && (close.payload.length >= 2 ? close.payload.readUInt16BE(0) : 1005);
  }
  messages() {
    const whole = this.frames.filter((f) => f.opcode === 1 && f.fin);
    for (const f of whole) {
      if (f.message) continue;
      f.message = JSON.parse(f.payload.toString());
      check('server', f.message);
    }
    return whole.map((f) => f.message);
  }
  async message(fits, what = 'a message') { return until(what, () => this.messages().find(fits)); }
  /** The close code; answers the close frame. undefined when the socket just went. */
  async close() {
    await until('the end of the connection', () => this.closed || this.closeCode !== undefined);
    if (!this.closed) this.socket.end(frame(Buffer.alloc(0), { opcode: 8 }));
    return this.closeCode;
  }
}

export const acceptKey = (key) => createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
export { until, freePort, sleep, temporaryFolder, withinOnce };
