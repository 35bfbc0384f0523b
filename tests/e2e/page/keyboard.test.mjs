// Everything from the keyboard, and in a narrow window.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { allowClipboard, ask, ENDLESS, openPage, prepareSession, say, sessionOf, settled, sharedServer, soon, streamed } from './browser.mjs';

const server = await sharedServer();
const focused = (page) =>
  page.evaluate(
    () =>
      document.activeElement?.id || document.activeElement?.className || document.activeElement?.localName,
  );

test('a conversation, its list and its settings without a pointer', async (t) => {
  const page = await openPage(t, server);
  // Only where there is a pointer: on a phone the keyboard would cover the page. (A headless shell may say it has none.)
  if (await page.evaluate(() => matchMedia('(hover: hover)').matches))
    assert.equal(await focused(page), 'message', 'the page opens where one types');
  else await page.focus('#message');
  await page.keyboard.type('What is the capital of Norway?');
  await page.keyboard.press('Enter');
  await settled(page, 1);
  const first = sessionOf(page);
  assert.equal(await focused(page), 'message');
  await page.keyboard.press('Control+Shift+KeyO');
  await page.waitForSelector('.suggestion');
  await page.keyboard.type('Write hello world in C.');
  await page.keyboard.press('Enter');
  await settled(page, 1);

  await allowClipboard(page);
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await page.keyboard.press('Control+Shift+Semicolon');
  await page.waitForFunction(async () => (await navigator.clipboard.readText()).startsWith('#include'));
  await page.keyboard.press('Control+Shift+KeyC');
  await page.waitForFunction(async () => (await navigator.clipboard.readText()).startsWith('Here'));
  assert.match(await copied(), /```c\n/);

  await page.keyboard.press('Control+KeyK');
  assert.equal(await focused(page), 'search');
  await page.keyboard.type('oslo');
  await page.waitForSelector(`.group h3:has-text("Found")`);
  await page.waitForFunction(() => document.querySelectorAll('.item').length === 1);
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForFunction((id) => location.hash === `#s=${id}&t=0`, first);
  await settled(page, 1);
  await page.focus('#search');
  await page.keyboard.press('Shift+Escape');
  assert.equal(await focused(page), 'message');
  assert.equal(await page.inputValue('#search'), 'oslo', 'the search stays');

  await page.keyboard.press('Control+Slash');
  await page.waitForSelector('.shortcuts');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.shortcuts', { state: 'detached' });
  assert.equal(await focused(page), 'message', 'a dialog gives the focus back');

  await page.keyboard.press('Control+KeyB');
  await page.waitForFunction(() => document.documentElement.dataset.sidebar === 'closed');
  assert.equal(await page.evaluate(() => document.getElementById('sidebar').inert), true);
  await page.keyboard.press('Control+Shift+KeyS');
  await page.waitForFunction(() => document.documentElement.dataset.sidebar === 'open');
});

test('Tab reaches every control in order, and menus walk by arrows', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'Write hello world in C.');
  await page.evaluate(() => document.activeElement.blur());
  await page.evaluate(() => window.getSelection().collapse(document.body, 0));
  const seen = [];
  for (let i = 0; i < 40; i++) {
    await page.keyboard.press('Tab');
    const name = await page.evaluate(() => {
      const e = document.activeElement;
      return e.getAttribute('aria-label') || e.textContent.trim().slice(0, 30) || e.id;
    });
    if ((await focused(page)) !== 'body') seen.push(name);
    if (name === 'message' || (await focused(page)) === 'message') break;
  }
  const order = [
    'Skip to the message field',
    'Parley',
    'Hide chats',
    'New chat',
    'Search titles and messages',
  ];
  const top = seen.indexOf(order[0]); // Tab goes on where the field was
  assert.deepEqual(seen.slice(top, top + order.length), order);
  for (const control of [
    'Keyboard shortcuts',
    'Settings',
    'Chat menu',
    'Copy message',
    'Copy code',
    'Code, C',
    'Copy answer',
    'Regenerate answer',
    'More actions',
    'More figures',
  ])
    assert.ok(seen.includes(control), `${control} is not reached: ${seen.join(', ')}`);
  assert.equal(await focused(page), 'message');

  for (const [name, first, key, next] of [
    ['Chat menu', 'Pin', 'ArrowUp', 'Delete…'],
    ['More actions', 'Branch into a new chat', 'ArrowDown', 'Copy link to this message'],
  ]) {
    await page.focus(`main [aria-label="${name}"], .header [aria-label="${name}"]`);
    await page.keyboard.press('Enter');
    await soon(async () => assert.equal(await page.evaluate(() => document.activeElement.textContent), first));
    await page.keyboard.press(key);
    await soon(async () => assert.equal(await page.evaluate(() => document.activeElement.textContent), next));
    await page.keyboard.press('Escape');
    await soon(async () => assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), name));
  }
});

