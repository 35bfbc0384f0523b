// The first message of a session while everything around it is late: frames of the connection, frames of the screen, the
// session's state. Whatever comes first, the answer is shown.
import assert from 'node:assert/strict';
import { Random } from '../random.mjs';
import { few, longTest, shortTest as test } from '../harness.mjs';
import { ask, connected, newContext, newPage, newSession, prepareSession, say, sessionOf, settled, sharedServer, turnsOf } from './browser.mjs';

const server = await sharedServer();
const SHORT = { max_tokens: 8 };
const random = new Random();

/** A page whose connection goes through the test; `late(frame, fromServer)` says how long a frame is held back, in ms. */
async function delayedPage(t, late, hash = '', prepare = async () => {}) {
  const page = await newPage(t, await newContext(t));
  await prepare(page);
  await page.routeWebSocket(/\/ws$/, (near) => {
    const far = near.connectToServer();
    // In their order, and the end after them: a connection that asks for the models alone is closed with the server's hello,
    // which may come while the page's own is held back.
    const relay = (from, to, fromServer, close) => {
      let last = Promise.resolve();
      from.onMessage((text) => (last = last.then(() => late(JSON.parse(text), fromServer)).then(() => to.send(text))));
      from.onClose((code, reason) => last.then(() => close(code, reason)));
    };
    relay(near, far, false, () => far.close());
    relay(far, near, true, (code, reason) => near.close({ code, reason }));
  });
  await page.goto(`${server.url}/${hash}`);
  await connected(page);
  return page;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

longTest('each frame arrives late by another time', async (t) => {
  const short = (page) => page.addInitScript((sampling) => localStorage.setItem('parley.new-session', JSON.stringify({ sampling })), SHORT);
  const page = await delayedPage(t, () => pause(random.below(60)), '', short);
  for (let i = 0; i < few(12); i++) {
    if (i) await newSession(page);
    await ask(page, `Message ${i}`);
    assert.equal((await turnsOf(server, sessionOf(page))).length, 1);
  }
});

longTest('another session appears between opening and sending', async (t) => {
  const client = await server.connect();
  const page = await delayedPage(t, async (frame, fromServer) => {
    if (fromServer || frame.type !== 'turn.start') return;
    const id = await client.open({ sampling: SHORT });
    await client.turn(id, 'Elsewhere.');
    await pause(300); // the list's news go out every 100 ms
  });
  await ask(page, 'Here.');
  assert.equal((await turnsOf(server, sessionOf(page))).length, 1);
  await client.close();
});

test('a page that gets no frames to draw shows the answer', async (t) => {
  const page = await delayedPage(t, () => {}, '', (one) => one.addInitScript(() => (window.requestAnimationFrame = () => 0)));
  await ask(page, 'What is 2 + 3?');
});

test('a message that is sent while the session loads waits for it, and is sent once', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  let letGo;
  const held = new Promise((resolve) => (letGo = resolve));
  const page = await delayedPage(t, (frame, fromServer) => (fromServer && frame.type === 'session.state' ? held : undefined), `#s=${id}`);
  await say(page, 'Too early?');
  await page.waitForSelector('.composer-hint:has-text("Will send when the chat has loaded")');
  assert.equal(await page.inputValue('#message'), 'Too early?');
  letGo();
  await settled(page, 1);
  assert.equal(await page.inputValue('#message'), '');
  assert.deepEqual((await turnsOf(server, id)).map((turn) => turn.input.content), ['Too early?']);
  await client.close();
});

longTest('a session whose state did not come in time is asked for again', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: SHORT });
  await client.turn(id, 'Before.');
  let swallowed = 0;
  const page = await newPage(t, await newContext(t));
  await page.clock.install();
  await page.routeWebSocket(/\/ws$/, (near) => {
    const far = near.connectToServer();
    near.onMessage((text) => (JSON.parse(text).type === 'session.get' && !swallowed++ ? undefined : far.send(text)));
    far.onMessage((text) => near.send(text));
  });
  await page.goto(`${server.url}/#s=${id}`);
  while (!swallowed) await pause(20);
  for (let i = 0; i < 12 && !(await page.locator('.turn').count()); i++) {
    await page.clock.runFor(5000);
    await pause(100);
  }
  await settled(page, 1);
  await ask(page, 'After.');
  await client.close();
});
