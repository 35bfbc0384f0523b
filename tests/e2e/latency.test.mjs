// A token is sent when it is drawn: it does not wait for its commit, the end of its step, or work for other sessions.
// `make bench` has the figures.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Follower } from './follower.mjs';
import { Server, few, unlimited } from './harness.mjs';

/** [[bound in seconds, tokens within it], ...] */
async function tokenToSocket(server) {
  return [...await server.metrics()].map(([name, n]) => [/^parley_token_to_socket_seconds_bucket\{le="(.+)"\}/.exec(name)?.[1], n])
    .filter(([bound]) => bound).map(([bound, n]) => [Number(bound.replace('+Inf', 'Infinity')), n]);
}

test('tokens of many sessions at once are on their sockets in milliseconds, whenever they are committed', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--commit-interval-us', '2000000', '--max-sequences', '16', '--max-queued-turns', '16'] });
  const followers = [];
  for (let i = 0; i < 16; i++) followers.push(await Follower.open(await server.connect()));
  const tokens = few(100);
  const seen = []; // a busy machine makes one round or another late; what waits for commits is late in all of them
  for (let round = 0, before = await tokenToSocket(server); round < 5; round++) {
    const said = await Promise.all(followers.map((follower) => follower.say('Tell me a story.', { sampling: { max_tokens: tokens, ignore_eos: true } })));
    said.forEach((turn) => assert.equal(turn.ids.length, tokens));
    const after = await tokenToSocket(server);
    const histogram = after.map(([bound, n], i) => [bound, n - before[i][1]]);
    before = after;
    const all = histogram.at(-1)[1], within = (seconds) => histogram.find(([bound]) => bound === seconds)[1];
    assert.ok(all > 0 && all <= 16 * tokens, `${all} of ${16 * tokens} tokens counted`);
    // Joined deltas, of a client that did not read for a moment, count once; those of a busy machine are many. What waits
    // for commits takes a second on average, and joins some thousand tokens.
    if (all > 16 * tokens / 8 && within(0.25) > all / 2 && within(1) > all * 0.95) return;
    seen.push(histogram);
  }
  assert.fail(`never half of them within 250 ms and nearly all within a second: ${JSON.stringify(seen)}`);
});

test('what a client missed before it came does not count as late', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const author = await Follower.open(await server.connect());
  await author.say('Tell me a story.', { sampling: { max_tokens: 20, ignore_eos: true } });
  const before = (await tokenToSocket(server)).at(-1)[1];
  assert.ok(before > 0);
  const late = await Follower.attach(await server.connect(), author.session);
  await late.say('And on.', { sampling: { max_tokens: 5, ignore_eos: true } });
  const counted = (await tokenToSocket(server)).at(-1)[1] - before;
  assert.ok(counted <= 10, `${counted} tokens for two clients of a turn of five`);
});
