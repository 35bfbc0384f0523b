// Builds the page into a flat folder that the server embeds: index.html, app.js, app.css, boot.js, favicon.svg and
// licenses.txt. The same sources and lock file give the same bytes.
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
      `DOMPurify ${version('dompurify')}\nCopyright 2025 Dr.-Ing. Mario Heiderich, Cure53\nTaken under the Apache License 2.0.`,
      apache,
    ].join(rule) + '\n'
  );
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: 'src/main.js' },
  outfile: path.resolve(out, 'app.js'),
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022'],
  legalComments: 'none',
  logLevel: 'warning',
});
await build({
  absWorkingDir: here,
  entryPoints: ['src/style/app.css'],
  outfile: path.resolve(out, 'app.css'),
  bundle: true,
  minify: true,
  target: ['chrome123', 'firefox120', 'safari17.5'],
  logLevel: 'warning',
});
writeFileSync(path.join(out, 'licenses.txt'), licences());
// index.html last: make takes it as the sign that the page is whole.
for (const name of ['favicon.svg', 'boot.js', 'index.html'])
  copyFileSync(path.join(here, 'src', name), path.join(out, name));

let total = 0;
for (const name of readdirSync(out).sort()) {
  const bytes = readFileSync(path.join(out, name));
  const packed = gzipSync(bytes, { level: 9 }).length;
  total += packed;
  console.log(
    `  ${name.padEnd(14)} ${String(bytes.length).padStart(7)} bytes, ${String(packed).padStart(6)} compressed`,
  );
}
console.log(`  page           ${total} bytes compressed`);
