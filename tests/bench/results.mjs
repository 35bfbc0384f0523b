// Figures as JSON, with the machine and the date: results/NAME.json. RESULTS.md describes them, plots.mjs draws them.
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = path.join(path.dirname(fileURLToPath(import.meta.url)), 'results');

export const read = (name) => JSON.parse(readFileSync(path.join(folder, `${name}.json`), 'utf8'));

/** The program's version, and the commit where the sources are a git checkout. */
function buildOf(parley) {
  const first = (program, args) => execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], cwd: folder }).split('\n')[0];
  const version = first(path.resolve(parley), ['--version']);
  try {
    return `${version}, ${first('git', ['rev-parse', '--short', 'HEAD'])}`;
  } catch {
    return version;
  }
}

/** figures: { source, ... }; the rest is added here. */
export function save(name, parley, figures) {
  const build = buildOf(parley);
  const machine = `${os.cpus()[0].model.trim()}, ${os.cpus().length} cores`;
  const context = { date: new Date().toISOString().slice(0, 10), machine, build, load: Number(os.loadavg()[0].toFixed(1)) };
  const file = path.join(folder, `${name}.json`);
  writeFileSync(file, `${JSON.stringify({ ...context, ...figures }, null, 1)}\n`);
  console.error(`written: ${file}`);
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}
