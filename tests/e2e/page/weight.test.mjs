// The page's weight as it goes over the wire, and how often it goes.
import assert from 'node:assert/strict';
import http from 'node:http';
import { test } from 'node:test';
import { connected, newContext, newPage, sharedServer } from './browser.mjs';

const MOST = 120000;
const FIRST = 85000; // of those, what the first view takes
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

test('all of the page is under 120 kB compressed, and what the first view takes under 85 kB', async (t) => {
  const page = await newPage(t, await newContext(t));
  const paths = new Set();
  page.on('response', (response) => paths.add(new URL(response.url()).pathname));
  await page.goto(server.url);
  await connected(page);
  await page.waitForFunction(() => ['panels', 'highlight'].every((part) => performance.getEntriesByType('resource').some(({ name }) => name.includes(`/${part}-`))));
  await page.request.get(`${server.url}/favicon.svg`);
  paths.add('/favicon.svg');
  assert.ok(paths.has('/') && paths.has('/app.js'));
  let total = 0, first = 0;
  for (const path of paths) {
    const { bytes, answer } = await fetchRaw(path);
    assert.equal(answer.statusCode, 200, path);
    assert.equal(answer.headers['content-encoding'], 'gzip', path);
    assert.equal(answer.headers['cache-control'], /-[A-Z0-9]{8}\.js$/.test(path) ? 'max-age=31536000, immutable' : 'no-cache', path);
    total += bytes;
    if (!/\/(panels|highlight)-/.test(path)) first += bytes;
    // The second time nothing of it goes.
    const again = await fetchRaw(path, { 'if-none-match': answer.headers.etag });
    assert.deepEqual([again.answer.statusCode, again.bytes], [304, 0], path);
  }
  t.diagnostic(`${paths.size} files, ${total} bytes, ${first} of them for the first view`);
  assert.ok(total < MOST && first < FIRST, `${total} bytes, ${first} for the first view`);
});
