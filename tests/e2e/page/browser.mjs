// The page in headless Chromium or Firefox, for all tests of the page. A page that logs an error, throws or violates the content
// policy fails its test at the end.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { chromium, firefox } from 'playwright-core';
import { afterwards, atLast, patience, Server, sleep } from '../harness.mjs';
import { Conversation } from '../schema.mjs';
import { browserPath, firefoxPath } from './browser_path.mjs';
import { Contexts } from './tabs.mjs';

export { Server, until } from '../harness.mjs';

let browser, contexts;
let inFirefox = process.env.PAGE_BROWSER === 'firefox'; // for one run of a file by hand

/** From here on a file's tests run in Firefox: the system's own, over WebDriver BiDi. */
export const useFirefox = () => (inFirefox = true);

let home = ''; // Firefox does not start in a home folder of another user, which root has in some containers

// Off are those that Playwright turns off, whose list this option replaces, pages of the browser's own that each new window
// would load for its address bar (half of the processor time that a context costs), and a renderer in reserve.
const featuresOff = [
  'AcceptCHFrame', 'AutoDeElevate', 'AvoidUnnecessaryBeforeUnloadCheckSync', 'DestroyProfileOnBrowserClose',
  'DialMediaRouteProvider', 'GlobalMediaControls', 'HttpsUpgrades', 'LensOverlay', 'MediaRouter', 'OptimizationHints',
  'PaintHolding', 'RenderDocument', 'ThirdPartyStoragePartitioning', 'Translate',
  'PreloadTopChromeWebUI', 'WebUIOmniboxAimPopup', 'WebUIOmniboxPopup', 'SpareRendererForSitePerProcess',
];

async function launch() {
  if (inFirefox) {
    home = mkdtempSync(path.join(tmpdir(), 'parley-firefox-'));
    return firefox.launch({
      channel: 'moz-firefox',
      executablePath: firefoxPath(),
      env: { ...process.env, HOME: home },
      firefoxUserPrefs: { 'dom.events.testing.asyncClipboard': true }, // reads the clipboard without asking the user
    });
  }
  return chromium.launch({
    executablePath: await browserPath(),
    args: [
      '--no-sandbox',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--disable-gpu',
      // Fewer processes, all of them for one page: 1.8 s of processor time for a page that opens instead of 2.6.
      '--in-process-gpu',
      '--enable-features=NetworkServiceInProcess2,CDPScreenshotNewSurface', // the second is Playwright's own
      '--disable-site-isolation-trials',
      '--renderer-process-limit=1', // a process for each context, not for each tab
      `--disable-features=${featuresOff.join(',')}`,
    ],
  });
}

/** The browser ends behind the last file of the process (together.mjs). What a test leaves in it is removed behind that test
 * (tabs.mjs), so the next file takes over the renderer process as well. */
export async function closeBrowser() {
  await browser?.close();
  browser = contexts = undefined;
  if (home) rmSync(home, { recursive: true, force: true });
}

/** Options of a server that leaves a processor to the browser: an answer that a test meets in the middle lasts twice as
 * long, and is not over before the page has looked. */
export const unhurried = ['--threads', '1'];

/** A program before a server: where both want a processor, the browser comes first. On a busy machine answers last longer then,
 * as what a test does to the page does. */
export const behind = ['nice', '-n', '5'];

/** A server for all tests of a file, which ends with the file; call at the top of the file. */
export function sharedServer() {
  return Server.start(null, { args: unhurried, wrap: behind });
}

/** An assertion about what the page shows behind a key or a click: until it holds, since what the page does then may be a
 * task of its own (an event, a frame, a file that is loaded late). */
export async function soon(assertion) {
  for (const end = Date.now() + 20000; ; await sleep(50))
    try {
      return await assertion();
    } catch (error) {
      if (Date.now() > end || !(error instanceof assert.AssertionError)) throw error;
    }
}

/** A context of its own (storage, theme, size), without anything of a test before (tabs.mjs). `fresh`: for a test of
 * opening itself, nor is anything loaded. */
