// What a model writes for itself and for tools: collapsed blocks beside its prose, however the text arrives.
import assert from 'node:assert/strict';
import { AnswerParts, proseOf } from '../../../web/src/render/answer_parts.js';
import { longTest, shortTest as test } from '../harness.mjs';
import { newContext, newPage, settled, sharedServer } from './browser.mjs';
import { FakeSession } from './fake_session.mjs';

const server = await sharedServer();

/** The parts of a text that comes in these pieces, as [kind, text, ended]. inThought: the prompt opened the thinking. */
function partsOf(pieces, inThought = false) {
  const parts = [];
  const splitter = new AnswerParts({
    begin: (kind) => parts.push([kind, '', false]),
    add: (text) => (parts.at(-1)[1] += text),
    end: () => (parts.at(-1)[2] = true),
    wasThinking() {
      const prose = parts.pop();
      parts.push(['think', prose?.[1] ?? '', false]);
    },
  });
  splitter.inThought = inThought;
  pieces.forEach((piece, i) => splitter.push(piece, i === pieces.length - 1));
  return parts;
}

const THOUGHT = '<think>\nTwo and two.\n</think>\n\nIt is **four**.';
const CALL = '{"name": "weather", "arguments": {"city": "Oslo"}}';
const TEXTS = [
  ['prose alone', 'Less < more.\n\n<b>x</b> </ think>', [['prose', 'Less < more.\n\n<b>x</b> </ think>', false]]],
  ['thinking, then prose', THOUGHT, [['think', '\nTwo and two.\n', true], ['prose', 'It is **four**.', false]]],
  ['thinking that the prompt began', 'Hm.\nWell.</think>Yes.', [['think', 'Hm.\nWell.', true], ['prose', 'Yes.', false]]],
  ['cut off in its thinking', '<think>On and', [['think', 'On and', false]]],
  ['a call behind prose, and another one', `Let me see.\n<tool_call>\n${CALL}\n</tool_call>\n<tool_call>${CALL}</tool_call>`,
    [['prose', 'Let me see.\n', true], ['call', `\n${CALL}\n`, true], ['call', CALL, true]]],
  ['marks in code, in a line and quoted are text', 'Models write `<think>` and\n```\n<tool_call>\n</think>\n```\nor <tool_call> so. `</think>`',
    [['prose', 'Models write `<think>` and\n```\n<tool_call>\n</think>\n```\nor <tool_call> so. `</think>`', false]]],
  ['empty thinking', '<think>\n\n</think>\n\nHi', [['think', '\n\n', true], ['prose', 'Hi', false]]],
  ['calls of Mistral behind a line of prose', `See.[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}[TOOL_CALLS][${CALL}]`,
    [['prose', 'See.', true], ['call', 'weather[ARGS]{"city": "Oslo"}', true], ['call', `[${CALL}]`, false]]],
  ['their mark in code is text', 'It is `[TOOL_CALLS]`.\n```\n[TOOL_CALLS]\n```\n', [['prose', 'It is `[TOOL_CALLS]`.\n```\n[TOOL_CALLS]\n```\n', false]]],
  ['a call of Llama', `<|python_tag|>${CALL}`, [['call', CALL, false]]],
  ['thinking of Magistral', '[THINK]Hm.[/THINK]Yes.', [['think', 'Hm.', true], ['prose', 'Yes.', false]]],
  ['channels', '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city":1}<|call|><|start|>assistant<|channel|>final<|message|>It is <|x.<|return|>',
    [['think', 'Hm.', true], ['call', 'weather[ARGS]{"city":1}', true], ['prose', 'It is <|x.', true]]],
  ['a channel that is cut off', '<|channel|>analysis<|mess', [['prose', '<|channel|>analysis<|mess', false]]],
  ['what only begins like a mark', '<thin ice', [['prose', '<thin ice', false]]],
];

