// Checks that calls between the files of a layer run one way: a group of files that call each other in a circle is one
// module cut in slices. Two files may call each other, three at most; a larger circle is a fault. Between the folders of
// sessions/ no two may call each other (sessions/README.md, Rooms).
// A file calls another one of its layer where it names a function that the other one defines and exports.
//
// usage: check_cycles.mjs [TOP]         each fault with the calls that close it; exit 1 when there is one
//        check_cycles.mjs --self-check  only the check of the checker, which each run begins with: plants circles in
//                                       a temporary tree and expects each to be found
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const LAYERS = ['base', 'kernels', 'kvcache', 'engine', 'sessions', 'ws'];
const MOST = 3; // files in a circle
const ROOMED = ['sessions']; // layers whose folders call each other one way

/** The layer's sources, except programs: ws/cli sees everything and nothing calls it. */
function sources(top, layer) {
  const found = [];
  const walk = (folder) => {
    for (const entry of readdirSync(path.join(top, folder), { withFileTypes: true })) {
      const name = `${folder}/${entry.name}`;
      if (entry.isDirectory() && name !== 'ws/cli') walk(name);
      else if (entry.isFile() && /\.(c|cu)$/.test(name)) found.push(name);
    }
  };
  walk(layer);
  return found.sort();
}

/** The code alone: comments, literals and preprocessor lines are blank. */
function codeOf(text) {
  return text
    .replace(/\/\*[^]*?\*\/|\/\/(?:\\\n|[^\n])*|"(?:\\[^]|[^"\\\n])*"|'(?:\\[^]|[^'\\\n])*'/g, (match) => (match[0] === '/' ? ' ' : '""'))
    .replace(/^[ \t]*#(?:\\\n|[^\n])*/gm, '');
}

const skipParentheses = (text, from) => {
  let depth = 0;
  for (let i = from; i < text.length; i++) {
    if (text[i] === '(') depth++;
    if (text[i] === ')' && --depth === 0) return i + 1;
  }
  return text.length;
};

