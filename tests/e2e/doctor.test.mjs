// `parley doctor` names what is wrong with settings and machine, each with what fixes it, and changes nothing.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { freePort, Server, temporaryFolder } from './harness.mjs';
import { run } from './run.mjs';

const demo = 'configs/demo-model';
const unset = { PARLEY_THREADS: undefined }; // tests/run.sh sets it

async function doctor(args, options = {}) {
  const result = await run(['doctor', '--json', ...args], { ...options, env: { ...unset, ...options.env } });
  assert.ok(result.stdout, result.stderr);
  const report = JSON.parse(result.stdout);
  const level = (name) => report.findings.filter((finding) => finding.level === name);
  assert.equal(report.faults, level('fault').length);
  assert.equal(report.advice, level('advice').length);
  assert.equal(result.code, report.faults ? 1 : 0);
  for (const { level: l, fix, subject } of report.findings) assert.equal(l === 'ok', fix === undefined, subject);
  return (subject, wanted) => {
    const found = report.findings.find((f) => f.subject === subject && (!wanted || f.level === wanted));
    assert.ok(found, `${subject} ${wanted ?? ''}: ${JSON.stringify(report.findings)}`);
    return found;
  };
}
const settings = (folder, ...more) => ['--model', demo, '--db', path.join(folder, 'a.db'), '--port', '0', '--device', 'cpu', ...more];

test('settings that work: no fault, nothing made, and the same for people', async (t) => {
  const folder = temporaryFolder(t);
  const find = await doctor(settings(folder));
  for (const subject of ['settings', 'model', 'database', 'port', 'cpu', 'gpu']) find(subject, 'ok');
  assert.deepEqual(readdirSync(folder), []);
  const text = await run(['doctor', ...settings(folder)], { env: unset });
  assert.equal(text.code, 0);
  assert.match(text.stdout, /^ok +model +llama/m);
});

test('an ini file, the environment and the line are read as serve reads them', async (t) => {
  const folder = temporaryFolder(t), ini = path.join(folder, 'p.ini');
  writeFileSync(ini, `[engine]\nmodel = /no/such/model\n[server]\nport = 0\ndb = ${folder}/x.db\n`);
  assert.match((await doctor(['--config', ini]))('model', 'fault').text, /no\/such\/model/);
  (await doctor(['--config', ini, '--model', demo]))('model', 'ok');
  assert.match((await doctor(['--config', ini], { env: { PARLEY_MODEL: '/by/env' } }))('model', 'fault').text, /by\/env/);
  writeFileSync(ini, '[server]\nprot = 1\n');
  const wrong = await run(['doctor', '--config', ini]);
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /p\.ini:2: .*prot.*port/);
  assert.equal((await run(['doctor', '--nonsense'])).code, 2);
});

test('settings that do not fit together', async (t) => {
  const folder = temporaryFolder(t);
  (await doctor([...settings(folder), '--host', '0.0.0.0']))('settings', 'fault');
  (await doctor(['--db', path.join(folder, 'a.db')]))('settings', 'fault'); // no model
  for (const origins of ['*', 'http://localhost:5173/', 'localhost:5173', 'https://chat.example, https://chat.example:443']) {
    const { text } = (await doctor([...settings(folder), '--allowed-origins', origins]))('settings', 'fault');
    assert.match(text, /allowed_origins has '[^']*', which matches nothing: /);
    const serve = await run(['serve', ...settings(folder), '--allowed-origins', origins]);
    assert.equal(serve.code, 1);
    assert.ok(serve.stderr.includes(text), serve.stderr);
  }
});

