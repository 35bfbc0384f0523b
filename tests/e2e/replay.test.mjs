// Replay over the real program: a record made under load, with evictions, cancels and a crash, is recomputed alone
// with equal bits; a change in the record is found at its place; what-if does not change the database.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test, { after } from 'node:test';
import { Follower } from './follower.mjs';
import { few, root, Server, temporaryFolder, unlimited, until } from './harness.mjs';
import { good, run } from './run.mjs';

const model = path.join(root, 'configs/demo-model');
const folder = temporaryFolder({ after });
const db = path.join(folder, 'recorded.db');

/** Recorded with two threads, replayed with one: their number changes no bit. */
const replay = (session, file, ...more) =>
  run(['replay', session, '--db', file, '--model', model, '--threads', '1', ...more], { timeoutMs: 300000 });
async function report(session, file, ...more) {
  const result = await replay(session, file, '--json', ...more);
  assert.equal(result.stderr, '');
  return { code: result.code, ...JSON.parse(result.stdout) };
}

/** Other sessions run meanwhile, so that the watched session's turns run in batches of changing sizes. */
function load(client, n) {
  let stop = false;
  const talk = async (i) => {
    const session = await Follower.open(client, { session: `other-${i}`, memory_len: 96 + 32 * (i % 3) });
    for (let turn = 0; !stop && turn < 15; turn++) // evicted as they are, each turn computes all those before it again
      await session.say(`Tell me a story about number ${turn}.`, { sampling: { temperature: 0.9, max_tokens: 10 + 10 * i, seed: String(i * 100 + turn) } });
    return session;
  };
  const talking = Array.from({ length: n }, (_, i) => talk(i));
  return () => { stop = true; return Promise.all(talking); };
}

const cut = async (session, how) => {
  const turn = await session.start('Tell me a very long story.', { sampling: { ignore_eos: true, seed: '77', max_tokens: 2000, temperature: 0.7 } });
  await session.wait('some words', () => (session.turns.get(turn)?.ids.length ?? 0) >= 10);
  await how(turn);
  return turn;
};

let turns = 0;
test('recorded under load', async (t) => {
  const small = ['--kv-cache-bytes', '6m', '--prefill-chunk-tokens', '32', '--max-sequence-idle-microseconds', '40000', '--threads', '2'];
  const server = await Server.start(t, { db, args: [...unlimited, ...small] });
  const client = await server.connect();
  const others = load(await server.connect(), 3);
  const zora = await Follower.open(client, { session: 'zora', memory_len: 64, sink_len: 4, system: 'You are a helpful assistant.' });
  const say = async (input, sampling) => { await zora.say(input, { sampling }); };
  await say('My name is Zora.', { temperature: 0 });
  await say('Tell me a story.', { temperature: 0.9, top_p: 0.95, seed: '18446744073709551615', max_tokens: 80, top_logprobs: 3 });
  await say('And another one?', { temperature: 1.3, top_k: 40, min_p: 0.01, repetition_penalty: 1.1, presence_penalty: 0.4, frequency_penalty: 0.2, min_tokens: 20, max_tokens: 70 });
  // The turn before drew its own seed, so this text is not known in advance: one of these comes in any case, before
  // any other end.
  await say('What is 2 plus 3?', { temperature: 1, stop: ['5', 'a', 'e', 'o'], ignore_eos: true, seed: '9' });
  await zora.wait('an eviction', () => zora.evictions.length > 0); // by the idle clock
  await cut(zora, async (turn) => {
    await client.ask({ type: 'turn.cancel', session: 'zora', turn });
    await zora.wait('the end', () => zora.turns.get(turn).done);
  });
  await say('What is my name?', { temperature: 0.5, logit_bias: { 300: 5, 1300: -100 }, bad_words: [[400, 401]], min_tokens: 3 });
  await say({ ids: [300, 301, 302, 303] }, { temperature: 0.8, max_tokens: 30, ignore_eos: true, seed: '4' });
  await say('Tell me a story.', { temperature: 0.9, max_tokens: few(150), ignore_eos: true });
  const beside = await report('zora', db); // while the others talk on
  assert.equal(beside.code, 0, JSON.stringify(beside.first_divergence));
  await others();
  await cut(zora, () => server.stop('SIGKILL'));
  const again = await Server.start(t, { db, args: unlimited });
  const back = await Follower.attach(await again.connect(), 'zora').catch(() => null);
  await until('the cut-off turn to end', () => !back || [...back.turns.values()].some((turn) => turn.done?.finish_reason === 'interrupted'));
  await again.stop();
  turns = JSON.parse(await good(['sessions', 'show', 'zora', '--db', db, '--json'])).turns.length;
  assert.ok(turns >= 9);
});

