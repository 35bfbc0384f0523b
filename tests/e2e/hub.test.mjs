// parley models, and models of the hub by name: against a hub of our own (hub.mjs) that cuts, refuses and lies.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fillDisk, smallDisk } from './disk.mjs';
import { longTest, parley, root, shortTest as test, temporaryFolder, until } from './harness.mjs';
import { filesOf, Hub, sendBytes, sha256 } from './hub.mjs';
import { json, run } from './run.mjs';

const MIB = 1 << 20;
const demo = filesOf(path.join(root, 'configs/demo-model'));
const tiny = { 'config.json': '{}', 'tokenizer.json': '{}' };
const weights = (bytes) => ({ ...tiny, 'model.safetensors': randomBytes(bytes) });
const cacheOf = (home, name) => path.join(home, 'hub', `models--${name.replace('/', '--')}`);
const pull = (hub, home, name, options = {}) => run(['models', 'pull', name], { ...options, env: { ...hub.env(home), ...options.env } });

async function pulled(hub, home, name, options) {
  const { code, stdout, stderr } = await pull(hub, home, name, options);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}

test('a model in safetensors: only what is needed, in the layout of Hugging Face', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t);
  const other = { 'pytorch_model.bin': 'x', 'original/consolidated.00.pth': 'x', 'README.md': '# x', '.gitattributes': 'x',
    'onnx/model.onnx': 'x', 'model-q.gguf': 'x', 'tf_model.h5': 'x' };
  const commit = hub.put('acme/demo', { files: { ...demo, ...other } });
  const folder = await pulled(hub, home, 'acme/demo');
  const repo = cacheOf(home, 'acme/demo');
  assert.equal(folder, path.join(repo, 'snapshots', commit));
  assert.equal(readFileSync(path.join(repo, 'refs/main'), 'utf8'), commit);
  const wanted = Object.keys(demo).filter((name) => name !== 'README.md').sort();
  assert.deepEqual(readdirSync(folder).sort(), wanted);
  const files = hub.repos.get('acme/demo').commits[commit];
  for (const name of wanted) {
    const { oid, sha256: hash, bytes } = files.get(name);
    assert.equal(readlinkSync(path.join(folder, name)), `../../blobs/${hash ?? oid}`);
    assert.ok(lstatSync(path.join(repo, 'blobs', hash ?? oid)).isFile());
    assert.ok(readFileSync(path.join(folder, name)).equals(bytes), name);
  }
  assert.deepEqual(readdirSync(path.join(repo, 'blobs')).filter((name) => name.endsWith('.incomplete')), []);
  // A second pull asks for the list alone.
  hub.requests.length = 0;
  await pulled(hub, home, 'acme/demo');
  assert.deepEqual(hub.requests.map(({ url }) => url), ['/api/models/acme/demo/revision/main?blobs=true']);
  // A newer commit brings only what has changed.
  hub.requests.length = 0;
  const newer = hub.put('acme/demo', { files: { ...demo, 'generation_config.json': '{"top_k":1}' } });
  assert.equal(await pulled(hub, home, 'acme/demo'), path.join(repo, 'snapshots', newer));
  assert.equal(hub.count(/resolve/), 1);
  assert.equal(readFileSync(path.join(repo, 'refs/main'), 'utf8'), newer);
});

longTest('a folder of a revision, and a file in a folder', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t);
  hub.put('acme/demo', { files: tiny });
  const commit = hub.put('acme/demo', { branch: 'v1.0', files: { ...weights(10), 'additional_chat_templates/rag.jinja': '{{ x }}' } });
  const folder = await pulled(hub, home, 'acme/demo@v1.0');
  assert.equal(readlinkSync(path.join(folder, 'additional_chat_templates/rag.jinja')).slice(0, 15), '../../../blobs/');
  assert.equal(readFileSync(path.join(folder, 'additional_chat_templates/rag.jinja'), 'utf8'), '{{ x }}');
  assert.equal(await pulled(hub, home, `acme/demo@${commit}`), folder);
  assert.deepEqual(readdirSync(path.join(cacheOf(home, 'acme/demo'), 'refs')), ['v1.0']);
});

