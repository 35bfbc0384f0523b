// The tree of turns: versions of an answer, edited messages, continued answers, sessions from a turn, in several
// tabs, without a pointer, and on a narrow screen.
import assert from 'node:assert/strict';
import { ask, copiedAnswers, ENDLESS, fromMenu, newContext, openPage, prepareSession, say, sessionOf, settled, sharedServer, soon, streamed, turnsOf, typed } from './browser.mjs';
import { longTest, shortTest as test } from '../harness.mjs';

const server = await sharedServer();

// Answers that differ from each other and are cut off.
const SHORT = { ignore_eos: true, temperature: 4, top_p: 1, max_tokens: 12 };

const answers = (page) => page.locator('.turn .prose').allInnerTexts();
const messages = (page) => page.locator('.turn .bubble').allInnerTexts();
/** Waits for these versions to be shown: only the session's state tells them, and it may come behind the end of the turn. */
const versions = (page, ...wanted) =>
  page.waitForFunction(
    (all) => [...document.querySelectorAll('.versions-at [aria-hidden]')].map((at) => at.innerText).join() === all,
    wanted.join(),
  );
const numbers = (page) =>
  page.locator('.turn').evaluateAll((all) => all.map((turn) => Number(turn.dataset.turn)));
/** Waits for a path of these turns, all over. */
const path = (page, ...turns) =>
  page.waitForFunction(
    (wanted) =>
      [...document.querySelectorAll('.turn[data-turn]')].map((turn) => turn.dataset.turn).join() === wanted &&
      !document.querySelector('.turn:not([data-state=done])'),
    turns.join(),
  );
const button = (page, action, at = -1) => {
  const all = page.locator(`[data-action=${action}]:visible`);
  return at < 0 ? all.last() : all.nth(at);
};
const version = (page, name, turn) => page.locator(`.turn[data-turn="${turn}"] [aria-label="${name} version"]`);
/** Says something with the button: on a touch screen Enter begins a new line. */
async function tell(page, text) {
  const n = await page.locator('.turn[data-turn]').count();
  await page.fill('#message', text);
  await page.click('.send');
  await settled(page, n + 1);
}
const wording = (page, name, turn) => page.locator(`.turn[data-turn="${turn}"] .user [aria-label="${name} wording"]`);

test('an answer is given again, the versions lead back, and all tabs go along', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: SHORT });
  const context = await newContext(t);
  const page = await openPage(t, server, { context, hash: `#s=${id}` });
  await ask(page, 'Tell me a story about a fox.');
  await ask(page, 'And then?');
  const other = await openPage(t, server, { context, hash: `#s=${id}` });
  await settled(other, 2);
  await versions(page);
  const [first, second] = await answers(page);
  for (const tab of [page, other])
    await tab.evaluate(() => (document.querySelector('.turn[data-turn="0"]').kept = true));

  await button(page, 'regenerate').click();
  for (const tab of [page, other]) {
    await path(tab, 0, 2);
    await versions(tab, '2/2');
    assert.deepEqual(await messages(tab), ['Tell me a story about a fox.', 'And then?']);
  }
  const [, third] = await answers(page);
  assert.notEqual(third, second);
  assert.deepEqual(await answers(other), [first, third]);

  // From the other tab, and back from this one.
  await version(other, 'Previous', 2).click();
  for (const tab of [page, other]) {
    await path(tab, 0, 1);
    assert.deepEqual(await answers(tab), [first, second]);
    await versions(tab, '1/2');
  }
  assert.equal(await other.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Next version');
  await version(page, 'Next', 1).click();
  await path(page, 0, 2);
  await path(other, 0, 2);
  assert.match(await page.locator('#announcer').innerText(), /version 2 of 2/);
  for (const tab of [page, other])
    assert.equal(await tab.evaluate(() => document.querySelector('.turn[data-turn="0"]').kept), true, 'kept in the DOM');

  // Of an earlier turn: what followed it waits under the other version.
  await ask(page, 'Why?');
  await button(page, 'regenerate', 0).click();
  await path(page, 4);
  await path(other, 4);
  await versions(page, '2/2');
  await version(page, 'Previous', 4).click();
  await path(page, 0, 2, 3);
  await path(other, 0, 2, 3);
  await versions(other, '1/2', '2/2');
  assert.deepEqual(
    (await turnsOf(server, id)).map((turn) => [turn.turn, turn.parent, turn.siblings]),
    [
      [0, null, [0, 4]],
      [2, 0, [1, 2]],
      [3, 2, undefined],
    ],
  );
  await page.reload();
  await path(page, 0, 2, 3);
  assert.deepEqual(await answers(page), await answers(other));
  const meter = await page.locator('.context-value').innerText();
  assert.equal(meter.replaceAll(',', '').split(' ')[0], String((await turnsOf(server, id)).at(-1).usage.log_tokens));
});

