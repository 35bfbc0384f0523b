// Formulas: TeX is drawn as MathML and copied as TeX; what is none, or cannot be drawn, stays as it was written.
import assert from 'node:assert/strict';
import { longTest, shortTest as test } from '../harness.mjs';
import { allowClipboard, newContext, newPage, settled, sharedServer } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();

async function shown(t, text) {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page, [['say', text]]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  return { page, fake };
}
const texs = (page) => page.locator('.formula').evaluateAll((all) => all.map((one) => `${one.className}: ${one.dataset.tex}`));

test('each way to write a formula becomes MathML; prices and variables are text', async (t) => {
  const { page } = await shown(t, 'It is $a_1*b*c_2$ or \\(x\\,y\\), and \\[z_*1*\\] for $5 to $6, $7 (US$) in $HOME/$PATH.\n\nSo\n$$\n\\int_0^1 x^2\\,dx\n$$\nends.');
  await page.waitForSelector('.formula-block math');
  assert.deepEqual(await texs(page), ['formula: a_1*b*c_2', 'formula: x\\,y', 'formula formula-block: z_*1*', 'formula formula-block: \\int_0^1 x^2\\,dx']);
  assert.equal(await page.locator('.formula > math').count(), 4);
  assert.equal(await page.locator('.formula math msub').count(), 3);
  assert.equal(await page.locator('.formula-block math[display=block] msubsup').count(), 1);
  assert.match(await page.locator('.prose p').first().innerText(), /for \$5 to \$6, \$7 \(US\$\) in \$HOME\/\$PATH\.$/);
  assert.equal(await page.locator('.prose em, .prose code, .code').count(), 0);
  assert.equal(await page.locator('.prose p').last().innerText(), 'ends.');
  assert.ok((await page.locator('.formula-block math').last().boundingBox()).height > 25, 'it is drawn as a formula');
});

longTest('what cannot be drawn stays code: unknown commands, formulas that would grow without end', async (t) => {
  const { page } = await shown(t, 'One $\\frac{1}{$ and $\\nosuchcommand{x}$ and $\\def\\a{\\a\\a}\\a$ and $x$.\n\n$$\n- *b* <b>{\n$$');
  await page.waitForSelector('.formula math');
  assert.deepEqual(await texs(page), ['formula: x']);
  assert.deepEqual(await page.locator('.prose p code').allTextContents(), ['\\frac{1}{', '\\nosuchcommand{x}', '\\def\\a{\\a\\a}\\a']);
  assert.equal(await page.locator('.code code').textContent(), '- *b* <b>{');
  assert.equal(await page.locator('.code-language').innerText(), 'TeX');
});

test('a formula brings no address, script, style or class of its own', async (t) => {
  const { page } = await shown(t, ['\\href{javascript:alert(1)}{x}', '\\url{https://example.org}', '\\class{toast}{x}', '\\style{color:red}{x}', '\\id{message}{x}', '\\includegraphics{https://example.org/a.png}', '\\text{<img src=x onerror=alert(1)>}', 'z'].map((tex) => `$${tex}$`).join('\n\n'));
  await page.waitForSelector('.formula[data-tex=z] math');
  const found = await page.locator('.prose').evaluate((prose) =>
    [...prose.querySelectorAll('math, math *')].flatMap((one) => [...one.attributes].map(({ name }) => name)).filter((name) => /^(href|src|style|id|on.*)$/.test(name)));
  assert.deepEqual(found, []);
  assert.equal(await page.locator('.prose :is(img, a, script), .prose .toast').count(), 0);
});

longTest('boxes and matrices', async (t) => {
  const { page } = await shown(t, '$$\\boxed{42}$$\n\n$$\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}$$\n\n$$\\begin{aligned} x &= 1 \\\\ y &= 2 \\end{aligned}$$');
  await page.waitForSelector('.formula-block mtable >> nth=1');
  assert.equal(await page.locator('.formula .boxed').evaluate((one) => getComputedStyle(one).borderTopWidth), '1px');
  assert.equal(await page.locator('.formula mtr').count(), 4);
});

longTest('a streamed formula is drawn when it closes; what is copied is its TeX', async (t) => {
  const { page, fake } = await shown(t, 'Before.');
  await fake.begin('a formula');
  for (const part of ['Now $x', '^2', '$ and\n\n', '$$y = \\frac', '12$$\n\nend']) fake.delta(part);
  fake.done();
  await settled(page, 2);
  await page.waitForSelector('.formula-block math mfrac');
  assert.deepEqual(await texs(page), ['formula: x^2', 'formula formula-block: y = \\frac12']);
  const copied = await page.evaluate(() => {
    getSelection().selectAllChildren(document.querySelector('.turn[data-turn="1"] .prose'));
    const clipboardData = new DataTransfer();
    document.querySelector('.turn[data-turn="1"] .prose').dispatchEvent(new ClipboardEvent('copy', { clipboardData, bubbles: true, cancelable: true }));
    return clipboardData.getData('text/plain').replaceAll(/\n+/g, '\n');
  });
  assert.equal(copied, 'Now $x^2$ and\n$$y = \\frac12$$\nend');
});

longTest('a formula that is drawn late, while its block still grows, leaves nothing behind', async (t) => {
  const page = await newPage(t, await newContext(t));
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await page.route('**/formulas-*.js', (route) => released.then(() => route.continue()));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForSelector('.log');
  await fake.begin('say');
  fake.delta('So\n\n$$\na+b\n$$');
  await page.waitForSelector('.prose .code code.maths');
  release();
  await page.waitForSelector('.prose .formula-block math');
  fake.delta(' and words, so that it was none on lines of its own.');
  // Still open: an answer's end draws its last block anew.
  await page.waitForSelector('.prose p:has-text("words")');
  assert.deepEqual(await page.locator('.prose > div > *').evaluateAll((all) => all.map((one) => one.localName)), ['p', 'p']);
  assert.equal(await page.locator('.formula').count(), 1);
});

longTest('the copy button gives Markdown as text, and markup to programs that take it', async (t) => {
  const text = 'It is **so**, $x^2$:\n\n```c\nint x;\n```';
  const { page } = await shown(t, text);
  await page.waitForSelector('.formula math');
  await allowClipboard(page);
  await page.click('[data-action=copy-answer]');
  await page.waitForSelector('[data-action=copy-answer].done');
  const [plain, html] = await page.evaluate(async () => {
    const [item] = await navigator.clipboard.read();
    return Promise.all(['text/plain', 'text/html'].map(async (type) => (await item.getType(type)).text()));
  });
  assert.equal(plain, text);
  assert.match(html, /It is <strong[^>]*>so<\/strong>, <span[^>]*>\$x\^2\$<\/span>:/);
  assert.match(html, /<pre[^>]*><code[^>]*>.*int/s);
  assert.doesNotMatch(html, /<button|<svg|class=|data-/);
});
