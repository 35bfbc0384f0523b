// One cache for Parley and Hugging Face's own tools: npm's @huggingface/hub reads what Parley wrote, and writes what
// Parley reads.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { downloadFileToCacheDir, scanCacheDir, snapshotDownload } from '@huggingface/hub';
import { root, temporaryFolder } from './harness.mjs';
import { filesOf, Hub } from './hub.mjs';
import { good, json, run } from './run.mjs';

const demo = filesOf(path.join(root, 'configs/demo-model'));
console.debug = () => {}; // the library's

test('@huggingface/hub finds in the cache what Parley downloaded', async (t) => {
  const home = temporaryFolder(t), cacheDir = path.join(home, 'hub');
  const hub = await Hub.start(t, { 'acme/g': { files: { 'm-Q8_0.gguf': 'bbbb' } } });
  const commit = hub.put('acme/demo', { files: demo });
  const env = hub.env(home);
  const folder = (await good(['models', 'pull', 'acme/demo'], { env })).trim();
  await good(['models', 'pull', 'acme/g:Q8_0'], { env });
  await good(['models', 'pull', `acme/demo@${commit}`], { env });
  const { repos, warnings } = await scanCacheDir(cacheDir);
  assert.deepEqual(warnings, []);
  const found = Object.fromEntries(repos.map((repo) => [repo.id.name, repo]));
  assert.deepEqual(Object.keys(found).sort(), ['acme/demo', 'acme/g']);
  const [revision] = found['acme/demo'].revisions;
  assert.deepEqual([revision.commitOid, revision.refs, revision.path], [commit, ['main'], folder]);
  for (const file of revision.files) assert.ok(readFileSync(file.path).equals(demo[path.basename(file.path)]), file.path);
  // Its own download finds all but the file that Parley has no use for.
  hub.requests.length = 0;
  assert.equal(await snapshotDownload({ repo: 'acme/demo', hubUrl: hub.url, cacheDir }), folder);
  assert.deepEqual([...new Set(hub.requests.map(({ url }) => url).filter((url) => url.includes('/resolve/')))], [`/acme/demo/resolve/${commit}/README.md`]);
  hub.requests.length = 0;
  const file = await downloadFileToCacheDir({ repo: 'acme/demo', path: 'config.json', revision: commit, hubUrl: hub.url, cacheDir });
  assert.ok(readFileSync(file).equals(demo['config.json']));
  assert.equal(hub.requests.length, 0);
  // A commit alone, as only its name was asked for.
  const other = temporaryFolder(t);
  await good(['models', 'pull', `acme/demo@${commit}`], { env: hub.env(other) });
  assert.deepEqual((await scanCacheDir(path.join(other, 'hub'))).warnings, []);
});

test('Parley finds in the cache what @huggingface/hub downloaded', async (t) => {
  const home = temporaryFolder(t), cacheDir = path.join(home, 'hub');
  const hub = await Hub.start(t, { 'acme/g': { files: { 'm-Q4_0.gguf': 'aa', 'm-Q8_0.gguf': 'bbbb' } } });
  const commit = hub.put('acme/demo', { files: demo });
  const env = hub.env(home);
  const folder = await snapshotDownload({ repo: 'acme/demo', hubUrl: hub.url, cacheDir });
  await downloadFileToCacheDir({ repo: 'acme/g', path: 'm-Q8_0.gguf', hubUrl: hub.url, cacheDir });
  hub.requests.length = 0;
  const { models } = await json(['models', 'list', '--json'], { env });
  const size = (names) => names.reduce((sum, name) => sum + demo[name].length, 0);
  const [first] = models;
  assert.deepEqual({ ...first, bytes: 0 }, { name: 'acme/demo', format: 'safetensors', bytes: 0, commit, path: folder });
  assert.equal(first.bytes, size(Object.keys(demo).filter((name) => name !== 'README.md')));
  assert.match(models[1].name, /^acme\/g:Q8_0@[0-9a-f]{40}$/); // downloadFileToCacheDir writes no ref
  assert.equal(hub.requests.length, 0);
  // Nothing is left to download but the list; offline not even that.
  assert.equal((await good(['models', 'pull', 'acme/demo'], { env })).trim(), folder);
  assert.equal(hub.requests.length, 1);
  assert.equal((await run(['models', 'pull', 'acme/g:Q8_0'], { env })).code, 0);
  assert.equal(hub.requests.filter(({ url }) => url.includes('/resolve/')).length, 0);
  await good(['models', 'remove', 'acme/demo'], { env });
  assert.deepEqual((await scanCacheDir(cacheDir)).repos.map(({ id }) => id.name), ['acme/g']);
  await good(['models', 'rm', 'acme/g'], { env });
  assert.equal(await good(['models', 'list'], { env }), `no models in ${cacheDir}\n`);
});
