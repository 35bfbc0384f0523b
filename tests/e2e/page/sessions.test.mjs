// The list of sessions: two tabs, search, rename, delete, paging, eviction and return, export and import.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { allowClipboard, ask, connected, ENDLESS, fromMenu, holdTimers, letTimersGo, newContext, newPage, newSession, openPage, prepareSession, say, Server, sessionOf, settled, sharedServer, soon, streamed, turnsOf, typed, unhurried } from './browser.mjs';
import { longTest, parley, shortTest as test, until } from '../harness.mjs';
import { clock, dateGroup, day, moment } from '../../../web/src/format.js';

const server = await sharedServer();
const item = (id) => `.item[data-id="${id}"]`;

test('what is typed right behind a change of session is for the new one, and no draft is lost', async (t) => {
  const { id } = await prepareSession(t, server);
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.fill('#message', 'half a thought');
  // In one go, as it happens on a busy machine: no frame is drawn between the click and the words.
  const left = await page.evaluate(() => {
    const field = document.querySelector('#message');
    document.querySelector('.new-button').click();
    const found = field.value;
    field.value = 'What is the capital of Peru?';
    field.dispatchEvent(new Event('input', { bubbles: true }));
    field.form.requestSubmit();
    return found;
  });
  assert.equal(left, '');
  await settled(page, 1);
  assert.equal(await page.locator('.user .bubble').innerText(), 'What is the capital of Peru?');
  assert.notEqual(sessionOf(page), id);
  assert.equal((await turnsOf(server, id)).length, 0);
  await page.click(`${item(id)} a`);
  await typed(page, 'half a thought');
});

longTest('a session that is imported beside the server is in the list of every tab, unasked for', async (t) => {
  const { client, id } = await prepareSession(t, server, { title: 'From elsewhere' });
  await client.turn(id, 'My name is Zora.');
  const file = execFileSync(parley, ['sessions', 'export', id, '--db', server.db]);
  const context = await newContext(t);
  const tabs = [await openPage(t, server, { context }), await openPage(t, server, { context })];
  const told = JSON.parse(execFileSync(parley, ['sessions', 'import', '-', '--db', server.db, '--owner', 'local', '--new-id', '--json'], { input: file }));
  for (const tab of tabs) await tab.waitForSelector(item(told.session.id));
  await tabs[0].click(`${item(told.session.id)} a`);
  await settled(tabs[0], 1);
  assert.match(await ask(tabs[0], 'What is my name?'), /Zora/);
});

longTest('a second tab shows the same sessions and streams the same answer live', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const context = await newContext(t);
  const first = await openPage(t, server, { context, hash: `#s=${id}` });
  const second = await openPage(t, server, { context });
  await second.waitForSelector(item(id));
  await second.click(`${item(id)} a`);
  await say(first, 'Tell me a story about an owl.');
  await streamed(second, 100);
  assert.equal(await second.locator('.user .bubble').innerText(), 'Tell me a story about an owl.');
  await second.press('#message', 'Escape');
  await settled(first, 1);
  await settled(second, 1);
  assert.equal(
    await second.locator('.turn .prose').innerHTML(),
    await first.locator('.turn .prose').innerHTML(),
  );

  // A session begun in one tab appears in the other; its removal reaches the tab that shows it.
  await newSession(second);
  await ask(second, 'What is the capital of Peru?');
  const other = sessionOf(second);
  await first.waitForSelector(item(other));
  await first.click(`${item(other)} a`);
  await first.waitForSelector('.user .bubble:has-text("Peru")');
  await second.click('.header [aria-label="Chat menu"]');
  await second.click('.menu-item.danger');
  await second.click('.confirm .danger');
  await first.waitForSelector(item(other), { state: 'detached' });
  await first.waitForSelector('.suggestion');
});

