// The list is updated in place: a row that changed is drawn, and no other one is touched.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { openPage, prepareSession, Server, soon, unhurried } from './browser.mjs';


const titles = (page) => page.locator('.item-title').allInnerTexts();

/** Counts rows and groups that are put into the list from here on; an element that moves counts once. */
const watch = (page) =>
  page.evaluate(() => {
    window.placed = { rows: [], groups: 0 };
    new MutationObserver((records) => {
      for (const { addedNodes } of records)
        for (const node of addedNodes) {
          if (node.classList?.contains('item')) window.placed.rows.push(node.querySelector('.item-title').textContent);
          if (node.classList?.contains('group')) window.placed.groups++;
        }
    }).observe(document.querySelector('.groups'), { childList: true, subtree: true });
  });
const placed = (page) => page.evaluate(() => window.placed);

async function prepared(t, n) {
  const server = await Server.start(t, { args: [...unhurried, '--messages-per-second', '1000', '--message-burst', '1000'] });
  const { client, id } = await prepareSession(t, server, { title: 'Chat 0' });
  const ids = [id];
  for (let i = 1; i < n; i++) ids.push(await client.open({ title: `Chat ${i}` }));
  const page = await openPage(t, server);
  await page.waitForFunction((wanted) => document.querySelectorAll('.item').length === wanted, n);
  return { client, ids, page };
}

longTest('a new title places no row, a turn places one, a new chat one, a pinned one itself and its group', async (t) => {
  const { client, ids, page } = await prepared(t, 30);
  const before = await titles(page); // two of the same millisecond may be in either order
  await watch(page);
  await client.request({ type: 'session.update', session: ids[20], title: 'Renamed' });
  await soon(async () => assert.ok((await titles(page)).includes('Renamed')));
  assert.deepEqual(await placed(page), { rows: [], groups: 0 });
  await client.turn(ids[10], 'Hello.', { sampling: { max_tokens: 2 } });
  await soon(async () => assert.equal((await titles(page))[0], 'Chat 10'));
  assert.deepEqual(await placed(page), { rows: ['Chat 10'], groups: 0 });
  await client.open({ title: 'New' });
  await soon(async () => assert.equal((await titles(page))[0], 'New'));
  assert.deepEqual(await placed(page), { rows: ['Chat 10', 'New'], groups: 0 });
  await client.request({ type: 'session.update', session: ids[5], pinned: true });
  await soon(async () => assert.equal((await titles(page))[0], 'Chat 5'));
  assert.deepEqual(await placed(page), { rows: ['Chat 10', 'New', 'Chat 5'], groups: 1 });
  await client.request({ type: 'session.close', session: ids[5], delete: true });
  await soon(async () => assert.deepEqual(await page.locator('.group h3').allInnerTexts(), ['Today']));
  assert.equal((await placed(page)).rows.length, 3);
  const expected = ['New', 'Chat 10', ...before.map((one) => (one === 'Chat 20' ? 'Renamed' : one)).filter((one) => !['Chat 10', 'Chat 5'].includes(one))];
  await soon(async () => assert.deepEqual(await titles(page), expected));
});

test('what arrives leaves the place in the list, the focus and an open menu as they are', async (t) => {
  const { client, ids, page } = await prepared(t, 45);
  const list = page.locator('.session-list');
  await list.evaluate((element) => (element.scrollTop = 600));
  const row = page.locator(`.item[data-id="${ids[15]}"]`);
  await row.locator('a').focus();
  const before = await list.evaluate((element) => element.scrollTop);
  const at = await row.evaluate((element) => element.getBoundingClientRect().top);
  assert.ok(before > 300);
  await client.request({ type: 'session.update', session: ids[16], title: 'Renamed' });
  await client.turn(ids[2], 'Hello.', { sampling: { max_tokens: 2 } });
  await soon(async () => assert.equal((await titles(page))[0], 'Chat 2'));
  const focused = () => page.evaluate(() => document.activeElement.closest('.item')?.dataset.id);
  assert.equal(await focused(), ids[15]);
  await soon(async () => assert.ok(Math.abs((await row.evaluate((element) => element.getBoundingClientRect().top)) - at) < 2));

  await row.hover();
  await row.locator('.item-menu').click();
  await page.waitForSelector('.menu');
  await client.turn(ids[3], 'Hello.', { sampling: { max_tokens: 2 } });
  await client.turn(ids[15], 'Hello.', { sampling: { max_tokens: 2 } }); // its own row moves, too
  await soon(async () => assert.equal((await titles(page))[0], 'Chat 15'));
  assert.equal(await page.locator('.menu').count(), 1);
  assert.equal(await row.locator('.item-menu').getAttribute('aria-expanded'), 'true');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('role')), 'menuitem');
  await page.keyboard.press('Escape');
  assert.equal(await focused(), ids[15]);
});
