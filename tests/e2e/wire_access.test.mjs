// Who may come in: tokens, Origin, Host, limits on connections and messages, TLS.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import tls from 'node:tls';
import WebSocket from 'ws';
import { longTest, shortTest as test } from './harness.mjs';
import { RawSocket, Wire, sleep, temporaryFolder, until } from './wire.mjs';

const ALICE = 'alice-token-0123456789';
const BOB = 'bob/token+with=signs:9';
const BARE = 'bare-token-without-a-name';

function tokenFile(t, text = `# who\nalice:${ALICE} admin\r\n\nbob:${BOB}\n${BARE}\n`) {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, text);
  chmodSync(file, 0o600);
  return file;
}
const bearer = (token) => `bearer.${Buffer.from(token).toString('base64url')}`;
const outside = () => Object.values(os.networkInterfaces()).flat().find((a) => a.family === 'IPv4' && !a.internal)?.address;

test('tokens', async (t) => {
  const file = tokenFile(t);
  const wire = await Wire.start(t, { args: ['--token-file', file] });
  const hasty = await Wire.start(t, { args: ['--token-file', file, '--hello-timeout', '3'] }); // a busy machine may take longer to say hello
  const status = async (changes) => (await wire.raw(wire.upgrade(changes), { until: 'hello' })).status;

  await t.test('three ways in', async () => {
    for (const token of [ALICE, BOB, BARE]) {
      assert.equal(await status({ Authorization: `Bearer ${token}` }), 101);
      const answer = await wire.raw(wire.upgrade({ 'Sec-WebSocket-Protocol': `parley.v1, ${bearer(token)}` }), { until: '"hello"' });
      assert.equal(answer.status, 101);
      assert.match(answer.text.toLowerCase(), /sec-websocket-protocol: parley\.v1\r\n/, 'the token is echoed');
      const client = await wire.connect({ token });
      assert.equal(client.hello.protocol, 'parley.v1');
      client.terminate();
    }
  });
  await t.test('keys of other services are long: a wrong token here, any key where none is needed', async (u) => {
    const key = 'k'.repeat(3000), open = await Wire.start(u), guarded = await Wire.start(u, { args: ['--token-file', file] });
    for (const header of [`Authorization: Bearer ${key}`, `x-api-key: ${key}`]) {
      assert.equal((await guarded.get('/v1/models', [header])).status, 401);
      assert.equal((await open.get('/v1/models', [header])).status, 200);
    }
    assert.equal((await guarded.raw(guarded.upgrade({ Authorization: `Bearer ${key}` }))).status, 401);
    assert.equal((await open.raw(open.upgrade({ Authorization: `Bearer ${key}` }), { until: 'hello' })).status, 101);
  });
  await t.test('wrong tokens are refused at the upgrade', async () => {
    assert.equal(await status({ Authorization: 'Bearer wrong' }), 401);
    assert.equal(await status({ Authorization: `Bearer ${ALICE}x` }), 401);
    assert.equal(await status({ Authorization: `Bearer alice:${ALICE}` }), 401);
    assert.equal(await status({ 'Sec-WebSocket-Protocol': `parley.v1, ${bearer('wrong')}` }), 401);
    assert.equal(await status({ 'Sec-WebSocket-Protocol': 'parley.v1, bearer.!!!' }), 401);
    assert.equal(await status({ 'Sec-WebSocket-Protocol': bearer(ALICE) }), 400);
  });
  await t.test('nothing but hello may be said first, and hello must be right and in time', async () => {
    for (const text of ['{"type":"ping"}', '{"type":"session.list"}', 'x', '{"type":"hello"}', '{"type":"hello","token":"wrong-wrong-wrong"}']) {
      const s = await RawSocket.open(wire);
      s.send(text);
      assert.equal(await s.close(), 1008, text);
      assert.deepEqual(s.messages().map((m) => m.code), ['unauthorized']);
    }
    const silent = await RawSocket.open(hasty);
    const begun = Date.now();
    assert.equal(await silent.close(), 1008);
    assert.ok(Date.now() - begun < 100000, 'the other server of this test waits for two minutes');
  });
  await t.test('a hello that came while the server stood still is in time', async () => {
    for (let stood = false; !stood;) { // again where this machine was so busy that the time was over before
      const s = await RawSocket.open(hasty);
      hasty.process.kill('SIGSTOP');
      s.send(JSON.stringify({ type: 'hello', token: ALICE }));
      await sleep(3500); // above --hello-timeout 3
      stood = s.frames.length === 0;
      hasty.process.kill('SIGCONT');
      await until('an answer', () => s.frames.length > 0);
      if (stood) assert.deepEqual(s.messages().map((m) => m.type), ['hello']);
      s.socket.destroy();
    }
  });
  await t.test('sessions belong to the name', async () => {
    const alice = await wire.connect({ token: ALICE });
    const bob = await wire.connect({ token: BOB });
    await alice.open({ session: 'hers' });
    for (const type of ['session.attach', 'session.get', 'session.close', 'session.update'])
      assert.equal((await bob.request({ type, session: 'hers', title: 'x' })).code, 'session_not_found');
    assert.deepEqual((await bob.request({ type: 'session.list' })).sessions, []);
    alice.terminate();
    bob.terminate();
  });
  await t.test('the page and health are open, metrics and configuration are not', async () => {
    for (const target of ['/', '/healthz', '/readyz']) assert.equal((await wire.get(target)).status, 200);
    for (const target of ['/metrics', '/metrics/history', '/config']) {
      assert.equal((await wire.get(target)).status, 401);
      assert.equal((await wire.get(target, ['Authorization: Bearer wrong'])).status, 401);
      assert.equal((await wire.get(target, [`Authorization: Bearer ${BOB}`])).status, 403);
      const answer = await wire.get(target, [`Authorization: bearer ${ALICE}`]);
      assert.equal(answer.status, 200);
      assert.ok(!answer.text.includes(ALICE));
    }
  });
  await t.test('the file is read again on SIGHUP; a broken one changes nothing', async () => {
    writeFileSync(file, `carol:carol-token-0123456789\n`);
    wire.process.kill('SIGHUP');
    await until('the new token', async () => (await status({ Authorization: 'Bearer carol-token-0123456789' })) === 101);
    assert.equal(await status({ Authorization: `Bearer ${ALICE}` }), 401);
    writeFileSync(file, 'short\n');
    wire.process.kill('SIGHUP');
    await until('the complaint', () => wire.log.includes('level=error event=server.reload'));
    assert.equal(await status({ Authorization: 'Bearer carol-token-0123456789' }), 101);
  });
});

