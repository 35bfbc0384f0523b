// Ranks on several machines: two network namespaces stand for two nodes, which reach each other over TCP alone; and
// the batch script for Slurm, with a stand-in for srun.
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { parley, patience, root, temporaryFolder } from './harness.mjs';
import { run } from './run.mjs';

const generate = ['generate', '--model', path.join(root, 'tests/fixtures/models/llama'), '--device', 'cpu', '--threads', '1',
  '--ids', '5,6,7,8,9,10', '--max-tokens', '16', '--temperature', '0', '--json'];

/** Why there can be no two nodes here, or false. */
async function withoutNodes() {
  if ((await run(['rank'])).stderr.includes('built without MPI')) return 'this parley was built without MPI';
  if (spawnSync('mpirun', ['--version']).error) return 'mpirun is not installed (apt install openmpi-bin)';
  if (spawnSync('ip', ['-V']).error) return 'ip is not installed (apt install iproute2)';
  const made = spawnSync('unshare', ['--net', '--uts', 'sh', '-c', 'ip link add va type veth peer name vb && hostname node-a'], { encoding: 'utf8' });
  return made.status === 0 ? false : `this user makes no network namespaces: ${(made.stderr ?? '').trim()}`;
}
const skip = await withoutNodes();

// Runs as the first node; $1 is a folder, the rest the ranks' command. Open MPI starts the second node's daemon with the
// agent, which stands for ssh.
const twoNodes = `
set -e
dir=$1; shift
ip link set lo up
hostname node-a
unshare --net --uts sleep 1000 & peer=$!
trap 'kill $peer' EXIT
while [ "$(readlink /proc/$peer/ns/net)" = "$(readlink /proc/$$/ns/net)" ] || [ "$(readlink /proc/$peer/ns/uts)" = "$(readlink /proc/$$/ns/uts)" ]; do
  kill -0 $peer
  sleep 0.05
done
nsenter -t $peer -n -u hostname node-b
ip link add va type veth peer name vb netns $peer
ip addr add 10.77.0.1/24 dev va
ip link set va up
nsenter -t $peer -n sh -c 'ip link set lo up; ip addr add 10.77.0.2/24 dev vb; ip link set vb up'
printf '#!/bin/sh\\nshift\\nexec nsenter -t %s -n -u sh -c "$*"\\n' $peer >$dir/agent
chmod +x $dir/agent
mpirun --mca plm_rsh_agent $dir/agent --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \\
  --oversubscribe --host 10.77.0.1:$HERE,10.77.0.2:$THERE -n $((HERE + THERE)) "$@"
`;
const onNodes = (t, here, there, args) => new Promise((resolve) => execFile('unshare',
  ['--net', '--uts', 'bash', '-c', twoNodes, 'nodes', temporaryFolder(t), parley, ...args],
  { timeout: patience, env: { ...process.env, HERE: here, THERE: there, OMPI_ALLOW_RUN_AS_ROOT: '1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: '1' } },
  (error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr })));

test('ranks on two nodes: the same bits as on one, with sums and stages over TCP', { skip }, async (t) => {
  const sizes = (tp, pp) => ['--tensor-parallel', String(tp), '--pipeline-parallel', String(pp)];
  for (const [tp, pp, here, there] of [[2, 1, 1, 1], [2, 2, 2, 2]]) {
    const one = await run([...generate, ...sizes(tp, pp)]);
    assert.equal(one.code, 0, one.stderr);
    const two = await onNodes(t, here, there, [...generate, ...sizes(tp, pp)]);
    assert.equal(two.code, 0, two.stderr);
    assert.deepEqual(JSON.parse(two.stdout), JSON.parse(one.stdout));
  }
  const wrong = await onNodes(t, 1, 1, [...generate, ...sizes(3, 1)]);
  assert.match(wrong.stderr, /2 ranks were started, but tensor_parallel 3 x pipeline_parallel 1 makes 3/);
});

test('slurm.sbatch: sizes, the address, a start again after a lost rank, and the end', (t) => {
  const dir = temporaryFolder(t), calls = path.join(dir, 'calls');
  const stand = (name, text) => {
    writeFileSync(path.join(dir, name), `#!/bin/sh\n${text}\n`);
    chmodSync(path.join(dir, name), 0o755);
  };
  stand('scontrol', 'echo node7; echo node8');
  stand('srun', `echo "$@" >>${calls}; [ "$(wc -l <${calls})" -gt 1 ] || exit 75`);
  const job = (more) => spawnSync('bash', [path.join(root, 'configs/slurm.sbatch')], {
    encoding: 'utf8', timeout: patience,
    env: { PATH: `${dir}:${process.env.PATH}`, SLURM_NTASKS: '16', SLURM_NTASKS_PER_NODE: '8', SLURM_JOB_NUM_NODES: '2', SLURM_JOB_NODELIST: 'node[7-8]',
      MODEL: '/m', STATE: '/s', ...more },
  });
  const done = job({ OPTIONS: '--device cuda --threads 4' });
  assert.equal(done.status, 0, done.stderr);
  assert.match(done.stdout, /http:\/\/node7:8080/);
  assert.match(done.stderr, /ended with status 75; again in 1 s/);
  const [first, second, ...none] = readFileSync(calls, 'utf8').trim().split('\n');
  assert.deepEqual(none, []);
  assert.equal(first, second);
  assert.match(first, /^--mpi=pmix .*parley serve --model \/m --db \/s\/parley\.db --token-file \/s\/tokens .*--tensor-parallel 8 --pipeline-parallel 2 --device cuda --threads 4$/);
  const bad = job({ TENSOR: '3' });
  assert.equal(bad.status, 2);
  assert.match(bad.stderr, /16 tasks, but TENSOR 3 x STAGES 2 makes 6/);
  assert.notEqual(job({ MODEL: '' }).status, 0);
  stand('srun', 'exit 1'); // it cannot start, and has said why
  assert.equal(job().status, 1);
  // Its options are options of this program.
  for (const option of first.matchAll(/--(?!mpi|kill)[a-z-]+/g))
    assert.ok(spawnSync(parley, ['serve', '--help'], { encoding: 'utf8' }).stdout.includes(`${option[0]} `), option[0]);
});
