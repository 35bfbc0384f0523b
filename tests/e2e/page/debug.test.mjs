// The details of an answer: its tokens, input and run, a replay of the turn, the session's events.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, fromMenu, newContext, newPage, openPage, prepareSession, sessionOf, settled, sharedServer, soon } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();

const lookInto = async (page) => {
  await fromMenu(page, 'inspect');
  await page.waitForSelector('.inspector .tokens');
};
/** The facts of a list, by their names. */
const facts = (page, list) =>
  page.locator(list).evaluateAll((lists) =>
    Object.fromEntries(
      lists.flatMap((all) => [...all.querySelectorAll('dt')].map((dt) => [dt.innerText, dt.nextElementSibling.innerText])),
    ),
  );
const recordOf = async (id, turn) => {
  const client = await server.connect();
  const record = await client.request({ type: 'turn.get', session: id, turn });
  await client.close();
  assert.equal(record.type, 'turn.state', JSON.stringify(record));
  return record;
};

test('tokens are shaded by their probability, and walked through with their alternatives', async (t) => {
  const { id } = await prepareSession(t, server, {
    sampling: { temperature: 1.2, top_p: 1, top_logprobs: 4, logprobs: true, max_tokens: 40 },
  });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await ask(page, 'Tell me a story about a fox.');
  await lookInto(page);
  const record = await recordOf(id, 0);
  const tokens = page.locator('.token');
  assert.equal(await tokens.count(), record.tokens.length);
  const bounds = [0.9, 0.7, 0.5, 0.3, 0.1, 0.01];
  assert.deepEqual(
    await tokens.evaluateAll((all) => all.map((token) => Number(/doubt-(\d)/.exec(token.className)[1]))),
    record.tokens.map(({ logprob }) => {
      const at = bounds.findIndex((least) => Math.exp(logprob) >= least);
      return at < 0 ? bounds.length : at;
    }),
  );
  assert.ok((await tokens.evaluateAll((all) => new Set(all.map((token) => getComputedStyle(token).backgroundColor)).size)) > 2);

  await tokens.first().click();
  for (const key of ['ArrowRight', 'ArrowRight', 'ArrowLeft']) await page.keyboard.press(key);
  await soon(async () => assert.equal(await page.evaluate(() => document.activeElement.dataset.index), '1'));
  const shown = await facts(page, '.token-detail .facts-list');
  assert.equal(shown.Token, `2 of ${record.tokens.length}`);
  assert.equal(shown.Id, String(record.tokens[1].id));
  assert.equal(shown.Position, String(record.log_first + record.input_ids.length + 1));
  assert.equal(Number(shown['Log-prob.']), Number(record.tokens[1].logprob.toPrecision(9)));
  assert.equal(await page.locator('.alternative').count(), 4);
  assert.equal(
    await page.evaluate(() => document.activeElement.getAttribute('aria-describedby')),
    await page.locator('.token-detail').getAttribute('id'),
  );
  await page.keyboard.press('End');
  await soon(async () => assert.equal(await page.evaluate(() => document.activeElement.dataset.index), String(record.tokens.length - 1)));
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowDown');
  const lines = await tokens.evaluateAll((all) => new Set(all.map((token) => token.offsetTop)).size);
  if (lines > 1) assert.notEqual(await page.evaluate(() => document.activeElement.dataset.index), '0');
  await tokens.nth(3).hover();
  assert.equal((await facts(page, '.token-detail .facts-list')).Token, `4 of ${record.tokens.length}`);
  await page.click('.inspector-body .link-button');
  const least = record.tokens.reduce((a, b, i) => (b.logprob < record.tokens[a].logprob ? i : a), 0);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.index), String(least));
  await page.keyboard.press('Escape');
  await page.waitForSelector('.inspector', { state: 'detached' });
  assert.equal(await page.evaluate(() => document.activeElement.dataset.action), 'more', 'the focus comes back');
});

