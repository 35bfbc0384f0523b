// Exports of other chat pages become sessions; several sessions are exported, imported and deleted at once.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { conversationsIn } from '../../../web/src/foreign.js';
import { dateGroup } from '../../../web/src/format.js';
import { longTest, shortTest as test } from '../harness.mjs';
import { ask, connected, newContext, openPage, prepareSession, Server, sessionOf, settled, sharedServer, soon, turnsOf, unhurried } from './browser.mjs';

const server = await sharedServer();

const DAY = 86400000;
const gpt = (role, parts, more = {}) => ({ author: { role }, content: { content_type: 'text', parts }, ...more });
const chatGpt = {
  title: 'Marmots',
  update_time: 1700000002.5,
  current_node: 'e',
  mapping: {
    a: { message: null, parent: null, children: ['s'] },
    s: { message: gpt('system', [''], { metadata: { is_visually_hidden_from_conversation: true } }), parent: 'a', children: ['b'] },
    b: { message: gpt('user', ['Where do marmots live?']), parent: 's', children: ['c', 'x'] },
    x: { message: gpt('assistant', ['A version that is not shown.']), parent: 'b', children: [] },
    c: { message: gpt('assistant', ['search("marmot")'], { recipient: 'browser' }), parent: 'b', children: ['d'] },
    d: { message: gpt('tool', ['A page.']), parent: 'c', children: ['e'] },
    e: { message: { ...gpt('assistant', ['In burrows.', { content_type: 'image_asset_pointer' }]), content: { content_type: 'multimodal_text', parts: ['In burrows.', { content_type: 'image_asset_pointer' }] } }, parent: 'd', children: [] },
  },
};
const openWebui = {
  id: '1', title: 'Norway', updated_at: 1700000001,
  chat: {
    system: 'You are brief.',
    history: {
      currentId: 'm2',
      messages: {
        m1: { id: 'm1', parentId: null, role: 'user', content: 'Capital of Norway?' },
        m2: { id: 'm2', parentId: 'm1', role: 'assistant', content: '<details type="reasoning" done="true"><summary>Thought</summary>Oslo?</details>\nOslo.' },
      },
    },
  },
};
const llamaCpp = {
  conv: { id: 'c', name: 'Files', lastModified: 3, currNode: 'q2' },
  messages: [
    { id: 'r', type: 'root', role: 'system', content: '', parent: null },
    { id: 'q1', type: 'text', role: 'user', content: 'What is this?', parent: 'r', extra: [{ type: 'textFile', name: 'a.py', content: 'x = 1' }, { type: 'imageFile', name: 'a.png', base64Url: 'data:' }] },
    { id: 'a1', type: 'text', role: 'assistant', content: 'Python.', thinking: 'Hm.', parent: 'q1' },
    { id: 'q2', type: 'text', role: 'user', content: 'Thanks.', parent: 'a1' },
  ],
};

test('the path that was shown last is read from each format; what is no conversation is named', () => {
  const withFiles = (files, words) => [...files.map(({ name, text }) => `${name}: ${text}`), words].join('\n');
  const read = (value) => conversationsIn(JSON.stringify(value), withFiles);
  assert.deepEqual(read([chatGpt]), [{ title: 'Marmots', at: 1700000002.5, system: '', exchanges: [{ content: 'Where do marmots live?', text: 'In burrows.', at: 1700000002500 }] }]);
  assert.deepEqual(read([openWebui]), [{ title: 'Norway', at: 1700000001, system: 'You are brief.', exchanges: [{ content: 'Capital of Norway?', text: 'Oslo.', at: 1700000001000 }] }]);
  const files = [{ content: 'a.py: x = 1\nWhat is this?', text: 'Python.', at: 3000 }, { content: 'Thanks.', text: '(no answer)', at: 3000 }];
  assert.deepEqual(read(llamaCpp), [{ title: 'Files', at: 3, system: '', exchanges: files }]);
  assert.deepEqual(conversationsIn(`${JSON.stringify(llamaCpp)}\n${JSON.stringify(llamaCpp)}\n`, withFiles).map(({ title }) => title), ['Files', 'Files'], 'JSON lines');
  assert.deepEqual(read([chatGpt, openWebui]).map(({ title }) => title), ['Norway', 'Marmots'], 'oldest first');
  for (const other of ['x', '{}', '[]', '{"format":"parley.session"}', '[1]']) assert.equal(conversationsIn(other, withFiles), null, other);
  const hostile = [
    { title: 'Loop', current_node: 'a', mapping: { a: { message: gpt('user', ['Hello']), parent: 'b' }, b: { message: null, parent: 'a' } } },
    { title: 'Empty', current_node: 'z', mapping: {} },
    { title: 'Wrong', chat: { history: { messages: 'no', currentId: 'length' } } },
    { title: 'Bad', mapping: { a: 7 }, current_node: 'a' },
    { title: 'Proto', mapping: {}, current_node: '__proto__' },
    7,
  ];
  const found = read(hostile);
  assert.deepEqual(found.filter((one) => !(one instanceof Error)).map(({ title }) => title), ['Loop']);
  assert.equal(found.length, 6);
});

/** Chooses files in the page's dialog. */
async function importing(page, ...files) {
  const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('[aria-label="Import chats from files"]')]);
  await chooser.setFiles(files.map(([name, text]) => ({ name, mimeType: 'application/json', buffer: Buffer.from(text) })));
}

