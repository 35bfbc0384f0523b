// A server with two models: the empty chat offers them, and the session that begins uses the one that was chosen.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../harness.mjs';
import { run } from '../run.mjs';
import { openPage, say, Server, settled, sharedServer, unhurried } from './browser.mjs';

const shared = await sharedServer();

test('one model: there is nothing to choose', async (t) => {
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
  await page.selectOption('#fresh-model', 'other-model');
  assert.equal(await page.innerText('.header .model'), 'other-model');
  await say(page, 'Hello.');
  await settled(page, 1);
  const client = await server.connect();
  const { sessions } = await client.request({ type: 'session.list' });
  assert.deepEqual(sessions.map(({ model }) => model), ['other-model']);
  await client.close();
});