test('a session is renamed in place, and gets its own title back', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'What is the capital of Norway?');
  const id = sessionOf(page);
  // The list hears of the title by itself, not with the answer.
  await page.waitForFunction(
    (s) => document.querySelector(`${s} .item-title`).textContent === 'What is the capital of Norway?',
    item(id),
  );
  await page.hover(item(id));
  await page.click(`${item(id)} .item-menu`);
  await page.click('.menu-item:has-text("Rename")');
  await page.keyboard.type('Northern towns');
  await page.keyboard.press('Enter');
  await page.waitForFunction(
    (s) => document.querySelector(`${s} .item-title`).textContent === 'Northern towns',
    item(id),
  );
  assert.equal(await page.locator('h1').innerText(), 'Northern towns');
  await page.dblclick('h1');
  await page.keyboard.type('given up');
  await page.keyboard.press('Escape');
  await soon(async () => assert.equal(await page.locator('h1').innerText(), 'Northern towns'));
  await page.dblclick('h1');
  await page.fill('.title-rename', '');
  await page.keyboard.press('Enter');
  await page.waitForFunction(
    () => document.querySelector('h1').textContent === 'What is the capital of Norway?',
  );
});

test('search finds titles and words of both sides, and Escape brings the list back', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'What is the capital of Kenya?');
  const id = sessionOf(page);
  await newSession(page);
  await ask(page, 'What is 17 + 25?');
  const sums = sessionOf(page);
  await page.waitForSelector(item(sums));
  for (const [query, found, hidden] of [
    ['kenya', id, sums],
    ['nairo', id, sums],
    ['17', sums, id],
  ]) {
    await page.fill('#search', query);
    await page.waitForSelector(item(hidden), { state: 'detached' });
    await page.waitForSelector(item(found));
    assert.equal(await page.locator('.group h3').innerText(), 'Found');
  }
  await page.fill('#search', 'zzyzx');
  await page.waitForSelector('.list-note:has-text("No chats found")');
  await page.press('#search', 'Escape');
  await page.waitForSelector(item(id));
  assert.equal(await page.inputValue('#search'), '');
});

test('deleting asks first, and the words are gone from the server', async (t) => {
  const page = await openPage(t, server);
  await holdTimers(page);
  await ask(page, 'My name is Quill.');
  const id = sessionOf(page);
  await page.keyboard.press('Control+Shift+Backspace');
  await page.waitForSelector('.confirm');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.confirm', { state: 'detached' });
  await page.waitForSelector(item(id));
  await page.keyboard.press('Control+Shift+Backspace');
  await page.click('.confirm .danger');
  await page.waitForSelector(item(id), { state: 'detached' });
  await page.waitForSelector('.suggestion');
  await page.waitForFunction(() => location.hash === '');
  const client = await server.connect();
  assert.equal((await client.request({ type: 'session.get', session: id })).type, 'session.state', 'there while it can be undone');
  await letTimersGo(page);
  // Until the page knows of its end as well: a link to what is being deleted would be left again.
  await page.waitForFunction((one) => !localStorage.getItem('parley.deletions')?.includes(one), id);
  assert.equal((await client.request({ type: 'session.get', session: id })).code, 'session_not_found');
  await page.goto(`${server.url}/#s=${id}`);
  await page.waitForSelector('.note:has-text("not on the server")');
  assert.equal(await page.locator('h1').innerText(), 'Chat not loaded');
  await client.close();
});

