// Sharing a chat by a link: the dialog of its owner, and the page of a reader who has no token.
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { longTest, shortTest as test, temporaryFolder } from '../harness.mjs';
import { allowClipboard, newContext, newPage, openPage, prepareSession, Server, soon, unhurried } from './browser.mjs';


const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
async function axeFindsNothing(page, where) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(violations.map(({ id, nodes }) => `${where}: ${id}: ${nodes.map((n) => `${n.target} ${n.failureSummary}`).join(' | ')}`), []);
}

const answer = '# Colours\n\nRed and **blue**:\n\n```js\nconst red = 1;\n```\n';

/** A session of the server's with two written turns. */
async function prepared(t, server, fields = {}) {
  const { client, id } = await prepareSession(t, server, { title: 'Two colours', ...fields });
  await client.request({ type: 'turn.write', session: id, input: { content: 'Which <b>colours</b>?' }, text: answer });
  await client.request({ type: 'turn.write', session: id, input: { content: 'And then?' }, text: '<think>private</think>Green.' });
  return { client, id };
}

async function openDialog(page, id) {
  await page.hover(`.item[data-id="${id}"]`);
  await page.click(`.item[data-id="${id}"] .item-menu`);
  await page.click('.menu-item:text-is("Share…")');
  await page.waitForSelector('.share-dialog');
}

/** What a reader finds at an address, in a browser of its own. */
async function reader(t, url, options = {}) {
  const page = await newPage(t, await newContext(t, options), { expected: [/404/], ...options });
  const paths = [];
  page.on('request', (request) => paths.push(new URL(request.url()).pathname));
  await page.goto(url);
  await page.waitForFunction(() => /read only|zum Lesen|no longer|busy/.test(document.querySelector('.shared-state')?.textContent ?? ''));
  return { page, paths };
}

test('an owner makes a link, another browser reads the chat by it, and the owner takes it back', async (t) => {
  const folder = temporaryFolder(t);
  const file = path.join(folder, 'tokens');
  writeFileSync(file, 'alice:alice-token-0123456789\n');
  chmodSync(file, 0o600);
  const server = await Server.start(t, { args: [...unhurried, '--sharing', '--token-file', file] });
  const client = await server.connect({ token: 'alice-token-0123456789' });
  const id = await client.open({ title: 'Two colours' });
  await client.request({ type: 'turn.write', session: id, input: { content: 'Which <b>colours</b>?' }, text: answer });
  await client.request({ type: 'turn.write', session: id, input: { content: 'And then?' }, text: '<think>private</think>Green.' });
  const page = await newPage(t, await newContext(t));
  await allowClipboard(page);
  await page.goto(`${server.url}/#s=${id}`);
  await page.fill('.token-dialog input', 'alice-token-0123456789');
  await page.keyboard.press('Enter');
  await page.waitForSelector(`.item[data-id="${id}"]`);

  await openDialog(page, id);
  assert.equal(await page.locator('.share-link').count(), 0);
  await page.click('.share-dialog button:text-is("Make a link")');
  const link = await page.inputValue('.share-link');
  assert.match(link, new RegExp(`^${server.url}/#/shared/[0-9a-f]{64}$`));
  await page.click('.share-dialog button:has-text("Copy link")');
  await page.waitForSelector('.share-dialog [role=status]:text-is("Link copied.")');
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), link);
  await page.keyboard.press('Escape');
  await page.waitForSelector(`.item[data-id="${id}"] .icon-share`);

  const { page: other, paths } = await reader(t, link);
  assert.equal(await other.innerText('h1'), 'Two colours');
  assert.equal(await other.title(), 'Two colours · Parley');
  await soon(async () => assert.equal(await other.locator('.turn').count(), 2));
  assert.deepEqual(await other.locator('.bubble').allInnerTexts(), ['Which <b>colours</b>?', 'And then?']);
  assert.equal(await other.innerText('.turn:nth-child(1) .prose :is(h1, h2, h3, h4)'), 'Colours');
  assert.equal((await other.innerText('.turn:nth-child(2) .prose')).trim(), 'Green.');
  assert.ok(!(await other.innerText('body')).includes('private'));
  for (const absent of ['.composer', '.sidebar', '.token-dialog', '[data-action=edit]', '[data-action=regenerate]'])
    assert.equal(await other.locator(absent).count(), 0, absent);
  assert.ok(!paths.some((one) => /^\/ws|#/.test(one)), 'no connection');
  assert.equal(paths.filter((one) => one.startsWith('/share/')).length, 1);
  await allowClipboard(other);
  const [saved] = await Promise.all([other.waitForEvent('download'), other.click('[data-action=save-code]')]);
  assert.equal(saved.suggestedFilename(), 'code.js');
  await other.click('[data-action=copy-code]');
  await soon(async () => assert.equal(await other.evaluate(() => navigator.clipboard.readText()), 'const red = 1;'));

  await openDialog(page, id);
  assert.equal(await page.inputValue('.share-link'), link, 'this browser knows the link');
  await page.click('.share-dialog button:text-is("Take the link back")');
  await page.waitForSelector('.share-dialog button:text-is("Make a link")');
  await page.waitForSelector(`.item[data-id="${id}"] .icon-share`, { state: 'detached' });
  await other.reload();
  await other.waitForSelector('.shared-state:has-text("no longer shared")');
  assert.equal(await other.innerText('h1'), 'Nothing is shared here');
  assert.equal(await other.locator('.turn').count(), 0);
});

