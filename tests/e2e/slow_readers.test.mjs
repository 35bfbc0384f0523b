// A client that reads nothing from a stream, through every protocol: it costs no memory, delays nobody, and has all of the
// answer when it goes on. On fake sessions, which flood. (KServe's generate_stream: attack_resident.test.mjs.)
import assert from 'node:assert/strict';
import { test } from 'node:test';
import WebSocket from 'ws';
import { few } from './harness.mjs';
import { residentMib } from './processes.mjs';
import { Wire, sleep, until } from './wire.mjs';

// Answers of 12 MB, several times what sockets hold. Responses has an event for each token, so shorter tokens are as much.
const long = { prompt: `flood ${few(12000)} 1000`, bytes: few(12000) * 1000 };
const short = { prompt: `flood ${few(60000)} 50`, bytes: few(60000) * 50 };
const user = [{ role: 'user', content: long.prompt }];

/** The events of a stream that was sent in chunks, whole. */
const eventsOf = (stream) => {
  const at = stream.indexOf('\r\n\r\n');
  let text = '';
  for (let from = at + 4; from < stream.length;) {
    const end = stream.indexOf('\r\n', from);
    const n = parseInt(stream.slice(from, end), 16);
    if (!n) break;
    text += stream.slice(end + 2, end + 2 + n);
    from = end + 2 + n + 2;
  }
  return text.split('\n\n').map((e) => e.split('\n').find((line) => line.startsWith('data: '))?.slice(6)).filter((e) => e && e !== '[DONE]').map((e) => JSON.parse(e));
};

const protocols = [
  { name: 'chat completions', target: '/v1/chat/completions', body: { messages: user }, ...long, word: (e) => e.choices?.[0]?.delta.content, ended: (e) => e.choices?.[0]?.finish_reason },
  { name: 'completions', target: '/v1/completions', body: { prompt: long.prompt, max_tokens: 100000 }, ...long, word: (e) => e.choices?.[0]?.text, ended: (e) => e.choices?.[0]?.finish_reason },
  { name: 'responses', target: '/v1/responses', body: { input: short.prompt }, ...short, word: (e) => (e.type === 'response.output_text.delta' ? e.delta : ''), ended: (e) => e.type === 'response.completed' },
  { name: 'messages', target: '/v1/messages', body: { messages: user, max_tokens: 100000 }, ...long, word: (e) => e.delta?.text, ended: (e) => e.type === 'message_stop' },
];
const memoryOf = (wire) => residentMib(wire);
const start = (t) => Wire.start(t, { args: ['--slow-reader-timeout', '600'] });

/** Between the request of a client that reads nothing and its first read. */
async function othersAreServed(wire, before, size) {
  const neighbour = await wire.connect();
  for (let i = 0; i < 5; i++) {
    await sleep(100);
    assert.equal((await neighbour.request({ type: 'ping' })).type, 'pong');
  }
  const short = await wire.raw(requestOf(protocols[0], { messages: [{ role: 'user', content: 'flood 3 3' }] }));
  assert.match(short.text, /\[DONE\]/);
  // The fake's session keeps the answer. What the allocator keeps for itself differs from run to run.
  const grown = memoryOf(wire) - before;
  assert.ok(wire.sanitized || grown < size / 1048576 + 32, `${grown} MiB for one slow reader`);
}

function requestOf({ target, body }, change = {}) {
  const text = JSON.stringify({ model: 'fake', stream: true, ...body, ...change });
  return `POST ${target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${text.length}\r\nConnection: close\r\n\r\n${text}`;
}

for (const protocol of protocols)
  test(protocol.name, async (t) => {
    const wire = await start(t);
    const request = requestOf(protocol);
    const words = (text) => eventsOf(text).map((e) => protocol.word(e) ?? '').join('');
    const all = await wire.raw(request);
    assert.equal(words(all.text).length, protocol.bytes, all.text.slice(0, 400));
    const before = memoryOf(wire);
    const slow = wire.socket();
    const parts = [];
    slow.on('error', () => {});
    slow.pause();
    slow.write(request);
    await othersAreServed(wire, before, protocol.bytes);
    slow.on('data', (more) => parts.push(more));
    const closed = new Promise((resolve) => slow.on('close', resolve));
    slow.resume();
    await closed;
    const text = Buffer.concat(parts).toString('latin1');
    assert.equal(words(text), words(all.text));
    assert.ok(protocol.ended(eventsOf(text).at(-1)), text.slice(-300));
  });

test('responses over a WebSocket', async (t) => {
  const wire = await start(t);
  const socket = new WebSocket(`${wire.url.replace('http', 'ws')}/v1/responses`);
  t.after(() => socket.terminate());
  let words = '', ended = 0;
  socket.on('message', (bytesOf) => {
    const e = JSON.parse(bytesOf);
    if (e.type === 'response.output_text.delta') words += e.delta;
    if (e.type === 'response.completed') ended++;
  });
  await new Promise((resolve) => socket.on('open', resolve));
  const create = () => socket.send(JSON.stringify({ type: 'response.create', model: 'fake', input: short.prompt }));
  create();
  await until('the first answer', () => ended === 1);
  const [first, before] = [words, memoryOf(wire)];
  words = '';
  socket.pause();
  create();
  await othersAreServed(wire, before, short.bytes);
  socket.resume();
  await until('the second answer', () => ended === 2);
  assert.equal(first.length, short.bytes);
  assert.equal(words, first);
});

// The server goes on when the client of a stream disappears in its middle, and the turn ends.
for (const protocol of protocols)
  test(`${protocol.name}: a client that disappears`, async (t) => {
    const wire = await start(t);
    const gone = Array.from({ length: 8 }, () => wire.socket());
    for (const socket of gone) {
      socket.on('error', () => {});
      socket.pause();
      socket.write(requestOf(protocol));
    }
    // Shorter answers, under a sanitizer, fit into the sockets and end.
    if (few(1000) === 1000) await until('the streams', async () => (await wire.metric('parley_followers')) >= 8);
    else await sleep(500);
    gone.forEach((socket) => socket.resetAndDestroy());
    await until('their end', async () => (await wire.metric('parley_followers')) === 0);
    const short = await wire.raw(requestOf(protocols[0], { messages: [{ role: 'user', content: 'flood 3 3' }] }));
    assert.match(short.text, /\[DONE\]/);
    assert.equal((await wire.stop()).code, 0);
  });