test('input, times, memory, parameters and events are those on record', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: { temperature: 0.5 } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await ask(page, 'My name is Zora.');
  await ask(page, 'What is my name?');
  const record = await recordOf(id, 1);
  await lookInto(page);
  assert.match(await page.locator('.token-detail').innerText(), /not recorded[^]*Find alternatives/);

  await page.click('#tab-input');
  assert.deepEqual(
    await page.locator('.token').evaluateAll((all) => all.map((token) => token.textContent.replaceAll('↵\n', '\n'))),
    record.input_ids.map((tokenId, i) => record.input_tokens[i] || `⟨${tokenId}⟩`),
  );

  await page.click('#tab-run');
  const pieces = await page
    .locator('.timing-bar span')
    .evaluateAll((all) => all.map((piece) => [piece.className, piece.getBoundingClientRect().width]));
  assert.deepEqual(
    pieces.map(([name]) => name),
    ['timing-queue', 'timing-prefill', 'timing-decode'],
  );
  const { queue_ms, prefill_ms, decode_ms } = record.turn.timings;
  const share = prefill_ms / (queue_ms + prefill_ms + decode_ms);
  const widths = pieces.map(([, width]) => width);
  assert.ok(Math.abs(widths[1] / widths.reduce((a, b) => a + b) - share) < 0.05, `${widths} for ${share}`);
  const run = await facts(page, '.panel .facts-list');
  assert.equal(run.seed, record.turn.seed);
  assert.equal(run.Cache, 'Still in memory from the previous turn');
  assert.equal(run['Tokens from the cache'], String(record.turn.cache.kept_tokens));
  assert.equal(run['Tokens computed'], String(record.turn.cache.computed_tokens));
  assert.equal(run.Build, record.build);
  assert.equal(run.Instance, record.instance);
  assert.match(run.temperature, /^0.5/);

  const client = await server.connect();
  const copy = await client.ask({ type: 'session.fork', session: id, turn: 0, title: 'Elsewhere' });
  await page.click('#tab-events');
  await page.waitForSelector('.events tbody tr');
  const { events } = await client.request({ type: 'session.events', session: id });
  await client.close();
  assert.deepEqual(
    await page.locator('.events tbody tr td:first-child').allInnerTexts(),
    [...events.map(({ seq }) => String(seq)), ''],
  );
  const copied = page.locator('.events tbody tr').last(); // an event of the copy, shown where it was made
  assert.match(await copied.innerText(), /Chat copied\s+0\s+into Elsewhere/);
  assert.equal(await copied.locator('a').getAttribute('href'), `#s=${copy.session.id}`);
  assert.equal(
    await page.locator('.events .of-turn').count(),
    events.filter(({ turn }) => turn === 1).length,
  );
});

test('alternatives that were not recorded are found from where they are missed', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'Write hello world in C.');
  await lookInto(page);
  await page.locator('.token').nth(3).click();
  await page.focus('.token-detail button:has-text("Find alternatives")');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelectorAll('.alternative').length === 5);
  await soon(async () => assert.equal(await page.evaluate(() => document.activeElement.dataset.index), '3', 'the focus is on the token'));
  assert.match(await page.locator('.token-detail').innerText(), /4 of/, 'of the token that was chosen');
});

test('the recorded conversation is played back, and gone through token by token', async (t) => {
  const { id } = await prepareSession(t, server, { sampling: { temperature: 0, max_tokens: 12 } });
  const page = await openPage(t, server, { hash: `#s=${id}` });
  for (const text of ['My name is Zora.', 'What is my name?']) await ask(page, text);
  const records = [await recordOf(id, 0), await recordOf(id, 1)];
  await lookInto(page);
  await page.click('#tab-playback');
  const scene = () => page.locator('.playback-scene').evaluate((one) => [one.querySelector('.bubble-text')?.textContent, [...one.querySelectorAll('.tokens .token')].map((token) => token.textContent.replaceAll('↵\n', '\n')).join('')]);
  const textOf = (i, n) => records[i].tokens.slice(0, n).map((token) => token.text || `⟨${token.id}⟩`).join('');
  await soon(async () => assert.deepEqual(await scene(), ['What is my name?', '']));
  await page.focus('#playback');
  for (const [key, turn, n] of [['ArrowRight', 1, 1], ['ArrowRight', 1, 2], ['Home', 0, 0], ['ArrowRight', 0, 1], ['End', 1, records[1].tokens.length]]) {
    await page.keyboard.press(key);
    await soon(async () => assert.deepEqual(await scene(), [records[turn].turn.input.content, textOf(turn, n)]));
  }
  assert.equal(await page.getAttribute('#playback', 'aria-valuetext'), `Turn 2 of 2, token ${records[1].tokens.length}`);
  await page.click('.playback button:text-is("Previous turn")');
  await soon(async () => assert.deepEqual(await scene(), ['What is my name?', '']));
  await page.click('.playback button:text-is("Play")');
  await page.waitForSelector('.playback button:text-is("Play")'); // it has come to the end
  await soon(async () => assert.deepEqual(await scene(), ['What is my name?', textOf(1, records[1].tokens.length)]));
});

