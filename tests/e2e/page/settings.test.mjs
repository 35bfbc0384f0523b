// Settings take effect: on the session shown, on new sessions, on the page.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { ask, newContext, openPage, prepareSession, say, sessionOf, settled, sharedServer, soon, turnsOf } from './browser.mjs';

const server = await sharedServer();

async function sessionState(id) {
  const client = await server.connect();
  const { session } = await client.request({ type: 'session.get', session: id });
  await client.close();
  return session;
}
const open = (page) => page.click('.header [aria-label=Settings]');
async function ofPage(page) {
  await open(page);
  await page.click('#tab-page');
}
const save = async (page) => {
  await page.click('.settings button[type=submit]');
  await page.waitForSelector('.settings', { state: 'detached' });
};

test('sampling of a session: defaults are shown, values hold from the next message, reset gives them back', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: { ignore_eos: true } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.waitForSelector('.item.current');
  await open(page);
  assert.equal(await page.getAttribute('#field-temperature', 'placeholder'), '0.7');
  assert.equal(await page.getAttribute('#field-top_p', 'placeholder'), '0.9');
  assert.equal(await page.getAttribute('#field-max_tokens', 'placeholder'), 'no limit');
  await page.fill('#field-max_tokens', '7');
  await page.fill('#field-temperature', '0.3');
  await page.click('.more-fields summary');
  await page.fill('#field-seed', '18446744073709551615');
  await page.fill('#field-stop', 'zzz\nyyy');
  await save(page);
  const { sampling } = await sessionState(id);
  assert.equal(sampling.ignore_eos, true, 'what has no field stays');
  assert.equal(sampling.max_tokens, 7);
  assert.equal(sampling.seed, '18446744073709551615');
  assert.deepEqual(sampling.stop, ['zzz', 'yyy']);
  await say(page, 'Tell me a story.');
  await settled(page, 1);
  assert.match(await page.locator('.facts').innerText(), /^Reached the length limit · 7 tokens/);
  const [turn] = await turnsOf(server, id);
  assert.equal(turn.seed, '18446744073709551615');
  assert.ok(Math.abs(turn.sampling.temperature - 0.3) < 1e-6);

  await open(page);
  assert.equal(await page.inputValue('#field-temperature'), '0.3');
  assert.equal(await page.inputValue('#field-stop'), 'zzz\nyyy');
  await page.click('[aria-label^="Reset Temperature"]');
  await soon(async () => assert.equal(await page.inputValue('#field-temperature'), ''));
  await save(page);
  assert.equal('temperature' in (await sessionState(id)).sampling, false);
  await open(page);
  await page.click('.settings button:has-text("Reset all")');
  await save(page);
  assert.deepEqual((await sessionState(id)).sampling, { ignore_eos: true });
});

longTest('the fields are those that the server names, with its ranges and words', async (t) => {
  const client = await server.connect();
  const rows = client.hello.sampling_parameters.filter(({ form }) => form);
  const page = await openPage(t, server);
  await open(page);
  assert.ok(rows.length > 5);
  await page.click('.more-fields summary');
  for (const { name, label, help, type, min, max, step } of rows) {
    const field = page.locator(`.field:has(#field-${name})`);
    assert.equal(await field.locator('label').innerText(), label);
    assert.ok((await field.locator('.field-hint').innerText()).startsWith(help), name);
    if (type !== 'number' && type !== 'integer') continue;
    const input = page.locator(`#field-${name}`);
    for (const [attribute, value] of Object.entries({ min, max, step }))
      assert.equal(Number(await input.getAttribute(attribute)), value, `${attribute} of ${name}`);
  }
  assert.equal(await page.locator('.field').count(), rows.length + 3, 'and the three of memory');
});

longTest('a wrong value is said at its field and nothing is saved', async (t) => {
  const { id } = await prepareSession(t, server);
  const page = await openPage(t, server, { hash: `#s=${id}`, expected: [/client message 'session.update'\/sampling\/top_p/] });
  await page.waitForSelector('.item.current');
  await open(page);
  await page.fill('#field-top_p', '7');
  await page.waitForSelector('.field.bad:has(#field-top_p) .field-hint:has-text("At most 1")');
  await page.click('.settings button[type=submit]');
  await page.waitForSelector('.form-problem:has-text("Top p")');
  // What only the server knows to be wrong comes back to the field too.
  await page.fill('#field-top_p', '0');
  await page.click('.settings button[type=submit]');
  await page.waitForSelector('.field.bad:has(#field-top_p)');
  assert.match(await page.locator('.form-problem').innerText(), /top_p/);
  assert.deepEqual((await sessionState(id)).sampling, {});
  await page.keyboard.press('Escape');
});

