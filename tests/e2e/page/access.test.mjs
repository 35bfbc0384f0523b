// Accessibility: axe finds nothing on any view in either theme, and the structure suits a screen reader.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { test as inBothParts } from 'node:test';
import { ask, fromMenu, newContext, newPage, openPage, prepareSession, settled, sharedServer } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';
import { brief, longTest, root, shortTest as test } from '../harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const server = await sharedServer();

const everyRule = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
// All that a theme can change: the style sheets give it other colours and nothing else.
const rulesOfColours = { type: 'rule', values: ['color-contrast', 'link-in-text-block'] };

async function axeFindsNothing(page, where, rules) {
  // By the debugger, not by a script element: the content policy holds for tests too. Half a second, so once a page.
  if (!(await page.evaluate(() => Boolean(window.axe)))) await page.evaluate(axe);
  const { violations } = await page.evaluate(
    (runOnly) => window.axe.run(document, { runOnly, resultTypes: ['violations'] }),
    rules,
  );
  assert.deepEqual(
    violations.map(
      ({ id, nodes }) =>
        `${where}: ${id}: ${nodes.map((n) => `${n.target} ${n.failureSummary}`).join(' | ')}`,
    ),
    [],
  );
}
const calm = { reducedMotion: 'reduce' };

longTest('a theme changes colours and nothing else', () => {
  const folder = path.join(root, 'web/src/style');
  const sheets = readdirSync(folder).map((name) => readFileSync(path.join(folder, name), 'utf8').replace(/\/\*.*?\*\//gs, ''));
  const rules = sheets.flatMap((text) => [...text.matchAll(/[^{}]*\[data-theme[^{}]*\{[^}]*\}/g)].map(([rule]) => rule.replace(/\s+/g, ' ').trim()));
  assert.deepEqual(rules, [':root[data-theme="dark"] { color-scheme: dark; }', ':root[data-theme="light"] { color-scheme: light; }']);
  assert.deepEqual(sheets.filter((text) => text.includes('prefers-color-scheme')), []);
});

// Where axe looks in `make test`; what leads from one place to the next happens all the same.
const IN_BRIEF = new Set(['empty', 'chat', 'settings, session', 'editing a message', 'inside an answer, answer', 'menu', 'narrow', 'dashboard']);

for (const colorScheme of ['light', 'dark']) {
  const check = async (page, where) => {
    if (!brief || IN_BRIEF.has(where)) await axeFindsNothing(page, where, colorScheme === 'light' ? everyRule : rulesOfColours);
  };
  const walk = colorScheme === 'light' ? inBothParts : longTest; // what is below draws every colour of an answer in both
  walk(`axe finds nothing: ${colorScheme}`, async (t) => {
    const page = await openPage(t, server, { context: await newContext(t, { colorScheme, ...calm }) });
    await page.click('.fresh-system summary');
    await check(page, 'empty');
    await page.fill('#fresh-system', 'You are brief.');
    for (const text of [
      'My name is Zora.',
      'Make a table of three countries and their capitals.',
      'Write hello world in C.',
    ])
      await ask(page, text);
    await check(page, 'chat');
    await page.hover('.item.current');
    await check(page, 'chat, hovered');
    await page.fill('#search', 'capitals');
    await page.waitForSelector('.item.current .item-found mark');
    await check(page, 'words found');
    await page.press('#search', 'Escape');
    for (const tab of ['session', 'new', 'page']) {
      if (tab === 'session') await page.click('.header [aria-label^="Settings"]');
      else await page.click(`#tab-${tab}`);
      await check(page, `settings, ${tab}`);
    }
    await page.click('#tab-new');
    await page.fill('#field-top_p', '7');
    await check(page, 'settings with a wrong value');
    await page.keyboard.press('Escape');
    await page.locator('[data-action=regenerate]').last().click();
    await page.waitForSelector('.versions');
    await settled(page, 3);
    await check(page, 'versions');
    await page.press('#message', 'ArrowUp');
    await check(page, 'editing a message');
    await page.keyboard.press('Escape');
    await fromMenu(page, 'inspect');
    await page.waitForSelector('.inspector .tokens');
    for (const tab of ['answer', 'input', 'run', 'replay', 'what-if', 'compare', 'events']) {
      await page.click(`#tab-${tab}`);
      if (tab === 'compare') await page.waitForSelector('.compared');
      if (tab === 'replay') {
        await page.click('.panel .button.primary');
        await page.waitForSelector('.verdict');
      }
      if (tab === 'what-if') {
        await page.fill('#field-temperature', '2');
        await page.click('.what-if-run button');
        await page.waitForSelector('.replay-runs:has-text("Done")');
      }
      if (tab === 'events') await page.waitForSelector('.events tbody tr');
      await check(page, `inside an answer, ${tab}`);
    }
    await page.setViewportSize({ width: 1500, height: 800 });
    await page.waitForSelector('aside.inspector .tokens');
    await check(page, 'beside the conversation');
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.waitForSelector('dialog.inspector .tokens');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+Slash');
    await check(page, 'shortcuts');
    await page.keyboard.press('Escape');
    await page.click('.header [aria-label="Chat menu"]');
    await check(page, 'menu');
    await page.click('[role=menuitem]:has-text("Rename")');
    await page.waitForSelector('.title-rename:focus');
    await check(page, 'renaming');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+Shift+Backspace');
    await check(page, 'confirm');
    await page.keyboard.press('Escape');
    // Little height: what scrolls can be reached.
    await page.setViewportSize({ width: 900, height: 300 });
    await page.keyboard.press('Control+Slash');
    await check(page, 'shortcuts, low');
    await page.keyboard.press('Escape');
    await page.click('.context');
    await check(page, 'context');
    await page.keyboard.press('Escape');
    await page.setViewportSize({ width: 360, height: 640 });
    await check(page, 'narrow');
    await page.click('.header [data-toggle=sidebar]');
    await page.waitForSelector('#sidebar', { state: 'visible' });
    await check(page, 'drawer');
    await page.keyboard.press('Escape');
    await page.goto(`${server.url}/#/server`);
    await page.waitForSelector('.plot-legend b:has-text("/s")');
    await check(page, 'dashboard');
  });

  longTest(`axe finds nothing while it streams, fails and waits: ${colorScheme}`, async (t) => {
    const page = await newPage(t, await newContext(t, { colorScheme, ...calm }));
    const everything =
      '### First\n\n# Title\n\n#### Deep\n\n## Sub\n\n> quote\n\n1. a\n2. b\n\n- [x] c\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n`code` [link](https://example.com)\n\n---\n\n' +
      ['c', 'python', 'json', 'diff', 'sql', 'html', 'bash', 'rust', 'yaml']
        .map(
          (language) =>
            `\`\`\`${language}\n# comment\n// comment\n<!-- x -->\n-- x\n@meta class Foo: return "text" + 12\nlet x = null; {"key": true} +added\n-removed\nfn main() -> u8 { println!("x") }\nkey: value\n\`\`\`\n`,
        )
        .join('\n');
    const fake = await FakeSession.route(page, [['All of it', everything]]);
    await page.goto(`${server.url}/#s=fake`);
    await settled(page, 1);
    await page.evaluate(() =>
      document.querySelectorAll('.turn').forEach((turn) => turn.classList.add('seen')),
    );
    await check(page, 'everything');
    await fake.begin('Next');
    fake.progress(10, 100);
    await page.waitForSelector('.waiting progress');
    await check(page, 'prefill');
    fake.delta('Some text');
    await page.waitForSelector('[aria-busy=true] .prose:has-text("Some text")');
    await check(page, 'streaming');
    fake.done('cancelled');
    await settled(page, 2);
    await check(page, 'stopped');
  });
}

test('landmarks, names and the quiet log', async (t) => {
  const page = await openPage(t, server);
  assert.equal(await page.getAttribute('html', 'lang'), 'en');
  await ask(page, 'My name is Zora.');
  assert.equal(await page.locator('main').count(), 1);
  assert.equal(await page.locator('nav[aria-label="Chats"]').count(), 1);
  assert.equal(await page.locator('h1').count(), 1);
  assert.deepEqual(
    await page.locator('[role=log]').evaluateAll((all) => all.map((e) => e.getAttribute('aria-live'))),
    ['off'],
  );
  assert.deepEqual(
    await page
      .locator('article')
      .evaluateAll((all) => all.map((e) => [e.getAttribute('aria-label'), e.hasAttribute('tabindex')])),
    [
      ['You, message 1', false],
      ['Assistant, message 2', false],
    ],
  );
  assert.equal(await page.locator('form label[for=message]').innerText(), 'Message');
  assert.equal(await page.locator('.prose').getAttribute('dir'), 'auto');
});

test('a screen reader announces that an answer began and how it ended, not its tokens', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForSelector('.log');
  await page.evaluate(() => {
    window.heard = [];
    for (const region of document.querySelectorAll('[aria-live=polite], [role=alert]'))
      new MutationObserver(() => region.textContent && window.heard.push(region.textContent)).observe(
        region,
        { childList: true, characterData: true, subtree: true },
      );
  });
  await fake.begin('Say three words');
  await page.waitForFunction(() => window.heard.length === 1);
  for (const word of ['Three ', 'small ', 'words.']) {
    fake.delta(word);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  fake.done();
  await page.waitForFunction(() => window.heard.length === 2);
  assert.deepEqual(await page.evaluate(() => window.heard), ['Generating', 'Response complete, 3 words']);
});

longTest('reduced motion stops what moves', async (t) => {
  const page = await newPage(t, await newContext(t, calm));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForSelector('.log');
  await fake.begin('Hello');
  await page.waitForSelector('.dots');
  await page.waitForFunction(() =>
    document.getAnimations().every((animation) => animation.playState !== 'running'),
  );
});

/** What a phone's window cuts off, and buttons of dialogs whose words are broken into lines. */
const cut = (page) =>
  page.evaluate(() => {
    const shown = (element) => element.getClientRects().length > 0 && !element.closest('.visually-hidden, [inert]');
    const box = (element) => element.getBoundingClientRect();
    const all = [...document.querySelectorAll('button, a, dt, dd, p, label, input, select, h2, h3')].filter(shown);
    return [
      ...all.filter((element) => !element.closest('pre, table, .inspector .tabs') && (box(element).right > innerWidth || box(element).left < 0)).map((element) => `cut: ${element.textContent}`),
      ...all.filter((element) => element.matches('.dialog-actions button') && box(element).height > 44).map((element) => `broken: ${element.textContent}`),
      ...all.filter((element) => element.matches('dd') && box(element).height > 70 && element.textContent.length < 30).map((element) => `narrow: ${element.textContent}`),
      ...[...document.querySelectorAll('.choices')].filter((row) => row.scrollWidth > row.clientWidth).map((row) => `cut: ${row.textContent}`),
    ];
  });

for (const [locale, chosen] of [['en', 'Settings'], ['de', 'Einstellungen']])
  longTest(`at 320 pixels nothing is cut off, and no button's words are broken (${locale})`, async (t) => {
    const page = await openPage(t, server, { ...calm, locale, viewport: { width: 320, height: 640 } });
    const fits = async (where) => assert.deepEqual(await cut(page), [], where);
    await page.fill('#message', '/');
    await page.click('#slash .slash-row');
    await page.waitForSelector('.presets-dialog .dialog-actions');
    assert.equal((await page.innerText('.presets-dialog .dialog-actions')).match(/\d/), null, 'no count of presets among the buttons');
    await page.keyboard.press('Escape');
    await page.evaluate(() => localStorage.setItem('parley.presets', JSON.stringify([{ name: 'Cold', sampling: { temperature: 0 } }])));
    await page.fill('#message', '');
    await page.fill('#message', '/p');
    await page.click('#slash .slash-row');
    await page.waitForSelector('.preset');
    await fits('presets');
    await page.keyboard.press('Escape');
    await page.fill('#message', '');
    await ask(page, 'My name is Zora.');
    await page.click('.context');
    await page.waitForSelector('.context-details:visible');
    assert.ok((await page.locator('.context-details').evaluate((box) => box.getBoundingClientRect().right)) < 313, 'the details of the meter');
    await page.keyboard.press('Escape');
    await page.dblclick('.header h1');
    await page.waitForSelector('.title-rename:focus');
    assert.ok((await page.locator('.title-rename').boundingBox()).width > 270, 'a title is renamed in the whole line');
    await page.keyboard.press('Escape');
    await page.click(`.header [aria-label^="${chosen}"]`);
    await page.waitForSelector('.settings .dialog-actions');
    await fits('settings');
    await page.locator('.settings [role=tab]').last().click();
    await page.waitForSelector('.choices');
    await fits('settings of the page');
    await page.keyboard.press('Escape');
    await page.locator('[data-action=more]:visible').last().click();
    await page.click('.menu [data-item=inspect]');
    await page.waitForSelector('.token-detail dd');
    await fits('a token');
    assert.equal(await page.locator('.inspector [role=tab]').evaluateAll((tabs) => new Set(tabs.map((tab) => tab.getBoundingClientRect().top)).size), 1, 'the tabs in one row');
    await page.focus('.inspector [role=tab][aria-selected=true]');
    await page.keyboard.press('ArrowLeft'); // the last one
    const last = await page.locator('.inspector [role=tab][aria-selected=true]').boundingBox();
    assert.ok(last.x > 0 && last.x + last.width < 321, 'a chosen tab is scrolled into sight');
    await page.keyboard.press('Escape');
    await page.click('.header [data-toggle=sidebar]');
    await page.click('.item-menu');
    await page.locator('.menu-item').nth(-2).click();
    await page.locator('.manage-list input').first().check();
    await fits('several chats');
    const [title, ...buttons] = await page.evaluate(() => [
      document.querySelector('.manage-title').scrollWidth - document.querySelector('.manage-title').clientWidth,
      ...[...document.querySelectorAll('.manage-dialog .dialog-actions button')].map((button) => button.getBoundingClientRect()),
    ]);
    assert.equal(title, 0, 'a whole title');
    assert.equal(buttons.length, 4);
    assert.deepEqual([new Set(buttons.map(({ top }) => top)).size, new Set(buttons.map(({ width }) => width)).size], [2, 1], 'two rows of buttons of one width');
    await page.keyboard.press('Escape');
    await page.waitForSelector('.manage-dialog', { state: 'detached' });
    await page.keyboard.press('Escape');
    await page.fill('#message', 'word '.repeat(9000));
    await page.click('button.send');
    await page.waitForSelector('.problem-actions');
    await fits('a refused message');
  });

longTest('axe finds nothing in the drawer over a long list of chats', async (t) => {
  const page = await newPage(t, await newContext(t, { ...calm, viewport: { width: 320, height: 640 } }));
  const fake = new FakeSession([['Hello', 'Hi']]);
  fake.others = Array.from({ length: 40 }, (_, i) => ({ ...fake.session, id: `other-${i}`, title: `Chat ${i}` }));
  await page.routeWebSocket(/\/ws$/, (socket) => fake.connect(socket));
  await page.goto(`${server.url}/#s=fake`);
  await page.click('.header [data-toggle=sidebar]');
  await page.waitForFunction(() => document.querySelectorAll('.item').length > 40);
  await axeFindsNothing(page, 'a long list', everyRule);
});

longTest('on a telephone an empty chat shows all suggestions above the message field', async (t) => {
  const page = await openPage(t, server, { viewport: { width: 320, height: 640 } });
  await page.waitForSelector('.suggestion');
  const [last, field] = await page.evaluate(() => [[...document.querySelectorAll('.suggestion')].at(-1).getBoundingClientRect().bottom, document.querySelector('.composer').getBoundingClientRect().top]);
  assert.ok(last <= field, `${last} and ${field}`);
});

longTest('behind a long chat, a new one begins at its top', async (t) => {
  const { client, id } = await prepareSession(t, server);
  await client.request({ type: 'turn.write', session: id, input: { content: 'All of it' }, text: Array.from({ length: 60 }, (_, i) => `Line ${i}`).join('\n\n') });
  const page = await openPage(t, server, { hash: `#s=${id}`, viewport: { width: 320, height: 480 } });
  await settled(page, 1);
  await page.click('.header-new');
  await page.waitForSelector('.suggestion');
  const place = () => page.locator('.scroller').evaluate(({ scrollHeight, clientHeight, scrollTop }) => ({ longer: scrollHeight > clientHeight, scrollTop }));
  assert.deepEqual(await place(), { longer: true, scrollTop: 0 });
  await page.setViewportSize({ width: 320, height: 470 });
  await page.waitForTimeout(200); // another size does not move it
  assert.deepEqual(await place(), { longer: true, scrollTop: 0 });
  await client.close();
});

longTest('axe finds nothing before the server has answered for the first time', async (t) => {
  const page = await newPage(t, await newContext(t, calm), { expected: [/WebSocket/] });
  await page.routeWebSocket(/\/ws$/, (socket) => socket.close());
  await page.goto(`${server.url}/#s=none`);
  await page.waitForSelector('.banner:visible');
  await axeFindsNothing(page, 'offline', everyRule);
});