export async function newContext(t, { expected, fresh = inFirefox, ...options } = {}) {
  if (!browser?.isConnected()) { // none yet, or it crashed
    contexts = undefined;
    browser = await launch();
    atLast(closeBrowser);
  }
  contexts ??= new Contexts(browser);
  const { context, done } = await contexts.take({ fresh, ...options });
  context.setDefaultTimeout(patience);
  afterwards(t, done);
  return context;
}

/** A page whose complaints are collected; `expected` are those that a test provokes. */
export async function newPage(t, context, { expected = [] } = {}) {
  const page = await context.newPage();
  await context.dress?.(page);
  // By a timer: frames, the default, may stay away from a page that a busy machine does not draw. If they come, what
  // has just changed is drawn, too: innerText needs that. And what is drawn task by task is whole: the turns that fill
  // the screen, and the colours of code.
  const wait = page.waitForFunction.bind(page);
  page.waitForNow = (condition, arg) => wait(condition, arg, { polling: 50 });
  page.waitForFunction = async (condition, arg, options) => {
    const value = await wait(condition, arg, { polling: 50, ...options });
    await page.evaluate(async () => {
      const start = performance.now();
      const frame = () => new Promise((done) => [requestAnimationFrame(done), setTimeout(done, 500)]);
      await frame();
      do await frame();
      while (document.querySelector('.log[aria-busy], code.uncoloured') && performance.now() < start + 60000);
    });
    return value;
  };
  page.complaints = [];
  const complain = (text) => {
    if (!expected.some((pattern) => pattern.test(text))) page.complaints.push(text);
  };
  page.on('pageerror', (error) => complain(`thrown: ${error.stack ?? error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error' || /content security policy|trusted ?type/i.test(message.text()))
      complain(`console: ${message.text()}`);
  });
  page.on('websocket', (socket) => {
    const conversation = new Conversation();
    const checked = (note) => ({ payload }) => {
      try {
        note(payload);
      } catch (error) {
        complain(error.message);
      }
    };
    socket.on('framesent', checked((text) => conversation.sent(text)));
    socket.on('framereceived', checked((text) => conversation.received(JSON.parse(text))));
  });
  page.on('dialog', (dialog) => {
    complain(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  afterwards(t, () => assert.deepEqual(page.complaints, [], 'the page complained'));
  return page;
}

/** The page of a server, connected. */
export async function openPage(t, server, { context, hash = '', ...options } = {}) {
  const page = await newPage(t, context ?? (await newContext(t, options)), options);
  await page.goto(`${server.url}/${hash}`);
  await connected(page);
  return page;
}

export const connected = (page) =>
  page.waitForSelector('.connection .dot[data-connection=open]', { state: 'attached' });
export const sessionOf = (page) => new URL(page.url()).hash.replace('#s=', '');

/** Chooses from the menu below an answer; the answer: by its place among those drawn, else the last one. */
export async function fromMenu(page, item, at = -1, within = '') {
  const all = page.locator(`${within} [data-action=more]:visible`);
  await (at < 0 ? all.last() : all.nth(at)).click();
  await page.click(`.menu [data-item=${item}]`);
}

/** Waits until the message field holds this: the hash changes before the page has changed its session. */
export const typed = (page, text) => page.waitForFunction((wanted) => document.querySelector('#message')?.value === wanted, text);

/** Holds the timers after which a deletion cannot be undone: on a busy machine two clicks may take longer. Call it before the
 * page is opened, or again. */
export async function holdTimers(page) {
  const hold = () => {
    window.held = new Map();
    if (window.plainTimeout) return;
    const [plain, clear] = [window.setTimeout, window.clearTimeout];
    window.plainTimeout = plain;
    window.setTimeout = (run, ms, ...rest) => {
      if (!window.held || !(ms > 7000 && ms <= 8000)) return plain(run, ms, ...rest);
      const id = plain(() => {}, 1e9); // a number that no other timer has
      window.held.set(id, () => run(...rest));
      return id;
    };
    window.clearTimeout = (id) => {
      window.held?.delete(id);
      clear(id);
    };
  };
  await page.addInitScript(hold);
  await page.evaluate(hold);
}

/** Runs those that are held, as if their time had come, and holds no more. */
export const letTimersGo = (page) =>
  page.evaluate(() => {
    const due = window.held;
    window.held = null;
    for (const run of due.values()) run();
  });

/** Types a message and sends it with Enter. */
export async function say(page, text) {
  await page.fill('#message', text);
  await page.press('#message', 'Enter');
}

/** What a page that waits in vain is asked: what it shows, and whether it still gets frames to draw in. */
const whatIsShown = () =>
  Promise.race([
    new Promise((resolve) => requestAnimationFrame(() => resolve('frames come'))),
    new Promise((resolve) => setTimeout(() => resolve('no frame within 2 s'), 2000)),
  ]).then((frames) => ({
    frames,
    hidden: document.hidden,
    connection: document.querySelector('.connection .dot')?.dataset.connection,
    field: document.querySelector('#message')?.value,
    toasts: document.querySelector('.toast-place')?.innerText,
    turns: [...document.querySelectorAll('.turn, .pending')].map(
      (turn) => `${turn.className} ${turn.dataset.state ?? turn.dataset.phase}: ${turn.innerText.slice(0, 200)}`,
    ),
    address: location.href,
  }));

/** Waits until as many turns are done as said and nothing runs; its error tells what the page shows instead. */
export const settled = (page, turns) =>
  page
    .waitForFunction(
      (n) =>
        document.querySelectorAll('.turn[data-state=done]').length >= n &&
        !document.querySelector('.pending, .turn[data-state=running], .turn[data-state=queued]'),
      turns,
    )
    .catch(async (error) => {
      throw new Error(`${error.message}; the page shows ${JSON.stringify(await page.evaluate(whatIsShown))}`);
    });

/** Says something and waits for the end of the answer; gives its text. */
export async function ask(page, text) {
  const before = await page.locator('.turn[data-state=done]').count();
  await say(page, text);
  await settled(page, before + 1);
  return page.locator('.turn .prose').last().innerText();
}

/** Begins a new session; the turns of the one before are off the page then, which ask() counts. */
export async function newSession(page) {
  await page.click('.new-button');
  await page.waitForSelector('.suggestion');
}

/** Waits until the answer that streams is at least as long; not for its frames, since it may end meanwhile. */
export const streamed = (page, characters) =>
  page.waitForNow((n) => {
    const prose = document.querySelector('.turn[data-state=running] .prose');
    return (prose?.textContent.length ?? 0) >= n;
  }, characters);

// The demo model's answers are short. An answer that runs to its length limit lasts long enough to be observed while
// it streams.
export const ENDLESS = { ignore_eos: true, temperature: 1, max_tokens: 3000 };

/** A session made over a socket of its own, with sampling of the test's choice; gives { client, id }. */
export async function prepareSession(t, server, fields = {}) {
  const client = await server.connect();
  afterwards(t, () => client.terminate());
  const id = await client.open(fields);
  return { client, id };
}

/** The turns of a session as the server has them. */
export async function turnsOf(server, id) {
  const client = await server.connect();
  const state = await client.request({ type: 'session.get', session: id, last: 1000 });
  await client.close();
  assert.equal(state.type, 'session.state', JSON.stringify(state));
  return state.turns;
}

/** Lets the page read the clipboard, where the browser would ask the user. */
export const allowClipboard = (page) => !inFirefox && page.context().grantPermissions(['clipboard-read', 'clipboard-write']);

/** The answers' texts exactly as the page holds them, by the page's own copy buttons. */
export async function copiedAnswers(page) {
  await allowClipboard(page);
  const texts = [];
  for (const button of await page.locator('[data-action=copy-answer]').all()) {
    // On a touch screen an earlier turn's buttons come with a touch of it.
    if (!(await button.isVisible())) await button.locator('xpath=ancestor::article[1]').click({ position: { x: 8, y: 8 } });
    if (!(await button.isVisible())) continue;
    await page.evaluate(() => navigator.clipboard.writeText(''));
    await button.click();
    await page.waitForFunction(async () => (await navigator.clipboard.readText()) !== '');
    texts.push(await page.evaluate(() => navigator.clipboard.readText()));
  }
  return texts;
}