test('GGUF by its quant: one file, split ones whole, in any letters; several or none are named', async (t) => {
  const home = temporaryFolder(t);
  const part = (quant, i) => `sub/m-${quant}-0000${i}-of-00002.gguf`;
  const hub = await Hub.start(t, { 'acme/g': { files: { 'm-Q4_K_M.gguf': 'a', 'm-Q8_0.gguf': 'b', 'mmproj-m-Q8_0.gguf': 'c', [part('BF16', 1)]: 'd', [part('BF16', 2)]: 'e',
    'm-IQ4_XS.gguf': 'f', 'm-UD-Q4_K_M.gguf': 'g', 'README.md': 'h' } } });
  assert.match(await pulled(hub, home, 'acme/g:Q8_0'), /\/m-Q8_0\.gguf$/);
  assert.match(await pulled(hub, home, 'acme/g:iq4_xs'), /\/m-IQ4_XS\.gguf$/);
  assert.equal(hub.count(/resolve/), 2);
  const first = await pulled(hub, home, 'acme/g:BF16');
  assert.ok(first.endsWith(part('BF16', 1)));
  assert.equal(readFileSync(first.replace('00001-of', '00002-of'), 'utf8'), 'e');
  const refusals = [['acme/g:Q4_K_M', /2 GGUF files for 'Q4_K_M': name one of m-Q4_K_M.gguf, m-UD-Q4_K_M.gguf/],
    ['acme/g:Q5_K_M', /no GGUF file 'Q5_K_M'; it has IQ4_XS, Q4_K_M, Q8_0, UD-Q4_K_M, BF16/], ['acme/g', /say which, as in acme\/g:QUANT; it has IQ4_XS/]];
  for (const [name, sentence] of refusals) {
    const { code, stderr } = await pull(hub, home, name);
    assert.equal(code, 1);
    assert.match(stderr, sentence);
  }
  assert.match(await pulled(hub, home, 'acme/g:m-Q4_K_M.gguf'), /\/m-Q4_K_M\.gguf$/);
});

longTest('several ranges at a time, from the second host alone, which gets no token', async (t) => {
  const home = temporaryFolder(t);
  const files = weights(32 * MIB);
  const hub = await Hub.start(t, { 'acme/big': { files, token: 'hf_secret' } });
  const waiting = [];
  hub.rules.push((request, response, { store, file }) => {
    if (!store || request.headers.range?.startsWith('bytes=0-')) return false;
    waiting.push([request, response, file]); // until three more are here
    if (waiting.length >= 3) for (const [a, b, c] of waiting.splice(0)) sendBytes(a, b, c.bytes);
    return true;
  });
  const folder = await pulled(hub, home, 'acme/big', { env: { HF_TOKEN: 'hf_secret' } });
  assert.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(files['model.safetensors']));
  const stored = hub.requests.filter(({ store }) => store);
  assert.equal(stored.length, 4);
  assert.equal(hub.count(/resolve.*model\.safetensors/), 1); // the address is asked for once
  assert.ok(stored.every(({ authorization }) => authorization === undefined));
  assert.ok(hub.requests.every(({ store, authorization }) => store || authorization === 'Bearer hf_secret'));
});

longTest('a host without ranges', async (t) => {
  const home = temporaryFolder(t);
  const files = weights(30 * MIB);
  const hub = await Hub.start(t, { 'acme/big': { files } });
  let cuts = 2;
  hub.rules.push((request, response, { store, file }) => {
    if (!store) return false;
    if (cuts-- > 0) {
      response.writeHead(200, { 'content-length': file.bytes.length });
      response.write(file.bytes.subarray(0, 12 * MIB), () => response.destroy());
    } else {
      sendBytes(request, response, file.bytes, { ranges: false });
    }
    return true;
  });
  const folder = await pulled(hub, home, 'acme/big');
  assert.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(files['model.safetensors']));
  assert.equal(hub.requests.filter(({ store }) => store).length, 3);
});

longTest('a host that stops sending ranges in the middle', async (t) => {
  const home = temporaryFolder(t);
  const files = weights(48 * MIB);
  const hub = await Hub.start(t, { 'acme/big': { files } });
  let answers = 0;
  hub.rules.push((request, response, { store, file }) => {
    if (!store) return false;
    sendBytes(request, response, file.bytes, { ranges: answers++ < 2 });
    return true;
  });
  const folder = await pulled(hub, home, 'acme/big');
  assert.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(files['model.safetensors']));
});

