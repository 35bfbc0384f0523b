// Parts of the script that load late: when the page is idle, or when they are first used.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { connected, fromMenu, newContext, newPage, Server, sharedServer, unhurried } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();
const LOST = [/Failed to load resource/, /WebSocket connection/];
const CODE = '```c\nint main(void) { return 0; }\n```\n';
const settings = '.header [aria-label=Settings]';

/** A page on which a part of the script does not load, or not yet, until `gate.open()`. */
async function gated(t, part, { failing }) {
  const page = await newPage(t, await newContext(t), { expected: failing ? LOST : [] });
  let opened;
  const open = new Promise((resolve) => (opened = resolve));
  const gate = { asked: 0, shut: true, open: () => ((gate.shut = false), opened()) };
  await page.route(new RegExp(`/${part}-\\w+\\.js$`), async (route) => {
    gate.asked++;
    if (gate.shut && failing) return route.abort();
    await open;
    return route.continue();
  });
  return { page, gate };
}

test('what is clicked before its part is there opens when it has come', async (t) => {
  const { page, gate } = await gated(t, 'panels', { failing: false });
  await page.goto(server.url);
  await connected(page);
  await page.click(settings);
  assert.equal(await page.locator('dialog').count(), 0);
  await page.fill('#message', 'One can type meanwhile');
  gate.open();
  await page.waitForSelector('dialog.settings');
  assert.equal(await page.locator('dialog').count(), 1);
  assert.equal(await page.inputValue('#message'), 'One can type meanwhile');
  assert.equal(gate.asked, 1);
});

longTest('a panel of a session does not open over another one', async (t) => {
  const { page, gate } = await gated(t, 'panels', { failing: false });
  await FakeSession.route(page, [['Hello', 'Good day.']]);
  await page.goto(`${server.url}/#s=fake`);
  await fromMenu(page, 'inspect');
  await page.click('.new-button');
  await page.waitForSelector('.empty');
  gate.open();
  await page.click(settings); // the part is there when this opens
  await page.waitForSelector('dialog.settings');
  assert.equal(await page.locator('.inspector').count(), 0);
});

test('a part that does not load says so, and the next click tries again', async (t) => {
  const { page, gate } = await gated(t, 'panels', { failing: true });
  await page.goto(server.url);
  await connected(page);
  await page.click(settings);
  await page.waitForSelector('.toast:has-text("Couldn\'t load this part of the page. Try again, or reload the page.")');
  assert.equal(await page.locator('dialog').count(), 0);
  gate.open();
  await page.click(settings);
  await page.waitForSelector('dialog.settings');
});

longTest('the dashboard says that it did not load, and can be asked again', async (t) => {
  const { page, gate } = await gated(t, 'panels', { failing: true });
  await page.goto(`${server.url}/#/server`);
  await connected(page);
  await page.waitForSelector('.dashboard :text("Couldn\'t load this part of the page")');
  gate.open();
  await page.click('.dashboard-note button');
  await page.waitForSelector('.dashboard .tile dd');
  assert.equal(await page.locator('.dashboard-note').count(), 0);
});

longTest('code has its colours when the grammars have come, also code from before', async (t) => {
  const { page, gate } = await gated(t, 'highlight', { failing: true });
  const fake = await FakeSession.route(page, [['Write C', CODE]]);
  await page.goto(`${server.url}/#s=fake`);
  await page.locator('.code code').waitFor();
  assert.equal(await page.locator('.code code').innerText(), 'int main(void) { return 0; }');
  assert.equal(await page.locator('.code [class^=hljs]').count(), 0);
  gate.open();
  await fake.socket.close(); // the next connection tries again
  await page.waitForSelector('.code .hljs-type');
  assert.equal(await page.locator('.code code').innerText(), 'int main(void) { return 0; }');
  assert.equal(await page.locator('.toast').count(), 0);
});

longTest('without a server the parts that have loaded work; the others say why not, and work when it is back', async (t) => {
  const own = await Server.start(t, { args: unhurried });
  const { page, gate } = await gated(t, 'panels', { failing: true });
  const loaded = await newPage(t, page.context(), { expected: LOST });
  await loaded.goto(own.url);
  await loaded.waitForFunction(() => performance.getEntriesByType('resource').some(({ name, responseEnd }) => name.includes('/panels-') && responseEnd > 0));
  await page.goto(own.url);
  await connected(page);
  await own.stop('SIGKILL');
  for (const tab of [page, loaded]) await tab.waitForSelector('.banner:visible');
  gate.open();
  await page.click(settings);
  await page.waitForSelector('.toast:has-text("not connected to the server")');
  await loaded.click(settings);
  await loaded.waitForSelector('dialog.settings');
  await Server.start(t, { db: own.db, port: own.port, args: unhurried });
  await connected(page);
  await page.click(settings);
  await page.waitForSelector('dialog.settings');
});
