// Input methods (Chinese, Japanese, Korean, dead keys): the keys that choose among their suggestions, and the ones that end
// a composition, are theirs.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { ask, openPage, sharedServer } from './browser.mjs';

const server = await sharedServer();

/** A composition in the field that has the focus, as an input method makes one. */
async function compose(page) {
  const browser = await page.context().newCDPSession(page);
  const set = (text) => browser.send('Input.imeSetComposition', { text, selectionStart: text.length, selectionEnd: text.length });
  return {
    set,
    /** A key that the input method takes: of its own code for the page, and without what the browser does with it. */
    key: (key) => browser.send('Input.dispatchKeyEvent', { type: 'rawKeyDown', key, code: key, windowsVirtualKeyCode: 229 }),
    commit: (text) => browser.send('Input.insertText', { text }),
  };
}
const KEYS = ['ArrowDown', 'Enter', 'Escape'];

test('in the message field Enter and Escape do not send or clear, the arrows do not leave; what was composed is sent once', async (t) => {
  const page = await openPage(t, server);
  await page.focus('#message');
  const method = await compose(page);
  await method.set('に');
  await method.set('にほん');
  for (const key of KEYS) {
    await method.key(key);
    assert.equal(await page.locator('.turn').count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'message');
  }
  await method.set('');
  await method.commit('日本');
  assert.equal(await page.inputValue('#message'), '日本');
  await page.press('#message', 'Enter');
  await page.waitForSelector('.turn');
  assert.equal(await page.locator('.bubble').innerText(), '日本');
});

longTest('in the search the arrows choose a suggestion; the words stay', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'My name is Zora.');
  await page.click('#search');
  await page.keyboard.type('Zora ');
  const method = await compose(page);
  await method.set('にほん');
  for (const key of ['ArrowDown', 'Enter']) {
    await method.key(key);
    assert.equal(await page.evaluate(() => document.activeElement.id), 'search', key);
    assert.match(await page.inputValue('#search'), /^Zora /, key);
  }
});