test('a page that closes while a deletion could be undone tells the server before it goes', async (t) => {
  const { client, id } = await prepareSession(t, server, { title: 'Gone with the tab', sampling: { max_tokens: 3 } });
  const { id: other } = await prepareSession(t, server, { title: 'A turn less', sampling: { max_tokens: 3 } });
  for (const text of ['One.', 'Two.']) await client.turn(other, text);
  const page = await newPage(t, await newContext(t));
  await holdTimers(page);
  await page.goto(`${server.url}/#s=${other}`);
  await connected(page);
  await settled(page, 2);
  await page.locator('[data-action=delete]').last().focus();
  await page.keyboard.press('Enter');
  await page.click('.confirm .danger');
  await page.waitForFunction(() => document.querySelectorAll('.turn .bubble').length === 1);
  await page.click(item(id));
  await page.waitForFunction(() => document.querySelector('h1').textContent === 'Gone with the tab');
  await page.keyboard.press('Control+Shift+Backspace');
  await page.click('.confirm .danger');
  await page.waitForSelector(item(id), { state: 'detached' });
  assert.equal((await client.request({ type: 'session.get', session: id })).type, 'session.state', 'there while it can be undone');
  const closed = page.waitForEvent('close');
  await page.close({ runBeforeUnload: true }); // as a person closes it: otherwise the browser may end it without its last events
  await closed;
  await until('the chat is gone', async () => (await client.request({ type: 'session.get', session: id })).code === 'session_not_found');
  const turnsOfOther = async () => (await client.request({ type: 'session.outline', session: other })).turns.map(({ turn }) => turn).join();
  await until('the turn is gone', async () => (await turnsOfOther()) === '0');
});

longTest('who comes back to a chat that is being deleted is told so; who has left for another one stays there', async (t) => {
  const context = await newContext(t);
  const page = await newPage(t, context);
  await holdTimers(page);
  // What a link does between its click and the page's hearing of it, which no test can meet by chance.
  await page.addInitScript(() => {
    const Plain = window.WebSocket;
    window.WebSocket = class extends Plain {
      constructor(...args) {
        super(...args);
        window.lastSocket = this;
      }
    };
  });
  await page.goto(server.url);
  await connected(page);
  await ask(page, 'My name is Heron.');
  const id = sessionOf(page);
  await page.keyboard.press('Control+Shift+Backspace');
  await page.click('.confirm .danger');
  await page.waitForSelector(item(id), { state: 'detached' });
  await page.evaluate((one) => (location.hash = `#s=${one}`), id);
  await settled(page, 1);
  await letTimersGo(page);
  await page.waitForSelector('.note:has-text("not on the server")');
  assert.equal(sessionOf(page), id);

  const { id: other } = await prepareSession(t, server, { title: 'The other one' });
  await page.click('.new-button');
  await ask(page, 'My name is Egret.');
  const gone = sessionOf(page);
  await page.evaluate(([one, next]) => {
    location.hash = `#s=${next}`;
    window.lastSocket.dispatchEvent(new MessageEvent('message', { data: JSON.stringify({ type: 'session.removed', session: one }) }));
  }, [gone, other]);
  await page.waitForFunction(() => document.querySelector('h1').textContent === 'The other one');
  assert.equal(sessionOf(page), other);
});

longTest('a deletion can be undone for a while; a page that closes meanwhile leaves it to the next one', async (t) => {
  const context = await newContext(t);
  const page = await newPage(t, context);
  await holdTimers(page);
  await page.goto(server.url);
  await connected(page);
  await ask(page, 'My name is Wren.');
  const id = sessionOf(page);
  await page.keyboard.press('Control+Shift+Backspace');
  await page.click('.confirm .danger');
  await page.waitForSelector(item(id), { state: 'detached' });
  await page.click('.toast button:has-text("Undo")');
  await page.waitForSelector(item(id));
  await settled(page, 1);
  assert.equal(sessionOf(page), id);
  await letTimersGo(page); // the time in which it can be undone is over
  await page.waitForTimeout(300);
  const client = await server.connect();
  assert.equal((await client.request({ type: 'session.get', session: id })).type, 'session.state');
  await page.keyboard.press('Control+Shift+Backspace');
  await page.click('.confirm .danger');
  await page.waitForSelector(item(id), { state: 'detached' });
  await page.close();
  const next = await openPage(t, server, { context });
  await until('its end', async () => (await client.request({ type: 'session.get', session: id })).code === 'session_not_found');
  assert.equal(await next.locator(item(id)).count(), 0);
  await client.close();
});

