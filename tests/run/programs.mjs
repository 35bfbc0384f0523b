// The suites: which programs they have and how each is run. A program is
//   { name, kind, command, env, log, waits, weight, seconds, limit, packages }
// kind: how its log is read (results.mjs); waits: it talks to others and has timeouts; weight: the processors that it
// keeps busy; seconds: how long it takes; limit: the seconds of its own (hang.mjs) after which it is ended; packages: folders
// whose packages of npm it imports. Programs are found by their names, so that a new test needs no entry anywhere; the
// tables beside this file only say what is known of some (costs, long, touches).
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';

const here = path.dirname(new URL(import.meta.url).pathname);
export const top = path.join(here, '../..');

/** Lines of a table of words, without comments. */
export function table(name) {
  const file = path.join(here, name);
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8').split('\n').map((line) => line.replace(/#.*/, '').trim()).filter(Boolean).map((line) => line.split(/\s+/));
}

const costs = new Map(table('costs').map(([name, seconds, weight]) => [name, { seconds: Number(seconds), weight: Number(weight) }]));
/** Seconds of a program that has no row in `costs`, and of any if TEST_TIMEOUT says so. */
const LIMIT = Number(process.env.TEST_TIMEOUT ?? 1200);
/** What a file says that has tests for `make test` and others for `make check-long`: NAME and NAME-long. */
const IN_PARTS = /\b(longTest|shortTest|shortIf|PARLEY_TEST_PART)\b/;
/** The programs that a file of tests is, and PARLEY_TEST_PART tells each which of its tests to run: [label, env]. */
const partsOf = (file) => (IN_PARTS.test(readFileSync(file, 'utf8')) ? [['', { PARLEY_TEST_PART: 'short' }], ['-long', { PARLEY_TEST_PART: 'long' }]] : [['', {}]]);
/** How much longer a program may take in a build with a sanitizer than its row, which release wrote. */
const SLOWER = { asan: 4, fuzz: 4, tsan: 10 };
const UNKNOWN = { compute: { seconds: 8, weight: 1 }, talk: { seconds: 8, weight: 0.6 }, page: { seconds: 8, weight: 0.6 } };

/** Whether `name` is one of a table's names, in which * stands for any characters. */
export const named = (names, name) => names.some((each) => new RegExp(`^${each.replace(/[.*+?^${}()|[\]\\]/g, (c) => (c === '*' ? '.*' : `\\${c}`))}$`).test(name));

/** The same programs in n parts, each in the same order: the costliest first, each to the part that has least. */
export function equalParts(programs, n) {
  const parts = Array.from({ length: n }, () => ({ cost: 0, names: new Set() }));
  for (const { name, cost } of programs.map(({ name, seconds, weight }) => ({ name, cost: seconds * weight })).sort((a, b) => b.cost - a.cost || (a.name < b.name ? -1 : 1))) {
    const least = parts.reduce((a, b) => (b.cost < a.cost ? b : a));
    least.names.add(name);
    least.cost += cost;
  }
  return parts.map(({ names }) => programs.filter(({ name }) => names.has(name)));
}

const newer = (a, b) => existsSync(a) && statSync(a).mtimeMs > statSync(b).mtimeMs;
/** Installs the packages of npm that these programs import. */
export function install(programs) {
  for (const folder of new Set(programs.flatMap(({ packages }) => packages))) {
    const at = path.join(top, folder);
    if (!newer(`${at}/node_modules/.package-lock.json`, `${at}/package-lock.json`))
      spawnSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: at, stdio: 'ignore' });
  }
}
const onPath = (...names) => names.some((name) => spawnSync('sh', ['-c', `command -v ${name}`], { stdio: 'ignore' }).status === 0);
const gpuHere = () => existsSync('/dev/nvidiactl') || spawnSync('nvidia-smi', ['-L'], { stdio: 'ignore' }).status === 0;

/** Five times what the table says, and no less than a minute; `known`: the program's row, or undefined. */
export function limitOf(known, build) {
  if (!known || process.env.TEST_TIMEOUT) return LIMIT;
  return Math.max(60, 5 * known.seconds) * (SLOWER[path.basename(build)] ?? 1);
}

export class Suites {
  /** build: build/VARIANT; jobs: programs that may run at a time. */
  constructor(build, jobs) {
    this.build = build;
    this.jobs = jobs;
    this.programs = [];
    this.skipped = []; // [program, reason]: cannot run on this machine
  }