test('a replay is equal to the last bit, and tells the alternatives that were not recorded', async (t) => {
  const page = await openPage(t, server);
  await ask(page, 'My name is Zora.');
  await ask(page, 'Write hello world in C.');
  const record = await recordOf(sessionOf(page), 1);
  await lookInto(page);
  await page.click('#tab-replay');
  await page.click('.panel .button.primary');
  await page.waitForSelector('.verdict.equal');
  assert.match(
    await page.locator('.verdict').innerText(),
    new RegExp(`^Equal to the last bit\\. ${record.tokens.length} tokens compared`),
  );
  await page.click('#tab-answer');
  await soon(async () => assert.equal(await page.locator('.alternative').count(), 5));
  await page.click('#tab-replay');
  await soon(async () => assert.equal(await page.locator('.verdict.equal').count(), 1, 'what was found is kept'));
  await page.keyboard.press('Escape');
  await lookInto(page);
  await page.click('#tab-replay');
  await soon(async () => assert.equal(await page.locator('.verdict.equal').count(), 1));
});

test('a replay that takes too long is cancelled, and can be begun again', async (t) => {
  const { client, id } = await prepareSession(t, server, { sampling: { ignore_eos: true, temperature: 1, max_tokens: 3500 } });
  await client.turn(id, 'Tell me a story about a whale.');
  const page = await openPage(t, server, { hash: `#s=${id}` });
  await settled(page, 1);
  await lookInto(page);
  await page.click('#tab-replay');
  await page.click('.panel .button.primary');
  await page.click('.replay-runs button');
  await page.waitForFunction(() => /cancelled/.test(document.querySelector('.replay-result').textContent));
  assert.equal(await page.locator('.replay-result .form-problem').count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Replay this turn');
  await page.click('.panel .button.primary'); // the server has let go of it
  await page.waitForSelector('.replay-runs');
  await page.click('.replay-runs button');
  await page.waitForFunction(() => /cancelled/.test(document.querySelector('.replay-result').textContent));
});

// The server on one machine replays what it recorded bit for bit: where they part is written by the test.
test('a replay that differs shows where, with what both sides had in mind', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page, [['Say it', 'the old fox sleeps']]);
  const token = (id, text, p) => ({ id, text, logprob: Math.log(p) });
  const recorded = [token(1, 'the', 0.9), token(2, ' old', 0.6), token(3, ' fox', 0.55), token(4, ' sleeps', 0.8)];
  recorded[2].top = [token(3, ' fox', 0.55), token(98, ' cat', 0.31)]; // it had asked for alternatives
  const replayed = [...recorded.slice(0, 2), token(7, ' dog', 0.56), token(8, ' runs', 0.4)].map((one) => ({
    ...one,
    top: [one, token(99, ' x', 0.01)],
  }));
  fake.recorded = {
    keys: {
      request: { sampling: null },
      build: 'then',
      instance: 'cpu',
      started_ms: 1,
      ended_ms: 2,
      log_first: 10,
      input_ids: [5, 6],
      input_tokens: ['Say', ' it'],
      tokens: recorded,
    },
    events: [
      { seq: 1, kind: 'opened', forked_from: { session: 'parent', turn: 3 }, at_ms: 1 },
      { seq: 5, kind: 'evicted', reason: 'idle', at_ms: 2 },
      { seq: 9, kind: 'done', turn: 0, cache: { source: 'recomputed', resume_ms: 12, refused: 'build' }, at_ms: 3 },
    ],
  };
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  await lookInto(page);
  await page.click('#tab-replay');
  await page.click('.panel .button.primary');
  await page.waitForSelector('.replay-runs');
  await page.click('#tab-events');
  await page.waitForSelector('.events tbody tr');
  assert.deepEqual(await page.locator('.events tbody tr td:last-child').allInnerTexts(),
    ['copied from parent up to turn 3', 'idle', 'cache recomputed in 12 ms; the snapshot was not used: build']);
  await page.click('#tab-replay');
  await page.waitForSelector('.replay-runs'); // it still runs
  fake.replay({
    equal: false,
    compared_tokens: 2,
    logprobs_differ: 1,
    cut_short: false,
    ended_alike: false,
    finish_reason: { recorded: 'eos', replayed: 'length' },
    tokens: replayed,
    divergence: {
      kind: 'logprob',
      position: 13,
      index: 1,
      recorded: { ...recorded[1], logprob_now: Math.log(0.59) },
      replayed: replayed[1],
    },
    other_token: {
      kind: 'token',
      position: 14,
      index: 2,
      recorded: { ...recorded[2], logprob_now: Math.log(0.4) },
      replayed: replayed[2],
    },
    differs: [
      { what: 'build', recorded: 'then', now: 'now' },
      { what: 'instance', recorded: 'cpu', now: 'cpu, products of bf16' },
    ],
  });
  await page.waitForSelector('.verdict.differs');
  const verdict = await page.locator('.verdict').innerText();
  assert.match(verdict, /log-probabilities differ at token 2\. 2 tokens compared, one log-probability differs/);
  assert.match(verdict, /end token recorded, length limit now/);
  assert.deepEqual(await page.locator('.differs tbody tr').allInnerTexts(), ['build\tthen\tnow', 'instance\tcpu\tcpu, products of bf16']);
  // The page says how to compute it as recorded.
  assert.match(await page.locator('.replay-result').innerText(), /parley replay fake --turn 0/);
  const sides = await page.locator('.sides').last().innerText();
  assert.match(sides, /␣fox 55\.0%[^]*gives it 40\.0%[^]*␣cat[^]*␣dog 56\.0%/);
  assert.deepEqual(
    await page
      .locator('.both .tokens')
      .evaluateAll((all) => all.map((list) => list.querySelector('.diverges').textContent)),
    [' fox', ' dog'],
  );
});

