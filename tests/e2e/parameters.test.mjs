// FasterTransformer's sampling parameters on every way in: the wire, parley generate and KServe give the same tokens.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import test, { after } from 'node:test';
import { Follower } from './follower.mjs';
import { parley, root, Server, unlimited } from './harness.mjs';

const gpt2 = path.join(root, 'tests/fixtures/models/gpt2');
const server = await Server.start({ after }, { model: gpt2, args: unlimited });
const client = await server.connect();

const option = (name) => `--${name.replaceAll('_', '-')}`;
const generate = (ids, sampling) => JSON.parse(execFileSync(parley, ['generate', '--model', gpt2, '--json', ...(ids.length ? ['--ids', ids.join(',')] : []),
  ...Object.entries(sampling).flatMap(([key, value]) => value === true ? [option(key)] : [option(key), typeof value === 'object' ? JSON.stringify(value) : String(value)])], { encoding: 'utf8' }));

async function overTheWire(ids, sampling) {
  const author = await Follower.open(client);
  const turn = await author.done(await author.start({ ids }, { sampling: { logprobs: true, ...sampling } }));
  author.leave();
  return { ids: turn.ids, finish_reason: turn.done.finish_reason };
}

async function infer(rows, outputLen, inputs, expected = 200) {
  const width = Math.max(...rows.map((row) => row.length));
  const tensor = (name, datatype, shape, data) => ({ name, datatype, shape, data });
  const body = { inputs: [
    tensor('input_ids', 'UINT32', [rows.length, width], rows.flatMap((row) => [...row, ...Array(width - row.length).fill(0)])),
    tensor('input_lengths', 'UINT32', [rows.length, 1], rows.map((row) => row.length)),
    tensor('request_output_len', 'UINT32', [rows.length, 1], rows.map(() => outputLen)),
    ...inputs.map(([name, datatype, data, shape]) => tensor(name, datatype, shape ?? [data.length, 1], data)),
  ] };
  const response = await fetch(`${server.url}/v2/models/fastertransformer/infer`, { method: 'POST', body: JSON.stringify(body) });
  const answer = await response.json();
  assert.equal(response.status, expected, answer.error);
  if (expected !== 200) return answer.error;
  const out = Object.fromEntries(answer.outputs.map((o) => [o.name, o]));
  const columns = out.output_ids.shape.at(-1);
  return { out, ids: rows.map((row, i) => out.output_ids.data.slice(i * columns + Math.max(row.length, 1), i * columns + out.sequence_length.data[i])) };
}

test('a decaying top-p: the same tokens on the wire, in generate and over KServe, and others than without', async () => {
  const ids = [5, 9, 33];
  const sampling = { temperature: 5, top_p: 0.95, top_p_decay: 0.6, top_p_min: 0.02, seed: '11', max_tokens: 24, ignore_eos: true };
  const want = generate(ids, sampling).ids;
  assert.equal(want.length, 24);
  assert.deepEqual((await overTheWire(ids, sampling)).ids, want);
  const tensors = [['runtime_top_p', 'FP32', [0.95]], ['temperature', 'FP32', [5]], ['top_p_decay', 'FP32', [0.6]],
    ['top_p_min', 'FP32', [0.02]], ['random_seed', 'UINT64', [11]], ['end_id', 'UINT32', [4294967295]]];
  assert.deepEqual((await infer([ids], 24, tensors)).ids[0], want);
  const plain = generate(ids, { ...sampling, top_p_decay: 1 }).ids;
  assert.notDeepEqual(plain, want);
  assert.deepEqual(plain.slice(0, 1), want.slice(0, 1)); // the first draw has the whole top-p

  // After its reset token the row draws from the whole top-p again.
  const reset = { ...sampling, top_p_reset_ids: want[1] };
  const again = generate(ids, reset).ids;
  assert.deepEqual(again.slice(0, 2), want.slice(0, 2));
  assert.notDeepEqual(again, want);
  assert.deepEqual((await infer([ids], 24, [...tensors, ['top_p_reset_ids', 'UINT32', [want[1]]]])).ids[0], again);
});

test('rows of one batch have parameters of their own', async () => {
  const rows = [[5, 9, 33], [7, 8, 9, 10], [5, 9, 33]];
  const own = [{ temperature: 5, top_p: 0.95, top_p_decay: 0.6, seed: '1' }, { temperature: 3, top_k: 40, top_p: 1, seed: '2', repetition_penalty: 1.5, presence_penalty: 0.5 },
    { temperature: 5, top_p: 0.95, top_p_decay: 0.9, seed: '3' }];
  const of = (key, absent) => own.map((row) => row[key] ?? absent);
  const { ids } = await infer(rows, 16, [['temperature', 'FP32', of('temperature')], ['runtime_top_p', 'FP32', of('top_p')], ['runtime_top_k', 'UINT32', of('top_k', 0)],
    ['top_p_decay', 'FP32', of('top_p_decay', 1)], ['random_seed', 'UINT64', of('seed').map(Number)], ['repetition_penalty', 'FP32', of('repetition_penalty', 1)],
    ['presence_penalty', 'FP32', of('presence_penalty', 0)]]);
  rows.forEach((row, i) => assert.deepEqual(ids[i], generate(row, { ...own[i], max_tokens: 16 }).ids));
});

