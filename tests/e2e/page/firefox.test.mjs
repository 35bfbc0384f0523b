// The page in Firefox, where one is installed: what differs between engines, from the first paint to a restart.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, connected, copiedAnswers, ENDLESS, openPage, prepareSession, say, sessionOf, settled, sharedServer, streamed, turnsOf, useFirefox } from './browser.mjs';
import { firefoxPath } from './browser_path.mjs';
import { longConversation, scrollUp } from './reading.mjs';

useFirefox();
const skip = firefoxPath() ? false : 'no Firefox here: not run';
const server = skip ? null : await sharedServer();

test('the page is painted and talks; what it says is copied; the policy forbids none of it', { skip }, async (t) => {
  const page = await openPage(t, server);
  assert.match(await page.evaluate(() => navigator.userAgent), /Firefox\//);
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).overflow), 'hidden', 'the style inside index.html');
  assert.equal(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint').length), 1);
  assert.match(await ask(page, 'My name is Zora.'), /Zora/);
  assert.match(await ask(page, 'What is my name?'), /Zora/);
  assert.deepEqual(await copiedAnswers(page), (await turnsOf(server, sessionOf(page))).map((turn) => turn.text));
});

test('an answer streams on through a reload, Stop keeps it, and a message is edited from the keyboard', { skip }, async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}`, expected: [/interrupted while the page was loading/] });
  await say(page, 'Tell me a story about a fox.');
  await streamed(page, 80);
  await page.reload();
  await connected(page);
  await streamed(page, 120);
  await page.press('#message', 'Escape');
  await settled(page, 1);
  const [turn] = await turnsOf(server, id);
  assert.equal(turn.finish_reason, 'cancelled');
  assert.ok(turn.text.length >= 120);
  await page.press('#message', 'ArrowUp');
  const line = await page.locator('.editor-text').evaluate((area) => area.clientHeight);
  await page.press('.editor-text', 'Shift+Enter');
  await page.keyboard.type('and a crow');
  assert.ok((await page.locator('.editor-text').evaluate((area) => area.clientHeight)) > 1.5 * line, 'the editor grows');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.versions:visible');
  await streamed(page, 10);
  await page.press('#message', 'Escape');
  await settled(page, 1);
  assert.equal(await page.locator('.bubble').innerText(), 'Tell me a story about a fox.\nand a crow');
});

test('what one reads stays in its place while turns above it are completed', { skip }, async (t) => {
  const page = await longConversation(t, server);
  const { completed, moved } = await scrollUp(page);
  assert.ok(completed > 3, `${completed} turns were completed`);
  assert.deepEqual(moved, []);
});

test('settings keep the focus inside and give it back', { skip }, async (t) => {
  const page = await openPage(t, server);
  await page.focus('.sidebar-foot [aria-label=Settings]');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.settings[open]');
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press('Tab');
    assert.ok(await page.evaluate(() => document.activeElement.closest('.settings')));
  }
  await page.keyboard.press('Escape');
  await page.waitForSelector('.settings', { state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Settings');
});
