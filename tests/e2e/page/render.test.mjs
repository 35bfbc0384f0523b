// Rendering: streamed text looks the same as text rendered at once, and rendering stays fast at speeds and lengths
// beyond any conversation.
import assert from 'node:assert/strict';
import { connected, newContext, newPage, settled, sharedServer, soon } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';
import { longTest, shortTest as test, withinOnce } from '../harness.mjs';

const server = await sharedServer();

const DOCUMENTS = {
  headings: '# One\n\nText **bold *both* bold** and `code **not bold**`.\n\nTwo\n===\n\nend',
  lists:
    '1. one\n2. two\n\n   more of two\n\n3. three\n   - a\n   - b\n\n     para\n\n4. four\n\ntext after\n\n- [x] done\n- [ ] open',
  loose: '- a\n\n- b\n\n- c\n\nnot in it\n\n* d\n* e',
  code: 'Before\n\n```python\ndef f(x):\n\n    return "```"\n\n# end\n```\n\nbetween `a` and\n\n~~~\nplain\n~~~\n\n    indented\n\n    code\n\nafter',
  tables: '| a | b |\n|:--|--:|\n| 1 | 2 |\n| **3** | `4` |\n\ntext\n\n| lonely |\n\nend',
  quotes: '> one\n> two\n\n> three\n>\n> ```c\n> int x;\n> ```\n\nlazy\n> a\nb',
  references:
    'See [later] and [other][x].\n\nText.\n\n[later]: https://a.example/\n[x]: https://b.example/ "title"',
  breaks: 'line one\nline two  \nline three\n\n---\n\n***\n\nend \\*not\\* \\_em\\_',
  unclosed: '**bold without end and `code without end\n\n```js\nlet x = 1;',
  html: '<details><summary>x</summary>\n\n**inside**\n\n</details>\n\n<b>bold</b> &amp; &lt;',
  unicode: '👩‍👩‍👧 مرحبا **עולם** 你好\n\n- ✓ été\n- naïve\n\n| 漢字 | かな |\n|---|---|\n| 一 | いち |',
  maths: 'Let $a_1*b_2*c$ be \\(x\\,y\\).\n\n$$\n\\int_0^1 x\\,dx\n\n- b\n$$\n\nthen\n\\[\n a_b*c*d\n\\]\n\n- $$e_f$$\n\n$5 and $6, $HOME/$PATH, $$ open',
  windows: 'a\r\n\r\n- b\r\n- c\r\n\r\nd',
  notes: 'a[^1] b[^x]\n[^1]: one\ntwo\n\n    three\n\n[^x]: - y\n\nc[^1]',
  links: '[a](https://example.com/a_(b)) <https://example.com> https://example.com/x?y=1&z=2. me@example.com',
};

longTest('code in an answer from right to left reads from left to right', async (t) => {
  const page = await newPage(t, await newContext(t));
  await FakeSession.route(page, [['say', 'مرحبا\n\n`b;` ثم\n\n```c\nreturn a;\n```']]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  const code = page.locator('.code');
  for (const element of [code, code.locator('.code-head'), code.locator('pre'), page.locator('p code')]) {
    const style = await element.evaluate((e) => [getComputedStyle(e).direction, getComputedStyle(e).textAlign]);
    assert.deepEqual([style[0], ['left', 'start'].includes(style[1])], ['ltr', true]);
  }
  // The semicolon stands to the right of the name.
  const [name, end] = await page.locator('p code').evaluate(({ firstChild }) =>
    [0, 1].map((at) => {
      const range = document.createRange();
      range.setStart(firstChild, at);
      range.setEnd(firstChild, at + 1);
      return range.getBoundingClientRect().left;
    }),
  );
  assert.ok(name < end, `${name}, ${end}`);
  const paragraph = await page.locator('.prose').evaluate((e) => getComputedStyle(e).direction);
  assert.equal(paragraph, 'rtl');
});

longTest('a paragraph begins at the side of its own language, whatever that of the answer or the message', async (t) => {
  const page = await newPage(t, await newContext(t));
  const [english, arabic] = ['In Arabic:', 'مرحبا بالعالم.'];
  await FakeSession.route(page, [[`${english}\n${arabic}`, `${english}\n\n${arabic}\n\n- ${arabic}`], ['say', `${arabic}\n\n${english}`]]);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-state=done] .prose p').length === 4);
  const sides = await page.evaluate(() => {
    const side = (box, words) => (words.left - box.left < box.right - words.right ? 'left' : 'right');
    return [...document.querySelectorAll('.prose :is(p, li)')].map((element) => {
      const words = new Range();
      words.selectNodeContents(element);
      return side(element.getBoundingClientRect(), words.getBoundingClientRect());
    });
  });
  assert.deepEqual(sides, ['left', 'right', 'left', 'right', 'left'], 'an item of a list stays at its mark');
});

