// Turns with several answers over the real socket: samples and beams become versions of the answer. They survive a
// restart, an export and a fork, can be gone on from, and replay with equal bits; whatever cuts such a turn short,
// the session goes on.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { few, longTest, parley, root, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';

const model = path.join(root, 'tests/fixtures/models/llama');
const demo = path.join(root, 'configs/demo-model');
const prompt = Array.from({ length: 40 }, (_, i) => 5 + (i * 37) % 300);
const drawn = { n: 3, temperature: 1, top_p: 1, seed: '5', max_tokens: 12, ignore_eos: true, logprobs: true };
const searched = { beam_width: 4, max_tokens: 12, ignore_eos: true, logprobs: true };
const sizes = { memory_len: 24, sink_len: 4 };

const start = (t, more = {}) => Server.start(t, { model, ...more, args: [...unlimited, '--block-tokens', '8', '--threads', '1', ...(more.args ?? [])] });
const state = (client, id) => client.request({ type: 'session.get', session: id });
const exported = (server, id) => JSON.parse(execFileSync(parley, ['sessions', 'export', id, '--db', server.db], { maxBuffer: 1 << 28 }));
const generate = (...args) => JSON.parse(execFileSync(parley, ['generate', '--model', model, '--ids', prompt.join(','), '--json', '--threads', '1', '--compute-dtype', 'auto',
  '--memory-len', '24', '--sink-len', '4', '--block-tokens', '8', '--ignore-eos', '--max-tokens', '12', ...args.map(String)]));
const replay = (server, id, model = path.join(root, 'tests/fixtures/models/llama')) => {
  const got = spawnSync(parley, ['replay', id, '--db', server.db, '--model', model, '--threads', '1', '--json'], { encoding: 'utf8' });
  assert.notEqual(got.stdout, '', `replay: ${got.status} ${got.signal} ${got.stderr}`);
  return { code: got.status, ...JSON.parse(got.stdout) };
};

/** The versions of turn 0, as the file has them, in the order of their branches. */
function versions(file) {
  return file.turns.filter((turn) => turn.branch && turn.parent === file.turns[0].parent)
    .sort((a, b) => a.branch.index - b.branch.index);
}

for (const [what, sampling, want] of [
  ['samples', drawn, () => generate('--n', 3, '--temperature', 1, '--seed', 5).samples],
  ['beams', searched, () => generate('--beam-width', 4).beams]]) {
  test(`${what}: the others are versions of the answer, and can become the head`, async (t) => {
    const server = await start(t);
    const client = await server.connect();
    const id = await client.open(sizes);
    const { ids, done } = await client.turn(id, { ids: prompt }, { sampling });
    const answers = want();
    assert.deepEqual(ids, answers[0].ids);
    assert.equal(done.finish_reason, 'length');
    assert.deepEqual(done.branch, { index: 0, of: answers.length, score: done.branch.score });
    assert.ok(Math.abs(done.branch.score - answers[0].score) < 1e-5);
    await until('the versions', async () => (await state(client, id)).turns[0].siblings?.length === answers.length);
    const { turns: [shown], session } = await state(client, id);
    assert.equal(session.head, 0);
    assert.deepEqual(shown.inputs, answers.map(() => 0)); // versions of one answer
    const file = exported(server, id);
    assert.deepEqual(versions(file).map((turn) => turn.ids), answers.map((answer) => answer.ids));
    for (const [i, turn] of versions(file).entries()) {
      assert.ok(Math.abs(turn.branch.score - answers[i].score) < 1e-5);
    }
    // Go on from the last one: as a fresh session with that log.
    const last = shown.siblings.at(-1);
    assert.equal((await client.request({ type: 'session.rewind', session: id, turn: last })).head, last);
    assert.deepEqual((await state(client, id)).turns.map((turn) => turn.branch?.index), [answers.length - 1]);
    const greedy = { temperature: 0, max_tokens: 6, ignore_eos: true };
    const next = await client.turn(id, { ids: [7, 8, 9] }, { sampling: greedy });
    const fresh = await client.open(sizes);
    assert.deepEqual(next.ids, (await client.turn(fresh, { ids: [...prompt, ...answers.at(-1).ids, 7, 8, 9] }, { sampling: greedy })).ids);
    // Asked again with the same settings, also from there: as many versions more.
    const copy = await client.request({ type: 'session.fork', session: id });
    assert.deepEqual((await state(client, copy.session.id)).turns.map((turn) => turn.text), (await state(client, id)).turns.map((turn) => turn.text));
    const { verdict, code, turns } = replay(server, id);
    assert.equal(code, 0, JSON.stringify(verdict ?? turns));
    assert.deepEqual(turns.map((turn) => turn.verdict), [...answers.map(() => 'equal'), 'equal']);
  });
}

