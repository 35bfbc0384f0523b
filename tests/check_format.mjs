// Checks what a reader sees of the sources before reading them:
// - C files and kernels are as clang-format 14 writes them (.clang-format; `make format`);
// - no declaration is torn: a type alone on its line and its declarator on the next. clang-format does that where a
//   comment behind the declarator is too long; the comment belongs above it;
// - a banner (`// --- eviction`) is one line, and no other comment follows directly;
// - no file has more than 600 lines, except generated *_tables.c.
//
// usage: check_format.mjs [TOP]         each fault as FILE:LINE: sentence; exit 1 when there is one
//        check_format.mjs --self-check  only the check of the checker, which each run begins with: plants faults in a
//                                       temporary tree and expects each to be found
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HOME = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const FOLDERS = ['base', 'kernels', 'kvcache', 'engine', 'sessions', 'ws', 'web', 'tests', 'configs'];
const MOST_LINES = 600;
const CLANG_FORMAT = 'clang-format-14'; // another version formats otherwise
// Places whose faults are being fixed.
const TOLERATED = [];

function filesOf(top) {
  const found = [];
  const walk = (folder) => {
    for (const entry of readdirSync(path.join(top, folder), { withFileTypes: true })) {
      const name = `${folder}/${entry.name}`;
      if (entry.isDirectory() && !['node_modules', 'build', 'corpus'].includes(entry.name)) walk(name);
      else if (entry.isFile() && /\.(c|h|cu|cuh|inc|m?js|css|sh|py)$/.test(name)) found.push(name);
    }
  };
  FOLDERS.filter((folder) => existsSync(path.join(top, folder))).forEach(walk);
  return found.sort();
}

const isComment = (line = '') => /^\s*\/\//.test(line);
const isBanner = (line) => /^\s*\/\/ ---+ /.test(line);
/** A line of words and asterisks alone that begins a declaration, and no statement of one word. */
const isTypeAlone = (line) => /^\s*(?!(?:else|do|return)\s*$)[A-Za-z_][\w\s*]*$/.test(line);
const isDeclarator = (line = '') => /^\s+\**\s*[A-Za-z_]\w*(\[[^\]]*\])*\s*[;,=]/.test(line);
/** Whether a declaration may begin behind this line. */
const isEnd = (line = '') => /^\s*$|[;{}:]\s*(\/\/.*)?$/.test(line) || isComment(line);

/** The faults of a C file's lines, as [line, sentence]. */
function faultsOfC(lines) {
  const faults = [];
  lines.forEach((line, i) => {
    if (isBanner(line) && isComment(lines[i + 1]))
      faults.push([i + 1, 'a banner is one line: put an empty line or code behind it']);
    if (isTypeAlone(line) && isDeclarator(lines[i + 1]) && isEnd(lines[i - 1]))
      faults.push([i + 1, 'the declaration is torn: put the comment behind it above it']);
  });
  return faults;
}

/**
 * The files of which clang-format would change something. The hashes of those that it would leave stay in build/formatted,
 * so that the next run asks for changed files alone.
 */
function unformatted(top, files) {
  const version = spawnSync(CLANG_FORMAT, ['--version'], { encoding: 'utf8' }).stdout;
  const style = `${version}${readFileSync(path.join(top, '.clang-format'))}`;
  const hash = (file) => createHash('sha256').update(style).update(readFileSync(path.join(top, file))).digest('base64');
  const hashes = new Map(files.map((file) => [file, hash(file)])), kept = path.join(top, 'build/formatted');
  const before = new Set(existsSync(kept) ? readFileSync(kept, 'utf8').split('\n') : []);
  const found = new Set(), some = files.filter((file) => !before.has(hashes.get(file)));
  for (let i = 0; i < some.length; i += 100) {
    const run = spawnSync(CLANG_FORMAT, ['--dry-run', ...some.slice(i, i + 100)], { cwd: top, encoding: 'utf8', maxBuffer: 1 << 28 });
    if (run.error || run.status !== 0) throw new Error(`${CLANG_FORMAT} failed: ${run.error?.message ?? run.stderr}`);
    for (const [, file] of run.stderr.matchAll(/^(.+?):\d+:\d+: warning: code should be clang-formatted/gm)) found.add(file);
  }
  mkdirSync(path.dirname(kept), { recursive: true });
  writeFileSync(kept, files.filter((file) => !found.has(file)).map((file) => hashes.get(file)).join('\n'));
  return [...found];
}