test('replayed alone, every session is equal; so is any turn by itself, with other threads and chunks', async () => {
  const { sessions } = JSON.parse(await good(['sessions', 'list', '--db', db, '--json']));
  assert.equal(sessions.length, 4);
  for (const { id } of sessions) {
    const found = await report(id, db);
    assert.equal(found.code, 0, `${id}: ${JSON.stringify(found.turns.filter((turn) => turn.verdict !== 'equal'))}`);
    assert.equal(found.diverged + found.failed, 0);
    assert.equal(found.first_divergence, null);
    assert.equal(found.model.equal, true);
    assert.ok(found.turns.every((turn) => turn.same_build && turn.compared === turn.tokens));
    assert.match(found.build, /^\d+\.\d+\.\d+/);
  }
  const zora = await report('zora', db, '--threads', '2', '--prefill-chunk-tokens', '7', '--block-tokens', '16');
  assert.deepEqual([zora.code, zora.turns.length], [0, turns]);
  const ends = new Set(zora.turns.map((turn) => turn.finish_reason.recorded));
  for (const end of ['eos', 'length', 'stop', 'cancelled', 'interrupted']) assert.ok(ends.has(end), `${end} of ${[...ends]}`);
  const one = await report('zora', db, '--turn', '5');
  assert.deepEqual([one.code, one.turns.map(({ turn }) => turn)], [0, [5]]);
  const text = (await replay('zora', db)).stdout;
  assert.match(text, new RegExp(`\nturn ${turns - 1}: equal, `));
  assert.match(text, new RegExp(`\n${turns} equal, 0 without an answer, 0 diverged, 0 could not run\n`));
});

/** A copy of the session in another database, with its record changed. */
async function changed(name, edit) {
  const session = JSON.parse(await good(['sessions', 'export', 'zora', '--db', db]));
  edit(session.turns);
  const [file, copy] = [`${name}.json`, `${name}.db`].map((part) => path.join(folder, part));
  writeFileSync(file, JSON.stringify(session));
  await good(['sessions', 'import', file, '--keep-owner', '--db', copy]);
  return copy;
}

test('a token of the record that was changed is found', async () => {
  let was;
  const copy = await changed('token', (all) => { was = all[2].ids[11]; all[2].ids[11] = 700; });
  const found = await report('zora', copy);
  assert.equal(found.code, 1);
  assert.deepEqual([found.first_divergence.turn, found.first_divergence.index], [2, 11]);
  assert.deepEqual(found.turns.slice(0, 2).map((turn) => turn.verdict), ['equal', 'equal']);
  const { first, token, compared } = found.turns[2];
  assert.deepEqual([first.kind, first.recorded.id, first.now.id, compared], ['token', 700, was, 11]);
  assert.deepEqual(token, first);
  assert.equal(first.top.length, 5);
  assert.ok(first.top.every((one, i) => i === 0 || one.logprob <= first.top[i - 1].logprob));
  assert.ok(first.recorded_id_logprob <= first.top[0].logprob);
  const same = first.top.find((one) => one.id === was); // what the replay drew and what was looked up are the same bits
  if (same) assert.equal(same.logprob_bits, first.now.logprob_bits);
  const { code, stdout } = await replay('zora', copy);
  assert.equal(code, 1);
  assert.match(stdout, new RegExp(`\nfirst divergence: turn 2, token 11, position ${first.position}\n`));
  assert.match(stdout, /nothing recorded differs: same model, build, device and settings/);
  assert.equal((await replay('zora', copy, '--turn', '1')).code, 0);
});

