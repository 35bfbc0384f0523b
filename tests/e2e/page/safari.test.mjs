// What Safari lacks, taken from Chromium: scroll anchoring, fields sized by their text, and keys that say that they belong
// to an input method.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newContext, newPage, ask, connected, sharedServer } from './browser.mjs';
import { longConversation, scrollUp } from './reading.mjs';

const server = await sharedServer();

const asSafari = () => {
  const { supports } = CSS;
  CSS.supports = (property, ...value) => !['overflow-anchor', 'field-sizing'].includes(property) && supports.call(CSS, property, ...value);
};

test('without scroll anchoring, what one reads stays in its place', async (t) => {
  const page = await longConversation(t, server, asSafari);
  assert.equal(await page.locator('.scroller').evaluate((scroller) => getComputedStyle(scroller).overflowAnchor), 'none');
  const { completed, moved } = await scrollUp(page);
  assert.ok(completed > 3, `${completed} turns were completed`);
  assert.deepEqual(moved, []);
});

test('without field-sizing, fields grow with their text and shrink', async (t) => {
  const page = await newPage(t, await newContext(t));
  await page.addInitScript(asSafari);
  await page.goto(server.url);
  await connected(page);
  await ask(page, 'Hello!');
  await page.press('#message', 'ArrowUp');
  for (const field of ['.editor-text', '#message']) {
    const area = page.locator(field);
    await area.evaluate((element) => (element.style.fieldSizing = 'fixed'));
    const height = () => area.evaluate((element) => element.clientHeight);
    await area.fill('one');
    const line = await height();
    await area.fill('one\ntwo\nthree');
    assert.ok((await height()) > 2 * line, `${field}: ${await height()} px for three lines, ${line} for one`);
    await area.fill('one');
    assert.equal(await height(), line, field);
  }
});

test('Enter and Escape that end a composition neither send nor stop', async (t) => {
  const page = await newPage(t, await newContext(t));
  await page.goto(server.url);
  await connected(page);
  await page.fill('#message', 'にほん');
  const press = (key, keyCode) =>
    page.locator('#message').evaluate(
      (field, init) => field.dispatchEvent(new KeyboardEvent('keydown', { ...init, bubbles: true, cancelable: true })),
      { key, keyCode },
    );
  assert.equal(await press('Enter', 229), true, 'the key is left to the input method');
  assert.equal(await page.inputValue('#message'), 'にほん');
  assert.equal(await press('Enter', 13), false);
  await page.waitForSelector('.turn');
  assert.equal(await page.inputValue('#message'), '');
});
