// The page with 200 sessions in its list and a conversation of 2,000 turns: the first paint, frames while one types and
// scrolls, and how long a key takes to its paint. The page is the server's, its WebSocket a fake session's. While
// something is measured, no script of Playwright runs in the page (it has ones that take 30 ms): what the bench has to know
// it asks by DevTools.
// usage: page.mjs [TURNS [SESSIONS]]. See README.md. Means something on a quiet machine only.
import { closeBrowser, newContext, newPage } from '../e2e/page/browser.mjs';
import { FakeSession } from '../e2e/page/fake_session.mjs';
import { frontOf } from '../e2e/page/front.mjs';
import { Server } from '../e2e/harness.mjs';

const nTurns = Number(process.argv[2] ?? 2000), nSessions = Number(process.argv[3] ?? 200);
const cleanup = [];
const scope = { after: (f) => cleanup.push(f) };
const ANSWER = '## Heading\n\nText with **bold** and `code`.\n\n- one\n- two\n\n```c\nint main(void) { return 0; }\n```\n\n| a | b |\n|--|--|\n| 1 | 2 |\n';
const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
const median = (xs) => at([...xs].sort((a, b) => a - b), 0.5);
const ms = (x) => `${x.toFixed(1)} ms`;
const spread = (xs) => `median ${ms(median(xs))}, from ${ms(Math.min(...xs))} to ${ms(Math.max(...xs))}`;

const now = Date.now();

function session() {
  const fake = new FakeSession(Array.from({ length: nTurns }, (_, i) => [`Message ${i}`, ANSWER]));
  fake.others = Array.from({ length: nSessions }, (_, i) => ({ ...fake.session, id: `other-${i}`, title: `Session ${i}`, updated_ms: now - i * 3600000 }));
  return fake;
}

/** The value of an expression in the page, without a script of Playwright's around it. */
async function valueOf(page, expression) {
  page.devtools ??= await page.context().newCDPSession(page);
  return (await page.devtools.send('Runtime.evaluate', { expression, returnByValue: true })).result.value;
}

async function open(context) {
  const page = await context.newPage(); // not newPage(): it checks every frame, and a fake session's are not whole
  await page.goto(`${front.url}/#s=fake`);
  while (!(await valueOf(page, "document.querySelector('.turn[data-turn]') !== null"))) await page.waitForTimeout(50);
  return page;
}

const paintOf = (page) => valueOf(page, "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN");

/**
 * Runs an action under a trace; gives the tasks of the page's thread from the navigation on: { at, wall, processor }, in ms.
 * Processor time leaves out what other processes took meanwhile, on a busy machine most of a long task.
 */
async function tasksOf(context, action) {
  const devtools = await context.browser().newBrowserCDPSession();
  const events = [];
  devtools.on('Tracing.dataCollected', ({ value }) => events.push(...value));
  await devtools.send('Tracing.start', { traceConfig: { includedCategories: ['toplevel', 'blink.user_timing'] }, transferMode: 'ReportEvents' });
  const result = await action();
  const complete = new Promise((done) => devtools.once('Tracing.tracingComplete', done));
  await devtools.send('Tracing.end');
  await complete;
  await devtools.detach();
  const { pid, tid, ts } = events.findLast(({ name, args }) => name === 'navigationStart' && args.data.documentLoaderURL?.startsWith(front.url));
  const tasks = events
    .filter((event) => event.pid === pid && event.tid === tid && event.name.endsWith('RunTask') && event.ts >= ts && event.tdur !== undefined)
    .map((event) => ({ at: (event.ts - ts) / 1000, wall: event.dur / 1000, processor: event.tdur / 1000 }));
  return { result, tasks };
}

/** The floor: a text file of the same server, which has neither script nor style. */
async function emptyPaint(context) {
  const page = await newPage(scope, context, { expected: [/404/] }); // no /favicon.ico: Parley's page names its icon
  await page.goto(`${front.url}/licenses.txt`);
  await page.waitForFunction(() => performance.getEntriesByName('first-contentful-paint').length > 0);
  const paint = await paintOf(page);
  await page.close();
  return paint;
}

/**
 * First contentful paint after the navigation began, and the longest task of the second after it, traced in a load of its
 * own. Each round measures an empty page too, in a context of the same kind, so that both see the same machine.
 */
async function firstPaint(rounds, warm) {
  const empty = [], paints = [], wall = [], processor = [];
  let context = await newContext(scope);
  for (let i = 0; i < rounds; i++) {
    empty.push(await emptyPaint(warm ? context : await newContext(scope)));
    if (!warm) context = await newContext(scope);
    const page = await open(context);
    paints.push(await paintOf(page));
    await page.close();
    if (!warm) context = await newContext(scope);
    const { result: paint, tasks } = await tasksOf(context, async () => {
      const page = await open(context);
      const paint = await paintOf(page);
      await page.waitForTimeout(1000);
      await page.close();
      return paint;
    });
    const after = tasks.filter(({ at }) => at > paint);
    wall.push(Math.max(...after.map((task) => task.wall)));
    processor.push(Math.max(...after.map((task) => task.processor)));
  }
  return Object.fromEntries(Object.entries({ empty, paints, wall, processor }).map(([name, all]) => [name, all.slice(warm ? 1 : 0)]));
}

