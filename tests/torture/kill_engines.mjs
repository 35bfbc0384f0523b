// Random deaths of engine processes and their ranks under load of all protocols: killed, stopped (they hang) or with a
// segmentation fault. Every token and text is compared with a quiet server's.
// usage: kill_engines.mjs [DEATHS] [INSTANCES] [RANKS] [STAGES]   (200 2 1 1)   Exit status 1: a token was lost, doubled or
// different, or a client saw an error.
import assert from 'node:assert/strict';
import { Follower } from '../e2e/follower.mjs';
import { absent, column, connect, idsOf, inputsOf, requestOf } from '../e2e/grpc.mjs';
import { freePort, scale, Server, unlimited, until } from '../e2e/harness.mjs';
import { isAlive, livingEngines } from '../e2e/processes.mjs';
import { plain, say } from '../e2e/talk.mjs';

const [deaths = 200, instances = 2, ranks = 1, stages = 1] = process.argv.slice(2).map(Number);
const N_SESSIONS = 4, TURNS = 12;
const silence = scale < 1 ? '20' : '5'; // seconds, after which a process hangs
const args = [...unlimited, '--device', 'cpu', '--threads', '1', '--tensor-parallel', String(ranks), '--pipeline-parallel', String(stages)];
const cleanups = [], t = { after: (f) => cleanups.push(f) };

// A talk is one client's whole conversation: count is the number of its tokens or pieces of text so far.
async function converse(client, sampling, talk) {
  const session = await Follower.open(client, { memory_len: 128 });
  talk.count = () => [...session.turns.values()].reduce((sum, { ids }) => sum + ids.length, 0);
  const told = [];
  for (let i = 0; i < TURNS; i++) told.push(plain(await say(session, i, sampling)));
  assert.equal(session.fault, null);
  return told;
}

