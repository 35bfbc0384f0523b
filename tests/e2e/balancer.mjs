// Several servers behind HAProxy, with the configuration that we ship.
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { afterwards, freePort, root, Server, temporaryFolder, unlimited, until } from './harness.mjs';

/** Why these tests cannot run here, or false. */
export const withoutHaproxy = spawnSync('haproxy', ['-v']).error ? 'HAProxy is not installed (apt install haproxy)' : false;

const owners = Array.from({ length: 12 }, (_, i) => `owner${i}`);
export const tokenOf = (owner) => `${owner}-0123456789abcdef0123456789abcdef`;

/** CRC-32 of the token modulo 64, as PROTOCOL.md has it. */
export function affinity(token) {
  let crc = ~0;
  for (const byte of Buffer.from(token)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (~crc >>> 0) % 64;
}

export class Cluster {
  /** Servers a, b and c with twelve owners; `edit` changes the configuration. */
  static async start(t, edit = (config) => config) {
    const c = new Cluster();
    c.t = t;
    c.owners = owners;
    c.folder = temporaryFolder(t);
    c.tokens = path.join(c.folder, 'tokens');
    writeFileSync(c.tokens, owners.map((owner) => `${owner}:${tokenOf(owner)}\n`).join(''), { mode: 0o600 });
    const started = await Promise.all(['a', 'b', 'c'].map((name) => c.server(name)));
    c.servers = Object.fromEntries(started.map((server) => [server.name, server]));
    c.port = await freePort();
    c.url = `http://127.0.0.1:${c.port}`;
    c.socket = path.join(c.folder, 'haproxy.sock');
    let text = readFileSync(path.join(root, 'configs/haproxy.cfg'), 'utf8')
      .replace('bind :8080', `bind 127.0.0.1:${c.port}`).replace('/run/haproxy/admin.sock', c.socket)
      .replace(/maxconn \d+/, 'maxconn 1000');
    for (const { name, port } of started) text = text.replace(new RegExp(`server ${name} [0-9.:]+`), `server ${name} 127.0.0.1:${port}`);
    const config = path.join(c.folder, 'haproxy.cfg');
    writeFileSync(config, edit(text));
    c.log = '';
    c.process = spawn('haproxy', ['-db', '-f', config], { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [c.process.stdout, c.process.stderr]) stream.on('data', (bytes) => { c.log += bytes; });
    const ended = new Promise((resolve) => c.process.once('exit', (code) => resolve((c.status = { code }))));
    afterwards(t, () => { c.process.kill('SIGKILL'); return ended; });
    await c.up('a', 'b', 'c');
    return c;
  }

  /** Another process that serves the sessions of a name. */
  async server(name, { args = [], ...options } = {}) {
    const server = await Server.start(this.t, {
      ...options, args: [...unlimited, '--server-name', name, '--token-file', this.tokens, '--threads', '1', ...args],
    });
    server.name = name;
    return server;
  }

  /** A command of HAProxy's socket. */
  say(command) {
    return new Promise((resolve, reject) => {
      let answer = '';
      const socket = net.connect(this.socket, () => socket.end(`${command}\n`));
      socket.on('data', (bytes) => { answer += bytes; }).on('end', () => resolve(answer)).on('error', reject);
    });
  }

  async state(name) {
    if (this.status) throw new Error(`HAProxy ended: ${this.log}`);
    const rows = (await this.say('show stat').catch(() => '')).split('\n').map((row) => row.split(','));
    return rows.find((row) => row[0] === 'parley' && row[1] === name)?.[17];
  }
  async is(name, wanted) { await until(`${name} to be ${wanted}`, async () => (await this.state(name)) === wanted); }
  async up(...names) { for (const name of names) await this.is(name, 'UP'); }
}