test('a long list comes in pages', async (t) => {
  const busy = await Server.start(t, { args: ['--messages-per-second', '1000', '--message-burst', '1000'] });
  const client = await busy.connect();
  t.after(() => client.terminate());
  const ids = [];
  for (let i = 0; i < 170; i++) ids.push(await client.open({ title: `Number ${i}` }));
  const page = await openPage(t, busy);
  await page.waitForFunction(() => document.querySelectorAll('.item').length >= 50);
  assert.equal(await page.locator('.item').count(), 50);
  for (const n of [100, 150, 170]) {
    await page.evaluate(() => document.querySelector('.session-list').scrollTo(0, 1e6));
    await page.waitForFunction((most) => document.querySelectorAll('.item').length >= most, n);
  }
  assert.deepEqual(
    await page.locator('.item').evaluateAll((all) => all.map((e) => e.dataset.id).sort()),
    ids.sort(),
  );
});

longTest('export gives all that was said, as JSON and as Markdown; import brings it back, on another server too', async (t) => {
  const page = await openPage(t, server, { acceptDownloads: true });
  await ask(page, 'My name is Zora.');
  await ask(page, 'Write hello world in C.');
  const turns = await turnsOf(server, sessionOf(page));
  const exported = async (entry) => {
    await page.click('.header [aria-label="Chat menu"]');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.click(`.menu-item:has-text("${entry}")`),
    ]);
    return { name: download.suggestedFilename(), text: readFileSync(await download.path(), 'utf8') };
  };
  const json = await exported('JSON');
  assert.equal(json.name, 'My-name-is-Zora.json');
  const whole = JSON.parse(json.text);
  assert.equal(whole.format, 'parley.session');
  assert.deepEqual(
    whole.turns.map((turn) => [turn.input_text, turn.text, turn.seed]),
    turns.map((turn) => [turn.input.content, turn.text, turn.seed]),
  );
  const markdown = await exported('Markdown');
  assert.equal(markdown.name, 'My-name-is-Zora.md');
  for (const turn of turns)
    assert.ok(markdown.text.includes(turn.input.content) && markdown.text.includes(turn.text));

  const other = await openPage(t, await Server.start(t, { args: [...unhurried, '--max-message-bytes', '64KiB'] }));
  const importing = async (name, text) => {
    const [chooser] = await Promise.all([
      other.waitForEvent('filechooser'),
      other.click('[aria-label="Import chats from files"]'),
    ]);
    await chooser.setFiles({ name, mimeType: 'application/json', buffer: Buffer.from(text) });
  };
  await importing('zora.json', json.text);
  await settled(other, 2);
  assert.notEqual(sessionOf(other), sessionOf(page));
  await other.waitForSelector(item(sessionOf(other)));
  assert.match(await ask(other, 'What is my name?'), /Zora/);
  // A file of another kind, and one that is too long, are refused with a sentence; the shown session stays.
  const shown = sessionOf(other);
  const refused = async (name, text, why) => {
    await importing(name, text);
    await other.waitForSelector(`.import-problems :has-text("${why}")`);
    await other.click('.import-dialog button:has-text("Close")');
  };
  await refused('notes.json', '{"format":"notes"}', "Couldn't import “notes.json”: Not a Parley session file");
  await refused('long.json', 'x'.repeat(70000), "Couldn't import “long.json”: not valid JSON");
  await refused('longer.json', 'x'.repeat((15 << 20) + 1), '15 MiB at most');
  assert.equal(sessionOf(other), shown);
  assert.equal(await other.locator('.item').count(), 1);
});

