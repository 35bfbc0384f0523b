// The product's first promise: the model remembers earlier turns, whatever happened to the cache and the process in
// between.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Follower, transcript } from './follower.mjs';
import { longTest, parley, Server, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';

const greedy = { temperature: 0, max_tokens: 48, logprobs: true };
const talk = [
  'My name is Zora.', 'Hello!', 'How are you?', 'What is 2 plus 3?', 'Count from 1 to 5.', 'What is the capital of France?',
  'Tell me a joke.', 'What can you do?', 'Thank you.', 'Tell me a short story.', 'That was nice.', 'What is my name?',
];
const evictAfter = 4; // turns; the server is started anew after restartAfter
const restartAfter = 8;

/** All the talk in one session; disturb(turn) may return the follower of another server. */
async function converse(follower, disturb = () => follower) {
  const turns = [];
  let now = follower;
  for (const [i, line] of talk.entries()) {
    now = await disturb(i, now);
    turns.push(await now.say(line));
  }
  return turns;
}

for (const [where, host] of [['parked in host memory', '64MiB'], ['given up', '0']])
longTest(`a name is known after ten turns, its cache ${where} and a restart, token for token`, async (t) => {
  const parks = host !== '0';
  const quiet = await Server.start(t, { args: unlimited });
  const undisturbed = await converse(await Follower.open(await quiet.connect(), { sampling: greedy }));
  assert.match(undisturbed.at(-1).text, /Zora/);
  assert.ok(undisturbed.slice(1).every((turn) => turn.done.cache.source === 'kept'));
  await quiet.stop();

  const options = { db: path.join(temporaryFolder(t), 'parley.db'),
    args: [...unlimited, '--max-sequence-idle-microseconds', '1500000', '--host-cache-bytes', host] };
  let server = await Server.start(t, options);
  const first = await Follower.open(await server.connect(), { sampling: greedy });
  const turns = await converse(first, async (turn, now) => {
    if (turn === evictAfter) {
      const evicted = await now.wait('the eviction', () => now.evictions.find(({ seq }) => seq > now.turns.get(turn - 1).done.seq));
      const state = parks ? 'parked' : 'cold';
      assert.deepEqual([evicted.type, evicted.reason, evicted.state], [parks ? 'session.parked' : 'session.evicted', 'idle', state]);
      const { session } = await now.client.ask({ type: 'session.get', session: now.session });
      assert.deepEqual([session.state, session.cached_tokens], [state, 0]);
    }
    if (turn !== restartAfter) return now;
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
    server = await Server.start(t, options);
    return Follower.attach(await server.connect(), now.session, now.seq);
  });
  assert.match(turns.at(-1).text, /Zora/);
  for (const [i, turn] of turns.entries()) {
    assert.deepEqual(transcript(turn), transcript(undisturbed[i]), `turn ${i}: ${talk[i]}`);
    if (i === restartAfter) assert.equal(turn.done.cache.source, 'recomputed', `turn ${i}`);
  }
  const back = turns[evictAfter].done.cache, before = turns[evictAfter - 1].done.usage.log_tokens;
  // And the record has it after the restart, for clients and for tools.
  const client = await server.connect();
  const page = await client.ask({ type: 'session.get', session: first.session });
  const { turn } = await client.ask({ type: 'turn.get', session: first.session, turn: evictAfter });
  assert.deepEqual([page.turns[evictAfter].cache, turn.cache], [back, back]);
  const shown = (...json) => execFileSync(parley, ['sessions', 'show', first.session, '--db', options.db, ...json], { encoding: 'utf8' });
  assert.deepEqual(JSON.parse(shown('--json')).turns.map((one) => one.cache.resume_ms), turns.map((one) => one.done.cache.resume_ms));
  assert.match(shown(), new RegExp(`cache ${back.source}${parks ? ', restored' : ''} in ${back.resume_ms.toFixed(1)} ms`));
  assert.deepEqual([back.source, back.kept_tokens], parks ? ['host', before - 1] : ['recomputed', 0]);
  assert.ok(back.resume_ms > 0 && back.resume_ms < turns[evictAfter].done.timings.prefill_ms);
});

longTest('the words of a restarted server are those that were said: state, titles, search', async (t) => {
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: unlimited };
  let server = await Server.start(t, options);
  let client = await server.connect();
  const follower = await Follower.open(client, { sampling: greedy, system: 'You are a helpful assistant.', memory_len: 256, sink_len: 2 });
  await follower.say('My name is Zora.');
  await follower.say('What is the capital of France?');
  const settled = async () => {
    const { session, turns } = await client.ask({ type: 'session.get', session: follower.session });
    return { session: { ...session, state: null, cached_tokens: null }, turns };
  };
  const before = await settled();
  assert.equal(before.session.title, 'My name is Zora.');
  await server.stop();
  server = await Server.start(t, options);
  client = await server.connect();
  assert.deepEqual(await settled(), before);
  for (const [query, found] of [['capital fran', 1], ['zora', 1], ['zora germany', 0]]) {
    const list = await client.ask({ type: 'session.list', query });
    assert.deepEqual(list.sessions.map((s) => s.id), found ? [follower.session] : [], query);
  }
});