test('line breaks, raised and lowered text and keys are drawn; other markup stays text', async (t) => {
  const page = await newPage(t, await newContext(t));
  const text = '| a<br>b | H<sub>2</sub>O |\n|--|--|\n| x<sup>2</sup> | <kbd>Ctrl</kbd> |\n\nSee[^a-z] <sub class="toast" onclick="x">low</sub> <b>bold</b>\n\nend';
  await FakeSession.route(page, [['say', text]]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  assert.equal(await page.locator('.prose th').first().innerText(), 'a\nb');
  assert.deepEqual(await page.locator('.prose :is(sub, sup, kbd)').allTextContents(), ['2', '2', 'Ctrl']);
  assert.deepEqual(await page.locator('.prose p').allInnerTexts(), ['See[^a-z] <sub class="toast" onclick="x">low <b>bold</b>', 'end']);
});

longTest('footnotes: a mark is raised and has its note at hand, notes stand where the answer has them', async (t) => {
  const page = await newPage(t, await newContext(t));
  const text = 'One[^1], two[^Two] and [^none].\n[^1]: the *first*\n[^two]: the <b>"second"</b>\n\n    of two paragraphs\n\nend[^late]\n\n```\n[^1]: code\n```\n\n[^late]:\n    - a\n    - b';
  const deep = `${'[^1]: > - '.repeat(2000)}x`;
  const fake = await FakeSession.route(page, [['say', text], ['say', deep]]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 2);
  const look = (turn) =>
    page.locator(turn).locator('.prose').evaluate((prose) => [
      [...prose.querySelectorAll('p > sup')].map(({ textContent, title }) => [textContent, title]),
      [...prose.querySelectorAll('.notes > li')].map((li) => li.innerText.replace(/\s+/g, ' ')),
      prose.querySelectorAll('.notes em, .notes li li').length,
      prose.querySelector('p').innerText,
      prose.querySelector('pre').innerText,
    ]);
  const wanted = [
    [['1', 'the first'], ['Two', 'the <b>"second"</b>\n\nof two paragraphs'], ['late', 'a\nb']],
    ['1 the first', 'two the <b>"second"</b> of two paragraphs', 'late a b'],
    3,
    'One1, twoTwo and [^none].',
    '[^1]: code',
  ];
  assert.deepEqual(await look('.turn[data-turn="0"]'), wanted);
  await fake.begin('Again');
  for (const piece of text.match(/[^]{1,7}/g)) {
    fake.delta(piece);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  fake.done();
  await settled(page, 3);
  assert.deepEqual(await look('.turn:last-child'), wanted, 'streamed');
});

test('details are closed under their summary, with Markdown inside, in each other and in tables', async (t) => {
  const page = await newPage(t, await newContext(t));
  const deep = `${'<details>\n'.repeat(3000)}x`;
  await FakeSession.route(page, [
    ['say', 'Before\n<details>\n<summary>The **log**</summary>\n\n- one\n\n```js\nlet a;\n```\n\n<details open><summary>Inner</summary>\n\nin\n</details>\n\nlast\n</details>\n\nAfter'],
    ['say', '| a |\n|--|\n| <details><summary>Cell</summary>more</details> |\n\n<details ontoggle="x()" class="toast"><summary>No</summary></details>'],
    ['say', '<details><summary>Unfinished</summary>\n\nstill *going*'],
    ['say', deep],
  ]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 4);
  const turn = (i) => page.locator(`.turn[data-turn="${i}"] .prose`);
  assert.deepEqual(await turn(0).locator('summary').allTextContents(), ['The log', 'Inner']);
  assert.equal(await turn(0).locator('summary strong').innerText(), 'log');
  assert.equal(await turn(0).locator('details details[open] p').textContent(), 'in');
  assert.equal(await turn(0).locator('pre').isVisible(), false);
  await turn(0).locator('summary').first().click();
  await soon(async () => assert.equal(await turn(0).locator('pre').isVisible(), true));
  assert.deepEqual(await turn(0).locator(':scope > p, :scope > * > p').allInnerTexts().then((all) => [all[0], all.at(-1)]), ['Before', 'After']);
  assert.equal(await turn(1).locator('td details summary').innerText(), 'Cell');
  assert.equal(await turn(1).locator('details[class], [ontoggle]').count(), 0);
  assert.match(await turn(1).innerText(), /<details ontoggle="x\(\)" class="toast">/);
  assert.equal(await turn(2).locator('details em').textContent(), 'going');
  assert.ok((await turn(3).locator('details').count()) <= 24);
});

longTest('marks of emphasis without end cost no more than a moment, and their text stays', async (t) => {
  const page = await newPage(t, await newContext(t));
  const marks = ['*a_', '_a*', '**a_'];
  await FakeSession.route(page, [...marks.map((mark) => ['say', `${mark.repeat(9000 / mark.length)} end`]), ['say', 'and **then**']]);
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' }); // processor time: a busy machine adds nothing
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, marks.length + 1);
  assert.equal(await page.locator('.prose strong').last().textContent(), 'then');
  for (const [i, mark] of marks.entries()) assert.ok((await page.locator(`.turn[data-turn="${i}"] .prose`).textContent()).trimEnd().endsWith(' end'), mark);
  const { metrics } = await devtools.send('Performance.getMetrics');
  const took = Math.round(1000 * metrics.find(({ name }) => name === 'TaskDuration').value);
  t.diagnostic(`all tasks took ${took} ms of processor time`);
  assert.ok(took < 1800, `${took} ms`); // 600 with the bound on what the search looks at, 5,900 without
});

longTest('a task shows a box instead of a bullet; a link without an address looks like text', async (t) => {
  const page = await newPage(t, await newContext(t));
  await FakeSession.route(page, [['say', '- [x] done\n- [ ] open\n- plain\n\n[harmless](javascript:alert(1)) [real](https://example.com)']]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  const bullets = await page.locator('.prose li').evaluateAll((all) => all.map((e) => getComputedStyle(e).listStyleType));
  assert.deepEqual(bullets, ['none', 'none', 'disc']);
  const looks = await page.locator('.prose a').evaluateAll((all) =>
    all.map((e) => [e.hasAttribute('href'), getComputedStyle(e).color === getComputedStyle(e.parentElement).color, getComputedStyle(e).textDecorationLine]));
  assert.deepEqual(looks[0], [false, true, 'none']);
  assert.equal(looks[1][0], true);
  assert.notDeepEqual(looks[1].slice(1), [true, 'none']);
});

for (const [run, size] of [[test, 7], [longTest, 2]])
run(`a text that streams in pieces of ${size} ends as the same elements as when it was there before`, async (t) => {
  const context = await newContext(t);
  const still = await newPage(t, context);
  await FakeSession.route(
    still,
    Object.values(DOCUMENTS).map((text) => ['say', text]),
  );
  await still.goto(`${server.url}/#s=fake`);
  await settled(still, Object.keys(DOCUMENTS).length);
  await still.evaluate(() => dispatchEvent(new Event('beforeprint'))); // completes also those far from the screen
  await still.waitForSelector('code.uncoloured', { state: 'detached' }); // the grammars load late
  const wanted = await still.locator('.prose').evaluateAll((all) => all.map((element) => element.innerHTML));
  const page = await newPage(t, context);
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForSelector('.log');
  for (const text of Object.values(DOCUMENTS)) {
    await fake.begin('say');
    for (let at = 0; at < text.length; at += size) {
      fake.delta(text.slice(at, at + size));
      await page.evaluate(() => new Promise(requestAnimationFrame));
    }
    fake.done();
  }
  await settled(page, wanted.length);
  await page.waitForSelector('code.uncoloured', { state: 'detached' }); // the grammars load late
  const got = await page.locator('.prose').evaluateAll((all) => all.map((element) => element.innerHTML));
  Object.keys(DOCUMENTS).forEach((name, i) =>
    assert.equal(got[i], wanted[i], `${name} in pieces of ${size}`),
  );
  await page.close();
});

longTest('what Markdown says of order and alignment is kept', async (t) => {
  const page = await newPage(t, await newContext(t));
  await FakeSession.route(page, [
    [
      'say',
      '3. three\n4. four\n\n| a | b | c |\n|:--|--:|:-:|\n| 1 | 2 | 3 |\n\n![a picture](https://example.com/p.png)',
    ],
  ]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  assert.equal(await page.locator('.prose ol').getAttribute('start'), '3');
  assert.deepEqual(
    await page.locator('.prose td').evaluateAll((all) => all.map((cell) => getComputedStyle(cell).textAlign)),
    ['left', 'right', 'center'],
  );
  assert.equal(await page.locator('.prose a').getAttribute('href'), 'https://example.com/p.png');
  assert.equal(await page.locator('.prose a').innerText(), 'a picture');
});

test('while it streams, closed blocks stay the same elements and an open fence grows in place', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForSelector('.log');
  const frame = () =>
    page.evaluate(
      () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))),
    );
  await fake.begin('say');
  fake.delta('First paragraph.\n\nSecond **par');
  await page.waitForSelector('.prose strong');
  await page.evaluate(() => {
    window.first = document.querySelector('.prose p');
  });
  fake.delta('agraph**.\n\n```c\nint a;\n');
  await page.waitForSelector('.prose .code');
  assert.equal(await page.locator('.hljs-type').count(), 0, 'colours wait for the closing fence');
  await page.evaluate(() => {
    window.code = document.querySelector('.prose code');
  });
  for (let i = 0; i < 50; i++) fake.delta(`int x${i};\n`);
  await page.waitForFunction(() => document.querySelector('.prose code').textContent.includes('x49'));
  assert.ok(
    await page.evaluate(
      () =>
        window.code === document.querySelector('.prose code') &&
        window.first === document.querySelector('.prose p'),
    ),
  );
  fake.delta('```\n\nAfter.');
  await page.waitForSelector('.prose .hljs-type');
  await frame();
  assert.ok(await page.evaluate(() => window.first === document.querySelector('.prose p')));
  fake.done();
  await settled(page, 1);
  assert.ok(
    await page.evaluate(() => window.first === document.querySelector('.prose p')),
    'nothing was redrawn at the end',
  );
});

