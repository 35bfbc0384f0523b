// The page in Firefox, where one is installed: what differs between engines, from the first paint to a restart.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { ask, connected, copiedAnswers, ENDLESS, newContext, newPage, openPage, prepareSession, say, sessionOf, settled, sharedServer, soon, streamed, turnsOf, until, useFirefox } from './browser.mjs';
import { firefoxPath } from './browser_path.mjs';
import { FakeSession } from './fake_session.mjs';
import { longConversation, scrollUp } from './reading.mjs';

useFirefox();
const skip = firefoxPath() ? false : 'no Firefox here: not run';
const server = skip ? null : await sharedServer();

test('the page is painted and talks; what it says is copied; the policy forbids none of it', { skip }, async (t) => {
  const page = await openPage(t, server);
  assert.match(await page.evaluate(() => window.navigator.userAgent), /Firefox\//);
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).overflow), 'hidden', 'the style inside index.html');
  assert.equal(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint').length), 1);
  assert.match(await ask(page, 'My name is Zora.'), /Zora/);
  assert.match(await ask(page, 'What is my name?'), /Zora/);
  assert.deepEqual(await copiedAnswers(page), (await turnsOf(server, sessionOf(page))).map((turn) => turn.text));
});

longTest('an answer streams on through a reload, Stop keeps it, and a message is edited from the keyboard', { skip }, async (t) => {
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
  await soon(async () => assert.ok((await page.locator('.editor-text').evaluate((area) => area.clientHeight)) > 1.5 * line, 'the editor grows'));
  await page.keyboard.press('Enter');
  await page.waitForSelector('.versions:visible');
  await streamed(page, 10);
  await page.press('#message', 'Escape');
  await settled(page, 1);
  assert.equal(await page.locator('.bubble').innerText(), 'Tell me a story about a fox.\nand a crow');
});

longTest('what one reads stays in its place while turns above it are completed', { skip }, async (t) => {
  const page = await longConversation(t, server);
  const { completed, moved } = await scrollUp(page);
  assert.ok(completed > 3, `${completed} turns were completed`);
  assert.deepEqual(moved, []);
});

longTest('the view follows an answer, and stays where its reader scrolls to; a selection lasts', { skip }, async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await fake.begin('Write a lot.');
  let written = 0;
  const write = async () => {
    for (const end = written + 60; written < end; written++) fake.delta(`Paragraph ${written}.\n\n`);
    await page.waitForFunction((last) => document.querySelector('.turn .prose').textContent.includes(last), `Paragraph ${written - 1}.`);
  };
  const place = () => page.locator('.scroller').evaluate(({ scrollTop, scrollHeight, clientHeight }) => [scrollTop, scrollHeight - scrollTop - clientHeight]);
  await write();
  await until('the end in sight', async () => (await place())[1] < 2);
  await page.locator('.scroller').evaluate((scroller) => (scroller.scrollTop -= 300));
  await page.waitForSelector('.jump:visible');
  await page.locator('.prose p').nth(50).evaluate((paragraph) => getSelection().selectAllChildren(paragraph));
  const [top] = await place();
  await write();
  assert.equal((await place())[0], top);
  assert.equal(await page.evaluate(() => String(getSelection())), 'Paragraph 50.');
  await page.click('.jump');
  await until('the end in sight', async () => (await place())[1] < 48);
  fake.done();
  await settled(page, 1);
});

longTest('without storage the page works', { skip }, async (t) => {
  const page = await newPage(t, await newContext(t));
  await page.addInitScript(() => {
    for (const name of ['localStorage', 'sessionStorage'])
      Object.defineProperty(window, name, {
        get() {
          throw new DOMException('refused', 'SecurityError');
        },
      });
  });
  await page.goto(server.url);
  await connected(page);
  assert.match(await ask(page, 'My name is Zora.'), /Zora/);
});

longTest('settings keep the focus inside and give it back', { skip }, async (t) => {
  const page = await openPage(t, server);
  await page.focus('.header [aria-label=Settings]');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.settings[open]');
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press('Tab');
    await soon(async () => assert.ok(await page.evaluate(() => document.activeElement.closest('.settings'))));
  }
  await page.keyboard.press('Escape');
  await page.waitForSelector('.settings', { state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Settings');
});

longTest('the page itself never scrolls: an edited message and its versions stay within the conversation', { skip }, async (t) => {
  const page = await openPage(t, server, { viewport: { width: 800, height: 600 } });
  const beyond = () => page.evaluate(() => document.documentElement.scrollHeight - innerHeight);
  for (const text of ['My name is Zora.', 'Write hello world in C.', 'What is my name?']) await ask(page, text);
  assert.equal(await beyond(), 0);
  await page.press('#message', 'ArrowUp');
  await page.fill('.message.user textarea', 'What is your name?');
  await page.press('.message.user textarea', 'Enter');
  await page.waitForSelector('.versions');
  await settled(page, 3);
  assert.equal(await beyond(), 0);
});

longTest('scrollbars have the colours of the theme wherever the page scrolls', { skip }, async (t) => {
  const page = await openPage(t, server, { hash: '#/server' });
  await page.waitForSelector('.tile dd');
  await page.click('.header [aria-label=Settings]');
  await page.waitForSelector('.settings[open]');
  const colours = await page.evaluate(() =>
    [...document.querySelectorAll('.scroller, .session-list, .tiles, .settings .panel, pre')].map((one) => [one.className, getComputedStyle(one).scrollbarColor]));
  assert.ok(colours.length >= 3);
  assert.deepEqual(colours.filter(([, colour]) => colour === 'auto'), []);
});
