// The command line as a stranger uses it: wrong actions, missing files, closed streams, files that exist already.
// Each message says what is wrong and what to do; nothing is overwritten and nothing half-written stays.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, parley, root, Server, shortTest as test, temporaryFolder } from './harness.mjs';
import { good, json, run } from './run.mjs';

const demo = 'configs/demo-model';

async function fails(args, code, pattern, options) {
  const result = await run(args, options);
  assert.equal(result.code, code, `${args.join(' ')}: ${result.stderr}`);
  assert.match(result.stderr, pattern, args.join(' '));
  assert.ok(result.stderr.trimEnd().split('\n').length <= 2, result.stderr);
}

test('a model folder that is none: missing, a file, empty', async (t) => {
  const folder = temporaryFolder(t);
  for (const command of [['inspect'], ['generate', '--prompt', 'hi', '--model'], ['serve', '--db', ':memory:', '--port', '0', '--model']]) {
    await fails([...command, '/nonexistent/model'], 1, /model folder \/nonexistent\/model: No such file or directory/);
    await fails([...command, 'README.md'], 1, /model folder README\.md: Not a directory/);
    await fails([...command, '/nonexistent/model.gguf'], 1, /GGUF file \/nonexistent\/model\.gguf: No such file or directory/);
    await fails([...command, folder], 1, /is no model folder: it has neither config\.json nor N-gpu\/config\.ini/);
  }
});

longTest('an action that does not exist, an option that is missing: exit status 2', async () => {
  await fails(['sessions', 'frob'], 2, /unknown action 'frob': list, show, export/);
  await fails(['sessions'], 2, /the action is missing: list, show, export/);
  await fails(['instances', 'frob', 'x'], 2, /unknown action 'frob': list, load/);
  await fails(['sessions', 'backup', '--db', 'x.db'], 2, /--output is missing/);
  await fails(['sessions', 'move', '--db', 'x.db'], 2, /--to is missing/);
  await fails(['sessions', 'list', '--db', ''], 2, /--db is empty/);
  await fails(['synth', '--like', 'tiny'], 2, /--output is missing/);
  await fails(['score', '--model', demo, '--ids', '1,2,'], 1, /--ids takes token ids separated by commas/);
  await fails(['generate', '--model', demo, '--prompt', 'hi', '--memory-len', '2', '--sink-len', '5'], 1,
    /sink_len \(5\) must be less than memory_len \(2\)/);
});

longTest('an option or a word that the action does not take is refused by name', async () => {
  for (const [words, refused] of [
    ['rm x --query zora', '--query'], ['rm x --repair', '--repair'], ['backup --output copy.db --owner me', '--owner'], ['list --to other.db', '--to'],
    ['show x --limit 3', '--limit'], ['doctor --owner me', '--owner'], ['move --to other.db --forked-from x', '--forked-from'], ['export x --new-id', '--new-id'],
    ['list zora', "'zora'"], ['backup zora --output copy.db', "'zora'"],
  ])
    await fails(['sessions', ...words.split(' '), '--db', 'x.db'], 2, new RegExp(`^parley sessions: ${words.split(' ')[0]} does not take ${refused}$`, 'm'));
});

test('serve names a database that it cannot use', async (t) => {
  const folder = temporaryFolder(t);
  const server = await Server.start(t);
  const notADatabase = path.join(folder, 'text.db');
  writeFileSync(notADatabase, 'no database, but longer than a hundred bytes '.repeat(9));
  for (const [db, why] of [[server.db, /in use by another Parley \(process \d+\)/], [notADatabase, /not an SQLite database/]]) {
    const { code, stderr } = await run(['serve', '--model', demo, '--db', db, '--port', '0']);
    assert.equal(code, 1, stderr);
    assert.match(stderr, why);
    if (db === server.db) assert.doesNotMatch(stderr, /event=engine/); // before a model is loaded
  }
});

const plugin = ['/usr/lib', '/usr/local/lib'].flatMap((top) => readdirSync(top, { withFileTypes: true }).filter((entry) => entry.isDirectory())
  .map((entry) => path.join(top, entry.name, 'libwebsockets-evlib_uv.so'))).find(existsSync);
const hides = (...words) => ['--mount', 'sh', '-c', `mount --bind /dev/null ${plugin} && exec "$@"`, 'sh', ...words];
const skip = plugin && spawnSync('unshare', hides('true')).status === 0 ? false : 'this user may not hide a library of the system';

