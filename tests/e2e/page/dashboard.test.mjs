// The server at a glance: live figures from /metrics, requested only while the view is shown.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { connected, newContext, newPage, openPage, prepareSession, Server, sharedServer, until } from './browser.mjs';
import { longTest, root, shortTest as test, temporaryFolder } from '../harness.mjs';
import { filesOf, Hub } from '../hub.mjs';
import { run } from '../run.mjs';
import { byLabel, mean, parseHistory, parseMetrics, quantile, ratePerSecond, total } from '../../../web/src/metrics.js';

const server = await sharedServer();

longTest('it follows the server while it is shown', async (t) => {
  const { client, id } = await prepareSession(t, server);
  const page = await openPage(t, server);
  let asked = 0;
  page.on('request', (request) => request.url().endsWith('/metrics') && asked++);
  await page.click('.connection');
  await page.waitForSelector('.tile:has-text("Sessions in memory") dd');
  assert.equal(new URL(page.url()).hash, '#/server');
  const figure = (tile, name) =>
    page.evaluate(
      ([title, key]) => {
        const one = [...document.querySelectorAll('.tile')].find((e) => e.querySelector('h2').textContent === title);
        const dt = [...one.querySelectorAll('dt')].find((e) => e.textContent === key);
        return dt?.nextElementSibling.textContent ?? '';
      },
      [tile, name],
    );
  const rate = () => page.locator('.plot-legend b').first().innerText();
  assert.match(await figure('Server', 'demo-model'), /parameters, cpu/);
  assert.match(await figure('Instances', 'demo-model'), /^serving · \d+ running/);
  await page.waitForFunction(() => document.querySelector('.plot-legend b').textContent === '0/s');
  let seen = '';
  const talking = (async () => { // again and again: each rate is shown for two seconds alone
    while (!seen) await client.turn(id, 'Write hello world in C.');
  })();
  await until('a rate', async () => (seen = /^[1-9][\d.]*\/s$/.exec(await rate())?.[0]));
  await talking;
  const cacheInUse = async () => Number(/cache ([\d.]+)%$/.exec(await figure('Instances', 'demo-model'))[1]);
  await until('its cache in the line of the only instance', async () => (await cacheInUse()) > 0);
  await until('the session at rest', async () => (await figure('Sessions in memory', 'idle')) === '1');
  const residents = page.locator('.tile:has-text("Sessions over time") .plot-legend');
  await until('a session in the plot', async () => /idle 1\b/.test(await residents.innerText()));
  assert.equal(await page.locator('.item.current').count(), 0, 'no session is shown');
  const points = await page.locator('.plot-line.plot-0').first().getAttribute('points');
  assert.ok(points.split(' ').length >= 2, points);
  assert.equal(await page.locator('.plot-axis').first().innerText().then((text) => text.replace(/\s+/g, ' ')), '5 min ago now');
  // Another session, and it is not asked any more; the address leads back.
  await page.click('.new-button');
  await page.waitForSelector('.suggestion:visible');
  assert.equal(await page.isVisible('.dashboard'), false);
  const before = asked;
  await client.turn(id, 'What is 17 + 25?');
  await page.waitForTimeout(2500);
  assert.ok(asked <= before + 1, `${asked - before} more requests`);
  await page.goBack();
  await page.waitForSelector('.dashboard:visible');
  await until('another request', () => asked > before + 1);
  // What happened before and meanwhile is drawn at its time, from the server's own samples.
  const times = (await page.locator('.plot-line.plot-0').nth(2).getAttribute('points')).split(' ').map((point) => Number(point.split(',')[0]));
  assert.equal(times.at(-1), 300);
  const pause = Math.max(...times.slice(1).map((x, i) => x - times[i]));
  assert.ok(pause < 12, `no gap: ${pause} s of 300`);
});

test('a page that opens at it shows the turn before it', async (t) => {
  const { client, id } = await prepareSession(t, server);
  await client.turn(id, 'Write hello world in C.');
  const page = await openPage(t, server, { hash: '#/server' });
  await page.waitForSelector('.tile dd');
  const heights = (tile, line) =>
    page.locator(`.tile:has(h2:text-is("${tile}")) .plot-line.plot-${line}`).evaluate((one) => one.getAttribute('points').split(' ').map((point) => Number(point.split(',')[1])));
  for (const line of [0, 1]) assert.ok(Math.min(...(await heights('Tokens per second', line))) < 60, 'a peak');
  assert.ok((await heights('Time to first token, last minute', 0)).length >= 1);
});