test('one bit of one log-probability is found, and the turns behind it are compared on their own', async () => {
  const copy = await changed('bit', (all) => { all[1].logprob_bits[7] = (all[1].logprob_bits[7] ^ 1) >>> 0; });
  const found = await report('zora', copy);
  assert.equal(found.code, 1);
  assert.deepEqual([found.diverged, found.equal, found.first_divergence.turn, found.first_divergence.index], [1, turns - 1, 1, 7]);
  const { first, token, logprobs_differ } = found.turns[1];
  assert.deepEqual([first.kind, token, logprobs_differ], ['logprob', null, 1]);
  assert.equal(first.recorded.logprob_bits ^ first.now.logprob_bits, 1);
  assert.equal(first.recorded.id, first.now.id);
  // The turn had asked for three alternatives: the recorded ones stand beside the new ones.
  assert.deepEqual(first.recorded_top, first.top.slice(0, 3));
  assert.equal((await report('zora', await changed('bare', (all) => { all[2].logprob_bits[7] = (all[2].logprob_bits[7] ^ 1) >>> 0; }))).turns[2].first.recorded_top, null);
  const { stdout } = await replay('zora', copy, '--turn', '1');
  assert.match(stdout, /\n {4}on record +\d+ .*\n.*\n.*\n {4}likeliest +\d+ /);
});

test('another instruction set is named as what differs', async () => {
  const found = await report('zora', db, '--isa', 'portable');
  if (found.turns[0].same_instance) return; // this processor has no other
  assert.match(found.instance, /portable/);
  assert.ok(found.turns.every((turn) => turn.same_build && !turn.same_instance));
  assert.equal(found.code, 1);
  assert.ok(found.diverged > 0);
  const { stdout } = await replay('zora', db, '--isa', 'portable', '--turn', String(found.first_divergence.turn));
  assert.match(stdout, /differs from the record: the device\n/);
  assert.ok(found.turns.every((turn) => !turn.same_device && turn.same_settings));
  assert.match(stdout, /\nrecorded by .*\n +on cpu: /);
});

test('what a turn was computed in is part of the record, and what it is replayed in', async (t) => {
  const { stderr } = await run(['score', '--model', model, '--ids', '1', '--compute-dtype', 'bf16']);
  if (/AVX512-BF16 or AMX/.test(stderr)) return t.skip('this processor has neither AVX512-BF16 nor AMX');
  const two = path.join(folder, 'two.db');
  for (const [turn, compute] of ['f32', 'auto', 'f32'].entries()) { // one session, two settings
    const server = await Server.start(t, { db: two, args: [...unlimited, '--compute-dtype', compute] });
    const client = await server.connect();
    const both = turn ? await Follower.attach(client, 'both') : await Follower.open(client, { session: 'both' });
    await both.say('Tell me a story.', { sampling: { temperature: 0.9, max_tokens: 60, seed: '5' } });
    await server.stop('SIGKILL');
  }
  const found = await report('both', two);
  assert.deepEqual([found.code, found.equal], [0, 3], JSON.stringify(found.first_divergence));
  assert.ok(found.turns.every((turn) => turn.same_build && turn.same_instance));
  assert.deepEqual(found.turns.map((turn) => /products of bf16/.test(turn.instance)), [false, true, false]);
  const text = await replay('both', two);
  assert.equal(text.code, 0);
  assert.match(text.stdout, /\nreplayed on cpu: .*products of bf16/);
  for (const [compute, same] of [['f32', [true, false, true]], ['bf16', [false, true, false]], ['auto', [false, true, false]]]) {
    const told = await report('both', two, '--compute-dtype', compute);
    assert.deepEqual(told.turns.map((turn) => turn.same_instance), same, compute);
    assert.deepEqual(told.turns.map((turn) => turn.verdict === 'equal'), same, compute);
    assert.equal(told.code, 1);
  }
  const one = await report('both', two, '--turn', '1');
  assert.deepEqual([one.code, one.turns[0].same_instance], [0, true]);
  // A processor that cannot computes in F32, and what differs is said.
  const other = await report('both', two, '--isa', 'portable', '--turn', '1');
  assert.deepEqual([other.code, other.turns[0].same_instance], [1, false]);
  assert.match(other.instance, /portable/);
});