/** { name, isStatic } where the words before a brace are a function's head. */
function functionOf(head) {
  let words = head;
  for (let m; (m = /\b(?:__attribute__|__launch_bounds__|__declspec|alignas|_Alignas)\s*\(/.exec(words)); )
    words = words.slice(0, m.index) + words.slice(skipParentheses(words, m.index + m[0].length - 1));
  words = words.replace(/\btemplate\s*<[^{};]*?>(?=\s*[A-Za-z_])/g, ' ');
  // A macro that stands for a head has no type in front of it; an initialiser has an equals sign.
  const m = /^([^(=]*?)\b([A-Za-z_]\w*)\s*\(/.exec(words);
  if (!m || !/[A-Za-z_]\w*[\s*&]+$/.test(m[1])) return null;
  return { name: m[2], isStatic: /\bstatic\b/.test(m[1]) };
}

/** What a brace behind head opens: 'open' and 'hidden' blocks hold functions, a 'body' does not. */
function blockOf(head) {
  if (/^\s*namespace\s*$/.test(head)) return 'hidden';
  return /^\s*(extern\s*""|namespace\s+[\w:]+)\s*$/.test(head) ? 'open' : 'body';
}

/** The functions that code defines, outside of anything but `extern "C"` and namespaces. */
function functionsOf(code) {
  const functions = [], blocks = [];
  let head = '';
  for (const c of code) {
    const inBody = blocks.includes('body');
    if (c === '{') {
      const found = inBody || blockOf(head) !== 'body' ? null : functionOf(head);
      if (found) functions.push({ ...found, isStatic: found.isStatic || blocks.includes('hidden') });
      blocks.push(inBody ? 'body' : blockOf(head));
      head = '';
    } else if (c === '}') {
      blocks.pop();
      head = '';
    } else if (!inBody) {
      head = c === ';' ? '' : head + c;
    }
  }
  return functions;
}

/** file -> (file that it calls -> names). */
function callsOf(top, files) {
  const codes = new Map(files.map((file) => [file, codeOf(readFileSync(path.join(top, file), 'utf8'))]));
  const owners = new Map();
  const own = new Map();
  for (const [file, code] of codes) {
    const functions = functionsOf(code);
    own.set(file, new Set(functions.map(({ name }) => name)));
    for (const { name, isStatic } of functions) if (!isStatic && !owners.has(name)) owners.set(name, file);
  }
  const calls = new Map(files.map((file) => [file, new Map()]));
  for (const [file, code] of codes)
    for (const name of new Set(code.match(/\b[A-Za-z_]\w*/g))) {
      const owner = owners.get(name);
      if (!owner || owner === file || own.get(file).has(name)) continue; // a static function of its own has that name
      const names = calls.get(file).get(owner) ?? [];
      calls.get(file).set(owner, [...names, name]);
    }
  return calls;
}

/** Groups of files of which each reaches each other one (Tarjan's strongly connected components). */
function circlesOf(calls) {
  const index = new Map(), low = new Map(), onStack = new Set(), stack = [], circles = [];
  const visit = (file) => {
    index.set(file, index.size);
    low.set(file, index.get(file));
    stack.push(file);
    onStack.add(file);
    for (const other of calls.get(file).keys()) {
      if (!index.has(other)) {
        visit(other);
        low.set(file, Math.min(low.get(file), low.get(other)));
      } else if (onStack.has(other)) {
        low.set(file, Math.min(low.get(file), index.get(other)));
      }
    }
    if (low.get(file) !== index.get(file)) return;
    const circle = stack.splice(stack.indexOf(file)).sort();
    circle.forEach((member) => onStack.delete(member));
    if (circle.length > 1) circles.push(circle);
  };
  for (const file of calls.keys()) if (!index.has(file)) visit(file);
  return circles;
}

/** The calls between folders: folder -> (folder that it calls -> names). */
function callsOfFolders(calls) {
  const folders = new Map([...calls.keys()].map((file) => [path.dirname(file), new Map()]));
  for (const [file, called] of calls)
    for (const [to, names] of called) {
      const [from, other] = [path.dirname(file), path.dirname(to)];
      if (from !== other) folders.get(from).set(other, [...(folders.get(from).get(other) ?? []), ...names]);
    }
  return folders;
}

/** A sentence for each circle of more than `most`, with its calls. */
function circleFaults(layer, calls, most, what) {
  return circlesOf(calls)
    .filter((circle) => circle.length > most)
    .map((circle) => {
      const edges = circle.flatMap((from) =>
        [...calls.get(from)]
          .filter(([to]) => circle.includes(to))
          .map(([to, names]) => `    ${from} -> ${to}: ${names.sort().slice(0, 4).join(', ')}`));
      return [`${layer}: ${circle.length} ${what} call each other in a circle, ${most} at most:`, ...edges].join('\n');
    });
}

/** The faults of a layer, a text each. */
function faultsOf(top, layer, roomed = ROOMED) {
  const calls = callsOf(top, sources(top, layer));
  const faults = circleFaults(layer, calls, MOST, 'files');
  return roomed.includes(layer) ? [...faults, ...circleFaults(layer, callsOfFolders(calls), 1, 'folders')] : faults;
}

// --- the check of the checker

function selfCheck() {
  const top = mkdtempSync(path.join(tmpdir(), 'parley-cycles-'));
  const plant = (what, faulty, files, roomed = []) => {
    rmSync(path.join(top, 'base'), { recursive: true, force: true });
    mkdirSync(path.join(top, 'base/deep'), { recursive: true });
    for (const [name, text] of Object.entries(files)) writeFileSync(path.join(top, 'base', name), text);
    const faults = faultsOf(top, 'base', roomed);
    if ((faults.length > 0) !== faulty) throw new Error(`check_cycles.mjs: ${what} was ${faulty ? 'not found' : `found: ${faults}`}`);
  };
  const ring = { 'a.c': 'int a(void) { return b(); }', 'b.c': 'int b(void) { return c(); }', 'c.c': 'int c(void) { return d(); }' };
  try {
    plant('a circle of four files', true, { ...ring, 'd.c': 'int d(void) { return a(); }' });
    plant('a circle over folders', true, { ...ring, 'deep/d.c': 'int d(void) { return a(); }' });
    plant('a circle over a kernel', true, { ...ring, 'd.cu': 'extern "C" int d(void) { return a(); }' });
    plant('a function of a namespace', true, { ...ring, 'd.cu': 'namespace x {\nint d(void) { return a(); }\n}' });
    plant('a function in a table', true, { ...ring, 'd.c': 'static const struct t t = {.x = 1};\nint d(void) {\n int (*f)(void) = a; return f(); }' });
    plant('a head over two lines with attributes', true, { ...ring, 'd.c': '__attribute__((noinline)) const struct t *d(int x,\n int y) { return a(); }' });
    const pair = { 'a.c': 'int a(void) { return d(); }', 'deep/d.c': 'int d(void) { return b(); }', 'b.c': 'int b(void) { return 0; }' };
    plant('two folders that call each other', true, pair, ['base']);
    plant('two folders of a layer that is one room', false, pair);
    plant('a folder that another one calls', false, { ...pair, 'deep/d.c': 'int d(void) { return 0; }' }, ['base']);
    plant('a chain of four files', false, { ...ring, 'd.c': 'int d(void) { return 0; }' });
    plant('a circle of three files', false, { ...ring, 'c.c': 'int c(void) { return a(); }' });
    plant('a name in a comment', false, { ...ring, 'd.c': 'int d(void) { /* a() */ return 0; } // a()\nint e(void);' });
    plant('a name in a string', false, { ...ring, 'd.c': 'const char *d(void) { return "\\"a()"; }' });
    plant('a static function of the same name', false, { ...ring, 'd.c': 'static int a(void) { return 0; }\nint d(void) { return a(); }' });
    plant("another file's static function", false, { ...ring, 'a.c': 'static int a(void) { return b(); }', 'd.c': 'int d(void) { return a(); }' });
    plant('a prototype', false, { ...ring, 'a.c': 'int a(void);\nint x(void) { return b(); }', 'd.c': 'int d(void) { return a(); }' });
  } finally {
    rmSync(top, { recursive: true, force: true });
  }
}

selfCheck();
if (process.argv[2] === '--self-check') {
  console.log('check_cycles.mjs: every planted circle was found');
} else {
  const top = process.argv[2] ?? path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
  const faults = LAYERS.flatMap((layer) => faultsOf(top, layer));
  faults.forEach((fault) => console.log(fault));
  process.exit(faults.length > 0 ? 1 : 0);
}
