// The page's weight as it goes over the wire, and how often it goes.
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import http from 'node:http';
import { test } from 'node:test';
import { connected, newContext, newPage, sharedServer } from './browser.mjs';

/** The built page: what it loads on demand is listed there alone. */
const BUILT = new URL('../../../build/web/', import.meta.url);
const FIRST = 90000; // what the first view takes
/** What is loaded later, each with its limit. The libraries load with their first use alone. */
const LATER = { de: 15000, panels: 34000, highlight: 26000, formulas: 66000, pdf: 560000 };
const server = await sharedServer();

/** Bytes of an answer's body before any decoding. */
const fetchRaw = (path, headers = {}) =>
  new Promise((resolve, reject) => {
    http
      .get(`${server.url}${path}`, { headers: { 'accept-encoding': 'gzip', ...headers } }, (answer) => {
        let bytes = 0;
        answer
          .on('data', (chunk) => (bytes += chunk.length))
          .on('end', () => resolve({ bytes, answer }))
          .on('error', reject);
      })
      .on('error', reject);
  });

test('the first view is under 90 kB compressed, and what is loaded later has its limits', async (t) => {
  const page = await newPage(t, await newContext(t, { fresh: true }));
  const paths = new Set();
  page.on('response', (response) => paths.add(new URL(response.url()).pathname));
  await page.goto(server.url);
  await connected(page);
  await page.waitForFunction(() => ['panels', 'highlight'].every((part) => performance.getEntriesByType('resource').some(({ name }) => name.includes(`/${part}-`))));
  await page.request.get(`${server.url}/favicon.svg`);
  paths.add('/favicon.svg');
  assert.ok(paths.has('/') && paths.has('/app.js'));
  const named = (path) => Object.keys(LATER).find((name) => path.startsWith(`/${name}-`));
  assert.deepEqual([...paths].map(named).filter(Boolean).sort(), ['highlight', 'panels'], 'libraries are not loaded in advance');
  for (const path of readdirSync(BUILT)) if (named(`/${path}`)) paths.add(`/${path}`);
  const later = Object.fromEntries(Object.keys(LATER).map((name) => [name, 0]));
  let first = 0;
  const tiny = [];
  for (const path of paths) {
    const { bytes, answer } = await fetchRaw(path);
    assert.equal(answer.statusCode, 200, path);
    assert.equal(answer.headers['content-encoding'], 'gzip', path);
    assert.equal(answer.headers['cache-control'], /-[A-Z0-9]{8}\.js$/.test(path) ? 'max-age=31536000, immutable' : 'no-cache', path);
    if (named(path)) later[named(path)] += bytes;
    else first += bytes;
    if (path.endsWith('.js') && bytes < 1000) tiny.push(path);
    // The second time nothing of it goes.
    const again = await fetchRaw(path, { 'if-none-match': answer.headers.etag });
    assert.deepEqual([again.answer.statusCode, again.bytes], [304, 0], path);
  }
  t.diagnostic(`${paths.size} files, ${first} bytes for the first view, later ${JSON.stringify(later)}`);
  assert.ok(first < FIRST, `${first} bytes for the first view`);
  assert.deepEqual(tiny, [], 'requests for next to nothing');
  for (const [name, most] of Object.entries(LATER)) assert.ok(later[name] > 0 && later[name] < most, `${name}: ${later[name]} bytes`);
});
