// A message whose answer does not come: it shows that it is being sent, and it becomes one turn however often it is tried.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { connected, newContext, newPage, say, Server, sessionOf, settled, turnsOf, unhurried } from './browser.mjs';


/** A page whose clock the test moves, in a session with one turn, on a server that has stopped answering. */
async function silent(t) {
  const server = await Server.start(t, { args: unhurried });
  const page = await newPage(t, await newContext(t), { expected: [/WebSocket/] });
  await page.clock.install();
  await page.goto(`${server.url}/`);
  await connected(page);
  await say(page, 'Hello!');
  await settled(page, 1);
  server.process.kill('SIGSTOP');
  t.after(() => server.process.kill('SIGCONT'));
  await say(page, 'What is my name?');
  await page.waitForSelector('.pending[data-phase=sending]');
  await page.clock.runFor(1100);
  await page.waitForSelector('.pending:has-text("Sending…")');
  assert.ok(await page.isVisible('.send'), 'the message field has its button');
  await page.clock.runFor(36000);
  return { server, page };
}

async function once(server, page) {
  await settled(page, 2);
  assert.equal(await page.locator('.turn').count(), 2);
  assert.equal(await page.locator('.pending').count(), 0);
  const turns = await turnsOf(server, sessionOf(page));
  assert.deepEqual(turns.map(({ input }) => input.content), ['Hello!', 'What is my name?']);
}

longTest('a message that the server answers after the time is up is seen once', async (t) => {
  const { server, page } = await silent(t);
  await page.waitForSelector('.pending[data-phase=failed]:has-text("Try again")');
  server.process.kill('SIGCONT');
  await once(server, page);
});

test('Try again sends the same request: one turn', async (t) => {
  const { server, page } = await silent(t);
  await page.click('.pending button:has-text("Try again")');
  await page.waitForSelector('.pending[data-phase=sending]');
  server.process.kill('SIGCONT');
  await once(server, page);
});

longTest('before the server has said hello Send stands where it stands afterwards', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const at = async (silent) => {
    const page = await newPage(t, await newContext(t));
    if (silent) await page.routeWebSocket(/\/ws/, () => {});
    await page.goto(`${server.url}/`);
    if (!silent) await connected(page);
    else {
      // A message that is sent meanwhile says what it waits for, and can be taken back.
      await say(page, 'Hello!');
      await page.waitForSelector('.pending:has-text("Connecting… Your message will be sent then.")');
      await page.click('.pending button:text-is("Edit")');
      await page.waitForSelector('.pending', { state: 'detached' });
      assert.equal(await page.inputValue('#message'), 'Hello!');
      await page.fill('#message', '');
    }
    const { x, y } = await page.locator('.send').boundingBox();
    await page.close();
    return [x, y];
  };
  assert.deepEqual(await at(true), await at(false));
});

longTest('NUL and half a character become a sign for what cannot be shown; the message is sent once', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const page = await newPage(t, await newContext(t));
  await page.goto(`${server.url}/`);
  await connected(page);
  await page.locator('#message').evaluate((field) => {
    field.value = 'a\u0000b \ud800 c \u{1f600}';
    field.dispatchEvent(new Event('input'));
  });
  await page.press('#message', 'Enter');
  await settled(page, 1);
  assert.equal(await page.locator('.turn').count(), 1);
  assert.deepEqual((await turnsOf(server, sessionOf(page))).map(({ input }) => input.content), ['a\ufffdb \ufffd c \u{1f600}']);
});