// The server says that the prompt began the thinking.
const IN_THOUGHT = [
  ['a channel that the answer opens all the same', '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is.<|return|>', [['think', 'Hm.', true], ['prose', 'It is.', true]]],
  ['a channel that the prompt opened', 'Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is.', [['think', 'Hm.', true], ['prose', 'It is.', false]]],
  ['closed', 'Hm.\nWell.</think>\n\nYes.', [['think', 'Hm.\nWell.', true], ['prose', 'Yes.', false]]],
  ['closed in another way', 'Hm.[/THINK]Yes.', [['think', 'Hm.', true], ['prose', 'Yes.', false]]],
  ['closed at once', '</think>\n\nYes.', [['think', '', true], ['prose', 'Yes.', false]]],
  ['cut off', 'Hm.\n```\nWell', [['think', 'Hm.\n```\nWell', false]]],
  ['a call behind it', `Hm.</think><tool_call>${CALL}</tool_call>`, [['think', 'Hm.', true], ['call', CALL, true]]],
];

longTest('the parts are the same wherever the text is cut', () => {
  for (const [list, inThought] of [[TEXTS, false], [IN_THOUGHT, true]])
    for (const [name, text, wanted] of list) {
      assert.deepEqual(partsOf([text], inThought), wanted, name);
      assert.deepEqual(partsOf([...text, ''], inThought), wanted, `${name}, one character at a time`);
      for (let at = 1; at < text.length; at++)
        assert.deepEqual(partsOf([text.slice(0, at), text.slice(at)], inThought), wanted, `${name}, cut at ${at}`);
    }
  assert.equal(proseOf({ text: THOUGHT }), 'It is **four**.');
  assert.equal(proseOf({ text: 'Plain <think> text. ' }), 'Plain <think> text. ');
  assert.equal(proseOf({ text: 'Hm.</think>Yes.', thinking: true }), 'Yes.');
});

const shown = (page, at = -1) =>
  page.locator('.turn').nth(at).locator('.prose').evaluate((prose) =>
    [...prose.children].map((e) => (e.matches('details') ? [e.querySelector('summary span').textContent, e.open] : e.textContent.trim())),
  );

