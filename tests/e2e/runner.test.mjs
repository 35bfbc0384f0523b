// The runner of the tests (tests/run): a program that runs for ever is ended at its limit and named with its test; a busy
// machine brings no program nearer to its limit.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { ownSeconds, waitedFor } from '../run/hang.mjs';
import { faults } from '../run/faults.mjs';
import { endedIn, inGroups, outcomes } from '../run/groups.mjs';
import { equalParts, limitOf, named, table } from '../run/programs.mjs';
import { resultOf, testIn } from '../run/results.mjs';
import { longTest, parley, root, shortTest as test, temporaryFolder } from './harness.mjs';

/** A build whose unit tests are these shell scripts, by their names. */
function buildOf(t, programs) {
  const build = path.join(temporaryFolder(t), 'release'), folder = path.join(build, 'tests/unit');
  mkdirSync(folder, { recursive: true });
  for (const [name, script] of Object.entries(programs)) writeFileSync(path.join(folder, `test_${name}`), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return build;
}
const run = (build, env, ...options) => spawnSync('tests/run.sh', [...options, build, 'unit'], { cwd: root, encoding: 'utf8', env: { ...process.env, ...env } });
const fine = 'echo "[ RUN      ] test_fine"; echo "[       OK ] test_fine"';
/** Whether a process has this word in its command line. */
const lives = (word) => readdirSync('/proc').filter((name) => /^\d+$/.test(name)).some((pid) => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(word);
  } catch {
    return false; // it has ended
  }
});

longTest('a program that computes, or polls, for ever is ended at its limit with all that it started; it and its test are named', (t) => {
  const mark = `parley-left-${process.pid}`;
  const build = buildOf(t, {
    fine,
    computes: `sh -c 'while :; do :; done' ${mark} & ${fine}; echo "[ RUN      ] test_of_computing"; while :; do :; done`,
    polls: 'echo "[ RUN      ] test_of_polling"; while :; do sleep 0.01; done',
  });
  const { status, stdout } = run(build, { TEST_TIMEOUT: '3' });
  assert.equal(status, 1, stdout);
  assert.match(stdout, /FAIL {2}unit\/computes .*\(status \d+, still runs after 3 s in "test_of_computing"\)/);
  assert.match(stdout, /FAIL {2}unit\/polls .*\(status \d+, still runs after 3 s in "test_of_polling"\)/);
  assert.match(stdout, /ok {4}unit\/fine/);
  assert.match(stdout, /^2 passed, 2 failed$/m); // test_fine of `computes` had passed
  assert.ok(!lives(mark));
});

longTest('a program that waits for what never comes is ended by the patience', (t) => {
  const { status, stdout } = run(buildOf(t, { fine, waits: 'echo "[ RUN      ] test_of_waiting"; sleep 1000' }), { TEST_PATIENCE: '2' });
  assert.equal(status, 1, stdout);
  assert.match(stdout, /FAIL {2}unit\/waits .*hangs: no output and no processor time in "test_of_waiting"/);
  assert.match(stdout, /^1 passed, 1 failed$/m);
});

test('--costs keeps what a program took and how much of a processor', (t) => {
  const build = buildOf(t, { sleeps: `sleep 2.5; ${fine}` }), file = path.join(build, 'costs');
  writeFileSync(file, 'unit/elsewhere 7.0 0.50\n');
  assert.equal(run(build, {}, '--costs', file).status, 0);
  const rows = readFileSync(file, 'utf8').split('\n').filter((line) => line && !line.startsWith('#')).map((line) => line.split(/\s+/));
  assert.deepEqual(rows.map(([name]) => name), ['unit/elsewhere', 'unit/sleeps']);
  assert.deepEqual(rows[0].slice(1), ['7.0', '0.50']);
  assert.ok(Number(rows[1][1]) >= 2.4 && Number(rows[1][2]) <= 0.5, rows[1].join(' '));
});