test('stop words as ids stay in the answer, more than four of them, and may begin in the input', async () => {
  const ids = [5, 9, 33];
  const greedy = { temperature: 0, max_tokens: 12, ignore_eos: true };
  const whole = generate(ids, greedy).ids;
  const at = whole.findIndex((id, i) => i >= 2 && whole.indexOf(id) === i); // its first occurrence
  assert.ok(at > 0, 'the answer has a new token');
  const words = [[301], [302], [303], [304], [305], [whole[at - 1], whole[at]]];
  const want = whole.slice(0, at + 1);
  const wire = await overTheWire(ids, { ...greedy, stop: words });
  assert.deepEqual([wire.ids, wire.finish_reason], [want, 'stop']);
  assert.deepEqual(generate(ids, { ...greedy, stop: words }).ids, want);
  const flat = words.flat(), offsets = words.map((_, i) => words.slice(0, i + 1).flat().length);
  const list = (name, of, ends) => [name, 'INT32', [...of, ...ends, ...Array(of.length - ends.length).fill(-1)], [2, of.length]];
  assert.deepEqual((await infer([ids], 12, [list('stop_words_list', flat, offsets), ['end_id', 'UINT32', [4294967295]]])).ids[0], want);
  const across = await overTheWire(ids, { ...greedy, stop: [[33, whole[0]]] });
  assert.deepEqual([across.ids, across.finish_reason], [[whole[0]], 'stop']);

  const banned = { ...greedy, bad_words: [[whole[0]], [301, 302]] };
  const without = generate(ids, banned).ids;
  assert.ok(!without.includes(whole[0]));
  assert.deepEqual((await overTheWire(ids, banned)).ids, without);
  assert.deepEqual((await infer([ids], 12, [list('bad_words_list', [whole[0], 301, 302], [1, 3]), ['end_id', 'UINT32', [4294967295]]])).ids[0], without);
});

test('a row without input begins with its start token', async () => {
  const sampling = { temperature: 0, max_tokens: 5, ignore_eos: true };
  const want = generate([33], sampling).ids;
  assert.deepEqual(generate([], { ...sampling, start_id: 33 }).ids, want);
  assert.deepEqual((await overTheWire([], { ...sampling, start_id: 33 })).ids, want);
  assert.deepEqual((await infer([[], [33]], 5, [['start_id', 'UINT32', [33]], ['end_id', 'UINT32', [4294967295]]])).ids, [want, want]);
});

test('a turn with a decaying top-p replays to the bit, token for token', async () => {
  const author = await Follower.open(client);
  const sampling = { temperature: 5, top_p: 0.95, top_p_decay: 0.6, top_p_min: 0.02, seed: '11', max_tokens: 24, ignore_eos: true };
  const turn = await author.start({ ids: [5, 9, 33] }, { sampling });
  await author.done(turn);
  const replayed = new Promise((resolve) => client.listeners.add((frame) => {
    if (frame.type === 'turn.replayed' && frame.session === author.session) resolve(frame);
  }));
  await client.ask({ type: 'turn.replay', session: author.session, turn });
  const verdict = await replayed;
  assert.deepEqual([verdict.equal, verdict.compared_tokens], [true, 24], JSON.stringify(verdict));
  author.leave();
});

test('values out of range are refused by name', async () => {
  const refused = (...inputs) => infer([[5, 9]], 3, inputs, 400);
  for (const value of [0, 1.5, -1]) {
    assert.match(await refused(['top_p_decay', 'FP32', [value]]), /top_p_decay/);
    assert.match(await refused(['top_p_min', 'FP32', [value]]), /top_p_min/);
  }
  assert.match(await refused(['start_id', 'UINT32', [4000000000]]), /start_id/);
  assert.match(await refused(['stop_words_list', 'INT32', [5, 6, 2, 1], [2, 2]]), /backwards/);
  assert.match(await refused(['bad_words_list', 'INT32', [5, 6, 1, 9], [2, 2]]), /offset/);
  assert.match(await refused(['stop_words_list', 'INT32', [5, -6, 1, 2], [2, 2]]), /vocabulary/);
  assert.match(await infer([[]], 3, [], 400), /start_id/);
  const author = await Follower.open(client);
  for (const sampling of [{ top_p_decay: 2 }, { top_p_min: 0 }, { stop: [[]] }, { bad_words: [[-1]] }]) {
    const stranger = await server.connect({ malformed: true });
    const answer = await stranger.request({ type: 'turn.start', session: author.session, input: { ids: [1] }, sampling }).catch((error) => error.answer ?? error);
    assert.equal(answer.code, 'invalid', JSON.stringify(answer));
  }
  const nothing = await client.ask({ type: 'turn.start', session: author.session, input: { ids: [] } }).catch((error) => error.answer);
  assert.equal(nothing.code, 'invalid');
  author.leave();
});