test('another model is refused by its fingerprint, or taken on request', async () => {
  const other = ['replay', 'zora', '--db', db, '--model', path.join(root, 'tests/fixtures/models/llama')];
  const refused = await run(other);
  assert.equal(refused.code, 1);
  assert.equal(refused.stdout, '');
  assert.match(refused.stderr, /^parley: .*'demo-model'.*[0-9a-f]{32}.*--other-model.*\n$/);
  const int8 = await replay('zora', db, '--weight-dtype', 'int8');
  assert.match(int8.stderr, /different weights/);
  const taken = await run([...other, '--other-model', '--json']);
  assert.equal(taken.code, 1);
  const found = JSON.parse(taken.stdout);
  assert.equal(found.model.equal, false);
  assert.ok(found.diverged + found.failed > 0);
});

const sha = (file) => createHash('sha256').update(readFileSync(file)).digest('hex');

test('what if: from a turn on, both answers side by side; the database stays as it is', async () => {
  const before = sha(db);
  const same = await report('zora', db, '--what-if', 'logprobs=false');
  assert.equal(same.code, 0);
  assert.equal(same.turns.length, turns);
  assert.ok(same.turns.every((turn) => turn.same), 'nothing changed, so every input is rendered as it was and every answer the same');
  const cold = await report('zora', db, '--what-if', 'temperature=0,seed=5', '--from-turn', '1');
  assert.deepEqual(cold.what_if, { temperature: 0, seed: '5' });
  assert.deepEqual(cold.turns.map(({ turn }) => turn), Array.from({ length: turns - 1 }, (_, i) => i + 1));
  const [first] = cold.turns;
  assert.equal(first.input, 'Tell me a story.');
  assert.equal(first.same, false);
  assert.deepEqual(first.now.ids.slice(0, first.same_tokens), first.recorded.ids.slice(0, first.same_tokens));
  assert.notEqual(first.now.ids[first.same_tokens], first.recorded.ids[first.same_tokens]);
  assert.equal(first.now.logprobs.length, first.now.ids.length);
  assert.deepEqual(await report('zora', db, '--what-if', 'temperature=0,seed=5', '--from-turn', '1'), cold, 'again the same');
  const text = await good(['replay', 'zora', '--db', db, '--model', model, '--what-if', '{"temperature":0}', '--from-turn', '1']);
  const rows = text.split('\n');
  const at = rows.findIndex((row) => row.startsWith('recorded: '));
  assert.match(rows[at], /^recorded: \d+ tokens, \w+ +\| now: \d+ tokens, \w+, differs at token \d+$/);
  assert.ok(rows[at + 1].indexOf(' |') === rows[at].indexOf(' |'), 'columns');
  assert.ok(rows.every((row) => row.length <= 200));
  assert.equal(sha(db), before);
});

