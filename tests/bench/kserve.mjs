// Eight sequences over each of the protocols of FasterTransformer's clients, beside eight sessions over parley.v1: tokens per
// second of all together, in turns, so that all of them meet the same machine. Writes results/kserve.json.
// usage: PARLEY=build/release/parley node kserve.mjs [MODEL [ROUNDS [TOKENS]]]     (README.md says more)
import path from 'node:path';
import { parley, root, Server, freePort, unlimited } from '../e2e/harness.mjs';
import { absent, column, connect, inputsOf, requestOf } from '../e2e/grpc.mjs';
import { median, save } from './results.mjs';

const [model = path.join(root, 'configs/demo-model'), rounds = '7', tokens = '200'] = process.argv.slice(2);
const SEQUENCES = 8, TURNS = 3, FRESH = 12, ANSWER = Number(tokens);
const SESSION = TURNS * (FRESH + ANSWER) + 1;
const port = await freePort();
const server = await Server.start(null, { model, args: [...unlimited, '--threads', '2', ...(absent ? [] : ['--grpc-port', String(port)])] });
server.grpc = port;
const clients = await Promise.all(Array.from({ length: SEQUENCES }, () => server.connect()));
const grpc = connect(null, server);
const ids = (n, first) => Array.from({ length: n }, (_, i) => (i ? 300 + (i * 7919) % 3000 : first));
let number = 0;

const lengths = [column('session_len', 'UINT32', [SESSION]), column('memory_len', 'UINT32', [SESSION])];
const inputs = (turn, first) => [...inputsOf([ids(FRESH, first)], ANSWER), column('min_length', 'INT32', [ANSWER]), ...(turn ? [] : lengths)];
const flags = (sequence, turn) => ({ sequence_id: sequence, sequence_start: turn === 0, sequence_end: turn === TURNS - 1 });
const check = (n) => { if (n !== ANSWER) throw new Error(`${n} tokens instead of ${ANSWER}`); };
const sampling = { max_tokens: ANSWER, ignore_eos: true, temperature: 0 };

/** Each holds one conversation of TURNS turns. */
const ways = {
  async 'parley.v1'(first, i) {
    const client = clients[i];
    const session = await client.open({ session_len: SESSION, memory_len: SESSION });
    for (let turn = 0; turn < TURNS; turn++) {
      const { done } = await client.turn(session, { ids: ids(FRESH, first) }, { sampling });
      check(done.usage.output_tokens);
    }
  },
  async 'HTTP infer'(first) {
    const sequence = ++number;
    for (let turn = 0; turn < TURNS; turn++) {
      const response = await fetch(`${server.url}/v2/models/fastertransformer/infer`, {
        method: 'POST', body: JSON.stringify({ parameters: flags(sequence, turn), inputs: inputs(turn, first) }) });
      const answer = await response.json();
      check(answer.outputs.find((o) => o.name === 'sequence_length').data[0] - (turn + 1) * FRESH - turn * ANSWER);
    }
  },
  async 'HTTP generate_stream'(first) { // text, without sequences
    for (let turn = 0; turn < TURNS; turn++) {
      const response = await fetch(`${server.url}/v2/models/ensemble/generate_stream`, {
        method: 'POST', body: JSON.stringify({ text_input: `Question ${first}: what is ${turn} plus two, my friend?`, parameters: sampling }) });
      if (!response.ok) throw new Error(await response.text());
      for await (const piece of response.body) void piece;
    }
  },
  async 'gRPC ModelInfer'(first) {
    const sequence = ++number;
    for (let turn = 0; turn < TURNS; turn++) await grpc.call('ModelInfer', requestOf(inputs(turn, first), flags(sequence, turn)));
  },
  async 'gRPC ModelStreamInfer'(first) {
    const sequence = ++number;
    const stream = grpc.stream();
    for (let turn = 0; turn < TURNS; turn++) {
      stream.send(requestOf(inputs(turn, first), flags(sequence, turn)));
      await new Promise((resolve, reject) => {
        const take = (answer) => {
          if (answer.error_message) reject(new Error(answer.error_message));
          if (!answer.infer_response?.parameters.triton_final_response?.bool_param) return;
          stream.stream.off('data', take);
          resolve();
        };
        stream.stream.on('data', take);
      });
    }
    check((await stream.end()).length / TURNS);
  },
};
if (absent) for (const way of Object.keys(ways).filter((name) => name.startsWith('gRPC'))) delete ways[way];

const rates = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
const processor = Object.fromEntries(Object.keys(ways).map((way) => [way, []])); // the server's, microseconds for each token
for (let round = -1; round < Number(rounds); round++) {
  for (const [way, hold] of Object.entries(ways)) {
    const used = await server.metric('process_cpu_seconds_total');
    const begin = performance.now();
    await Promise.all(Array.from({ length: SEQUENCES }, (_, i) => hold(2000 + (round + 2) * 100 + i, i)));
    const seconds = (performance.now() - begin) / 1000, n = SEQUENCES * TURNS * ANSWER;
    if (round < 0) continue; // warms up
    rates[way].push(n / seconds);
    processor[way].push(((await server.metric('process_cpu_seconds_total')) - used) * 1e6 / n);
  }
  console.error(`round ${round + 1} of ${rounds}`);
}
const base = rates['parley.v1'];
const rows = Object.entries(rates).map(([way, all]) => ({
  way, tokens_per_s: Math.round(median(all)),
  ratio: Math.round(median(all.map((x, i) => x / base[i])) * 1000) / 1000, // of the same round
  server_us_per_token: Math.round(median(processor[way])),
}));
console.table(rows);
save('kserve', parley, {
  source: 'node tests/bench/kserve.mjs', model: clients[0].hello.models[0].name, backend: clients[0].hello.models[0].backend, threads: 2,
  rounds: Number(rounds), sequences: SEQUENCES, turns: TURNS, new_tokens: FRESH, answer_tokens: ANSWER, ways: rows,
});
await Promise.all(clients.map((client) => client.close()));
await server.stop();
process.exit(0);
