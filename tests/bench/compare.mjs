// Parley beside llama.cpp on the same weights, run about: llama.cpp, Parley, llama.cpp, Parley .. so that both see the same
// machine. One Markdown table of medians. README.md says how each figure is got.
// usage: node compare.mjs PARLEY WORK_FOLDER MODEL_DIR ... (BENCH_REPEAT: runs of each engine, 5 unless said)
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { convert } from './gguf.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const repeat = Number(process.env.BENCH_REPEAT ?? 5);
const FIGURES = [['prefill', 'prefill of 512'], ['decode', 'decode of 128'], ['together', 'eight sessions together']];
// How many times llama.cpp's figure we mean to reach. Weights that no cache holds make decode a matter of memory alone.
const IN_CACHE = { prefill: 1.2, decode: 1.5, together: 3 }, IN_MEMORY = { prefill: 1.2, decode: 1.1, together: 1.2 };
const LARGE_BYTES = 512e6;

const json = (program, args) => JSON.parse(execFileSync(program, args, { encoding: 'utf8', stdio: 'pipe' }));
const rival = (kind) => (gguf) => json(process.execPath, [path.join(here, 'rival.mjs'), kind, gguf]);

function rivals() {
  const kinds = [];
  if (process.env.LLAMA_BENCH && process.env.LLAMA_BATCHED_BENCH) kinds.push('native');
  if (existsSync(path.join(here, 'node_modules/node-llama-cpp'))) kinds.push('npm');
  if (!kinds.length) throw new Error('no llama.cpp to compare with: run.sh installs one, or set LLAMA_BENCH and LLAMA_BATCHED_BENCH');
  return kinds;
}

function parleyRun(parley, folder) {
  const out = json(parley, ['bench', '--model', folder, '--threads', '2', '--repeat', '1', '--json']);
  return {
    engine: out.backend, weights: out.weight_bytes, share: out.ceiling_share, gbs: out.gb_per_second,
    prefill: out.prefill_tokens_per_second, decode: out.decode_tokens_per_second, together: out.together_tokens_per_second,
  };
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
const medians = (runs) => Object.fromEntries(FIGURES.map(([key]) => [key, median(runs.map((run) => run[key]))]));
const spread = (runs, key) => {
  const values = runs.map((run) => run[key]);
  return `${round(Math.min(...values))}..${round(Math.max(...values))}`;
};
const round = (x) => (x < 100 ? x.toFixed(1) : String(Math.round(x)));

function compare(parley, folder, work) {
  const name = path.basename(path.resolve(folder)), gguf = path.join(work, `${name}.gguf`);
  if (!existsSync(gguf)) convert(folder, gguf);
  const runs = { parley: [] }, loads = [];
  const kinds = rivals();
  for (let i = 0; i < repeat; i++) {
    for (const kind of kinds) (runs[kind] ??= []).push(rival(kind)(gguf));
    runs.parley.push(parleyRun(parley, folder));
    loads.push(os.loadavg()[0]);
    console.error(`${name} ${i + 1}/${repeat}, load ${loads.at(-1).toFixed(1)}: ${JSON.stringify(Object.values(runs).map((of) => of.at(-1)))}`);
  }
  const ours = medians(runs.parley), reach = runs.parley[0].weights > LARGE_BYTES ? IN_MEMORY : IN_CACHE;
  const rows = FIGURES.map(([key, title]) => {
    // Of two builds of llama.cpp the better counts.
    const best = kinds.reduce((a, b) => (medians(runs[b])[key] > medians(runs[a])[key] ? b : a));
    const theirs = medians(runs[best])[key];
    return `| ${name}: ${title} | ${round(theirs)} (${spread(runs[best], key)}; ${best}) | ${round(ours[key])} (${spread(runs.parley, key)}) `
      + `| ${(ours[key] / theirs).toFixed(2)} | ${reach[key]} |`;
  });
  const last = runs.parley.at(-1);
  const note = `${name}: decode reads ${last.gbs.toFixed(1)} GB/s, ${Math.round(100 * last.share)} % of what memory gives.`;
  return { rows, note, engines: [...kinds.map((kind) => runs[kind][0].engine), `Parley on ${last.engine}`], load: Math.max(...loads) };
}

const [parley, work, ...folders] = process.argv.slice(2);
if (!folders.length) {
  console.error('usage: node compare.mjs PARLEY WORK_FOLDER MODEL_DIR ...');
  process.exit(2);
}
mkdirSync(work, { recursive: true });
const results = folders.map((folder) => compare(parley, folder, work));
console.log(`${os.cpus()[0].model}, 2 threads, bf16; tokens/s, medians of ${repeat} (least..most).`);
console.log(`${results[0].engines.join('; ')}. Load ${Math.max(...results.map((result) => result.load)).toFixed(1)} (2 is these runs alone).\n`);
console.log('| figure | llama.cpp | Parley | ratio | reach |\n|---|---|---|---|---|');
for (const { rows } of results) console.log(rows.join('\n'));
console.log(`\n${results.map((result) => result.note).join('\n')}`);