test('cuts, 5xx and signed addresses that expire are tried again', async (t) => {
  const home = temporaryFolder(t);
  const files = weights(33 * MIB);
  const hub = await Hub.start(t, { 'acme/big': { files } });
  const faults = [
    (request, response) => response.destroy(),
    (request, response, { file }) => response.writeHead(206, { 'content-length': 100, 'content-range': `${request.headers.range.replace('=', ' ')}/${file.bytes.length}` })
      .end(file.bytes.subarray(Number(/\d+/.exec(request.headers.range)[0])).subarray(0, 100)), // less than was asked for
    (request, response) => response.writeHead(403).end('<Error>expired</Error>'),
    (request, response) => response.writeHead(503).end(),
    (request, response, { file }) => { // half of what is asked for
      const [from, to] = request.headers.range.match(/\d+/g).map(Number);
      response.writeHead(206, { 'content-length': to + 1 - from, 'content-range': `bytes ${from}-${to}/${file.bytes.length}` });
      response.write(file.bytes.subarray(from, (from + to) >> 1), () => response.destroy());
    },
  ];
  hub.rules.push((request, response, about) => {
    const fault = about.store && faults.shift();
    if (fault) fault(request, response, about);
    return Boolean(fault);
  });
  const folder = await pulled(hub, home, 'acme/big');
  assert.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(files['model.safetensors']));
  assert.equal(faults.length, 0);
});

/** Pulls with a hub that holds every answer of the store back after `bytes`, and kills the process when they are there. */
async function killAfter(hub, home, name, bytes, signal = 'SIGKILL') {
  hub.rules.unshift((request, response, { store, file }) => {
    if (!store) return false;
    const [from, to] = request.headers.range.match(/\d+/g).map(Number);
    response.writeHead(206, { 'content-length': to + 1 - from, 'content-range': `bytes ${from}-${to}/${file.bytes.length}` });
    response.write(file.bytes.subarray(from, Math.min(to + 1, Math.max(from, bytes))));
    if (to < bytes) response.end();
    return true;
  });
  const child = spawn(parley, ['models', 'pull', name], { env: { ...process.env, ...hub.env(home) }, stdio: 'ignore' });
  const blobs = path.join(cacheOf(home, name), 'blobs');
  const written = () => existsSync(blobs) && readdirSync(blobs).filter((blob) => blob.endsWith('.incomplete')).reduce((sum, blob) => sum + (statSync(path.join(blobs, blob), { throwIfNoEntry: false })?.size ?? 0), 0);
  await until(`${bytes} bytes`, () => written() === bytes);
  child.kill(signal);
  await new Promise((resolve) => child.once('close', resolve));
  hub.rules.shift();
  return readdirSync(blobs).find((blob) => blob.endsWith('.incomplete'));
}

longTest('kill -9 in the middle: the next pull goes on where it ended, and what was there is checked', async (t) => {
  const home = temporaryFolder(t);
  const files = weights(36 * MIB), hash = sha256(files['model.safetensors']);
  const hub = await Hub.start(t, { 'acme/big': { files } });
  const bytes = 19 * MIB + 12345;
  assert.equal(await killAfter(hub, home, 'acme/big', bytes), `${hash}.incomplete`);
  const beginning = path.join(cacheOf(home, 'acme/big'), 'blobs', `${hash}.incomplete`);
  assert.ok(readFileSync(beginning).equals(files['model.safetensors'].subarray(0, bytes)));
  assert.match((await run(['models', 'list'], { env: hub.env(home) })).stdout, /acme\/big +unfinished +0\.02 GB/);
  hub.requests.length = 0;
  const folder = await pulled(hub, home, 'acme/big');
  assert.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(files['model.safetensors']));
  const from = hub.requests.filter(({ store }) => store).map(({ range }) => Number(/\d+/.exec(range)[0]));
  assert.equal(Math.min(...from), bytes); // nothing is fetched twice
  // A beginning of another program's with holes is found out, and fetched anew.
  const other = temporaryFolder(t);
  const again = path.join(cacheOf(other, 'acme/big'), 'blobs');
  mkdirSync(again, { recursive: true });
  writeFileSync(path.join(again, `${hash}.incomplete`), Buffer.alloc(bytes));
  assert.ok(readFileSync(path.join(await pulled(hub, other, 'acme/big'), 'model.safetensors')).equals(files['model.safetensors']));
  // One that is longer than the file begins again at once.
  const longer = temporaryFolder(t), long = path.join(cacheOf(longer, 'acme/big'), 'blobs');
  mkdirSync(long, { recursive: true });
  writeFileSync(path.join(long, `${hash}.incomplete`), Buffer.alloc(37 * MIB));
  assert.ok(readFileSync(path.join(await pulled(hub, longer, 'acme/big'), 'model.safetensors')).equals(files['model.safetensors']));
});