longTest('the page of a reader speaks German, is dark, fits 320 pixels, and has no barrier', async (t) => {
  const server = await Server.start(t, { args: [...unhurried, '--sharing'] });
  const { client, id } = await prepared(t, server);
  const { token } = await client.request({ type: 'session.share', session: id });
  const { page } = await reader(t, `${server.url}/#/shared/${token}`, { locale: 'de-DE', colorScheme: 'dark', viewport: { width: 320, height: 640 } });
  await soon(async () => assert.equal(await page.locator('.turn').count(), 2));
  assert.match(await page.innerText('.shared-state'), /^Geteilter Chat, nur zum Lesen/);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
  const dark = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).every((part) => part < 80));
  assert.ok(dark);
  await axeFindsNothing(page, 'dark');
  const { page: light } = await reader(t, `${server.url}/#/shared/${token}`, { colorScheme: 'light' });
  await soon(async () => assert.equal(await light.locator('.turn').count(), 2));
  await axeFindsNothing(light, 'light');
});

longTest('a chat that was shared elsewhere gets a new link; where sharing is off, none is offered', async (t) => {
  const server = await Server.start(t, { args: [...unhurried, '--sharing'] });
  const { client, id } = await prepared(t, server);
  const { token } = await client.request({ type: 'session.share', session: id });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.waitForSelector(`.item[data-id="${id}"] .icon-share`);
  await openDialog(page, id);
  await page.waitForSelector('.share-dialog :text("known only where it was made")');
  await axeFindsNothing(page, 'dialog');
  await page.click('.share-dialog button:text-is("Make a new link")');
  await page.waitForSelector('.share-link');
  assert.ok(!(await page.inputValue('.share-link')).includes(token));
  await axeFindsNothing(page, 'dialog with a link');
  assert.equal((await fetch(`${server.url}/share/${token}`)).status, 404);

  const without = await Server.start(t, { args: unhurried });
  const { id: plain } = await prepared(t, without);
  const other = await openPage(t, without, { hash: `#s=${plain}` });
  await other.hover(`.item[data-id="${plain}"]`);
  await other.click(`.item[data-id="${plain}"] .item-menu`);
  await other.waitForSelector('.menu-item:text-is("Copy link")');
  assert.equal(await other.locator('.menu-item:text-is("Share…")').count(), 0);
});

longTest('a long chat comes in parts, as its reader goes on', async (t) => {
  const server = await Server.start(t, { args: [...unhurried, '--sharing'] });
  const page = await newPage(t, await newContext(t));
  const asked = [];
  const part = (input, more) => ({ title: 'Long', turns: [{ input, answer: 'Yes.\n\n'.repeat(100) }, ...more] });
  await page.route('**/share/**', (route) => {
    const from = new URL(route.request().url()).searchParams.get('from');
    asked.push(from);
    // The second part begins with what continues the answer that the first one ends with.
    const json = from ? { title: 'Long', turns: [{ answer: 'And so on.', continues: true }, { input: 'Last', answer: 'Yes.' }] } : { ...part('First', [{ input: 'Second', answer: 'No.' }]), next: 2 };
    return route.fulfill({ json });
  });
  await page.goto(`${server.url}/#/shared/${'a'.repeat(64)}`);
  await page.waitForSelector('.shared-more');
  assert.deepEqual(await page.locator('.bubble').allTextContents(), ['First', 'Second']);
  await axeFindsNothing(page, 'more to come');
  assert.deepEqual(asked, [null]);
  await page.locator('.scroller').evaluate((scroller) => scroller.scrollTo(0, scroller.scrollHeight));
  await soon(async () => assert.deepEqual(await page.locator('.bubble').allTextContents(), ['First', 'Second', 'Last']));
  assert.equal((await page.locator('.turn .prose').nth(1).textContent()).trim(), 'No.And so on.');
  await page.waitForSelector('.shared-more', { state: 'hidden' });
  assert.deepEqual(asked, [null, '2']);
});
