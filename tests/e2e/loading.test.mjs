// The instances of a start, whose engine processes load side by side: one that stands still holds up no other, and one that
// cannot be opened ends the start and the other processes.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, truncateSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, parley, root, Server, shortTest as test, sleep, temporaryFolder, unlimited, until } from './harness.mjs';
import { engineProcesses, isAlive, livingEngines } from './processes.mjs';

const demo = path.join(root, 'configs/demo-model');
const options = (more = []) => ({ wait: false, args: [...unlimited, '--device', 'cpu', '--threads', '1', '--engine-process', 'on', ...more] });
const lines = (server, event) => [...server.log.matchAll(new RegExp(`event=${event} instance=(\\S+)`, 'g'))].map((match) => match[1]);

/** A server of which n engine processes are stopped while they load their models: [server, their pids]. */
async function stopped(t, n, more) {
  for (;;) {
    const server = await Server.start(t, options(more));
    const pids = [];
    while (pids.length < n && !server.status && engineProcesses(server).length === 0) {
      for (const pid of livingEngines(server).filter((one) => !pids.includes(one)).slice(0, n - pids.length)) {
        process.kill(pid, 'SIGSTOP');
        pids.push(pid);
      }
      await sleep(0);
    }
    if (pids.length === n && !engineProcesses(server).some((pid) => pids.includes(pid))) return [server, pids];
    for (const pid of pids.filter(isAlive)) process.kill(pid, 'SIGCONT'); // too late: one had loaded its model
    await server.stop('SIGKILL');
  }
}

longTest('instances load side by side: one that stands still holds up no other, and the server waits for it', async (t) => {
  for (;;) {
    const [server, [pid]] = await stopped(t, 1, ['--instances', '3']);
    await until('two others', () => engineProcesses(server).length >= 2);
    const early = !engineProcesses(server).includes(pid);
    process.kill(pid, 'SIGCONT');
    await server.ready();
    assert.deepEqual(lines(server, 'instance.loading'), ['1', '2', '3']); // in their order, whatever follows
    assert.deepEqual(lines(server, 'engine.process').sort(), ['1', '2', '3']);
    const { instances } = await (await fetch(`${server.url}/readyz`)).json();
    assert.deepEqual(instances.map(({ name, state }) => [name, state]), ['1', '2', '3'].map((name) => [name, 'serving']));
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
    if (!early) continue; // its line came after the signal
    assert.ok(server.log.indexOf('instance.loading instance=3') < server.log.indexOf('event=engine.process '));
    assert.equal(engineProcesses(server).at(-1), pid);
    return;
  }
});

longTest('one whose process ends while it loads: the start fails and names it, and the others end though they stand still', async (t) => {
  const [server, pids] = await stopped(t, 3, ['--instances', '3']);
  process.kill(pids[1], 'SIGKILL');
  assert.deepEqual(await server.exited, { code: 75, signal: null });
  assert.match(server.log, /^parley: instance [123]: the engine process ended while it loaded the model$/m);
  assert.doesNotMatch(server.log, /event=(engine\.process|server\.ready|instance\.load) /);
  await until('no process to be left', () => !pids.some(isAlive));
  assert.ok(!existsSync(server.db));
});

test('one that cannot be opened: the start fails as with a single one; the first of several is named, the others are logged', async (t) => {
  const folder = temporaryFolder(t);
  const models = ['b', 'c'].map((name) => path.join(folder, name));
  for (const model of models) {
    cpSync(demo, model, { recursive: true });
    truncateSync(path.join(model, 'model-00002-of-00002.safetensors'), 1000);
  }
  const alone = await Server.start(t, { ...options(), model: models[0] });
  assert.deepEqual(await alone.exited, { code: 1, signal: null });
  const said = /^parley: (.*model-00002.*)$/m.exec(alone.log)[1];
  const file = path.join(folder, 'parley.ini');
  writeFileSync(file, `[instance a]\n[instance b]\nmodel = ${models[0]}\n`);
  const server = await Server.start(t, options(['--config', file]));
  assert.deepEqual(await server.exited, { code: 1, signal: null });
  assert.equal(/^parley: (.*)$/m.exec(server.log)[1], `instance b: ${said}`);
  assert.deepEqual(lines(server, 'instance.loading'), ['a', 'b']);
  assert.ok(!existsSync(server.db));
  await until('no process to be left', () => !engineProcesses(server).some(isAlive));

  writeFileSync(file, `[instance a]\n[instance b]\nmodel = ${models[0]}\n[instance c]\nmodel = ${models[1]}\n`);
  const both = await Server.start(t, options(['--config', file]));
  assert.deepEqual(await both.exited, { code: 1, signal: null });
  const [, name] = /^parley: instance ([bc]): .*model-00002/m.exec(both.log);
  for (const other of lines(both, 'instance.load')) assert.deepEqual([name, other], ['b', 'c']);
});

longTest('on a terminal one bar shows how far all of them are', async (t) => {
  const socket = path.join(temporaryFolder(t), 'none/control');
  const seen = (n) => { // it loads, and ends because its control socket has no folder
    const line = [parley, 'serve', '--model', demo, '--device', 'cpu', '--db', ':memory:', '--port', '0', '--engine-process', 'on',
      '--instances', n, '--control-socket', socket];
    return spawnSync('script', ['-qec', line.join(' '), '/dev/null'], { cwd: root, encoding: 'utf8' });
  };
  const [one, two] = [seen(1), seen(2)];
  if (one.error || /pseudo-?terminal|openpty/i.test(one.stderr)) return t.skip('no pseudo-terminal to be had here');
  assert.match(one.stdout, /\rLoading the model \[#{30}\] 100 %\r\n/);
  assert.match(two.stdout, /\rLoading the models \[#{30}\] 100 %\r\n/);
  const shown = [...two.stdout.matchAll(/\rLoading the models \[[# ]{30}\] +(\d+) %/g)].map((match) => Number(match[1]));
  assert.deepEqual(shown, [...new Set(shown)].sort((a, b) => a - b)); // it never goes back
  assert.match(two.stdout, /control_socket: .*No such file/);
});
