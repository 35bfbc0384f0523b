// A conversation on paper.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connected, newContext, newPage, sharedServer } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();
const TURNS = 30;

test('all of it is printed, dark on white, without what is pressed', async (t) => {
  const page = await newPage(t, await newContext(t, { colorScheme: 'dark' }));
  const long = `${'The question goes on. '.repeat(300)}THE END OF IT`;
  await FakeSession.route(page, [
    [long, `\`\`\`\n${'word '.repeat(200)}\n\`\`\``],
    ...Array.from({ length: TURNS - 1 }, (_, i) => [`Question ${i}`, `Answer ${i}. ${'Some text. '.repeat(120)}`]),
  ]);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForFunction((n) => document.querySelectorAll('.turn').length === n, TURNS);
  const pdf = (await page.pdf({ format: 'A4' })).toString('latin1');
  const sheets = pdf.match(/\/Type\s*\/Page\b/g)?.length ?? 0;
  assert.ok(sheets >= TURNS / 4, `${sheets} pages for ${TURNS} turns of a quarter of a page or more`);

  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.locator('button:visible').count(), 0);
  assert.equal(await page.locator('#sidebar, .composer').locator('visible=true').count(), 0);
  const found = await page.evaluate(() => {
    const cut = [...document.querySelectorAll('.scroller, .log, .bubble-text, pre')].filter(
      ({ scrollWidth, clientWidth, scrollHeight, clientHeight }) => scrollWidth > clientWidth + 1 || scrollHeight > clientHeight + 1,
    );
    const shade = getComputedStyle(document.querySelector('.prose')).color.match(/\d+/g).map(Number);
    return { cut: cut.map(({ className, localName }) => `${localName}.${className}`), shade };
  });
  assert.deepEqual(found.cut, [], 'cut off');
  assert.ok(Math.max(...found.shade) < 128, `text of rgb(${found.shade})`);
});
