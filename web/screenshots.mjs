// Draws the page's main states: the chat as web/screenshot.png, which the project's README shows, the others into
// web/screenshots/, for README.md. With the demo model, in Chromium.
// usage: make all && node web/screenshots.mjs
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const e2e = createRequire(path.join(root, 'tests/e2e/page/browser.mjs'));
const { chromium } = e2e('playwright-core');
const { browserPath } = await import(path.join(root, 'tests/e2e/page/browser_path.mjs'));
const out = path.join(root, 'web/screenshots');
const wide = { width: 1180, height: 740 };
const phone = { width: 390, height: 740 };

const folder = mkdtempSync(path.join(tmpdir(), 'parley-pictures-'));
const port = await new Promise((resolve) => {
  const socket = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = /** @type {net.AddressInfo} */ (socket.address());
    socket.close(() => resolve(port));
  });
});
const url = `http://127.0.0.1:${port}`;
const server = spawn(
  path.join(root, process.env.PARLEY ?? 'build/release/parley'),
  ['serve', '--model', 'configs/demo-model', '--memory-len', '1024', '--port', String(port), '--db', path.join(folder, 'parley.db'), '--sharing', '--control-socket', 'off'],
  { cwd: root, stdio: 'ignore' },
);
const browser = await chromium.launch({ executablePath: await browserPath(), args: ['--no-sandbox', '--disable-gpu'] });

/** A page of a window's size and theme; what moves stands still. */
async function open(address, { viewport = wide, colorScheme = 'light', context } = {}) {
  context ??= await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce', locale: 'en-GB' });
  const page = await context.newPage();
  await page.goto(`${url}/${address}`);
  return page;
}

async function ask(page, text) {
  const before = await page.locator('.turn').count();
  await page.fill('#message', text);
  await page.press('#message', 'Enter');
  await page.waitForFunction((n) => document.querySelectorAll('.turn[data-state=done]').length > n, before);
}

async function picture(page, name) {
  await page.mouse.move(0, 0);
  await page.evaluate(() => document.fonts.ready);
  await page.waitForFunction(() => !document.querySelector('code.uncoloured, [aria-busy=true], .toast'));
  await page.screenshot({ path: path.join(out, `${name}.png`) });
}

try {
  for (let i = 0; i < 300 && !(await fetch(`${url}/readyz`).catch(() => null))?.ok; i++) await new Promise((resolve) => setTimeout(resolve, 100));
  mkdirSync(out, { recursive: true });
  const page = await open('');
  await page.waitForSelector('.connection .dot[data-connection=open]', { state: 'attached' });
  for (const [text, folder] of [['What is the capital of France?', 'Geography'], ['What is the capital of Norway?', 'Geography'], ['Count to five.'], ['I need a table for two at eight.']]) {
    await ask(page, text);
    if (folder) {
      await page.click('.header [aria-label="Chat menu"]');
      await page.click('.menu-item:text-is("Move to folder…")');
      await page.fill('#folder-name', folder);
      await page.press('#folder-name', 'Enter');
      await page.waitForSelector('.folder-button');
    }
    await page.click('.new-button');
  }
  await picture(page, 'new');
  for (const text of ['My name is Zora.', 'Write hello world in C.', 'What is my name?']) await ask(page, text);
  await page.locator('[data-action=regenerate]').last().click();
  await page.waitForSelector('.versions');
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-state=done]').length === 3);
  await picture(page, '../screenshot');
  const id = new URL(page.url()).hash;

  const dark = await open(id, { viewport: { width: 1500, height: 740 }, colorScheme: 'dark' });
  await dark.waitForFunction(() => document.querySelectorAll('.turn[data-state=done]').length === 3);
  await dark.locator('[data-action=more]').last().click();
  await dark.click('.menu [data-item=inspect]');
  await dark.waitForSelector('.inspector .tokens');
  await picture(dark, 'inspect');

  await page.click('.header [aria-label="Chat menu"]');
  await page.click('.menu-item:text-is("Share…")');
  await page.click('.share-dialog button:text-is("Make a link")');
  const link = await page.inputValue('.share-link');
  const reader = await open(link.slice(url.length + 1), { viewport: phone });
  await reader.waitForFunction(() => document.querySelectorAll('.turn').length === 3);
  await picture(reader, 'shared');

  const dashboard = await open('#/server');
  await dashboard.waitForSelector('.plot');
  const other = await open('');
  await other.waitForSelector('.connection .dot[data-connection=open]', { state: 'attached' });
  for (const text of ['Count to five.', 'Make a table of three countries and their capitals.', 'Write hello world in C.']) await ask(other, text);
  await new Promise((resolve) => setTimeout(resolve, 5000)); // for the plots to have a line
  await picture(dashboard, 'server');
} finally {
  await browser.close();
  server.kill();
  await new Promise((resolve) => server.once('exit', resolve));
  rmSync(folder, { recursive: true, force: true });
}