test('the limit is five times the row and no less than a minute; more under a sanitizer; without a row it is long', () => {
  assert.ok(!process.env.TEST_TIMEOUT, 'TEST_TIMEOUT is set');
  assert.equal(limitOf({ seconds: 3 }, 'build/release'), 60);
  assert.equal(limitOf({ seconds: 40 }, 'build/release'), 200);
  assert.equal(limitOf({ seconds: 40 }, 'build/asan'), 800);
  assert.equal(limitOf({ seconds: 3 }, 'build/tsan'), 600);
  assert.equal(limitOf(undefined, 'build/release'), 1200);
  for (const row of table('costs')) assert.ok(row.length === 3 && Number(row[1]) > 0 && Number(row[2]) > 0, row.join(' '));
});

test('what a program waits for a processor is not its time', () => {
  assert.equal(ownSeconds(2, 0, 0), 2);     // sleeps
  assert.equal(ownSeconds(2, 2, 0), 2);     // computes undisturbed
  assert.equal(ownSeconds(2, 1, 1), 1);     // computes beside one other program
  assert.equal(ownSeconds(2, 0.2, 0.2), 1.8); // sleeps, mostly
  assert.equal(ownSeconds(2, 2, 6), 0.5);   // four threads, of which one runs
  assert.equal(ownSeconds(2, 0, 2), 0);     // has not had a processor at all
});

test('a program that hangs is found on a busy machine too, though its timers are late there', () => {
  let waited = 0;
  for (let i = 0; i < 100; i++) waited = waitedFor(waited, 2, 0.01, i % 4 ? 0 : 0.5, true); // each fourth look: late
  assert.ok(Math.abs(waited - 75 * 2 / 3) < 1e-9, `${waited}`);
  assert.equal(waitedFor(50, 2, 0, 0, false), 52);
  assert.equal(waitedFor(50, 2, 0, 2, true), 50);  // had no processor: neither
  assert.equal(waitedFor(50, 2, 0.5, 0, true), 0); // gets on
});

test('the test that runs: the last that began and has no result', (t) => {
  const file = path.join(temporaryFolder(t), 'log');
  const at = (text) => {
    writeFileSync(file, text);
    return testIn(file);
  };
  assert.equal(at(''), undefined);
  assert.equal(at('[ RUN      ] test_a\n[       OK ] test_a\n[ RUN      ] test_b\nsaid\n'), 'test_b');
  assert.equal(at('[ RUN      ] test_a\n[  FAILED  ] test_a\n'), undefined);
  assert.equal(at('TAP version 13\n# Subtest: one\nok 1 - one\n  ---\n  ...\n# Subtest: two\n    # Subtest: within\n    ok 1 - within # SKIP no GPU\n'), 'two');
  assert.equal(at('# Subtest: two\n    # Subtest: within\n'), 'within');
});

longTest('a test that fails and leaves a socket open ends its program at once', (t) => {
  const file = path.join(temporaryFolder(t), 'leaves.test.mjs');
  writeFileSync(file, `import assert from 'node:assert/strict';
import net from 'node:net';
import { test } from 'node:test';
import ${JSON.stringify(path.join(root, 'tests/e2e/harness.mjs'))};
test('leaves a socket', () => { net.createServer().listen(0, '127.0.0.1'); assert.fail('why it failed'); });
`);
  const env = { ...process.env };
  delete env.NODE_TEST_CONTEXT; // of this program
  const { status, stdout, error } = spawnSync('node', ['--test-reporter=tap', file], { encoding: 'utf8', env, timeout: 60000 });
  assert.equal(status, 1, stdout);
  assert.equal(error, undefined, 'it did not end by itself');
  assert.match(stdout, /why it failed/);
});