test('new sessions start with the values chosen for them, in this browser from now on', async (t) => {
  const context = await newContext(t);
  const page = await openPage(t, server, { context });
  await open(page);
  assert.equal(await page.getAttribute('#tab-new', 'aria-selected'), 'true');
  assert.equal(await page.getAttribute('#field-memory_len', 'placeholder'), '4096');
  await page.fill('#field-memory_len', '128');
  await page.fill('#field-session_len', '512');
  await page.fill('#field-sink_len', '200');
  await page.fill('#field-system', 'You are terse.\nVery.');
  await page.fill('#field-temperature', '0');
  await page.click('.settings button[type=submit]');
  await page.waitForSelector('.form-problem:has-text("smaller than Memory")');
  await page.fill('#field-sink_len', '2');
  await save(page);
  await page.waitForFunction(() => document.querySelector('.context-value').innerText === '0 / 512');
  await page.click('.context');
  await soon(async () => assert.match(await page.locator('.context-details').innerText(), /at most 128 tokens/));
  await page.reload();
  await ask(page, 'What is the capital of Norway?');
  const session = await sessionState(sessionOf(page));
  assert.deepEqual(
    [session.memory_len, session.session_len, session.sink_len, session.system],
    [128, 512, 2, 'You are terse.\nVery.'],
  );
  assert.equal(session.sampling.temperature, 0);
  // Shown, not changed, on the session that has them.
  await open(page);
  assert.match(await page.locator('.settings .facts-list').innerText(), /128 tokens, 2 of them from the start[^]*512 tokens/);
  assert.equal(await page.locator('.settings .system-shown').innerText(), 'You are terse.\nVery.');
  assert.equal(await page.locator('#field-memory_len').count(), 0);
});

longTest('a label of two lines stands above its field', async (t) => {
  const page = await openPage(t, server, { viewport: { width: 800, height: 700 }, locale: 'de-DE' });
  await page.click('.header [aria-label=Einstellungen]');
  await page.waitForSelector('.settings[open]');
  const lines = await page.locator('.settings .field-line:visible').evaluateAll((all) =>
    all.map((line) => ({ label: line.querySelector('label').getBoundingClientRect(), field: line.querySelector('input, textarea').getBoundingClientRect() })));
  assert.ok(lines.some(({ label }) => label.height > 30), 'one has two lines');
  assert.deepEqual(lines.filter(({ label, field }) => label.bottom > field.top + 1), []);
});

longTest('text size, width and what Enter does are chosen for this browser', async (t) => {
  const page = await openPage(t, server);
  const size = () => page.evaluate(() => getComputedStyle(document.documentElement).fontSize);
  const width = () => page.locator('.composer').evaluate((box) => box.getBoundingClientRect().width);
  assert.equal(await size(), '16px');
  await page.setViewportSize({ width: 1600, height: 800 });
  const narrow = await width();
  await ofPage(page);
  await page.check('input[name=text-size][value=large]', { force: true });
  assert.equal(await size(), '19px');
  const large = await width();
  await page.check('input[name=width][value=wide]', { force: true });
  assert.ok(narrow < large && large < (await width()), 'wide');
  const wide = await width();
  await page.uncheck('#enter-sends');
  await page.keyboard.press('Escape');
  await page.fill('#message', 'Hello.');
  await page.press('#message', 'Enter');
  assert.equal(await page.inputValue('#message'), 'Hello.\n');
  await page.press('#message', 'Control+Enter');
  await settled(page, 1);
  await page.reload();
  assert.deepEqual([await size(), await width()], ['19px', wide]);
});

