// Pinned and archived chats: the server keeps the marks, so every browser of the owner shows the same list.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { connected, newContext, openPage, prepareSession, Server, settled, soon, unhurried } from './browser.mjs';


const titles = (page) => page.locator('.item-title').allInnerTexts();
const groups = (page) => page.locator('.group h3').allInnerTexts();

/** Sessions with these titles, the last one the newest. */
async function prepared(t, server, names) {
  const ids = [];
  for (const title of names) {
    const { client, id } = await prepareSession(t, server, { title });
    await client.turn(id, 'Hello.', { sampling: { max_tokens: 4 } });
    ids.push(id);
  }
  return ids;
}

async function choose(page, id, item) {
  await page.hover(`.item[data-id="${id}"]`);
  await page.click(`.item[data-id="${id}"] .item-menu`);
  await page.click(`.menu-item:text-is("${item}")`);
}

test('marks are kept by the server, filter lists, come with every view of a session, and are not copied', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const [first, second, third] = await prepared(t, server, ['One', 'Two', 'Three']);
  const client = await server.connect();
  const at = (await client.request({ type: 'session.get', session: first })).session.updated_ms;
  const changed = await client.request({ type: 'session.update', session: first, pinned: true });
  assert.deepEqual([changed.session.pinned, changed.session.archived, changed.session.updated_ms], [true, undefined, at]);
  await client.request({ type: 'session.update', session: second, archived: true });
  const list = async (c, how) => (await c.request({ type: 'session.list', ...how })).sessions.map(({ id }) => id);
  assert.deepEqual(await list(client, {}), [third, second, first], 'a client that does not ask sees all');
  assert.deepEqual(await list(client, { archived: false }), [third, first]);
  assert.deepEqual(await list(client, { archived: true }), [second]);
  assert.deepEqual(await list(client, { pinned: true, archived: false }), [first]);
  assert.deepEqual(await list(client, { pinned: false, limit: 1 }), [third]);
  assert.deepEqual(await list(client, { query: 'two' }), [second], 'a search finds what is archived');
  const { session: copy } = await client.request({ type: 'session.fork', session: first });
  assert.equal(copy.pinned, undefined);
  await server.stop('SIGKILL');
  const again = await Server.start(t, { db: server.db, args: unhurried });
  const other = await again.connect();
  assert.deepEqual(await list(other, { pinned: true }), [first]);
  assert.deepEqual(await list(other, { archived: true }), [second]);
  const back = await other.request({ type: 'session.update', session: first, pinned: false });
  assert.equal(back.session.pinned, undefined);
  assert.deepEqual(await list(other, { pinned: true }), []);
});

longTest('a pinned chat stands above all, in another browser too; an archived one leaves the list and is found', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const [first, second] = await prepared(t, server, ['One', 'Two', 'Three']);
  const page = await openPage(t, server);
  const other = await openPage(t, server, { context: await newContext(t) });
  await soon(async () => assert.deepEqual(await titles(page), ['Three', 'Two', 'One']));
  await choose(page, first, 'Pin');
  for (const one of [page, other]) await soon(async () => assert.deepEqual(await titles(one), ['One', 'Three', 'Two']));
  await soon(async () => assert.deepEqual(await groups(other), ['Pinned', 'Today']));
  const offered = () => Promise.all([page, other].map((one) => one.isVisible('.archive-button')));
  assert.deepEqual(await offered(), [false, false], 'none is archived: the button would lead to an empty list');
  await choose(page, second, 'Archive');
  for (const one of [page, other]) await soon(async () => assert.deepEqual(await titles(one), ['One', 'Three']));
  await soon(async () => assert.deepEqual(await offered(), [true, true]));
  await page.waitForSelector('.toast:has-text("Chat archived.")');

  await other.fill('#search', 'two');
  await other.waitForSelector('.item.archived');
  await soon(async () => assert.deepEqual(await titles(other), ['Two']));
  await other.fill('#search', '');
  await soon(async () => assert.deepEqual(await titles(other), ['One', 'Three']));
  await other.click('.archive-button:text-is("Archived chats")');
  await soon(async () => assert.deepEqual(await titles(other), ['Two']));
  await choose(other, second, 'Unarchive');
  await other.waitForSelector('.list-note:has-text("No archived chats.")');
  await other.click('.archive-button:text-is("Back to the chats")');
  for (const one of [page, other]) await soon(async () => assert.deepEqual(await titles(one), ['One', 'Three', 'Two']));
  await soon(async () => assert.deepEqual(await offered(), [false, false]));
  await choose(other, first, 'Unpin');
  await soon(async () => assert.deepEqual(await titles(page), ['Three', 'Two', 'One']));
});

longTest('the archive is offered to a browser that comes later, as long as a chat is in it', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const [first, second] = await prepared(t, server, ['One', 'Two', 'Three']);
  const client = await server.connect();
  const archive = (session, archived) => client.request({ type: 'session.update', session, archived });
  await archive(first, true);
  await archive(second, true);
  const page = await openPage(t, server);
  await page.waitForSelector('.archive-button:text-is("Archived chats")');
  assert.deepEqual(await titles(page), ['Three']);
  await client.request({ type: 'session.close', session: second, delete: true }); // the one that the page knows
  await soon(async () => assert.deepEqual(await page.isVisible('.archive-button'), true));
  await archive(first, false);
  await page.waitForSelector('.archive-button', { state: 'hidden' });
  await soon(async () => assert.deepEqual(await titles(page), ['Three', 'One']));
});

longTest('a pinned chat is there though it is older than a page of the list; several are archived at once', async (t) => {
  const server = await Server.start(t, { args: [...unhurried, '--messages-per-second', '1000', '--message-burst', '1000'] });
  const names = Array.from({ length: 53 }, (_, i) => `Chat ${i}`);
  const { client } = await prepareSession(t, server, { title: 'Oldest' });
  for (const title of names) await client.open({ title });
  const { sessions } = await client.request({ type: 'session.list', query: 'oldest' });
  await client.request({ type: 'session.update', session: sessions[0].id, pinned: true });
  const page = await openPage(t, server, { hash: `#s=${sessions[0].id}` });
  await connected(page);
  await settled(page, 0);
  const newest = ['Chat 52', 'Chat 51']; // in either order: they may be of one millisecond
  const shown = (n) =>
    soon(async () => {
      const all = await titles(page);
      assert.equal(all[0], 'Oldest');
      assert.equal(newest.filter((name) => all.includes(name)).length, n);
    });
  await shown(2);
  await choose(page, sessions[0].id, 'Select several…');
  await page.waitForFunction(() => document.querySelectorAll('.manage-list li').length === 54);
  for (const name of newest) await page.check(`.manage-list label:has(:text-is("${name}")) input`);
  await page.click('.manage-dialog button:text-is("Archive")');
  await page.waitForSelector('.toast:has-text("2 chats archived.")');
  await shown(0);
  // The dialog says which ones are archived, and takes them back.
  await choose(page, sessions[0].id, 'Select several…');
  await page.waitForFunction(() => document.querySelectorAll('.manage-list li').length === 54);
  const rowOf = (name) => page.locator(`.manage-list label:has(:text-is("${name}"))`);
  for (const [name, put] of [[newest[0], true], ['Chat 50', false]]) assert.equal(/^Archived · /.test(await rowOf(name).locator('.manage-date').innerText()), put, name);
  for (const name of newest) await rowOf(name).locator('input').check();
  await page.click('.manage-dialog button:text-is("Unarchive")');
  await shown(2);
});