longTest('a message is said differently from the keyboard alone; Esc leaves it as it was', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'My name is Zora.');
  await ask(page, 'What is my name?');
  await page.press('#message', 'ArrowUp');
  await soon(async () => assert.equal(await page.inputValue('.editor-text'), 'What is my name?'));
  await page.keyboard.type(' Tell me!');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.editor', { state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Edit message');
  assert.deepEqual(await messages(page), ['My name is Zora.', 'What is my name?']);
  assert.deepEqual(await numbers(page), [0, 1]);

  await button(page, 'edit', 0).focus();
  await page.keyboard.press('Enter');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('My name is Milo.');
  await page.keyboard.press('Enter');
  await path(page, 2);
  assert.deepEqual(await messages(page), ['My name is Milo.']);
  assert.equal(await page.evaluate(() => document.activeElement.id), 'message');
  assert.match(await ask(page, 'What is my name?'), /Milo/);
  // The first name stays with the other version.
  await wording(page, 'Previous', 2).focus();
  await page.keyboard.press('Enter');
  await path(page, 0, 1);
  assert.match((await answers(page))[1], /Zora/);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Next wording');
  await page.keyboard.press('Enter');
  await path(page, 2, 3);
});

for (const [run, width] of [[test, 1280], [longTest, 360]])
run(`versions of a message stand at the message, versions of its answer at the answer (${width} px)`, async (t) => {
  const { id } = await prepareSession(t, server, { sampling: SHORT });
  const context = await newContext(t, width < 800 ? { viewport: { width, height: 640 }, hasTouch: true, isMobile: true } : {});
  const page = await openPage(t, server, { context, hash: `#s=${id}` });
  const titled = (text) => page.waitForFunction((wanted) => document.querySelector('h1.title').innerText === wanted, text);
  const shown = async () => [await page.locator('.user .versions-at [aria-hidden]').allInnerTexts(), await page.locator('.assistant .versions-at [aria-hidden]').allInnerTexts()];
  const shows = async (want) => {
    await versions(page, ...want.flat());
    assert.deepEqual(await shown(), want);
  };
  const edit = async (text, ...turns) => {
    await button(page, 'edit').click();
    await page.fill('.editor-text', text);
    await page.click('.editor button[type=submit]');
    await path(page, ...turns);
  };
  await tell(page, 'Tell me about foxes.');
  await titled('Tell me about foxes.');
  await edit('Tell me about owls.', 1);
  await shows([['2/2'], []]); // another message, no other answer to it
  await titled('Tell me about owls.');
  await button(page, 'regenerate').click();
  await path(page, 2);
  await shows([['2/2'], ['2/2']]);
  await edit('Tell me about bees.', 3);
  await shows([['3/3'], []]);
  await wording(page, 'Previous', 3).click();
  await path(page, 2); // the newest answer to it
  await shows([['2/3'], ['2/2']]);
  await version(page, 'Previous', 2).click();
  await path(page, 1);
  assert.deepEqual(await messages(page), ['Tell me about owls.']);
  await shows([['2/3'], ['1/2']]);
  await wording(page, 'Previous', 1).click();
  await path(page, 0);
  assert.deepEqual(await messages(page), ['Tell me about foxes.']);
  await shows([['1/3'], []]);
  assert.match(await page.locator('#announcer').innerText(), /wording 1 of 3/);
  // The title is that of the version shown, in the list and in a fork too.
  await titled('Tell me about foxes.');
  await page.reload();
  await path(page, 0);
  await titled('Tell me about foxes.');
  await page.waitForFunction(() => document.querySelector('.item.current .item-title')?.textContent === 'Tell me about foxes.');
  const client = await server.connect();
  for (const [turn, forked] of [[0, 'Tell me about foxes.'], [2, 'Tell me about owls.']])
    assert.equal((await client.request({ type: 'session.fork', session: id, turn })).session.title, forked);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  for (const box of await Promise.all((await page.locator('.user .versions button').all()).map((one) => one.boundingBox())))
    assert.ok(box.width >= 24 && box.height >= 24 && box.x >= 0 && box.x + box.width <= width, JSON.stringify(box));
  // A session that a user has named keeps its name.
  await client.request({ type: 'session.update', session: id, title: 'Animals' });
  await edit('Tell me about ants.', 4);
  await titled('Animals');
  await client.close();
});