test('each instance has its line, and their caches are not added up', async (t) => {
  const two = await Server.start(t, { args: ['--instances', '2'] });
  const { client, id } = await prepareSession(t, two);
  const page = await openPage(t, two, { hash: '#/server' });
  const lines = () => page.locator('.tile:has(h2:text-is("Instances")) dd').allTextContents();
  await until('both instances', async () => (await lines()).length === 2);
  for (const line of await lines()) assert.match(line, /^demo-model · serving · 0 running · 0 waiting · 0\/s · 0 sessions cached · cache 0/);
  await client.turn(id, 'What is 17 + 25?');
  await until('one has the session', async () => (await lines()).filter((line) => line.includes('1 session cached')).length === 1);
});

longTest('the models in the cache are listed with format and size', async (t) => {
  const home = temporaryFolder(t);
  const hub = await Hub.start(t, { 'acme/demo': { files: filesOf(path.join(root, 'configs/demo-model')) } });
  const env = hub.env(home);
  const { code, stderr } = await run(['models', 'pull', 'acme/demo'], { env });
  assert.equal(code, 0, stderr);
  const page = await openPage(t, await Server.start(t, { env }), { hash: '#/server' });
  const row = page.locator('.tile:has(h2:text-is("Models in the cache")) dl > div');
  await row.waitFor();
  assert.match(await row.innerText(), /^acme\/demo\s+safetensors, [\d.]+ MiB$/);
});

longTest('where tokens are in use it is an administrator’s', async (t) => {
  const tokens = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(tokens, 'anna:correct-horse-battery\nroot:battery-horse-correct admin\n', { mode: 0o600 });
  const guarded = await Server.start(t, { args: ['--token-file', tokens] });
  for (const [token, shown] of [['correct-horse-battery', '.banner:has-text("Only an administrator")'], ['battery-horse-correct', '.tile dd']]) {
    const page = await newPage(t, await newContext(t), { expected: [/status of 403/] });
    await page.goto(`${guarded.url}/#/server`);
    await page.fill('#token', token);
    await page.click('.token-dialog button[type=submit]');
    await connected(page);
    await page.waitForSelector(`.dashboard ${shown}`);
    assert.equal(await page.isVisible('.tiles'), shown === '.tile dd');
    await page.close();
  }
});

longTest('on a narrow screen the sessions give way to it', async (t) => {
  const page = await openPage(t, server, { viewport: { width: 390, height: 800 } });
  await page.click('.header [data-toggle=sidebar]');
  await page.waitForSelector('#sidebar', { state: 'visible' });
  await page.click('.connection');
  await page.waitForSelector('#sidebar', { state: 'hidden' });
  await page.waitForSelector('.tile:visible');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 390));
});

test('the samples of the server are read with their times', () => {
  const [first, last, ...others] = parseHistory('# age_s 5.000\na 1\n# age_s 0.250\na 3\n');
  assert.deepEqual([total(first, 'a'), total(last, 'a'), others], [1, 3, []]);
  assert.ok(Math.abs(last.at - first.at - 4.75) < 0.1);
  assert.deepEqual(parseHistory(''), []);
});

test('the text of the metrics is read as it is written', () => {
  const text = '# HELP a b\n# TYPE a counter\na{x="1",y="q\\"}"} 3\na{x="2"} 4.5\nb 1e3\nh_bucket{le="1"} 2\nh_bucket{le="2"} 4\nh_bucket{le="+Inf"} 4\n';
  const now = { at: 2, values: parseMetrics(text) };
  assert.deepEqual(now.values.get('a'), [{ labels: { x: '1', y: 'q"}' }, value: 3 }, { labels: { x: '2' }, value: 4.5 }]);
  assert.deepEqual([total(now, 'a'), total(now, 'a', { x: '2' }), total(now, 'b'), total(now, 'none')], [7.5, 4.5, 1000, 0]);
  assert.deepEqual([mean(now, 'a'), mean(now, 'none')], [3.75, 0]);
  assert.deepEqual(byLabel(now, 'a', 'x'), [['1', 3], ['2', 4.5]]);
  assert.deepEqual([quantile(undefined, now, 'h', 0.5), quantile(undefined, now, 'h', 0.75)], [1, 1.5]);
  assert.ok(Number.isNaN(quantile(now, now, 'h', 0.5)), 'nothing was counted between them');
  assert.equal(ratePerSecond({ at: 0, values: parseMetrics('b 400') }, now, 'b'), 300);
  assert.equal(ratePerSecond({ at: 0, values: parseMetrics('b 4000') }, now, 'b'), 0, 'the server has started again');
});