  enter(lane, kind, name, command, env = {}, waits = lane !== 'compute', known = {}) {
    const row = costs.get(name), cost = row ?? { ...UNKNOWN[lane], ...known };
    const log = `${this.build}/test-logs/${name.replace(/[/ ]/g, '-')}.log`;
    this.programs.push({ name, kind, command, env, log, waits, limit: limitOf(row, this.build), packages: [], ...cost });
  }

  compiled(folder, prefix) {
    const at = path.join(this.build, 'tests', folder);
    if (!existsSync(at)) return [];
    return readdirSync(at).filter((name) => name.startsWith(prefix) && !name.includes('.')).map((name) => name.slice(prefix.length));
  }

  cmocka(folder, names = this.compiled(folder, 'test_'), env = {}, label = '') {
    for (const name of names)
      this.enter('compute', 'cmocka', `${folder}/${name}${label}`, [`${this.build}/tests/${folder}/test_${name}`], env);
  }

  node(lane, name, file, env = {}, packages = []) {
    // Without --test, which would run the file in a process of its own.
    this.enter(lane, 'node', name, ['node', '--test-reporter=tap', file], { PARLEY: path.resolve(this.build, 'parley'), ...env });
    Object.assign(this.programs.at(-1), { lane, file, packages: ['tests/e2e', ...packages] }); // lane, file: for groups.mjs
  }

  /** Golden tests whose engines have TP x PP ranks. */
  ranks(tp, pp, ...names) {
    const label = `tp${tp}-pp${pp}`, device = process.env.PARLEY_TEST_DEVICE ?? 'cpu';
    if (!existsSync(`${this.build}/mpi-1`)) {
      this.skipped.push(...names.map((name) => [`golden/${name}-${label}`, 'no Open MPI in this build']));
      return;
    }
    for (const name of names)
      this.enter('compute', 'cmocka', `golden/${name}-${label}`, [`${this.build}/tests/golden/test_${name}`],
        { PARLEY_TEST_DEVICE: device, PARLEY_TEST_TP: String(tp), PARLEY_TEST_PP: String(pp) }, true, { weight: Math.min(tp * pp, 2) });
  }

  gpu(names, why = 'no GPU here') {
    this.skipped.push(...names.map((name) => [name, why]));
  }

  unit() { this.cmocka('unit'); }
  ops() { this.cmocka('ops'); }
  golden() {
    for (const name of this.compiled('golden', 'test_'))
      for (const [label, part] of partsOf(`tests/golden/test_${name}.c`)) this.cmocka('golden', [name], part, label);
    this.ranks(2, 1, 'models', 'experts', 'invariants', 'ahead', 'fork', 'sharing', 'tiers', '8bit', 'quantised', 'kv_dtype', 'prompts', 'snapshots', 'travel');
    this.ranks(4, 1, 'models', 'quantised');
    this.ranks(2, 2, 'models', 'snapshots', 'travel');
    this.ranks(1, 2, 'models', 'experts', 'fork', 'ft', 'snapshots');
  }

  /** What reads and writes memory for a whole conversation, for the sanitizers: named so that new ones join. */
  walk() { this.cmocka('golden', this.compiled('golden', 'test_').filter((name) => /_walk$/.test(name))); }

  e2e() {
    // If several servers share the processors, the threads of one mostly wait for each other. unit, golden and
    // e2e-threads test with several threads.
    const env = this.jobs > 1 ? { PARLEY_THREADS: process.env.PARLEY_THREADS ?? '1' } : {};
    for (const file of readdirSync('tests/e2e').filter((name) => name.endsWith('.test.mjs')).sort())
      for (const [label, part] of partsOf(`tests/e2e/${file}`)) this.node('talk', `e2e/${file.slice(0, -9)}${label}`, `tests/e2e/${file}`, { ...env, ...part });
  }

  /** Protocols with hostile input, for the sanitizers. */
  hostile() {
    for (const [name] of table('hostile')) this.node('talk', `e2e/${name}`, `tests/e2e/${name}.test.mjs`, this.jobs > 1 ? { PARLEY_THREADS: process.env.PARLEY_THREADS ?? '1' } : {});
  }