longTest('an export that is longer than a message is imported in pieces, and equal', async (t) => {
  const small = ['--max-message-bytes', '64KiB', '--messages-per-second', '1000', '--message-burst', '1000'];
  const tight = await Server.start(t, { args: [...unhurried, ...small] });
  const { client, id } = await prepareSession(t, tight, { session_len: 4096, sampling: { max_tokens: 2 } });
  // Words of more than one byte and more than one unit, so that a cut in the middle of one would show.
  // Each in place of the one before: the session holds all of them, its log one.
  for (let i = 0; i < 16; i++) await client.turn(id, `${i} ${'täglich 🙂 \\ "Wörter" '.repeat(60)}`, { after: null });
  const { archive } = await client.request({ type: 'session.export', session: id });
  assert.ok(archive.length > 1.5 * 65536, `${archive.length}`);
  const page = await openPage(t, tight);
  const [chooser] = await Promise.all([
    page.waitForEvent('filechooser'),
    page.click('[aria-label="Import chats from files"]'),
  ]);
  await chooser.setFiles({ name: 'long.json', mimeType: 'application/json', buffer: Buffer.from(archive) });
  await page.waitForSelector('.user .versions-at:has-text("16/16")');
  await settled(page, 1);
  assert.notEqual(sessionOf(page), id);
  const imported = await client.request({ type: 'session.export', session: sessionOf(page) });
  assert.deepEqual(JSON.parse(imported.archive).turns, JSON.parse(archive).turns);
});

longTest('a new title leaves a session at its place, after a reload too', async (t) => {
  const { client, id } = await prepareSession(t, server, { title: 'The older one' });
  await client.turn(id, 'Hello!');
  const newer = await client.open({ title: 'The newer one' });
  await client.turn(newer, 'Hello!');
  const page = await openPage(t, server, { hash: `#s=${id}` });
  const order = () =>
    page.evaluate((ids) => ids.map((one) => [...document.querySelectorAll('.item')].findIndex((e) => e.dataset.id === one)), [newer, id]);
  await page.waitForSelector(item(id));
  const before = await order();
  assert.ok(before[0] >= 0 && before[0] < before[1]);
  await page.dblclick('h1');
  await page.fill('.title-rename', 'Renamed');
  await page.keyboard.press('Enter');
  await page.waitForSelector(`${item(id)}:has-text("Renamed")`);
  assert.deepEqual(await order(), before);
  await page.reload();
  await page.waitForSelector(`${item(id)}:has-text("Renamed")`);
  assert.deepEqual(await order(), before);
});

longTest('an answer that came while another session was shown is marked unread, and no other state has a mark', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: ENDLESS });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.waitForSelector('.item.current');
  assert.equal(await page.locator('.item .dot[data-state]').count(), 0, 'ready, parked and new sessions have no mark');
  await say(page, 'Tell me a story about a hen.');
  await page.waitForSelector(`${item(id)} .dot[data-state=active]`);
  await newSession(page);
  const client = await server.connect();
  await client.request({ type: 'turn.cancel', session: id });
  await client.close();
  await page.waitForSelector(`${item(id)} .dot[data-state=unread]`);
  assert.match(await page.locator(`${item(id)} a`).textContent(), /, unread/);
  await page.reload();
  await page.waitForSelector(`${item(id)} .dot[data-state=unread]`);
  await page.click(`${item(id)} a`);
  await page.waitForSelector(`${item(id)} .dot[data-state]`, { state: 'detached' });
  // An answer that was on the screen is not, however soon one leaves.
  await page.click('.new-button');
  await page.waitForSelector('.suggestion');
  await ask(page, 'What is 17 + 25?');
  const seen = sessionOf(page);
  await newSession(page);
  await page.waitForSelector(`${item(seen)} .dot:not([data-state])`, { state: 'attached' });
  await page.waitForTimeout(300); // later news of the list change nothing
  assert.equal(await page.locator(`${item(seen)} .dot[data-state]`).count(), 0);
});

