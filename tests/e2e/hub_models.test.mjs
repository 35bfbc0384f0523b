// A model's name where commands take a model: resolved before they open an engine, and never by the server itself.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { scanCacheDir, snapshotDownload } from '@huggingface/hub';
import { freePort, parley, root, Server, temporaryFolder, until } from './harness.mjs';
import { filesOf, Hub } from './hub.mjs';
import { good, json, run } from './run.mjs';

const demo = filesOf(path.join(root, 'configs/demo-model'));
const gguf = { 'granite-Q8_0.gguf': readFileSync(path.join(root, 'tests/fixtures/gguf/granite.gguf')), 'README.md': 'x' };
console.debug = () => {}; // the library's

test('serve --model ORG/NAME: cut off, killed, resumed, then read by @huggingface/hub', async (t) => {
  const home = temporaryFolder(t), cacheDir = path.join(home, 'hub');
  const hub = await Hub.start(t);
  const commit = hub.put('acme/demo', { files: demo });
  const bytes = 5 << 20; // of the first part of the weights; then its host goes silent
  let silent = true;
  hub.rules.push((request, response, { store, file }) => {
    if (!store || !silent) return false;
    const [from, to] = request.headers.range.match(/\d+/g).map(Number);
    response.writeHead(206, { 'content-length': to + 1 - from, 'content-range': `bytes ${from}-${to}/${file.bytes.length}` });
    response.write(file.bytes.subarray(from, Math.min(to + 1, Math.max(from, bytes))));
    return true;
  });
  const port = await freePort();
  const args = ['serve', '--model', 'acme/demo', '--db', path.join(home, 'chat.db'), '--port', String(port), '--threads', '1'];
  const first = spawn(parley, args, { cwd: root, env: { ...process.env, ...hub.env(home) }, stdio: 'ignore' });
  const blobs = path.join(cacheDir, 'models--acme--demo/blobs');
  const unfinished = () => (existsSync(blobs) ? readdirSync(blobs) : []).filter((name) => name.endsWith('.incomplete'));
  await until('the beginning of the weights', () => unfinished().some((name) => statSync(path.join(blobs, name), { throwIfNoEntry: false })?.size === bytes));
  first.kill('SIGKILL');
  await new Promise((resolve) => first.once('close', resolve));
  assert.equal(unfinished().length, 1);
  silent = false;
  hub.requests.length = 0;
  const server = await Server.start(t, { args: ['--model', 'acme/demo', '--threads', '1'], env: hub.env(home) });
  assert.ok(hub.requests.some(({ store, range }) => store && range?.startsWith(`bytes=${bytes}-`)), 'it goes on where it ended');
  assert.ok(!hub.requests.some(({ store, range }) => store && range?.startsWith('bytes=1048576-')));
  const client = await server.connect();
  assert.deepEqual(client.hello.models.map(({ name }) => name), ['demo']);
  await server.stop();
  const { repos: [repo], warnings } = await scanCacheDir(cacheDir);
  assert.deepEqual([warnings, repo.id.name, repo.revisions.map(({ commitOid }) => commitOid)], [[], 'acme/demo', [commit]]);
  hub.requests.length = 0;
  const folder = await snapshotDownload({ repo: 'acme/demo', hubUrl: hub.url, cacheDir });
  assert.ok(!hub.requests.some(({ url }) => url.includes('safetensors')));
  for (const name of Object.keys(demo)) assert.ok(readFileSync(path.join(folder, name)).equals(demo[name]), name);
  // The next start asks the hub for nothing.
  hub.requests.length = 0;
  const again = await Server.start(t, { args: ['--model', 'acme/demo', '--threads', '1'], env: hub.env(home) });
  await again.stop();
  assert.equal(hub.requests.length, 0);
});

test('commands: the same answers by name and by folder; tokenize downloads no weights', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/demo': { files: demo }, 'acme/granite-gguf': { files: gguf } });
  const options = { env: hub.env(home), input: 'What is 17 plus 25?' };
  const folder = path.join(root, 'configs/demo-model');
  assert.deepEqual(await json(['tokenize', '--model', 'acme/demo', '--json'], options), await json(['tokenize', '--model', folder, '--json'], options));
  assert.equal(hub.count(/safetensors/), 0);
  const generate = (model) => json(['generate', '--model', model, '--ids', '1,2,3', '--max-tokens', '5', '--ignore-eos', '--threads', '1', '--json'], options);
  assert.deepEqual((await generate('acme/demo')).ids, (await generate(folder)).ids);
  assert.equal((await json(['inspect', 'acme/demo', '--json'], options)).family, (await json(['inspect', '--model', folder, '--json'], options)).family);
  // GGUF: a link whose target has no suffix.
  assert.deepEqual((await generate('acme/granite-gguf:Q8_0')).ids, (await generate(path.join(root, 'tests/fixtures/gguf/granite.gguf'))).ids);
  const report = await json(['inspect', '--model', 'acme/granite-gguf:q8_0', '--json'], options);
  assert.equal(report.family, 'granite');
  await good(['quantize', '--model', 'acme/demo', '--output', path.join(home, 'int8')], options);
  hub.requests.length = 0;
  const offline = { ...options, env: { ...options.env, HF_HUB_OFFLINE: '1' } };
  await good(['inspect', '--model', 'acme/demo'], offline);
  const missing = await run(['inspect', '--model', 'acme/other'], offline);
  assert.deepEqual([missing.code, hub.requests.length], [1, 0]);
  assert.match(missing.stderr, /there is no folder acme\/other, the cache of the hub does not have it .*, and HF_HUB_OFFLINE is set/);
  const unknown = await run(['inspect', '--model', 'acme/other'], options);
  assert.match(unknown.stderr, /there is no folder acme\/other, and http.* has no model acme\/other/);
  // A folder's path with a mistake is a name too, so each failure says that there is no such folder.
  const far = await run(['inspect', '--model', 'acme/other'], { ...options, env: { ...options.env, HF_ENDPOINT: 'http://127.0.0.1:1' } });
  assert.match(far.stderr, /there is no folder acme\/other here, asking http:\/\/127.0.0.1:1 for a model of that name\n/);
  assert.match(far.stderr, /there is no folder acme\/other, and [^\n]*127\.0\.0\.1:1/);
  // A folder of that name comes first.
  hub.requests.length = 0;
  await good(['inspect', '--model', 'configs/demo-model'], options);
  assert.equal(hub.requests.length, 0);
});

