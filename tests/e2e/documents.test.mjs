// The documents: their links and the paths in "I want to change X" exist, the protocol's examples are those of its
// schema, and the READMEs' programs run.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, root, Server, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';
import { complaint, schema } from './schema.mjs';

const SKIPPED = new Set(['node_modules', 'build', '.git', 'shared']);
function documents(folder = root) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const name = path.join(folder, entry.name);
    if (entry.isDirectory()) return SKIPPED.has(entry.name) ? [] : documents(name);
    return entry.name.endsWith('.md') ? [name] : [];
  });
}
const read = (file) => readFileSync(file, 'utf8');

/** Anchors of a document's headings, as the hosts of such files make them. */
const anchors = (file) => read(file).split('\n').filter((line) => /^#+ /.test(line))
  .map((line) => line.replace(/^#+ /, '').toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replace(/ /g, '-'));

test('every link of every document leads to a file, and its anchor to a heading', () => {
  const broken = [];
  for (const file of documents()) {
    for (const [, target] of read(file).replace(/```.*?```/gs, '').matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const [name, anchor] = target.split('#');
      const to = name ? path.resolve(path.dirname(file), name) : file;
      if (!existsSync(to) || (anchor && !anchors(to).includes(anchor))) broken.push(`${path.relative(root, file)}: ${target}`);
    }
  }
  assert.deepEqual(broken, []);
});

/** The tables whose head begins with "I want to change" or "to change", or that stand below such a heading. */
function tables(text) {
  const found = [];
  let inside = false, heading = '';
  for (const line of text.split('\n')) {
    if (/^#/.test(line)) heading = line;
    if (!line.startsWith('|')) inside = false;
    else if (/want to change|^\| to change/i.test(line) || (/want to change/i.test(heading) && !inside)) inside = true;
    if (inside) found.push(line);
  }
  return found;
}

test('what "I want to change X" says to open is there', () => {
  const missing = [];
  for (const file of documents()) {
    for (const row of tables(read(file))) {
      for (const [, name] of row.matchAll(/`([\w.\/-]+\/|[\w.\/-]+\.(?:c|h|cu|cuh|mjs|js|md|json|ini))`/g)) {
        if (![root, path.dirname(file)].some((folder) => existsSync(path.join(folder, name))))
          missing.push(`${path.relative(root, file)}: ${name}`);
      }
    }
  }
  assert.deepEqual(missing, []);
  assert.ok(tables(read(path.join(root, 'README.md'))).length > 8, 'the README has no such table');
});

test('PROTOCOL.md has an example of each message of the schema, and the schema takes each example; its lines fit 120 columns', () => {
  const protocol = read(path.join(root, 'ws/PROTOCOL.md'));
  const parts = [...protocol.matchAll(/```\n(.*?)```/gs)]
    .flatMap(([, block]) => block.split(/^(?=->|<-|[A-Z]+ = )/m));
  const objects = {}; // those that stand for themselves in examples
  for (const part of parts) {
    const [, name, text] = /^([A-Z]+) = (.*)$/s.exec(part) ?? [];
    if (name) objects[name] = JSON.parse(text);
  }
  const { system, below, ...CHANGED } = objects.SESSION;
  Object.assign(objects, { CHANGED, LISTED: { ...CHANGED, system_start: system } });
  const shown = new Set();
  for (const part of parts) {
    const [, arrow, text] = /^(->|<-) (.*)$/s.exec(part) ?? [];
    if (!arrow) continue;
    const message = JSON.parse(text.replace(/\b[A-Z]{4,}\b(?=[\]},])/g, (name) => JSON.stringify(objects[name])));
    const side = arrow === '->' ? 'client' : 'server';
    assert.equal(complaint(side, message), null);
    shown.add(`${side}.${message.type}`);
  }
  assert.deepEqual(protocol.split('\n').filter((line) => line.length > 120), []);
  const types = Object.keys(schema.$defs).filter((name) => /^(client|server)\./.test(name));
  assert.deepEqual(types.filter((type) => !shown.has(type)), []);
});

test('the README fits two minutes', () => {
  assert.ok(read(path.join(root, 'README.md')).split('\n').length <= 151);
});

/** What a program of a document says; it must end well. */
async function runProgram(t, server, program) {
  const file = path.join(temporaryFolder(t), 'example.mjs');
  const packages = { ws: 'ws/wrapper.mjs', '@anthropic-ai/sdk': '@anthropic-ai/sdk/index.mjs', openai: 'openai-6/index.mjs', 'openai/resources/responses/ws': 'openai-6/resources/responses/ws.mjs' };
  const resolved = program.replace(/from '([^']+)'/g, (_, name) => `from '${path.join(root, 'tests/e2e/node_modules', packages[name])}'`);
  writeFileSync(file, resolved.replaceAll('127.0.0.1:8080', `127.0.0.1:${server.port}`));
  const child = spawn(process.execPath, [file], { stdio: ['ignore', 'pipe', 'inherit'] });
  let said = '';
  child.stdout.on('data', (bytes) => { said += bytes; });
  assert.equal(await new Promise((resolve) => child.once('close', resolve)), 0, program);
  return said;
}
const programs = (name) => [...read(path.join(root, name)).matchAll(/```js\n(.*?)```/gs)].map(([, program]) => program);

test("the README's program holds a conversation", async (t) => {
  const server = await Server.start(t);
  assert.match(await runProgram(t, server, programs('README.md')[0]), /Zora/);
});

longTest("the programs and commands of the protocols' READMEs run as they stand", async (t) => {
  const server = await Server.start(t, { args: unlimited });
  // What each of them says at its end: tokens that were not computed again, or the conversation's items.
  const ends = { 'ws/openai/README.md': [/ [1-9]\d*\n$/, / [1-9]\d*\n$/, /\S/, /role: 'assistant'/], 'ws/anthropic/README.md': [/ [1-9]\d*\n$/] };
  for (const [name, expected] of Object.entries(ends)) {
    assert.equal(programs(name).length, expected.length, name);
    for (const [i, program] of programs(name).entries())
      await t.test(`${name}, ${i + 1}`, async () => assert.match(await runProgram(t, server, program), expected[i]));
  }
  for (const name of ['ws/openai/README.md', 'ws/llamacpp/README.md'])
    for (const [, address, body] of read(path.join(root, name)).matchAll(/^curl (?:-s )?localhost:8080(\S+) -d '([^']+)'/gm)) {
      const reply = await fetch(server.url + address, { method: 'POST', body });
      assert.equal(reply.status, 200, `${address}: ${await reply.text()}`);
    }
});