test("another page's conversations become sessions that go on; what fails is said in the dialog", async (t) => {
  const page = await openPage(t, server);
  const long = { title: 'Too long', update_time: 9, current_node: 'a', mapping: { a: { message: gpt('user', ['word '.repeat(9000)]), parent: null } } };
  await importing(page, ['conversations.json', JSON.stringify([chatGpt, openWebui, long])]);
  await page.waitForSelector('.import-problems li:has-text("Couldn\'t import “Too long”")');
  await page.locator('.import-dialog [role=status]', { hasText: /^2 chats imported\. 1 problem:/ }).waitFor();
  await page.click('.import-dialog button:has-text("Close")');
  await settled(page, 1);
  assert.equal(await page.locator('.title').innerText(), 'Marmots');
  assert.deepEqual((await turnsOf(server, sessionOf(page))).map(({ input, text }) => [input.content, text]), [['Where do marmots live?', 'In burrows.']]);
  await ask(page, 'And why?');
  const client = await server.connect();
  const { sessions } = await client.request({ type: 'session.list', query: 'Norway' });
  assert.deepEqual(sessions.map(({ title, system_start: system }) => [title, system]), [['Norway', 'You are brief.']]);
  assert.equal((await client.request({ type: 'session.list' })).sessions.length, 2, 'nothing of the one that failed stays');
  await client.close();
});

test('imported chats keep the dates of their messages, and stand in the list under them', async (t) => {
  const own = await Server.start(t, { args: unhurried });
  const [hour, now] = [3600000, Date.now()];
  const messages = (at) => ({
    a: { message: gpt('user', ['Hello.'], { create_time: (at - hour) / 1000 }), parent: null },
    b: { message: gpt('assistant', ['Hello to you.'], { create_time: at / 1000 }), parent: 'a' },
  });
  const chat = (title, at) => ({ title, update_time: now / 1000, current_node: 'b', mapping: messages(at) });
  const page = await openPage(t, own);
  await importing(page, ['conversations.json', JSON.stringify([chat('Last year', now - 400 * DAY), chat('Last week', now - 5 * DAY), { ...llamaCpp, conv: { ...llamaCpp.conv, lastModified: now - 20 * DAY } }])]);
  await page.waitForSelector('.toast:has-text("3 chats imported.")');
  const list = () => page.locator('.group').evaluateAll((all) => all.flatMap((group) => [group.dataset.name, ...[...group.querySelectorAll('.item-title')].map((title) => title.textContent)]));
  const wanted = ['Previous 7 days', 'Last week', 'Previous 30 days', 'Files', dateGroup(now - 400 * DAY), 'Last year'];
  await soon(async () => assert.deepEqual(await list(), wanted));
  await page.reload();
  await soon(async () => assert.deepEqual(await list(), wanted));
  const client = await own.connect();
  const { sessions } = await client.request({ type: 'session.list', query: 'Last year' });
  assert.equal(sessions[0].updated_ms, now - 400 * DAY);
  await client.close();
});

test('one imported chat of last year stands below the chats of today, before a reload too', async (t) => {
  const own = await Server.start(t, { args: unhurried });
  const { client } = await prepareSession(t, own, { title: 'Just now' });
  const page = await openPage(t, own);
  await page.waitForSelector('.item-title:text-is("Just now")');
  await importing(page, ['conversations.json', JSON.stringify([{ ...chatGpt, update_time: Date.now() / 1000 - 400 * 86400 }])]);
  await page.waitForSelector('.toast:has-text("Chat imported.")');
  const titles = () => page.locator('.item-title').allInnerTexts();
  await soon(async () => assert.deepEqual(await titles(), ['Just now', 'Marmots']));
  await page.reload();
  await soon(async () => assert.deepEqual(await titles(), ['Just now', 'Marmots']));
  await client.close();
});

longTest('on a phone the list gives way to the chat that was imported', async (t) => {
  const page = await openPage(t, server, { viewport: { width: 320, height: 640 } });
  await page.click('.header [data-toggle=sidebar]');
  await importing(page, ['chats.json', JSON.stringify([chatGpt])]);
  await page.waitForSelector('h1:has-text("Marmots")');
  await page.waitForSelector('#sidebar', { state: 'hidden' });
});

longTest('several sessions are exported into one file, which another server takes, and deleted, with time to undo', async (t) => {
  for (const title of ['First of many', 'Second of many']) {
    const { client, id } = await prepareSession(t, server, { title, sampling: { max_tokens: 3 } });
    await client.turn(id, 'Hello.');
  }
  const page = await openPage(t, server, { acceptDownloads: true });
  const manage = async () => {
    await page.click('.header [aria-label=Settings]');
    await page.click('#tab-page');
    await page.click('.settings button:has-text("Export or delete several")');
    for (const title of ['First of many', 'Second of many']) await page.check(`.manage-dialog label:has-text("${title}") input`);
    await page.waitForSelector('.manage-dialog [role=status]:has-text("2 chosen")');
  };
  await manage();
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('.manage-dialog button:has-text("Export")')]);
  const text = readFileSync(await download.path(), 'utf8');
  assert.equal(text.trim().split('\n').length, 2);
  await page.click('.manage-dialog button:has-text("Delete…")');
  await page.click('.confirm button:has-text("Delete")');
  await page.waitForSelector('.toast:has-text("2 chats deleted.")');
  await page.waitForSelector('.item:has-text("of many")', { state: 'detached' });
  await page.click('.toast button:has-text("Undo")');
  await page.waitForSelector('.item:has-text("First of many")');
  await page.waitForSelector('.item:has-text("Second of many")');
  const other = await openPage(t, server, { context: await newContext(t) });
  await connected(other);
  await importing(other, ['sessions.jsonl', text]);
  await other.waitForSelector('.toast:has-text("2 chats imported.")');
  await other.waitForFunction(() => [...document.querySelectorAll('.item')].filter((item) => item.innerText.includes('of many')).length === 4);
});
