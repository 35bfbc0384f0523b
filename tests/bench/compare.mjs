// Parley beside llama.cpp on the same weights, in turns: llama.cpp, Parley, llama.cpp, Parley .. so that both meet the
// same machine; also with products of bf16 where the processor has them, and a large model with 8-bit weights. Prints
// Markdown tables of medians and writes results/cpu.json. README.md says how each figure is measured.
// usage: node compare.mjs PARLEY WORK_FOLDER MODEL_DIR ... (BENCH_REPEAT: runs of each engine; default 5, a large model's 3)
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { convert } from './gguf.mjs';
import { median, save } from './results.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const FIGURES = ['prefill', 'decode', 'together'];
const title = (key, decode) => ({ prefill: 'prefill of 512', decode: `decode of ${decode}`, together: 'eight sessions together' })[key];
// Goals, in multiples of llama.cpp. With weights larger than the caches decode is bound by memory alone.
const IN_CACHE = { prefill: 1.2, decode: 1.5, together: 3 }, IN_MEMORY = { prefill: 1.2, decode: 1.1, together: 1.2 };
const LARGE_BYTES = 512e6;
const INT8_DECODE = 1.6; // times bf16's

const json = (program, args) => JSON.parse(execFileSync(program, args, { encoding: 'utf8', stdio: 'pipe' }));
const rival = (kind, gguf, decode) => json(process.execPath, [path.join(here, 'rival.mjs'), kind, gguf, String(decode)]);
const bytesIn = (folder) => readdirSync(folder).filter((name) => name.endsWith('.safetensors'))
  .reduce((sum, name) => sum + statSync(path.join(folder, name)).size, 0);

function rivals() {
  const kinds = [];
  if (process.env.LLAMA_BENCH && process.env.LLAMA_BATCHED_BENCH) kinds.push('native');
  const npm = existsSync(path.join(here, 'node_modules/node-llama-cpp'));
  if (npm && (!kinds.length || process.env.BENCH_NPM)) kinds.push('npm');
  if (!kinds.length) throw new Error('no llama.cpp to compare with: run.sh installs one, or set LLAMA_BENCH and LLAMA_BATCHED_BENCH');
  return kinds;
}

function parleyRun(parley, folder, decode, weights, compute = 'f32') {
  const out = json(parley, ['bench', '--model', folder, '--device', 'cpu', '--threads', '2', '--repeat', '1',
    '--decode-tokens', String(decode), '--weight-dtype', weights, '--compute-dtype', compute, '--json']);
  return {
    engine: out.backend, weights: out.weight_bytes, share: out.ceiling_share, gbs: out.gb_per_second,
    prefill: out.prefill_tokens_per_second, decode: out.decode_tokens_per_second, together: out.together_tokens_per_second,
  };
}

// llama.cpp rounds activations to bf16 wherever it multiplies with bf16 instructions; Parley does when told to.
function hasBf16Products(parley, folder) {
  try {
    json(parley, ['score', '--model', folder, '--device', 'cpu', '--ids', '1', '--compute-dtype', 'bf16']);
    return true;
  } catch (e) {
    if (/AVX512-BF16 or AMX/.test(e.stderr)) return false;
    throw e;
  }
}

const medians = (runs) => Object.fromEntries(FIGURES.map((key) => [key, median(runs.map((run) => run[key]))]));
const spread = (runs, key) => {
  const values = runs.map((run) => run[key]);
  return `${round(Math.min(...values))}..${round(Math.max(...values))}`;
};
const range = (runs, key) => {
  const values = runs.map((run) => run[key]);
  return Object.fromEntries(Object.entries({ median: median(values), min: Math.min(...values), max: Math.max(...values) })
    .map(([name, x]) => [name, Number(x.toPrecision(4))]));
};
const round = (x) => (x < 100 ? x.toFixed(1) : String(Math.round(x)));

