// The inspector beside the conversation on wide windows, over it on others; two versions compared.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { ask, fromMenu, newContext, openPage, prepareSession, say, settled, sharedServer } from './browser.mjs';

const server = await sharedServer();
const WIDE = { width: 1500, height: 900 }, NARROW = { width: 1100, height: 800 };
const CUT = { ignore_eos: true, temperature: 4, top_p: 1, max_tokens: 12 };

async function opened(t, viewport, options) {
  const { id } = await prepareSession(t, server, options);
  const context = await newContext(t, { viewport });
  const page = await openPage(t, server, { context, hash: `#s=${id}` });
  return { id, page };
}
const inspect = async (page, at = -1) => {
  await fromMenu(page, 'inspect', at);
  await page.waitForSelector('.inspector .tokens');
};

test('wide: the inspector stands beside the conversation, which goes on', async (t) => {
  const { page } = await opened(t, WIDE, { sampling: { temperature: 0 } });
  await ask(page, 'My name is Zora.');
  await inspect(page);
  const [panel, main] = await Promise.all(['.inspector', 'main'].map((s) => page.locator(s).boundingBox()));
  assert.ok(panel.x >= main.x + main.width - 1, 'nothing is covered');
  assert.ok(main.width >= 500);
  assert.equal(await page.locator('dialog[open]').count(), 0);
  await page.click('#tab-what-if');
  const border = (selector) => page.locator(selector).evaluate((e) => getComputedStyle(e).border);
  assert.equal(await border('#what-if-system'), await border('#field-temperature'), 'a field like the others');
  await page.click('#tab-answer');
  await page.fill('#message', 'What is my name?');
  await page.press('#message', 'Enter');
  await settled(page, 2);
  assert.equal(await page.locator('.inspector').count(), 1, 'still there');
  await inspect(page);
  assert.equal(await page.locator('.inspector').count(), 1, 'one at a time');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.inspector', { state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.dataset.action), 'more');
});

longTest('it follows the window, and goes with its session', async (t) => {
  const { page } = await opened(t, WIDE, { sampling: { temperature: 0 } });
  await ask(page, 'My name is Zora.');
  await inspect(page);
  await page.setViewportSize(NARROW);
  await page.waitForSelector('dialog.inspector[open] .tokens');
  await page.setViewportSize(WIDE);
  await page.waitForSelector('aside.inspector .tokens');
  assert.equal(await page.locator('dialog').count(), 0);
  await page.evaluate(() => { location.hash = ''; });
  await page.waitForSelector('.inspector', { state: 'detached' });
});

longTest('two versions of an answer, and of a message, with the words that differ', async (t) => {
  const { id, page } = await opened(t, WIDE, { sampling: CUT });
  await say(page, 'Tell me a story.');
  await settled(page, 1);
  await inspect(page);
  assert.equal(await page.locator('#tab-compare').count(), 0, 'nothing to compare with');
  await page.keyboard.press('Escape');
  await page.locator('[data-action=regenerate]:visible').last().click();
  await page.waitForFunction(() => [...document.querySelectorAll('.versions-at [aria-hidden]')].some((at) => at.innerText === '2/2'));
  await inspect(page);
  await page.click('#tab-compare');
  await page.waitForSelector('.both .compared');
  const client = await server.connect(), texts = [];
  for (const turn of [0, 1]) texts.push((await client.request({ type: 'turn.get', session: id, turn })).turn.text);
  await client.close();
  assert.deepEqual(await page.locator('.compared').evaluateAll((all) => all.map((side) => side.textContent)), texts);
  assert.notEqual(texts[0], texts[1]);
  assert.ok((await page.locator('.compared del').count()) > 0 && (await page.locator('.compared ins').count()) > 0);
  assert.match(await page.locator('.inspector .panel').innerText(), /Both answer the same message/);
});
