// Two owners on one server. Alice takes all places and fills the queue; Bob's turns get a place within two steps all the
// same, and Alice's end with the tokens that they have alone. Replays wait for turns.
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { few, scale, Server, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

const tokens = { alice: 'alice-token-0123456789', bob: 'bob-token-0123456789' };
const places = 4, queued = 16;
const long = few(400); // tokens of a long turn
const told = few(1500); // of those that are to run until Bob has come and gone, however busy the machine
const sampling = (i, n) => ({ sampling: { max_tokens: n, ignore_eos: true, temperature: 1, seed: String(i) } });

async function start(t, args = []) {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token} admin\n`).join('')); // an admin may read /metrics
  chmodSync(file, 0o600);
  const server = await Server.start(t, { args: ['--token-file', file, ...unlimited, '--max-sequences', String(places), '--max-queued-turns', String(queued), ...args] });
  const metric = async (name) => {
    const page = await (await fetch(`${server.url}/metrics`, { headers: { authorization: `Bearer ${tokens.bob}` } })).text();
    return Number(page.split('\n').find((row) => row.startsWith(`${name} `)).split(' ')[1]);
  };
  return { server, metric, alice: await server.connect({ token: tokens.alice }), bob: await server.connect({ token: tokens.bob }) };
}

/** Milliseconds to Bob's first token, of n turns one after the other, ascending. */
async function firstTokens(bob, n) {
  const took = [];
  for (let i = 0; i < n; i++) {
    const follower = await Follower.open(bob);
    const began = performance.now();
    const turn = await follower.start(`Count from ${i} to 9.`, sampling(i, 4));
    took.push((await follower.done(turn)).arrivals[0] - began);
  }
  return took.sort((a, b) => a - b);
}
/** What another owner's flood may add to the median: its part of the machine, and a busy machine. Without fairness it is
 * seconds, for each turn. */
const slack = (alone) => 12 * alone.at(-1) + 250 / Math.min(scale, 1);

test('all places and the queue taken by one owner: another one waits for two steps at most', async (t) => {
  const { metric, alice, bob } = await start(t);
  const stories = Array.from({ length: places }, (_, i) => i);
  const want = [];
  for (const i of stories) want.push((await (await Follower.open(alice)).say(`Tell me story ${i}.`, sampling(i, told))).ids);
  const alone = await firstTokens(bob, 10);

  const tellers = await Promise.all(stories.map(() => Follower.open(alice)));
  const turns = await Promise.all(tellers.map((follower, i) => follower.start(`Tell me story ${i}.`, sampling(i, told))));
  const flood = await Promise.all(Array.from({ length: queued + 8 }, () => Follower.open(alice)));
  const answers = await Promise.all(flood.map((follower, i) => follower.start('Hello!', sampling(i, long)).then((turn) => ({ follower, turn }), ({ answer }) => answer)));
  const refused = answers.filter(({ code }) => code);
  assert.ok(refused.length >= 8 - places, `${refused.length} refused`); // some of the first may have ended
  for (const { code, retry_after_ms } of refused) assert.deepEqual([code, retry_after_ms > 0], ['overloaded', true]);
  const busy = await firstTokens(bob, 10); // none of them is refused
  t.diagnostic(`first token alone ${alone.map(Math.round)} ms, beside ${places + queued} turns ${busy.map(Math.round)} ms`);
  const running = tellers.filter((follower, i) => !follower.turns.get(turns[i]).done).length + answers.filter(({ follower, turn }) => follower && !follower.turns.get(turn)?.done).length;
  assert.ok(running > places, `${running} of Alice's turns still compete`);
  assert.ok(busy[5] < slack(alone), `${busy} ms, alone ${alone}`);
  assert.ok(await metric('parley_engine_pauses_total') > 0);

  let paused = 0;
  for (const [i, follower] of tellers.entries()) {
    const { ids, done: { timings } } = await follower.done(turns[i]);
    assert.deepEqual(ids, want[i], `story ${i}`);
    paused += timings.paused_ms;
    assert.ok(timings.tokens_per_second * timings.decode_ms / 1000 > told - 2, `${timings.tokens_per_second} tokens/s of a turn that paused`);
  }
  assert.ok(paused > 0, 'the ends of paused turns say for how long');
  for (const { follower, turn } of answers.filter((answer) => answer.follower))
    assert.equal((await follower.done(turn)).ids.length, long);
  await until('an idle engine', async () => (await metric('parley_engine_requests_running')) + (await metric('parley_engine_requests_paused')) === 0);
});

test('replays of one owner wait for the turns of another, and end with the right verdict', async (t) => {
  const { server, metric, alice, bob } = await start(t);
  const author = await Follower.open(alice);
  for (let i = 0; i < 2; i++) await author.say(`Tell me story ${i}.`, sampling(i, long));
  const alone = await firstTokens(bob, 10);

  const clients = await Promise.all(Array.from({ length: 2 * places }, () => server.connect({ token: tokens.alice })));
  let over = false, equal = 0;
  const replaying = Promise.all(clients.map(async (client) => {
    while (!over) {
      const request_id = client.newId();
      client.send({ type: 'turn.replay', session: author.session, turn: 1, request_id });
      const found = await client.next((frame) => frame.request_id === request_id && frame.type !== 'turn.replaying');
      if (found.type === 'turn.replayed') equal += found.equal ? 1 : NaN;
      else assert.ok(found.code === 'overloaded' && found.retry_after_ms > 0, JSON.stringify(found));
      if (found.code) await sleep(found.retry_after_ms);
    }
  }));
  await until('all places replaying', async () => (await metric('parley_engine_idle_requests_running')) === places);
  const busy = await firstTokens(bob, 10);
  t.diagnostic(`first token alone ${alone.map(Math.round)} ms, beside replays ${busy.map(Math.round)} ms`);
  over = true;
  assert.ok(busy[5] < slack(alone), `${busy} ms, alone ${alone}`);
  await replaying;
  assert.ok(equal >= clients.length / 2, `${equal} replays`);
});
