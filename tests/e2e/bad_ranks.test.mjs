// Ranks that do not fit together, and what Open MPI lacks on a machine: each is a sentence and status 1, within a time limit.
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { parley, patience, root, temporaryFolder } from './harness.mjs';
import { run } from './run.mjs';

const models = path.join(root, 'tests/fixtures/models'), llama = path.join(models, 'llama');
const generate = ['generate', '--model', llama, '--device', 'cpu', '--threads', '1', '--ids', '5,6,7', '--max-tokens', '3',
  '--temperature', '0', '--json', '--tensor-parallel', '2'];
const start = (program, args) => new Promise((resolve) => execFile(program, args,
  { timeout: patience, env: { ...process.env, OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' } },
  (error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr })));
const alone = await run(generate);
const skip = /built without MPI/.test(alone.stderr) ? 'this parley was built without MPI'
  : spawnSync('mpirun', ['--version']).error ? 'mpirun is not installed (apt install openmpi-bin)' : false;
const noMounts = skip || (spawnSync('unshare', ['--mount', 'true']).status === 0 ? false : 'this user may not mount');
/** The leading rank, and beside it one that another command starts. */
const beside = (second, ...more) => start('mpirun', ['--oversubscribe', '-n', '1', parley, ...generate, ...more, ':', '-n', '1', ...second]);
/** Ranks that parley starts itself, after a mount. The tests' own folder may lie in /dev/shm, and would be hidden there. */
const mounted = (mount) => start('unshare', ['--mount', 'sh', '-c', `${mount} && TMPDIR=/tmp exec "$@"`, 'sh', parley, ...generate]);

test('ranks of two builds: refused, with both builds named', { skip }, async (t) => {
  const id = JSON.parse((await run(['--version', '--json'])).stdout).build;
  assert.match(id, /^[0-9a-f]{16,}/);
  const bytes = readFileSync(parley), at = bytes.indexOf(Buffer.from(id, 'hex'));
  assert.ok(at > 0, 'the build id of the file');
  bytes[at] ^= 0xff;
  const other = path.join(temporaryFolder(t), 'parley');
  writeFileSync(other, bytes);
  chmodSync(other, 0o755);
  const { code, stderr } = await beside([other, ...generate]);
  assert.equal(code, 1, stderr);
  const [, theirs, ours] = /parley: rank 1 \(.*\) is another build of Parley \(([0-9a-f]+)\) than the leading rank \(([0-9a-f]+)\)/.exec(stderr);
  assert.deepEqual([ours, theirs], [id, bytes.subarray(at, at + id.length / 2).toString('hex')].map((text) => text.slice(0, ours.length)));
});

test('ranks with two models under one path: refused', { skip: noMounts }, async () => {
  const other = path.join(root, 'configs/demo-model');
  const { code, stderr } = await beside(['unshare', '--mount', 'sh', '-c', `mount --bind ${other} ${llama} && exec "$@"`, 'sh', parley, ...generate]);
  assert.equal(code, 1, stderr);
  assert.match(stderr, /parley: rank 1 \(.*\) has another model under this path/);
});

test('a rank that never comes: given up after ten times rank_timeout', { skip }, async () => {
  const { code, stderr } = await beside(['sleep', '100000'], '--rank-timeout', '1');
  assert.equal(code, 1, stderr);
  assert.match(stderr, /parley: the other ranks have not come for 10 s/);
});

test('a full /dev/shm: the ranks do without it, with the same bits', { skip: noMounts }, async () => {
  for (const options of ['size=4k', 'ro']) {
    const { code, stdout, stderr } = await mounted(`mount -t tmpfs -o ${options} none /dev/shm`);
    assert.equal(code, 0, stderr);
    assert.equal(stdout, alone.stdout);
  }
});

test('no folder for sockets: named, with what to set', { skip: noMounts }, async () => {
  const { code, stderr } = await mounted('mount -t tmpfs -o ro none /tmp');
  assert.equal(code, 1, stderr);
  assert.match(stderr, /^parley: Open MPI has no folder for the ranks' sockets: .*: Read-only file system; set TMPDIR to a folder that can be written\n$/);
});

test('a folder for sockets with too little room: named, with what to set', { skip: noMounts }, async () => {
  const { code, stderr } = await mounted('mount -t tmpfs -o size=8m none /tmp');
  assert.equal(code, 1, stderr);
  assert.match(stderr, /^parley: Open MPI has too little room for the ranks' sockets and memory: \/tmp has 8192 KiB of 32 MiB; set TMPDIR .*\n$/);
});
