// The server's own figures, as a Markdown table and as results/server.json. README.md says how each is measured.
// usage: PARLEY=build/release/parley node server.mjs MODEL_DIR ...
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import WebSocket from '../e2e/node_modules/ws/wrapper.mjs';
import { Client, Server, parley, until } from '../e2e/harness.mjs';
import { save } from './results.mjs';

const STREAMS = 64, STREAM_TOKENS = 256, IDLE = 1000, IDLE_SECONDS = 10;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const start = (model, ...args) => Server.start(null, { model, args: ['--max-connections-per-ip', '4000', ...args] });
const rows = [], figures = [];
const say = (figure, got, reach) => {
  figures.push({ figure, measured: got, goal: reach });
  rows.push(`| ${figure} | ${got} | ${reach} |`);
  console.error(`${figure}: ${got} (load ${os.loadavg()[0].toFixed(1)})`);
};
const ms = (seconds) => `${(seconds * 1000).toFixed(seconds < 0.01 ? 2 : 0)} ms`;
const mb = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

// --- what the kernel says about a process -----------------------------------------------------------------------

/** Bytes by the names of /proc/PID/status: VmRSS, RssAnon, RssFile. */
const memory = (pid, key = 'VmRSS') => 1024 * Number(new RegExp(`^${key}:\\s+(\\d+)`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
const ticks = Number(execFileSync('getconf', ['CLK_TCK'], { encoding: 'utf8' }));
/** Seconds of processor time, user and system, all threads. */
function processorTime(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / ticks;
}

/** Forgets what the page cache holds of the program and the model. As root everything; else these files, by advice. */
function dropPageCache(model) {
  try {
    execFileSync('sync');
    writeFileSync('/proc/sys/vm/drop_caches', '3');
  } catch {
    for (const file of [parley, ...readdirSync(model).map((name) => path.join(model, name))])
      execFileSync('dd', [`if=${file}`, 'iflag=nocache', 'count=0'], { stdio: 'ignore' });
  }
}

// --- latency ----------------------------------------------------------------------------------------------------

/** [[bound, count of observations at or below it], ...] of a histogram on /metrics. */
async function buckets(server, name) {
  const page = await (await fetch(`${server.url}/metrics`)).text();
  return [...page.matchAll(new RegExp(`^${name}_bucket\\{le="([^"]+)"\\} (\\d+)`, 'gm'))].map(([, bound, count]) => [Number(bound.replace('+Inf', 'Infinity')), Number(count)]);
}
/** A histogram gives a quantile as the bound under which it lies. */
function quantile(histogram, q) {
  const all = histogram.at(-1)[1];
  return histogram.find(([, count]) => count >= q * all)[0];
}
const quantileOf = (values, q) => values.sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))];

async function streaming(model) {
  const server = await start(model, '--max-sequences', String(STREAMS), '--max-queued-turns', String(STREAMS));
  const clients = [], sessions = [];
  for (let i = 0; i < STREAMS; i++) {
    clients.push(await Client.connect(server));
    sessions.push(await clients[i].open());
  }
  const deltas = [], over = [];
  clients.forEach((client) => {
    // From here on nothing is parsed: the client must not be what is measured.
    client.socket.removeAllListeners('message');
    const mine = []; // times of the deltas
    deltas.push(mine);
    over.push(new Promise((resolve) => client.socket.on('message', (bytes) => {
      if (bytes.includes('"turn.delta"')) mine.push(performance.now());
      else if (bytes.includes('"turn.done"')) resolve(JSON.parse(bytes));
    })));
  });
  const before = await buckets(server, 'parley_token_to_socket_seconds');
  const began = performance.now();
  clients.forEach((client, i) => client.send({
    type: 'turn.start', session: sessions[i], input: { ids: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10 + i] },
    sampling: { max_tokens: STREAM_TOKENS, ignore_eos: true, temperature: 0.7 },
  }));
  const done = await Promise.all(over);
  const seconds = (performance.now() - began) / 1000;
  const after = await buckets(server, 'parley_token_to_socket_seconds');
  const histogram = after.map(([bound, count], i) => [bound, count - before[i][1]]);
  const gaps = deltas.flatMap((times) => times.slice(1).map((time, i) => time - times[i]));
  // The wait for the first token beyond the time that the server reports, which begins when the turn is accepted: both
  // ways through the server and this client.
  const beyond = done.map((frame, i) => deltas[i][0] - began - frame.timings.first_token_ms);
  say(`token to socket, ${STREAMS} sessions streaming ${STREAM_TOKENS}, p50 / p99`,
    `≤ ${ms(quantile(histogram, 0.5))} / ≤ ${ms(quantile(histogram, 0.99))} of ${histogram.at(-1)[1]} (by the server's histogram)`, 'p99 ≤ 1 ms');
  say('the same at the client: gap between tokens, p50 / p99', `${quantileOf(gaps, 0.5).toFixed(1)} / ${quantileOf(gaps, 0.99).toFixed(1)} ms; `
    + `first token ${quantileOf(beyond, 0.5).toFixed(1)} ms (p50) beyond the reported time; ${Math.round(STREAMS * STREAM_TOKENS / seconds)} tokens/s in all`, '');
  clients.forEach((client) => client.terminate());
  await server.stop();
}

// --- idle connections -------------------------------------------------------------------------------------------