/** The page's own processor time in ms: other programs may lengthen frames, which is no fault of the page. */
async function spentBy(page) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  return async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    return 1000 * metrics.find((metric) => metric.name === 'TaskDuration').value;
  };
}

/** How often the transcript has been changed, however many tokens each change took in. */
async function drawsOf(page) {
  await page.evaluate(() => {
    window.draws = 0;
    new MutationObserver(() => window.draws++).observe(document.querySelector('.log'), { subtree: true, childList: true, characterData: true });
  });
  return () => page.evaluate(() => window.draws);
}

longTest('1,000 tokens a second cost the same each, however long the answer already is', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForSelector('.log');
  await fake.begin('Write a lot.');
  const spent = await spentBy(page);
  const draws = await drawsOf(page);
  const paragraph = (i) =>
    `Paragraph ${i} with **bold** words and \`code\` in it, long enough to wrap over a line or two of the column.\n\n- item one\n- item two\n\n\`\`\`c\nint f${i}(void) { return ${i}; }\n\`\`\`\n\n`;
  const thirds = [];
  for (let third = 0; third < 3; third++) {
    const tokens = Array.from({ length: 40 }, (_, i) => paragraph(third * 40 + i))
      .join('')
      .match(/[^]{1,4}/g);
    const before = await spent(), drawn = await draws();
    const start = performance.now();
    for (let i = 0; i < tokens.length; ) {
      const due = performance.now() - start;
      for (; i < tokens.length && i < due; i++) fake.delta(tokens[i]);
      await new Promise((resolve) => setTimeout(resolve, 4));
    }
    await page.waitForFunction((n) => document.querySelectorAll('.prose .code').length === n, 40 * (third + 1));
    const ms = (await spent()) - before;
    thirds.push({ token: ms / tokens.length, draw: ms / ((await draws()) - drawn) });
  }
  fake.done();
  await settled(page, 1);
  const said = thirds.map(({ token, draw }) => `${token.toFixed(2)} ms a token, ${draw.toFixed(2)} a draw`).join('; ');
  t.diagnostic(`processor time by thirds of the answer: ${said}`);
  // If each draw redrew the whole answer, tokens and draws would cost several times as much in the last third as in the
  // first. A machine that becomes less busy draws more often, so that tokens cost more and draws less.
  const [first, , last] = thirds;
  assert.ok(last.token < 2 * first.token || last.draw < 2 * first.draw, said);
  assert.equal(await page.locator('.prose .code').count(), 120);
});