test('a port in use, and the port and database of a server that runs', async (t) => {
  const folder = temporaryFolder(t), port = await freePort();
  const other = createServer().listen(port, '127.0.0.1');
  await new Promise((resolve) => other.once('listening', resolve));
  const fault = (await doctor([...settings(folder), '--port', String(port)]))('port', 'fault');
  assert.match(fault.fix, new RegExp(String(port)));
  other.close();
  const server = await Server.start(t);
  const find = await doctor(['--model', demo, '--db', server.db, '--port', String(server.port)]);
  assert.match(find('database', 'ok').text, new RegExp(`process ${server.process.pid}\\b`));
  assert.match(find('port', 'ok').text, /in use/);
});

test('databases: of another program, of a newer Parley, not writable, without a folder, readable by all', async (t) => {
  const folder = temporaryFolder(t), file = (name) => path.join(folder, name);
  const fault = async (name) => (await doctor([...settings(folder), '--db', file(name)]))('database', 'fault').text;
  writeFileSync(file('text.db'), 'x'.repeat(4096));
  assert.match(await fault('text.db'), /not an SQLite database/);
  const header = Buffer.alloc(4096);
  header.write('SQLite format 3\0');
  header.writeUInt32BE(3, 60);
  writeFileSync(file('foreign.db'), header);
  assert.match(await fault('foreign.db'), /another program/);
  header.write('PRLY', 68);
  header.writeUInt32BE(9999, 60);
  writeFileSync(file('newer.db'), header);
  assert.match(await fault('newer.db'), /newer Parley .*9999/);
  assert.match(await fault('no/folder/a.db'), /folder of the database/);
  mkdirSync(file('folder.db'));
  assert.match(await fault('folder.db'), /not a regular file/);
  header.writeUInt32BE(1, 60);
  writeFileSync(file('open.db'), header);
  chmodSync(file('open.db'), 0o644);
  const advice = (await doctor([...settings(folder), '--db', file('open.db')]))('database', 'advice');
  assert.match(advice.fix, /^chmod 600 /);
});

test('certificates and tokens', async (t) => {
  const folder = temporaryFolder(t), file = (name) => path.join(folder, name);
  const make = (days) => execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
    '-keyout', file('key.pem'), '-out', file('cert.pem'), '-days', String(days), '-subj', '/CN=localhost'], { stdio: 'ignore' });
  const tls = settings(folder, '--tls-cert', file('cert.pem'), '--tls-key', file('key.pem'));
  (await doctor(tls))('tls', 'fault'); // no such files
  make(365);
  assert.match((await doctor(tls))('tls', 'ok').text, /36\d more days/);
  make(5);
  assert.match((await doctor(tls))('tls', 'advice').fix, /renew/);
  writeFileSync(file('tokens'), 'short\n', { mode: 0o600 });
  const tokens = settings(folder, '--token-file', file('tokens'));
  const fault = (await doctor(tokens))('tokens', 'fault');
  assert.match(fault.text, /tokens:1: /);
  writeFileSync(file('tokens'), 'ann:0123456789abcdef0123456789abcdef\n');
  (await doctor(tokens))('tokens', 'ok');
  chmodSync(file('tokens'), 0o640);
  (await doctor(tokens))('tokens', 'advice');
});

test('limits of this process: descriptors, threads, memory', async (t) => {
  const folder = temporaryFolder(t);
  const find = await doctor([...settings(folder), '--threads', '64'], { wrap: ['prlimit', '--nofile=512:512'] });
  assert.match(find('descriptors', 'advice').fix, /LimitNOFILE=4352/);
  find('processors', 'advice');
  const huge = await doctor([...settings(folder), '--kv-cache-bytes', '4000GiB']);
  assert.match(huge('memory', 'fault').fix, /kv_cache_bytes/);
});

test('devices that are not there', async (t) => {
  const folder = temporaryFolder(t);
  assert.ok((await doctor([...settings(folder), '--device', 'cuda:7'], { env: { CUDA_VISIBLE_DEVICES: '' } }))('gpu', 'fault').fix);
  assert.match((await doctor([...settings(folder), '--isa', 'pentium']))('cpu', 'fault').fix, /isa/);
});