longTest('a disk that fills in the middle: a sentence, and the next pull goes on', async (t) => {
  const disk = smallDisk(t, '64m');
  if (!disk) return t.skip('no file system can be mounted here');
  const files = weights(36 * MIB), hub = await Hub.start(t, { 'acme/big': { files } });
  let ballast;
  hub.rules.push((request, response, { store, file }) => {
    if (store && !request.headers.range.startsWith('bytes=0-')) ballast ??= fillDisk(disk);
    if (store) sendBytes(request, response, file.bytes);
    return store;
  });
  const full = await pull(hub, disk, 'acme/big');
  assert.equal(full.code, 1);
  assert.match(full.stderr, /cannot write .*\.incomplete: No space left on device/);
  rmSync(ballast);
  hub.requests.length = 0;
  const folder = await pulled(hub, disk, 'acme/big');
  assert.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(files['model.safetensors']));
  assert.ok(!hub.requests.some(({ store, range }) => store && range.startsWith('bytes=0-')));
  rmSync(path.join(disk, 'hub'), { recursive: true });
  writeFileSync(path.join(disk, 'ballast'), Buffer.alloc(20 * MIB)); // 44 MiB are free: 36 and what stays free are too many
  const small = await pull(hub, disk, 'acme/big');
  assert.deepEqual([small.code, /acme\/big needs 0\.04 GB more, and .*blobs has 0\.05 GB free/.test(small.stderr)], [1, true], small.stderr);
});

longTest('two processes at once download once', async (t) => {
  const home = temporaryFolder(t);
  const files = weights(20 * MIB);
  const hub = await Hub.start(t, { 'acme/big': { files } });
  const results = await Promise.all([pull(hub, home, 'acme/big'), pull(hub, home, 'acme/big')]);
  assert.deepEqual(results.map(({ code }) => code), [0, 0], results.map(({ stderr }) => stderr).join());
  assert.equal(results[0].stdout, results[1].stdout);
  const asked = hub.requests.filter(({ store }) => store).map(({ range }) => range);
  assert.deepEqual([...asked].sort(), [...new Set(asked)].sort());
});