/** All faults of a tree, as "FILE:LINE: sentence". */
function faultsOf(top) {
  const faults = [], sources = [];
  for (const file of filesOf(top)) {
    if (TOLERATED.some((place) => file.startsWith(place))) continue;
    const lines = readFileSync(path.join(top, file), 'utf8').split('\n');
    if (lines.length - 1 > MOST_LINES && !/_tables\.c$/.test(file))
      faults.push(`${file}:${MOST_LINES + 1}: ${lines.length - 1} lines, at most ${MOST_LINES}: cut the file along its data`);
    if (!/\.(c|h|cu|cuh|inc)$/.test(file)) continue;
    faults.push(...faultsOfC(lines).map(([line, sentence]) => `${file}:${line}: ${sentence}`));
    if (!/\.inc$/.test(file)) sources.push(file);
  }
  faults.push(...unformatted(top, sources).map((file) => `${file}:1: differs from clang-format's: make format`));
  return faults;
}

// --- the check of the checker

function selfCheck() {
  const top = mkdtempSync(path.join(tmpdir(), 'parley-format-'));
  copyFileSync(path.join(HOME, '.clang-format'), path.join(top, '.clang-format'));
  const plant = (what, want, text, name = 'base/x.c') => {
    rmSync(path.join(top, 'base'), { recursive: true, force: true });
    spawnSync('mkdir', [path.join(top, 'base')]);
    writeFileSync(path.join(top, name), text);
    const faults = faultsOf(top);
    const found = want === null ? faults.length === 0 : faults.some((fault) => fault.startsWith(`${name}:${want}: `));
    if (!found) throw new Error(`check_format.mjs: ${what}: want ${want}, found ${JSON.stringify(faults)}`);
  };
  const long = 'x'.repeat(70);
  try {
    plant('a file of another format', 1, 'int  x;\n');
    plant('a kernel of another format', 1, 'int  x;\n', 'base/x.cu');
    plant('a file of the format', null, 'int x;\n');
    plant('the same, changed to another format', 1, 'int  x;\n');
    plant('the same once more', 1, 'int  x;\n');
    plant('a type alone on its line', 2, `struct x {\n    const char\n        *template; // ${long} ${long}\n};\n`);
    plant('a torn initialiser', 2, `void f(void) {\n    const float\n        magic = 1;\n}\n`);
    plant('a banner over two lines', 1, '// --- a long banner that goes on\n// in the next line\nint x;\n');
    plant('a banner over two lines in a kernel', 1, '// --- a long banner\n// goes on\nint x;\n', 'base/x.cu');
    plant('601 lines', 601, 'int x;\n'.repeat(601));
    plant('601 lines of JavaScript', 601, 'f();\n'.repeat(601), 'base/x.mjs');
    plant('a generated table of 601 lines', null, 'int x;\n'.repeat(601), 'base/x_tables.c');
    plant('600 lines', null, 'int x;\n'.repeat(600));
    plant('a banner by itself', null, '// --- a banner\n\n// A comment.\nint x;\n');
    plant('statements of one word', null, 'int f(int x) {\n    if (x)\n        x = 1;\n    else\n        x = 2;\n    return x;\n}\n'.replace('if (x)\n        x = 1;', 'if (x > 1)\n        x = 1;'));
  } finally {
    rmSync(top, { recursive: true, force: true });
  }
}

selfCheck();
if (process.argv[2] === '--self-check') {
  console.log('check_format.mjs: every planted fault was found');
} else {
  const faults = faultsOf(process.argv[2] ?? HOME);
  faults.forEach((fault) => console.log(fault));
  process.exit(faults.length > 0 ? 1 : 0);
}