const post = (server, address, body) => fetch(`${server.url}${address}`, { method: 'POST', body: JSON.stringify(body),
  headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' } });

async function stream(server, [address, body, textIn], talk) {
  const response = await post(server, address, address.startsWith('/v1') ? { model: 'demo-model', ...body, stream: true } : body);
  assert.equal(response.status, 200, address);
  let n = 0, all = '', text = '';
  talk.count = () => n;
  for await (const bytes of response.body) {
    all += Buffer.from(bytes).toString('latin1');
    n = all.split('\ndata: ').length;
  }
  const lines = Buffer.from(all, 'latin1').toString().split('\n').filter((line) => /^data: \{/.test(line));
  assert.doesNotMatch(all, /"error":\s*\{|event: error/, address);
  for (const line of lines) text += textIn(JSON.parse(line.slice(6))) || '';
  return text;
}
const messages = [{ role: 'user', content: 'What is 17 plus 25?' }];
const drawn = { max_tokens: 48, temperature: 0.9, seed: 5, ignore_eos: true };
const streams = [
  ['/v1/chat/completions', { ...drawn, messages }, (m) => m.choices?.[0]?.delta?.content],
  ['/v1/completions', { ...drawn, prompt: 'One, two, three' }, (m) => m.choices?.[0]?.text],
  ['/v1/responses', { max_output_tokens: 48, temperature: 0, input: 'Tell me a long story.' }, (m) => m.type === 'response.output_text.delta' && m.delta],
  ['/v1/messages', { max_tokens: 48, temperature: 0, messages }, (m) => m.delta?.text],
  ['/v2/models/demo-model/generate_stream', { text_input: 'One, two, three', max_tokens: 48, parameters: { temperature: 0, ignore_eos: true } },
    (m) => m.text_output],
];

// An answer that comes whole shows no tokens before its end.
async function whole(server, [address, body, dataOf], talk) {
  talk.count = () => 3;
  const response = await post(server, address, body);
  assert.equal(response.status, 200, address);
  return dataOf(await response.json());
}
const ids = inputsOf([[40, 41, 42], [50, 51]], 32, [column('random_seed', 'UINT64', [7n, 8n]), column('runtime_top_k', 'UINT32', [20, 20])]);
const wholes = [
  ['/v2/models/fastertransformer/infer', { inputs: JSON.parse(JSON.stringify(ids, (_, v) => (typeof v === 'bigint' ? Number(v) : v))) },
    (m) => m.outputs.find(({ name }) => name === 'output_ids').data],
  ['/v1/embeddings', { model: 'demo-model', input: ['What is 17 plus 25?', 'One, two, three'] }, (m) => m.data.map(({ embedding }) => embedding)],
];

async function inferGrpc(server, talk) {
  talk.count = () => 3;
  return idsOf(await server.rpc.call('ModelInfer', requestOf(ids)));
}

async function streamGrpc(server, talk) {
  const answers = server.rpc.stream();
  talk.count = () => answers.answers.length;
  answers.send(requestOf(ids));
  return (await answers.end()).map(({ error_message, infer_response }) => [error_message, idsOf(infer_response)]);
}
/** Each gives what a client has got at its end: (server, client, talk). */
const kinds = [
  ...Array.from({ length: N_SESSIONS }, (_, i) => (server, client, talk) => converse(client, i % 2 ? {} : { temperature: 0 }, talk)),
  ...streams.map((one) => (server, client, talk) => stream(server, one, talk)),
  ...wholes.map((one) => (server, client, talk) => whole(server, one, talk)),
  ...(absent ? [] : [inferGrpc, streamGrpc].map((one) => (server, client, talk) => one(server, talk))),
];

async function start(...more) {
  const grpc = absent ? 0 : await freePort();
  const server = await Server.start(t, { args: [...args, ...(grpc ? ['--grpc-port', String(grpc)] : []), ...more] });
  server.grpc = grpc;
  if (grpc) server.rpc = connect(t, server);
  return server;
}

try {
  const quiet = await start();
  const alone = await Promise.all(kinds.map(async (kind) => kind(quiet, await quiet.connect(), {})));
  for (const [i, all] of alone.entries()) assert.ok(JSON.stringify(all).length > 8, `client ${i}: ${JSON.stringify(all)}`);
  await quiet.stop();
  const server = await start('--engine-process', 'on', '--engine-backoff', '0.1', '--engine-timeout', silence, '--rank-timeout', silence,
    '--instances', String(instances));
  const client = await server.connect();
  const n_ranks = ranks * stages;
  const pattern = n_ranks > 1 ? /engine\.rank rank=\d+ pid=(\d+)/g : /engine\.process instance=\S* pid=(\d+)/g;
  let n_dead = 0, n_talks = 0, failed = false;
  const now = [];
  const load = Promise.all(kinds.map(async (kind, i) => {
    while (n_dead < deaths && !failed) {
      now[i] = { count: () => 0 };
      assert.deepEqual(await kind(server, client, now[i]), alone[i], `client ${i}`);
      n_talks++;
    }
  })).catch((error) => { failed = true; throw error; });
  load.catch(() => {});
  const killer = (async () => {
    while (n_dead < deaths && !failed) {
      // A turn that has drawn no token between two deaths is taken for their cause (displaced.c): each draws some, and not
      // only gets those that were on their way when the process died.
      for (let i = 0; i < 2; i++) await fetch(`${server.url}/readyz`);
      const before = [...now], counts = before.map((talk) => talk.count());
      const more = 1 + Math.random() * 10;
      await until('tokens of each client', () => failed || kinds.every((_, i) => now[i].count() > (now[i] === before[i] ? counts[i] + more : 2)));
      const victims = [...server.log.matchAll(pattern)].map((match) => Number(match[1])).slice(-instances * n_ranks).filter(isAlive);
      const victim = victims[Math.floor(Math.random() * victims.length)];
      const signal = ['SIGKILL', 'SIGKILL', 'SIGKILL', 'SIGSEGV', 'SIGSTOP'][Math.floor(Math.random() * 5)];
      if (victim === undefined) continue; // they are being started again
      const engines = livingEngines(server);
      try { process.kill(victim, signal); } catch { continue; }
      n_dead++;
      await until('the loss of its engine', () => failed || engines.some((pid) => !isAlive(pid)));
    }
  })();
  await Promise.all([load, killer]);
  const moved = client.frames.filter(({ type }) => type === 'session.moved').length;
  console.log(`${n_dead} deaths, ${n_talks} conversations and answers, ${moved} turns of parley.v1 moved; no token lost, doubled or different`);
  assert.equal((await server.stop()).code, 0);
} finally {
  for (const clean of cleanups.reverse()) await clean();
}
