// Files in a message: dropped, pasted or chosen; as chips before and after it is sent; as text for the model.
import assert from 'node:assert/strict';
import { longTest, shortIf, shortTest as test } from '../harness.mjs';
import { openPage, prepareSession, sessionOf, settled, sharedServer, turnsOf } from './browser.mjs';

const server = await sharedServer();
const hash = async (t) => `#s=${(await prepareSession(t, server, { sampling: { max_tokens: 4 } })).id}`;

/** Chooses files by the composer's button. */
async function choose(page, ...files) {
  const [chooser] = await Promise.all([page.waitForEvent('filechooser'), page.click('[aria-label="Add text, code or PDF files"]')]);
  await chooser.setFiles(files.map(([name, mimeType, content]) => ({ name, mimeType, buffer: Buffer.from(content) })));
}

/** A PDF of pages with a line of text each. */
function pdf(...lines) {
  const objects = [
    '<</Type/Catalog/Pages 2 0 R>>',
    `<</Type/Pages/Kids[${lines.map((_, i) => `${4 + 2 * i} 0 R`).join(' ')}]/Count ${lines.length}>>`,
    '<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>',
    ...lines.flatMap((line, i) => {
      const stream = `BT /F1 12 Tf 72 700 Td (${line}) Tj ET`;
      return [
        `<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents ${5 + 2 * i} 0 R>>`,
        `<</Length ${stream.length}>>\nstream\n${stream}\nendstream`,
      ];
    }),
  ];
  let text = '%PDF-1.4\n';
  const at = objects.map((object, i) => {
    const offset = text.length;
    text += `${i + 1} 0 obj\n${object}\nendobj\n`;
    return offset;
  });
  const xref = text.length;
  const rows = at.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('');
  return `${text}xref\n0 ${at.length + 1}\n0000000000 65535 f \n${rows}trailer\n<</Size ${at.length + 1}/Root 1 0 R>>\nstartxref\n${xref}\n%%EOF\n`;
}

test('text and code go into the message as fenced blocks, and are chips before and after', async (t) => {
  const page = await openPage(t, server, { hash: await hash(t) });
  await choose(page, ['notes.txt', 'text/plain', 'some notes\r\nof mine\n'], ['doc.md', 'text/markdown', 'See:\n```c\nint x;\n```\n']);
  await page.waitForSelector('.file-chips .file-chip >> nth=1');
  assert.deepEqual(await page.locator('.file-chips .file-name').allInnerTexts(), ['notes.txt', 'doc.md']);
  assert.equal(await page.locator('.file-chips .file-figures').first().innerText(), '18 bytes, about 5 tokens');
  await page.fill('#message', 'What is this?');
  await page.press('#message', 'Enter');
  await settled(page, 1);
  const sent = 'File: notes.txt\n```\nsome notes\nof mine\n```\n\nFile: doc.md\n````markdown\nSee:\n```c\nint x;\n```\n````\n\nWhat is this?';
  assert.equal((await turnsOf(server, sessionOf(page)))[0].input.content, sent);
  assert.equal(await page.locator('.file-chips:visible').count(), 0);
  assert.deepEqual(await page.locator('.bubble .file-name').allInnerTexts(), ['notes.txt', 'doc.md']);
  assert.equal(await page.locator('.bubble-text').innerText(), 'What is this?');
  await page.click('.bubble summary >> nth=1');
  await page.waitForSelector('.bubble .sent-file[open] pre:not(:empty)'); // filled when it opens
  assert.equal(await page.locator('.bubble .sent-file[open] pre').innerText(), 'See:\n```c\nint x;\n```');
});