const control = (server, line) => new Promise((resolve, reject) => {
  let answer = '';
  const socket = net.connect(`${server.db}.control`, () => socket.write(`${JSON.stringify(line)}\n`));
  socket.setEncoding('utf8').on('data', (text) => { answer += text; }).on('error', reject).on('end', () => resolve(JSON.parse(answer)));
});

test('instances: sections of the ini file, load by the client, nothing at a client\'s word', async (t) => {
  const home = temporaryFolder(t), ini = path.join(home, 'parley.ini');
  const hub = await Hub.start(t, { 'acme/demo': { files: demo }, 'acme/granite-gguf': { files: gguf }, 'acme/third': { files: demo } });
  const env = hub.env(home);
  writeFileSync(ini, '[engine]\nthreads = 1\n[instance one]\nmodel = acme/demo\n');
  const printed = await good(['serve', '--config', ini, '--print-config'], { env });
  assert.match(printed, /\[instance one\]\nmodel = acme\/demo\n/);
  const report = await run(['doctor', '--config', ini, '--db', path.join(home, 'x.db'), '--port', '0'], { env });
  assert.match(report.stdout, /acme\/demo is no folder here, and not in the cache: the server would download it[^]*parley models pull acme\/demo/);
  assert.equal(hub.requests.length, 0);
  const bad = await run(['serve', '--config', ini, '--db', ':memory:', '--block-tokens', '48'], { env });
  assert.notEqual(bad.code, 0);
  assert.equal(hub.requests.length, 0, 'wrong settings are found before a download');
  const server = await Server.start(t, { args: ['--config', ini, '--model', ''], env });
  const names = async () => (await server.connect()).hello.models.map(({ name }) => name).sort();
  assert.deepEqual(await names(), ['demo']);
  const loaded = await run(['instances', 'load', 'two', '--model', 'acme/granite-gguf:Q8_0', '--db', server.db], { env });
  assert.equal(loaded.code, 0, loaded.stderr);
  assert.deepEqual(await names(), ['demo', 'granite-Q8_0']);
  hub.requests.length = 0;
  const refused = await control(server, { command: 'load', instance: 'three', settings: { model: 'acme/third' } });
  assert.equal(refused.ok, false);
  assert.match(refused.message, /acme\/third/);
  assert.equal(hub.requests.length, 0);
  const after = await run(['doctor', '--config', ini, '--db', path.join(home, 'x.db'), '--port', '0'], { env });
  assert.match(after.stdout, /snapshots/);
});

test('GET /models/cached: what lies in the cache, for administrators, read only', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/demo': { files: demo }, 'acme/granite-gguf': { files: gguf } });
  const env = hub.env(home), tokens = path.join(home, 'tokens');
  writeFileSync(tokens, `root:${'a'.repeat(32)} admin\nzora:${'b'.repeat(32)}\n`, { mode: 0o600 });
  await good(['models', 'pull', 'acme/granite-gguf:Q8_0'], { env });
  const server = await Server.start(t, { args: ['--token-file', tokens, '--threads', '1'], env });
  const ask = (token, method = 'GET') => fetch(`${server.url}/models/cached`, { method, headers: token ? { authorization: `Bearer ${token}` } : {} });
  const answer = await ask('a'.repeat(32));
  assert.equal(answer.status, 200);
  assert.deepEqual(await answer.json(), await json(['models', 'list', '--json'], { env }));
  assert.deepEqual([(await ask()).status, (await ask('b'.repeat(32))).status, (await ask('a'.repeat(32), 'POST')).status], [401, 403, 405]);
  await good(['models', 'pull', 'acme/demo'], { env });
  assert.deepEqual((await (await ask('a'.repeat(32))).json()).models.map(({ name, format }) => [name, format]), [['acme/demo', 'safetensors'], ['acme/granite-gguf:Q8_0', 'gguf']]);
});

test('ranks get the path of a GGUF file in the cache, not its link\'s target', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/granite-gguf': { files: gguf } });
  const generate = (...args) => json(['generate', '--model', 'acme/granite-gguf:Q8_0', '--ids', '1,2,3', '--max-tokens', '5', '--ignore-eos', '--threads', '1', '--device', 'cpu', '--json', ...args], { env: hub.env(home) });
  const alone = await generate();
  assert.deepEqual((await generate('--tensor-parallel', '2')).ids, alone.ids);
});
