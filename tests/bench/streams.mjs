// What a streamed chat completion costs beside parley.v1: 64 streams at a time of either kind, in turns, and how long their tokens
// take from the draw to the end of their write, by the server's own histogram. Writes results/streams.json.
// usage: PARLEY=build/release/parley node streams.mjs [ROUNDS [STREAMS [TOKENS]]]     (README.md says more)
import http from 'node:http';
import { Client, Server, parley } from '../e2e/harness.mjs';
import { median, save } from './results.mjs';

const [rounds = 5, streams = 64, tokens = 200] = process.argv.slice(2).map(Number);
const server = await Server.start(null, { args: ['--max-connections-per-ip', '4000', '--messages-per-second', '100000', '--message-burst', '1000000', '--max-sequences', String(streams), '--max-queued-turns', String(streams)] });
const clients = await Promise.all(Array.from({ length: streams }, () => Client.connect(server)));
const sampling = { max_tokens: tokens, ignore_eos: true, temperature: 0.7 };

const post = (body, take) => new Promise((resolve, reject) => {
  const text = JSON.stringify({ model: 'demo-model', ...body });
  http.request(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) } },
    (response) => {
      const pieces = [];
      response.on('data', (piece) => take && pieces.push(piece)).on('end', () => resolve(take && JSON.parse(Buffer.concat(pieces))));
      if (response.statusCode !== 200) reject(new Error(`status ${response.statusCode}`));
    }).on('error', reject).end(text);
});

/** Each begins a conversation, and gives what runs its second turn. Frames are not parsed then: the client must not be what is measured. */
const ways = {
  'parley.v1': async (i, round) => {
    const session = await clients[i].open();
    await clients[i].turn(session, `Hello ${round} ${i}`, { sampling: { max_tokens: 4 } });
    return async () => {
      const { socket } = clients[i], listeners = socket.listeners('message');
      socket.removeAllListeners('message');
      const over = new Promise((resolve) => socket.on('message', (bytes) => bytes.includes('"turn.done"') && resolve()));
      socket.send(JSON.stringify({ type: 'turn.start', session, input: { content: `Question ${round} ${i}` }, sampling }));
      await over;
      socket.removeAllListeners('message');
      listeners.forEach((listener) => socket.on('message', listener));
    };
  },
  'chat completions': async (i, round) => {
    const messages = [{ role: 'user', content: `Hello ${round} ${i}, over HTTP` }];
    const { choices: [{ message }] } = await post({ messages, max_tokens: 4 }, true);
    messages.push(message, { role: 'user', content: `Question ${round} ${i}` });
    return () => post({ messages, stream: true, ...sampling });
  },
};

/** [[bound, observations at or below it], ...] */
async function buckets() {
  const page = await (await fetch(`${server.url}/metrics`)).text();
  return [...page.matchAll(/^parley_token_to_socket_seconds_bucket\{le="([^"]+)"\} (\d+)/gm)].map(([, bound, count]) => [Number(bound.replace('+Inf', 'Infinity')), Number(count)]);
}
/** Milliseconds, even within a bucket. */
function quantile(histogram, q) {
  const wanted = q * histogram.at(-1)[1], at = histogram.findIndex(([, count]) => count >= wanted);
  const [low, below] = at > 0 ? histogram[at - 1] : [0, 0], [high, count] = histogram[at];
  return 1000 * (high === Infinity ? low : low + (high - low) * (wanted - below) / (count - below));
}

const runs = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
for (let round = 0; round < rounds; round++)
  for (const [way, begin] of Object.entries(ways)) {
    const ready = await Promise.all(Array.from({ length: streams }, (_, i) => begin(i, round)));
    const before = await buckets(), began = performance.now();
    await Promise.all(ready.map((run) => run()));
    const seconds = (performance.now() - began) / 1000, after = await buckets();
    const histogram = after.map(([bound, count], i) => [bound, count - before[i][1]]);
    runs[way].push({ p50: quantile(histogram, 0.5), p99: quantile(histogram, 0.99), per_second: streams * tokens / seconds, counted: histogram.at(-1)[1] });
  }
const of = (way, key) => median(runs[way].map((run) => run[key]));
const figures = Object.keys(ways).map((way) => ({ way, p50_ms: of(way, 'p50'), p99_ms: of(way, 'p99'), tokens_per_second: of(way, 'per_second'), counted: of(way, 'counted') }));
const over_ms = median(runs['chat completions'].map((run, i) => run.p99 - runs['parley.v1'][i].p99));
console.table(figures);
console.log(`a streamed chat completion's token is ${over_ms.toFixed(2)} ms behind a delta of parley.v1 at p99 (goal: 1 ms)`);
save('streams', parley, { source: 'node tests/bench/streams.mjs', rounds, streams, tokens, figures, p99_over_ms: over_ms });
await Promise.all(clients.map((client) => client.terminate()));
await server.stop();
process.exit(0);
