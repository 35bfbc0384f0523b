// The model's own weights beside 8-bit ones, in turns, each run a new process, so that both see the same machine.
// One Markdown table of medians and best runs for each model.
// usage: node weights.mjs PARLEY MODEL_DIR ... (BENCH_REPEAT: runs of each, 5 unless said)
import { execFileSync } from 'node:child_process';
import os from 'node:os';

const FIGURES = [['prefill', 'prefill of 512'], ['decode', 'decode of 128'], ['together', 'eight sessions together']];
const repeat = Number(process.env.BENCH_REPEAT ?? 5);
const [parley, ...models] = process.argv.slice(2);
const round = (x) => (x < 100 ? x.toFixed(1) : String(Math.round(x)));

function run(model, weights) {
  const args = ['bench', '--model', model, '--weight-dtype', weights, '--threads', '2', '--repeat', '1', '--json'];
  return JSON.parse(execFileSync(parley, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }));
}
const values = (runs, key) => runs.map((one) => one[`${key}_tokens_per_second`]).sort((a, b) => a - b);
const median = (runs, key) => values(runs, key)[runs.length >> 1];
const best = (runs, key) => values(runs, key).at(-1);

for (const model of models) {
  const runs = { model: [], int8: [], fp8: [] };
  for (let i = 0; i < repeat; i++) {
    for (const weights of Object.keys(runs)) runs[weights].push(run(model, weights));
    console.error(`${model} ${i + 1}/${repeat}, load ${os.loadavg()[0].toFixed(1)}: decode ${Object.values(runs).map((of) => round(of.at(-1).decode_tokens_per_second)).join(', ')}`);
  }
  const own = runs.model[0], gb = (of) => (of[0].weight_bytes / 1e9).toFixed(2);
  console.log(`${own.model} on ${own.backend}; ${own.weight_dtype} weights in ${gb(runs.model)} GB, int8 in ${gb(runs.int8)} GB, fp8 in ${gb(runs.fp8)} GB; medians of ${repeat} (best)\n`);
  console.log(`| tokens/s | ${own.weight_dtype} | int8 | ratio | fp8 | ratio |\n|---|---|---|---|---|---|`);
  for (const [key, title] of FIGURES) {
    const cell = (of) => `${round(median(of, key))} (${round(best(of, key))})`;
    const ratio = (runs8) => `${(median(runs8, key) / median(runs.model, key)).toFixed(2)} (${(best(runs8, key) / best(runs.model, key)).toFixed(2)})`;
    console.log(`| ${title} | ${cell(runs.model)} | ${cell(runs.int8)} | ${ratio(runs.int8)} | ${cell(runs.fp8)} | ${ratio(runs.fp8)} |`);
  }
  console.log();
}