test('starts that are refused, each with its sentence', async (t) => {
  const fails = async (args, sentence, host) => {
    const wire = await Wire.start(t, { args, host, wait: false });
    const { code } = await wire.exited;
    assert.notEqual(code, 0);
    assert.match(wire.log, sentence);
  };
  await fails([], /reachable from other machines.*token-file/, '0.0.0.0');
  await fails([], /reachable from other machines.*token-file/, '::');
  for (const host of ['unix:/tmp/parley.sock', '/tmp/parley.sock', '127.0.0.1:8080', '[::1]', 'http://localhost'])
    await fails([], /is not an address: set an IPv4 or IPv6 address or a host name.*--port; Unix sockets are not supported/, host);
  await fails([], /host fe80::1%lo is reachable from other machines/, 'fe80::1%lo');
  await fails([], /host chat.example may be reachable from other machines.*token-file/, 'chat.example');
  await fails(['--token-file', '/nowhere'], /\/nowhere/);
  await fails(['--token-file', tokenFile(t, 'short\n')], /:1: a token is/);
  await fails(['--token-file', tokenFile(t, 'n/me:0123456789abcdef\n')], /:1: a name is/);
  await fails(['--token-file', tokenFile(t, 'a:0123456789abcdef\nb:0123456789abcdef\n')], /:2: .*earlier/);
  await fails(['--token-file', tokenFile(t, '# none\n')], /no token/);
  await fails(['--tls-cert', '/nowhere'], /tls_key/);
  await fails(['--tls-cert', '/nowhere', '--tls-key', '/nowhere'], /\/nowhere/);
  await fails([], /300.0.0.1/, '300.0.0.1');
  const other = await Wire.start(t);
  const wire = await Wire.start(t, { port: other.port, wait: false });
  assert.notEqual((await wire.exited).code, 0);
  assert.match(wire.log, new RegExp(`port ${other.port} of 127.0.0.1 is in use`));
});

