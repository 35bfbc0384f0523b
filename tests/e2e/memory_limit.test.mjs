// Too little memory: a server that cannot start says what would fit, one that starts keeps serving.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { parley, scale, Server, unlimited, until } from './harness.mjs';

const limited = (mib) => ['prlimit', `--as=${mib << 20}`];
const sanitized = scale < 1 && 'a sanitizer takes terabytes of addresses';

// MiB of addresses that the program and its libraries take before main: another kernel or loader maps them otherwise.
const libraries = () => {
  for (let mib = 16; mib <= 256; mib += 8)
    if (spawnSync('prlimit', [`--as=${mib << 20}`, parley, '--version']).status === 0) return mib;
  assert.fail('the libraries take more than 256 MiB');
};

test('what does not start names the setting and a size that would fit; with it the server starts', { skip: sanitized }, async (t) => {
  const ended = [], loaded = libraries();
  for (const mib of [32, 80, 224, 608, 1168].map((more) => loaded + more)) {
    const args = [];
    let server, line;
    for (let setting = ''; setting !== undefined;) { // each start follows the advice of the one before
      server = await Server.start(t, { wait: false, wrap: limited(mib), args });
      await server.ready().catch(() => {});
      if (!server.status) break;
      line = server.log.trim().split('\n').at(-1);
      assert.deepEqual(server.status, { code: 1, signal: null }, `${mib} MiB: ${line}`);
      const [, named, fits] = /lower (\w+); (?:(\d+) MiB would fit|only \d+ MiB of memory are left)$/.exec(line) ?? [];
      setting = named;
      if (setting) args.push(`--${setting.replaceAll('_', '-')}`, fits ? `${fits}MiB` : '0');
      else assert.match(line, /^parley: .*(memory|thread)/, `${mib} MiB`);
      assert.ok(args.length <= 6, `${mib} MiB: ${line}`);
      ended.push([mib, setting ?? line]);
    }
    if (mib < loaded + 224) continue; // the weights and the threads alone
    assert.ok(!server.status, `${mib} MiB: ${line}`);
    const { done } = await (await Follower.open(await server.connect())).say('Hello!', { sampling: { max_tokens: 4 } });
    assert.notEqual(done.finish_reason, 'error');
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
  }
  assert.ok(ended.some(([, setting]) => setting === 'host_cache_bytes'), JSON.stringify(ended));
});

test('a client that takes all memory: others get errors and answers, and are served again when it is gone', { skip: sanitized }, async (t) => {
  const args = ['--kv-cache-bytes', '40MiB', '--host-cache-bytes', '0', '--session-len', '256', '--prefill-chunk-tokens', '64'];
  const server = await Server.start(t, { wrap: limited(libraries() + 168), args: [...args, ...unlimited] });
  const follower = await Follower.open(await server.connect());
  const say = () => follower.say('Hello!', { after: null, sampling: { max_tokens: 4 } });
  await say();
  const greedy = await Promise.all(Array.from({ length: 18 }, () => server.connect()));
  let refused = 0;
  await Promise.all(greedy.map(async (client) => {
    while (refused < 100 && client.closeCode === undefined) {
      // An answer may also wait for memory, or its connection end.
      const answer = await client.ask({ type: 'session.open', system: 'x'.repeat(32000) }, 3000).catch(() => ({ type: 'error' }));
      if (answer.type === 'error') refused++;
    }
  }));
  assert.ok(refused >= 100, `${refused} refused`);
  assert.equal((await follower.client.ask({ type: 'ping' })).type, 'pong');
  assert.equal((await fetch(`${server.url}/healthz`)).status, 200);
  greedy.forEach((client) => client.terminate());
  await until('a turn to be served', async () => {
    const turn = await say().catch((error) => { if (!error.answer) throw error; });
    return turn && turn.done.finish_reason !== 'error';
  });
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});
