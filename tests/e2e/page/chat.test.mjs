// Talking: send, stream, stop, queue, reload in the middle, drafts, copying.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { longTest, shortTest as test } from '../harness.mjs';
import { allowClipboard, ask, connected, copiedAnswers, ENDLESS, newContext, newPage, newSession, openPage, prepareSession, say, sessionOf, settled, sharedServer, soon, streamed, turnsOf, typed } from './browser.mjs';

const server = await sharedServer();

test('a message is sent, its answer streams in, and the address keeps the session', async (t) => {
  const page = await openPage(t, server);
  assert.equal(await page.locator('.suggestion').count(), 6);
  assert.match(await ask(page, 'My name is Zora.'), /Zora/);
  assert.match(await ask(page, 'What is my name?'), /Zora/);
  const id = sessionOf(page);
  assert.match(id, /^[0-9a-f]{32}$/);
  const facts = page.locator('.assistant .facts').last();
  assert.match(await facts.innerText(), /^\d+ tokens · [\d,.]+ tokens\/s›$/);
  await page.locator('.facts-more').last().click();
  await soon(async () => assert.match(await facts.innerText(), /^\d+ tokens · [\d,.]+ tokens\/s · first token in/));
  // The list hears of the title by itself, not with the answer.
  await page.waitForFunction(() =>
    ['h1', '.item.current .item-title'].every((place) => document.querySelector(place)?.innerText === 'My name is Zora.'),
  );

  await page.reload();
  await settled(page, 2);
  assert.equal(await page.locator('.user .bubble').first().innerText(), 'My name is Zora.');
  assert.deepEqual(
    await copiedAnswers(page),
    (await turnsOf(server, id)).map((turn) => turn.text),
  );
});

longTest('a suggestion starts a session; code is coloured and copied', async (t) => {
  const page = await openPage(t, server);
  await page.click('.suggestion:has-text("hello world")');
  await settled(page, 1);
  assert.equal(await page.locator('.code-language').innerText(), 'C');
  await page.waitForSelector('.code .hljs-keyword');
  await allowClipboard(page);
  await page.click('[data-action=copy-code]');
  await page.waitForSelector('[data-action=copy-code].done');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('[data-action=save-code]')]);
  assert.equal(file.suggestedFilename(), 'code.c');
  assert.equal(readFileSync(await file.path(), 'utf8'), `${await page.locator('.code code').innerText()}\n`);
  assert.match(
    await page.evaluate(() => navigator.clipboard.readText()),
    /^#include <stdio.h>[^]*return 0;\n}\n?$/,
  );
});

test('Stop keeps what was said, and the session goes on', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a fox.');
  await streamed(page, 80);
  assert.match(await page.locator('#announcer').innerText(), /Generating/);
  const shown = await page.locator('.turn .prose').innerText();
  await page.press('#message', 'Escape');
  await settled(page, 1);
  const kept = await page.locator('.turn .prose').innerText();
  assert.ok(kept.startsWith(shown.slice(0, 60)), `${kept} does not go on from ${shown}`);
  assert.match(await page.locator('.facts').last().innerText(), /^Stopped · \d/);
  assert.match(await page.locator('#announcer').innerText(), /^Response stopped, \d+ words/);
  const [turn] = await turnsOf(server, id);
  assert.equal(turn.finish_reason, 'cancelled');
  assert.deepEqual(await copiedAnswers(page), [turn.text]);
  await say(page, 'Go on.');
  await streamed(page, 20);
  await page.click('.stop');
  await settled(page, 2);
});

test('reloading in the middle of an answer goes on where it was, twice, without loss', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a mouse.');
  for (const characters of [120, 600]) {
    await streamed(page, characters);
    const seen = await page.locator('.turn .prose').textContent();
    await page.reload();
    await streamed(page, seen.length);
    const now = await page.locator('.turn .prose').textContent();
    assert.equal(now.slice(0, 80), seen.slice(0, 80));
  }
  assert.equal(await page.locator('.turn').count(), 1);
  await page.press('#message', 'Escape');
  await settled(page, 1);
  const [turn] = await turnsOf(server, id);
  assert.deepEqual(await copiedAnswers(page), [turn.text]);
  // What was put together from pieces reads as what is drawn at once.
  const live = await page.locator('.turn .prose').innerHTML();
  await page.reload();
  await settled(page, 1);
  assert.equal(await page.locator('.turn .prose').innerHTML(), live);
});

