// Losing the server and finding it again; tokens.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import {
  ask,
  behind,
  connected,
  copiedAnswers,
  ENDLESS,
  newContext,
  newPage,
  openPage,
  prepareSession,
  say,
  Server,
  sessionOf,
  settled,
  soon,
  streamed,
  turnsOf,
  unhurried,
  until,
} from './browser.mjs';
import { longTest, shortTest as test } from '../harness.mjs';
import { FakeSession } from './fake_session.mjs';

const REFUSED = [/WebSocket connection to .* failed/, /ERR_CONNECTION_REFUSED/];

test('after a restart of the server the page comes back by itself, and Zora is still Zora', async (t) => {
  const server = await Server.start(t);
  const page = await openPage(t, server, { expected: REFUSED });
  await ask(page, 'My name is Zora.');
  await server.stop('SIGTERM');
  await page.waitForSelector('.banner:visible');
  // A message sent while the server is away is sent when it is back.
  await say(page, 'What is my name?');
  await page.waitForSelector('.pending:has-text("when the server is back")');
  const again = await Server.start(t, { db: server.db, port: server.port });
  await connected(page);
  await settled(page, 2);
  assert.match(await page.locator('.prose').last().innerText(), /Zora/);
  assert.equal(await page.locator('.turn').count(), 2);
  assert.equal((await turnsOf(again, sessionOf(page))).length, 2);
  await page.waitForSelector('.banner', { state: 'hidden' });
});

longTest('a session begun while the server is away begins when it is back', async (t) => {
  const server = await Server.start(t);
  const page = await openPage(t, server, { expected: REFUSED });
  await server.stop('SIGTERM');
  await page.waitForSelector('.banner:visible');
  await say(page, 'What is the capital of Norway?');
  await say(page, 'What is 17 + 25?');
  await page.waitForFunction(() => document.querySelectorAll('.pending').length === 2);
  await Server.start(t, { db: server.db, port: server.port });
  // Or it has come back by itself: then the button is hidden, and a click by Playwright would wait for it.
  await page.evaluate(() => document.querySelector('.banner button').click());
  await settled(page, 2);
  assert.match(await page.locator('.prose').first().innerText(), /Oslo/);
  assert.match(await page.locator('.prose').last().innerText(), /42/);
});

test('a message that waits for the server can be edited and discarded, and is not sent then', async (t) => {
  const server = await Server.start(t);
  const page = await openPage(t, server, { expected: REFUSED });
  await ask(page, 'My name is Zora.');
  const id = sessionOf(page);
  await server.stop('SIGTERM');
  await page.waitForSelector('.banner:visible');
  await say(page, 'To be edited.');
  await page.click('.pending button:text-is("Edit")');
  assert.equal(await page.inputValue('#message'), 'To be edited.');
  await say(page, 'To be discarded.');
  await page.click('.pending button:text-is("Discard")');
  await page.click('.new-button');
  await say(page, 'The first message of a chat.');
  await page.click('.pending button:text-is("Discard")');
  await page.waitForSelector('.suggestion');
  const again = await Server.start(t, { db: server.db, port: server.port });
  await page.evaluate(() => document.querySelector('.banner button').click());
  await connected(page);
  const client = await again.connect();
  const { sessions } = await client.request({ type: 'session.list' });
  assert.deepEqual(sessions.map((session) => [session.id, session.n_turns]), [[id, 1]]);
  await client.close();
});

test('a server that dies in the middle of an answer leaves it marked and whole, and the session goes on', async (t) => {
  const server = await Server.start(t, { args: unhurried, wrap: behind });
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { expected: REFUSED, hash: `#s=${id}` });
  await say(page, 'Tell me a story about a fox.');
  await streamed(page, 200);
  await server.stop('SIGKILL');
  await page.waitForSelector('.banner:visible');
  const again = await Server.start(t, { db: server.db, port: server.port, args: unhurried, wrap: behind });
  await connected(page);
  await settled(page, 1);
  assert.match(await page.locator('.facts').last().innerText(), /^Interrupted/);
  const [turn] = await turnsOf(again, id);
  assert.equal(turn.finish_reason, 'interrupted');
  assert.deepEqual(await copiedAnswers(page), [turn.text]);
  await say(page, 'Go on.');
  await streamed(page, 20);
  await page.press('#message', 'Escape');
  await settled(page, 2);
});

