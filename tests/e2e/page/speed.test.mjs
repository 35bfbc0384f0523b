// A long conversation costs no more than a short one where one types. Judged by the processor time of the page's
// scripts, not by the clock: other programs may run.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { newContext, newPage, sharedServer, until } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();
const ANSWER = '## Heading\n\nText with **bold** and `code`.\n\n- one\n- two\n\n```c\nint main(void) { return 0; }\n```\n';
const KEYS = 'The quick brown fox jumps over the lazy dog';

/** A page with a conversation of so many turns, all of them drawn. */
async function conversation(t, nTurns) {
  const context = await newContext(t);
  const page = await newPage(t, context);
  await FakeSession.route(page, Array.from({ length: nTurns }, (_, i) => [`Message ${i}`, ANSWER]));
  await page.goto(`${server.url}/#s=fake`);
  const drawn = () => page.locator('.turn[data-turn]').count();
  await page.waitForSelector('.turn[data-turn]');
  while ((await drawn()) < nTurns) {
    await page.evaluate(() => {
      const button = document.querySelector('.older');
      if (!button.hidden && button.getAttribute('aria-disabled') !== 'true') button.click();
    });
    await page.waitForTimeout(50);
  }
  const devtools = await context.newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  const scripts = async () =>
    (await devtools.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'ScriptDuration').value * 1000;
  return { page, scripts };
}

async function typing(t, nTurns) {
  const { page, scripts } = await conversation(t, nTurns);
  await page.focus('#message');
  await page.keyboard.type('warm');
  const before = await scripts();
  await page.keyboard.type(KEYS, { delay: 10 });
  return (await scripts()) - before;
}

test('a key costs in a long conversation what it costs in a short one', async (t) => {
  const short = await typing(t, 2);
  const long = await typing(t, 600);
  t.diagnostic(`${KEYS.length} keys: ${short.toFixed(1)} ms of script with 2 turns, ${long.toFixed(1)} ms with 600`);
  assert.ok(long < 3 * short + 25, `${long} ms, with 2 turns ${short} ms`);
});

test('older turns are drawn in slices, in their order', async (t) => {
  const { page } = await conversation(t, 130);
  const numbers = await page.locator('.turn[data-turn]').evaluateAll((all) => all.map((e) => Number(e.dataset.turn)));
  assert.deepEqual(numbers, Array.from({ length: 130 }, (_, i) => i));
  assert.ok((await page.locator('.slice').count()) > 2);
  assert.equal(await page.evaluate(() => [...document.querySelectorAll('.slice')].every((e) => e.childElementCount > 0)), true);
});

test('turns far from the screen are their text alone until they come near', async (t) => {
  const { page } = await conversation(t, 130);
  const complete = () => page.locator('.turn .facts').count();
  assert.ok((await complete()) < 40, `${await complete()} turns are complete`);
  // The browser's own search finds what is written in them.
  assert.match(await page.locator('.turn[data-turn="20"]').evaluate((turn) => turn.textContent), /Message 20.*Text with \*\*bold\*\*/s);
  await page.locator('.turn[data-turn="20"]').scrollIntoViewIfNeeded();
  await page.waitForSelector('.turn[data-turn="20"] [data-action=edit]');
  assert.equal(await page.locator('.turn[data-turn="20"] .prose strong').innerText(), 'bold');
  assert.equal(await page.locator('.turn[data-turn="20"] .message.user').getAttribute('aria-label'), 'You, message 41');
  await page.evaluate(() => dispatchEvent(new Event('beforeprint'))); // on paper each of them is complete
  await page.waitForFunction(() => document.querySelectorAll('.turn .facts').length === 130);
});

test('a task draws a slice of the list or of the conversation, not both, and of long turns fewer', async (t) => {
  const page = await newPage(t, await newContext(t));
  // A list of mutations for each task, or each frame's callback.
  await page.addInitScript(() => {
    window.tasks = [];
    new MutationObserver((records) => {
      const drawn = { rows: 0, plain: 0, complete: 0, characters: 0 };
      const added = records.flatMap((record) => [...record.addedNodes]).filter((node) => node instanceof Element);
      for (const element of new Set(added.flatMap((node) => [node, ...node.querySelectorAll('*')]))) {
        if (element.matches('.item')) drawn.rows++;
        if (!element.matches('.turn[data-turn]')) continue;
        drawn[element.querySelector('.facts') ? 'complete' : 'plain']++;
        drawn.characters += element.textContent.length;
      }
      if (Object.values(drawn).some((n) => n > 0)) window.tasks.push(drawn);
    }).observe(document, { childList: true, subtree: true });
  });
  const long = 'Words of a long answer. '.repeat(250);
  const fake = await FakeSession.route(page, Array.from({ length: 70 }, (_, i) => [`Message ${i}`, i < 30 ? long : ANSWER]));
  fake.others = Array.from({ length: 60 }, (_, i) => ({ ...fake.session, id: `other-${i}`, title: `Session ${i}` }));
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-turn]').length === 70 && document.querySelectorAll('.item').length === 61);
  const tasks = await page.evaluate(() => window.tasks);
  t.diagnostic(JSON.stringify(tasks));
  assert.ok(tasks.every(({ rows, plain, complete }) => !rows || (!plain && !complete)));
  assert.ok(tasks.every(({ rows, plain, complete }) => rows <= 12 && plain <= 16 && complete <= 1));
  assert.ok(tasks.every(({ characters }) => characters < 16000 + long.length + 200));
  assert.ok(tasks.some(({ plain }) => plain === 16) && tasks.some(({ plain, characters }) => plain === 3 && characters > 16000));
});

