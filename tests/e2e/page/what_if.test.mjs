// What if: a turn and those behind it with other values, beside the record.
import assert from 'node:assert/strict';
import { fromMenu, openPage, prepareSession, sessionOf, settled, sharedServer, soon, turnsOf } from './browser.mjs';
import { longTest, Server, shortTest as test, temporaryFolder, unlimited, until } from '../harness.mjs';
import { writeAdapter } from '../safetensors.mjs';
import { wordDiff } from '../../../web/src/word_diff.js';

const server = await sharedServer();
const VARIED = { temperature: 1.5, top_p: 1, max_tokens: 24, ignore_eos: true };

/** A session with three turns and the panel of its second one. */
async function panel(t, fields = {}, on = server) {
  const { client, id } = await prepareSession(t, on, { sampling: VARIED, title: 'The source', ...fields });
  for (const text of ['My name is Zora.', 'Tell me about foxes.', 'And owls?']) await client.turn(id, text);
  const page = await openPage(t, on, { hash: `#s=${id}` });
  await settled(page, 3);
  await page.hover('.turn[data-turn="1"] .assistant');
  await fromMenu(page, 'inspect', -1, '.turn[data-turn="1"]');
  await page.click('#tab-what-if');
  const run = async () => {
    await page.click('.what-if-run button');
    await page.waitForSelector('.replay-runs:has-text("Done")');
  };
  const sides = (n) => page.locator('.what-if-pair').nth(n).locator('.compared').allTextContents();
  return { client, id, page, run, sides };
}
const sessions = async (client) => (await client.request({ type: 'session.list', query: 'what if' })).sessions;

test('the recorded values give the recorded answers, other values give others with the differences marked', async (t) => {
  const { client, id, page, run, sides } = await panel(t);
  const [, second, third] = await turnsOf(server, id);
  assert.equal(await page.getAttribute('#field-temperature', 'placeholder'), '1.5');
  assert.equal(await page.getAttribute('#field-seed', 'placeholder'), second.seed);
  assert.equal(await page.locator('.inspector .field-reset:visible').count(), 0, 'nothing to reset');
  await page.click('.what-if-run button');
  await page.waitForSelector('.form-problem:has-text("Change at least one value")');
  // The same value as on record: the same draws.
  await page.fill('#field-temperature', '1.5');
  await soon(async () => assert.equal(await page.locator('.inspector .field-reset:visible').count(), 1));
  await run();
  assert.equal(await page.locator('.what-if-pair').count(), 2, 'this turn and the one after it');
  assert.deepEqual(await sides(0), [second.text, second.text]);
  assert.deepEqual(await sides(1), [third.text, third.text]);
  assert.equal(await page.locator('.what-if-pair :is(del, ins)').count(), 0);
  assert.equal(await page.locator('.what-if-pair:has-text("The same answer.")').count(), 2);
  // Every parameter can be changed; one that is folded away is shown where it is wrong.
  await page.fill('#field-temperature', '');
  await page.click('.inspector .more-fields summary');
  await page.fill('#field-top_k', '-3');
  await page.click('.inspector .more-fields summary');
  await page.click('.what-if-run button');
  await page.waitForSelector('.form-problem:has-text("At least 0")');
  await page.fill('#field-top_k', '1');
  await run();
  assert.equal((await sessions(client))[0].title, 'What if: top_k 1');
  await page.fill('#field-top_k', '');
  await page.fill('#field-temperature', '9');
  await run();
  const [before, now] = await sides(0);
  assert.equal(before, second.text);
  assert.notEqual(now, second.text);
  assert.ok((await page.locator('.what-if-pair').first().locator('ins').count()) > 0);
  // The copy stays out of the list, and is deleted with the window. The source has not changed.
  assert.equal(await page.locator('.item-title:text-matches("^What if")').count(), 0);
  assert.equal((await sessions(client)).length, 1);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => ![...document.querySelectorAll('.item-title')].some((e) => e.textContent.startsWith('What if')));
  await until('its end on the server', async () => (await sessions(client)).length === 0);
  assert.equal(sessionOf(page), id);
  assert.deepEqual((await turnsOf(server, id)).map((turn) => turn.text)[1], second.text);
});