  page() {
    const files = readdirSync('tests/e2e/page').filter((name) => name.endsWith('.test.mjs')).sort();
    // tests/e2e/page/browser_path.mjs looks in the same places.
    const here = process.env.CHROMIUM || onPath('chromium-headless-shell', 'chromium', 'google-chrome', 'google-chrome-stable');
    for (const file of files)
      for (const [label, part] of partsOf(`tests/e2e/page/${file}`)) this.node('page', `page/${file.slice(0, -9)}${label}`, `tests/e2e/page/${file}`, part, here ? [] : ['tests/e2e/page/chromium']);
  }

  /** Checks of the sources: includes, circles of calls, format, language features. */
  layers() {
    this.enter('compute', 'check', 'layers', ['tests/check_layers.sh']);
    this.enter('compute', 'check', 'cycles', ['node', 'tests/check_cycles.mjs']);
    this.enter('compute', 'check', 'format', ['node', 'tests/check_format.mjs']);
    this.enter('compute', 'check', 'javascript', ['node', 'tests/lint/check_javascript.mjs']);
    this.programs.at(-1).packages = ['tests/lint'];
  }

  clients() {
    if (parseInt(process.versions.node, 10) < 20) {
      this.skipped.push(['e2e/clients', 'Node is older than 20']);
      return;
    }
    this.node('talk', 'e2e/clients', 'tests/e2e/clients/clients.test.mjs', {}, ['tests/e2e/clients']);
  }

  /** kill -9 and attacks for minutes; `make torture` runs them in full. */
  torture() {
    const env = { PARLEY: path.resolve(this.build, 'parley') };
    this.enter('talk', 'node', 'torture/kill', ['node', '--test', '--test-reporter=tap', '--test-name-pattern=kill -9', 'tests/e2e/crash.test.mjs'],
      { ...env, KILLS: '100' });
    this.enter('talk', 'check', 'torture/kill_engines', ['node', 'tests/torture/kill_engines.mjs', '20'], env);
    for (const program of this.programs.slice(-2)) program.packages = ['tests/e2e'];
  }

  /** The fuzz targets over their kept corpora, in a build with a sanitizer (tests/fuzz/walk.c). */
  corpora() {
    for (const name of this.compiled('fuzz', 'walk_'))
      this.enter('compute', 'fuzz', `corpus/${name}`, [`${this.build}/tests/fuzz/walk_${name}`, `tests/fuzz/corpus/${name}`]);
  }

  /**
   * Each target over its kept corpus, then from one seed for a fixed number of inputs, with limits on time and memory:
   * two results each. New inputs go to a scratch folder, so that every run starts from the same corpus.
   */
  fuzz() {
    for (const name of this.compiled('fuzz', 'fuzz_'))
      for (const runs of ['0', process.env.FUZZ_RUNS ?? '10000']) {
        const dictionary = existsSync(`tests/fuzz/${name}.dict`) ? [`-dict=tests/fuzz/${name}.dict`] : [];
        this.enter('compute', 'fuzz', `fuzz/${name} ${runs === '0' ? 'corpus' : `${runs} runs`}`,
          ['sh', '-c', 'mkdir -p "$FOUND" && exec "$@"', 'sh', `${this.build}/tests/fuzz/fuzz_${name}`, ...dictionary, '-seed=1', `-runs=${runs}`,
            '-timeout=20', '-rss_limit_mb=1024', `-artifact_prefix=${this.build}/test-logs/fuzz-${name}-`, `${process.env.TEST_SCRATCH}/fuzz-${name}-${runs}`,
            `tests/fuzz/corpus/${name}`],
          { ASAN_OPTIONS: 'quarantine_size_mb=16', FOUND: `${process.env.TEST_SCRATCH}/fuzz-${name}-${runs}` });
      }
  }

  /** The tests of several threads, for ThreadSanitizer. */
  threads() {
    if (!process.env.THREADED) throw new Error('threads: make check-tsan names the programs in THREADED');
    this.cmocka('unit', process.env.THREADED.split(/\s+/).filter(Boolean));
  }
  'e2e-threads'() {
    for (const name of ['concurrency', 'streams', 'turns', 'crash']) this.node('talk', `e2e/${name}`, `tests/e2e/${name}.test.mjs`);
  }