test('the first paint waits for index.html alone', async () => {
  const html = await (await fetch(server.url)).text();
  assert.doesNotMatch(html, /rel="?stylesheet|<script[^>]*src/);
});

test('the turns that fill the screen are drawn without measuring the page in their tasks, and it stands at its end', async (t) => {
  const page = await newPage(t, await newContext(t));
  await page.addInitScript(() => {
    window.measured = 0;
    const changes = new MutationObserver(() => {}); // holds the changes of this task
    const { get } = Object.getOwnPropertyDescriptor(Element.prototype, 'scrollHeight');
    Object.defineProperty(Element.prototype, 'scrollHeight', {
      get() {
        const added = changes.takeRecords().flatMap((record) => [...record.addedNodes]);
        if (added.some((node) => node instanceof Element && node.matches('.turn[data-turn]'))) window.measured++;
        return get.call(this);
      },
    });
    changes.observe(document, { childList: true, subtree: true });
  });
  await FakeSession.route(page, Array.from({ length: 4 }, (_, i) => [`Message ${i}`, ANSWER.repeat(3)]));
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-turn]').length === 4);
  // An event of the session may be drawn in the task of one of the four.
  assert.ok(await page.evaluate(() => window.measured) <= 1);
  await page.waitForFunction(() => {
    const { scrollHeight, scrollTop, clientHeight } = document.querySelector('.scroller');
    return scrollHeight > clientHeight + 500 && scrollHeight - scrollTop - clientHeight < 2;
  });
});

test('what one reads does not jump while one scrolls up, whatever the heights of the turns above', async (t) => {
  const page = await newPage(t, await newContext(t));
  const paragraph = 'A paragraph that takes a few lines, so that turns differ in their heights. '.repeat(3);
  await FakeSession.route(page, Array.from({ length: 220 }, (_, i) => [`Message ${i}`, `${ANSWER}\n\n${paragraph.repeat(i % 7)}`]));
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-turn]').length === 100);
  const { jumps, frames, scrolled } = await page.evaluate(async () => {
    const STEP = 200; // px; what one reads stays on the screen
    const scroller = document.querySelector('.scroller');
    const { top, bottom } = scroller.getBoundingClientRect();
    const between = (from, to) => [...document.querySelectorAll('.turn[data-turn]')].filter((turn) => {
      const place = turn.getBoundingClientRect();
      return place.top < to && place.bottom > from;
    });
    const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    const jumps = [];
    let frames = 0;
    let scrolled = 0;
    while (!document.querySelector('.turn[data-turn="40"]')) {
      const read = between(top, bottom)[0];
      const from = read.getBoundingClientRect().bottom;
      const by = Math.min(STEP, scroller.scrollTop);
      scroller.scrollTop -= by;
      scrolled += by;
      // A busy machine may take several frames to complete the turns that come next.
      do {
        await painted();
        frames++;
        const off = read.getBoundingClientRect().bottom - from - by;
        if (Math.abs(off) > 2) jumps.push({ turn: read.dataset.turn, off });
      } while (between(top - 2 * STEP, bottom).some((turn) => !turn.querySelector('.facts')));
    }
    return { jumps, frames, scrolled };
  });
  t.diagnostic(`${scrolled} px in ${frames} frames`);
  assert.deepEqual(jumps, []);
});

test('what one reads does not jump when earlier turns arrive at the top, where some are completed on the screen', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page, Array.from({ length: 150 }, (_, i) => [`Message ${i}`, ANSWER]));
  const send = fake.send.bind(fake);
  let answer;
  fake.send = (message) => (message.before === undefined ? send(message) : (answer = () => send(message)));
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-turn]').length === 100);
  await page.waitForFunction(() => {
    const scroller = document.querySelector('.scroller');
    scroller.scrollTop -= 200;
    return scroller.scrollTop === 0 && document.querySelector('.turn[data-turn="50"] .facts');
  });
  await until('earlier turns are asked for', () => answer);
  const jumps = page.evaluate(async () => {
    const read = document.querySelector('.turn[data-turn="50"]');
    const from = read.getBoundingClientRect().top;
    const jumps = [];
    const next = () => document.querySelector('.turn[data-turn="49"]');
    window.reads = true;
    while (!next()?.querySelector('.facts') || !document.querySelector('.turn[data-turn="0"]')) {
      await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
      const off = read.getBoundingClientRect().top - from;
      if (Math.abs(off) > 2) jumps.push(off);
    }
    return jumps;
  });
  await page.waitForFunction(() => window.reads);
  answer();
  assert.deepEqual(await jumps, []);
});