test('the time in which other owners had its place has a part of its own', async (t) => {
  const page = await newPage(t, await newContext(t));
  const timings = { queue_ms: 1, prefill_ms: 2, first_token_ms: 3, decode_ms: 5, paused_ms: 12, tokens_per_second: 1000 };
  const fake = await FakeSession.route(page, [['Say it', 'yes']]);
  fake.recorded = {
    keys: { request: {}, build: '', instance: '', log_first: 0, input_ids: [], input_tokens: [], tokens: [{ id: 1, text: 'yes', logprob: -1 }] },
    turn: { timings },
    events: [],
  };
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  await lookInto(page);
  await page.click('#tab-run');
  await soon(async () => assert.match(await page.getAttribute('.timing-bar', 'aria-label'), /^20.* ms: queue 1.* ms, prompt 2.*, generation 5.*, paused for other owners 12.* ms$/));
  const widths = await page.locator('.timing-bar span').evaluateAll((all) => all.map((piece) => piece.getBoundingClientRect().width));
  assert.ok(Math.abs(widths[3] / widths.reduce((a, b) => a + b) - 12 / 20) < 0.05, String(widths));
});

test('an error of the replay, or of the record, is said where it was asked for', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page, [['Say it', 'no']]);
  fake.recorded = {
    keys: { request: {}, build: '', instance: '', log_first: 0, input_ids: [], input_tokens: [], tokens: [{ id: 1, text: 'no', logprob: -1 }] },
    events: [],
  };
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 1);
  await lookInto(page);
  await page.click('#tab-replay');
  await page.click('.panel .button.primary');
  await page.waitForSelector('.replay-runs');
  fake.replay({ type: 'error', code: 'internal', message: 'The engine failed.' });
  await page.waitForSelector('.replay-result .form-problem');
  assert.match(await page.locator('.replay-result').innerText(), /The engine failed/);
  assert.equal(await page.isEnabled('.panel .button.primary'), true);
});

test('it fits a narrow screen', async (t) => {
  const context = await newContext(t, { viewport: { width: 360, height: 640 }, hasTouch: true, isMobile: true });
  const page = await openPage(t, server, { context });
  await page.fill('#message', 'Write hello world in C.');
  await page.tap('.send');
  await settled(page, 1);
  await page.locator('[data-action=regenerate]').tap(); // with two answers it has all tabs
  await page.waitForSelector('.versions');
  await settled(page, 1);
  await fromMenu(page, 'inspect');
  await page.waitForSelector('.inspector .tokens');
  await page.locator('.token').nth(5).tap();
  await soon(async () => assert.match(await page.locator('.token-detail').innerText(), /6 of/));
  for (const tab of ['input', 'run', 'replay', 'what-if', 'compare', 'events', 'answer']) {
    await page.tap(`#tab-${tab}`);
    const { left, right } = await page.$eval(`#tab-${tab}`, (button) => button.getBoundingClientRect().toJSON());
    assert.ok(left >= 0 && right < 361, `the tab ${tab} is from ${left} to ${right}`);
    if (tab === 'events') await page.waitForSelector('.events tbody tr');
    assert.deepEqual(
      await page.evaluate(() => {
        const panel = document.querySelector('.inspector .panel');
        return [panel.scrollWidth <= panel.clientWidth, document.documentElement.scrollWidth <= 360];
      }),
      [true, true],
      tab,
    );
  }
});