test('thinking and calls stream into collapsed blocks with their time and tokens', async (t) => {
  const context = await newContext(t, { permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await newPage(t, context);
  const timings = (decode_ms) => ({ timings: { queue_ms: 0, prefill_ms: 1, first_token_ms: 1, decode_ms, paused_ms: 0, tokens_per_second: 40 } });
  const fake = await FakeSession.route(page, [['Quick', THOUGHT, timings(1)], ['Before', THOUGHT, timings(500)]]);
  await page.goto(`${server.url}/#s=fake`);
  await page.waitForSelector('.turn .block');
  assert.deepEqual(await shown(page), [['Thought', false], 'It is four.']);
  await settled(page, 2);
  const figures = await page.locator('.block-figures').allInnerTexts();
  assert.match(figures[0], /^<1 ms · \d+ tokens$/);
  assert.match(figures[1], /^about \d+ ms · \d+ tokens$/);

  await fake.begin('What is the weather?');
  for (const piece of ['<thi', 'nk>Where', ' is *Oslo*']) fake.delta(piece);
  await page.waitForSelector('.turn:last-child .block:has-text("Thinking…")');
  assert.equal(await page.locator('.turn:last-child .block > div').isVisible(), false);
  await page.locator('.turn:last-child summary').click();
  await page.waitForSelector('.turn:last-child .block em:has-text("Oslo")');
  for (const piece of ['?</thi', 'nk>\n\nI will ask.\n<tool', `_call>${CALL.slice(0, 20)}`]) fake.delta(piece);
  await page.waitForSelector('.block:has-text("Calling weather")');
  fake.delta(`${CALL.slice(20)}</tool_call>`);
  fake.done();
  await page.waitForSelector('.block:has-text("Called weather")');
  // The block that was opened stays open.
  assert.deepEqual(await shown(page), [['Thought', true], 'I will ask.', ['Called weather', false]]);
  assert.deepEqual(
    (await page.locator('.turn:last-child .block-figures').allInnerTexts()).map((text) => /^[^a].* · \d+ tokens?$/.test(text)),
    [true, true],
  );
  assert.equal(JSON.parse(await page.locator('.block-call').textContent()).city, 'Oslo');
  await page.locator('.turn').last().hover();
  await page.locator('[data-action=copy-answer]').last().click();
  await page.waitForFunction(async () => (await navigator.clipboard.readText()) === 'I will ask.');

  await page.reload();
  await page.waitForSelector('.turn:last-child .block');
  assert.deepEqual(await shown(page), [['Thought', false], 'I will ask.', ['Called weather', false]]);
});

longTest('an answer that is a call in plain JSON is a collapsed call; other JSON stays text', async (t) => {
  const page = await newPage(t, await newContext(t));
  const others = ['{"name": "Bob", "age": 3}', '{"name": "Bob", "arguments": "none"}', `See ${CALL}`];
  const fake = await FakeSession.route(page, [['Forced', ` ${CALL}\n`], ['Llama', '{"name": "weather", "parameters": {}}'], ...others.map((text) => ['Other', text])]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 2 + others.length);
  assert.deepEqual(await shown(page, 0), [['Called weather', false]]);
  assert.deepEqual(await shown(page, 1), [['Called weather', false]]);
  for (const [i, text] of others.entries()) assert.deepEqual(await shown(page, i + 2), [text]);
  // It streams as text, and is a call as soon as it is whole.
  await fake.begin('Again');
  for (const piece of [CALL.slice(0, 20), CALL.slice(20)]) fake.delta(piece);
  await page.waitForSelector('.turn:last-child .prose p');
  fake.done();
  await page.waitForFunction(() => document.querySelector('.turn:last-child .block summary span')?.textContent === 'Called weather');
});

longTest('thinking that the prompt began is a block from its first token, after a reload in its midst, and where it was cut off', async (t) => {
  const page = await newPage(t, await newContext(t));
  const fake = await FakeSession.route(page, [
    ['Done', 'Hm.</think>\n\nYes.', { thinking: true }],
    ['Cut off', 'Hm, *well*', { thinking: true, finish_reason: 'length' }],
    ['Goes on', ' and so.</think>\n\nNo.', { thinking: true, input: { continue: true } }],
  ]);
  await page.goto(`${server.url}/#s=fake`);
  await settled(page, 2);
  assert.deepEqual(await shown(page, 0), [['Thought', false], 'Yes.']);
  assert.deepEqual(await shown(page, 1), [['Thought', false], 'No.']);

  await fake.begin('And now?', { thinking: true });
  fake.delta('It');
  await page.waitForSelector('.turn:last-child .block:has-text("Thinking…")');
  assert.deepEqual(await shown(page), [['Thinking…', false]]);
  fake.turns[fake.turn][2].state = 'running';
  for (const key of ['finish_reason', 'usage', 'timings', 'cache']) fake.turns[fake.turn][2][key] = key === 'finish_reason' ? null : undefined;
  await page.reload();
  await page.waitForSelector('.turn:last-child .block:has-text("Thinking…")');
  assert.deepEqual(await shown(page), [['Thinking…', false]]);
  fake.delta(' is so.</th');
  fake.delta('ink>\n\nFour');
  await page.waitForSelector('.turn:last-child .prose p:has-text("Four")');
  assert.deepEqual(await shown(page), [['Thought', false], 'Four']);
  fake.done();

  await fake.begin('Again', { thinking: true });
  fake.delta('On and on');
  fake.done('cancelled');
  await page.waitForSelector('.turn:last-child .block:has-text("Thought, not finished")');
  assert.deepEqual(await shown(page), [['Thought, not finished', false]]);
});