longTest('a transcript of 1,000 turns opens at its end and stays quick', async (t) => {
  const page = await newPage(t, await newContext(t));
  const turns = Array.from({ length: 1000 }, (_, i) => [
    `Question ${i}?`,
    `Answer **${i}**.\n\n\`\`\`c\nint x = ${i};\n\`\`\`\n\n- a\n- b`,
  ]);
  const fake = await FakeSession.route(page, turns);
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForSelector('.turn[data-turn="999"] .code');
  await settled(page, 100);
  assert.equal(await page.locator('.turn').count(), 100);
  const start = Date.now();
  await page.focus('.older');
  await page.keyboard.press('Enter');
  await settled(page, 200);
  assert.match(await page.textContent('#announcer'), /100 earlier turns loaded/);
  // By scrolling up as well; the reader stays where they were.
  for (let n = 300; n <= 1000; n += 100) {
    await page.evaluate(() => document.querySelector('.scroller').scrollTo(0, 0));
    await settled(page, n);
    await page.waitForFunction(() => document.querySelector('.scroller').scrollTop > 500); // a frame later, perhaps
  }
  t.diagnostic(`900 older turns drawn in ${Date.now() - start} ms`);
  assert.equal(await page.locator('.older:visible').count(), 0);
  assert.deepEqual(
    await page.locator('.turn').evaluateAll((all) => all.map((turn) => Number(turn.dataset.turn))),
    turns.map((_, i) => i),
  );
  await page.focus('#message');
  const spent = await spentBy(page);
  await withinOnce(2000, '25 keys', async () => {
    const before = await spent();
    await page.keyboard.type('quick enough to type here');
    const typing = (await spent()) - before;
    t.diagnostic(`25 keys: ${typing.toFixed(0)} ms of processor time`);
    return typing;
  });
  await fake.begin('One more?');
  fake.delta('Yes.');
  fake.done();
  await settled(page, 1001);
  assert.equal(await page.locator('.turn .prose').last().innerText(), 'Yes.');
});

