// The page's words: every text has its German, no view shows a text outside of the table, and the page speaks the
// browser's language or the chosen one.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { dateGroup, moment, plural } from '../../../web/src/format.js';
import { translation } from '../../../web/src/text/de.js';
import { ask, connected, fromMenu, newContext, newPage, openPage, sessionOf, settled, sharedServer } from './browser.mjs';

const server = await sharedServer();
const SOURCES = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../../web/src');

/** The strings of a script, each with the code before it; templates have {0}, {1} for their values. */
function stringsOf(source) {
  const found = [];
  let at = 0;
  const skip = (end) => (at = source.indexOf(end, at + 1) < 0 ? source.length : source.indexOf(end, at + 1) + end.length);
  function quoted(quote) {
    const begin = at++;
    let text = '';
    for (let values = 0; source[at] !== quote; at++)
      if (source[at] === '\\') text += { n: '\n', t: '\t' }[source[++at]] ?? source[at];
      else if (quote === '`' && source.startsWith('${', at)) {
        at += 2;
        code('}');
        text += `{${values++}}`;
      } else text += source[at];
    at++;
    found.push({ text, before: source.slice(Math.max(0, begin - 60), begin) });
  }
  function regexp() {
    for (let inClass = false; ; at++) {
      const c = source[at + 1];
      if (c === '\\') at++;
      else if (c === '[') inClass = true;
      else if (c === ']') inClass = false;
      else if (c === '/' && !inClass) break;
    }
    at += 2;
  }
  function code(end) {
    for (let depth = 0; at < source.length; ) {
      const c = source[at];
      if (c === end && !depth) return;
      if (source.startsWith('//', at)) skip('\n');
      else if (source.startsWith('/*', at)) skip('*/');
      else if (`'"\``.includes(c)) quoted(c);
      else if (c === '/' && /(^|[(,=:[!&|?{};>]|return|=>)\s*$/.test(source.slice(Math.max(0, at - 20), at))) regexp();
      else {
        if (c === '{') depth++;
        if (c === '}') depth--;
        at++;
      }
    }
  }
  code('');
  return found;
}

const files = readdirSync(SOURCES, { recursive: true }).map(String).filter((name) => name.endsWith('.js') && !name.startsWith('text'));
const strings = files.flatMap((file) => stringsOf(readFileSync(path.join(SOURCES, file), 'utf8')).map((one) => ({ ...one, file })));
const translated = ({ before }) => /(^|[^\w.])t\($/.test(before);

test('every text has its German, with the same values, and no German is left over', async () => {
  const { hello } = await server.connect();
  const ofServer = hello.sampling_parameters.filter(({ form }) => form).flatMap(({ label, help, zero }) => [label, help, zero].filter(Boolean));
  const wanted = new Set([...strings.filter(translated).map(({ text }) => text), ...ofServer]);
  assert.ok(wanted.size > 500);
  const german = Object.keys(translation.words);
  assert.deepEqual([...wanted].filter((text) => !german.includes(text)), [], 'without German');
  assert.deepEqual(german.filter((text) => !wanted.has(text)), [], 'German of nothing');
  const values = (text) => (text.match(/\{\d\}/g) ?? []).sort();
  for (const [english, words] of Object.entries(translation.words)) assert.deepEqual(values(words), values(english), english);
  const plurals = strings.flatMap(({ text, before }) => (/plural(Word)?\([^;]*, $/.test(before) && !text.includes('_') ? [text] : []));
  assert.deepEqual([...new Set(plurals)].filter((word) => !translation.plurals[word]), [], 'without a German plural');
});

test('each error of the protocol has German words, which keep what only the server says', async () => {
  const document = readFileSync(path.join(SOURCES, '../../ws/PROTOCOL.md'), 'utf8');
  const [, table] = /\| code \| cause \|\n\|---\|---\|\n((?:\|.*\n)+)/.exec(document);
  const codes = [...table.matchAll(/^\| (.*?) \|/gm)].flatMap(([, cell]) => [...cell.matchAll(/`(\w+)`/g)].map(([, code]) => code));
  assert.ok(codes.length > 18, codes.join());
  const german = [...new Set(Object.keys(translation.errors).map((code) => code.replace(' KEY', '')))];
  assert.deepEqual(german.sort(), codes.sort());
  const before = globalThis.document;
  globalThis.document = { documentElement: { lang: 'de' } };
  const { errorText } = await import('../../../web/src/text.js?de');
  globalThis.document = before;
  assert.equal(errorText({ code: 'overloaded', message: 'the queue is full' }), 'Der Server ist ausgelastet.');
  assert.equal(errorText({ code: 'invalid', message: 'top_p must be below 1', key: 'top_p' }), 'Der Wert von top_p ist nicht zulässig (top_p must be below 1).');
  assert.equal(errorText({ code: 'invalid', message: 'no such turn' }), 'Der Server nimmt das nicht an (no such turn).');
  assert.equal(errorText({ code: 'later', message: 'A new one.' }), 'A new one.', 'a code of a later server');
  const { errorText: english } = await import('../../../web/src/text.js');
  assert.equal(english({ code: 'overloaded', message: 'the queue is full' }), 'the queue is full');
});

test('no view shows a text that has no place in the table', () => {
  const names = /^(Enter|Escape|Esc|Tab|Home|End|Shift|Mod|Ctrl|Backspace|Slash|Semicolon|Period|Key[A-Z]|Arrow\w+|Parley|Notification|Content-Type|WebSocket|WebSockets|GET|POST)$/;
  const shown = strings.filter(
    (one) =>
      /^(view\/|main\.js)/.test(one.file) && !translated(one) && !/(plural(Word)?\(.*, |class: |class: .* \? |import .*)$/.test(one.before) &&
      (/^\p{Lu}\p{Ll}+([ ,.:…!?]|$)/u.test(one.text) || /\p{Ll}{2,} \p{Ll}{2,} \p{Ll}{2,}/u.test(one.text)) && !names.test(one.text),
  );
  shown.push(...strings.filter((one) => one.file.startsWith('render/') && !translated(one) && /^\p{Ll}+ $/u.test(one.text))); // before a value
  const forModel = ['File: ', 'This continues an earlier conversation. Its latest messages:', 'User: {0}\n\nAssistant: {1}'];
  assert.deepEqual(shown.filter(({ text }) => !forModel.includes(text)).map(({ file, text }) => `${file}: ${text}`), []);
});

const words = (page) =>
  page.evaluate(() => ({
    language: document.documentElement.lang,
    button: document.querySelector('.new-button')?.textContent,
    field: document.querySelector('#message')?.placeholder,
    group: document.querySelector('.group h3')?.textContent,
  }));

test('a German browser gets a German page, down to its numbers; the choice of a language lasts', async (t) => {
  const context = await newContext(t, { locale: 'de-AT' });
  const page = await openPage(t, server, { context });
  assert.match(await ask(page, 'What is the capital of Norway?'), /Oslo/);
  await page.waitForSelector('.group h3');
  assert.deepEqual(await words(page), { language: 'de', button: 'Neuer Chat', field: 'Nachricht', group: 'Heute' });
  assert.match(await page.locator('.facts').last().innerText(), /^\d+ Tokens · [\d.]+(,\d)? Tokens\/s/);
  assert.match(await page.locator('.item.current a').getAttribute('title'), /\n\d+\. \p{L}{3} \d{4}, \d\d:\d\d/u);
  await page.keyboard.press('Control+Slash');
  assert.match(await page.locator('.shortcut-list').innerText(), /Strg\s*Umschalt\s*Rücktaste/);
  await page.keyboard.press('Escape');
  await page.click('.header [aria-label="Einstellungen"]');
  assert.match(await page.locator('.settings .facts-list').innerText(), /Zustand\s+(ruhend|aktiv)/);
  await page.keyboard.press('Escape');
  assert.match(await page.getAttribute('.header .model', 'title'), /\d\u00a0Mio\. Parameter/);
  await fromMenu(page, 'inspect');
  assert.match(await page.locator('.inspector .legend').innerText(), /über 90\u00a0%/);
  assert.match(await page.locator('.token-detail').innerText(), /\d,\d+\u00a0%|100\u00a0%/);
  assert.match(await page.locator('.token-detail').innerText(), /-\d+,\d|e-/);
  await page.click('#tab-run');
  assert.match(await page.locator('.inspector .panel').innerText(), /, Endtoken/);
  await page.keyboard.press('Escape');
  const id = sessionOf(page);
  await page.click('.header [aria-label="Einstellungen"]');
  await page.click('#tab-page');
  assert.equal(await page.inputValue('#language'), 'auto');
  await page.selectOption('#language', 'en');
  await page.waitForNow(() => document.documentElement.lang === 'en');
  await connected(page);
  await settled(page, 1);
  assert.deepEqual(await words(page), { language: 'en', button: 'New chat', field: 'Message', group: 'Today' });
  const other = await newPage(t, context);
  await other.goto(`${server.url}/#s=${id}`);
  await connected(other);
  assert.equal((await words(other)).language, 'en');
  await other.click('.header [aria-label="Settings"]');
  await other.click('#tab-page');
  await other.selectOption('#language', 'auto');
  await other.waitForNow(() => document.documentElement.lang === 'de');
});

test('a browser of neither language gets English, and no German file', async (t) => {
  const page = await newPage(t, await newContext(t, { locale: 'fr-FR' }));
  const paths = [];
  page.on('response', (response) => paths.push(new URL(response.url()).pathname));
  await page.goto(server.url);
  await connected(page);
  const { group: _, ...shown } = await words(page);
  assert.deepEqual(shown, { language: 'en', button: 'New chat', field: 'Message' });
  assert.deepEqual(paths.filter((one) => one.startsWith('/de-')), []);
  const at = Date.UTC(2026, 10, 27, 12);
  assert.deepEqual([plural(1, 'token'), plural(12345, 'token'), dateGroup(at, at), moment(at).slice(0, 12)], ['1 token', '12,345 tokens', 'Today', 'Nov 27, 2026']);
});