longTest('files in one process: each has its results, servers that end with it, and none fails for another', (t) => {
  const folder = temporaryFolder(t), env = { ...process.env };
  delete env.NODE_TEST_CONTEXT;
  const begin = `import assert from 'node:assert/strict';
import { test } from 'node:test';
import { afterwards } from ${JSON.stringify(path.join(root, 'tests/e2e/harness.mjs'))};
const name = await new Promise((resolve) => setTimeout(resolve, 20, import.meta.url.slice(-7, -4)));
afterwards(null, () => console.log('# what', name, 'kept ends'));
`;
  // The first file's tests end before its import does; the second one's import takes longer than a process lives behind its
  // last test.
  const wait = (ms) => `await new Promise((resolve) => setTimeout(resolve, ${ms}));\n`;
  const texts = {
    one: `${begin}test('passes', async (t) => { await t.test('within', () => {}); });\ntest('is left out', { skip: 'for a reason' }, () => {});\n${wait(50)}`,
    two: `${begin}${wait(2200)}test('fails', () => assert.fail('why it failed'));\ntest('passes', () => {});`,
    bad: 'throw new Error("not a program")',
    six: `${begin}test('passes', () => {});`,
    out: `${begin}test('passes', () => {});\ntest('ends', () => new Promise(() => setTimeout(() => process.exit(0), 50)));\ntest('never begins', () => {});`, // when its results are written
    new: `${begin}test('passes', () => {});`,
  };
  const members = Object.entries(texts).map(([name, text]) => {
    const file = path.join(folder, `${name}.mjs`);
    writeFileSync(file, text);
    return { name: `e2e/${name}`, kind: 'node', lane: 'talk', file, env: {}, seconds: 5, weight: 0.5, limit: 60, log: path.join(folder, `${name}.log`) };
  });
  const [group, ...others] = inGroups(members);
  assert.deepEqual([group.members.map(({ name }) => name), others.length, group.seconds], [members.map(({ name }) => name), 0, 30]);
  assert.equal(inGroups(members, ['e2e/six']).length, 2);
  assert.equal(inGroups(members.map((each) => ({ ...each, seconds: 50 }))).length, 3); // two in two minutes
  const [program, ...args] = group.command;
  const { status, stdout } = spawnSync(program, args, { cwd: root, encoding: 'utf8', env, timeout: 60000 });
  writeFileSync(group.log, stdout);
  assert.equal(endedIn(group.log), 4, stdout);
  const { done, left } = outcomes(group, { status, seconds: 1 });
  assert.deepEqual(done.map(([{ name }, , { passed, failed, skipped }]) => [name, passed, failed, skipped.length]),
    [['e2e/one', 2, 0, 1], ['e2e/two', 1, 1, 0], ['e2e/bad', 0, 1, 0], ['e2e/six', 1, 0, 0], ['e2e/out', 1, 1, 0]], stdout);
  assert.deepEqual(left.map(({ name }) => name), ['e2e/new']);
  assert.match(readFileSync(members[1].log, 'utf8'), /why it failed/);
  assert.doesNotMatch(readFileSync(members[3].log, 'utf8'), /why it failed|not a program/);
  for (const name of ['one', 'two', 'six']) assert.ok(stdout.includes(`# what ${name} kept ends`), stdout);
});

longTest('a program of node that ends before its tests do has failed, with whatever status', (t) => {
  const folder = temporaryFolder(t), env = { ...process.env };
  delete env.NODE_TEST_CONTEXT;
  const counted = (name, tests) => {
    const file = path.join(folder, `${name}.test.mjs`), log = path.join(folder, `${name}.log`);
    writeFileSync(file, `import net from 'node:net';
import { test } from 'node:test';
import ${JSON.stringify(path.join(root, 'tests/e2e/harness.mjs'))};
test('passes', () => {});
test('is left out', { skip: 'for a reason' }, () => {});
${tests}`);
    const { status, stdout } = spawnSync('node', ['--test-reporter=tap', file], { encoding: 'utf8', env, timeout: 60000 });
    writeFileSync(log, stdout);
    return { ...resultOf('node', log, status), status };
  };
  const skipped = [['is left out', 'for a reason']];
  // A socket that is left open ends the program without node's sum.
  const leaves = "test('leaves a socket', () => { net.createServer().listen(0, '127.0.0.1'); });";
  assert.deepEqual(counted('leaves', leaves), { passed: 2, failed: 0, skipped, status: 0 });
  assert.deepEqual(counted('fails', "test('fails', () => { throw new Error('so'); });"), { passed: 1, failed: 1, skipped, status: 1 });
  const { passed, failed } = counted('exits', "test('exits', () => process.exit(0)); test('never begins', () => {});");
  assert.ok(passed <= 1 && failed === 1, `${passed} ${failed}`);
  assert.ok(counted('waits', "test('waits for ever', () => new Promise(() => {}));").failed >= 1);
});