longTest('refusals: what a person has to do', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/gated': { files: weights(10), token: 'hf_good', gated: true }, 'acme/private': { files: weights(10), token: 'hf_good' },
    'acme/demo': { files: weights(10) }, 'acme/bin': { files: { ...tiny, 'pytorch_model.bin': 'x' } }, 'acme/data': { files: { 'data.csv': 'x' } } });
  const bad = { HF_TOKEN: 'hf_bad' };
  const cases = [
    ['acme/gated', {}, /acme\/gated is gated: accept its terms at .*\/acme\/gated with your account, then set HF_TOKEN/],
    ['acme/gated', bad, /acme\/gated is gated: accept its terms at .*\/acme\/gated .* use a token \(HF_TOKEN\) of that account/],
    ['acme/private', {}, /has no model acme\/private, or it is private or gated: set HF_TOKEN to a token that may read it/],
    ['acme/private', bad, /or it is private or gated: the token of HF_TOKEN may not read it/],
    ['acme/missing', {}, /has no model acme\/missing, or it is private/],
    ['acme/demo@v9', {}, /acme\/demo has no such revision/],
    ['acme/bin', {}, /only weights of PyTorch's format, which Parley does not load/],
    ['acme/data', {}, /acme\/data has no config\.json: it is no model/],
    ['acme/demo:Q8_0', {}, /acme\/demo has no GGUF files/],
  ];
  for (const [name, env, sentence] of cases) {
    const { code, stdout, stderr } = await pull(hub, home, name, { env });
    assert.deepEqual([code, stdout], [1, ''], name);
    assert.match(stderr, sentence, name);
    assert.doesNotMatch(stderr, /hf_(bad|good)/);
  }
  await pulled(hub, home, 'acme/gated', { env: { HF_TOKEN: 'hf_good' } });
  writeFileSync(path.join(home, 'token'), 'hf_good\n'); // as `hf auth login` keeps it
  await pulled(hub, home, 'acme/private');
  for (const name of ['demo', '/demo', 'a/b/c', 'a/..', '../b', 'a/b:', 'a/b@', 'a/b@../x', 'a/b:../x', 'a--b/c', 'a/b.git', 'a b/c', `${'a'.repeat(97)}/b`]) {
    const { code, stderr } = await pull(hub, home, name);
    assert.equal(code, 1, name);
    assert.match(stderr, /is no name of a model/);
  }
  for (const token of ['a b', 'a\nX-Evil: 1', 'é']) {
    const { code, stderr } = await pull(hub, home, 'acme/demo', { env: { HF_TOKEN: token } });
    assert.equal(code, 1);
    assert.match(stderr, /HF_TOKEN holds no token of the hub/);
  }
});

longTest('429: the time that the hub asks for is kept, unless it is too long', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/demo': { files: weights(10) } });
  let first = 0, second = 0;
  hub.rules.push((request, response) => {
    if (first === 0) {
      first = Date.now();
      hub.refuse(response, 429, undefined, 'slow down', { 'retry-after': '2' });
      return true;
    }
    second ||= Date.now();
    return false;
  });
  const { code, stderr } = await pull(hub, home, 'acme/demo');
  assert.equal(code, 0, stderr);
  assert.ok(second - first >= 1900, `${second - first} ms`);
  assert.match(stderr, /limits requests \(429\); with HF_TOKEN the limit is higher; the next try is in 2 s/);
  hub.rules[0] = (request, response) => (hub.refuse(response, 429, undefined, 'no', { 'retry-after': '86400' }), true);
  const long = await pull(hub, home, 'acme/demo');
  assert.equal(long.code, 1);
  assert.match(long.stderr, /limits requests \(429\).*: it asks to wait for 86400 seconds/);
});

