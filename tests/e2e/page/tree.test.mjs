// Answers in a user's own words, turns that are deleted, and the map of a session's tree.
import assert from 'node:assert/strict';
import { ask, connected, ENDLESS, fromMenu, holdTimers, letTimersGo, newContext, newPage, openPage, prepareSession, say, sessionOf, settled, sharedServer, soon, streamed, turnsOf, until } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';
import { longTest, shortTest as test } from '../harness.mjs';

const server = await sharedServer();
const SHORT = { max_tokens: 12 };
const answers = (page) => page.locator('.turn .prose').allInnerTexts();
const messages = (page) => page.locator('.turn .bubble').allInnerTexts();
const press = async (page, action, nth = -1) => {
  const buttons = page.locator(`[data-action=${action}]`);
  const button = nth < 0 ? buttons.last() : buttons.nth(nth);
  await button.focus(); // buttons of older turns are drawn with the focus
  await button.click();
};
const shown = (page, text) => page.waitForFunction((wanted) => document.querySelector('.turn:last-child .prose')?.innerText.includes(wanted), text);

test('an answer is edited in place; the next message goes on from it; the old one is a version', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  const other = await openPage(t, server, { hash: `#s=${id}` });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  const before = await ask(page, 'What is my name?');
  await press(page, 'edit-answer');
  assert.equal(await page.inputValue('.of-answer textarea'), before);
  await page.keyboard.press('Escape');
  await page.waitForSelector('.of-answer', { state: 'detached' });
  assert.deepEqual(await answers(page), [before]);
  await press(page, 'edit-answer');
  await page.fill('.of-answer textarea', 'Your name is **Quetzal**.');
  await page.keyboard.press('Enter');
  await shown(page, 'Your name is Quetzal.');
  assert.match(await page.locator('.facts').last().innerText(), /^Edited/);
  await page.waitForSelector('.assistant .versions-at:has-text("2/2")');
  await shown(other, 'Your name is Quetzal.');
  await ask(page, 'Thank you.');
  assert.deepEqual((await turnsOf(server, id)).map((turn) => [turn.turn, turn.parent]), [[1, null], [2, 1]]);
  await page.locator('.turn').first().hover();
  await page.locator('[aria-label="Previous version"]').click();
  await shown(page, before);
  // The inspector says that it was not sampled.
  await page.locator('[aria-label="Next version"]').click();
  await settled(page, 2);
  await page.locator('.turn').first().hover();
  await fromMenu(page, 'inspect', 0);
  await page.waitForSelector('.inspector:has-text("A user wrote this answer")');
  await client.close();
});

longTest('on a phone the editor has its hint on a line of its own, and nothing over its buttons', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  const long = Array.from({ length: 30 }, (_, i) => `Line ${i} of a text that fills a screen.`).join('\n');
  for (const content of ['One', 'Two']) await client.request({ type: 'turn.write', session: id, input: { content }, text: long });
  const page = await openPage(t, server, { hash: `#s=${id}`, viewport: { width: 320, height: 640 }, locale: 'de-DE' });
  await settled(page, 2);
  await page.locator('.scroller').evaluate((scroller) => (scroller.scrollTop -= 400)); // so that the way to the end is offered
  await page.waitForSelector('.jump:visible');
  for (const action of ['edit-answer', 'edit']) {
    await page.locator(`[data-action=${action}]`).last().evaluate((button) => button.click());
    await page.waitForSelector('.editor');
    await soon(async () => {
      const { hint, covered } = await page.locator('.editor').evaluate((editor) => ({
        hint: editor.querySelector('.editor-hint').clientWidth / editor.clientWidth,
        covered: [...editor.querySelectorAll('button')].filter((button) => {
          const { x, y, width, height } = button.getBoundingClientRect();
          return document.elementFromPoint(x + width / 2, y + height / 2)?.closest('button') !== button;
        }).map(({ textContent }) => textContent),
      }));
      assert.deepEqual(covered, [], action);
      assert.ok(hint > 0.8, `${action}: the hint takes ${hint} of the width`);
    });
    await page.keyboard.press('Escape');
    await page.waitForSelector('.editor', { state: 'detached' });
  }
  await client.close();
});

