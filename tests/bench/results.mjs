// What a benchmark measured, as JSON beside the machine and the date: results/NAME.json, which RESULTS.md tells of and
// plots.mjs draws.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = path.join(path.dirname(fileURLToPath(import.meta.url)), 'results');

export const read = (name) => JSON.parse(readFileSync(path.join(folder, `${name}.json`), 'utf8'));

/** figures: { source, ... }; the rest is added here. */
export function save(name, parley, figures) {
  const build = execFileSync(parley, ['--version'], { encoding: 'utf8' }).trim().split('\n')[0];
  const machine = `${os.cpus()[0].model.trim()}, ${os.cpus().length} cores`;
  const context = { date: new Date().toISOString().slice(0, 10), machine, build, load: Number(os.loadavg()[0].toFixed(1)) };
  const file = path.join(folder, `${name}.json`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, `${JSON.stringify({ ...context, ...figures }, null, 1)}\n`);
  console.error(`written: ${file}`);
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
