// A message that the server refuses: it keeps its place and outlives a reload, and each way out of it keeps the text.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { ask, connected, newContext, newPage, openPage, prepareSession, say, sessionOf, settled, sharedServer, turnsOf, typed } from './browser.mjs';

const server = await sharedServer();
const LONG = 'word '.repeat(180).trim(); // more than is left, less than the session holds
/** Waits for so many turns; settled() would wait for the refused message too. */
const turns = (page, n) => page.waitForFunction((most) => document.querySelectorAll('.turn[data-state=done]').length === most, n);

/** A page with one turn and a message that was refused. */
async function refused(t) {
  const { id } = await prepareSession(t, server, { session_len: 200, memory_len: 200, sampling: { max_tokens: 4 } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await ask(page, 'Hello!');
  await say(page, LONG);
  await page.waitForSelector('.pending .problem');
  return { id, page };
}
const bubbles = (page) => page.locator('.log .bubble').allInnerTexts();

test('it stays where it was sent, over newer turns and a reload, until it is discarded', async (t) => {
  const { id, page } = await refused(t);
  await say(page, 'Bye!');
  await turns(page, 2);
  assert.deepEqual(await bubbles(page), ['Hello!', LONG, 'Bye!']);
  await page.reload();
  await turns(page, 2);
  await page.waitForSelector('.pending .problem');
  assert.deepEqual(await bubbles(page), ['Hello!', LONG, 'Bye!']);
  assert.match(await page.locator('.pending .problem').innerText(), /Too long/);
  await page.click('.pending button:has-text("Discard")');
  await page.waitForSelector('.pending', { state: 'detached' });
  await page.reload();
  await settled(page, 2);
  assert.deepEqual(await bubbles(page), ['Hello!', 'Bye!']);
  assert.equal((await turnsOf(server, id)).length, 2);
});

longTest('New chat takes the text along; what was being typed stays above it', async (t) => {
  const { id, page } = await refused(t);
  await page.click('.pending button:text-is("New chat")');
  await page.waitForSelector('.suggestion');
  await typed(page, LONG);
  await page.press('#message', 'Enter');
  await settled(page, 1);
  assert.notEqual(sessionOf(page), id);
  await page.click(`.item[data-id="${id}"] a`);
  await settled(page, 1);
  assert.equal(await page.locator('.pending').count(), 0, 'it is in one place');
});

longTest('Continue in a new chat takes the latest messages along, and the text', async (t) => {
  const { id, page } = await refused(t);
  await page.click('.pending button:has-text("Continue in a new chat")');
  await typed(page, LONG);
  await page.press('#message', 'Enter');
  await settled(page, 1);
  assert.notEqual(sessionOf(page), id);
  const client = await server.connect();
  assert.match((await client.request({ type: 'session.get', session: sessionOf(page) })).session.system, /Hello!/);
  await client.close();
});

longTest('one text tells how much is left, and New chat is offered only where it would help', async (t) => {
  const { page } = await refused(t);
  const left = /(\d+) left in this chat/.exec(await page.locator('.pending .problem').innerText())[1];
  assert.equal(await page.locator('.full-notice:visible').count(), 0);
  await page.click('.pending button:has-text("Edit")');
  const used = Number((await page.locator('.context-value').innerText()).split(' ')[0]);
  assert.equal(Number(left), 200 - 1 - used);
  await page.fill('#message', 'word '.repeat(20000));
  await page.press('#message', 'Enter');
  await page.waitForSelector('.pending .problem');
  assert.deepEqual(await page.locator('.pending button:not(.link-button)').allInnerTexts(), ['Edit', 'Discard']);
});

longTest('the page decides by an error\'s code and figures, whatever its words', async (t) => {
  const { id } = await prepareSession(t, server, { session_len: 200, memory_len: 200, sampling: { max_tokens: 4 } });
  const page = await newPage(t, await newContext(t), { expected: [/client message 'session.update'\/sampling\/top_p/] });
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const upstream = socket.connectToServer();
    upstream.onMessage((text) => {
      const frame = JSON.parse(text);
      socket.send(frame.type === 'error' ? JSON.stringify({ ...frame, message: 'nein' }) : text);
    });
  });
  await page.goto(`${server.url}/#s=${id}`);
  await connected(page);
  await ask(page, 'Hello!');
  await say(page, LONG);
  await page.waitForSelector('.pending .problem:has-text("left in this chat")');
  assert.deepEqual(await page.locator('.pending button:not(.link-button)').allInnerTexts(), ['Continue in a new chat', 'New chat', 'Edit', 'Discard']);
  await page.click('.pending button:has-text("Discard")');
  await page.click('.header [aria-label^="Settings"]');
  await page.fill('#field-top_p', '0');
  await page.click('.settings button[type=submit]');
  await page.waitForSelector('.field.bad:has(#field-top_p) .field-hint:has-text("nein")');
});

longTest('a message whose page was closed before the answer can be sent again, once', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: { max_tokens: 4 } });
  const context = await newContext(t);
  const page = await newPage(t, context);
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const upstream = socket.connectToServer();
    socket.onMessage((text) => text.includes('Are you there?') || upstream.send(text)); // it is lost on its way
  });
  await page.goto(`${server.url}/#s=${id}`);
  await connected(page);
  await ask(page, 'Hello!');
  await say(page, 'Are you there?');
  await page.waitForSelector('.pending[data-phase=sending]');
  const again = await openPage(t, server, { context, hash: `#s=${id}` });
  await again.waitForSelector('.pending:has-text("The page was closed before the server answered")');
  await page.close();
  await again.click('.pending button:has-text("Try again")');
  await settled(again, 2);
  assert.deepEqual((await turnsOf(server, id)).map(({ input }) => input.content), ['Hello!', 'Are you there?']);
  await again.reload();
  await settled(again, 2);
  assert.equal(await again.locator('.pending').count(), 0);
});

for (const [button, kept] of [['Discard', ''], ['Edit', LONG]])
  longTest(`${button} of the first message leaves no empty session, and the chat can begin again`, async (t) => {
    const context = await newContext(t);
    await context.addInitScript((values) => localStorage.setItem('parley.new-session', JSON.stringify(values)), { session_len: 64, memory_len: 64 });
    const page = await openPage(t, server, { context });
    const listed = () => page.locator('.item').evaluateAll((items) => items.map(({ dataset }) => dataset.id));
    await say(page, LONG);
    await page.waitForSelector('.pending .problem');
    const id = sessionOf(page);
    await page.click(`.pending button:has-text("${button}")`);
    await page.waitForSelector('.empty');
    await typed(page, kept);
    await page.waitForFunction((gone) => !document.querySelector(`.item[data-id="${gone}"]`), id);
    await page.fill('#message', 'Hello!');
    await page.press('#message', 'Enter');
    await settled(page, 1);
    assert.notEqual(sessionOf(page), id);
    await page.reload();
    await settled(page, 1);
    assert.ok(!(await listed()).includes(id));
  });