/** The other answers of a turn as they came: { branch: { ids, text, logprobs } }; they come without a gap. */
function samplesOf(frames, turn) {
  const samples = {};
  for (const frame of frames) {
    if (frame.type !== 'turn.sample' || frame.turn !== turn) continue;
    const sample = samples[frame.branch] ??= { ids: [], text: '', logprobs: [] };
    assert.equal(frame.first_token, sample.ids.length);
    assert.equal(frame.seq, undefined);
    sample.ids.push(...frame.ids);
    sample.text += frame.text;
    sample.logprobs.push(...(frame.logprobs ?? []));
  }
  return samples;
}
const told = (samples) => Object.values(samples).map(({ ids, text }) => ({ ids, text }));
const stored = (server, id) => versions(exported(server, id)).slice(1).map(({ ids, text }) => ({ ids, text }));

longTest('samples are told as they are drawn, to each client that follows', async (t) => {
  const server = await start(t, { model: demo });
  const client = await server.connect(), late = await server.connect();
  const id = await client.open(sizes);
  const n = few(1500); // so that the turn runs when the second client comes
  const sampling = { ...drawn, max_tokens: n, stop: ['never to be found'] };
  const { turn } = await client.start(id, { ids: prompt }, { sampling });
  await client.next((frame) => frame.type === 'turn.sample' && frame.branch === 2);
  assert.equal(client.frames.some((frame) => frame.type === 'turn.done'), false);
  await late.request({ type: 'session.attach', session: id }); // without `after`: live events alone
  for (const each of [client, late]) await each.next((frame) => frame.type === 'turn.done');
  await until('the versions', async () => (await state(client, id)).turns[0].siblings?.length === 3);
  const want = stored(server, id);
  assert.deepEqual(want.map(({ ids }) => ids.length), [n, n]);
  for (const each of [client, late]) {
    assert.deepEqual(told(samplesOf(each.frames, turn)), want);
    const end = each.frames.findIndex((frame) => frame.type === 'turn.done');
    assert.ok(each.frames.slice(end).every((frame) => frame.type !== 'turn.sample'));
    assert.equal(samplesOf(each.frames, turn)[1].logprobs.length, n);
  }
  const afterwards = await server.connect();
  await afterwards.request({ type: 'session.attach', session: id, after: 0 });
  await afterwards.next((frame) => frame.type === 'turn.done');
  assert.deepEqual(samplesOf(afterwards.frames, turn), {}); // they are turns by now
});

longTest('samples: a client that does not read gets them joined, and all of them', async (t) => {
  const server = await start(t, { model: demo, args: ['--slow-reader-timeout', '600'] });
  const client = await server.connect(), slow = await server.connect();
  const id = await client.open({ memory_len: 128, sink_len: 4 });
  await slow.request({ type: 'session.attach', session: id });
  slow.socket.pause();
  const { turn } = await client.start(id, { ids: prompt }, { sampling: { ...drawn, n: 8, max_tokens: few(800) } });
  await client.next((frame) => frame.type === 'turn.done');
  slow.socket.resume();
  await slow.next((frame) => frame.type === 'turn.done');
  assert.deepEqual(samplesOf(slow.frames, turn), samplesOf(client.frames, turn));
  assert.equal(samplesOf(slow.frames, turn)[7].ids.length, few(800));
});

longTest('samples: what was told of a cancelled turn is what is stored', async (t) => {
  const server = await start(t, { model: demo });
  const client = await server.connect();
  const id = await client.open(sizes);
  const { turn } = await client.start(id, { ids: prompt }, { sampling: { ...drawn, max_tokens: 3000 } });
  await client.next((frame) => frame.type === 'turn.sample' && frame.branch === 2);
  await client.request({ type: 'turn.cancel', session: id });
  const done = await client.next((frame) => frame.type === 'turn.done');
  assert.equal(done.finish_reason, 'cancelled');
  await until('the versions', async () => (await state(client, id)).turns[0].siblings?.length === 3);
  assert.deepEqual(told(samplesOf(client.frames, turn)), stored(server, id));
  assert.equal(replay(server, id, demo).code, 0);
});