longTest('an answer that ends in the background is told by the title, and by a notification if it is long and the user asked for that', async (t) => {
  const { id, client } = await prepareSession(t, server, { title: 'Long one', sampling: { ignore_eos: true, max_tokens: 2000, temperature: 1 } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await page.context().grantPermissions(['notifications']);
  await page.evaluate(() => {
    window.asked = 0;
    window.notes = [];
    window.Notification = class {
      static permission = 'default';
      static async requestPermission() {
        window.asked++;
        return (window.Notification.permission = window.asked === 1 ? 'denied' : 'granted');
      }
      constructor(title, { body }) {
        window.notes.push(`${title}: ${body}`);
      }
    };
    Object.defineProperty(document, 'hidden', { get: () => window.away === true, configurable: true });
    const now = Date.now;
    Date.now = () => now() + (window.later ?? 0);
  });
  const answer = async (later) => {
    await say(page, 'Tell me a story.');
    await page.waitForSelector('.turn[data-state=running]');
    await page.waitForSelector('.item .dot[data-state=active]');
    await page.evaluate((ms) => Object.assign(window, { away: true, later: (window.later ?? 0) + ms }), later);
    await client.request({ type: 'turn.cancel', session: id });
    await page.waitForFunction(() => !document.querySelector('.item .dot[data-state=active], .turn[data-state=running]'));
    await page.waitForFunction(() => document.title === '✓ Answer ready · Long one · Parley');
    await page.evaluate(() => {
      window.away = false;
      document.dispatchEvent(new Event('visibilitychange'));
    });
    await page.waitForFunction(() => document.title === 'Long one · Parley');
  };
  await answer(20000);
  assert.deepEqual(await page.evaluate(() => [window.asked, window.notes]), [0, []], 'nothing is asked or told unasked');
  await ofPage(page);
  await page.click('#notifies');
  await page.waitForSelector('.settings [role=status]:has-text("blocks notifications")');
  assert.equal(await page.isChecked('#notifies'), false);
  await page.click('#notifies');
  await page.waitForFunction(() => window.asked === 2);
  await page.keyboard.press('Escape');
  await answer(2000);
  assert.deepEqual(await page.evaluate(() => window.notes), [], 'a short one');
  await answer(20000);
  assert.deepEqual(await page.evaluate(() => window.notes), ['Long one: The answer is complete.']);
});

longTest('the page can be installed: its manifest and icon are served and allowed', async (t) => {
  const page = await openPage(t, server);
  const href = await page.getAttribute('link[rel=manifest]', 'href');
  const answer = await fetch(`${server.url}/${href}`);
  assert.equal(answer.headers.get('content-type'), 'application/manifest+json');
  const manifest = await answer.json();
  assert.equal(manifest.display, 'standalone');
  for (const { src, type, sizes } of manifest.icons) {
    const icon = await fetch(`${server.url}/${src}`);
    assert.equal(icon.headers.get('content-type'), type);
    if (type !== 'image/png') continue;
    const header = new DataView(await icon.arrayBuffer());
    assert.equal(`${header.getUint32(16)}x${header.getUint32(20)}`, sizes);
  }
  assert.ok(manifest.icons.some(({ type, sizes }) => type === 'image/png' && sizes === '512x512'));
  assert.equal((await fetch(`${server.url}/${await page.getAttribute('link[rel=apple-touch-icon]', 'href')}`)).headers.get('content-type'), 'image/png');
  const browser = await page.context().newCDPSession(page);
  const { errors } = await browser.send('Page.getAppManifest');
  assert.deepEqual(errors, []);
  assert.deepEqual((await browser.send('Page.getInstallabilityErrors')).installabilityErrors.filter(({ errorId }) => errorId !== 'in-incognito'), []);
});

test('the theme is kept, from before the first paint', async (t) => {
  const page = await openPage(t, server, { colorScheme: 'light' });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await ofPage(page);
  await page.check('input[name=theme][value=dark]', { force: true });
  const dark = await background();
  assert.notEqual(dark, light);
  await page.reload();
  assert.equal(await background(), dark);
  await ofPage(page);
  await page.check('input[name=theme][value=auto]', { force: true });
  assert.equal(await background(), light);
  await page.keyboard.press('Escape');
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.equal(await background(), dark);
});

test('one button leads to all settings, and to those of what is shown first', async (t) => {
  const page = await openPage(t, server);
  assert.equal(await page.locator('[aria-label^=Settings]').count(), 1);
  const opensAt = async (name) => {
    await open(page);
    assert.equal(await page.locator('.settings [role=tab][aria-selected=true]').innerText(), name);
    await page.keyboard.press('Escape');
    await page.waitForSelector('.settings', { state: 'detached' });
  };
  await opensAt('New chats');
  await page.click('.connection');
  await page.waitForSelector('.tile');
  await opensAt('This page');
  await page.click('.new-button');
  await page.fill('#message', 'Hello.');
  await page.press('#message', 'Enter');
  await settled(page, 1);
  await opensAt('This chat');
});