longTest('leaving a session does not stop its answer; coming back shows all of it', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: { ...ENDLESS, max_tokens: 900 } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a bear.');
  await streamed(page, 40);
  await newSession(page);
  await page.waitForSelector(`.item[data-id="${id}"] .dot[data-state=active]`);
  await page.waitForSelector(`.item[data-id="${id}"] .dot[data-state=unread]`);
  await page.click(`.item[data-id="${id}"] a`);
  await settled(page, 1);
  assert.match(await page.locator('.facts').last().innerText(), /^Reached the length limit · 900 tokens/);
  assert.equal(await page.locator('.facts .fact-end').last().getAttribute('title'), 'Finish reason: Reached the length limit');
  assert.deepEqual(await copiedAnswers(page), [(await turnsOf(server, id))[0].text]);
});

longTest('a message sent while an answer runs waits for it, and can be taken back', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a crow.');
  await streamed(page, 40);
  await say(page, 'What is my name?');
  await say(page, 'Count to 50.');
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-state=queued]').length === 2);
  assert.equal(
    await page.locator('.turn[data-state=queued] .bubble').first().innerText(),
    'What is my name?',
  );
  await page.locator('.turn[data-state=queued] button:has-text("Cancel")').last().click();
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-state=queued]').length === 1);
  await page.click('.stop');
  await page.waitForSelector('.turn[data-turn="1"][data-state=running]');
  await streamed(page, 10);
  await page.click('.stop');
  await settled(page, 2);
});

test('a draft is kept for its session, and ArrowUp opens the last message', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'What is 2 + 3?');
  const id = sessionOf(page);
  await page.fill('#message', 'half a thought');
  await page.click('.new-button');
  await typed(page, '');
  await page.fill('#message', 'another');
  await page.click(`.item[data-id="${id}"] a`);
  await typed(page, 'half a thought');
  await page.reload();
  await settled(page, 1);
  await typed(page, 'half a thought');
  await page.fill('#message', '');
  await page.press('#message', 'ArrowUp');
  await soon(async () => assert.equal(await page.inputValue('.editor-text'), 'What is 2 + 3?'));
});

longTest('a message that is sent while its session loads is sent as soon as it has loaded', async (t) => {
  const { id } = await prepareSession(t, server);
  const page = await newPage(t, await newContext(t));
  // Each message of the server comes late, in a frame of the screen of its own.
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const upstream = socket.connectToServer();
    let last = Promise.resolve();
    upstream.onMessage((text) => {
      last = last.then(() => new Promise((resolve) => setTimeout(resolve, 150))).then(() => socket.send(text));
    });
  });
  await page.goto(`${server.url}/#s=${id}`);
  await connected(page);
  await ask(page, 'What is 2 + 3?');
  assert.equal(await page.inputValue('#message'), '');
  assert.equal((await turnsOf(server, id)).length, 1);
});

longTest('a message can be edited after a reload, however slowly the page is drawn', async (t) => {
  const { client, id } = await prepareSession(t, server);
  await client.turn(id, 'What is 2 + 3?');
  const page = await newPage(t, await newContext(t));
  // The connection opens and the whole session comes between two frames of the screen.
  await page.addInitScript(() => {
    window.requestAnimationFrame = (run) => setTimeout(run, 700);
  });
  await page.goto(`${server.url}/#s=${id}`);
  await settled(page, 1);
  await page.waitForSelector('[data-action=edit]', { state: 'attached' });
});