test('127.0.0.1 means 127.0.0.1', async (t) => {
  const wire = await Wire.start(t);
  const address = outside();
  if (!address) return t.skip('no other address here');
  const other = Object.assign(new Wire(), { host: address, port: wire.port });
  const answer = await other.raw('GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n', { wait: 1000 });
  assert.equal(answer.text, '');
});

test('Origin', async (t) => {
  const wire = await Wire.start(t, { args: ['--allowed-origins', 'https://chat.example, http://other.example:81', '--allowed-hosts', 'chat.example'] });
  const status = async (Origin, Host) => (await wire.raw(wire.upgrade({ Origin, ...(Host && { Host }) }), { until: 'hello' })).status;
  await t.test('the own page, the listed ones, and programs without one', async () => {
    assert.equal(await status(wire.url), 101);
    assert.equal(await status(`http://localhost:${wire.port}`, `localhost:${wire.port}`), 101);
    assert.equal(await status('https://chat.example', 'chat.example'), 101);
    assert.equal(await status('http://other.example:81'), 101);
    assert.equal((await wire.raw(wire.upgrade(), { until: 'hello' })).status, 101);
  });
  await t.test('everybody else', async () => {
    for (const origin of ['http://evil.example', 'null', `https://127.0.0.1:${wire.port}`, `http://127.0.0.1:${wire.port}.evil.example`,
      `http://127.0.0.1:${wire.port + 1}`, 'https://chat.example.evil', 'https://evil.chat.example', `${wire.url}/`, ''.padEnd(300, 'x')])
      assert.ok([403, 431].includes(await status(origin)), origin);
    assert.equal(await status('http://evil.example', 'evil.example'), 403);
  });
  const ask = JSON.stringify({ model: 'fake', messages: [{ role: 'user', content: 'Hi' }] });
  const send = (at, method, headers, body = ask) => at.raw(`${method} /v1/chat/completions HTTP/1.1\r\nHost: ${at.host}:${at.port}\r\n`
    + `${Object.entries(headers).map(([k, v]) => `${k}: ${v}\r\n`).join('')}Connection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  const preflight = (at, Origin, further = {}) => send(at, 'OPTIONS', { Origin, 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'authorization,content-type', ...further }, '');
  const allows = /access-control-allow-origin: (\S+)\r\n/;
  await t.test('a page of another origin sends nothing over HTTP, and reads nothing', async () => {
    for (const Origin of ['http://evil.example', 'null', `http://127.0.0.1:${wire.port + 1}`]) {
      const posted = await send(wire, 'POST', { Origin, 'Content-Type': 'text/plain' }); // for which a browser does not ask
      assert.equal(posted.status, 403, Origin);
      assert.match(posted.text, /"code":"forbidden"/);
      assert.match(posted.text, /allowed_origins/);
      assert.equal((await preflight(wire, Origin)).status, 403);
      const read = await wire.get('/v1/models', [`Origin: ${Origin}`]);
      for (const answer of [posted, read]) assert.doesNotMatch(answer.text, allows);
    }
    for (const headers of [{}, { Origin: wire.url }]) {
      const answer = await send(wire, 'POST', headers);
      assert.equal(answer.status, 200);
      assert.doesNotMatch(answer.text, allows);
    }
  });
  await t.test('a listed page asks first, then sends and reads', async () => {
    const Origin = 'https://chat.example';
    const asked = await preflight(wire, Origin);
    assert.equal(asked.status, 204);
    assert.equal(allows.exec(asked.text)?.[1], Origin);
    assert.match(asked.text, /access-control-allow-headers: authorization,content-type\r\n/);
    assert.match(asked.text, /access-control-allow-methods: [^\r]*POST/);
    const privately = { 'Access-Control-Request-Private-Network': 'true' }; // as Chromium asks for a server on a private address
    assert.match((await preflight(wire, Origin, privately)).text, /access-control-allow-private-network: true\r\n/);
    assert.doesNotMatch((await preflight(wire, 'http://evil.example', privately)).text, /private-network/);
    assert.doesNotMatch(asked.text, /private-network/);
    for (const body of [ask, `${ask.slice(0, -1)},"stream":true}`, '{'])
      assert.equal(allows.exec((await send(wire, 'POST', { Origin }, body)).text)?.[1], Origin, body);
  });
  await t.test('a page that knows a token sends with it', async (u) => {
    const guarded = await Wire.start(u, { args: ['--token-file', tokenFile(u)] });
    assert.equal((await send(guarded, 'POST', { Origin: 'app://desk', Authorization: `Bearer ${ALICE}` })).status, 200);
    assert.equal((await send(guarded, 'POST', { Origin: 'app://desk' })).status, 401);
  });
});

