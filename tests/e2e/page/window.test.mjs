// A conversation longer than the model's window: the meter, the transcript and one sentence tell what the model no longer sees.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { newContext, newPage, sharedServer, soon } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();
const TURNS = 6;
const EACH = 500; // tokens

/** A page with six turns of 500 tokens each and a window of the model. */
async function shown(t, session, options) {
  const page = await newPage(t, await newContext(t, options));
  const turns = Array.from({ length: TURNS }, (_, i) => [
    `Question ${i}`,
    `Answer ${i}`,
    { usage: { input_tokens: 100, output_tokens: 400, log_tokens: EACH * (i + 1) } },
  ]);
  const fake = await FakeSession.route(page, turns, { session_len: 4096, n_tokens: TURNS * EACH, ...session });
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForSelector(`.turn[data-turn="${TURNS - 1}"] .prose`);
  return { page, fake };
}

const behindLine = (page) => page.locator('.window-line + .turn .bubble').textContent(); // it may be out of sight
const widths = (page) =>
  page.evaluate(() => ['.context-past', '.context-fill'].map((part) => Number.parseFloat(document.querySelector(part).style.width)));

for (const [name, sink_len, line, from] of [
  ['between two messages', 24, 'The model no longer sees messages above this line', 4],
  ['inside of a message', 4, 'The model sees only the end of the next exchange, and nothing above it', 3],
])
  longTest(`a window that begins ${name} is drawn there, in the meter too`, async (t) => {
    const { page } = await shown(t, { memory_len: sink_len === 24 ? 1024 : 1100, sink_len });
    await page.waitForSelector('.window-line');
    assert.equal(await page.locator('.window-line').innerText(), line);
    assert.equal(await behindLine(page), `Question ${from}`);
    assert.equal(await page.locator('.context-value').innerText(), '3,000 / 4,096');
    const lost = sink_len === 24 ? 2000 : 1904;
    const [past, fill] = await widths(page);
    assert.ok(Math.abs(past - (100 * lost) / 4096) < 0.1 && Math.abs(fill - (100 * (3000 - lost)) / 4096) < 0.1, `${past} and ${fill}`);
    assert.match(await page.locator('.context').getAttribute('aria-label'), /^Context 3,000 \/ 4,096 model sees the last 1,(024|100) tokens$/);
    assert.equal(await page.locator('.toast').count(), 0, 'it had moved before');
  });

longTest('a session that fits its window shows no line, also where the first tokens count twice', async (t) => {
  const { page } = await shown(t, { memory_len: 3000, sink_len: 600 });
  assert.equal(await page.locator('.window-line').count(), 0);
  assert.equal((await widths(page))[0], 0);
  assert.equal(await page.locator('.context-sees').innerText(), '');
});

test('when the window moves for the first time the page says so, once', async (t) => {
  const { page, fake } = await shown(t, { memory_len: 3002, sink_len: 2 });
  await fake.begin('One more');
  await page.waitForSelector('.toast:has-text("longer than what the model can see (3,002 tokens)")');
  await page.click('.toast [aria-label=Dismiss]');
  fake.delta('Yes');
  fake.done('eos', undefined, 3006);
  await page.waitForSelector('.turn[data-turn="6"][data-state=done]');
  await fake.begin('And more');
  await page.waitForSelector('.turn[data-turn="7"]');
  assert.equal(await page.locator('.toast').count(), 0);
  assert.equal(await behindLine(page), 'Question 0');
});

longTest('on a narrow screen the meter stays on the screen, beside Send', async (t) => {
  const { page } = await shown(t, { memory_len: 1024 }, { viewport: { width: 320, height: 640 }, locale: 'de' });
  await page.waitForSelector('.window-line');
  const [meter, send] = await Promise.all(['.context-sees', '.send'].map((one) => page.locator(one).boundingBox()));
  assert.ok(meter.x >= 0 && meter.x + meter.width <= send.x, JSON.stringify([meter, send]));
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
});

longTest('a long conversation that is opened from the list has not just become too long', async (t) => {
  const page = await newPage(t, await newContext(t));
  const turns = [[`Question`, 'Answer', { usage: { input_tokens: 100, output_tokens: 2900, log_tokens: 3000 } }], ['More', 'Of it', { usage: { input_tokens: 100, output_tokens: 400, log_tokens: 3500 } }]];
  await FakeSession.route(page, turns, { session_len: 4096, memory_len: 512, n_tokens: 3500 });
  await page.goto(server.url);
  await page.click('.item-link');
  await page.waitForSelector('.window-line', { state: 'attached' });
  assert.equal(await page.locator('.toast').count(), 0);
});

longTest('the meter of a new chat has the length that the chat will get: no more than its model’s', async (t) => {
  const page = await newPage(t, await newContext(t));
  await page.addInitScript(() => localStorage.setItem('parley.new-session', '{"session_len":5000000}'));
  await FakeSession.route(page);
  await page.goto(server.url);
  await page.waitForSelector('.context:visible');
  await soon(async () => assert.match(await page.locator('.context').innerText(), /0 \/ 1,000,000$/));
});
