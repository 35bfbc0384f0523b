// Folders: the server keeps each session's, so every browser of the owner shows the same ones.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { longTest, shortTest as test } from '../harness.mjs';
import { connected, newContext, openPage, prepareSession, Server, settled, soon, unhurried } from './browser.mjs';

/** The list as it is shown: each group's name with its titles. */
const shown = (page) =>
  page.locator('.group').evaluateAll((all) =>
    all.map((group) => [group.querySelector('h3').innerText, ...[...group.querySelectorAll('ul:not([hidden]) .item-title')].map((title) => title.textContent)]));
const shows = (page, wanted) => soon(async () => assert.deepEqual(await shown(page), wanted));

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
async function axeFindsNothing(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target)}`), []);
}

/** Opens the dialog from a session's menu, and moves the session. */
async function move(page, id, folder) {
  await page.hover(`.item[data-id="${id}"]`);
  await page.click(`.item[data-id="${id}"] .item-menu`);
  await page.click('.menu-item:text-is("Move to folder…")');
  await page.fill('#folder-name', folder);
  await page.press('#folder-name', 'Enter');
  await page.waitForSelector('.folder-dialog', { state: 'detached' });
}

test('a chat is moved into a folder and out of it; a folder is closed by the keyboard and stays closed', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const ids = [], clients = [];
  for (const title of ['One', 'Two', 'Three']) {
    const { client, id } = await prepareSession(t, server, { title });
    await client.turn(id, 'Hello.', { sampling: { max_tokens: 4 } });
    ids.push(id);
    clients.push(client);
  }
  const [first, second] = ids, owner = clients[1];
  const page = await openPage(t, server);
  await shows(page, [['Today', 'Three', 'Two', 'One']]);
  await move(page, first, ' Today '); // no other group's
  await shows(page, [['Today', 'One'], ['Today', 'Three', 'Two']]);
  await move(page, second, 'A');
  await shows(page, [['A', 'Two'], ['Today', 'One'], ['Today', 'Three']]);
  for (const id of [second, first]) {
    await page.click(`.item[data-id="${id}"] .item-link`);
    await settled(page, 1);
  }

  await page.focus('#search');
  await page.keyboard.press('ArrowDown');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'folder-button');
  await page.keyboard.press('Enter');
  await shows(page, [['A'], ['Today', 'One'], ['Today', 'Three']]);
  assert.equal(await page.getAttribute('.folder-button >> nth=0', 'aria-expanded'), 'false');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  assert.equal(await page.evaluate(() => document.activeElement.closest('.item')?.dataset.id), first, 'hidden chats are passed over');
  const marked = () => page.locator('.folder-button').first().evaluate((button) => getComputedStyle(button, '::after').content !== 'none');
  assert.equal(await marked(), false);
  await owner.turn(second, 'Again.', { sampling: { max_tokens: 4 } });
  await soon(async () => assert.equal(await marked(), true, 'the closed folder hides an answer that is unread'));
  const said = () => page.getAttribute('.folder-button >> nth=0', 'aria-label');
  await soon(async () => assert.equal(await said(), 'A, unread'));
  await page.reload();
  await connected(page);
  await shows(page, [['A'], ['Today', 'One'], ['Today', 'Three']]);
  await soon(async () => assert.equal(await said(), 'A, unread'));
  await page.click('.folder-button >> nth=0');
  await shows(page, [['A', 'Two'], ['Today', 'One'], ['Today', 'Three']]);
  assert.equal(await said(), null, 'its rows say it themselves');
  await move(page, second, '');
  await shows(page, [['Today', 'One'], ['Today', 'Two', 'Three']]);
});

test('a folder is renamed with its archived chats; several chats are moved at once; no name: no folder', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const opened = [];
  for (const [title, folder] of [['One', 'A'], ['Two', 'A'], ['Three', 'B'], ['Four', '']]) {
    const { client, id } = await prepareSession(t, server, { title });
    await client.turn(id, 'Hello.', { sampling: { max_tokens: 4 } });
    await client.request({ type: 'session.update', session: id, folder, archived: title === 'Two' });
    opened.push([client, id]);
  }
  const [client, archived] = opened[1];
  const folderOfArchived = async () => (await client.request({ type: 'session.get', session: archived })).session.folder;
  const page = await openPage(t, server);
  await shows(page, [['A', 'One'], ['B', 'Three'], ['Today', 'Four']]);
  await page.focus('.folder-button >> nth=0');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => document.activeElement.ariaLabel), 'Rename folder A');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => document.activeElement.ariaLabel), 'New chat in A');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('F2');
  assert.equal(await page.inputValue('#folder-name'), 'A');
  await page.fill('#folder-name', 'Z <b>');
  await page.keyboard.press('Enter');
  await shows(page, [['B', 'Three'], ['Z <b>', 'One'], ['Today', 'Four']]);
  assert.equal(await folderOfArchived(), 'Z <b>');

  await page.hover('.item');
  await page.click('.item .item-menu');
  await page.click('.menu-item:text-is("Select several…")');
  for (const title of ['Four', 'Three']) await page.check(`.manage-dialog label:has-text("${title}") input`);
  await page.click('.manage-dialog button:text-is("Move…")');
  await page.fill('#folder-name', 'C');
  await page.click('.folder-dialog button:text-is("Move")');
  await page.waitForSelector('.dialog', { state: 'detached' });
  await shows(page, [['C', 'Four', 'Three'], ['Z <b>', 'One']]);

  await page.hover('.folder-button >> nth=1');
  await page.click('[aria-label="Rename folder Z <b>"]');
  await page.fill('#folder-name', ' ');
  await page.click('.folder-dialog button:text-is("Rename")');
  await shows(page, [['C', 'Four', 'Three'], ['Today', 'One']]);
  assert.equal(await folderOfArchived(), undefined);
});

test('a new chat begins in its folder, and only that one', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const { client, id } = await prepareSession(t, server, { title: 'One' });
  await client.turn(id, 'Hello.', { sampling: { max_tokens: 4 } });
  await client.request({ type: 'session.update', session: id, folder: 'A' });
  const page = await openPage(t, server);
  await shows(page, [['A', 'One']]);
  await page.hover('.folder-button');
  await page.click('[aria-label="New chat in A"]');
  await soon(async () => assert.equal(await page.textContent('.title'), 'New chat in A'));
  await page.fill('#message', 'Two');
  await page.press('#message', 'Enter');
  await shows(page, [['A', 'Two', 'One']]);
  await settled(page, 1);
  await page.click('.new-button');
  await soon(async () => assert.equal(await page.textContent('.title'), 'New chat'));
  await page.fill('#message', 'Three');
  await page.press('#message', 'Enter');
  await shows(page, [['A', 'Two', 'One'], ['Today', 'Three']]);
  await settled(page, 1);

  await page.hover('.folder-button');
  await page.click('[aria-label="New chat in A"]');
  await page.click('.new-button');
  await soon(async () => assert.equal(await page.textContent('.title'), 'New chat', 'taken back'));
});

test('a chat in a folder is listed though it is older than a page of the list', async (t) => {
  const server = await Server.start(t, { args: [...unhurried, '--messages-per-second', '1000', '--message-burst', '1000'] });
  const { client, id } = await prepareSession(t, server, { title: 'Oldest' });
  await client.request({ type: 'session.update', session: id, folder: 'A' });
  for (let i = 0; i < 51; i++) await client.open({ title: `Chat ${i}` });
  const page = await openPage(t, server);
  await soon(async () => assert.deepEqual((await shown(page))[0], ['A', 'Oldest']));
});

test('session.update sets the folder; bad names are refused; lists, exports and imports have it, forks do not', async (t) => {
  const server = await Server.start(t, { args: unhurried });
  const { client, id } = await prepareSession(t, server, { title: 'One' });
  await client.turn(id, 'Hello.', { sampling: { max_tokens: 4 } });
  const careless = await server.connect({ malformed: true });
  const update = (folder) => careless.request({ type: 'session.update', session: id, folder });
  const { session } = await update('Arbeit 😀');
  assert.equal(session.folder, 'Arbeit 😀');
  for (const [folder, code] of [['a\nb', 'invalid'], ['\u0085', 'invalid'], ['  ', 'invalid'], ['\u200b\u2060', 'invalid'], ['a\u202eb', 'invalid'], ['😀'.repeat(65), 'invalid'], [7, 'bad_message'], [['a'], 'bad_message']]) {
    const refusal = await update(folder);
    assert.deepEqual([refusal.type, refusal.code], ['error', code], JSON.stringify(folder));
    assert.match(refusal.message, /folder/);
  }
  const list = async (how) => (await client.request({ type: 'session.list', ...how })).sessions.map(({ folder }) => folder);
  assert.deepEqual(await list({ in_folder: true }), ['Arbeit 😀']);
  assert.deepEqual(await list({ in_folder: false }), []);
  const { session: copy } = await client.request({ type: 'session.fork', session: id });
  assert.equal(copy.folder, undefined);
  const { archive } = await client.request({ type: 'session.export', session: id });
  await client.request({ type: 'session.close', session: id, delete: true });
  const back = await client.request({ type: 'session.import', archive });
  assert.equal(back.session.folder, 'Arbeit 😀');
});

longTest('every chat in a folder is listed, also those behind the first 200', async (t) => {
  const server = await Server.start(t, { args: [...unhurried, '--messages-per-second', '2000', '--message-burst', '2000'] });
  const { client, id } = await prepareSession(t, server, { title: 'Oldest' });
  await client.request({ type: 'session.update', session: id, folder: 'B' });
  for (let i = 0; i < 205; i++) {
    const opened = await client.open({ title: `Chat ${i}` });
    await client.request({ type: 'session.update', session: opened.session?.id ?? opened, folder: 'A' });
  }
  for (let i = 0; i < 53; i++) await client.open({ title: `Newest ${i}` });
  const page = await openPage(t, server);
  await soon(async () => assert.deepEqual((await shown(page)).map(([name, ...titles]) => [name, titles.length]).slice(0, 2), [['A', 205], ['B', 1]]));
});

longTest('another browser follows; chats older than a page of the list are in their folders', async (t) => {
  const server = await Server.start(t, { args: [...unhurried, '--messages-per-second', '1000', '--message-burst', '1000'] });
  const { client, id } = await prepareSession(t, server, { title: 'Oldest' });
  await client.request({ type: 'session.update', session: id, folder: 'A' });
  for (let i = 0; i < 53; i++) await client.open({ title: `Chat ${i}` });
  const page = await openPage(t, server);
  const other = await openPage(t, server, { context: await newContext(t) });
  for (const one of [page, other]) await soon(async () => assert.deepEqual((await shown(one))[0], ['A', 'Oldest']));
  await page.hover('.item');
  await page.click('.item .item-menu');
  await page.click('.menu-item:text-is("Move to folder…")');
  assert.equal(await page.inputValue('#folder-name'), 'A');
  await axeFindsNothing(page);
  await page.fill('#folder-name', 'B');
  await page.click('.folder-dialog button:text-is("Move")');
  for (const one of [page, other]) await soon(async () => assert.deepEqual((await shown(one))[0], ['B', 'Oldest']));
  await page.click('.folder-button >> nth=0');
  await axeFindsNothing(page);
});
