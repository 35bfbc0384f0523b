// Runs suites of tests and ends with `N passed, N failed` (and `, N skipped`). Logs stay in BUILD/test-logs.
const USAGE = `usage: tests/run.sh [OPTION ...] BUILD SUITE ... [BUILD SUITE ...]
suites: unit ops golden walk layers e2e hostile page clients torture corpora fuzz threads e2e-threads cuda sanitize
  --quick        leave out what the table tests/run/long names, and each longTest
  --long         only those
  --part I/N     the Ith of N parts that take equally long (0 is the first)
  --turns I/N    all that --quick runs, and of the rest the Ith of N parts
  --of FOLDER    only what a change of FOLDER can break (tests/run/touches), the shortest first
  --only NAMES   only programs of these names: unit/ring,e2e/cli or page/*
  --first        stop at the first failure
  --list         print the programs and run none
  --verbose      a line for each program, not only for those that fail
  --times        the programs with most processor time at the end
  --costs FILE   keep what each program took in FILE, a table as tests/run/costs
TEST_JOBS=N      processors to fill (all); 1 runs a single program at a time
TEST_AGAIN=N     up to N programs that failed beside others run once more alone, and the end names them: those that
                 wait for others, and those in tests/unsteady; none with a sanitizer's report
TEST_PATIENCE=60 seconds without output and processor time, after which a program hangs
TEST_TIMEOUT=N   seconds of any program at most, instead of five times its row in tests/run/costs (60 at least; 1200 for
                 a program without a row; more with a sanitizer), all without what it waited for a processor
`;
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, chmodSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { inGroups, outcomes } from './groups.mjs';
import { HangWatch } from './hang.mjs';
import { equalParts, install, named, Suites, SUITES, table, top } from './programs.mjs';
import { Report } from './report.mjs';
import { resultOf, sanitizerReport } from './results.mjs';
import { runAll } from './schedule.mjs';
import { touchedBy } from './touches.mjs';

process.chdir(top);

function usage(why) {
  process.stderr.write(`tests/run.sh: ${why}\n${USAGE}`);
  process.exit(2);
}

function optionsOf(args) {
  const options = { builds: [] }, values = ['part', 'turns', 'of', 'only', 'costs'], flags = ['quick', 'long', 'first', 'list', 'verbose', 'times'];
  for (let i = 0; i < args.length; i++) {
    const name = args[i].startsWith('--') ? args[i].slice(2) : null;
    if (name === 'help') {
      process.stdout.write(USAGE);
      process.exit(0);
    }
    if (flags.includes(name)) options[name] = true;
    else if (values.includes(name) && args[i + 1] !== undefined) options[name] = args[++i];
    else if (name !== null) usage(`${args[i]}: no such option, or no value behind it`);
    else if (args[i].includes('/')) options.builds.push({ build: args[i], suites: [] });
    else if (!SUITES.includes(args[i])) usage(`unknown suite: ${args[i]}`);
    else if (!options.builds.length) usage('name the build first, build/release say');
    else options.builds.at(-1).suites.push(args[i]);
  }
  if (!options.builds.some(({ suites }) => suites.length)) usage('no suite');
  for (const name of ['part', 'turns'].filter((each) => options[each] !== undefined)) {
    const [, i, n] = /^(\d+)\/([1-9]\d*)$/.exec(options[name]) ?? usage(`--${name} ${options[name]}: it is I/N`);
    if (Number(i) >= Number(n)) usage(`--${name} ${options[name]}: parts count from 0`);
    options[name] = { i: Number(i), n: Number(n) };
  }
  return options;
}

/** The programs to run, the longest first, and [program, reason] of those that this machine cannot run. */
function chosen(options, jobs) {
  const programs = [], skipped = [], suitesSeen = [];
  for (const { build, suites } of options.builds) {
    mkdirSync(`${build}/test-logs`, { recursive: true });
    const found = new Suites(build, jobs);
    for (const suite of suites) found[suite]();
    programs.push(...found.programs);
    skipped.push(...found.skipped);
    suitesSeen.push(found);
  }
  const long = table('long').map(([name]) => name);
  const touched = options.of ? touchedBy(options.of) : () => true;
  const only = options.only?.split(',');
  const wanted = (name) => (!options.quick || !named(long, name)) && (!options.long || named(long, name)) && touched(name.replace(/-long$/, '')) && (!only || named(only, name));
  let some = programs.filter(({ name }) => wanted(name)).sort((a, b) => b.seconds - a.seconds || (a.name < b.name ? -1 : 1));
  if (options.part) some = equalParts(some, options.part.n)[options.part.i];
  if (options.turns) {
    const turn = equalParts(some.filter(({ name }) => named(long, name)), options.turns.n)[options.turns.i];
    some = some.filter((program) => !named(long, program.name) || turn.includes(program));
  }
  if (options.of) some.reverse();
  return { programs: some, skipped: skipped.filter(([name]) => wanted(name)), jobs: Math.min(...suitesSeen.map((found) => found.jobs)) };
}

/**
 * The tests make hundreds of databases and model folders. In memory, if there is enough, syncing them costs nothing.
 * Tests of failing disks and power cuts simulate the disk themselves.
 */
function memoryFolder() {
  try {
    const free = spawnSync('df', ['--output=avail', '-k', '/dev/shm'], { encoding: 'utf8' }).stdout?.trim().split('\n').at(-1);
    if (process.env.TMPDIR || !(Number(free) > 4 << 20)) return null;
    const folder = mkdtempSync('/dev/shm/parley-tests-');
    chmodSync(folder, 0o1777); // as /tmp is
    return folder;
  } catch {
    return null;
  }
}

