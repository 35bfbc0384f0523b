// Clients that send nothing: standard clients answer pings by themselves and stay, dead ones are closed. The tests
// run at the same time, because each waits for many intervals.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { test } from 'node:test';
import WebSocket from 'ws';
import { absent, column, connect, idsOf, inputsOf, requestOf, startServer } from './grpc.mjs';
import { root, sleep, temporaryFolder, until } from './harness.mjs';
import { engineProcesses } from './processes.mjs';
import { frame, RawSocket, Wire } from './wire.mjs';

const SECONDS = 3, INTERVALS = 4; // this process may stand still for less than SECONDS
const eager = ['--ping-interval', String(SECONDS)];
const many = () => sleep(INTERVALS * SECONDS * 1000);
/** A WebSocket of the `ws` package that sends nothing by itself. */
const listen = (url, protocols = ['parley.v1'], options = {}) => new Promise((resolve, reject) => {
  const socket = new WebSocket(url, protocols, options);
  socket.pings = [];
  socket.on('ping', (payload) => socket.pings.push(payload));
  socket.on('close', (code) => { socket.closeCode = code; });
  socket.once('open', () => resolve(socket));
  socket.once('error', reject);
});

test('silence', { concurrency: true }, (out) => Promise.all([
  out.test('a client that is idle for many ping intervals is kept', async (t) => {
    const wire = await Wire.start(t, { args: eager });
    const at = `ws://127.0.0.1:${wire.port}`;
    const silent = await listen(`${at}/ws`), spoke = await listen(`${at}/ws`), responses = await listen(`${at}/v1/responses`, []);
    spoke.send('{"type":"ping"}');
    await many();
    for (const socket of [silent, spoke, responses]) {
      assert.equal(socket.closeCode, undefined);
      assert.ok(socket.pings.length >= 2, `${socket.pings.length} pings`);
      assert.ok(socket.pings.every((payload) => payload.length > 0), 'a ping without payload: its pong may be read by nobody');
    }
    assert.doesNotMatch(wire.log, /ws\.silent/);
  }),

  out.test('over TLS as well', async (t) => {
    const folder = temporaryFolder(t), [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=localhost'], { stdio: 'ignore' });
    const wire = await Wire.start(t, { tls: true, args: [...eager, '--tls-cert', cert, '--tls-key', key] });
    const silent = await listen(`wss://127.0.0.1:${wire.port}/ws`, ['parley.v1'], { rejectUnauthorized: false });
    await many();
    assert.equal(silent.closeCode, undefined);
    assert.ok(silent.pings.length >= 2);
  }),

  out.test('what arrives counts, also where libwebsockets tells nobody: an empty pong, an empty ping, half a frame', async (t) => {
    const wire = await Wire.start(t, { args: eager });
    const says = [(s) => s.send('', { opcode: 10 }), (s) => s.send('', { opcode: 9 }), (s) => s.socket.write(frame('').subarray(0, 1))];
    const sockets = await Promise.all(says.map(() => RawSocket.open(wire)));
    says[2](sockets[2]);
    for (let i = 0; i < INTERVALS * 4; i++) {
      sockets.slice(0, 2).forEach((s, k) => says[k](s));
      await sleep(SECONDS * 250);
    }
    assert.ok(sockets.slice(0, 2).every((s) => !s.closed), 'closed although bytes came');
    assert.ok(sockets[2].closed, 'one byte keeps a connection for ever');
    sockets.forEach((s) => s.socket.destroy());
  }),

  out.test('a client that has stopped is closed, also one that has its answers unread', async (t) => {
    const wire = await Wire.start(t, { args: eager });
    const [reads, stands] = [await RawSocket.open(wire), await RawSocket.open(wire)]; // neither answers a ping
    stands.socket.pause();
    await until('the end of both', async () => (await wire.metric('parley_websockets')) === 0);
    await until('two lines in the log', () => wire.log.match(/ws\.silent/g)?.length === 2);
    for (const s of [reads, stands]) s.socket.destroy();
  }),

  out.test('clients of every protocol wait for a slow turn and for an engine that is lost', { skip: absent }, async (t) => {
    const server = await startServer(t, { model: path.join(root, 'configs/demo-model'),
      args: [...eager, '--device', 'cpu', '--threads', '1', '--engine-process', 'on', '--engine-backoff', '0.2'] });
    const talker = await server.connect(), reader = await server.connect();
    const session = await talker.open(), n = 1500;
    await reader.request({ type: 'session.attach', session, after: 0 });
    const grpc = connect(t, server, { 'grpc.keepalive_time_ms': 10000 });
    const stream = grpc.stream();
    const row = Array.from({ length: 8 }, (_, i) => 100 + i);
    const sse = fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'demo-model', stream: true, max_tokens: n, ignore_eos: true, messages: [{ role: 'user', content: 'Tell me a story.' }] }) });
    const accepted = await talker.start(session, 'Tell me a story.', { sampling: { max_tokens: n, ignore_eos: true } });
    assert.equal(accepted.type, 'turn.accepted');
    stream.send(requestOf(inputsOf([row], 400, [column('min_length', 'INT32', [400])]), {}, { model: 'demo-model' }));
    await reader.next((f) => f.type === 'turn.delta');

    const engine = engineProcesses(server).at(-1);
    process.kill(engine, 'SIGSTOP'); // slow: nothing comes for many intervals
    await many();
    process.kill(engine, 'SIGKILL'); // and lost
    const bySocket = [talker, reader].map((client) => client.next((f) => f.type === 'turn.done' && f.session === session));
    const text = await (await sse).text();
    assert.match(text, /"finish_reason":"length"/);
    assert.match(text, /data: \[DONE\]\n\n$/);
    for (const done of await Promise.all(bySocket)) assert.equal(done.usage.output_tokens, n);
    const answers = await stream.end();
    assert.equal(idsOf(answers.at(-1).infer_response)[0].length, row.length + 400);
    assert.ok(await server.metric('parley_sessions_moved_turns_total{reason="lost"}') > 0);
    assert.doesNotMatch(server.log, /ws\.silent/);
  }),
]));