longTest('behind an edited answer the model goes on: it stays edited, and the figures are the model’s', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await ask(page, 'My name is Zora.');
  await press(page, 'edit-answer');
  await page.fill('.of-answer textarea', 'A long answer in the words of a user, who writes more than the model does,');
  await page.keyboard.press('Enter');
  await shown(page, 'in the words of a user');
  await page.click('.turn:last-child .go-on');
  await page.waitForFunction(() => /^Edited(?! · Stop)/.test(document.querySelector('.turn:last-child[data-state=done] .facts')?.textContent) &&
    /tokens\/s/.test(document.querySelector('.turn:last-child .facts').textContent));
  const added = (await turnsOf(server, id)).at(-1).n_output;
  assert.match(await page.locator('.facts').last().innerText(), new RegExp(`^Edited(?: · [A-Z][a-z ]+)? · ${added} tokens? · `));
  await page.reload();
  await settled(page, 1);
  assert.match(await page.locator('.facts').last().innerText(), new RegExp(`^Edited(?: · [A-Z][a-z ]+)? · ${added} tokens? · `));
  await client.close();
});

longTest('deleting asks first, goes on to another version, and takes the branch along, in every tab', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await ask(page, 'My name is Zora.');
  await ask(page, 'The secret is a xylophone.');
  await ask(page, 'Tell me more.');
  const other = await openPage(t, server, { hash: `#s=${id}` });
  await settled(other, 3);
  await press(page, 'delete', 1);
  await page.waitForSelector('.confirm');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.confirm', { state: 'detached' });
  assert.equal((await messages(page)).length, 3);
  await press(page, 'delete', 1);
  await page.click('.confirm .danger');
  for (const one of [page, other])
    await one.waitForFunction(() => document.querySelectorAll('.turn .bubble').length === 1);
  assert.deepEqual(await messages(page), ['My name is Zora.']);
  assert.equal(await page.locator('.later:visible').count(), 0);
  await until('its end on the server', async () => {
    await page.waitForTimeout(300); // the server limits the messages of a second
    return (await client.request({ type: 'session.list', query: 'xylophone' })).sessions?.length === 0;
  });
  // One of two answers: the other one is shown, and there is nothing to switch.
  const first = (await answers(page))[0];
  await client.request({ type: 'turn.edit', session: id, turn: 0, text: 'Hello there.' });
  await shown(page, 'Hello there.');
  await page.waitForSelector('.assistant .versions-at:has-text("2/2")');
  await press(page, 'delete', 0);
  await page.waitForSelector('.confirm:has-text("Other versions")');
  await page.click('.confirm .danger');
  await shown(page, first.slice(0, 10));
  await page.waitForFunction(() => !document.querySelector('.versions-at'));
  // The last one: an empty session, which goes on.
  await press(page, 'delete', 0);
  await page.click('.confirm .danger');
  await page.waitForFunction(() => !document.querySelector('.turn .bubble'));
  await say(page, 'Once more.');
  await settled(page, 1);
  // While an answer runs nothing is deleted.
  await client.request({ type: 'session.update', session: id, sampling: ENDLESS });
  await say(page, 'Go on and on.');
  await streamed(page, 20);
  assert.equal(await page.locator('[data-action=delete]').first().isDisabled(), true);
  await page.click('.stop');
});