/** What the browser styles and lays out anew in the page while an action runs: counts, which no other program changes. */
async function workOf(page, action) {
  const devtools = await page.context().browser().newBrowserCDPSession();
  const events = [];
  devtools.on('Tracing.dataCollected', ({ value }) => events.push(...value));
  await devtools.send('Tracing.start', { traceConfig: { includedCategories: ['devtools.timeline'] }, transferMode: 'ReportEvents' });
  await action();
  const complete = new Promise((done) => devtools.once('Tracing.tracingComplete', done));
  await devtools.send('Tracing.end');
  await complete;
  await devtools.detach();
  const sum = (name, figure) => events.filter((event) => event.name === name).reduce((all, { args }) => all + (figure(args) ?? 0), 0);
  return {
    styled: sum('UpdateLayoutTree', ({ elementCount }) => elementCount),
    laidOut: sum('Layout', ({ beginData }) => beginData?.dirtyObjects),
  };
}

test('scrolling up through many turns styles and lays out what comes into sight, and nothing else', async (t) => {
  const { page } = await conversation(t, 600);
  await page.hover('.scroller');
  const complete = () => page.locator('.turn .facts').count();
  const wheel = async (times) => {
    for (let i = 0; i < times; i++) {
      await page.mouse.wheel(0, -400);
      await page.waitForTimeout(16);
    }
    await page.waitForTimeout(200);
  };
  await wheel(5); // past the turns that were complete before
  const before = await complete();
  await page.evaluate(() => {
    window.transitions = [];
    document.addEventListener('transitionrun', ({ target, propertyName }) => window.transitions.push(`${propertyName} of ${target.className}`));
  });
  const { styled, laidOut } = await workOf(page, () => wheel(60));
  const turns = (await complete()) - before;
  const elements = await page.locator('.turn[data-turn="580"]').evaluate((turn) => turn.querySelectorAll('*').length);
  t.diagnostic(`${turns} turns of ${elements} elements: ${styled} elements styled, ${laidOut} objects laid out`);
  assert.ok(turns > 40, `${turns} turns`);
  assert.deepEqual(await page.evaluate(() => window.transitions), [], 'turns that pass under the pointer move nothing');
  assert.ok(styled < 3 * elements * turns, `${styled} elements styled for ${turns} turns of ${elements}`);
  assert.ok(laidOut < 3 * elements * turns, `${laidOut} objects laid out for ${turns} turns of ${elements}`);
});

test('the first frame is that of index.html, which no script holds up', async (t) => {
  const page = await newPage(t, await newContext(t));
  let load;
  await page.route('**/app.js', (route) => (load = () => route.continue()));
  await page.goto(server.url, { waitUntil: 'commit' });
  await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint').length === 1);
  assert.equal(await page.locator('#app .brand').innerText(), 'Parley');
  assert.equal(await page.locator('#message').count(), 0);
  const place = await page.locator('.composer').boundingBox();
  await until('the script is asked for', () => load);
  load();
  await page.waitForSelector('#message');
  const now = await page.locator('.composer').boundingBox();
  assert.ok(Math.abs(now.x - place.x) < 2 && Math.abs(now.y - place.y) < 2 && Math.abs(now.width - place.width) < 2, JSON.stringify([place, now]));
  assert.equal(await page.locator('.sidebar').count(), 1);
});

test('the start of the page is cut in tasks: the parser, the page, and its first turn', async (t) => {
  const page = await newPage(t, await newContext(t));
  await page.addInitScript(() => {
    const noted = (window.noted = { order: [] });
    const create = window.trustedTypes.createPolicy;
    window.trustedTypes.createPolicy = function (...args) {
      setTimeout(() => (noted.sanitiser = true), 0); // not before the task that has made it is over
      return create.apply(this, args);
    };
    // Called once for each task, or each frame's callback.
    new MutationObserver(() => {
      const shows = {
        page: document.querySelector('#message'),
        turn: document.querySelector('.turn[data-turn]'),
      };
      const fresh = Object.keys(shows).filter((what) => shows[what] && !noted.order.flat().includes(what));
      if (!fresh.length) return;
      noted.order.push(fresh);
      if (fresh.includes('page')) noted.afterSanitiser = noted.sanitiser === true;
    }).observe(document, { childList: true, subtree: true, characterData: true });
  });
  await FakeSession.route(page, Array.from({ length: 6 }, (_, i) => [`Message ${i}`, ANSWER]));
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-turn]').length === 6);
  const { afterSanitiser, order } = await page.evaluate(() => window.noted);
  assert.ok(afterSanitiser);
  assert.deepEqual(order, [['page'], ['turn']]);
});