function compare(parley, folder, work) {
  const name = path.basename(path.resolve(folder)), gguf = path.join(work, `${name}.gguf`);
  if (!existsSync(gguf)) convert(folder, gguf);
  // A token of a large model takes a tenth of a second, and all take the same.
  const large = bytesIn(folder) > LARGE_BYTES, decode = large ? 32 : 128, repeat = Number(process.env.BENCH_REPEAT ?? (large ? 3 : 5));
  const runs = { parley: [], int8: [], bf16: [] }, loads = [];
  const kinds = rivals(), bf16 = hasBf16Products(parley, folder);
  for (let i = 0; i < repeat; i++) {
    for (const kind of kinds) (runs[kind] ??= []).push(rival(kind, gguf, decode));
    runs.parley.push(parleyRun(parley, folder, decode, 'model'));
    if (bf16) runs.bf16.push(parleyRun(parley, folder, decode, 'model', 'bf16'));
    if (large) runs.int8.push(parleyRun(parley, folder, decode, 'int8'));
    loads.push(os.loadavg()[0]);
    console.error(`${name} ${i + 1}/${repeat}, load ${loads.at(-1).toFixed(1)}: ${JSON.stringify(Object.values(runs).map((of) => of.at(-1)))}`);
  }
  const ours = medians(runs.parley), reach = large ? IN_MEMORY : IN_CACHE;
  // Of two builds of llama.cpp the better counts.
  const bestKind = (key) => kinds.reduce((a, b) => (medians(runs[b])[key] > medians(runs[a])[key] ? b : a));
  const rows = FIGURES.map((key) => {
    const best = bestKind(key);
    const theirs = medians(runs[best])[key];
    const cells = [runs.parley, runs.bf16].map((of) => (!of.length ? '| | '
      : `| ${round(medians(of)[key])} (${spread(of, key)}) | ${(medians(of)[key] / theirs).toFixed(2)} `));
    return `| ${name}: ${title(key, decode)} | ${round(theirs)} (${spread(runs[best], key)}; ${best}) ${cells.join('')}| ${reach[key]} |`;
  });
  const int8Rows = !large ? [] : FIGURES.map((key) => {
    const int8 = medians(runs.int8)[key];
    return `| ${name}: ${title(key, decode)} | ${round(ours[key])} | ${round(int8)} (${spread(runs.int8, key)}) `
      + `| ${(int8 / ours[key]).toFixed(2)} | ${key === 'decode' ? INT8_DECODE : ''} |`;
  });
  const last = runs.parley.at(-1);
  const note = `${name}: medians of ${repeat}; decode reads ${last.gbs.toFixed(1)} GB/s, ${Math.round(100 * last.share)} % of what memory gives.`;
  const engines = [...kinds.map((kind) => runs[kind][0].engine), `Parley on ${last.engine}`, ...runs.bf16.slice(0, 1).map((run) => `Parley on ${run.engine}`)];
  const ways = (key) => Object.entries({ 'llama.cpp': runs[bestKind(key)], f32: runs.parley, bf16: runs.bf16, int8: runs.int8 })
    .filter(([, some]) => some.length).map(([way, some]) => [way, range(some, key)]);
  const figures = FIGURES.map((key) => ({ name: title(key, decode), ...Object.fromEntries(ways(key)) }));
  return { rows, int8Rows, note, engines, load: Math.max(...loads), model: { model: name, repeat, figures } };
}

const [parley, work, ...folders] = process.argv.slice(2);
if (!folders.length) {
  console.error('usage: node compare.mjs PARLEY WORK_FOLDER MODEL_DIR ...');
  process.exit(2);
}
mkdirSync(work, { recursive: true });
const results = folders.map((folder) => compare(parley, folder, work));
console.log(`${os.cpus()[0].model}, 2 threads, bf16; tokens/s, medians (least..most).`);
console.log(`${results[0].engines.join('; ')}. Load ${Math.max(...results.map((result) => result.load)).toFixed(1)} (2 is these runs alone).\n`);
console.log('Where llama.cpp multiplies in bf16 it rounds activations to that; Parley rounds none in the first of its columns.\n');
console.log('| figure | llama.cpp | Parley, activations in F32 | ratio | Parley, compute_dtype bf16 | ratio | reach |\n|---|---|---|---|---|---|---|');
for (const { rows } of results) console.log(rows.join('\n'));
const int8Rows = results.flatMap((result) => result.int8Rows);
if (int8Rows.length) console.log(`\n| figure | Parley, bf16 | Parley, 8-bit weights | ratio | reach |\n|---|---|---|---|---|\n${int8Rows.join('\n')}`);
console.log(`\n${results.map((result) => result.note).join('\n')}`);
save('cpu', parley, { source: 'make bench', engines: results[0].engines, threads: 2, models: results.map((result) => result.model) });
