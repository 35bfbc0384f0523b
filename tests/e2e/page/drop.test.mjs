// What is dragged onto the page: files are imported, and nothing takes the page's place.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { shortIf, shortTest as test } from '../harness.mjs';
import { openPage, prepareSession, sessionOf, settled, sharedServer } from './browser.mjs';

const server = await sharedServer();

/** Drags files onto the middle of an element and lets them go there, as a user would. */
async function drop(page, selector, files) {
  const box = await page.locator(selector).boundingBox();
  const at = { x: box.x + box.width / 2, y: box.y + box.height / 2, data: { items: [], files, dragOperationsMask: 1 } };
  const browser = await page.context().newCDPSession(page);
  // The hint goes by itself, too, since a file may leave the window: so it is noted when it comes.
  await page.evaluate(() => new MutationObserver(() => (window.hint ??= document.querySelector('.drop-hint')?.textContent)).observe(document.body, { childList: true }));
  for (const type of ['dragEnter', 'dragOver', 'drop']) await browser.send('Input.dispatchDragEvent', { type, ...at });
  await page.waitForFunction(() => window.hint === 'Drop files here');
  await page.waitForSelector('.drop-hint', { state: 'detached' });
}

for (const place of ['.transcript', '#message', '#sidebar'])
  shortIf(place === '#message')(`a file of a session that is dropped on ${place} is imported; the message being typed stays`, async (t) => {
    const { client, id } = await prepareSession(t, server, { title: 'Dragged' });
    await client.turn(id, 'My name is Zora.');
    const { archive } = await client.request({ type: 'session.export', session: id });
    const file = path.join(server.folder, 'dragged.json');
    writeFileSync(file, archive);
    const page = await openPage(t, server);
    await page.fill('#message', 'half a thought');
    await drop(page, place, [file]);
    await settled(page, 1);
    assert.notEqual(sessionOf(page), id);
    assert.equal(await page.locator('.bubble').innerText(), 'My name is Zora.');
    await page.click('.new-button');
    await page.waitForFunction(() => document.querySelector('#message').value === 'half a thought');
  });

test('a file of bytes is refused with a sentence, and the page stays', async (t) => {
  const file = path.join(server.folder, 'notes.zip');
  writeFileSync(file, Buffer.from([0x50, 0x4b, 3, 4, 0, 0xff]));
  const page = await openPage(t, server);
  await drop(page, '.transcript', [file]);
  await page.waitForSelector('.toast-error:has-text("“notes.zip” is not text. Text, code and PDF files can be added.")');
  assert.ok(page.url().startsWith(server.url));
});

test('a link or a text goes into a field only: beside it the browser would follow the link', async (t) => {
  const page = await openPage(t, server);
  const taken = (selector) =>
    page.locator(selector).evaluate((element) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.setData('text/uri-list', 'https://example.org/');
      return ['dragover', 'drop'].map(
        (type) => !element.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true })),
      );
    });
  assert.deepEqual(await taken('.transcript'), [true, true], 'kept from the browser');
  for (const field of ['#message', '#search']) assert.deepEqual(await taken(field), [false, false], `${field}: left to the browser`);
});