test('what if, where the first message was edited: it begins where the path in use does', async (t) => {
  const file = path.join(temporaryFolder(t), 'edited.db');
  const server = await Server.start(t, { db: file, args: unlimited });
  const session = await Follower.open(await server.connect(), { session: 'edited', sampling: { max_tokens: 8, seed: '3' } });
  await session.say('My name is Zora.');
  await session.say('What is my name?');
  await session.say('My name is Mira.', { after: null });
  const last = await session.start(null, { input: { continue: true }, sampling: { max_tokens: 4 } });
  await session.done(last);
  await server.stop();
  const found = await report('edited', file, '--what-if', 'temperature=1.5');
  assert.deepEqual([found.code, found.from_turn, found.turns.map(({ turn }) => turn)], [0, 2, [2, 3]]);
  const { stdout } = await replay('edited', file, '--what-if', 'temperature=1.5');
  assert.match(stdout, /\nwhat if, from turn 2 on: /);
  assert.match(stdout, /\n-- turn 3, .*\n> \(continued\)\n/);
});

test('--export: one file that goes on elsewhere, with nothing secret in it', async (t) => {
  // A server that has secrets: tokens, and the names of private folders.
  const private_ = path.join(temporaryFolder(t), 'private-folder-of-zora');
  mkdirSync(private_);
  const tokenFile = path.join(private_, 'tokens');
  writeFileSync(tokenFile, 'zora:very-secret-token-1\n', { mode: 0o600 });
  const template = path.join(private_, 'form.jinja');
  writeFileSync(template, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}");
  const from = path.join(private_, 'from.db'), to = path.join(private_, 'to.db'), file = path.join(private_, 'zora.json');
  const server = await Server.start(t, { db: from, args: [...unlimited, '--token-file', tokenFile, '--chat-template', template] });
  const author = await Follower.open(await server.connect({ token: 'very-secret-token-1' }), { session: 'moved', system: 'Be brief.' });
  for (const text of ['One', 'Two']) await author.say(text, { sampling: { max_tokens: 12, temperature: 0.8, top_logprobs: 2 } });
  assert.equal(await good(['replay', 'moved', '--db', from, '--export', file]), ''); // beside the server, without a model
  await server.stop();
  const text = readFileSync(file, 'utf8');
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.doesNotMatch(text, /very-secret|private-folder|\/tmp|\/home/);
  assert.ok(!text.includes(root));
  assert.match(text, /form\.jinja/); // its name alone: what ended a turn depends on it
  assert.equal(text, await good(['sessions', 'export', 'moved', '--db', from]));
  const twice = await run(['replay', 'moved', '--db', from, '--export', file]);
  assert.deepEqual([twice.code, readFileSync(file, 'utf8') === text], [1, true]);
  for (const more of [['--what-if', 'top_p=1'], ['--turn', '0'], ['--from-turn', '0']])
    assert.equal((await run(['replay', 'moved', '--db', from, '--export', `${file}.2`, ...more])).code, 2);
  await good(['sessions', 'import', file, '--keep-owner', '--db', to]);
  assert.equal((await report('moved', to, '--chat-template', template)).code, 0);
  assert.equal(await good(['sessions', 'export', 'moved', '--db', to]), text);
});

test('wrong usage is 2, what is not there is 1', async () => {
  const base = ['--db', db, '--model', model];
  for (const args of [base, ['zora', '--db', db], ['zora', ...base, '--memory-len', '9'], ['zora', ...base, '--from-turn', '1'],
    ['zora', ...base, '--what-if', 'temprature=1'], ['zora', ...base, '--what-if', 'top_p=7'], ['zora', ...base, '--what-if', 'hot'],
    ['zora', ...base, '--what-if', 'top_p=1', '--turn', '1'], ['zora', ...base, '--turn', 'x']]) {
    const { code, stdout } = await run(['replay', ...args]);
    assert.deepEqual([code, stdout], [2, ''], args.join(' '));
  }
  for (const args of [['nobody', ...base], ['zora', '--db', path.join(folder, 'none.db'), '--model', model],
    ['zora', ...base, '--turn', '99'], ['zora', '--db', db, '--model', folder]]) {
    const { code, stderr } = await run(['replay', ...args]);
    assert.equal(code, 1, args.join(' '));
    assert.match(stderr, /^parley: .+\n$/);
  }
  assert.match((await run(['replay', '--help'])).stdout, /^usage: parley replay SESSION /);
});
