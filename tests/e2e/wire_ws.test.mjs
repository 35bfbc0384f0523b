// WebSocket conformance and the messages' envelope, with hand-made frames.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawSocket, Wire, acceptKey, frame, sleep, until } from './wire.mjs';

const ping = (id) => JSON.stringify({ type: 'ping', request_id: id });
const pong = (id) => (m) => m.type === 'pong' && m.request_id === id;

test('frames', async (t) => {
  const wire = await Wire.start(t, { args: ['--max-connections-per-ip', '200'] });
  const closesWith = async (code, send) => {
    const s = await RawSocket.open(wire);
    await s.message((m) => m.type === 'hello');
    s.send(ping('first'));
    await s.message(pong('first'));
    send(s);
    assert.equal(await s.close(), code);
    await s.ended;
  };

  await t.test('the handshake is right and names the sub-protocol', async () => {
    const answer = await wire.raw(wire.upgrade({ 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==', 'Sec-WebSocket-Protocol': 'other, parley.v1' }), { until: 'hello' });
    assert.match(answer.text, /101 Switching Protocols/);
    assert.match(answer.text.toLowerCase(), /sec-websocket-protocol: parley\.v1\r\n/);
    assert.ok(answer.text.includes(acceptKey('AAAAAAAAAAAAAAAAAAAAAA==')));
    assert.doesNotMatch(answer.text.toLowerCase(), /extensions/);
  });
  await t.test('compression is not taken up', async () => {
    const answer = await wire.raw(wire.upgrade({ 'Sec-WebSocket-Extensions': 'permessage-deflate; client_max_window_bits' }), { until: 'hello' });
    assert.doesNotMatch(answer.text.toLowerCase(), /extensions/);
  });
  await t.test('fragments, with a ping between them, are one message', async () => {
    const s = await RawSocket.open(wire);
    const text = Buffer.from(ping('fragmented'));
    s.send(text.subarray(0, 5), { fin: false });
    s.send('between', { opcode: 9 });
    s.send(text.subarray(5, 9), { opcode: 0, fin: false });
    s.send(text.subarray(9), { opcode: 0 });
    await s.message(pong('fragmented'));
    assert.equal(s.frames.find((f) => f.opcode === 10).payload.toString(), 'between');
    s.socket.destroy();
  });
  await t.test('a message that arrives byte by byte, split inside a character, is one message', async () => {
    const s = await RawSocket.open(wire);
    for (const byte of frame(ping('ü€😀'))) {
      s.socket.write(Buffer.from([byte]));
      await sleep(1);
    }
    await s.message(pong('ü€😀'));
    s.socket.destroy();
  });
  await t.test('a long message within the limit is taken', async () => {
    const s = await RawSocket.open(wire);
    s.send(JSON.stringify({ type: 'ping', request_id: 'long', pad: 'x'.repeat(1000000) }));
    await s.message(pong('long'));
    s.socket.destroy();
  });
  await t.test('reserved bits, unknown opcodes, stray continuations: 1002', async () => {
    await closesWith(1002, (s) => s.send('x', { rsv: 4 }));
    await closesWith(1002, (s) => s.send('x', { opcode: 3 }));
    await closesWith(1002, (s) => s.send('x', { opcode: 0 }));
  });
  await t.test('invalid UTF-8: 1007', async () => {
    await closesWith(1007, (s) => s.send(Buffer.from([0x22, 0xc3, 0x28, 0x22])));
    await closesWith(1007, (s) => s.send(Buffer.from([0xed, 0xa0, 0x80])));
  });
  await t.test('pongs are bytes, not text, also behind a text and between its fragments', async () => {
    const s = await RawSocket.open(wire);
    const text = Buffer.from('{"type":"ping","request_id":"\u00e9"}'), at = text.indexOf(0xa9);
    s.send(ping('before'));
    for (const byte of [0x80, 0xc3, 0xff]) s.send(Buffer.from([byte, 0, 0, 0]), { opcode: 10 });
    s.send(text.subarray(0, at), { fin: false });
    s.send(Buffer.from([0x80, 1]), { opcode: 10 });
    s.send(text.subarray(at), { opcode: 0 });
    await until('the answer or the end', () => s.closed || s.messages().some(pong('\u00e9')));
    assert.ok(!s.closed, 'closed');
    s.socket.destroy();
  });
  await t.test('binary: 1003', () => closesWith(1003, (s) => s.send('{"type":"ping"}', { opcode: 2 })));
  await t.test('too big, in one frame, in many, or only declared: an error and 1009', async () => {
    const big = Buffer.alloc(1048577, 0x20);
    await closesWith(1009, (s) => s.send(big));
    await closesWith(1009, (s) => {
      s.send(big.subarray(0, 600000), { fin: false });
      s.send(big.subarray(0, 600000), { opcode: 0 });
    });
    const s = await RawSocket.open(wire);
    s.socket.write(frame(Buffer.alloc(1100000, 0x20), { length: 2 ** 40 }));
    assert.equal(await s.close(), 1009);
    assert.equal(s.messages().find((m) => m.type === 'error').code, 'too_large');
  });
  await t.test('a first frame without a mask: 1002, and nothing of it is done', async () => {
    const s = await RawSocket.open(wire);
    s.send(ping('bare'), { mask: false });
    assert.equal(await s.close(), 1002);
    assert.ok(!s.messages().some((m) => m.type === 'pong'));
  });
  await t.test('a first frame in two pieces passes the gate', async () => {
    const s = await RawSocket.open(wire);
    const bytes = frame(ping('pieces'));
    s.socket.write(bytes.subarray(0, 1));
    await sleep(100);
    await wire.rests(400, 0.1, 'half a frame head makes the loop spin');
    s.socket.write(bytes.subarray(1));
    await s.message(pong('pieces'));
    s.socket.destroy();
  });
  await t.test('a client that goes before its first frame leaves nothing behind', async () => {
    const before = await wire.metric('parley_websockets');
    const sockets = await Promise.all(Array.from({ length: 5 }, () => RawSocket.open(wire)));
    sockets.forEach((s, i) => (i % 2 ? s.socket.destroy() : s.socket.resetAndDestroy()));
    await until('the connections to be forgotten', async () => (await wire.metric('parley_websockets')) <= before);
  });
  await t.test('frames behind a close frame are not heard', async () => {
    const s = await RawSocket.open(wire);
    s.socket.write(Buffer.concat([frame(Buffer.from([0x03, 0xe8]), { opcode: 8 }), frame(ping('late'))]));
    await s.ended;
    assert.ok(!s.messages().some((m) => m.type === 'pong'));
  });
  await t.test('silence is pinged, and the dead are closed', async (u) => {
    const eager = await Wire.start(u, { args: ['--ping-interval', '1'] }); // others of these sockets answer no pings
    const s = await RawSocket.open(eager);
    await until('a ping', () => s.frames.find((f) => f.opcode === 9)); // ten minutes would be without --ping-interval
    await until('the end of a client that never answers', () => s.closed);
  });
  await t.test('an answer to a ping that came while the server stood still is in time', async (u) => {
    const eager = await Wire.start(u, { args: ['--ping-interval', '1'] });
    for (let stood = false; !stood;) { // again where this machine was so busy that the server had closed before
      const s = await RawSocket.open(eager);
      await until('a ping', () => s.closed || s.frames.find((f) => f.opcode === 9));
      eager.process.kill('SIGSTOP');
      s.send('', { opcode: 10 });
      s.send(ping('after'));
      await sleep(4500);
      stood = !s.closed;
      eager.process.kill('SIGCONT');
      await until('the answer or the end', () => s.closed || s.messages().some(pong('after')));
      assert.ok(!stood || !s.closed, 'closed');
      s.socket.destroy();
    }
  });
});

test('messages', async (t) => {
  const wire = await Wire.start(t, { args: ['--messages-per-second', '1000', '--message-burst', '1000'] });
  const client = await wire.connect({ malformed: true });
  const says = async (text, code, key) => {
    client.send(text);
    const error = await client.next((m) => m.type === 'error');
    assert.equal(error.code, code, JSON.stringify(error));
    if (key) assert.ok(error.message.includes(key), error.message);
  };
  await t.test('what is no JSON, or JSON that two readers may read differently', async () => {
    for (const text of ['', 'x', '{"type":"ping"', '{"type":"ping"} x', '{"ty\\u0000pe":"ping"}', '{"type":"ping","type":"pong"}',
      `${'['.repeat(100)}${']'.repeat(100)}`, `[${'0,'.repeat(250000)}0]`, '{"type":"ping","n":1e999}'])
      await says(text, 'bad_json');
  });
  await t.test('wrong shapes name the key', async () => {
    await says('[]', 'bad_message');
    await says('{}', 'bad_message', 'type');
    await says('{"type":7}', 'bad_message', 'type');
    await says('{"type":"nonsense"}', 'unknown_type', 'nonsense');
    await says('{"type":"ping","request_id":7}', 'bad_message', 'request_id');
    await says(JSON.stringify({ type: 'ping', request_id: 'x'.repeat(129) }), 'bad_message', 'request_id');
    await says('{"type":"session.attach"}', 'bad_message', 'session');
    await says('{"type":"session.attach","session":"a/b"}', 'invalid', 'session');
    await says(JSON.stringify({ type: 'session.get', session: 'x'.repeat(10000) }), 'invalid', 'session');
    await says('{"type":"session.attach","session":"a","after":-1}', 'invalid', 'after');
    await says('{"type":"session.attach","session":"a","after":"1"}', 'bad_message', 'after');
    await says('{"type":"session.open","memory_len":1.5}', 'invalid', 'memory_len');
    await says('{"type":"session.open","sampling":[]}', 'bad_message', 'sampling');
    await says(JSON.stringify({ type: 'session.open', title: 'x'.repeat(201) }), 'invalid', 'title');
    await says('{"type":"turn.start","session":"a"}', 'bad_message', 'input');
    await says('{"type":"turn.start","session":"a","input":{}}', 'bad_message', 'input');
    await says('{"type":"turn.start","session":"a","input":{"text":"x","ids":[1]}}', 'bad_message', 'input');
    await says('{"type":"turn.start","session":"a","input":{"ids":[1,-2]}}', 'invalid', 'ids');
    await says('{"type":"turn.start","session":"a","input":{"ids":[1,"2"]}}', 'bad_message', 'ids');
    await says('{"type":"session.get","session":"nobody"}', 'session_not_found');
  });
  await t.test('an error repeats the request_id', async () =>
    assert.equal((await client.request({ type: 'nonsense' })).code, 'unknown_type'));
  await t.test('unknown keys and a needless hello are ignored', async () => {
    client.send({ type: 'hello', token: 'whatever' });
    assert.equal((await client.request({ type: 'ping', more: { a: [1] } })).type, 'pong');
    assert.equal(client.frames.filter((m) => m.type === 'hello').length, 1);
  });
  await t.test('sampling reaches the session with every bit of its seed', async () => {
    const sent = '{"type":"session.open","session":"exact","x":{"sampling":{"seed":1}},"sampling": {"seed":"18446744073709551615","stop":["}",","]} ,"request_id":"exact"}';
    client.send(sent);
    await client.next((m) => m.request_id === 'exact');
    client.socket.removeAllListeners('message');
    const text = new Promise((resolve) => client.socket.once('message', (bytes) => resolve(String(bytes))));
    client.send({ type: 'session.list' });
    assert.ok((await text).includes('"sampling":{"seed":"18446744073709551615","stop":["}",","]}'));
  });
});

test('upgrades that are refused', async (t) => {
  const wire = await Wire.start(t, { args: ['--max-connections-per-ip', '200'] });
  const refused = async (changes, status, target) => {
    const answer = await wire.raw(wire.upgrade(changes, target));
    assert.equal(answer.status, status, answer.text.slice(0, 200));
    assert.ok(answer.closed);
    assert.ok(JSON.parse(answer.text.split('\r\n\r\n')[1]).error.code);
  };
  await t.test('no sub-protocol, or an unknown one', async () => {
    await refused({ 'Sec-WebSocket-Protocol': null }, 400);
    await refused({ 'Sec-WebSocket-Protocol': 'http' }, 400);
    await refused({ 'Sec-WebSocket-Protocol': 'parley.v2' }, 400);
  });
  await t.test('another address, version, key', async () => {
    await refused({}, 404, '/');
    await refused({}, 404, '/ws/x');
    await refused({ 'Sec-WebSocket-Version': '8' }, 426);
    await refused({ 'Sec-WebSocket-Version': null }, 426);
    await refused({ 'Sec-WebSocket-Key': null }, 400);
    await refused({ 'Sec-WebSocket-Key': 'short' }, 400);
    await refused({ Connection: 'keep-alive' }, 400);
  });
  await t.test('other upgrades are ignored, on new and on kept-alive connections (RFC 9110 7.8, CVE-2025-11677)', async () => {
    const first = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n';
    for (const name of ['foo', 'h2c', 'TLS/1.0', 'websocketx'])
      for (const before of ['', first]) {
        const upgrade = (more) => `GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade${more}\r\nUpgrade: ${name}\r\n\r\n`;
        const answer = await wire.raw([[0, before], [150, upgrade('')], [150, upgrade(', close')]]);
        assert.ok(answer.closed);
        assert.equal(answer.text.match(/HTTP\/1\.1 200 OK/g).length, before ? 3 : 2, `${name} after '${before.slice(0, 12)}'`);
        assert.doesNotMatch(answer.text, /101 Switching/);
      }
    assert.equal((await wire.get('/healthz')).status, 200);
  });
  await t.test('a request with a body that offers h2c is answered in HTTP/1.1', async () => {
    const body = JSON.stringify({ model: 'fake', messages: [{ role: 'user', content: 'hi' }], max_tokens: 3 });
    const answer = await wire.raw(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n`
      + `HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    assert.equal(answer.status, 200, answer.text.slice(0, 300));
    assert.match(answer.text, /"choices"/);
  });
  await t.test('websocket in a list of upgrades', async () => {
    const answer = await wire.raw(wire.upgrade({ Upgrade: 'h2c, websocket' }), { until: '"type":"hello"' });
    assert.match(answer.text, /101 Switching Protocols/);
  });
  await t.test('an upgrade on a kept-alive connection works', async () => {
    const answer = await wire.raw([[0, 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n'], [200, wire.upgrade()]], { until: '"type":"hello"' });
    assert.match(answer.text, /101 Switching Protocols/);
  });
});