longTest('another system prompt runs the whole conversation; the copy can be kept', async (t) => {
  const { client, id, page, run } = await panel(t);
  await page.fill('#what-if-system', 'You are a pirate.');
  await run();
  assert.equal(await page.locator('.what-if-pair').count(), 3);
  await page.click('.what-if-result button:has-text("Keep as a chat")');
  await settled(page, 3);
  assert.notEqual(sessionOf(page), id);
  await page.waitForSelector('.item-title:text-matches("^What if")');
  const { session } = await client.request({ type: 'session.get', session: sessionOf(page) });
  assert.deepEqual([session.title, session.system], ['What if: system prompt', 'You are a pirate.']);
  assert.deepEqual(
    (await turnsOf(server, sessionOf(page))).map((turn) => [turn.input.content, turn.seed]),
    (await turnsOf(server, id)).map((turn) => [turn.input.content, turn.seed]),
  );
});

longTest('a session with a prompt task: the details name it, and another system prompt runs with the same table', async (t) => {
  const task = writeAdapter(temporaryFolder(t), 'jokes', [1, 2, 3].map((row) => Array.from({ length: 384 }, (_, i) => Math.sin(row * i) / 50)));
  const own = await Server.start(t, { args: [...unlimited, '--prompt-tasks', task] });
  const { client, id, page, run } = await panel(t, { prompt_task: 'jokes' }, own);
  await page.fill('#what-if-system', 'You are a pirate.');
  await run();
  await page.click('.what-if-result button:has-text("Keep as a chat")');
  await settled(page, 3);
  const prompts = [];
  for (const session of [id, sessionOf(page)]) prompts.push((await client.request({ type: 'session.get', session })).session.prompt);
  assert.equal(prompts[0].task, 'jokes');
  assert.deepEqual(prompts[1], prompts[0]);
  await page.click('.header [aria-label^="Settings"]');
  await soon(async () => assert.match(await page.locator('.settings .facts-list').innerText(), /Prompt task\s+jokes, 3 virtual tokens/));
});

longTest('Stop ends it where it is', async (t) => {
  const { page } = await panel(t, { sampling: { ...VARIED, max_tokens: 900 } });
  await page.fill('#field-temperature', '1');
  await page.click('.what-if-run button');
  await page.waitForFunction(() => document.querySelectorAll('.what-if-pair').length === 1);
  await page.click('.what-if-result button:has-text("Stop")');
  await page.waitForSelector('.replay-runs:has-text("Stopped.")');
  assert.equal(await page.isEnabled('.what-if-run button'), true);
});

test('the difference of two texts by words', () => {
  const marked = (one, other) =>
    wordDiff(one, other).map((pieces) => pieces.map(({ text, same }) => (same ? text : `[${text}]`)).join(''));
  assert.deepEqual(marked('a b c', 'a b c'), ['a b c', 'a b c']);
  assert.deepEqual(marked('the red fox sleeps', 'the old grey fox sleeps'), ['the [red] fox sleeps', 'the [old grey] fox sleeps']);
  assert.deepEqual(marked('', 'new'), ['', '[new]']);
  assert.deepEqual(marked('one two', ''), ['[one two]', '']);
  const long = Array.from({ length: 4000 }, (_, i) => `w${i}`).join(' ');
  const [left, right] = wordDiff(`a ${long} z`, `a ${long.replaceAll('w', 'v')} z`);
  assert.deepEqual([left[0].text.trim(), left.at(-1).text.trim(), right.length], ['a', 'z', 3], 'too long for a table: the ends alone');
  for (const [one, other] of [['a  b\nc', 'a b\n\nc'], [long, 'w1']])
    assert.deepEqual(wordDiff(one, other).map((pieces) => pieces.map(({ text }) => text).join('')), [one, other]);
});
