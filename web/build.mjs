// Builds the page into a flat folder that the server embeds: index.html with the style and boot.js inside, app.js,
// favicon.svg, what an installed page needs (manifest.webmanifest, icon.svg), licenses.txt, and the chunks of the script that app.js imports, at its start or later (src/late.js). A chunk's name
// contains a hash, so a page that is open while the server is updated never mixes two builds. The same sources and lock
// file give the same bytes.
// usage: node web/build.mjs OUT
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = path.dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) {
  console.error('usage: node web/build.mjs OUT');
  process.exit(2);
}

/** What the bundle carries of others' work, with the notices that their licences ask for. */
function licences() {
  const read = (file) => readFileSync(path.join(here, file), 'utf8').trim();
  const apache = readFileSync(path.join(here, '../LICENSE'), 'utf8').trim();
  const version = (name) => JSON.parse(read(`node_modules/${name}/package.json`)).version;
  const rule = `\n\n${'-'.repeat(78)}\n\n`;
  return (
    [
      'The chat page of Parley is under the Apache License 2.0 (the last text below). Its script\nalso holds these works:',
      `highlight.js ${version('highlight.js')}\n\n${read('node_modules/highlight.js/LICENSE')}`,
      `marked ${version('marked')}\n\n${read('node_modules/marked/LICENSE')}`,
      `Temml ${version('temml')}\n\n${read('node_modules/temml/LICENSE')}`,
      `pdf.js (pdfjs-dist ${version('pdfjs-dist')})\nCopyright Mozilla Foundation and contributors. Under the Apache License 2.0.`,
      `DOMPurify ${version('dompurify')}\nCopyright 2025 Dr.-Ing. Mario Heiderich, Cure53\nTaken under the Apache License 2.0.`,
      apache,
    ].join(rule) + '\n'
  );
}

/** What boot.js imports, in this order, each in a task of its own. */
const STARTS = { sanitize: 'src/render/sanitize.js', parser: 'marked', render: 'src/render/markdown.js', app: 'src/main.js' };

/**
 * What is built into another file: into index.html, where a request of its own would hold up the first paint, or into the chunk
 * that needs it.
 * @param {string} file @param {import('esbuild').BuildOptions} options
 */
async function inlined(file, options) {
  const { outputFiles } = await build({ absWorkingDir: here, entryPoints: [file], write: false, minify: true, logLevel: 'warning', ...options });
  return outputFiles[0].text.trim();
}
const styleOf = (file) => inlined(file, { bundle: true, target: ['chrome123', 'firefox120', 'safari17.5'] });
/** A style sheet that a module imports is its text (view/panels.js). */
const styleAsText = { name: 'style', setup: ({ onLoad }) => onLoad({ filter: /\.css$/ }, async ({ path }) => ({ contents: await styleOf(path), loader: 'text' })) };

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const script = await build({
  absWorkingDir: here,
  entryPoints: STARTS,
  outdir: path.resolve(out),
  chunkNames: '[name]-[hash]',
  splitting: true,
  plugins: [styleAsText],
  charset: 'utf8',
  metafile: true,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022'],
  legalComments: 'none',
  logLevel: 'warning',
});
const style = await styleOf('src/style/app.css');
const { outputs } = script.metafile;
// esbuild puts its helpers into a chunk of 600 bytes, which every entry imports, used or not. What takes something from them
// gets a copy instead: no request goes for next to nothing.
const helpers = Object.keys(outputs).find((file) => !outputs[file].entryPoint && !Object.keys(outputs[file].inputs).length);
if (helpers) {
  const renamed = (names) => names.split(',').map((name) => name.split(' as '));
  const body = readFileSync(path.join(here, helpers), 'utf8').trim().replace(/export\{([^}]*)\};$/, (_, names) => `return{${renamed(names).map(([own, as]) => `${as}:${own}`)}}`);
  const import_ = new RegExp(`import(?:\\{([^}]*)\\}from)?"\\./${path.basename(helpers)}";`);
  rmSync(path.join(here, helpers));
  delete outputs[helpers];
  for (const [file, { imports }] of Object.entries(outputs)) {
    const text = readFileSync(path.join(here, file), 'utf8');
    writeFileSync(path.join(here, file), text.replace(import_, (_, names) => (names ? `const{${renamed(names).map(([as, own]) => `${as}:${own}`)}}=(()=>{${body}})();` : '')));
    outputs[file].imports = imports.filter((chunk) => chunk.path !== helpers);
  }
}
// A start whose module other chunks import, too, is a file of some 200 bytes that only imports the module's chunk: boot.js
// gets the chunk instead.
const starts = Object.keys(STARTS).map((name) => {
  const entry = Object.keys(outputs).find((file) => path.basename(file) === `${name}.js`);
  const source = outputs[entry].entryPoint;
  const chunk = Object.keys(outputs).find((file) => outputs[file].inputs[source]?.bytesInOutput > 0);
  if (chunk !== entry) rmSync(path.join(here, entry));
  return chunk;
});
const plain = await inlined('src/boot.js', { bundle: false, target: ['es2022'] });
const boot = plain.replace(JSON.stringify(Object.keys(STARTS)), JSON.stringify(starts.map((file) => path.basename(file, '.js'))));
if (boot === plain) throw new Error('boot.js does not name the starts of the script');
writeFileSync(path.join(out, 'licenses.txt'), licences());
// The PNG icons are icon.svg as Chromium draws it in 180, 192 and 512 pixels.
for (const name of ['favicon.svg', 'icon.svg', 'icon-180.png', 'icon-192.png', 'icon-512.png', 'manifest.webmanifest']) copyFileSync(path.join(here, 'src', name), path.join(out, name));

/** The chunks that a file of the script needs at its start. @param {string} file @returns {string[]} */
const needs = (file) =>
  outputs[file].imports.filter(({ kind }) => kind === 'import-statement').flatMap((chunk) => [chunk.path, ...needs(chunk.path)]);
const later = (name) => `<link rel="later" href="${name}">`; // boot.js loads them
const page = readFileSync(path.join(here, 'src/index.html'), 'utf8');
const files = [...new Set(starts.flatMap((file) => [file, ...needs(file)]))].map((file) => later(path.basename(file)));
// index.html last: make takes it as the sign that the page is whole.
writeFileSync(
  path.join(out, 'index.html'),
  page
    .replace('<link rel="stylesheet" href="app.css">', () => `<style>${style}</style>`)
    .replace('<script src="boot.js"></script>', () => `<script>${boot}</script>`)
    .replace(later('app.js'), () => files.join('\n')),
);

let total = 0, first = 0;
for (const name of readdirSync(out).sort()) {
  const bytes = readFileSync(path.join(out, name));
  const packed = gzipSync(bytes, { level: 9 }).length;
  if (name !== 'licenses.txt') total += packed; // only a link leads there
  if (files.includes(later(name)) || ['index.html', 'favicon.svg'].includes(name)) first += packed;
  console.log(
    `  ${name.padEnd(22)} ${String(bytes.length).padStart(7)} bytes, ${String(packed).padStart(6)} compressed`,
  );
}
console.log(`  the page ${total} bytes compressed, its first view ${first}`);