longTest('deleted turns can be restored for a while; a page that closes meanwhile leaves it to the next one', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  const context = await newContext(t);
  const page = await newPage(t, context);
  await holdTimers(page);
  await page.goto(`${server.url}/#s=${id}`);
  await connected(page);
  await ask(page, 'My name is Zora.');
  await ask(page, 'The secret is a marimba.');
  await ask(page, 'Tell me more.');
  const found = async () => {
    await page.context().pages()[0]?.waitForTimeout(300); // the server limits the messages of a second
    return (await client.request({ type: 'session.list', query: 'marimba' })).sessions?.length;
  };
  const remove = async (left) => {
    await press(page, 'delete', 1);
    await page.click('.confirm .danger');
    await page.waitForFunction((n) => document.querySelectorAll('.turn .bubble').length === n, left);
  };
  await remove(1);
  await page.click('.toast button:has-text("Undo")');
  await settled(page, 3);
  assert.deepEqual(await messages(page), ['My name is Zora.', 'The secret is a marimba.', 'Tell me more.']);
  await letTimersGo(page); // the time in which it can be undone is over
  assert.equal(await found(), 1);
  await holdTimers(page);
  // Another message meanwhile: what was deleted is no version of it, and comes back as one when it is restored.
  await remove(1);
  await ask(page, 'Now a question.');
  assert.equal(await page.locator('.versions-at').count(), 0);
  await page.click('.toast button:has-text("Undo")');
  await page.waitForFunction(() => document.querySelectorAll('.turn .bubble').length === 3);
  await page.waitForSelector('.versions-at:has-text("1/2")');
  await remove(2); // goes on to the other version
  await page.close();
  const next = await openPage(t, server, { context, hash: `#s=${id}` });
  await until('its end on the server', async () => (await found()) === 0);
  await settled(next, 2);
  assert.deepEqual(await messages(next), ['My name is Zora.', 'Now a question.']);
});

for (const [run, width] of [[test, 1440], [longTest, 390]])
  run(`the map shows every version and leads there (${width} px)`, async (t) => {
    const { client, id } = await prepareSession(t, server, { sampling: SHORT });
    for (const [text, after] of [['One.', undefined], ['Two.', 0], ['Three.', 1], ['Two, in other words.', 0]])
      await client.turn(id, text, after === undefined ? {} : { after });
    const fork = (await client.request({ type: 'session.fork', session: id, turn: 1, title: 'A copy' })).session.id;
    const context = await newContext(t, { viewport: { width, height: 800 } });
    const page = await openPage(t, server, { context, hash: `#s=${id}` });
    await settled(page, 2);
    await page.click('header [aria-label="Chat menu"]');
    await page.click('[role=menuitem]:has-text("Show the tree")');
    await page.waitForSelector('.tree li');
    const rows = () => page.locator('.tree li').evaluateAll((all) => all.map((row) => [row.querySelector('.tree-said')?.textContent ?? row.textContent, row.classList.contains('here')]));
    assert.deepEqual(await rows(), [['One.', true], ['Two.', false], ['A copy', false], ['Three.', false], ['Two, in other words.', true]]);
    await page.click('.tree [aria-label="Compare version 2 of “Two, in other words.” with the others"]');
    await page.waitForSelector('[role=tab][aria-selected=true]:has-text("Compare")');
    await page.waitForSelector('.compared ins:has-text("in other words")');
    await page.keyboard.press('Escape');
    await page.click('header [aria-label="Chat menu"]');
    await page.click('[role=menuitem]:has-text("Show the tree")');
    await page.click('.tree button:has-text("Three.")');
    await page.waitForFunction(() => [...document.querySelectorAll('.turn .bubble')].map((e) => e.innerText).join() === 'One.,Two.,Three.');
    await page.waitForFunction(() => document.querySelectorAll('.tree .here').length === 3);
    assert.equal(new URL(page.url()).hash, `#s=${id}&t=2`);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await page.click('.tree-fork a');
    await page.waitForFunction((wanted) => location.hash.startsWith(`#s=${wanted}`), fork);
    assert.equal(sessionOf(page).split('&')[0], fork);
  });

longTest('an answer that a client sent back is not called edited', async (t) => {
  const page = await newPage(t, await newContext(t));
  await FakeSession.route(page, [
    ['Hello', 'Good day.', { branch: { edited: 0, sent_back: true }, finish_reason: 'stop' }],
    ['And now?', 'Good evening.', { branch: { edited: 1 }, finish_reason: 'stop' }],
  ]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 2);
  assert.match(await page.locator('.turn[data-turn="0"] .facts').innerText(), /^Sent back by the client/);
  assert.match(await page.locator('.turn[data-turn="1"] .facts').innerText(), /^Edited/);
});
