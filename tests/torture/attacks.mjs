// All attacks of tests/e2e/attacks.mjs in full: a table on the screen, and tests/bench/results/attacks.json for
// RESULTS.md. It prints what was measured and judges nothing; minutes each, on a quiet machine.
// usage: attacks.mjs [NAME...]   (SCALE=0.1: a share of the counts; RESULTS=NAME: another file; ARGS=...: further
// options of the server. Only all of them in full are written.) Exit status 1: a server did not end as it should.
import { attacks, strike } from '../e2e/attacks.mjs';
import { parley } from '../e2e/harness.mjs';
import { save } from '../bench/results.mjs';

const scale = Number(process.env.SCALE ?? 1);
const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(attacks);
const ms = ({ p50, p99 }) => `${p50.toFixed(1)} / ${p99.toFixed(1)}`;
const results = [];
console.log('| attack | first token before, p50 / p99 ms | under attack | ping p50 / p99 ms | search p50 / p99 ms | refused | goal | memory before, peak, after MiB | SIGTERM to the end s |');
console.log('|---|---|---|---|---|---|---|---|---|');
for (const name of names) {
  const cleanups = [];
  try {
    const seen = await strike({ after: (f) => cleanups.push(f) }, name, { scale, seconds: attacks[name].seconds ?? 20, patience: 60, rest: 5000, args: process.env.ARGS?.split(' ') });
    const { quiet, loaded, memory_mib: memory } = seen;
    results.push(seen);
    if (seen.status.code !== 0) process.exitCode = 1;
    console.log(`| ${attacks[name].what} | ${ms(quiet.first_token_ms)} | ${ms(loaded.first_token_ms)}${loaded.stuck ? ' (some never)' : ''} | ${ms(loaded.ping_ms)} | ${ms(loaded.list_ms)} | ${loaded.refused}`
      + ` | ${attacks[name].goal} | ${[memory.before, memory.peak, memory.after].map(Math.round).join(', ')} | ${(seen.stop_ms / 1000).toFixed(1)}${seen.status.code === 0 ? '' : ` (${JSON.stringify(seen.status)})`} |`);
  } catch (error) {
    console.log(`| ${attacks[name].what} | failed: ${error.message.slice(0, 200)} |`);
    process.exitCode = 1;
  } finally {
    for (const clean of cleanups.reverse()) await clean();
  }
}
if (scale === 1 && results.length === Object.keys(attacks).length)
  save(process.env.RESULTS ?? 'attacks', parley, { source: 'make torture: one owner against another, default limits, demo model', attacks: results });
process.exit();
