// One owner that uses all of its limits slows no other one: the attacks of attacks.mjs for some seconds each.
import { test } from 'node:test';
import { harmless } from './attacks.mjs';
import { scale } from './harness.mjs';

const asan = scale < 1; // a sanitizer's server is slow by itself

test('a flood of ping frames', (t) =>
  harmless(t, 'pings', { scale: 1, bounds: { first_token_ms: asan ? 2000 : 50, ping_ms: asan ? 1000 : 20, memory_mib: 64, stop_ms: 30000 } }));

// Without fairness Bob waits for one of Alice's long turns: tens of seconds.
for (const [name, what] of [['places', 'long turns in all places'], ['replays', 'replays in all places']])
  test(what, (t) => harmless(t, name, { scale: 0.4, patience: 60, args: ['--drain-timeout', '2'], bounds: { first_token_ms: asan ? 4000 : 250, refused: 0 } }));

// Words that could never fit a session are refused unread; the rest is parsed beside the net thread.
test('messages of a megabyte from all connections', (t) =>
  harmless(t, 'megabytes', { scale: 1, bounds: { first_token_ms: asan ? 4000 : 50, ping_ms: asan ? 2000 : 20, memory_mib: asan ? 1000 : 256, stop_ms: 30000 } }));

test('watchers of sessions with long prompts that are opened all the time', (t) =>
  harmless(t, 'watchers', { scale: 0.3, bounds: { first_token_ms: asan ? 4000 : 50, memory_mib: asan ? 500 : 64, stop_ms: 30000 } }));
