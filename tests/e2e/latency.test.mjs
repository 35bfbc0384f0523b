// A token goes out when it is drawn: not with its commit, not with the end of its step, not behind what is done for others.
// The bounds are for a machine that does ten other things; `make bench` has the figures.
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
  const said = await Promise.all(followers.map((follower) => follower.say('Tell me a story.', { sampling: { max_tokens: tokens, ignore_eos: true } })));
  said.forEach((turn) => assert.equal(turn.ids.length, tokens));
  const histogram = await tokenToSocket(server);
  const all = histogram.at(-1)[1], within = (seconds) => histogram.find(([bound]) => bound === seconds)[1];
  // Joined deltas, of a client that did not read for a moment, count once.
  assert.ok(all > 16 * tokens / 2 && all <= 16 * tokens, `${all} of ${16 * tokens} tokens counted`);
  assert.ok(within(0.05) > all / 2, `half of them within 50 ms: ${JSON.stringify(histogram)}`);
  assert.ok(within(1) > all * 0.95, `nearly all within a second: ${JSON.stringify(histogram)}`);
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