longTest('a fork has a mark that names its source', async (t) => {
  const { client, id } = await prepareSession(t, server, { title: 'The source' });
  await client.turn(id, 'My name is Zora.');
  const { session } = await client.request({ type: 'session.fork', session: id, turn: 0, title: 'The fork' });
  const page = await openPage(t, server);
  await page.waitForSelector(`${item(session.id)} .icon-branch:visible`);
  assert.match(await page.getAttribute(`${item(session.id)} a`, 'title'), /Branched from The source/);
  assert.equal(await page.locator(`${item(id)} .icon-branch:visible`).count(), 0);
});

longTest('search marks the words in the titles', async (t) => {
  const { id } = await prepareSession(t, server, { title: 'The quick (brown) fox' });
  const page = await openPage(t, server);
  await page.waitForSelector(item(id));
  await page.fill('#search', 'quick brown');
  await page.waitForSelector(`${item(id)} mark`);
  assert.deepEqual(await page.locator(`${item(id)} mark`).allInnerTexts(), ['quick', 'brown']);
  await page.press('#search', 'Escape');
  await page.waitForSelector(`${item(id)} mark`, { state: 'detached' });
  assert.equal(await page.locator(`${item(id)} .item-title`).innerText(), 'The quick (brown) fox');
});

longTest('a link leads to a turn, however far up it is', async (t) => {
  const quick = await Server.start(t, { args: ['--messages-per-second', '1000', '--message-burst', '1000'] });
  const { client, id } = await prepareSession(t, quick, { sampling: { max_tokens: 2 } });
  for (let i = 0; i < 130; i++) await client.turn(id, `Message ${i}`);
  const page = await openPage(t, quick, { hash: `#s=${id}&t=3` });
  await page.waitForSelector('.turn.target');
  assert.equal(await page.locator('.turn[data-turn="3"] .bubble').innerText(), 'Message 3');
  await page.waitForFunction(() => {
    const { top } = document.querySelector('.turn[data-turn="3"]').getBoundingClientRect();
    return top >= 0 && top < 400;
  });
  // The page gives such links, for a turn and for the session.
  await allowClipboard(page);
  await page.hover('.turn[data-turn="3"] .assistant');
  await fromMenu(page, 'link', -1, '.turn[data-turn="3"]');
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await page.waitForFunction(async (end) => (await navigator.clipboard.readText()).endsWith(end), `/#s=${id}&t=3`);
  await page.click('.header [aria-label="Chat menu"]');
  await page.click('.menu-item:has-text("Copy link")');
  await page.waitForSelector('.toast:has-text("Link copied")');
  assert.equal(await copied(), `${quick.url}/#s=${id}`);
  // What leads to another version offers to show it.
  const before = (await turnsOf(quick, id)).at(-1).turn;
  const again = await client.request({ type: 'turn.start', session: id, after: null, input: { content: 'Another beginning' } });
  assert.ok(again.turn > before, JSON.stringify(again));
  await page.waitForSelector('.turn .bubble:has-text("Another beginning")');
  await page.goto(`${quick.url}/#s=${id}&t=129`);
  await page.click('.toast:has-text("in another version") button:has-text("Show it")');
  await page.waitForSelector('.turn.target .bubble:has-text("Message 129")');
  await page.goto(`${quick.url}/#s=${id}&t=999`);
  await page.click('.toast:has-text("in another version") button:has-text("Show it")');
  await page.waitForSelector('.toast-error:has-text("Couldn\'t show this version")');
  // The offer leaves with its chat; an error stays to be read.
  await page.goto(`${quick.url}/#s=${id}&t=998`);
  await page.waitForSelector('.toast:has-text("in another version")');
  await newSession(page);
  await soon(async () => assert.deepEqual(await page.locator('.toast span').allInnerTexts(), [await page.innerText('.toast-error span')]));
});

longTest('a session that was parked in host memory comes back while its next message is typed', async (t) => {
  const args = ['--max-sequence-idle-microseconds', '300000', '--host-cache-bytes', '1g'];
  const page = await openPage(t, await Server.start(t, { args }));
  await ask(page, 'My name is Zora.');
  await page.click('.context');
  await page.waitForSelector('.context-details:has-text("In host memory")');
  assert.match(await ask(page, 'What is my name?'), /Zora/);
  assert.match(await page.locator('.facts').last().innerText(), /^(?!.*recomputed)/s);
});