longTest('a connection that is cut in the middle of an answer goes on without loss', async (t) => {
  const server = await Server.start(t, { args: unhurried, wrap: behind });
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await newPage(t, await newContext(t), { expected: REFUSED });
  const sockets = [];
  await page.routeWebSocket(/\/ws$/, (socket) => {
    sockets.push(socket);
    socket.connectToServer();
  });
  await page.goto(`${server.url}/#s=${id}`);
  await connected(page);
  await say(page, 'Tell me a story about a mouse.');
  // In any state: on a crowded machine the page may get its frames so late that the answer is over.
  const grown = (characters) =>
    page.waitForFunction((n) => (document.querySelector('.turn .prose')?.textContent.length ?? 0) >= n, characters);
  for (const characters of [60, 400, 900]) {
    await grown(characters);
    const before = sockets.length;
    await sockets.at(-1).close({ code: 4001, reason: 'slow reader' });
    await until('another connection', () => sockets.length > before);
  }
  await grown(1200);
  await page.press('#message', 'Escape');
  await settled(page, 1);
  assert.equal(await page.locator('.turn').count(), 1);
  assert.deepEqual(await copiedAnswers(page), [(await turnsOf(server, id))[0].text]);
});

longTest('the page says only what is new: no history goes up, no state comes down twice', async (t) => {
  const server = await Server.start(t);
  const page = await newPage(t, await newContext(t));
  const said = [];
  let connections = 0; // the first one lasts; later ones ask for the models, now and then
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const upstream = socket.connectToServer(), lasts = connections++ === 0;
    socket.onMessage((text) => {
      if (lasts) said.push(JSON.parse(text));
      upstream.send(text);
    });
  });
  await page.goto(server.url);
  await connected(page);
  await ask(page, 'My name is Zora.');
  await ask(page, 'What is my name?');
  assert.deepEqual(
    said.map((message) => message.type),
    ['hello', 'sessions.watch', 'session.list', 'session.list', 'session.open', 'turn.start', 'turn.start'],
  );
  assert.deepEqual([said[3].archived, said[3].limit], [true, 1], 'whether a chat is archived');
  assert.deepEqual(said[6].input, { content: 'What is my name?' });
  // A session that is shown again gets only the missed events; renaming a session that is not shown attaches nothing.
  const id = sessionOf(page);
  await page.click('.new-button');
  await page.hover(`.item[data-id="${id}"]`);
  await page.click(`.item[data-id="${id}"] .item-menu`);
  await page.click('.menu-item:has-text("Rename")');
  await page.keyboard.type('Zora');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.item-title:has-text("Zora")');
  await page.click(`.item[data-id="${id}"] a`);
  await settled(page, 2);
  await ask(page, 'What is 2 + 2?');
  assert.deepEqual(
    said.slice(7).map((message) => message.type),
    ['session.detach', 'session.update', 'session.attach', 'turn.start'],
  );
  assert.ok(said[9].after > 10, 'from where the page left off');
});

/** A page at a server whose token file has one token, `correct-horse-battery`. */
async function withToken(t) {
  const file = await Server.start(t); // only for its folder
  await file.stop();
  const tokens = path.join(file.folder, 'tokens');
  writeFileSync(tokens, 'anna:correct-horse-battery\n', { mode: 0o600 });
  const server = await Server.start(t, { args: ['--token-file', tokens] });
  const page = await newPage(t, await newContext(t), { expected: REFUSED });
  await page.goto(server.url);
  return { tokens, server, page };
}

test('a server with tokens asks for one, refuses a wrong one, and the tab keeps the right one', async (t) => {
  const { page } = await withToken(t);
  await page.waitForSelector('.token-dialog');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.token-dialog').count(), 1);
  await page.fill('#token', 'wrong');
  await page.click('.token-dialog button[type=submit]');
  await page.waitForSelector('.token-dialog :text("rejected this token")');
  await page.fill('#token', 'correct-horse-battery');
  await page.press('#token', 'Enter');
  await connected(page);
  assert.match(await ask(page, 'What is the capital of Norway?'), /Oslo/);
  await page.reload();
  await connected(page);
  await settled(page, 1);
  assert.equal(
    await page.evaluate(() => JSON.stringify(Object.entries(localStorage)).includes('correct-horse')),
    false,
  );
});

longTest('a tab opened beside it has the token too; the name is shown; signing out reaches both and leaves nothing', async (t) => {
  const { page } = await withToken(t);
  await page.fill('#token', 'correct-horse-battery');
  await page.press('#token', 'Enter');
  await connected(page);
  await ask(page, 'My name is Zora.');
  const other = await newPage(t, page.context(), { expected: REFUSED });
  await other.goto(page.url());
  await connected(other);
  await settled(other, 1);
  assert.equal(await other.locator('.token-dialog').count(), 0);
  assert.equal(await other.locator('.connection').innerText(), 'Connected as anna');
  assert.equal(await other.locator('.connection').getAttribute('href'), null, 'the figures are not hers to see');
  await other.fill('#message', 'not for the next user');
  await page.click('[aria-label="Settings"]');
  await page.click('#tab-page');
  await page.waitForSelector('dialog:has-text("Signed in as anna.")');
  await page.click('button:has-text("Sign out")');
  for (const one of [page, other]) {
    await one.waitForSelector('.token-dialog');
    assert.equal(await one.locator('.turn, .item').count(), 0);
    assert.equal(await one.inputValue('#message'), '');
    await one.reload();
    await one.waitForSelector('.token-dialog');
  }
});