longTest('Shift+Enter begins a line, a long message folds, and the reader who scrolled up is left alone', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.focus('#message');
  await page.keyboard.type('one');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('two');
  assert.equal(await page.inputValue('#message'), 'one\ntwo');
  await say(page, Array.from({ length: 30 }, (_, i) => `line ${i}`).join('\n'));
  await page.waitForSelector('.bubble .link-button:has-text("Show all")');
  await page.waitForFunction(() => {
    const scroller = document.querySelector('.scroller');
    return scroller.scrollHeight > scroller.clientHeight + 400;
  });
  assert.ok(
    await page.evaluate(() => {
      const scroller = document.querySelector('.scroller');
      return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
    }),
    'the view follows the answer',
  );
  await page.hover('.scroller');
  await page.mouse.wheel(0, -300);
  await page.waitForSelector('.jump:visible');
  const top = await page.evaluate(() => document.querySelector('.scroller').scrollTop);
  const length = await page
    .locator('.turn .prose')
    .textContent()
    .then((text) => text.length);
  await streamed(page, length + 200);
  assert.ok(
    Math.abs((await page.evaluate(() => document.querySelector('.scroller').scrollTop)) - top) < 5,
    'the view stays',
  );
  await page.click('.jump');
  await page.waitForFunction(() => {
    const scroller = document.querySelector('.scroller');
    return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
  });
  await page.press('#message', 'Escape');
  await settled(page, 1);
});

longTest('a full session says so and offers a new one', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS, session_len: 64, memory_len: 64 });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'Tell me a story about a hedgehog.');
  await settled(page, 1);
  await page.waitForSelector('.full-notice.full');
  assert.match(
    await page.locator('.full-notice').innerText(),
    /This chat is full \(64 tokens\)/,
  );
  assert.match(await page.locator('.facts').innerText(), /^Chat full · /, 'not the limit of an answer');
  assert.equal(await page.isVisible('[data-action=continue]'), false, 'there is no room to continue');
  await page.fill('#message', 'more');
  assert.equal(await page.isDisabled('.send'), true);
  // It goes on in a new session, with the latest messages and with what was being typed.
  const [turn] = await turnsOf(server, id);
  await page.click('.full-notice button');
  await page.waitForSelector('.suggestion');
  await typed(page, 'more');
  const prompt = await page.inputValue('#fresh-system');
  assert.match(prompt, /User: Tell me a story about a hedgehog\.\n\nAssistant: …/);
  assert.ok(turn.text.endsWith(prompt.slice(-20)), 'the end of an answer that is too long as a whole');
  await page.press('#message', 'Enter');
  await page.waitForSelector('.turn[data-turn="0"]');
  await page.press('#message', 'Escape');
  await settled(page, 1);
  assert.notEqual(sessionOf(page), id);
  const client = await server.connect();
  const { session } = await client.request({ type: 'session.get', session: sessionOf(page) });
  assert.equal(session.system, prompt);
  assert.equal(session.sampling.ignore_eos, true, 'the settings go along');
  await client.close();
});

test('a message that does not fit is refused at its place with the numbers', async (t) => {
  const { id } = await prepareSession(t, server, { session_len: 64, memory_len: 64 });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await say(page, 'word '.repeat(20000));
  await page.waitForSelector('.pending .problem');
  assert.match(await page.locator('.pending .problem').innerText(), /Too long: at least \d{1,3},\d{3} tokens, at most 63 fit in this chat/);
  await page.click('.pending button:has-text("Edit")');
  await page.waitForSelector('.pending', { state: 'detached' });
  assert.match(await page.inputValue('#message'), /^word word/);
});

longTest('where the model’s memory ends is drawn, and one control tells both lengths', async (t) => {
  const { id } = await prepareSession(t, server, { memory_len: 64, sink_len: 4 });
  const page = await openPage(t, server, { hash: `#s=${id}`, context: await newContext(t) });
  for (const text of ['My name is Zora.', 'What is 2 + 2?', 'Write hello world in C.', 'Count to 50.'])
    await ask(page, text);
  await page.waitForSelector('.window-line');
  const used = (await turnsOf(server, id)).at(-1).usage.log_tokens;
  assert.equal((await page.locator('.context-value').innerText()).replaceAll(',', ''), `${used} / 4096`);
  await page.click('.context');
  await soon(async () => assert.match(await page.locator('.context-details').innerText(), /the last 64 tokens/));
  assert.equal(await page.locator('.context.near').count(), 0, 'a full memory is no warning');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.context-details', { state: 'hidden' });
});