for (const width of [1280, 360])
longTest(`taken back by another client, the page knows that there is more, and leads on to it (${width} px)`, async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  const context = await newContext(t, width < 800 ? { viewport: { width, height: 640 }, hasTouch: true, isMobile: true } : {});
  const page = await openPage(t, server, { context, hash: `#s=${id}` });
  for (const text of ['One', 'Two', 'Three']) await tell(page, text);
  const later = page.locator('.later');
  assert.equal(await later.isVisible(), false);
  await client.request({ type: 'session.rewind', session: id, turn: 0 });
  await path(page, 0);
  await later.waitFor();
  const box = await later.locator('button').boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= width && box.height >= 24, JSON.stringify(box));
  await page.reload(); // it is not only an event that tells it
  await path(page, 0);
  await later.locator('button').click();
  await path(page, 0, 1, 2);
  await later.waitFor({ state: 'hidden' });
  assert.equal(await page.locator('[data-action=more]').count(), 3);
  // Before the first message; and a new one from an inner turn goes its own way.
  await client.request({ type: 'session.rewind', session: id, turn: null });
  await path(page);
  await later.locator('button').click();
  await path(page, 0, 1, 2);
  await client.request({ type: 'session.rewind', session: id, turn: 1 });
  await path(page, 0, 1);
  await later.waitFor();
  await tell(page, 'Four');
  await path(page, 0, 1, 3);
  await later.waitFor({ state: 'hidden' });
  assert.deepEqual(await page.locator('.user .versions-at [aria-hidden]').allInnerTexts(), ['2/2']);
});

longTest('an edit that another tab takes away is given back in the message field', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: SHORT });
  const context = await newContext(t);
  const page = await openPage(t, server, { context, hash: `#s=${id}` });
  await ask(page, 'One');
  const other = await openPage(t, server, { context, hash: `#s=${id}` });
  await settled(other, 1);
  await page.press('#message', 'ArrowUp');
  await page.fill('.editor-text', 'One and a half');
  await button(other, 'regenerate').click();
  await path(page, 1);
  await typed(page, 'One and a half');
});

test('a cut answer goes on in the same bubble, as often as it is asked to', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: SHORT });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await ask(page, 'Tell me a story about a fox.');
  await page.click('[data-action=continue]');
  await page.waitForFunction(() => /24 tokens/.test(document.querySelector('.facts').textContent));
  await page.waitForSelector('[data-action=continue]:visible');
  await page.click('[data-action=continue]');
  await page.waitForFunction(() => /36 tokens/.test(document.querySelector('.facts').textContent));
  await settled(page, 1);
  const turns = await turnsOf(server, id);
  assert.deepEqual(
    turns.map((turn) => turn.input),
    [{ content: 'Tell me a story about a fox.' }, { continue: true }, { continue: true }],
  );
  assert.deepEqual(await numbers(page), [0]);
  assert.deepEqual(await copiedAnswers(page), [turns.map((turn) => turn.text).join('')]);
  const live = await page.locator('.turn .prose').innerHTML();
  await page.reload();
  await settled(page, 1);
  assert.equal(await page.locator('.turn .prose').innerHTML(), live);
  assert.deepEqual(await numbers(page), [0]);
  // Another version is of the whole answer.
  await button(page, 'regenerate').click();
  await path(page, 3);
  await version(page, 'Previous', 3).click();
  await path(page, 0);
  assert.equal(await page.locator('.turn .prose').innerHTML(), live);
  // After a new message the answer is not the last any more.
  await ask(page, 'Why?');
  assert.equal(await page.locator('[data-action=continue]:visible').count(), 1);
});

longTest('Stop, then Continue; an answer that ended by itself cannot be gone on with', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a bear.');
  await streamed(page, 60);
  for (const action of ['regenerate', 'more', 'continue'])
    assert.equal(await page.locator(`[data-action=${action}]:visible`).count(), 0, action);
  await page.press('#message', 'Escape');
  await settled(page, 1);
  const before = await page.locator('.turn .prose').textContent();
  await page.click('[data-action=continue]');
  await streamed(page, before.length + 60);
  await page.press('#message', 'Escape');
  await settled(page, 1);
  assert.deepEqual(await copiedAnswers(page), [(await turnsOf(server, id)).map((turn) => turn.text).join('')]);

  await page.click('.new-button');
  await page.waitForSelector('.suggestion');
  assert.match(await ask(page, 'What is the capital of Norway?'), /Oslo/);
  assert.equal(await page.locator('[data-action=continue]:visible').count(), 0);
});

