// Files that are no files, and weights that are no numbers: named in one sentence, at once.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { parley, root, Server, temporaryFolder } from './harness.mjs';
import { run } from './run.mjs';
import { putTogether, takeApart } from './safetensors.mjs';

const demo = path.join(root, 'configs/demo-model'), tiny = path.join(root, 'tests/fixtures/models/llama');

test('a pipe in the place of a file: refused by name, nothing waits for its writer', async (t) => {
  const folder = temporaryFolder(t), fifo = path.join(folder, 'fifo'), model = path.join(folder, 'model');
  execFileSync('mkfifo', [fifo]);
  const refused = async (what, ...args) => {
    const { code, stderr, timedOut } = await run(args, { timeoutMs: 60000 });
    assert.ok(!timedOut, `${what}: waits for ever`);
    assert.equal(code, 1, `${what}: ${stderr}`);
    assert.match(stderr.trim().split('\n').at(-1), /^parley: \S+:? .*regular file$/, what);
  };
  cpSync(demo, model, { recursive: true });
  const files = readdirSync(model).filter((name) => name !== 'README.md' && name !== 'suggestions.json');
  assert.ok(files.length >= 7);
  for (const name of files) {
    const file = path.join(model, name);
    renameSync(file, `${file}.kept`);
    execFileSync('mkfifo', [file]);
    await refused(name, 'generate', '--model', model, '--prompt', 'Hi', '--max-tokens', '1');
    rmSync(file);
    renameSync(`${file}.kept`, file);
  }
  // What the page suggests is no part of the model: it is served without.
  rmSync(path.join(model, 'suggestions.json'));
  execFileSync('mkfifo', [path.join(model, 'suggestions.json')]);
  const server = await Server.start(t, { model });
  assert.deepEqual((await server.connect()).hello.models.map(({ suggestions }) => suggestions), [undefined]);
  const serve = ['serve', '--model', demo, '--port', '0'];
  await refused('the token file', ...serve, '--db', ':memory:', '--token-file', fifo);
  await refused('the certificate', ...serve, '--db', ':memory:', '--tls-cert', fifo, '--tls-key', fifo);
  await refused('the template', ...serve, '--db', ':memory:', '--chat-template', fifo);
  await refused('the database', ...serve, '--db', fifo);
  const db = path.join(folder, 'p.db');
  for (const beside of ['lock', 'tail']) {
    execFileSync('mkfifo', [`${db}.${beside}`]);
    await refused(`the database's ${beside}`, ...serve, '--db', db);
    rmSync(`${db}.${beside}`);
  }
  await refused('the database to list', 'sessions', 'list', '--db', fifo);
  await refused('the text', 'score', '--model', demo, '--text', fifo);
});

test('settings from a pipe, as <(command) names it: read to its end, or given up', async (t) => {
  const folder = temporaryFolder(t), fifo = path.join(folder, 'fifo');
  execFileSync('mkfifo', [fifo]);
  const silent = await run(['serve', '--config', fifo], { timeoutMs: 60000 });
  assert.ok(!silent.timedOut, 'waits for ever');
  assert.equal(silent.code, 1, silent.stderr);
  assert.match(silent.stderr, /fifo: the pipe has not ended after 10000 ms/);
  const printed = (ini) => execFileSync('bash', ['-c', '"$0" serve --config <(printf "$1") --print-config 2>&1 || true', parley, ini], { encoding: 'utf8' });
  assert.match(printed('[server]\nport = 4321\n'), /^port = 4321$/m);
  assert.match(printed('[server]\nport = many\n'), /:2: port = many: must be/);
});

test('weights that are no numbers: score, generate and a turn say so', async (t) => {
  const model = path.join(temporaryFolder(t), 'model'), file = path.join(model, 'model.safetensors');
  cpSync(tiny, model, { recursive: true });
  const { header, data } = takeApart(file);
  const norm = Object.entries(header).find(([name]) => /^model\.norm/.test(name))[1];
  data.fill(0xff, ...norm.data_offsets); // a NaN in every format
  putTogether(file, header, data);

  for (const more of [[], ['--compare-kv', 'int8'], ['--compare-model', tiny]]) {
    const { code, stdout, stderr } = await run(['score', '--model', model, '--ids', '5,6,7', ...more]);
    assert.deepEqual([code, stdout], [1, ''], more.join(' '));
    assert.match(stderr, /logits .*not finite/, more.join(' '));
  }
  assert.match((await run(['score', '--model', tiny, '--ids', '5,6,7', '--compare-model', model])).stderr, /logits of the compared model are not finite/);
  const { code, stderr } = await run(['generate', '--model', model, '--ids', '5,6', '--max-tokens', '4']);
  assert.equal(code, 1);
  assert.match(stderr, /NaN/);

  const server = await Server.start(t, { model });
  const author = await Follower.open(await server.connect());
  for (let i = 0; i < 2; i++) { // and the next turn too
    const { done, ids } = await author.say({ ids: [5, 6] }, { sampling: { max_tokens: 4 } });
    assert.deepEqual([done.finish_reason, ids], ['error', []]);
    assert.match(done.error.message, /NaN/);
  }
  assert.equal((await fetch(`${server.url}/readyz`)).status, 200);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});