/** First contentful paint where a tab shows the page again: the browser has a process for it. Beside it, the floor. */
async function reloadPaint(rounds) {
  const empty = [], paints = [];
  for (let i = 0; i < rounds; i++) {
    const text = await newPage(scope, await newContext(scope), { expected: [/404/] });
    await text.goto(`${front.url}/licenses.txt`);
    const page = await open(await newContext(scope));
    for (const [tab, seen] of [[text, empty], [page, paints]]) {
      await tab.waitForTimeout(300);
      await tab.reload();
      await tab.waitForTimeout(300);
      seen.push(await paintOf(tab));
      await tab.close();
    }
  }
  return { empty, paints };
}

/** Processor time of the page's thread so far, in ms: all tasks, and what of them is script, style and layout. */
async function busy(devtools) {
  const { metrics } = await devtools.send('Performance.getMetrics');
  return ['Task', 'Script', 'RecalcStyle', 'Layout'].map((part) => metrics.find(({ name }) => name === `${part}Duration`).value * 1000);
}

/** Runs `action` while every frame's time, every long task and every key's way to its paint is noted. */
async function watch(page, action) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  await page.evaluate(() => {
    const seen = (window.seen = { frames: [], tasks: [], keys: [], on: true });
    const next = (now) => {
      seen.frames.push(now);
      if (seen.on) requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
    new window.PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: 'longtask' });
    new window.PerformanceObserver((list) => seen.keys.push(...list.getEntries().filter((e) => e.name === 'keydown').map((e) => e.duration))).observe({
      type: 'event',
      durationThreshold: 16,
    });
  });
  const before = await busy(devtools);
  await action();
  const [task, script, style, layout] = (await busy(devtools)).map((time, i) => time - before[i]);
  const { frames, tasks, keys } = await page.evaluate(() => {
    window.seen.on = false;
    return window.seen;
  });
  const gaps = frames.slice(1).map((now, i) => now - frames[i]).sort((a, b) => a - b);
  const late = gaps.filter((gap) => gap > 25).length; // a frame of 60 a second was left out
  return { frames: gaps.length, late, p99: at(gaps, 0.99), most: gaps.at(-1), tasks: tasks.length, longestTask: Math.max(0, ...tasks), slowestKey: Math.max(0, ...keys), each: { task, script, style, layout } };
}

function report(name, { frames, late, p99, most, tasks, longestTask, slowestKey, each }) {
  const perFrame = Object.entries(each).map(([part, time]) => `${part} ${(time / frames).toFixed(2)}`);
  console.log(`${name}: ${frames} frames, ${late} later than 25 ms, 99% within ${ms(p99)}, longest ${ms(most)}; ${tasks} tasks over 50 ms (longest ${ms(longestTask)}); slowest key to paint ${slowestKey || 'under 16'} ms; processor per frame, ms: ${perFrame.join(', ')}`);
}

async function scroll(page, step, times) {
  for (let i = 0; i < times; i++) {
    await page.mouse.wheel(0, step);
    await page.waitForTimeout(16);
  }
}

const server = await Server.start(scope);
const front = await frontOf(server.url, session);
console.log(`${nTurns} turns, ${nSessions} sessions in the list`);
for (const warm of [false, true]) {
  const { empty, paints, wall, processor } = await firstPaint(6, warm);
  console.log(`first contentful paint, an empty page: ${spread(empty)}`);
  console.log(`first contentful paint, ${warm ? 'loaded again' : 'loaded first'}: ${spread(paints)}`);
  console.log(`longest task: ${spread(wall)}; longest in processor time: ${spread(processor)}`);
}
const { empty, paints } = await reloadPaint(10);
console.log(`first contentful paint in an open tab, an empty page: ${spread(empty)}`);
console.log(`first contentful paint in an open tab: ${spread(paints)}`);
const page = await open(await newContext(scope));
while ((await page.locator('.turn[data-turn]').count()) < nTurns) {
  await page.evaluate(() => {
    const button = document.querySelector('.older');
    if (!button.hidden && button.getAttribute('aria-disabled') !== 'true') button.click();
  });
  await page.waitForTimeout(50);
}
await page.waitForTimeout(1000);
console.log(`${await page.evaluate(() => document.getElementsByTagName('*').length)} elements with all turns drawn`);
await page.focus('#message');
report('typing', await watch(page, () => page.keyboard.type('The quick brown fox jumps over the lazy dog. '.repeat(3), { delay: 40 })));
await page.fill('#message', '');
await page.hover('.scroller');
report('scrolling up', await watch(page, () => scroll(page, -400, 200)));
report('scrolling down', await watch(page, () => scroll(page, 400, 200)));
await page.hover('.session-list');
report('scrolling the list', await watch(page, async () => {
  for (let i = 0; i < 60; i++) {
    await page.mouse.wheel(0, i < 30 ? 200 : -200);
    await page.waitForTimeout(16);
  }
}));
await closeBrowser();
front.close();
for (const f of cleanup.reverse()) await f();
process.exit(0);
