// See tests/plant. The copy is build/plant: sources, and the objects of build/release, so that a fault costs one file.
// A finder has to pass without the fault first.
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { faults } from './faults.mjs';
import { named, table, top } from './programs.mjs';

const copy = path.join(top, 'build/plant');

function shell(command, cwd = top) {
  const { status, stdout, stderr } = spawnSync('bash', ['-c', command], { cwd, encoding: 'utf8', maxBuffer: 1 << 26 });
  return { good: status === 0, said: `${stdout}${stderr}` };
}

/** Why it cannot be planted, or null. */
function misfit([, file, from]) {
  if (!existsSync(`${top}/${file}`)) return `no ${file}`;
  const times = readFileSync(`${top}/${file}`, 'utf8').split(from).length - 1;
  return times === 1 ? null : `its text occurs ${times} times in ${file}`;
}

/** What make builds for a finder. */
function targetsOf(finder) {
  const [suite, name] = finder.split('/');
  return ['e2e', 'page'].includes(suite) ? 'build/release/parley build/release/tests/fake_server' : `build/release/tests/${suite}/test_${name}`;
}

/** Builds a test of the copy and runs it as `make test` does, with its limits: 'passes', 'fails' or 'does not build'. */
function run(finder) {
  const built = shell(`make -s -j${process.env.TEST_JOBS ?? '$(nproc)'} CUDA=0 ${targetsOf(finder)}`, copy);
  if (!built.good) return `does not build: ${built.said.split('\n').find((line) => /error|Error/.test(line)) ?? ''}`;
  return shell(`tests/run.sh --quick --only ${finder} build/release ${finder.split('/')[0]}`, copy).good ? 'passes' : 'fails';
}

const args = process.argv.slice(2), check = args.includes('--check'), names = args.filter((arg) => arg !== '--check');
const chosen = faults.filter(([name]) => !names.length || names.includes(name));
let misfits = 0, missed = 0;
for (const fault of chosen) {
  const why = misfit(fault);
  if (why) console.log(`  ${fault[0]}: cannot be planted: ${why}`);
  misfits += why ? 1 : 0;
}
if (check || misfits) {
  console.log(`${chosen.length - misfits} of ${chosen.length} faults can be planted`);
  process.exit(misfits ? 1 : 0);
}
rmSync(copy, { recursive: true, force: true });
mkdirSync(copy, { recursive: true });
if (!shell('git ls-files -z | tar -c --null -T - | tar -x -C build/plant').good) throw new Error('the sources cannot be copied');
if (existsSync(`${top}/build/release`)) cpSync(`${top}/build/release`, `${copy}/build/release`, { recursive: true, preserveTimestamps: true });
for (const folder of ['web', 'tests/e2e', 'tests/e2e/page/chromium'].map((each) => `${each}/node_modules`))
  if (existsSync(`${top}/${folder}`)) symlinkSync(`${top}/${folder}`, `${copy}/${folder}`);
const sound = new Map(), long = table('long').map(([name]) => name); // what `make test` leaves out finds nothing
for (const [name, file, from, to, finders] of chosen) {
  let found = null, said = '';
  for (const finder of finders.split(' ').filter((each) => !named(long, each))) {
    if (!sound.has(finder)) sound.set(finder, run(finder));
    if (sound.get(finder) !== 'passes') {
      said += ` (${finder} ${sound.get(finder)} without the fault)`;
      continue;
    }
    const source = readFileSync(`${copy}/${file}`, 'utf8');
    writeFileSync(`${copy}/${file}`, source.replace(from, () => to));
    const outcome = run(finder);
    writeFileSync(`${copy}/${file}`, source);
    if (outcome === 'fails') found = finder;
    else if (outcome !== 'passes') said += ` (${outcome})`;
    if (found) break;
  }
  if (!found) missed++;
  console.log(`  ${name.padEnd(22)} ${file.padEnd(28)} ${found ? `found by ${found}` : `NOT FOUND by ${finders}`}${said}`);
}
console.log(`${chosen.length - missed} of ${chosen.length} planted faults found`);
process.exit(missed ? 1 : 0);