longTest('limits', async (t) => {
  await t.test('connections per address, and again when one has gone', { skip: outside() ? false : 'no address but loopback' }, async (u) => {
    const wire = await Wire.start(u, { host: outside(), args: ['--token-file', tokenFile(u), '--max-connections-per-ip', '3'] });
    const open = await Promise.all([1, 2, 3].map(() => RawSocket.open(wire)));
    const refused = await wire.get('/healthz');
    assert.ok(refused.closed);
    assert.ok(refused.text === '' || /503.*retry-after.*overloaded/s.test(refused.text), refused.text);
    open[0].socket.destroy();
    await until('a free place', async () => (await wire.get('/healthz')).status === 200);
    open.forEach((s) => s.socket.destroy());
  });
  await t.test('connections from this machine, perhaps a proxy, are not counted by address', async (u) => {
    const wire = await Wire.start(u, { args: ['--max-connections-per-ip', '3'] });
    const open = await Promise.all(Array.from({ length: 20 }, () => RawSocket.open(wire)));
    assert.equal((await wire.get('/healthz')).status, 200);
    assert.equal(await wire.metric('parley_refused_total{limit="max_connections_per_ip"}'), 0);
    open.forEach((s) => s.socket.destroy());
  });
  await t.test('connections in total', async (u) => {
    const wire = await Wire.start(u, { args: ['--max-connections', '3'] });
    const open = await Promise.all([1, 2, 3].map(() => RawSocket.open(wire)));
    assert.notEqual((await wire.get('/healthz')).status, 200);
    open[0].socket.destroy();
    await until('a free place', async () => (await wire.get('/healthz')).status === 200);
    assert.ok((await wire.metric('parley_refused_total{limit="max_connections"}')) >= 1);
    open.forEach((s) => s.socket.destroy());
  });
  await t.test('out of descriptors: no spin, and back when there are some', async (u) => {
    const wire = await Wire.start(u, { wrap: ['prlimit', '--nofile=48:48'], args: ['--max-connections-per-ip', '200'] });
    const held = Array.from({ length: 60 }, () => wire.socket().on('error', () => {}));
    await until('the pause', () => wire.log.includes('event=listener.pause'));
    await wire.rests(1000, 0.2, 'the listener spins');
    assert.equal(wire.log.match(/event=listener\.pause/g).length, 1, 'a line for each pause');
    held.forEach((socket) => socket.destroy());
    await until('an answer', async () => (await wire.get('/healthz', [], { wait: 1000 })).status === 200);
  });
  await t.test('the descriptor limit is brought to what is needed', async (u) => {
    for (const [limit, connections, wanted] of [['4000:4000', 3000, 3256], ['500:4000', 3000, 3256], ['4000:4000', 10, 1024]]) {
      const wire = await Wire.start(u, { wrap: ['prlimit', `--nofile=${limit}`], args: ['--max-connections', String(connections)] });
      const soft = /Max open files\s+(\d+)/.exec(readFileSync(`/proc/${wire.process.pid}/limits`, 'utf8'))[1];
      assert.equal(Number(soft), wanted);
    }
  });
  await t.test('message rate: errors with a time to wait, then 4002', async (u) => {
    const wire = await Wire.start(u, { args: ['--messages-per-second', '5', '--message-burst', '10'] });
    const client = await wire.connect();
    // Each part begins with all that a client may have, and again where a busy machine held us up so long that it got more.
    const refill = () => sleep(2500);
    const burst = () => Promise.all(Array.from({ length: 12 }, () => client.ask({ type: 'ping' })));
    let answers = await burst();
    for (; answers.every((m) => m.type === 'pong'); answers = await burst()) await refill();
    assert.ok(answers.slice(0, 10).every((m) => m.type === 'pong'));
    const error = answers.find((m) => m.type === 'error');
    assert.equal(error.code, 'rate_limited');
    assert.ok(error.retry_after_ms > 0 && error.retry_after_ms <= 1000);
    // A long dropped message is not read, so its request_id is missing.
    while (!client.frames.some((m) => m.type === 'error' && m.request_id === undefined)) {
      await refill();
      const pings = burst();
      client.send({ type: 'ping', request_id: 'long', padding: 'x'.repeat(5000) });
      await pings;
      await client.ask({ type: 'ping' });
    }
    assert.ok(!client.frames.some((m) => m.type === 'error' && m.request_id === 'long'));
    await sleep(error.retry_after_ms * 3);
    assert.equal((await client.request({ type: 'ping' })).type, 'pong');
    // A long message counts for its length, and never for more than a client may ever have.
    for (let code; code !== 'rate_limited';) {
      await refill();
      const [long, next] = await Promise.all([client.ask({ type: 'ping', padding: 'x'.repeat(900000) }), client.ask({ type: 'ping' })]);
      assert.equal(long.type, 'pong');
      code = next.code;
    }
    await refill();
    const long = await client.request({ type: 'ping', padding: 'x'.repeat(5 * 65536) });
    assert.equal(long.type, 'pong');
    for (let i = 0; i < 4; i++) assert.equal((await client.request({ type: 'ping' })).type, 'pong');
    while (client.closeCode === undefined) {
      for (let i = 0; i < 50; i++) client.send({ type: 'ping' });
      await sleep(10);
    }
    assert.equal(await client.closed, 4002);
  });
});