longTest("serve without libwebsockets' part for libuv: names the package, ends in order", { skip }, async (t) => {
  const { status, signal, stderr } = spawnSync('unshare', hides(parley, 'serve', '--model', demo, '--device', 'cpu', '--db', path.join(temporaryFolder(t), 'new.db'), '--port', '0'), { cwd: root, encoding: 'utf8' });
  assert.equal(status, 1, `${signal} ${stderr}`);
  assert.match(stderr, /^parley: libwebsockets does not start on libuv \(.*evlib_uv\.so.*\): is its package libwebsockets-evlib-uv installed\?$/m);
});

longTest('standard input that is closed or does not block, too few descriptors: what to do', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  await fails(['tokenize', '--model', demo], 1, /standard input is closed; give the text with/, { wrap: ['sh', '-c', 'exec "$@" <&-', 'sh'] });
  await fails(['serve', '--model', demo, '--db', db, '--port', '0'], 1, /at most 20 files may be open.*ulimit -n 1024/, { wrap: ['prlimit', '--nofile=20:20'] });
  // A pipe that the other side has made non-blocking: the text comes later.
  const [node, script] = [process.execPath, `const { spawn } = require('child_process');
    const child = spawn(process.argv[1], process.argv.slice(2), { stdio: ['pipe', 'inherit', 'inherit'] });
    setTimeout(() => child.stdin.end('later'), 300);
    child.on('exit', (code) => process.exit(code));`];
  assert.match(await good(['tokenize', '--model', demo], { wrap: [node, '-e', script] }), /^\d+/);
});

longTest('a database or a server that is not there: the option that names it', async (t) => {
  const db = path.join(temporaryFolder(t), 'none.db');
  for (const action of ['list', 'show x', 'doctor', 'rm x'])
    await fails(['sessions', ...action.split(' '), '--db', db], 1, /none\.db: No such file or directory\. --db FILE names/);
  await fails(['instances', 'list', '--db', db], 1, /no server listens at .*none\.db\.control; --db names/);
  await fails(['chat', '--url', 'ws://127.0.0.1:1/ws'], 1, /cannot connect to ws:\/\/127\.0\.0\.1:1\/ws.*`parley serve` starts one/, { input: 'hi\n' });
  assert.deepEqual(readdirSync(path.dirname(db)), []);
});

longTest('a certificate that is none', async (t) => {
  const file = path.join(temporaryFolder(t), 'cert');
  writeFileSync(file, 'not a certificate\n');
  await fails(['serve', '--model', demo, '--db', ':memory:', '--port', '0', '--tls-cert', file, '--tls-key', file], 1,
    /cert has no certificate in PEM format/);
});

test('help and results on a stream that is full or closed: exit status 1; files stay whole', async (t) => {
  const shell = (redirection) => ['sh', '-c', `exec "$@" ${redirection}`, 'sh'];
  for (const redirection of ['> /dev/full', '>&-'])
    for (const args of [['--help'], ['--version'], ['tokenize', '--help']])
      await fails(args, 1, /^parley: cannot write standard output$/m, { wrap: shell(redirection) });
  // A reader that has enough, such as head, is no fault to speak of.
  const left = await run(['--help'], { wrap: ['sh', '-c', '{ sleep 1; "$@"; echo "status $?" >&2; } | true', 'sh'] });
  assert.equal(left.stderr, 'status 1\n');
  // A file that is opened under the number of a closed stream would get what goes to that stream.
  const file = path.join(temporaryFolder(t), 'logits'), expected = `${file}-2`;
  const score = (to) => ['score', '--model', demo, '--ids', '1,2,3', '--logits', to];
  await good(score(expected));
  assert.equal((await run(score(file), { wrap: shell('<&- >&- 2>&-') })).code, 1);
  assert.deepEqual(readFileSync(file), readFileSync(expected));
});

test('chat --url takes what serve prints, and says what the server wants', async (t) => {
  const folder = temporaryFolder(t), tokens = path.join(folder, 'tokens'), wrong = path.join(folder, 'wrong');
  const server = await Server.start(t, { model: demo });
  // The address that `parley serve` prints, or a part of it; /info names the one session, however often it is asked.
  for (const url of [`http://127.0.0.1:${server.port}`, `http://127.0.0.1:${server.port}/`, `127.0.0.1:${server.port}`, `ws://127.0.0.1:${server.port}`]) {
    const { stdout } = await run(['chat', '--url', url], { input: '/info\n/info\n/new\n/info\n' });
    const lines = stdout.match(/^.* at .*$/gm);
    assert.equal(lines.length, 3, stdout);
    assert.equal(lines[0], lines[1]);
    for (const line of lines) assert.match(line, / at \S+, session [0-9a-f-]+$/);
    assert.notEqual(lines[1], lines[2]);
  }
  writeFileSync(tokens, 'alice:alice-token-0123456789\n');
  writeFileSync(wrong, 'other-token-0123456789\n');
  const closed = await Server.start(t, { model: demo, args: ['--token-file', tokens] });
  await fails(['chat', '--url', `http://127.0.0.1:${closed.port}`, '--token-file', wrong], 1, /does not know this token \(--token-file\)/, { input: 'hi\n' });
});