  /** The tests of a GPU, whose memory they share: one at a time. Those that need a GPU and find none say so. */
  cuda() {
    this.jobs = 1;
    this.cmocka('ops', ['devices', 'rows', 'linear', 'fp8', 'attention', 'latent', 'groups', 'experts', 'draw', 'copies', 'plans'].map((name) => `cuda_${name}`));
    if (!gpuHere()) {
      this.gpu(['golden', 'gpu/serve']);
      return;
    }
    this.cmocka('golden', ('models experts variants invariants sessions_resume sampling tiers overlap fork fork_tiers sharing sessions_tree 8bit kv_dtype ' +
      'snapshots snapshots_damage ft pause prompts beams branches travel tiers_walk admission drafts masks ahead flight').split(' '));
    if (spawnSync('nvidia-smi', ['-L'], { encoding: 'utf8' }).stdout?.trim().split('\n').length >= 2) {
      const first = this.programs.length;
      this.ranks(2, 1, 'ahead', 'models');
      for (const program of this.programs.slice(first)) program.env.PARLEY_TEST_DEVICE = 'cuda:0,cuda:1';
    }
    this.cmocka('golden', ['invariants'], { PARLEY_TEST_COMPUTE: 'bf16', PARLEY_TEST_DETERMINISTIC: '1' }, '-bf16-deterministic');
    this.cmocka('golden', ['models', 'experts', 'prompts'], { PARLEY_TEST_COMPUTE: 'bf16' }, '-bf16');
    this.cmocka('golden', ['models', 'prompts'], { PARLEY_TEST_COMPUTE: 'f16' }, '-f16');
    this.enter('compute', 'node', 'gpu/serve', ['python3', 'tests/gpu/serve.py'], {
      PARLEY: path.resolve(this.build, 'parley'), FAULT: path.resolve(this.build, 'tests/gpu/fault.so'),
      CUDA_FAULT_CODE: path.resolve(this.build, 'tests/gpu/trap.fatbin'),
    });
  }

  /** compute-sanitizer's tools over the op tests. They share the GPU, but spend most of their time on the processor. */
  sanitize() {
    if (!gpuHere()) {
      this.gpu(['compute-sanitizer over ops/test_cuda']);
      return;
    }
    const tool = onPath('compute-sanitizer') ? 'compute-sanitizer' : '/usr/local/cuda/bin/compute-sanitizer';
    const parts = (name) => [...readFileSync(`tests/ops/test_${name}.c`, 'utf8').matchAll(/cmocka_unit_test\(([a-z0-9_]*)\)/g)].map(([, part]) => part);
    const one = (check, name, part) => {
      const env = { PARLEY_TEST_SCALE: process.env.PARLEY_TEST_SCALE ?? '0.1', PARLEY_TEST_COMPUTE: process.env.PARLEY_TEST_COMPUTE ?? 'bf16' };
      if (part) env.PARLEY_TEST_ONLY = part;
      // initcheck does not see all writes of cuBLASLt's kernels; the deterministic backend does not use them.
      if (name === 'cuda_linear' && check !== 'memcheck') env.PARLEY_TEST_DETERMINISTIC = '1';
      if (name === 'cuda_draw') Object.assign(env, { PARLEY_TEST_COMPUTE: 'f32', PARLEY_TEST_DETERMINISTIC: '1' });
      const options = {
        memcheck: ['--report-api-errors', 'no'], // tests exhaust memory on purpose
        // racecheck follows neither bar.arrive nor a barrier at which one lane arrives for its warp: kernels/cuda/README.md.
        racecheck: ['--kernel-name-exclude', 'kns=stay', '--kernel-name-exclude', 'kns=stream'],
        synccheck: ['--num-cuda-barriers', '100000'], // by itself it tracks too few of them, and says so
      }[check] ?? [];
      this.enter('compute', 'cmocka', `${check}/${name}${part ? `-${part}` : ''}`,
        [tool, '--tool', check, '--error-exitcode', '9', ...options, `${this.build}/tests/ops/test_${name}`], env);
    };
    for (const check of ['racecheck', 'initcheck', 'memcheck', 'synccheck']) {
      for (const name of ['cuda_attention', 'cuda_latent', 'cuda_linear', 'cuda_experts', 'cuda_groups']) for (const part of parts(name)) one(check, name, part);
      one(check, 'cuda_fp8', check === 'initcheck' ? 'test_rounding' : undefined);
      for (const name of ['cuda_draw', 'cuda_rows', 'cuda_copies']) one(check, name);
    }
  }
}

export const SUITES = ['unit', 'ops', 'golden', 'walk', 'layers', 'e2e', 'hostile', 'page', 'clients', 'torture', 'corpora', 'fuzz', 'threads', 'e2e-threads', 'cuda', 'sanitize'];