/** Removes folders of tests. A program that was ended at its limit leaves a small disk mounted there, and what is left over
 * is no result of a test. */
function removeFolders(folders) {
  for (const folder of folders) {
    const mounts = existsSync('/proc/mounts') ? readFileSync('/proc/mounts', 'utf8').split('\n').map((line) => line.split(' ')[1]) : [];
    for (const mount of mounts.filter((at) => at?.startsWith(`${folder}/`))) spawnSync('umount', ['-l', mount]);
    try {
      rmSync(folder, { recursive: true, force: true });
    } catch (error) {
      process.stderr.write(`${folder} is left over: ${error.message}\n`);
    }
  }
}

function keepCosts(file, results) {
  const before = new Map(existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter((line) => line && !line.startsWith('#')).map((line) => [line.split(/\s+/)[0], line]) : []);
  for (const [name, { own, cpu }] of results) {
    const seconds = Math.max(own, 0.1), weight = Math.min(4, Math.max(0.1, cpu / seconds));
    before.set(name, `${name.padEnd(40)} ${seconds.toFixed(1).padStart(6)} ${weight.toFixed(2)}`);
  }
  const comment = '# Program, seconds from its start to its end without those that it waited for a processor, processors that it keeps busy:\n' +
    '# for the schedule, the estimate of what is left and the limits. A program without a row counts as 8 s. Written by\n' +
    '# tests/run.sh --costs tests/run/costs build/release unit ...; what else the machine does changes little.\n';
  writeFileSync(file, `${comment}${[...before].filter(([name]) => !name.startsWith('corpus/')).sort(([a], [b]) => (a < b ? -1 : 1)).map(([, line]) => line).join('\n')}\n`);
}

async function main() {
  const options = optionsOf(process.argv.slice(2));
  const scratch = mkdtempSync(path.join(os.tmpdir(), 'parley-run-')), memory = memoryFolder();
  process.env.TEST_SCRATCH = scratch;
  if (memory) process.env.TMPDIR = memory;
  // AddressSanitizer's quarantine of freed memory and its depth of stacks: the defaults, 256 MB and 30, are too much for
  // a dozen programs at once.
  process.env.ASAN_OPTIONS ??= 'quarantine_size_mb=32:malloc_context_size=12';
  // UndefinedBehaviorSanitizer's reports name where they are.
  process.env.UBSAN_OPTIONS ??= 'print_stacktrace=1';
  const { programs: single, skipped, jobs } = chosen(options, Number(process.env.TEST_JOBS ?? os.cpus().length));
  const unsteady = existsSync('tests/unsteady') ? readFileSync('tests/unsteady', 'utf8').split('\n').filter((line) => line && !line.startsWith('#')).map((line) => line.split(/\s+/)[0]) : [];
  // Groups are for whole runs of release: who names programs, measures them or looks for the first failure wants them apart.
  const apart = options.only || options.of || options.costs || options.first || options.list || jobs === 1;
  const programs = apart ? single : inGroups(single, [...unsteady, ...table('alone').map(([name]) => name)]);
  const report = new Report({ jobs, verbose: options.verbose || options.times || programs.length < 20 });
  const clean = () => removeFolders([scratch, memory].filter(Boolean));
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
    process.on(signal, () => {
      for (const { pid } of report.state.running.keys()) HangWatch.kill(pid);
      clean();
      process.exit(130);
    });
  if (options.list) {
    for (const { name, seconds, weight } of programs) process.stdout.write(`${name.padEnd(40)} ${seconds.toFixed(1).padStart(6)} s x ${weight}\n`);
    clean();
    return 0;
  }

  install(single);
  const results = new Map(), left = { again: Number(process.env.TEST_AGAIN ?? 0) };
  const ended = (program, result) => {
    results.set(program.name, result);
    if (program.members) {
      const { done, left: notBegun } = outcomes(program, result);
      for (const each of done) judge(...each);
      report.state.pending.push(...notBegun);
    } else judge(program, result, resultOf(program.kind, program.log, result.status));
  };
  const judge = (program, result, tests) => {
    const mayRunAgain = program.waits || unsteady.includes(program.name);
    if (tests.failed && left.again > 0 && mayRunAgain && !sanitizerReport(program.log)) {
      left.again--;
      report.runsAgain(program, result);
    } else report.count(program, result, tests);
  };
  for (const [name, reason] of skipped) report.skip(name, 1, reason);
  const stop = () => Boolean(options.first && report.failed);
  await runAll(programs, { jobs, scratch, ended, stop, state: report.state });
  left.again = 0;
  for (const once of report.again) {
    const before = report.failed;
    once.program.hung = undefined;
    await runAll([once.program], { jobs: 1, scratch, ended, stop, state: report.state });
    once.passed = report.failed === before;
  }
  if (options.costs) keepCosts(options.costs, results);
  if (options.times) {
    const rows = [...results].sort(([, a], [, b]) => b.cpu - a.cpu);
    report.line('  processor time in seconds, most first');
    for (const [name, { cpu, seconds }] of rows.slice(0, 25)) report.line(`  ${cpu.toFixed(1).padStart(9)}  ${name} (${seconds.toFixed(1)} s)`);
    report.line(`  ${rows.reduce((sum, [, { cpu }]) => sum + cpu, 0).toFixed(1).padStart(9)}  all`);
  }
  report.end();
  clean();
  return report.failed || !report.passed ? 1 : 0;
}

const status = await main();
await new Promise((done) => process.stdout.write('', done)); // a socket that is read late holds a few hundred short lines
process.exit(status);