async function idle(model) {
  const server = await start(model), pid = server.process.pid;
  const warm = await Client.connect(server); // what one connection allocates once is no connection's cost
  await warm.turn(await warm.open(), 'hi', { sampling: { max_tokens: 8 } });
  const sockets = [];
  const before = memory(pid);
  for (let at = 0; at < IDLE; at += 50) {
    await Promise.all(Array.from({ length: 50 }, () => new Promise((resolve, reject) => {
      const socket = new WebSocket(`ws://127.0.0.1:${server.port}/ws`, ['parley.v1'], { headers: { Origin: server.url } });
      sockets.push(socket);
      let opened = false;
      socket.once('error', reject);
      // The first message is the server's hello; then each opens a session, as a page does, and says no more.
      socket.on('message', () => {
        if (opened) return resolve();
        opened = true;
        socket.send('{"type":"session.open"}');
      });
    })));
  }
  await pause(2000);
  const after = memory(pid), cpu = processorTime(pid);
  await pause(IDLE_SECONDS * 1000);
  const used = processorTime(pid) - cpu;
  say(`${IDLE} idle connections with a session each: memory per connection`, `${((after - before) / IDLE / 1000).toFixed(1)} kB`, '< 20 kB');
  say(`the same: processor time over ${IDLE_SECONDS} s`, `${used.toFixed(2)} s (${(100 * used / IDLE_SECONDS).toFixed(1)} %)`, 'none');
  sockets.forEach((socket) => socket.terminate());
  await warm.close();
  await server.stop();
}

// --- starting, the page ----------------------------------------------------------------------------------------

const get = (url, headers = {}) => new Promise((resolve, reject) => {
  http.get(url, { headers }, (answer) => {
    const parts = [];
    answer.on('data', (part) => parts.push(part)).on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts) }));
  }).on('error', reject);
});

/** Seconds from the process's start to its first whole page. */
async function firstPage(model, folder) {
  const began = performance.now();
  const server = await Server.start(null, { model, db: path.join(folder, 'parley.db'), wait: false });
  await until('the first page', async () => (await get(`${server.url}/`).catch(() => null))?.status === 200, 60000);
  const seconds = (performance.now() - began) / 1000;
  await server.ready(); // no sooner may it be asked to end
  await server.stop();
  return seconds;
}

async function starting(model, name) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'parley-bench-'));
  dropPageCache(model);
  say(`${name}: process start to first page, nothing in the page cache`, `${(await firstPage(model, folder)).toFixed(2)} s`, '< 2 s');
  say(`${name}: second start`, `${(await firstPage(model, folder)).toFixed(2)} s`, '< 2 s');
  rmSync(folder, { recursive: true });
}

async function pageWeight(model) {
  const server = await start(model);
  const compressed = { 'Accept-Encoding': 'gzip' };
  const page = await get(`${server.url}/`, compressed);
  const html = await (await fetch(`${server.url}/`)).text();
  const assets = [...html.matchAll(/<(?:script|link)\b[^>]*?(?:src|href)="([^"]+)"/g)].map(([, url]) => url);
  let total = page.body.length;
  for (const url of assets) total += (await get(new URL(url, `${server.url}/`), compressed)).body.length;
  say('the page with its scripts, styles and icon, compressed', `${(total / 1000).toFixed(1)} kB`, '< 120 kB');
  await server.stop();
}

// --- memory of the whole ---------------------------------------------------------------------------------------

async function resident(model, name) {
  const server = await start(model), pid = server.process.pid;
  const client = await Client.connect(server);
  const { n_blocks: blocks, block_bytes: bytes } = Object.fromEntries([...server.log.matchAll(/\b(blocks|block_bytes)=(\d+)/g)].map(([, key, n]) => [key === 'blocks' ? 'n_blocks' : key, Number(n)]));
  const session = await client.open();
  await client.turn(session, { ids: Array.from({ length: 256 }, (_, i) => i + 5) }, { sampling: { max_tokens: 64, ignore_eos: true } });
  const weights = JSON.parse(execFileSync(parley, ['bench', '--model', model, '--prompt-tokens', '1', '--decode-tokens', '2', '--sequences', '1', '--repeat', '1', '--json'],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })).weight_bytes;
  const usage = await server.metric('parley_engine_kv_cache_usage_ratio');
  const cache = blocks * bytes, got = memory(pid);
  say(`${name}: resident memory of serve after a turn`, `${mb(got)} (${mb(memory(pid, 'RssFile'))} of it files); weights ${mb(weights)}, cache ${mb(cache * usage)} in use of ${mb(cache)}; `
    + `${mb(got - weights - cache * usage)} over weights and cache in use`, '≤ 100 MB over');
  await client.close();
  await server.stop();
}

// --- all of it --------------------------------------------------------------------------------------------------

const models = process.argv.slice(2);
if (!models.length) {
  console.error('usage: PARLEY=build/release/parley node server.mjs MODEL_DIR ...');
  process.exit(2);
}
await streaming(models[0]);
await idle(models[0]);
await pageWeight(models[0]);
for (const model of models) {
  const name = path.basename(path.resolve(model));
  await starting(model, name);
  await resident(model, name);
}
console.log(`| figure of the server | measured | reach |\n|---|---|---|\n${rows.join('\n')}`);
console.log(`\nLoad at the end ${os.loadavg()[0].toFixed(1)}. The client runs on the same cores.`);
save('server', parley, { source: 'make bench', figures });
process.exit(0);
