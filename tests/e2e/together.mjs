// Several files of tests in one process, one after the other: node, its imports and the browser start once for all of
// them. Each file keeps servers and folders of its own, which end with its last test. Behind each file stands a test
// `end of NAME`, by which the runner tells the files' results apart (run/groups.mjs).
// usage: node --test-reporter=tap together.mjs NAME=FILE...
import path from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import { endOfFile } from './harness.mjs';

// Files without servers wait for nothing that would keep the process alive until the next file is there.
const alive = setInterval(() => {}, 1e9);
// Once no test is left, node runs the hooks of the process's end, which ends 2 s later. So a test lasts until the first file
// has its tests, of which the last may end before the file's import does, and `end of NAME` until the next file has its.
let release;
const begun = new Promise((resolve) => { release = resolve; });
test(`begin of ${process.argv[2].split('=')[0]}`, () => begun);
for (const argument of process.argv.slice(2)) {
  const at = argument.indexOf('='), name = argument.slice(0, at);
  const failure = await import(pathToFileURL(path.resolve(argument.slice(at + 1)))).then(() => null, (error) => error);
  release();
  const next = argument === process.argv.at(-1) ? undefined : new Promise((resolve) => { release = resolve; });
  await new Promise((ended) => {
    test(`end of ${name}`, async () => {
      await endOfFile().finally(ended);
      await next;
      if (failure) throw failure;
    });
  });
}
clearInterval(alive);