longTest('a search in the second turn of a wrapped window equals that of a fresh session', async (t) => {
  const server = await start(t);
  const client = await server.connect();
  const id = await client.open(sizes), fresh = await client.open(sizes);
  const first = await client.turn(id, { ids: prompt }, { sampling: searched });
  const second = await client.turn(id, { ids: [9, 8, 7] }, { sampling: searched });
  const whole = await client.turn(fresh, { ids: [...prompt, ...first.ids, 9, 8, 7] }, { sampling: searched });
  assert.deepEqual(second.ids, whole.ids);
  assert.deepEqual(second.done.branch, whole.done.branch);
  assert.equal(second.done.cache.source, 'kept');
});

longTest('they survive a restart and an import', async (t) => {
  const server = await start(t);
  const client = await server.connect();
  const id = await client.open(sizes);
  await client.turn(id, { ids: prompt }, { sampling: searched });
  await until('the versions', async () => (await state(client, id)).turns[0].siblings?.length === 4);
  const before = exported(server, id);
  await server.stop('SIGKILL');
  const again = await start(t, { db: server.db });
  const { turns: [shown] } = await state(await again.connect(), id);
  assert.equal(shown.siblings.length, 4);
  const file = path.join(temporaryFolder(t), 'session.json');
  writeFileSync(file, JSON.stringify({ ...before, session: { ...before.session, id: 'copy' } }));
  execFileSync(parley, ['sessions', 'import', file, '--keep-owner', '--db', again.db]);
  const after = exported(again, 'copy');
  assert.deepEqual(versions(after).map((turn) => [turn.ids, turn.branch]), versions(before).map((turn) => [turn.ids, turn.branch]));
});

for (const [what, sampling] of [['samples', { ...drawn, max_tokens: 1500 }], ['beams', { ...searched, max_tokens: 1500 }]]) {
  longTest(`${what} cut short: cancelled, by a deadline, by a crash`, async (t) => {
    const server = await start(t, { model: demo });
    const client = await server.connect();
    const id = await client.open(sizes);
    await client.start(id, { ids: prompt }, { sampling });
    await until('it runs', async () => (await state(client, id)).turns.at(-1)?.state === 'running');
    await client.request({ type: 'turn.cancel', session: id });
    await until('its end', async () => (await state(client, id)).turns.at(-1)?.finish_reason === 'cancelled');
    const late = await client.turn(id, { ids: [5] }, { sampling: { ...sampling, deadline_ms: 50 } });
    assert.equal(late.done.finish_reason, 'deadline');
    await client.start(id, { ids: [6] }, { sampling });
    await until('it runs', async () => (await state(client, id)).turns.at(-1)?.state === 'running');
    await server.stop('SIGKILL');
    const again = await start(t, { model: demo, db: server.db });
    const other = await again.connect();
    await other.request({ type: 'session.attach', session: id });
    const { turns } = await state(other, id);
    assert.deepEqual(turns.map((turn) => turn.finish_reason), ['cancelled', 'deadline', 'interrupted']);
    const { done } = await other.turn(id, { ids: [7] }, { sampling: { ...sampling, max_tokens: 5 } });
    assert.equal(done.finish_reason, 'length');
    assert.equal(replay(again, id, demo).code, 0);
  });
}

test('refused', async (t) => {
  const server = await start(t);
  const client = await server.connect({ malformed: true });
  const id = await client.open(sizes);
  for (const [sampling, what] of [[{ beam_width: 0 }, /beam_width/], [{ beam_width: 1000 }, /beam_width/], [{ n: 65 }, /'n'/],
    [{ n: 2, beam_width: 2 }, /n, beam_width/], [{ beam_width: 2, top_logprobs: 1 }, /top_logprobs/],
    [{ n: 1.5 }, /'n'/], [{ len_penalty: 11 }, /len_penalty/]]) {
    const got = await client.request({ type: 'turn.start', session: id, input: { ids: [5, 6] }, sampling });
    assert.equal(got.type, 'error', JSON.stringify(sampling));
    assert.match(got.message, what);
  }
});
