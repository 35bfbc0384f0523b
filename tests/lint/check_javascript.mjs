// Checks that JavaScript here runs on the oldest Node that package.json names (Debian 12's and Ubuntu 24.04's: 18) and
// on the browsers that web/build.mjs names: what is newer is refused (eslint.config.mjs). Every package.json of ours
// names the same Node. What is imported or defined and not used is refused, too.
//
// usage: check_javascript.mjs               each fault as FILE:LINE: sentence; exit 1 when there is one
//        check_javascript.mjs --self-check  only the check of the checker, which each run begins with: plants features
//                                           and expects each to be refused
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { ESLint } from 'eslint';

const here = path.dirname(fileURLToPath(import.meta.url));
const top = path.join(here, '../..');
const PACKAGES = ['web', 'tests/e2e', 'tests/e2e/page/chromium', 'tests/bench', 'tests/lint'];
const config = { cwd: top, overrideConfigFile: path.join(here, 'eslint.config.mjs') };
const eslint = new ESLint(config);

// Source and the file that it stands in; the first ones are refused, the others pass.
const NODE = 'tests/e2e/planted.mjs', PAGE = 'web/src/planted.js';
const REFUSED = [
  [NODE, "'x'.isWellFormed();"], [NODE, '[].toReversed();'], [NODE, '[].toSorted();'], [NODE, '[].toSpliced(0);'],
  [NODE, 'Array.fromAsync([]);'], [NODE, 'Promise.withResolvers();'], [NODE, 'Object.groupBy([], String);'],
  [NODE, 'Map.groupBy([], String);'], [NODE, 'new Set().union(new Set());'], [NODE, '/[a--b]/v.test("a");'],
  [NODE, "import x from './x.json' with { type: 'json' };\nx();"], [NODE, 'import.meta.dirname;'],
  [NODE, "import { glob } from 'node:fs/promises';\nglob();"], [NODE, "new WebSocket('ws://localhost');"],
  [NODE, "import { test } from 'node:test';"], [NODE, 'const planted = 1;'],
  [PAGE, 'Object.groupBy([], String);'], [PAGE, 'Promise.withResolvers();'], [PAGE, "'x'.isWellFormed();"],
  ['web/build.mjs', '[].toSorted();'], ['tests/check_planted.mjs', '[].toSorted();'], ['tests/bench/x.mjs', '[].toSorted();'],
];
const PASSES = [
  [NODE, '[1].findLast(Boolean);'], [NODE, '[1].at(-1);'], [NODE, '[1].map(String);'], [NODE, "structuredClone('x');"],
  [NODE, "fetch('http://localhost');"], [NODE, "import { test } from 'node:test';\ntest();"], [PAGE, '[].toSorted();'],
  ['tests/e2e/page/planted.mjs', 'navigator.clipboard.readText();'], [PAGE, 'new WebSocket(location.href);'],
];

async function selfCheck() {
  for (const [cases, refused] of [[REFUSED, true], [PASSES, false]])
    for (const [filePath, source] of cases) {
      const [{ messages }] = await eslint.lintText(source, { filePath: path.join(top, filePath) });
      if (messages.length > 0 !== refused)
        throw new Error(`check_javascript.mjs: ${filePath}: '${source}' ${refused ? 'passed' : `was refused: ${messages[0].message}`}`);
    }
}

function enginesFaults() {
  const read = (folder) => JSON.parse(readFileSync(path.join(top, folder, 'package.json'), 'utf8')).engines?.node;
  const want = read('tests/lint');
  return PACKAGES.filter((folder) => read(folder) !== want).map((folder) => `${folder}/package.json:1: engines.node is not ${want}`);
}

await selfCheck();
if (process.argv[2] === '--self-check') {
  console.log('check_javascript.mjs: every planted fault was refused');
} else {
  // What ESLint found stays in build/eslint; the next run reads changed files alone.
  const cached = new ESLint({ ...config, cache: true, cacheLocation: path.join(top, 'build/eslint'), cacheStrategy: 'content' });
  const results = await cached.lintFiles(['web', 'tests']);
  const faults = results.flatMap(({ filePath, messages }) =>
    messages.map(({ line, message }) => `${path.relative(top, filePath)}:${line ?? 1}: ${message}`));
  faults.push(...enginesFaults());
  faults.forEach((fault) => console.log(fault));
  process.exit(faults.length > 0 ? 1 : 0);
}
