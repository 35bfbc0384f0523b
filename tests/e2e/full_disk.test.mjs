// The disk fills in the middle of an answer. Protocols that have no message for that end the answer with an error that
// says why, instead of keeping the client waiting; what there is of the answer is saved when there is room again.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import path from 'node:path';
import { fillDisk, smallDisk } from './disk.mjs';
import { Follower, transcript } from './follower.mjs';
import { longTest, parley, patience, root, Server, shortTest as test, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

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

/** The same of a sequence, whose answer is not streamed. First of all turns, so that one turn more is its own. */
async function askedOfSequence(server) {
  const generate = (text, max_tokens, sequence_start) => fetch(`${server.url}/v2/models/demo-model/generate`, { method: 'POST',
    body: JSON.stringify({ text_input: text, max_tokens, ignore_eos: true, sequence_id: 7, sequence_start, ...(sequence_start && { session_len: 4000 }) }) });
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

test('a limit of the files\' size ends an answer as a full disk does', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const limit = (bytes) => execFileSync('prlimit', ['--pid', server.process.pid, `--fsize=${bytes}:`]);
  limit(4096);
  const refused = await post(server, '/v1/chat/completions', { messages, max_tokens: 5 });
  assert.equal(refused.status, 503, await refused.text());
  limit('unlimited');
  await until('the store to recover', async () => (await fetch(`${server.url}/readyz`)).ok);
  const served = await post(server, '/v1/chat/completions', { messages, max_tokens: 5 });
  assert.equal(served.status, 200, await served.text());
});

test('a start under a limit of the files\' size names the limit', async (t) => {
  const args = ['--fsize=20000', parley, 'serve', '--model', path.join(root, 'configs/demo-model'), '--port', '0', '--db', path.join(temporaryFolder(t), 'p.db')];
  const { status, stderr } = spawnSync('prlimit', args, { encoding: 'utf8', timeout: patience });
  assert.equal(status, 1, stderr);
  assert.match(stderr, /p\.db: disk I\/O error: File too large$/m);
});

/** A turn of the native protocol that runs, and one that has ended: what their client is told of them stays. */
async function followed(server) {
  const follower = await Follower.open(await server.connect());
  const ended = await follower.start('Hello!', { sampling: { seed: '5', max_tokens: 8, ignore_eos: true, logprobs: true } });
  await follower.done(ended);
  const turn = await follower.start('Tell me a story.', { sampling: { seed: '6', max_tokens: n, ignore_eos: true, logprobs: true } });
  await follower.tokens(turn, 5);
  return { follower, ended, turn };
}

/** Answers that ended before the disk was full in every protocol: [session, text]. */
async function answered(server) {
  const told = [];
  for (const [name, address, body] of forms) {
    const answer = await (await post(server, address, { ...body, max_tokens: 6, max_output_tokens: 6, store: true })).json();
    const text = answer.choices?.[0].message?.content ?? answer.choices?.[0].text ?? answer.output?.[0].content[0].text ?? answer.content?.[0].text;
    assert.ok(text, `${name}: ${JSON.stringify(answer)}`);
    told.push([/(cmpl-)?[0-9a-f]{32}/.exec(answer.id.replace('chatcmpl-', ''))[0], text]);
  }
  const generate = await fetch(`${server.url}/v2/models/demo-model/generate`, { method: 'POST',
    body: JSON.stringify({ text_input: 'Hello', max_tokens: 6, ignore_eos: true, sequence_id: 8, sequence_start: true, session_len: 500 }) });
  const answer = await generate.json();
  assert.equal(generate.status, 200, JSON.stringify(answer));
  const { sessions: [sequence] } = await (await server.connect()).ask({ type: 'session.list', query: 'Sequence 8' });
  told.push([sequence.id, answer.text_output]);
  return told;
}

/** Everything of `told` is on record. */
async function stillTold(client, told) {
  for (const [session, text] of told) {
    const { turns } = await client.ask({ type: 'session.get', session });
    assert.ok(turns?.some((turn) => turn.text.trim() === text.trim()), `${session}: ${JSON.stringify(turns)} has no ${JSON.stringify(text)}`);
  }
}

/** Until the store has noticed; from then on it must not call itself ready before there is room. */
async function noticed(server) {
  await until('the full disk to be noticed', async () => { // by a write: other turns may have ended
    await post(server, '/v1/conversations', { items: [{ type: 'message', role: 'user', content: 'x'.repeat(20000) }] });
    return (await fetch(`${server.url}/readyz`)).status === 503;
  });
  for (let i = 0; i < 40; i++) {
    const answer = await fetch(`${server.url}/readyz`);
    assert.equal(answer.status, 503, 'ready on a full disk');
    assert.equal((await answer.json()).reason, 'store');
    await sleep(50);
  }
}

longTest('a disk that fills and has room again, under every protocol: what was told is there, and ready means that turns are served', async (t) => {
  const disk = smallDisk(t, '4m');
  if (!disk) return t.skip('no file system can be mounted here');
  const db = path.join(disk, 'parley.db');
  const server = await Server.start(t, { db, args: [...unlimited, '--max-sequences', '16'] });
  const told = await answered(server);
  const sequence = await askedOfSequence(server);
  const own = await followed(server);
  const all = [sequence, ...await Promise.all(forms.map((form) => asked(server, form)))];
  for (let round = 0; round < 2; round++) {
    const ballast = fillDisk(disk);
    await noticed(server);
    if (round === 0) await Promise.all(all.map((one) => one.refused()));
    rmSync(ballast);
    await until('the store to recover', async () => (await fetch(`${server.url}/readyz`)).ok);
    await Promise.all(all.map((one) => one.served()));
  }
  const { ids } = await own.follower.done(own.turn);
  assert.equal(ids.length, n);
  await stillTold(own.follower.client, told);
  assert.equal((await server.stop()).code, 0);
  const again = await Server.start(t, { db, args: unlimited });
  const client = await again.connect();
  await stillTold(client, told);
  const reader = await Follower.attach(client, own.follower.session);
  for (const turn of [own.ended, own.turn])
    assert.deepEqual(transcript(await reader.done(turn)), transcript(own.follower.turns.get(turn)));
});

test('kill -9 while the disk is full, a start without room, and one with room', async (t) => {
  const disk = smallDisk(t, '4m');
  if (!disk) return t.skip('no file system can be mounted here');
  const db = path.join(disk, 'parley.db');
  const server = await Server.start(t, { db, args: [...unlimited, '--max-sequences', '16'] });
  const told = await answered(server);
  const own = await followed(server);
  const ignored = forms.map(([, address, body]) => post(server, address, body).catch(() => null)); // cut off by the kill
  const ballast = fillDisk(disk);
  await noticed(server);
  await server.stop('SIGKILL');
  await Promise.all(ignored);
  const { ids, logprobs } = own.follower.turns.get(own.turn);

  const start = () => Server.start(t, { db, args: unlimited, wait: false });
  const full = await start();
  const status = await Promise.race([full.exited, full.ready().then(() => null, () => full.exited)]);
  assert.ok(status, 'ready on a full disk');
  assert.equal(status.code, 1, full.log);
  const last = full.log.trim().split('\n').at(-1);
  assert.ok(last.includes(db) && /no space left/i.test(last), last);

  rmSync(ballast);
  const again = await start();
  await again.ready();
  const client = await again.connect();
  await stillTold(client, told);
  const reader = new Follower(own.follower.session);
  reader.mayLose = true; // numbers that were reserved and not used
  await reader.attach(client);
  assert.deepEqual(transcript(await reader.done(own.ended)), transcript(own.follower.turns.get(own.ended)));
  const cut = await reader.done(own.turn);
  assert.equal(cut.done.finish_reason, 'interrupted');
  assert.ok(cut.ids.length >= ids.length, `${ids.length} tokens were told, ${cut.ids.length} are there`);
  assert.deepEqual([cut.ids.slice(0, ids.length), cut.logprobs.slice(0, ids.length)], [ids, logprobs]);
  await reader.say('Go on.', { sampling: { max_tokens: 5 } });
});
