// The composer keeps its place and its focus, and nothing covers its buttons.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { ask, connected, ENDLESS, newContext, newPage, openPage, prepareSession, say, settled, sharedServer, streamed, until } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();
const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

test('the composer keeps its height while a message is sent and answered', async (t) => {
  const page = await openPage(t, server);
  await page.evaluate(() => {
    window.heights = new Set();
    const look = () => {
      window.heights.add(document.querySelector('.composer').getBoundingClientRect().height);
      requestAnimationFrame(look);
    };
    look();
  });
  await ask(page, 'Hello!');
  await ask(page, 'What is 17 + 25?');
  assert.equal((await page.evaluate(() => [...window.heights])).length, 1);
});

longTest('after Stop the focus is in the message field', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.waitForSelector('.item.current');
  await say(page, 'Tell me a very long story.');
  await page.focus('.stop');
  await page.keyboard.press('Enter');
  await settled(page, 1);
  assert.equal(await page.evaluate(() => document.activeElement?.id), 'message');
});

longTest('while an answer runs, the answers before it show no icons', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: ENDLESS });
  for (const text of ['One', 'Two']) await client.turn(id, text, { sampling: { max_tokens: 4 } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await settled(page, 2);
  await say(page, 'Tell me a very long story.');
  await streamed(page, 20);
  await page.mouse.move(5, 5);
  await page.waitForFunction(() =>
    [...document.querySelectorAll('.turn:not(:last-child) .foot-buttons button')].every((b) => getComputedStyle(b).opacity === '0'),
  );
  await page.press('#message', 'Escape');
  await settled(page, 3);
});

longTest('a toast is above the composer', async (t) => {
  const page = await openPage(t, server, { viewport: { width: 420, height: 700 } });
  await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
  await ask(page, 'Hello!');
  await page.keyboard.press('Control+Shift+;');
  const toast = await page.waitForSelector('.toast');
  await page.fill('#message', 'Next');
  const boxes = await Promise.all([toast.boundingBox(), page.locator('.composer').boundingBox()]);
  assert.ok(!overlap(...boxes), JSON.stringify(boxes));
});

longTest('in a narrow window the notice of a full session is wide, and an opened system prompt is in sight', async (t) => {
  const { client, id } = await prepareSession(t, server, { session_len: 60, memory_len: 60, sampling: { ...ENDLESS, max_tokens: 0 } });
  await client.turn(id, 'Tell me about foxes.');
  const page = await openPage(t, server, { hash: `#s=${id}`, viewport: { width: 400, height: 640 } });
  await page.waitForSelector('.full-notice.full');
  const [notice, text, button] = await Promise.all(['.full-notice', '.full-notice > span', '.full-notice button'].map((one) => page.locator(one).boundingBox()));
  assert.ok(text.width > 0.6 * notice.width, `${text.width} of ${notice.width} px`);
  assert.ok(!overlap(text, button));
  await page.goto(server.url);
  await page.click('.fresh-system summary');
  const inSight = () => page.evaluate(() => {
    const bottom = (one) => document.querySelector(one).getBoundingClientRect().bottom;
    return bottom('#fresh-system') <= bottom('.scroller') + 1;
  });
  await until('the field in sight', inSight);
});

longTest('the buttons below an answer stand at its left edge, also while it grows', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await fake.begin('Tell me something');
  const places = [];
  for (const part of ['Once', ' upon a time '.repeat(40), '.']) {
    fake.delta(part);
    await page.waitForFunction((end) => document.querySelector('.turn .prose')?.textContent.trimEnd().endsWith(end), part.trimEnd());
    places.push((await page.locator('.turn [data-action=copy-answer]').boundingBox()).x);
  }
  fake.done();
  await page.waitForSelector('.turn[data-state=done] [data-action=more]');
  // A message of the page does not cover the answer's end.
  await page.evaluate(() => {
    const place = document.querySelector('.toasts');
    place.append(Object.assign(document.createElement('div'), { className: 'toast', textContent: 'Saved.' }));
  });
  const bottom = (selector) => page.locator(selector).evaluate((e) => e.getBoundingClientRect().bottom);
  await page.waitForFunction(() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    return box('.turn:last-child .message-foot').bottom <= box('.toast').top && box('.toast').bottom <= box('.composer').top;
  });
  assert.ok((await bottom('.composer')) <= 800);
  await page.evaluate(() => document.querySelector('.toast').remove());
  places.push((await page.locator('.turn [data-action=copy-answer]').boundingBox()).x);
  const left = (await page.locator('.turn .prose').boundingBox()).x;
  for (const x of places) assert.ok(x === places[0] && x <= left, `${x}, prose at ${left}`);
});

longTest('the versions of an earlier answer stand at its left edge, where its buttons only come with the pointer', async (t) => {
  const page = await newPage(t, await newContext(t));
  await FakeSession.route(page, [['One', 'First.', { parent: null, siblings: [0, 2], inputs: [1, 1] }], ['Two', 'Second.']]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 2);
  const [prose, versions] = await Promise.all(['.prose', '.assistant .versions'].map((one) => page.locator(`.turn[data-turn="0"] ${one}`).boundingBox()));
  assert.ok(Math.abs(versions.x - prose.x) < 12, `${versions.x}, prose at ${prose.x}`);
});

longTest('they stand there also where an answer has versions and can go on', async (t) => {
  const page = await newPage(t, await newContext(t));
  await FakeSession.route(page, [['One', 'First.'], ['Two', 'Second', { finish_reason: 'length', parent: 0, siblings: [1, 2], inputs: [1, 1] }]]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 2);
  for (const also of ['.versions', '[data-action=continue]']) assert.ok(await page.locator(`.turn[data-turn="1"] ${also}`).isVisible(), also);
  const [first, second] = await page.locator('[data-action=copy-answer]').evaluateAll((all) => all.map((button) => button.getBoundingClientRect().x));
  assert.equal(first, second);
});
