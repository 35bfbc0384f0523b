// How far a streamed chat completion walks through the sources: the files whose functions run, and the functions that return,
// from its first byte to its submission to the engine; and between two of its tokens. Every function of sessions and ws on
// every thread counts, also those that the compiler would inline. README.md says how to build the program.
// usage: PARLEY=build/walk/parley node tests/bench/walk.mjs [FILE]     (FILE: gets the steps)
import { execFileSync } from 'node:child_process';
import { closeSync, fstatSync, ftruncateSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parley, root, Server } from '../e2e/harness.mjs';

const STEP_BYTES = 16, MAX = 1 << 20, TOKENS = 24, ROUNDS = 3; // WALK_MAX of walk.c
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const folder = mkdtempSync(path.join(os.tmpdir(), 'parley-walk-'));
const file = openSync(path.join(folder, 'walk'), 'w+');
ftruncateSync(file, 16 + MAX * STEP_BYTES);
execFileSync('gcc', ['-O2', '-shared', '-fPIC', '-o', path.join(folder, 'walk.so'), path.join(root, 'tests/bench/walk.c')]);

const word = (value) => { const b = Buffer.alloc(8); b.writeBigUInt64LE(BigInt(value)); return b; };
const record = (on) => { if (on) writeSync(file, word(0), 0, 8, 8); writeSync(file, word(on), 0, 8, 0); };

const names = new Map(); // address -> {name, source}
function resolve(addresses) {
  const asked = [...new Set(addresses)].filter((a) => !names.has(a));
  const lines = execFileSync('addr2line', ['-f', '-e', parley], { input: asked.map((a) => `0x${a.toString(16)}`).join('\n'), maxBuffer: 1 << 28 }).toString().split('\n');
  asked.forEach((a, i) => names.set(a, { name: lines[2 * i], source: lines[2 * i + 1].replace(/^(\.\/)+/, '').replace(/:.*/, '') }));
}

/** [{name, source, thread, leaves}] since record(true). */
function steps() {
  const head = Buffer.alloc(8);
  readSync(file, head, 0, 8, 8);
  const n = Math.min(MAX, Number(head.readBigUInt64LE()), (fstatSync(file).size - 16) / STEP_BYTES), all = Buffer.alloc(n * STEP_BYTES);
  readSync(file, all, 0, all.length, 16);
  const raw = Array.from({ length: n }, (_, i) => ({ at: Number(all.readBigUInt64LE(i * STEP_BYTES)), thread: all.readUInt32LE(i * STEP_BYTES + 8), leaves: all.readUInt32LE(i * STEP_BYTES + 12) === 1 }));
  resolve(raw.map((s) => s.at));
  return raw.map((s) => ({ ...s, ...names.get(s.at) }));
}

/** Files and returns of a walk in sessions and ws. The engine's files have inline functions of base's headers too. */
function count(walk) {
  const own = walk.filter((s) => /^(sessions|ws)\//.test(s.source));
  return { files: new Set(own.map((s) => s.source)).size, returns: own.filter((s) => s.leaves).length };
}
const by = (key) => (a, b) => a[key] - b[key];
const show = ({ files, returns }) => `${files} files, ${returns} returns`;

const server = await Server.start(null, { env: { LD_PRELOAD: path.join(folder, 'walk.so'), WALK_FILE: path.join(folder, 'walk') } });
try {
  const ways = [], tokens = [];
  for (let round = 0; round < ROUNDS; round++) {
    const body = JSON.stringify({ model: 'demo-model', stream: true, max_tokens: TOKENS, messages: [{ role: 'user', content: `Hello ${round}.` }] });
    await pause(500); // the server rests
    record(1);
    await (await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })).text();
    record(0);
    const all = steps();
    const submitted = all.findIndex((s) => s.name === 'submit_to' && !s.leaves);
    if (submitted < 0) throw new Error('no turn reached an engine: is this the program of README.md?');
    ways.push(count(all.slice(0, submitted)));
    const drawn = all.flatMap((s, i) => (s.name === 'take_token' && !s.leaves ? [i] : []));
    drawn.slice(1).forEach((at, i) => tokens.push(count(all.slice(drawn[i], at))));
    if (process.argv[2]) writeFileSync(process.argv[2], all.map((s) => `${s.leaves ? '<' : '>'} ${s.thread} ${s.name} ${s.source}\n`).join(''));
  }
  console.log(`to the engine: ${show(ways.sort(by('returns'))[0])} (the shortest of ${ROUNDS})`);
  console.log(`between two tokens: ${show(tokens.sort(by('files'))[tokens.length >> 1])} (the median of ${tokens.length})`);
} finally {
  await server.stop();
  closeSync(file);
  rmSync(folder, { recursive: true });
}
