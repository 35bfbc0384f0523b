// A conversation of 150 turns held in three ways, in turns, so that all of them meet the same machine: a session that
// remembers everything, a session with a window of 1,024 tokens, and a client that sends the whole transcript again
// each time. Writes results/turns.json: for each turn the time to its first token and the time of each further one.
// usage: PARLEY=build/release/parley node turns.mjs [MODEL [ROUNDS [TURNS]]]     (README.md says more)
import path from 'node:path';
import { parley, root, Server, unlimited } from '../e2e/harness.mjs';
import { median, save } from './results.mjs';

const [model = path.join(root, 'configs/demo-model'), rounds = '5', turns = '150'] = process.argv.slice(2);
const FRESH = 12, ANSWER = 12, WINDOW = 1024;
const sampling = { max_tokens: ANSWER, ignore_eos: true, temperature: 0.8, seed: '1' };
const server = await Server.start(null, { model, args: [...unlimited, '--threads', '2'] });
const client = await server.connect();
const ids = (n, first) => Array.from({ length: n }, (_, i) => (i ? 300 + (i * 7919) % 3000 : first));

async function say(session, input) {
  const { done } = await client.turn(session, { ids: input }, { sampling });
  const { first_token_ms, decode_ms } = done.timings;
  return { log: done.usage.log_tokens, kept: done.cache.kept_tokens, first_token_ms, token_us: decode_ms * 1000 / (ANSWER - 1) };
}

/** A new session that gets the transcript as its first turn; its first token is another each time, so nothing is shared. */
async function resend(length, turn) {
  const session = await client.open({ memory_len: client.hello.models[0].max_memory_len });
  const took = await say(session, ids(length, 1000 + turn));
  if (took.kept) throw new Error(`${took.kept} tokens were kept: the transcript was not computed`);
  await client.request({ type: 'session.close', session, delete: true });
  return took;
}

const runs = Array.from({ length: Number(turns) }, () => ({ session: [], window: [], resent: [] }));
for (let round = 0; round < Number(rounds); round++) {
  const whole = await client.open({ memory_len: client.hello.models[0].max_memory_len });
  const window = await client.open({ memory_len: WINDOW });
  for (let turn = 0; turn < Number(turns); turn++) {
    const first = 2000 + round * 10;
    runs[turn].session.push(await say(whole, ids(FRESH, first)));
    runs[turn].window.push(await say(window, ids(FRESH, first + 1)));
    runs[turn].resent.push(await resend(runs[turn].session.at(-1).log - ANSWER, turn));
  }
  for (const session of [whole, window]) await client.request({ type: 'session.close', session, delete: true });
  console.error(`round ${round + 1} of ${rounds}`);
}
const rounded = (x) => Math.round(x * 1000) / 1000;
const of = (some) => ({ first_token_ms: rounded(median(some.map((x) => x.first_token_ms))), token_us: rounded(median(some.map((x) => x.token_us))) });
save('turns', parley, {
  source: 'node tests/bench/turns.mjs', model: client.hello.models[0].name, backend: client.hello.models[0].backend, threads: 2,
  rounds: Number(rounds), new_tokens: FRESH, answer_tokens: ANSWER, window: WINDOW,
  turns: runs.map((run, i) => ({ turn: i + 1, log_tokens: run.session[0].log, session: of(run.session), window: of(run.window), resent: of(run.resent) })),
});
await client.close();
await server.stop();
process.exit(0);