longTest('the meter says what the cache takes', async (t) => {
  const server = await Server.start(t);
  const page = await openPage(t, server), { cache } = (await server.connect()).hello.models[0];
  await ask(page, 'My name is Zora.');
  await page.click('.context');
  const [, tokens, shown, unit] = (await page.locator('.context-details').innerText()).match(/Cache\s+(\d+) tokens, ([\d.]+) (kB|MB)/);
  const bytes = cache.windows.reduce((sum, w) => sum + w.bytes_per_token * Math.min(tokens, w.window || tokens), 0);
  assert.ok(bytes > 0 && Math.abs(shown * (unit === 'kB' ? 1e3 : 1e6) - bytes) <= 0.05 * bytes, `${shown} ${unit} for ${bytes}`);
});

longTest('an evicted session shows what resuming it cost, if no one typed before', async (t) => {
  const args = ['--max-sequence-idle-microseconds', '300000', '--host-cache-bytes', '0'];
  const page = await openPage(t, await Server.start(t, { args }));
  await ask(page, 'My name is Zora.');
  await ask(page, 'What is my name?');
  await page.click('.context');
  await page.waitForSelector('.context-details:has-text("Cache released")');
  await page.locator('[data-action=regenerate]:visible').last().click();
  await page.waitForSelector('.versions-at');
  await settled(page, 2);
  assert.match(await page.locator('.facts').last().innerText(), /recomputed \d+ tokens/);
});

longTest('a result of the search shows the words where they stand, leads there and marks them', async (t) => {
  const { client, id } = await prepareSession(t, server, { title: 'Instruments', sampling: { max_tokens: 4 } });
  await client.turn(id, 'The hurdygurdy has a wheel.');
  for (let i = 0; i < 12; i++) await client.turn(id, `Something else, ${i}.`);
  const page = await openPage(t, server);
  await page.fill('#search', 'hurdyg');
  await page.waitForSelector(`${item(id)} .item-found mark`);
  assert.equal(await page.locator(`${item(id)} .item-found mark`).innerText(), 'hurdygurdy');
  assert.match(await page.locator(`${item(id)} .item-found`).innerText(), /^The hurdygurdy has a wheel/);
  await page.click(`${item(id)} .item-link`);
  await page.waitForSelector('.turn[data-turn="0"].target');
  assert.equal(new URL(page.url()).hash, `#s=${id}&t=0`);
  assert.ok(await page.locator('.turn[data-turn="0"] .bubble').isVisible());
  await page.waitForFunction(() => [...(CSS.highlights.get('found') ?? [])].map(String).join() === 'hurdyg');
  await page.press('#search', 'Escape');
  await page.waitForFunction(() => !CSS.highlights.has('found'));
  assert.equal(await page.locator('.item-found:visible').count(), 0);
});

longTest('dates are written as the browser writes them in English', () => {
  const written = (options, ms) => new Intl.DateTimeFormat('en', options).format(ms).replace(/\u202f/g, ' ');
  for (let i = 0; i < 500; i++) {
    const ms = i * 4000000000 + i * 7654321; // all months and hours, until 2033
    assert.equal(day(ms), written({ month: 'short', day: 'numeric' }, ms));
    assert.equal(clock(ms), written({ timeStyle: 'medium', hourCycle: 'h23' }, ms));
    assert.equal(moment(ms), written({ dateStyle: 'medium', timeStyle: 'short' }, ms));
    assert.equal(moment(ms, true), written({ dateStyle: 'medium', timeStyle: 'medium' }, ms));
    assert.equal(dateGroup(ms, 4e12), written({ month: 'long', year: 'numeric' }, ms));
  }
});