test('a long text and files show about how many tokens they have, beside and in the meter, before they are sent', async (t) => {
  const page = await openPage(t, server, { hash: await hash(t) });
  const ahead = () => page.locator('.context-next').evaluate((bar) => Number.parseFloat(bar.style.width) || 0);
  assert.equal(await ahead(), 0);
  await page.fill('#message', 'word '.repeat(160));
  await page.waitForSelector('.composer-hint:text-is("About 200 tokens")');
  const text = await ahead();
  assert.ok(text > 0, `${text}`);
  await choose(page, ['notes.txt', 'text/plain', 'word '.repeat(160)]);
  await page.waitForSelector('.composer-hint:text-is("About 400 tokens")');
  assert.ok(Math.abs((await ahead()) - 2 * text) < 0.1);
  await page.click('.context');
  await page.waitForSelector('.context-details:has-text("about 400 tokens")');
  await page.keyboard.press('Escape');
  await page.click('button.send');
  await settled(page, 1);
  assert.equal(await ahead(), 0);
});

test('a PDF goes in as its text; its library is loaded then', async (t) => {
  const page = await openPage(t, server, { hash: await hash(t) });
  const requests = [];
  page.on('request', (request) => requests.push(request.url()));
  await choose(page, ['paper.pdf', 'application/pdf', pdf('The first page.', 'The second page.')]);
  await page.waitForSelector('.file-chips .file-name');
  assert.equal(requests.filter((url) => /\/pdf-/.test(url)).length, 1); // others may still be on their way
  await page.click('button.send');
  await settled(page, 1);
  assert.equal((await turnsOf(server, sessionOf(page)))[0].input.content, 'File: paper.pdf\n```\nThe first page.\n\nThe second page.\n```');
});

for (const [name, type, content, sentence] of [
  ['cat.png', 'image/png', '\x89PNG', '“cat.png” is an image, and this model cannot see images.'],
  ['empty.txt', 'text/plain', ' \n', '“empty.txt” is empty.'],
  ['bad.pdf', 'application/pdf', '%PDF-1.4\nnothing', 'This PDF is damaged and cannot be read.'],
  ['blank.pdf', 'application/pdf', pdf(' '), '“blank.pdf” contains no text: its pages may be images.'],
])
  shortIf(name === 'bad.pdf')(`${name} is refused with a sentence`, async (t) => {
    const page = await openPage(t, server);
    await choose(page, [name, type, content]);
    await page.waitForSelector('.toast-error');
    assert.equal(await page.locator('.toast-error span').innerText(), sentence);
    assert.equal(await page.locator('.file-chips:visible').count(), 0);
  });

longTest('a pasted file becomes a chip, which can be removed; an image is refused', async (t) => {
  const page = await openPage(t, server);
  const paste = (name, type) =>
    page.locator('#message').evaluate(
      (field, [name, type]) => {
        const clipboardData = new DataTransfer();
        clipboardData.items.add(new window.File(['int x;'], name, { type }));
        field.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
      },
      [name, type],
    );
  await paste('x.c', 'text/x-csrc');
  await page.waitForSelector('.file-chips .file-name:has-text("x.c")');
  assert.equal(await page.locator('button.send').isEnabled(), true);
  await page.click('[aria-label="Remove x.c"]');
  await page.waitForSelector('.file-chips', { state: 'hidden' });
  assert.equal(await page.locator('button.send').isEnabled(), false);
  await paste('image.png', 'image/png');
  await page.waitForSelector('.toast-error:has-text("cannot see images")');
});

longTest('files stay with the chat in which they were chosen', async (t) => {
  const page = await openPage(t, server, { hash: await hash(t) });
  await choose(page, ['here.txt', 'text/plain', 'here']);
  await page.waitForSelector('.file-chips .file-name');
  await page.click('.new-button');
  await page.waitForSelector('.file-chips', { state: 'hidden' });
  await page.goBack();
  await page.waitForSelector('.file-chips .file-name:has-text("here.txt")');
});

longTest('a file that seems too long for the session is said before it is sent', async (t) => {
  const { id } = await prepareSession(t, server, { session_len: 200, memory_len: 200 });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await choose(page, ['long.txt', 'text/plain', 'word '.repeat(400)]);
  await page.waitForSelector('.composer-hint:has-text("About 500 tokens; 199 left in this chat")');
});