longTest('hosts that lie: hashes, sizes, endless files and answers, names and redirects out', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/big': { files: weights(9 * MIB) }, 'acme/demo': { files: weights(10) } });
  const blobs = path.join(cacheOf(home, 'acme/big'), 'blobs');
  const listOf = (change) => (request, response, { store }) => {
    if (store || !request.url.startsWith('/api/')) return false;
    const commit = 'a'.repeat(40), siblings = [...Object.keys(tiny), 'model.safetensors'].map((rfilename) => ({ rfilename, size: 2, blobId: 'b'.repeat(40) }));
    response.end(JSON.stringify(change({ sha: commit, siblings })));
    return true;
  };
  const endless = (head) => (request, response, { store }) => {
    if (!store && head !== 'list') return false;
    response.writeHead(200, head === 'list' ? { 'content-type': 'application/json' } : {});
    const more = () => { while (!response.destroyed && response.write(Buffer.alloc(MIB, 32))); };
    response.on('drain', more).on('error', () => {});
    more();
    return true;
  };
  const stored = (answer) => (request, response, about) => about.store && (answer(request, response, about), true);
  const moved = (location) => (request, response, { store }) => !store && (response.writeHead(302, { location }).end(), true);
  const cases = [
    ['acme/big', stored((request, response, { file }) => sendBytes(request, response, Buffer.from(file.bytes).fill(7, 100, 200))),
      /model\.safetensors: what arrived has the SHA-256 [0-9a-f]{16}\.\.\., not [0-9a-f]{16}\.\.\.: it was removed/],
    ['acme/big', stored((request, response, { file }) => sendBytes(request, response, Buffer.concat([file.bytes, file.bytes]))), /has 18874368 bytes; the hub's list says 9437184/],
    ['acme/big', stored((request, response, { file }) => sendBytes(request, response, file.bytes.subarray(0, 100))), /has 100 bytes; the hub's list says 9437184|shorter than the hub's list/],
    ['acme/big', endless('file'), /what arrived has the SHA-256/],
    ['acme/big', endless('list'), /the hub's answer is longer than 32 MiB/],
    ['acme/big', stored((request, response) => response.writeHead(206, { 'content-range': 'bytes 5-9/9437184' }).end('01234')), /answers with other bytes than asked for/],
    ['acme/demo', listOf((list) => ({ ...list, siblings: [...list.siblings, { rfilename: '../../x', size: 1, blobId: 'c'.repeat(40) }] })), /a file named '\.\.\/\.\.\/x', which leaves its folder/],
    ['acme/demo', listOf((list) => ({ ...list, siblings: [{ ...list.siblings[0], blobId: '../../../x' }] })), /no size or no hash of the file config\.json/],
    ['acme/demo', listOf((list) => ({ ...list, sha: '../../x' })), /names no commit/],
    ['acme/demo', listOf((list) => ({ ...list, siblings: [...list.siblings, list.siblings[0]] })), /has the file config\.json twice/],
    ['acme/demo', listOf(() => [1]), /the hub's answer/],
    ['acme/demo', listOf((list) => ({ ...list, siblings: list.siblings.map((one) => ({ ...one, size: 2 ** 44 })) })), /acme\/demo needs 52776\.56 GB more, and .*blobs has .* GB free/],
    ['acme/demo', moved('http://example.invalid/x'), /http is refused/],
    ['acme/demo', moved('file:///etc/passwd'), /is no https address/],
    ['acme/demo', moved('/again'), /too many redirects/],
    ['acme/demo', (request, response) => (response.socket.write('HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n'), true), /a redirect without an address/],
  ];
  for (const [name, rule, sentence] of cases) {
    hub.rules = [rule];
    const { code, stdout, stderr } = await pull(hub, home, name);
    assert.deepEqual([code, stdout], [1, ''], String(sentence));
    assert.match(stderr, sentence);
  }
  assert.deepEqual(readdirSync(home).sort(), ['hub']);
  hub.rules = [];
  await pulled(hub, home, 'acme/big');
  assert.deepEqual(readdirSync(blobs).filter((blob) => blob.includes('incomplete')), []);
});

longTest('an index of weights that names what is not there, or what is elsewhere', async (t) => {
  const home = temporaryFolder(t);
  const index = (name) => JSON.stringify({ weight_map: { x: name } });
  const cases = [['model-1.safetensors', /model-1\.safetensors, which .* names, is missing/], ['../../x.safetensors', /names '\.\.\/\.\.\/x\.safetensors', which is no plain file/],
    ['pytorch_model.bin', /is no plain file of weights/]];
  for (const [name, sentence] of cases) {
    const hub = await Hub.start(t, { 'acme/i': { files: { ...tiny, 'model.safetensors.index.json': index(name) } } });
    const { code, stderr } = await pull(hub, home, 'acme/i');
    assert.equal(code, 1);
    assert.match(stderr, sentence);
  }
});

longTest('addresses, and being offline', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/demo': { files: weights(10) } });
  const refused = async (env, sentence) => {
    const { code, stderr } = await pull(hub, home, 'acme/demo', { env });
    assert.equal(code, 1);
    assert.match(stderr, sentence);
  };
  await refused({ HF_ENDPOINT: 'http://hub.example.org' }, /HF_ENDPOINT is http:\/\/hub\.example\.org: http is refused/);
  await refused({ HF_ENDPOINT: 'ftp://127.0.0.1' }, /HF_ENDPOINT is no https address/);
  await refused({ HF_ENDPOINT: 'https://user:word@127.0.0.1' }, /HF_ENDPOINT is no https address/);
  await refused({ HF_HUB_OFFLINE: '1' }, /HF_HUB_OFFLINE is set/);
  await refused({ http_proxy: 'http://127.0.0.1:1', no_proxy: '' }, /the list of files from .*: (Couldn't|Could not) connect/);
  await refused({ HOME: '', HF_HOME: '', XDG_CACHE_HOME: '' }, /no folder for models: set HF_HOME or HOME/);
  assert.equal(hub.requests.length, 0);
  // The same folders as Python's tools have: HF_HUB_CACHE before HF_HOME before XDG_CACHE_HOME before HOME.
  const folders = [[{ HF_HUB_CACHE: path.join(home, 'a') }, 'a'], [{ HF_HOME: '', XDG_CACHE_HOME: path.join(home, 'b') }, 'b/huggingface/hub'],
    [{ HF_HOME: '', XDG_CACHE_HOME: '', HOME: home }, '.cache/huggingface/hub'], [{ HF_HOME: '~/h', HOME: home }, 'h/hub']];
  for (const [env, folder] of folders) assert.ok((await pulled(hub, home, 'acme/demo', { env })).startsWith(path.join(home, folder, 'models--')));
});

longTest('https: a certificate has to hold; no redirect leads to http', async (t) => {
  const home = temporaryFolder(t);
  const [key, cert] = ['key.pem', 'cert.pem'].map((name) => path.join(home, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', cert,
    '-days', '2', '-subj', '/CN=hub', '-addext', 'subjectAltName=IP:127.0.0.1'], { stdio: 'ignore' });
  const files = weights(9 * MIB), hub = await Hub.start(t, { 'acme/big': { files } }, { tls: { key: readFileSync(key), cert: readFileSync(cert) } });
  const unknown = await pull(hub, home, 'acme/big');
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /the list of files from https:.*(certificate|peer)/i);
  assert.equal(hub.requests.length, 0);
  const folder = await pulled(hub, home, 'acme/big', { env: { CURL_CA_BUNDLE: cert } });
  assert.ok(readFileSync(path.join(folder, 'model.safetensors')).equals(files['model.safetensors']));
  const plain = await Hub.start(t, { 'acme/demo': { files: weights(10) } });
  hub.rules.push((request, response) => (response.writeHead(302, { location: plain.url }).end(), true));
  const { code, stderr } = await pull(hub, home, 'acme/demo', { env: { CURL_CA_BUNDLE: cert } });
  assert.deepEqual([code, /a redirect from https to an address that is not/.test(stderr), plain.requests.length], [1, true, 0], stderr);
});

longTest('on a terminal a bar shows rate and time left; a pipe gets the path alone', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/big': { files: weights(32 * MIB) } });
  hub.rules.push((request, response, { store, file }) => {
    if (store) setTimeout(() => sendBytes(request, response, file.bytes), 700);
    return store;
  });
  const child = spawn('script', ['-qec', `${parley} models pull acme/big`, '/dev/null'], { env: { ...process.env, ...hub.env(home) }, stdio: ['ignore', 'pipe', 'pipe'] });
  let seen = '', said = '';
  child.stdout.setEncoding('utf8').on('data', (text) => { seen += text; });
  child.stderr.setEncoding('utf8').on('data', (text) => { said += text; });
  const code = await new Promise((resolve) => child.once('error', () => resolve('none')).once('close', resolve));
  if (code === 'none' || /pseudo-?terminal|openpty/i.test(said)) return t.skip('no pseudo-terminal to be had here');
  assert.equal(code, 0, seen);
  assert.match(seen, /\r\[#+\.+\] 0\.\d\d of 0\.03 GB, \d+\.\d MB\/s, 0:\d\d left/);
  assert.match(seen, /\r\x1b\[K\/.*snapshots/); // the bar goes, the path stays
  const again = await pull(hub, temporaryFolder(t), 'acme/big');
  assert.equal(again.stderr, '');
});

test('list and remove', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/g': { files: { 'm-Q4_0.gguf': 'aa', 'm-Q8_0.gguf': 'bbbb', 'copy-F16.gguf': 'aa' } } });
  const env = hub.env(home);
  const commit = hub.put('acme/demo', { files: weights(100), branch: 'main' });
  hub.put('acme/demo', { files: { ...tiny, 'model.safetensors': 'new' }, branch: 'next' });
  for (const name of ['acme/g:Q4_0', 'acme/g:Q8_0', 'acme/g:F16', 'acme/demo', 'acme/demo@next']) await pulled(hub, home, name);
  const list = async () => (await json(['models', 'list', '--json'], { env })).models;
  const before = await list();
  assert.deepEqual(before.map(({ name, format, bytes }) => [name, format, bytes]).sort(), [['acme/demo', 'safetensors', 104], ['acme/demo@next', 'safetensors', 7],
    ['acme/g:F16', 'gguf', 2], ['acme/g:Q4_0', 'gguf', 2], ['acme/g:Q8_0', 'gguf', 4]]);
  assert.equal(before.find(({ name }) => name === 'acme/demo').commit, commit);
  assert.ok(before.every((one) => existsSync(one.path)));
  const remove = async (name) => (await json(['models', 'remove', name, '--json'], { env })).bytes;
  assert.equal(await remove('acme/g:Q4_0'), 0); // the other link to the same bytes stays whole
  assert.equal(readFileSync(before.find(({ name }) => name === 'acme/g:F16').path, 'utf8'), 'aa');
  assert.equal(await remove('acme/g:F16'), 2);
  assert.equal(await remove('acme/demo@next'), 3); // the small files are main's too
  assert.deepEqual((await list()).map(({ name }) => name).sort(), ['acme/demo', 'acme/g:Q8_0']);
  assert.equal(await remove('acme/g:Q8_0'), 4);
  assert.equal(await remove('acme/demo'), 102); // two files are the same blob
  assert.deepEqual(readdirSync(path.join(home, 'hub')).filter((name) => name !== '.locks'), []);
  assert.deepEqual(readdirSync(path.join(home, 'hub/.locks')), []);
  const { code, stderr } = await run(['models', 'remove', 'acme/demo'], { env });
  assert.deepEqual([code, /acme\/demo is not in the cache/.test(stderr)], [1, true]);
  for (const [args, sentence] of [[['pull'], /pull takes a name/], [['list', 'x'], /list takes no name/], [[], /the action is missing/], [['push', 'x'], /unknown action 'push'/]]) {
    const usage = await run(['models', ...args], { env });
    assert.equal(usage.code, 2);
    assert.match(usage.stderr, sentence);
  }
});

test('the list says what the formats of folders of few bits are called; a folder that does not load is listed too', async (t) => {
  const home = temporaryFolder(t);
  const weights4 = { num_bits: 4, type: 'int', symmetric: true, strategy: 'group', group_size: 128 };
  const configs = {
    'acme/w4': { quant_method: 'compressed-tensors', format: 'pack-quantized', config_groups: { group_0: { targets: ['Linear'], weights: weights4 } } },
    'acme/gptq': { quant_method: 'gptq', bits: 4, group_size: 128, desc_act: false, sym: true },
    'acme/odd': { quant_method: 'nobody-knows' },
  };
  const hub = await Hub.start(t, Object.fromEntries(Object.entries(configs).map(([name, of]) =>
    [name, { files: { ...tiny, 'config.json': JSON.stringify({ quantization_config: of }), 'model.safetensors': name } }])));
  const env = hub.env(home);
  for (const name of Object.keys(configs)) await pulled(hub, home, name);
  const { models } = await json(['models', 'list', '--json'], { env });
  assert.deepEqual(models.map(({ name, format, weight_format: called }) => [name, format, called]).sort(),
    [['acme/gptq', 'safetensors', 'GPTQ-Int4'], ['acme/odd', 'safetensors', undefined], ['acme/w4', 'safetensors', 'W4A16']]);
  assert.match((await run(['models', 'list'], { env })).stdout, /acme\/w4 +safetensors, W4A16 +0\.00 GB/);
});

longTest('what is being downloaded is not removed', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/big': { files: weights(2 * MIB) } });
  let release;
  hub.rules.push((request, response, { store, file }) => {
    if (store) release = () => sendBytes(request, response, file.bytes);
    return store;
  });
  const pulling = pull(hub, home, 'acme/big');
  await until('the request', () => release);
  const { code, stderr } = await run(['models', 'remove', 'acme/big'], { env: hub.env(home) });
  assert.deepEqual([code, /another process is downloading acme\/big/.test(stderr)], [1, true], stderr);
  release();
  assert.equal((await pulling).code, 0);
});