test('the list is one stop for Tab; arrows walk through it and to the menus', async (t) => {
  const { id } = await prepareSession(t, server, { title: 'Under the arrows' });
  const { client, id: newest } = await prepareSession(t, server, { title: 'Newest' });
  const away = await client.open({ title: 'Put away' });
  await client.request({ type: 'session.update', session: away, archived: true });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.waitForSelector('.item.current');
  await page.waitForSelector('.archive-button');
  const label = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.querySelector('.item-title')?.textContent);
  await page.focus('#search');
  await page.keyboard.press('Tab');
  assert.equal(await label(), 'Under the arrows', 'the session shown');
  await page.keyboard.press('ArrowUp');
  assert.equal(await label(), 'Newest');
  await page.keyboard.press('ArrowRight');
  assert.equal(await label(), 'Menu of Newest');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Tab');
  assert.match(await focused(page), /archive-button/, 'behind the list');
  await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowUp');
  assert.equal(await focused(page), 'search');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('F2');
  await page.keyboard.type('Found by arrows');
  await page.keyboard.press('Enter');
  await page.waitForSelector(`.item[data-id="${newest}"]:has-text("Found by arrows")`);
});

longTest('shortcuts can be turned off; Escape still stops', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.waitForSelector('.item.current');
  await page.keyboard.press('Control+Slash');
  await page.uncheck('#sheet-shortcuts-on');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.shortcuts', { state: 'detached' });
  await page.keyboard.press('Control+Slash');
  await page.keyboard.press('Control+Shift+KeyO');
  assert.equal(await page.locator('.shortcuts, .suggestion').count(), 0);
  await say(page, 'Tell me a story about a fox.');
  await streamed(page, 20);
  await page.keyboard.press('Escape');
  await settled(page, 1);
});

longTest('360 px wide: nothing is cut off, the sessions are a drawer, Enter is a new line', async (t) => {
  const page = await openPage(t, server, {
    viewport: { width: 360, height: 640 },
    hasTouch: true,
    isMobile: true,
  });
  const overflow = () =>
    page.evaluate(() =>
      [...document.querySelectorAll('body *')]
        .filter((e) => {
          const box = e.getBoundingClientRect();
          return (
            box.width &&
            box.height &&
            getComputedStyle(e).visibility === 'visible' &&
            box.right > innerWidth + 1 &&
            !e.closest('pre, .table, #sidebar')
          );
        })
        .map((e) => e.className || e.localName),
    );
  assert.deepEqual(await overflow(), []);
  await page.tap('#message');
  await page.keyboard.type('Write hello world');
  await page.keyboard.press('Enter');
  await page.keyboard.type('in C.');
  assert.equal(await page.inputValue('#message'), 'Write hello world\nin C.');
  await page.fill('#message', 'Write hello world in C.');
  await page.tap('.send');
  await settled(page, 1);
  assert.deepEqual(await overflow(), []);
  assert.equal(await page.evaluate(() => document.scrollingElement.scrollWidth), 360);
  const id = sessionOf(page);

  assert.equal(await page.isVisible('#sidebar'), false);
  await page.tap('.header [data-toggle=sidebar]');
  await page.waitForSelector('#sidebar', { state: 'visible' });
  await page.tap('#sidebar .new-button');
  await page.waitForSelector('#sidebar', { state: 'hidden' });
  await page.waitForSelector('.suggestion');
  await page.tap('.header [data-toggle=sidebar]');
  await page.waitForSelector('#sidebar', { state: 'visible' });
  await page.tap(`.item[data-id="${id}"] a`);
  await page.waitForSelector('#sidebar', { state: 'hidden' });
  await settled(page, 1);
  await page.tap('.header [data-toggle=sidebar]');
  await page.waitForSelector('#sidebar', { state: 'visible' });
  await page.touchscreen.tap(350, 300);
  await page.waitForSelector('#sidebar', { state: 'hidden' });
  await page.tap('.header [aria-label^="Settings"]');
  await page.waitForSelector('.settings');
  await page.waitForFunction(() => document.getAnimations().every(({ playState }) => playState !== 'running'));
  assert.deepEqual(await overflow(), []);
  assert.deepEqual(
    await page.evaluate(() =>
      [...document.querySelectorAll('button, a[href], input')]
        .filter((e) => {
          const box = e.getBoundingClientRect();
          return (
            box.width &&
            e.checkVisibility({ visibilityProperty: true }) &&
            !e.closest('.choice, p, .skip, .check') &&
            !e.classList.contains('skip') &&
            (box.width < 24 || box.height < 24)
          );
        })
        .map((e) => e.outerHTML.slice(0, 80)),
    ),
    [],
    'targets of at least 24 px',
  );
});