test('memory pressure evicts the session that rested longest, and its words come back', async (t) => {
  // Room for two full windows of 256 and a little: the third session's turn needs another one's blocks.
  const probe = await Server.start(t, { args: unlimited });
  const info = (await probe.connect()).hello.models[0];
  await probe.stop();
  assert.ok(info.memory_len > 0);
  const perToken = 8 * 2 * 2 * 64 * 4; // layers, keys and values, heads, width, f32
  const server = await Server.start(t, { args: [...unlimited, '--kv-cache-bytes', String(1100 * perToken), '--prefill-chunk-tokens', '64',
    '--memory-len', '256', '--host-cache-bytes', '0', '--max-sequence-idle-microseconds', '600000000'] });
  const client = await server.connect();
  const ids = Array.from({ length: 300 }, (_, i) => 300 + (i * 37) % 3000);
  const followers = [];
  for (let i = 0; i < 6; i++) {
    followers.push(await Follower.open(client));
    await followers[i].say({ ids: ids.map((id) => id + i) }, { sampling: { temperature: 0, max_tokens: 4, ignore_eos: true } });
  }
  await followers[0].wait('an eviction under pressure', () => followers[0].evictions[0]);
  assert.equal(followers[0].evictions[0].reason, 'pressure');
  assert.equal(followers[5].evictions.length, 0);
  const again = await followers[0].say({ ids: [7, 8, 9] }, { sampling: { temperature: 0, max_tokens: 8, ignore_eos: true, logprobs: true } });
  assert.equal(again.done.cache.source, 'recomputed');
  const roomy = await Server.start(t, { args: [...unlimited, '--memory-len', '256'] });
  const other = await Follower.open(await roomy.connect());
  await other.say({ ids }, { sampling: { temperature: 0, max_tokens: 4, ignore_eos: true } });
  const straight = await other.say({ ids: [7, 8, 9] }, { sampling: { temperature: 0, max_tokens: 8, ignore_eos: true, logprobs: true } });
  assert.deepEqual(transcript(again), transcript(straight));
});

test('what one owner\'s sessions have in common at their start is stored once; another owner\'s computes its own', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, 'alice:alice-token-0123456789\nbob:bob-token-0123456789 admin\n');
  chmodSync(file, 0o600);
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  const system = `You are brief. ${'Numbers are written in full. '.repeat(40)}`;
  const alice = await server.connect({ token: 'alice-token-0123456789' });
  const bob = await server.connect({ token: 'bob-token-0123456789' });
  const first = await (await Follower.open(alice, { system, sampling: greedy })).say('My name is Zora.');
  assert.deepEqual([first.done.cache.source, first.done.cache.kept_tokens], ['none', 0]);

  const second = await (await Follower.open(alice, { system, sampling: greedy })).say('Tell me a joke.');
  const { kept_tokens, computed_tokens, source } = second.done.cache;
  assert.equal(source, 'none');
  assert.ok(kept_tokens >= 192 && kept_tokens % 64 === 0, `${kept_tokens} tokens shared`);
  assert.equal(kept_tokens + computed_tokens, second.done.usage.input_tokens);

  const other = await (await Follower.open(bob, { system, sampling: greedy })).say('Tell me a joke.');
  assert.deepEqual([other.done.cache.source, other.done.cache.kept_tokens], ['none', 0]);
  assert.deepEqual(transcript(other), transcript(second)); // with the bits of the log-probabilities
  const metrics = await (await fetch(`${server.url}/metrics`, { headers: { authorization: 'Bearer bob-token-0123456789' } })).text();
  assert.match(metrics, new RegExp(`^parley_engine_shared_prompt_tokens_total ${kept_tokens}$`, 'm'));
});
