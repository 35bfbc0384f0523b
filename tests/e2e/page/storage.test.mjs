// What the browser stores, where several tabs write it and where it refuses to.
import assert from 'node:assert/strict';
import {
  ask,
  connected,
  holdTimers,
  letTimersGo,
  newContext,
  newPage,
  openPage,
  prepareSession,
  sessionOf,
  sharedServer,
  typed,
} from './browser.mjs';
import { longTest, shortTest as test, until } from '../harness.mjs';

const server = await sharedServer();

test('tabs keep each other’s drafts: of other sessions, and of the same one', async (t) => {
  const context = await newContext(t);
  const one = (await prepareSession(t, server)).id;
  const two = (await prepareSession(t, server)).id;
  const first = await openPage(t, server, { context, hash: `#s=${one}` });
  const second = await openPage(t, server, { context, hash: `#s=${two}` });
  const third = await openPage(t, server, { context, hash: `#s=${two}` });
  await first.fill('#message', 'a thought on one');
  await second.fill('#message', 'a thought on two');
  await first.reload();
  await connected(first);
  await typed(first, 'a thought on one');
  await second.close({ runBeforeUnload: true });
  await third.close({ runBeforeUnload: true }); // has the same session with an empty field
  await first.fill('#message', 'another thought on one');
  await first.reload();
  await connected(first);
  await typed(first, 'another thought on one');
  const again = await openPage(t, server, { context, hash: `#s=${two}` });
  await typed(again, 'a thought on two');
});

const REFUSALS = {
  'no storage': () => {
    for (const name of ['localStorage', 'sessionStorage'])
      Object.defineProperty(window, name, {
        get() {
          throw new DOMException('refused', 'SecurityError');
        },
      });
  },
  'a full one': () => {
    Storage.prototype.setItem = () => {
      throw new DOMException('full', 'QuotaExceededError');
    };
  },
};

for (const [name, refuse] of Object.entries(REFUSALS))
  longTest(`with ${name}, what is deleted is deleted, and what is typed stays with its session`, async (t) => {
    const page = await newPage(t, await newContext(t));
    await page.addInitScript(refuse);
    await holdTimers(page);
    await page.goto(server.url);
    await connected(page);
    await ask(page, 'My name is Zora.');
    const id = sessionOf(page);
    await page.fill('#message', 'half a thought');
    await page.click('.new-button');
    await typed(page, '');
    await page.click(`.item[data-id="${id}"] a`);
    await typed(page, 'half a thought');
    await page.click('.header [aria-label="Chat menu"]');
    await page.click('.menu-item:has-text("Delete")');
    await page.click('.confirm .danger');
    await page.waitForSelector(`.item[data-id="${id}"]`, { state: 'detached' });
    await letTimersGo(page);
    const client = await server.connect();
    await until('the server has deleted it', async () => {
      const answer = await client.request({ type: 'session.get', session: id });
      return answer.code === 'session_not_found';
    });
    await client.close();
  });

longTest('a test finds nothing that the one before left in the browser', async (t) => {
  const left = () =>
    Promise.all([indexedDB.databases(), caches.keys(), navigator.permissions.query({ name: 'notifications' })]).then(
      ([databases, names, { state }]) => [
        localStorage.getItem('left'),
        sessionStorage.getItem('left'),
        document.cookie,
        databases.length,
        names.length,
        state === 'granted',
        innerWidth,
        matchMedia('(prefers-color-scheme: dark)').matches,
      ],
    );
  let before;
  const use = (name, options) =>
    t.test(name, async (u) => {
      const context = await newContext(u, options);
      const page = await openPage(u, server, { context });
      before ??= context;
      assert.equal(context, before, 'the context is the same one');
      assert.deepEqual(await page.evaluate(left), [null, null, '', 0, 0, Boolean(options.permissions), options.viewport?.width ?? 1280, options.colorScheme === 'dark']);
      await page.evaluate(async () => {
        for (const storage of [localStorage, sessionStorage]) storage.setItem('left', 'here');
        document.cookie = 'left=here';
        await new Promise((resolve) => (indexedDB.open('left').onsuccess = resolve));
        await caches.open('left');
      });
      assert.ok((await page.evaluate(left)).includes('here'));
    });
  await use('one leaves something of each kind', { permissions: ['notifications'], viewport: { width: 900, height: 700 }, colorScheme: 'dark' });
  await use('the next one has none of it', {});
  await use('nor has the one behind', {});
});