test('parts of a run have each program once and cost about the same', () => {
  const costs = [60, 1, 40, 40, 2, 30, 10, 10, 7];
  const programs = costs.map((seconds, i) => ({ name: `p${i}`, seconds: 2 * seconds, weight: 0.5 }));
  const parts = equalParts(programs, 3), whole = equalParts(programs, 1);
  assert.deepEqual(whole, [programs]);
  assert.deepEqual(parts.flat().map(({ name }) => name).sort(), programs.map(({ name }) => name));
  const sums = parts.map((part) => part.reduce((sum, { seconds, weight }) => sum + seconds * weight, 0));
  assert.ok(Math.max(...sums) - Math.min(...sums) <= 10, `${sums}`);
  assert.deepEqual(equalParts(programs, 12).filter((part) => !part.length).length, 3);
});

test('packages are installed for programs that run, not for those that are listed or left out', (t) => {
  const copy = temporaryFolder(t), build = 'build/release', clients = 'tests/e2e/clients';
  for (const part of ['tests/run', 'tests/run.sh', `${clients}/package-lock.json`]) cpSync(path.join(root, part), path.join(copy, part), { recursive: true });
  writeFileSync(path.join(copy, `${clients}/clients.test.mjs`), "import test from 'node:test';\ntest('fine', () => {});\n");
  writeFileSync(path.join(copy, 'npm'), '#!/bin/sh\npwd >>"$0.said"\n', { mode: 0o755 });
  const said = path.join(copy, 'npm.said'), env = { ...process.env, PATH: `${copy}:${process.env.PATH}` };
  delete env.NODE_TEST_CONTEXT;
  const start = (...options) => spawnSync('tests/run.sh', [...options, build, 'clients'], { cwd: copy, encoding: 'utf8', env }).stdout;
  if (!start('--list').includes('e2e/clients')) return t.skip('Node is older than 20');
  assert.match(start('--only', 'unit/*'), /0 passed, 0 failed/);
  assert.ok(!existsSync(said));
  assert.match(start(), /1 passed, 0 failed/);
  assert.deepEqual(readFileSync(said, 'utf8').split('\n').map((folder) => folder && path.relative(copy, folder)), ['tests/e2e', clients, '']);
});

test('every planted fault is found by a program that make test runs, and what is named as long exists', () => {
  const long = table('long').map(([name]) => name);
  assert.ok(faults.length >= 30);
  for (const [name, , , , finders] of faults) assert.ok(finders.split(' ').some((finder) => !named(long, finder)), `${name}: ${finders}, all in run/long`);
  const { stdout } = spawnSync('tests/run.sh', ['--list', path.dirname(parley), 'unit', 'golden', 'e2e', 'page', 'clients', 'torture'], { cwd: root, encoding: 'utf8' });
  const all = stdout.split('\n').map((line) => line.split(' ')[0]);
  const absent = /^golden\/.*-tp|^e2e\/clients$/; // where there is no Open MPI, or an older Node
  for (const name of long.filter((each) => !absent.test(each))) assert.ok(all.some((each) => named([name], each)), `run/long: no program is ${name}`);
});
