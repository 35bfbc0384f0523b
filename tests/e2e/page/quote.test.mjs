// Selected text of the conversation is quoted in the next message.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newContext, newPage, settled, sharedServer, typed } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();

async function shown(t, text, options = {}) {
  const page = await newPage(t, await newContext(t, options));
  await FakeSession.route(page, [['A question of mine', text]]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  await page.waitForFunction(() => performance.getEntriesByType('resource').some(({ name }) => name.includes('/panels-')));
  return page;
}
const select = (page, selector) => page.evaluate((selector) => getSelection().selectAllChildren(document.querySelector(selector)), selector);
const button = '.quote-button';

test('a button quotes the selected text below what was written, with formulas as TeX', async (t) => {
  const page = await shown(t, 'First *line* with $x^2$.\n\n- one\n- two');
  await page.waitForSelector('.formula math');
  await page.fill('#message', 'Before.');
  await select(page, '.prose');
  await page.click(button);
  assert.equal((await page.inputValue('#message')).replaceAll(/(\n>)+\n/g, '\n'), 'Before.\n\n> First line with $x^2$.\n> one\n> two\n\n');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'message');
  assert.equal(await page.evaluate(() => getSelection().isCollapsed), true);
  assert.equal(await page.locator(button).count(), 0);
});

test('a question is quoted by the keyboard; the button goes with the selection, and is not there for other texts', async (t) => {
  const page = await shown(t, 'An answer.', { viewport: { width: 320, height: 640 } });
  await select(page, '.bubble-text');
  await page.waitForSelector(button);
  const { x, y, width, height } = await page.locator(button).boundingBox();
  assert.ok(x >= 0 && x + width <= 320 && y >= 0 && y + height <= 640, JSON.stringify({ x, y, width, height }));
  await page.evaluate(() => getSelection().removeAllRanges());
  await page.waitForSelector(button, { state: 'detached' });
  await page.keyboard.press('Control+Shift+Period'); // nothing is selected
  await select(page, '.header h1');
  await page.keyboard.press('Control+Shift+Period');
  assert.equal(await page.inputValue('#message'), '');
  await select(page, '.bubble-text');
  await page.keyboard.press('Control+Shift+Period');
  await typed(page, '> A question of mine\n\n');
  await page.focus('#message');
  await page.keyboard.press('Control+a'); // text of the field
  await page.keyboard.press('Control+Shift+Period');
  assert.equal(await page.inputValue('#message'), '> A question of mine\n\n');
  assert.equal(await page.locator(button).count(), 0);
});
