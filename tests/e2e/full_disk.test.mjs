// The disk fills in the middle of an answer. Protocols that have no message for that end the answer with an error that
// says why, instead of keeping the client waiting; what there is of the answer is saved when there is room again.
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fillDisk, smallDisk } from './disk.mjs';
import { Server, unlimited, until } from './harness.mjs';

const messages = [{ role: 'user', content: 'Tell me a story.' }];
const n = 1800; // tokens: the disk fills long before the last of them
const forms = [
  ['chat completions', '/v1/chat/completions', { messages, max_tokens: n, ignore_eos: true }, 503, /"store_failed"/],
  ['responses', '/v1/responses', { input: messages, max_output_tokens: n, ignore_eos: true }, 200, /"status":"failed".*cannot be saved/],
  ['messages', '/v1/messages', { messages, max_tokens: n, ignore_eos: true }, 500, /cannot be saved/],
  ['completions', '/v1/completions', { prompt: 'Once', max_tokens: n, ignore_eos: true }, 503, /"store_failed"/],
];

const post = (server, address, body) => fetch(`${server.url}${address}`, { method: 'POST',
  headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01' },
  body: JSON.stringify({ model: 'demo-model', seed: 1, ...body }) });

/** The request as a whole and as a stream; gives what is to be said once the disk is full, and after that. */
async function asked(server, [name, address, body, status, error]) {
  const whole = post(server, address, body);
  const stream = await post(server, address, { ...body, stream: true });
  assert.equal(stream.status, 200, name);
  const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
  let streamed = (await reader.read()).value; // the turn runs
  const refused = async () => {
    const answer = await whole;
    const text = await answer.text();
    assert.equal(answer.status, status, text);
    if (status !== 200) assert.ok(Number(answer.headers.get('retry-after')) >= 1, `${name}: a time to try again`);
    for (let piece; !(piece = await reader.read()).done;) streamed += piece.value;
    for (const said of [text, streamed]) {
      assert.match(said, error, name);
      assert.match(said, /no space left/, name);
    }
  };
  const served = async () => {
    const again = await post(server, address, { ...body, max_tokens: 5, max_output_tokens: 5 });
    assert.equal(again.status, 200, await again.text());
  };
  return { refused, served };
}

async function askedOfSequence(server) {
  const generate = (text, max_tokens, sequence_start) => fetch(`${server.url}/v2/models/demo-model/generate`, { method: 'POST',
    body: JSON.stringify({ text_input: text, max_tokens, ignore_eos: true, sequence_id: 7, sequence_start }) });
  const first = await generate('Hello', 5, true);
  assert.equal(first.status, 200, await first.text());
  const running = async () =>
    Number(/^parley_engine_requests_running\S* (\d+)/m.exec(await (await fetch(`${server.url}/metrics`)).text())[1]);
  const before = await running();
  const long = generate('Tell me a story.', n, false);
  await until('the turn to run', async () => (await running()) > before);
  const refused = async () => {
    const answer = await long;
    const text = await answer.text();
    assert.equal(answer.status, 503, text);
    assert.match(text, /no space left/);
  };
  const served = async () => {
    const next = await generate('Go on', 5, false);
    assert.equal(next.status, 200, await next.text());
  };
  return { refused, served };
}

test('a full disk ends the answers of all protocols with the reason, and then they are served again', async (t) => {
  const disk = smallDisk(t);
  if (!disk) return t.skip('no file system can be mounted here');
  const server = await Server.start(t, { db: path.join(disk, 'parley.db'), args: [...unlimited, '--max-sequences', '16'] });
  const all = [await askedOfSequence(server), ...await Promise.all(forms.map((form) => asked(server, form)))];
  const ballast = fillDisk(disk);
  await Promise.all(all.map((one) => one.refused()));
  rmSync(ballast);
  await until('the store to recover', async () => (await fetch(`${server.url}/readyz`)).ok);
  await Promise.all(all.map((one) => one.served()));
});