longTest('a token that is removed while the page is open: the page says so, asks for another, and goes on', async (t) => {
  const { tokens, server, page } = await withToken(t);
  await page.fill('#token', 'correct-horse-battery');
  await page.press('#token', 'Enter');
  await connected(page);
  await ask(page, 'My name is Zora.');
  writeFileSync(tokens, 'anna:another-staple-battery\n', { mode: 0o600 });
  server.process.kill('SIGHUP'); // its connection is closed with 4003
  await page.waitForSelector('.token-dialog');
  await page.fill('#token', 'another-staple-battery');
  await page.press('#token', 'Enter');
  await connected(page);
  await settled(page, 1);
  assert.match(await ask(page, 'What is my name?'), /Zora/);
});

longTest('a cache that went is asked for as soon as one types, once for many keys', async (t) => {
  const server = await Server.start(t, { args: ['--max-sequence-idle-microseconds', '10000000'] });
  const page = await newPage(t, await newContext(t));
  const said = [];
  page.on('websocket', (socket) => socket.on('framesent', ({ payload }) => said.push(JSON.parse(payload))));
  const hints = () => said.filter(({ type }) => type === 'session.typing');
  await page.goto(server.url);
  await connected(page);
  await ask(page, 'My name is Zora.');
  await page.click('.context');
  await page.waitForSelector('.context-details:has-text("In host memory")');
  await page.focus('#message');
  await page.keyboard.type('What is my');
  await until('the hint', () => hints().length === 1);
  assert.equal(hints()[0].session, sessionOf(page));
  await page.keyboard.type(' name?');
  assert.equal(hints().length, 1);
  await until('the cache', async () => (await server.metric('parley_engine_restored_total')) === 1);
  await page.keyboard.press('Enter');
  await settled(page, 2);
  assert.match(await page.locator('.prose').last().innerText(), /Zora/);
  assert.equal(await page.locator('.toast').count(), 0);
  const [, turn] = await turnsOf(server, sessionOf(page));
  assert.equal(turn.cache.source, 'kept', 'it was back before the message came');
});

longTest('why nothing comes, and when to come again, is said where one looks', async (t) => {
  const server = await Server.start(t);
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page, [['Hello', 'Hi']]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  fake.refusal = { code: 'overloaded', message: 'every place is taken', retry_after_ms: 2400 };
  await say(page, 'And now?');
  const problem = page.locator('.pending .problem span');
  await problem.waitFor();
  assert.equal(await problem.innerText(), 'Every place is taken. Try again in 2.4 s.');
  await fake.begin('Tell me more');
  fake.delta('Once');
  const stalled = page.locator('.stalled');
  for (const [reason, message, words] of [['disk_error', 'disk I/O error', 'its disk reports an error.'], ['disk_full', 'no space left for the database', 'its disk is full.']]) {
    fake.send({ type: 'session.stalled', session: 'fake', reason, message });
    await stalled.waitFor();
    await soon(async () => assert.equal(await stalled.innerText(), `The answer is paused because the server cannot save it: ${words}`));
    assert.equal(await stalled.getAttribute('title'), message);
  }
  fake.delta(' upon a time');
  await stalled.waitFor({ state: 'hidden' });
});

longTest('while the first connection is tried again and again, the page says so without a pause', async (t) => {
  const page = await newPage(t, await newContext(t), { expected: [/WebSocket/] });
  let attempts = 0;
  await page.routeWebSocket(/\/ws$/, (socket) => {
    attempts++;
    socket.close();
  });
  await page.goto(`${(await Server.start(t)).url}/#s=none`);
  await page.waitForSelector('.banner:visible');
  assert.equal(await page.locator('.title').innerText(), 'Loading…', 'a chat whose title is not known yet is no new one');
  await page.evaluate(() => {
    window.hidden = 0;
    new MutationObserver(() => (window.hidden += document.querySelector('.banner').hidden)).observe(document.querySelector('.banner'), { attributes: true });
  });
  const before = attempts;
  await until('two attempts', () => attempts >= before + 2);
  assert.equal(await page.evaluate(() => window.hidden), 0);
});

longTest('a socket that is closed as it opens says no hello', async (t) => {
  const page = await newPage(t, await newContext(t)); // which would be an error in the console
  await page.addInitScript(() => {
    const Plain = window.WebSocket;
    window.opened = 0;
    window.WebSocket = class extends Plain {
      constructor(...args) {
        super(...args);
        this.addEventListener('open', () => window.opened++ || this.close());
      }
    };
  });
  await page.goto((await Server.start(t)).url);
  await connected(page);
  assert.equal(await page.evaluate(() => window.opened), 2);
});
