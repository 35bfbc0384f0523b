// Clients of KServe, over HTTP and gRPC, while engine processes are killed and while a server is replaced by another one: every
// token is that of a quiet server, a stream that has begun ends whole, and a sequence goes on.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import test from 'node:test';
import { absent, column, connect, grpc, idsOf, inputsOf, requestOf, startServer } from './grpc.mjs';
import { afterwards, parley, scale, sleep, temporaryFolder, until } from './harness.mjs';
import { engineProcesses } from './processes.mjs';

const skip = absent;
const N = scale < 1 ? 8 : 24;
const rows = inputsOf([[5, 9, 33], [7, 8, 9, 10, 11]], N);
const length = [column('session_len', 'UINT32', [200]), column('memory_len', 'UINT32', [200])];
const post = (server, address, body) => fetch(`${server.url}/v2/models/${address}`, { method: 'POST', body: JSON.stringify(body) });

class Refused extends Error {} // nothing of the request was done: it is said again
const refusedIf = (is, error) => { throw is ? new Refused(error.message) : error; };
const unavailable = (error) => refusedIf(error.code === grpc.status.UNAVAILABLE, error);
// A connection that the server closes before it has read the request.
const notListening = (error) => refusedIf(['ECONNREFUSED', 'ECONNRESET', 'UND_ERR_SOCKET'].includes(error.cause?.code), error);

async function answered(server, address, body) {
  const response = await post(server, address, body).catch(notListening);
  const text = await response.text();
  if (response.status === 503) throw new Refused(text);
  assert.equal(response.status, 200, text);
  return text;
}

async function streamed(server) {
  const stream = server.rpc.stream();
  stream.send(requestOf(rows));
  const begun = () => stream.answers.some(({ error_message }) => !error_message);
  const answers = await stream.end().catch((error) => (begun() ? assert.fail(`a stream was cut: ${error.message}`) : unavailable(error)));
  if (!begun() && answers.length > 0) throw new Refused(answers[0].error_message);
  return answers.map(({ error_message, infer_response }) => [error_message, idsOf(infer_response)]);
}

const stateless = [
  async (server) => idsOf(await server.rpc.call('ModelInfer', requestOf(rows)).catch(unavailable)),
  streamed,
  async (server) => JSON.parse(await answered(server, 'fastertransformer/infer', { inputs: rows })).outputs.find(({ name }) => name === 'output_ids').data,
];

let sequences = 0;
/** A sequence of three requests, over gRPC and HTTP in turn; once(ask) asks until it is not refused. */
async function sequence(once) {
  const id = `room-${++sequences}`, told = [];
  for (const [i, turn] of [[5, 9, 33], [40, 41], [12]].entries()) {
    const parameters = { sequence_id: id, sequence_start: i === 0, sequence_end: i === 2 };
    const inputs = inputsOf([turn], N, i === 0 ? length : []);
    told.push(await once(async (server) => (i === 1
      ? [JSON.parse(await answered(server, 'fastertransformer/infer', { parameters, inputs })).outputs.find(({ name }) => name === 'output_ids').data]
      : idsOf(await server.rpc.call('ModelInfer', requestOf(inputs, parameters)).catch(unavailable)))));
  }
  return told;
}
const kinds = [...stateless.map((ask) => (once) => once(ask)), sequence, sequence];

const opened = async (t, options) => {
  const server = await startServer(t, options);
  server.rpc = connect(t, server);
  return server;
};

/** All kinds at once, again and again, until stop(); n[i]: how often kind i was answered. */
function load(once, want) {
  const n = kinds.map(() => 0);
  let over = false;
  const all = Promise.all(kinds.map(async (kind, i) => {
    for (; !over; n[i]++) assert.deepEqual(await kind(once), want[i], `kind ${i}`);
  })).then(() => null, (error) => { over = true; return error; });
  return {
    /** Each was answered once more, but for the requests that were under way. */
    more: () => { const before = [...n]; return until('answers of each kind', () => over || n.every((k, i) => k > before[i])); },
    stop: async () => { over = true; assert.equal(await all, null); return n; },
  };
}

async function quietly(t) {
  const server = await opened(t);
  const want = [];
  for (const kind of kinds) want.push(await kind((ask) => ask(server)));
  await server.stop();
  for (const told of want) assert.ok(JSON.stringify(told).length > 2 * N);
  return want;
}

test('kill -9 of the engine process: no client of KServe or gRPC sees an error, or another token', { skip }, async (t) => {
  const want = await quietly(t);
  const server = await opened(t, { args: ['--engine-process', 'on', '--engine-backoff', '0.2', '--threads', '1'] });
  const clients = load((ask) => ask(server), want);
  const moved = async () => await server.metric('parley_sessions_moved_turns_total{reason="lost"}') ?? 0;
  for (let k = 1; k <= 3 || (k < 20 && !(await moved())); k++) { // a kill may come between two answers
    await clients.more();
    process.kill(engineProcesses(server).at(-1), 'SIGKILL');
    await until('another process', () => engineProcesses(server).length > k);
  }
  await clients.more();
  await clients.stop();
  assert.ok(await moved() > 0);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('a rolling restart: requests end or are refused whole, streams are not cut, and sequences go on elsewhere', { skip }, async (t) => {
  const want = await quietly(t);
  const folder = temporaryFolder(t);
  let server = await opened(t, { db: path.join(folder, '0.db') });
  let refused = 0, over = false;
  afterwards(t, () => { over = true; });
  const once = async (ask) => {
    for (;; refused++) {
      try {
        return await ask(server);
      } catch (error) {
        if (over || !(error instanceof Refused)) throw error;
      }
      await sleep(20);
    }
  };
  const clients = load(once, want);
  for (let i = 1; i <= 3; i++) {
    await clients.more();
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
    const db = path.join(folder, `${i}.db`);
    execFileSync(parley, ['sessions', 'move', '--db', server.db, '--to', db]);
    server = await opened(t, { db });
  }
  await clients.more();
  const n = await clients.stop();
  t.diagnostic(`${n.reduce((a, b) => a + b)} answers, ${refused} requests refused and said again`);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});