test('TLS', async (t) => {
  const folder = temporaryFolder(t);
  const [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
  const make = (name) => execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes',
    '-keyout', key, '-out', cert, '-days', '2', '-subj', `/CN=${name}`], { stdio: 'ignore' });
  make('first');
  const wire = await Wire.start(t, { tls: true, args: ['--tls-cert', cert, '--tls-key', key] });
  const peer = (options = {}) => new Promise((resolve, reject) => {
    const socket = tls.connect({ port: wire.port, host: '127.0.0.1', rejectUnauthorized: false, ...options }, () => {
      resolve({ name: socket.getPeerCertificate().subject.CN, alpn: socket.alpnProtocol, version: socket.getProtocol() });
      socket.destroy();
    });
    socket.once('error', reject);
  });
  const ping = async () => {
    const socket = new WebSocket(`wss://127.0.0.1:${wire.port}/ws`, ['parley.v1'], { rejectUnauthorized: false, headers: { Origin: wire.url } });
    const got = await new Promise((resolve, reject) => {
      socket.on('message', (bytes) => {
        const m = JSON.parse(bytes);
        if (m.type === 'hello') socket.send('{"type":"ping"}');
        if (m.type === 'pong') resolve(m.type);
      });
      socket.on('error', reject);
      socket.on('close', (code) => reject(new Error(`closed ${code}`)));
    });
    socket.terminate();
    return got;
  };
  await t.test('https and wss', async () => {
    assert.match(wire.out, /https:\/\//);
    assert.equal((await wire.get('/healthz')).status, 200);
    assert.equal((await wire.get('/app.js')).status, 200);
    assert.equal(await ping(), 'pong');
  });
  await t.test('HTTP/1.1 only, TLS 1.2 at least', async () => {
    assert.equal((await peer({ ALPNProtocols: ['h2', 'http/1.1'] })).alpn, 'http/1.1');
    assert.ok(['TLSv1.2', 'TLSv1.3'].includes((await peer()).version));
    await assert.rejects(peer({ minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' }));
  });
  await t.test('a reply says that the next connection uses TLS too', async () => {
    for (const target of ['/', '/healthz', '/nowhere', '/%'])
      assert.match((await wire.get(target)).text, /\r\nstrict-transport-security: max-age=31536000\r\n/, target);
    const plain = await Wire.start(t);
    assert.doesNotMatch((await plain.get('/healthz')).text, /strict-transport/i);
  });
  await t.test('plain text and rubbish are closed', async () => {
    const plain = Object.assign(new Wire(), { host: '127.0.0.1', port: wire.port });
    assert.ok((await plain.raw('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')).closed);
    assert.equal(await ping(), 'pong');
  });
  await t.test('an unmasked first frame is refused here too', async () => {
    const s = await RawSocket.open(wire);
    s.send('{"type":"ping"}', { mask: false });
    assert.equal(await s.close(), 1002);
  });
  await t.test('a new certificate on SIGHUP; a broken one changes nothing', async () => {
    make('second');
    wire.process.kill('SIGHUP');
    await until('the new certificate', async () => (await peer()).name === 'second');
    writeFileSync(cert, 'broken');
    wire.process.kill('SIGHUP');
    await until('the complaint', () => wire.log.includes('level=error event=server.reload'));
    assert.equal((await peer()).name, 'second');
    assert.equal(await ping(), 'pong');
  });
});

test('TLS 1.2 with forward secrecy and authenticated encryption, or not at all', async (t) => {
  const folder = temporaryFolder(t);
  const [cert, key] = ['cert.pem', 'key.pem'].map((name) => path.join(folder, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2', '-subj', '/CN=rsa'], { stdio: 'ignore' });
  const wire = await Wire.start(t, { tls: true, args: ['--tls-cert', cert, '--tls-key', key] });
  const connect = (ciphers) => new Promise((resolve) => {
    const socket = tls.connect({ port: wire.port, host: '127.0.0.1', rejectUnauthorized: false, maxVersion: 'TLSv1.2', ciphers: `${ciphers}:@SECLEVEL=0` }, () => {
      resolve(socket.getCipher().name);
      socket.destroy();
    });
    socket.once('error', () => resolve(null));
  });
  for (const cipher of ['ECDHE-RSA-AES128-GCM-SHA256', 'ECDHE-RSA-AES256-GCM-SHA384', 'ECDHE-RSA-CHACHA20-POLY1305'])
    assert.equal(await connect(cipher), cipher);
  for (const cipher of ['AES128-GCM-SHA256', 'AES256-SHA', 'ECDHE-RSA-AES128-SHA256', 'ECDHE-RSA-AES256-SHA', 'ECDHE-RSA-AES256-SHA384'])
    assert.equal(await connect(cipher), null, cipher);
});