longTest('a message may be edited while an answer runs, and is sent when it is over', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a crow.');
  await streamed(page, 40);
  await page.press('#message', 'ArrowUp');
  await page.fill('.editor-text', 'Tell me a story about a jay.');
  await page.press('.editor-text', 'Enter');
  await soon(async () => assert.equal(await page.isDisabled('.editor button[type=submit]'), true));
  await soon(async () => assert.match(await page.locator('.editor-hint').innerText(), /after the answer/));
  await page.click('.stop');
  await page.waitForSelector('.editor button[type=submit]:enabled');
  await page.press('.editor-text', 'Enter');
  await page.waitForSelector('.turn[data-turn="1"][data-state=running]');
  assert.deepEqual(await messages(page), ['Tell me a story about a jay.']);
  await page.click('.stop');
  await path(page, 1);
  await versions(page, '2/2');
});

test('a session of its own begins at any turn, and the first one stays as it is', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'My name is Zora.');
  await ask(page, 'My name is Milo.');
  const source = sessionOf(page);
  await fromMenu(page, 'branch', 0);
  await page.waitForFunction((id) => location.hash && location.hash !== `#s=${id}`, source);
  await path(page, 0);
  assert.match(await page.locator('.origin').innerText(), /Branched from\s+My name is Zora/);
  assert.match(await ask(page, 'What is my name?'), /Zora/);
  await page.click('.origin a');
  await page.waitForFunction((id) => location.hash === `#s=${id}&t=0`, source); // and to the turn
  await path(page, 0, 1);
  assert.equal(await page.locator('.origin:visible').count(), 0);
  assert.match(await ask(page, 'What is my name?'), /Milo/);
});

longTest('a full session can still go another way', async (t) => {
  const { id } = await prepareSession(t, server, {
    sampling: { ...SHORT, max_tokens: 200 },
    session_len: 96,
    memory_len: 96,
  });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a hedgehog.');
  await settled(page, 1);
  await page.waitForSelector('.full-notice.full');
  await button(page, 'edit').click();
  await page.fill('.editor-text', 'Hello');
  await page.press('.editor-text', 'Enter');
  await path(page, 1);
  assert.deepEqual(await messages(page), ['Hello']);
});

longTest('what happens while a tab is away is there when it comes back', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: SHORT });
  const context = await newContext(t);
  const page = await openPage(t, server, { context, hash: `#s=${id}` });
  await ask(page, 'One');
  await ask(page, 'Two');
  await page.click('.new-button');
  await page.waitForSelector('.suggestion');
  const other = await openPage(t, server, { context, hash: `#s=${id}` });
  await settled(other, 2);
  await button(other, 'regenerate', 0).click();
  await path(other, 2);
  await ask(other, 'Three');
  await page.click(`.item[data-id="${id}"] a`);
  await path(page, 2, 3);
  assert.deepEqual(await answers(page), await answers(other));
  await versions(page, '2/2');
});

longTest('all of it fits a narrow touch screen', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: SHORT });
  const context = await newContext(t, { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
  const page = await openPage(t, server, { context, hash: `#s=${id}` });
  await page.fill('#message', 'Tell me a story about a fox.');
  await page.tap('.send');
  await settled(page, 1);
  await page.locator('[data-action=regenerate]').last().tap();
  await path(page, 1);
  await page.locator('.turn [aria-label="Previous version"]').tap();
  await path(page, 0);
  await page.locator('[data-action=continue]').tap();
  await page.waitForFunction(() => /24 tokens/.test(document.querySelector('.facts').textContent));
  await settled(page, 1);
  const small = await page.evaluate(() =>
    [...document.querySelectorAll('.turn button')]
      .filter((b) => b.checkVisibility())
      .map((b) => [b.getAttribute('aria-label') ?? b.textContent, b.getBoundingClientRect()])
      .filter(([, box]) => box.width < 24 || box.height < 24 || box.right > 360 || box.left < 0)
      .map(([name]) => name),
  );
  assert.deepEqual(small, []);
  await page.locator('[data-action=edit]').tap();
  await page.fill('.editor-text', 'Tell me a story about a very old fox who lives at the edge of the wood.');
  await page.tap('.editor button[type=submit]');
  await path(page, 3);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 360));
  // Of an earlier turn the buttons come with a touch, and go with the touch of another.
  await tell(page, 'And then?');
  const shown = () => page.locator('.turn').evaluateAll((turns) => turns.map((turn) => turn.querySelector('[data-action=more]')?.checkVisibility()));
  assert.deepEqual(await shown(), [false, true]);
  await page.locator('.turn .prose').first().tap();
  assert.deepEqual(await shown(), [true, true]);
  await page.locator('.turn .prose').last().tap();
  assert.deepEqual(await shown(), [false, true]);
});

longTest('several answers to one message: versions, as soon as the turn ends', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: { ...SHORT, n: 3 } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await tell(page, 'Tell me a story.');
  await versions(page, '1/3');
  const [first] = await answers(page);
  await version(page, 'Next', 0).click();
  await versions(page, '2/3');
  assert.notEqual((await answers(page))[0], first);
});