longTest('an open block beyond 20 kB is shown plain until it closes', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForSelector('.log');
  await fake.begin('say');
  fake.delta('Before.\n\n```c\n');
  for (let i = 0; i < 3000; i += 10) fake.delta(Array.from({ length: 10 }, (_, k) => `int x${i + k};\n`).join(''));
  await page.waitForFunction(() => document.querySelector('.prose .plain')?.textContent.includes('x2999'));
  fake.delta('```\n\nAfter **it**.');
  fake.done();
  await settled(page, 1);
  assert.equal(await page.locator('.prose .plain').count(), 0);
  assert.match(await page.locator('.prose .code code').textContent(), /x2999/);
  assert.equal(await page.locator('.prose strong').innerText(), 'it');
});

longTest('a model that repeats the mark of a list or a quote breaks neither the conversation nor what follows', async (t) => {
  const page = await newPage(t, await newContext(t));
  const marks = ['- ', '1. ', '> ', '>', '> - '];
  const text = (mark) => `${mark.repeat(8000 / mark.length)}end`;
  const fake = await FakeSession.route(page, [...marks.map((mark) => ['say', text(mark)]), ['say', 'and **then**']]);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForFunction(() => document.querySelector('.prose strong')?.textContent === 'then');
  for (const [i, mark] of marks.entries()) {
    await fake.begin('again');
    for (let at = 0; at < text(mark).length; at += 500) fake.delta(text(mark).slice(at, at + 500));
    fake.done();
    await settled(page, marks.length + 2 + i);
    assert.ok((await page.locator('.turn .prose').last().textContent()).trimEnd().endsWith('end'), mark);
  }
  assert.ok((await page.locator('.turn .prose').last().locator('blockquote').count()) > 10, 'a mark is one as long as they are few');
});

