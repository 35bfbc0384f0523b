// Presets: made, used by “/” in a new chat and in a session, exported and imported; and a conversation that goes on under
// another system prompt.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, shortTest as test, temporaryFolder } from '../harness.mjs';
import { ask, newContext, openPage, say, sessionOf, settled, sharedServer, soon, turnsOf } from './browser.mjs';

const server = await sharedServer();
const stored = async (id) => {
  const client = await server.connect();
  const { session } = await client.request({ type: 'session.get', session: id });
  await client.close();
  return session;
};
/** What another tab of this browser would have stored. */
const given = (page, presets) => page.evaluate((list) => localStorage.setItem('parley.presets', JSON.stringify(list)), presets);
const slash = async (page, text) => {
  await page.fill('#message', text);
  await page.waitForSelector('#slash:visible');
};

test('a preset is made from the keyboard, and gives a new chat its system prompt and its sampling', async (t) => {
  const page = await openPage(t, server);
  await slash(page, '/');
  assert.deepEqual(await page.locator('#slash .preset-name').allInnerTexts(), ['Presets…']);
  await page.press('#message', 'Enter');
  await page.click('.presets-dialog button:has-text("New preset")');
  await page.click('.presets-dialog button:has-text("Save")');
  await page.waitForSelector('.presets-dialog .form-problem:has-text("a name")');
  await page.fill('#preset-name', 'Brief answers');
  await page.click('.presets-dialog button:has-text("Save")');
  await page.waitForSelector('.presets-dialog .form-problem:has-text("needs a system prompt or a sampling value")');
  await page.fill('#preset-system', 'You are brief.');
  await page.click('.presets-dialog summary');
  await page.fill('#field-temperature', '0');
  await page.fill('#field-max_tokens', '5');
  await page.click('.presets-dialog button:has-text("Save")');
  await soon(async () => assert.equal(await page.locator('.preset .preset-text').innerText(), 'Temperature 0 · Max answer length (tokens) 5 · You are brief.'));
  await page.keyboard.press('Escape');
  await page.reload();
  await page.waitForSelector('.suggestion');
  await slash(page, '/brief');
  assert.equal(await page.getAttribute('#message', 'aria-activedescendant'), 'slash-0');
  await page.press('#message', 'Tab');
  await soon(async () => assert.equal(await page.inputValue('#message'), ''));
  await soon(async () => assert.equal(await page.inputValue('#fresh-system'), 'You are brief.')); // drawn in the next frame
  await ask(page, 'Hello.');
  const session = await stored(sessionOf(page));
  assert.deepEqual([session.system, session.sampling], ['You are brief.', { temperature: 0, max_tokens: 5 }]);
  // What no preset fits is a message.
  await say(page, '/etc/hosts');
  await settled(page, 2);
  assert.deepEqual((await turnsOf(server, session.id)).map(({ input }) => input.content), ['Hello.', '/etc/hosts']);
});

longTest('in a session a preset changes the sampling at once, and the system prompt in a copy that says what it costs', async (t) => {
  const page = await openPage(t, server);
  await given(page, [{ name: 'Cold', sampling: { temperature: 0 } }, { name: 'Pirate', system: 'You are a pirate.' }]);
  const first = await ask(page, 'My name is Zora.');
  const second = await ask(page, 'What is my name?');
  const id = sessionOf(page);
  await slash(page, '/cold');
  await page.press('#message', 'Enter');
  await page.waitForSelector('.toast:has-text("from the next message")');
  assert.deepEqual((await stored(id)).sampling, { temperature: 0 });
  await slash(page, '/');
  assert.deepEqual(await page.locator('#slash .preset-text').allInnerTexts(), ['Temperature 0', 'You are a pirate.', 'Add, change, import, export']);
  await page.press('#message', 'ArrowDown');
  await page.press('#message', 'Enter');
  await soon(async () => assert.equal(await page.inputValue('#continue-system'), 'You are a pirate.'));
  await page.waitForSelector('.continue-dialog [role=status]:has-text("tokens will be computed again")');
  await page.click('.continue-dialog button:has-text("Continue")');
  await page.waitForFunction((before) => !location.hash.includes(before), id);
  await page.waitForFunction(() => document.querySelectorAll('.turn[data-state=done]').length === 2);
  const copy = sessionOf(page);
  assert.equal((await stored(copy)).system, 'You are a pirate.');
  assert.equal((await stored(id)).system, null, 'the one before stays as it was');
  assert.equal((await stored(copy)).title, `${(await stored(id)).title} (2)`, 'the list tells them apart');
  assert.deepEqual((await turnsOf(server, copy)).map(({ input, text, branch }) => [input.content, text.trim(), branch]), [
    ['My name is Zora.', first.trim(), { written: true }],
    ['What is my name?', second.trim(), { written: true }],
  ]);
  assert.match(await page.locator('.facts').last().innerText(), /^Copied/);
  await ask(page, 'And now?');
});

longTest('the library goes through a file; one that is no library says why, in its dialog', async (t) => {
  const folder = temporaryFolder(t);
  const page = await openPage(t, server);
  await given(page, [{ name: 'Cold', sampling: { temperature: 0 } }]);
  await slash(page, '/p');
  await page.press('#message', 'Enter');
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('.presets-dialog button:has-text("Export")')]);
  const file = path.join(folder, 'presets.json');
  await download.saveAs(file);
  assert.deepEqual(JSON.parse(readFileSync(file)).presets, [{ name: 'Cold', sampling: { temperature: 0 } }]);
  const other = await openPage(t, server, { context: await newContext(t) });
  await slash(other, '/');
  await other.press('#message', 'Enter');
  const load = async (name) => {
    const [chooser] = await Promise.all([other.waitForEvent('filechooser'), other.click('.presets-dialog button:has-text("Import")')]);
    await chooser.setFiles(name);
  };
  for (const [text, why] of [['{', 'not JSON'], ['{"format":"parley.session"}', 'no presets'], ['{"format":"parley.presets","presets":[{}]}', 'Preset 1 has no name'], ['{"format":"parley.presets","presets":[{"name":"a","sampling":[1]}]}', 'no object']]) {
    const bad = path.join(folder, 'bad.json');
    writeFileSync(bad, text);
    await load(bad);
    await other.waitForSelector(`.presets-dialog .form-problem:has-text("${why}")`);
  }
  assert.equal(await other.locator('.preset').count(), 0);
  await load(file);
  await other.waitForSelector('.preset:has-text("Cold")');
  await other.click('[aria-label="Delete Cold"]');
  await other.waitForSelector('.preset', { state: 'detached' });
});