longTest('in a phone, a file with a long name stays in its message, and a long text with it is folded', async (t) => {
  const page = await openPage(t, server, { hash: await hash(t), viewport: { width: 320, height: 640 } });
  await choose(page, ['a-rather-long-name-of-a-file-with-notes-of-a-year.md', 'text/markdown', '# notes\n']);
  await page.waitForSelector('.file-chips .file-name');
  await page.fill('#message', 'A line.\n'.repeat(30));
  await page.click('button.send');
  await settled(page, 1);
  const [bubble, chip] = await Promise.all(['.bubble', '.bubble .file-chip'].map((one) => page.locator(one).boundingBox()));
  assert.ok(bubble.x >= 0 && bubble.x + bubble.width <= 320 && chip.x >= bubble.x && chip.x + chip.width <= bubble.x + bubble.width, JSON.stringify([bubble, chip]));
  assert.equal(await page.locator('.bubble .bubble-text.folded').count(), 1);
});

longTest('a phone shows that a message seems too long', async (t) => {
  const { id } = await prepareSession(t, server, { session_len: 200, memory_len: 200 });
  const page = await openPage(t, server, { hash: `#s=${id}`, viewport: { width: 320, height: 640 } });
  await page.waitForSelector('.context');
  await page.fill('#message', 'word '.repeat(400));
  const hint = page.locator('.composer-hint:has-text("About 500 tokens; 199 left in this chat")');
  await hint.waitFor();
  const [text, send] = await Promise.all([hint.boundingBox(), page.locator('button.send').boundingBox()]);
  assert.ok(text.height >= 12 && text.x >= 0 && text.x + text.width <= 320 && text.y + text.height <= send.y, JSON.stringify([text, send]));
});

test('who edits a message keeps its files, or removes them; the words alone are edited', async (t) => {
  const page = await openPage(t, server, { hash: await hash(t) });
  await choose(page, ['one.txt', 'text/plain', 'first'], ['two.txt', 'text/plain', 'second']);
  await page.fill('#message', 'What is this?');
  await page.press('#message', 'Enter');
  await settled(page, 1);
  await page.press('#message', 'ArrowUp');
  assert.equal(await page.inputValue('.editor textarea'), 'What is this?');
  assert.deepEqual(await page.locator('.editor .file-name').allInnerTexts(), ['one.txt', 'two.txt']);
  await page.click('.editor [aria-label="Remove one.txt"]');
  await page.fill('.editor textarea', 'And this?');
  await page.press('.editor textarea', 'Enter');
  await page.waitForSelector('.versions');
  await settled(page, 1);
  assert.equal((await turnsOf(server, sessionOf(page)))[0].input.content, 'File: two.txt\n```\nsecond\n```\n\nAnd this?');
});

test('files that were not sent outlive a reload, and come back as files from a message that was refused', async (t) => {
  const { id } = await prepareSession(t, server, { session_len: 200, memory_len: 200 });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await choose(page, ['long.txt', 'text/plain', 'word '.repeat(300).trim()]);
  await page.waitForSelector('.file-chips .file-name');
  await page.fill('#message', 'Well?');
  await page.reload();
  await page.waitForSelector('.file-chips .file-name:text-is("long.txt")');
  await page.waitForFunction(() => document.querySelector('#message')?.value === 'Well?'); // none before the page's script ran
  await page.click('button.send');
  await page.waitForSelector('.pending .problem');
  assert.equal(await page.locator('.file-chips:visible').count(), 0);
  await page.click('.pending button:text-is("Edit")');
  await page.waitForSelector('.file-chips .file-name:text-is("long.txt")');
  assert.equal(await page.inputValue('#message'), 'Well?');
  await page.click('[aria-label="Remove long.txt"]');
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#message')?.value === 'Well?'); // none before the page's script ran
  assert.equal(await page.locator('.file-chips:visible').count(), 0);
});