longTest('a long prompt shows how far it has been read', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForSelector('.log');
  await fake.begin('A long text');
  await page.waitForSelector('.waiting .dots');
  fake.progress(512, 2048);
  await page.waitForSelector('.waiting:has-text("Processing 512 of 2,048 tokens") progress');
  fake.delta('Read.');
  await page.waitForSelector('.prose:has-text("Read.")');
  assert.equal(await page.locator('.waiting:visible').count(), 0);
  fake.done('length');
  await settled(page, 1);
  assert.match(await page.locator('.facts').innerText(), /^Reached the length limit/);
});

test('events seen before change nothing, a missing one is noticed, held-back text arrives with the end', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForSelector('.log');
  await fake.begin('say');
  fake.delta('One ');
  fake.seq--;
  fake.send({
    type: 'turn.delta',
    session: 'fake',
    seq: ++fake.seq,
    first_seq: fake.seq,
    turn: 0,
    text: 'One ',
    ids: [1],
  });
  fake.delta('two ');
  await page.waitForFunction(() => document.querySelector('.prose')?.textContent.trim() === 'One two');
  fake.turns[0][1] += 'three ';
  fake.seq++; // this one got lost
  assert.equal(fake.reads, 1);
  fake.delta('four ');
  await page.waitForFunction(
    () => document.querySelector('.prose')?.textContent.trim() === 'One two three four',
  );
  assert.equal(fake.reads, 2);
  await fake.begin('again');
  fake.delta('Ends wi');
  fake.done('stop', 'th this');
  await settled(page, 2);
  assert.equal(await page.locator('.prose').last().innerText(), 'Ends with this');
});

longTest('CSS is coloured by the shape of its rules', async (t) => {
  const page = await newPage(t, await newContext(t));
  const rule = '@media (max-width: 9em) {\n  a:hover, #id[href="x"] > .c { --v: #fa0; margin: -1.5em !important; background: url(a.png) }\n}';
  await FakeSession.route(page, [['Style?', '```css\n' + rule + '\n```\n']]);
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForSelector('.hljs-keyword');
  const parts = await page.locator('.code code > span').evaluateAll((all) => all.map((e) => `${e.className.replace(/^hljs-|_$/g, '')} ${e.textContent}`));
  assert.deepEqual(parts, [
    'keyword @media', 'attribute max-width', 'number 9em', 'selector-tag a', 'selector-pseudo :hover', 'selector-id #id', 'selector-attr [href="x"]', 'selector-class .c',
    'attr --v', 'number #fa0', 'attribute margin', 'number -1.5em', 'meta !important', 'attribute background', 'built_in url', 'string a.png',
  ]);
  assert.equal(await page.locator('.code code').textContent(), rule);
});
