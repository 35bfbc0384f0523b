// A server with two models: the empty chat offers them, and the session that begins uses the one that was chosen.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, shortTest as test, temporaryFolder } from '../harness.mjs';
import { run } from '../run.mjs';
import { writeAdapter } from '../safetensors.mjs';
import { newContext, openPage, say, Server, sessionOf, settled, sharedServer, unhurried, until } from './browser.mjs';

const shared = await sharedServer();

longTest('one model: there is nothing to choose', async (t) => {
  const page = await openPage(t, shared);
  await page.waitForSelector('.suggestion');
  assert.equal(await page.isVisible('#fresh-model'), false);
});

test('two models: the empty chat has a list; the header and the session show the choice', async (t) => {
  const folder = temporaryFolder(t);
  const other = path.join(folder, 'other-model');
  const { code, stderr } = await run(['synth', '--like', 'demo', '--tokenizer-from', 'configs/demo-model', '--out', other]);
  assert.equal(code, 0, stderr);
  const config = path.join(folder, 'parley.ini');
  writeFileSync(config, `[instance first]\n[instance second]\nmodel = ${other}\nmax_tokens = 8\n`);
  const server = await Server.start(t, { args: ['--config', config, ...unhurried] });
  const page = await openPage(t, server);
  await page.waitForSelector('#fresh-model');
  assert.deepEqual(await page.locator('#fresh-model option').allInnerTexts(), ['demo-model', 'other-model']);
  assert.equal(await page.inputValue('#fresh-model'), 'demo-model');
  // What is suggested comes from the folder of the model that was chosen; this one has no such file.
  assert.equal(await page.locator('.suggestion').count(), 6);
  await page.selectOption('#fresh-model', 'other-model');
  await page.waitForSelector('.header .model:has-text("other-model")');
  await page.waitForSelector('.suggestion', { state: 'detached' });
  assert.ok(await page.isVisible('.empty h2'));
  await page.selectOption('#fresh-model', 'demo-model');
  await page.waitForSelector('.suggestion');
  await page.selectOption('#fresh-model', 'other-model');
  await say(page, 'Hello.');
  await settled(page, 1);
  const client = await server.connect();
  const { sessions } = await client.request({ type: 'session.list' });
  assert.deepEqual(sessions.map(({ model }) => model), ['other-model']);
  await client.close();
  // The conversation goes on with the other model, in a copy.
  const answer = (await page.locator('.turn .prose').innerText()).trim();
  await page.click('.header .model');
  await page.selectOption('#continue-model', 'demo-model');
  await page.waitForSelector('.continue-dialog [role=status]:has-text("computed again")');
  await page.click('.continue-dialog button[type=submit]');
  await page.waitForSelector('.header .model:has-text("demo-model")');
  await settled(page, 1);
  assert.equal((await page.locator('.turn .prose').innerText()).trim(), answer);
  await say(page, 'And now?');
  await settled(page, 2);
  const again = await server.connect();
  const list = (await again.request({ type: 'session.list' })).sessions;
  assert.deepEqual(list.map(({ model, n_turns }) => [model, n_turns]).sort(), [['demo-model', 2], ['other-model', 1]]);
  // The choice holds for the next session too, also after a reload.
  const mark = () => page.locator('.header .model').evaluate((button) => getComputedStyle(button, '::after').content);
  await page.click('.new-button');
  await page.waitForSelector('.header .model:has-text("other-model")');
  assert.notEqual(await mark(), 'none', 'a choice looks like one');
  assert.equal(await page.inputValue('#fresh-model'), 'other-model');
  await page.reload();
  await page.waitForSelector('.header .model:has-text("other-model")');
  await page.click('.new-button');
  await say(page, 'Once more.');
  await settled(page, 1);
  assert.equal((await again.request({ type: 'session.get', session: sessionOf(page) })).session.model, 'other-model');
  await again.close();
});

longTest('a model with tasks of prompt learning offers them to the session that begins', async (t) => {
  const tables = temporaryFolder(t);
  writeAdapter(tables, 'support', [1, 2].map((row) => Array.from({ length: 384 }, (_, i) => Math.sin(row * i) / 100)));
  const server = await Server.start(t, { args: ['--prompt-tasks', tables, '--max-tokens', '8', ...unhurried] });
  const page = await openPage(t, server);
  await page.waitForSelector('#fresh-task');
  assert.equal(await page.isVisible('#fresh-model'), false);
  assert.deepEqual(await page.locator('#fresh-task option').allInnerTexts(), ['None', 'support']);
  for (const [task, wanted] of [['support', 'support'], ['', undefined]]) {
    await page.selectOption('#fresh-task', task);
    await say(page, 'Hello.');
    await settled(page, 1);
    const client = await server.connect();
    const state = await client.request({ type: 'session.get', session: sessionOf(page) });
    assert.equal(state.session.prompt?.task, wanted);
    await client.close();
    await page.click('.new-button');
    await page.waitForSelector('#fresh-task');
  }
});

longTest('a model that is loaded while the page is open is offered, and one that is unloaded is not', async (t) => {
  const folder = temporaryFolder(t);
  const other = path.join(folder, 'other-model');
  const cli = async (...args) => {
    const { code, stderr } = await run(args);
    assert.equal(code, 0, stderr);
  };
  await cli('synth', '--like', 'demo', '--tokenizer-from', 'configs/demo-model', '--out', other);
  const server = await Server.start(t, { args: unhurried });
  const context = await newContext(t);
  await context.addInitScript(() => {
    const plain = window.setInterval;
    window.setInterval = (run, ms, ...rest) => plain(run, ms === 30000 ? 300 : ms, ...rest); // the look while nobody touches it
  });
  const page = await openPage(t, server, { context });
  await page.waitForSelector('.suggestion');
  assert.equal(await page.isVisible('#fresh-model'), false);
  const offered = (wanted) =>
    until(wanted.join(), async () => {
      await page.mouse.move(100, 300); // over another element: the list
      await page.mouse.move(700, 500); // the reader is there
      return (await page.locator('#fresh-model option').allInnerTexts()).join() === wanted.join();
    });
  await offered(['demo-model']);
  await cli('instances', 'load', 'second', '--model', other, '--db', server.db);
  await offered(['demo-model', 'other-model']);
  await page.selectOption('#fresh-model', 'other-model');
  await cli('instances', 'unload', 'second', '--last', '--db', server.db);
  // It goes from the list though the pointer rests.
  await page.waitForFunction(() => [...document.querySelectorAll('#fresh-model option')].map((option) => option.textContent).join() === 'demo-model');
  assert.equal(await page.inputValue('#fresh-model'), 'demo-model');
});