test('what was probably meant is named: commands and options', async () => {
  const cases = [[['serv'], /unknown command 'serv'; did you mean 'serve'\?/], [['serve', '--prot', '8'], /unknown argument '--prot'; did you mean --port\?/],
    [['chat', '--temprature=3'], /did you mean --temperature\?/], [['serve', '--drain-timeot=3'], /did you mean --drain-timeout\?/]];
  for (const [args, meant] of cases) assert.match((await run(args)).stderr, meant);
  for (const args of [['serve', '--xyzzyq'], ['generate', '-x'], ['generate', '--'], ['quux']])
    assert.doesNotMatch((await run(args)).stderr, /did you mean/, args.join(' '));
});

longTest('what hands try: help COMMAND, a mistyped command of the chat, a prompt that ends at once', async () => {
  const { stdout: of_serve } = await run(['help', 'serve']);
  assert.equal(of_serve, (await run(['serve', '--help'])).stdout);
  assert.match((await run(['help', 'nothing'])).stderr, /unknown command 'nothing'/);
  assert.equal((await run(['version'])).stdout, (await run(['--version'])).stdout);
  const chat = await run(['chat', '--model', demo, '--max-tokens', '3'], { input: '/foo\n/etc/passwd?\n' });
  assert.match(chat.stderr, /^parley: no command \/foo; \/help lists them$/m);
  assert.doesNotMatch(chat.stderr, /passwd/); // a message, which is answered
  assert.notEqual(chat.stdout.trim(), '');
  const { stdout, stderr, code } = await run(['generate', '--model', demo, '--prompt', 'What is 2+3?']);
  assert.equal(code, 0);
  assert.equal(stdout, '\n');
  assert.match(stderr, /^parley: the model ended at once; --chat sends the prompt through its chat template$/m);
});

longTest('quantize --output x.gguf writes a GGUF file', async (t) => {
  const file = path.join(temporaryFolder(t), 'x.gguf');
  await good(['quantize', '--model', demo, '--weight-dtype', 'int4', '--output', file]);
  assert.equal(readFileSync(file).toString('latin1', 0, 4), 'GGUF');
});

longTest('sessions export --output: a new file, whole or not there', async (t) => {
  const folder = temporaryFolder(t), db = path.join(folder, 'a.db'), file = path.join(folder, 'session.json');
  const server = await Server.start(t, { model: demo, db });
  await good(['chat', '--url', `ws://127.0.0.1:${server.port}/ws`], { input: 'My name is Zora.\n' });
  const { id } = (await json(['sessions', 'list', '--db', db, '--json'])).sessions[0];
  assert.equal(await good(['sessions', 'export', id, '--db', db, '--output', file]), '');
  assert.equal(readFileSync(file, 'utf8'), await good(['sessions', 'export', id, '--db', db]));
  assert.equal(statSync(file).mode & 0o777, 0o600);
  await fails(['sessions', 'export', id, '--db', db, '--output', file], 1, /session\.json: there is such a file already/);
  // No room: RLIMIT_FSIZE stands in for a full disk.
  const other = path.join(folder, 'other.json');
  // A command that was killed left a stale file; another one that runs is left alone.
  const stale = path.join(path.dirname(file), 'stale.json'), part = `${stale}.part`;
  writeFileSync(part, '{"half');
  const writer = spawn('flock', [part, 'sh', '-c', 'echo held; read line'], { stdio: ['pipe', 'pipe', 'inherit'] });
  await once(writer.stdout, 'data');
  await fails(['sessions', 'export', id, '--db', db, '--output', stale], 1, /stale\.json\.part: another command is writing this file/);
  assert.equal(readFileSync(part, 'utf8'), '{"half');
  writer.stdin.end();
  await once(writer, 'exit');
  assert.equal(await good(['sessions', 'export', id, '--db', db, '--output', stale]), '');
  assert.equal(readFileSync(stale, 'utf8'), readFileSync(file, 'utf8'));
  assert.ok(!existsSync(part));
  await fails(['sessions', 'export', id, '--db', db, '--output', other], 1, /other\.json/, { wrap: ['sh', '-c', 'trap "" XFSZ; exec prlimit --fsize=100 "$@"', 'sh'] });
  assert.ok(!existsSync(other) && !existsSync(`${other}.part`));
});
