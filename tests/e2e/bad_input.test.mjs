// Bad input: over the wire each gets a code and a sentence that names the fault, while a turn runs undisturbed; at
// the start each broken file is named and ends the program with status 1.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, closeSync, cpSync, existsSync, openSync, readFileSync, readdirSync, rmSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { after } from 'node:test';
import { fillDisk, smallDisk } from './disk.mjs';
import { Follower, transcript } from './follower.mjs';
import { root, Server, temporaryFolder, unlimited, until } from './harness.mjs';
import { run } from './run.mjs';
import { putTogether, takeApart } from './safetensors.mjs';

const tiny = path.join(root, 'tests/fixtures/models/llama');
const isRoot = process.getuid() === 0;
/** Root may write what is read-only, so the server runs as somebody else. */
const asNobody = isRoot ? ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups'] : [];
const sentence = (text) => assert.ok(typeof text === 'string' && text.length > 8 && text.length < 500 && !text.includes('\n'), JSON.stringify(text));

// --- over the wire ---------------------------------------------------------------------------------------------------

const server = await Server.start({ after }, { args: unlimited });
const client = await server.connect({ malformed: true });
const beside = { temperature: 0.9, seed: '21', max_tokens: 150, ignore_eos: true, logprobs: true };
const solo = transcript(await (await Follower.open(client)).say('Tell me a story.', { sampling: beside }));

/** Runs a turn beside what work() does; it must come out as it does alone, and the server must still be ready. */
async function undisturbed(work) {
  const other = await Follower.open(await server.connect());
  const turn = await other.start('Tell me a story.', { sampling: beside });
  await work();
  assert.deepEqual(transcript(await other.done(turn)), solo);
  assert.equal((await fetch(`${server.url}/readyz`)).status, 200);
}

/** What the server says to raw text; what has no request_id in it is matched by its place. */
async function reply(connection, text) {
  connection.taken = connection.frames.length;
  connection.send(text);
  return connection.next((frame) => frame.type === 'error' || frame.request_id !== undefined);
}

function isError(answer, codes, culprit) {
  assert.equal(answer.type, 'error', JSON.stringify(answer));
  assert.ok([codes].flat().includes(answer.code), JSON.stringify(answer));
  sentence(answer.message);
  if (culprit) assert.ok(answer.message.includes(culprit), `${answer.message}: no word of ${culprit}`);
}

test('broken JSON, wrong types, unknown messages', () => undisturbed(async () => {
  for (const text of ['', '{', '{"type":', '{"type":"ping"}}', '{"type":"ping",}', "{'type':'ping'}", 'nonsense', '{"type":"ping"} x', '\u0000',
    '['.repeat(100000), `${'{"a":'.repeat(5000)}1${'}'.repeat(5000)}`, '{"type":"ping","x\\ud800":1}', '{"type":"\\u0000ping"}', `{"type":"ping","x":[${'0,'.repeat(300000)}0]}`])
    isError(await reply(client, text), ['bad_json', 'bad_message', 'unknown_type'], null);
  for (const text of ['[]', '1', 'null', '"ping"', '{}', '{"type":5}', '{"type":null}', '{"Type":"ping"}'])
    isError(await reply(client, text), ['bad_message', 'bad_json'], null);
  for (const type of ['', 'pong', 'turn.stop', 'session.opened', 'x'.repeat(5000), 'ping ']) {
    const answer = await client.ask({ type });
    isError(answer, 'unknown_type', type.slice(0, 8));
  }
  for (const [message, key] of [
    [{ type: 'session.open', session_len: 'many' }, 'session_len'], [{ type: 'session.open', title: 5 }, 'title'],
    [{ type: 'session.open', sampling: [] }, 'sampling'], [{ type: 'session.open', system: {} }, 'system'],
    [{ type: 'session.open', memory_len: 1.5 }, 'memory_len'], [{ type: 'session.attach' }, 'session'],
    [{ type: 'session.attach', session: 5 }, 'session'], [{ type: 'session.attach', session: 'x', after: '1' }, 'after'],
    [{ type: 'session.attach', session: 'x', after: -1 }, 'after'], [{ type: 'session.get', session: 'x', last: 5000 }, 'last'],
    [{ type: 'session.list', limit: 0 }, 'limit'], [{ type: 'session.list', limit: 201 }, 'limit'], [{ type: 'session.list', query: 1 }, 'query'],
    [{ type: 'session.close', session: 'x', delete: 'yes' }, 'delete'], [{ type: 'turn.start', session: 'x' }, 'input'],
    [{ type: 'turn.start', session: 'x', input: {} }, 'input'], [{ type: 'turn.start', session: 'x', input: 'hello' }, 'input'],
    [{ type: 'turn.start', session: 'x', input: { content: 'a', text: 'b' } }, 'input'], [{ type: 'turn.start', session: 'x', input: { ids: 5 } }, 'ids'],
    [{ type: 'turn.start', session: 'x', input: { ids: ['5'] } }, 'ids'], [{ type: 'turn.start', session: 'x', input: { content: 'a' }, queue: 1 }, 'queue'],
    [{ type: 'turn.cancel', session: 'x', turn: 'last' }, 'turn'], [{ type: 'session.open', model: 'another' }, 'model'],
    [{ type: 'session.open', title: 'x'.repeat(5000) }, 'title'], [{ type: 'session.open', system: 'x'.repeat(40000) }, 'system'],
  ]) isError(await client.ask(message), ['bad_message', 'invalid'], key);
  isError(await reply(client, '{"type":"ping","request_id":5}'), 'bad_message', 'request_id');
  isError(await reply(client, JSON.stringify({ type: 'ping', request_id: 'x'.repeat(200) })), 'bad_message', 'request_id');
}));

test('a frame of 100 MB, a message over the limit, invalid UTF-8, a binary frame', () => undisturbed(async () => {
  for (const bytes of [100 << 20, (1 << 20) + 1]) {
    const big = await server.connect({ malformed: true });
    big.socket.on('error', () => {}); // it may be cut off while it sends
    big.send(`{"type":"ping","x":"${'a'.repeat(bytes)}"}`);
    const code = await big.closed;
    assert.ok([1009, 1006].includes(code), `closed with ${code}`);
    const error = big.frames.find((frame) => frame.type === 'error');
    if (code === 1009) isError(error, 'too_large', '1048576');
  }
  for (const bytes of [[0xff, 0xfe], [0xc3], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xc0, 0x80]]) {
    const wrong = await server.connect();
    wrong.socket.send(Buffer.from([...Buffer.from('{"type":"ping","x":"'), ...bytes, ...Buffer.from('"}')]), { binary: false });
    assert.equal(await wrong.closed, 1007);
  }
  const binary = await server.connect();
  binary.socket.send(Buffer.from('{"type":"ping"}'), { binary: true });
  assert.equal(await binary.closed, 1003);
}));

test('ids out of the vocabulary, empty input, session ids with slashes or 10 kB', () => undisturbed(async () => {
  const author = await Follower.open(client);
  const start = (input) => client.ask({ type: 'turn.start', session: author.session, input });
  for (const ids of [[-1], [4096], [1, 2, 1e9], [1e300], [0.5], []]) isError(await start({ ids }), 'invalid', 'ids');
  isError(await start({ content: '' }), 'invalid', 'content');
  isError(await start({ text: '' }), 'invalid', 'text');
  for (const session of ['../../etc/passwd', 'a/b', '', 'x'.repeat(10240), 'ä', 'a b', "'; drop table sessions;--", 'x'.repeat(65), '%00', '.']) {
    isError(await client.ask({ type: 'session.open', session }), ['invalid', 'bad_message'], 'session');
    for (const type of ['session.attach', 'session.get', 'session.close', 'session.update', 'turn.cancel'])
      isError(await client.ask({ type, session }), ['invalid', 'bad_message', 'session_not_found'], 'session');
  }
  const { session, turns } = await client.ask({ type: 'session.get', session: author.session });
  assert.deepEqual([session.n_tokens, turns.length], [0, 0]);
  await author.say('Hello!', { sampling: { max_tokens: 2 } });
}));

test('unknown, closed, taken and busy sessions; lengths that cannot be', () => undisturbed(async () => {
  for (const type of ['session.attach', 'session.get', 'session.update', 'session.close', 'turn.cancel', 'session.detach'])
    isError(await client.ask({ type, session: 'nobody' }), 'session_not_found');
  isError(await client.ask({ type: 'turn.start', session: 'nobody', input: { content: 'x' } }), 'session_not_found');
  const author = await Follower.open(client, { session: 'taken' });
  isError(await client.ask({ type: 'session.open', session: 'taken' }), 'session_exists', 'taken');
  const [turn, busy] = await Promise.all([author.start('Tell me a story.', { sampling: { max_tokens: 100, ignore_eos: true } }),
    client.ask({ type: 'turn.start', session: 'taken', input: { content: 'x' } })]);
  isError(busy, 'session_busy', 'running');
  await author.done(turn);
  assert.equal((await client.ask({ type: 'session.close', session: 'taken' })).type, 'session.closed');
  isError(await client.ask({ type: 'turn.start', session: 'taken', input: { content: 'x' } }), 'session_closed', 'closed');
  assert.equal((await client.ask({ type: 'session.get', session: 'taken' })).turns.length, 1, 'it can be read');
  assert.equal((await client.ask({ type: 'session.close', session: 'taken', delete: true })).type, 'session.closed');
  isError(await client.ask({ type: 'session.get', session: 'taken' }), 'session_not_found');
  const { max_memory_len, max_session_len } = client.hello.models[0];
  for (const [fields, culprit] of [[{ memory_len: max_memory_len + 1 }, 'memory_len'], [{ memory_len: 4, sink_len: 4 }, 'sink_len'],
    [{ memory_len: 4, sink_len: 100 }, 'sink_len'], [{ memory_len: 0 }, 'memory_len'], [{ memory_len: -5 }, 'memory_len'],
    [{ session_len: max_session_len + 1 }, 'session_len'], [{ session_len: 0 }, 'session_len'], [{ session_len: 1e18 }, 'session_len'],
    [{ sink_len: -2 }, 'sink_len']])
    {
      const answer = await client.ask({ type: 'session.open', ...fields });
      isError(answer, 'invalid', culprit);
      assert.equal(answer.key, culprit);
    }
}));

test('input beyond session_len: the numbers, and nothing is appended', () => undisturbed(async () => {
  const author = await Follower.open(client, { session_len: 100 });
  const answer = await client.ask({ type: 'turn.start', session: author.session, input: { ids: Array(100).fill(5) } });
  isError(answer, 'session_full', '100');
  assert.deepEqual(answer.room, { need: 100, left: 99, most: 99 });
  const huge = await client.ask({ type: 'turn.start', session: author.session, input: { content: 'word '.repeat(100000) } });
  isError(huge, 'session_full', 'at most 99 fit');
  const { need, ...room } = huge.room;
  assert.deepEqual(room, { at_least: true, left: 99, most: 99 });
  assert.ok(need >= 100 && huge.message.includes(`at least ${need} tokens`), huge.message);
  assert.equal((await client.ask({ type: 'session.get', session: author.session })).session.n_tokens, 0);
}));

test('ten thousand pieces of mutated protocol', () => undisturbed(async () => {
  let state = 88172645463325252n; // xorshift: the same every time
  const random = (n) => { state ^= (state << 13n) & (2n ** 64n - 1n); state ^= state >> 7n; state ^= (state << 17n) & (2n ** 64n - 1n); return Number(state % BigInt(n)); };
  const seeds = ['{"type":"session.open","session_len":100,"memory_len":50,"sink_len":4,"sampling":{"temperature":0.5,"stop":["a"],"logit_bias":{"5":1}}}',
    '{"type":"turn.start","session":"nobody","input":{"ids":[1,2,3]},"sampling":{"seed":"5","max_tokens":2},"queue":true}',
    '{"type":"session.list","query":"zora","limit":5,"cursor":"x"}', '{"type":"session.attach","session":"nobody","after":5}'];
  const alphabet = '{}[]",:0123456789-eE.tfnul\\\u00e9 ';
  const fuzz = await server.connect({ malformed: true }); // and each answer shows whether schema and server agree
  const pings = [];
  for (let i = 0; i < 10000; i++) {
    const text = [...seeds[random(seeds.length)].replace('{', `{"request_id":"m${i}",`)];
    for (let k = random(4); k >= 0; k--) text.splice(random(text.length), random(3), alphabet[random(alphabet.length)]);
    fuzz.send(text.join(''));
    if (i % 1000 === 999) pings.push(fuzz.ask({ type: 'ping', request_id: `alive${i}` }));
  }
  for (const pong of await Promise.all(pings)) assert.equal(pong.type, 'pong');
  assert.ok(fuzz.frames.filter((frame) => frame.type === 'error').every((frame) => frame.code !== 'internal'));
  for (const { session } of fuzz.frames.filter((frame) => frame.type === 'session.opened')) await fuzz.ask({ type: 'session.close', session: session.id, delete: true });
}));

// --- model folders -----------------------------------------------------------------------------------------------

/** Status 1, one sentence that names the culprit; no crash, no model served. */
async function refused(args, culprit, options) {
  const { code, signal, stderr, timedOut } = await run(args, options);
  assert.deepEqual([code, signal, timedOut], [1, null, undefined], `parley ${args.join(' ')}: ${stderr}`);
  const last = stderr.trim().split('\n').at(-1);
  assert.match(last, /^parley: /, stderr);
  sentence(last.replace(tmpdir(), '')); // as long as the machine has it
  assert.ok([culprit].flat().some((word) => last.includes(word)), `${last}: no word of ${culprit}`);
}
function copyOfModel(t, from = tiny) {
  const folder = path.join(temporaryFolder(t), 'model');
  cpSync(from, folder, { recursive: true, dereference: true });
  return folder;
}
const serve = (model, ...more) => ['serve', '--model', model, '--db', ':memory:', '--port', '0', ...more];
const generate = (model) => ['generate', '--model', model, '--ids', '1', '--max-tokens', '1'];

test('truncated and hostile safetensors', async (t) => {
  const folder = copyOfModel(t);
  const file = path.join(folder, 'model.safetensors');
  const { header, data } = takeApart(file);
  const [name, other] = Object.keys(header).filter((key) => key !== '__metadata__');
  const changed = (change) => { const copy = structuredClone(header); change(copy); return copy; };
  const end = Math.max(...Object.values(header).filter((t) => t.data_offsets).map((t) => t.data_offsets[1]));
  const hostile = {
    empty: () => writeFileSync(file, ''),
    'seven bytes': () => writeFileSync(file, Buffer.alloc(7)),
    'header length beyond the file': () => putTogether(file, header, data, 1 << 30),
    'header length of 2^64 - 1': () => putTogether(file, header, data, 2n ** 64n - 1n),
    'header length 0': () => putTogether(file, header, data, 0),
    'data cut off': () => { putTogether(file, header, data); truncateSync(file, 100000); },
    'header is not JSON': () => putTogether(file, '{"a":', data),
    'header is a list': () => putTogether(file, '[]', data),
    'deep header': () => putTogether(file, `${'{"a":'.repeat(3000)}1${'}'.repeat(3000)}`, data),
    'negative offset': () => putTogether(file, changed((h) => { h[name].data_offsets[0] = -8; }), data),
    'offsets turned round': () => putTogether(file, changed((h) => h[name].data_offsets.reverse()), data),
    'offset beyond the data': () => putTogether(file, changed((h) => { h[name].data_offsets = [end, end + 8]; }), data),
    'offset 1e300': () => putTogether(file, changed((h) => { h[name].data_offsets[1] = 1e300; }), data),
    overlap: () => putTogether(file, changed((h) => { h[name].data_offsets = h[other].data_offsets; h[name].shape = h[other].shape; }), data),
    'shape that overflows': () => putTogether(file, changed((h) => { h[name].shape = [2 ** 32, 2 ** 32]; }), data),
    'negative shape': () => putTogether(file, changed((h) => { h[name].shape = [-1, -64]; }), data),
    'shape of other size': () => putTogether(file, changed((h) => { h[name].shape = [1]; }), data),
    'unknown dtype': () => putTogether(file, changed((h) => { h[name].dtype = 'F12'; }), data),
    'no dtype': () => putTogether(file, changed((h) => { delete h[name].dtype; }), data),
    'a tensor is missing': () => putTogether(file, changed((h) => { h[`${name}.other`] = h[name]; delete h[name]; }), data),
    'data after the last tensor': () => putTogether(file, header, Buffer.concat([data, Buffer.alloc(64)])),
  };
  for (const [what, spoil] of Object.entries(hostile)) {
    spoil();
    await t.test(what, () => refused(generate(folder), ['model.safetensors', name, other]));
  }
  await refused(serve(folder), ['model.safetensors', name, other]);
  rmSync(file);
  await refused(serve(folder), ['model.safetensors', 'safetensors']);
});

test('hostile config.json', async (t) => {
  const folder = copyOfModel(t);
  const file = path.join(folder, 'config.json');
  const config = JSON.parse(readFileSync(file));
  for (const [what, text, culprit] of [
    ['empty', '', 'config.json'], ['broken', '{"model_type":', 'config.json'], ['a list', '[]', 'config.json'],
    ['unknown family', { ...config, model_type: 'mamba', architectures: ['MambaForCausalLM'] }, ['mamba', 'Mamba']],
    ...[['hidden_size', 0], ['hidden_size', -64], ['hidden_size', 1e12], ['hidden_size', '64'], ['hidden_size', 65], ['num_hidden_layers', 0],
      ['num_hidden_layers', 2 ** 31], ['num_hidden_layers', 4], ['num_attention_heads', 0], ['num_attention_heads', 3], ['num_key_value_heads', 3],
      ['num_key_value_heads', 0], ['vocab_size', 0], ['vocab_size', 2 ** 40], ['vocab_size', 321], ['max_position_embeddings', -1], ['head_dim', 0],
      ['head_dim', 17], ['intermediate_size', 0], ['rms_norm_eps', -1], ['rms_norm_eps', 'small'], ['hidden_act', 'sigmoidal'],
    ].map(([key, value]) => [`${key} ${JSON.stringify(value)}`, { ...config, [key]: value }, [key, 'tensor', 'weight', 'model.', 'config.json']]),
  ]) {
    writeFileSync(file, typeof text === 'string' ? text : JSON.stringify(text));
    await t.test(what, () => refused(generate(folder), culprit));
  }
  rmSync(file);
  await refused(serve(folder), 'config.json');
  await refused(serve('/nonexistent'), '/nonexistent');
  await refused(serve(path.join(root, 'README.md')), 'README.md');
});

test('hostile tokenizer.json', async (t) => {
  const folder = copyOfModel(t, path.join(root, 'configs/demo-model'));
  const file = path.join(folder, 'tokenizer.json');
  const tokenizer = JSON.parse(readFileSync(file));
  const changed = (change) => { const copy = structuredClone(tokenizer); change(copy); return JSON.stringify(copy); };
  const whole = readFileSync(file);
  for (const [what, text] of [
    ['empty', ''], ['cut off', whole.subarray(0, whole.length / 2)], ['a list', '[]'], ['no model', changed((j) => { delete j.model; })],
    ['unknown type', changed((j) => { j.model.type = 'Magic'; })], ['vocabulary is a list', changed((j) => { j.model.vocab = ['a']; })],
    ['negative id', changed((j) => { j.model.vocab[Object.keys(j.model.vocab)[10]] = -1; })],
    ['huge id', changed((j) => { j.model.vocab[Object.keys(j.model.vocab)[10]] = 2 ** 31; })],
    ['merge of unknown pieces', changed((j) => { j.model.merges[0] = ['nonsense1', 'nonsense2']; })],
    ['merge of one piece', changed((j) => { j.model.merges[0] = 'one'; })],
    ['pattern that does not compile', changed((j) => { j.pre_tokenizer = { type: 'Split', pattern: { Regex: '(((' }, behavior: 'Isolated', invert: false }; })],
    ['unknown pre-tokenizer', changed((j) => { j.pre_tokenizer = { type: 'Magic' }; })],
    ['invalid UTF-8', Buffer.concat([whole.subarray(0, 100), Buffer.from([0xff]), whole.subarray(100)])],
  ]) {
    writeFileSync(file, text);
    await t.test(what, async () => {
      await refused(['tokenize', '--model', folder, '--json'], 'tokenizer.json', { input: 'hello' });
    });
  }
  // The server does not start with half a model.
  await refused(serve(folder), 'tokenizer.json');
});

// --- the command line ----------------------------------------------------------------------------------------------

test('values on the command line that cannot be', async () => {
  const { code, stderr } = await run(['serve', '--model', tiny, '--memory-len', '4', '--sink-len', '4', '--db', ':memory:', '--port', '0']);
  assert.ok([1, 2].includes(code), stderr);
  assert.match(stderr, /sink_len/);
  await refused(serve(tiny, '--memory-len', '100000'), 'memory_len');
  await refused(serve(tiny, '--kv-cache-bytes', '1000'), ['kv_cache_bytes', 'cache']);
  await refused(['score', '--model', tiny, '--ids', '1,320'], '320');
  await refused(['score', '--model', tiny, '--ids', '1,-1'], '-1');
  await refused([...generate(tiny), '--memory-len', '4', '--sink-len', '5'], 'sink_len');
  await refused([...generate('configs/demo-model'), '--chat-template', '/nonexistent'], '/nonexistent');
  await refused(['tokenize', '--model', 'configs/demo-model', '--decode'], 'JSON', { input: '{"ids":[1,' });
  await refused(['tokenize', '--model', 'configs/demo-model', '--decode'], 'id', { input: '{"ids":[99999]}' });
  await refused(['tokenize', '--model', 'configs/demo-model', '--chat'], 'messages', { input: '{}' });
});

test('a port in use, an address that is not ours, files that are not there', async () => {
  await refused(['serve', '--model', tiny, '--db', ':memory:', '--port', String(server.port)], String(server.port));
  await refused(serve(tiny, '--host', '192.0.2.1'), 'token');
  await refused(serve(tiny, '--host', 'not-an-address'), 'not-an-address');
  await refused(serve(tiny, '--token-file', '/nonexistent/tokens'), '/nonexistent/tokens');
  await refused(serve(tiny, '--tls-cert', '/nonexistent/cert'), 'tls_key');
  await refused(['serve', '--config', '/nonexistent.ini'], '/nonexistent.ini');
});

// --- the database -----------------------------------------------------------------------------------------------------

test('a database that is locked, of somebody else, corrupt, newer, in a folder that is not there', async (t) => {
  const folder = temporaryFolder(t);
  const db = path.join(folder, 'parley.db');
  const start = (file) => ['serve', '--model', tiny, '--db', file, '--port', '0'];
  const first = await Server.start(t, { model: tiny, db, args: unlimited });
  const follower = await Follower.open(await first.connect());
  await follower.say({ ids: [5] }, { sampling: { max_tokens: 20, ignore_eos: true } });
  await refused(start(db), db);
  assert.equal((await fetch(`${first.url}/readyz`)).status, 200, 'the first server does not mind the second');
  await first.stop();

  const text = path.join(folder, 'text.db');
  writeFileSync(text, 'This is no database. '.repeat(500));
  await refused(start(text), text);
  assert.equal(readFileSync(text, 'utf8'), 'This is no database. '.repeat(500), 'it was left alone');
  const foreign = path.join(folder, 'foreign.db');
  execFileSync('sqlite3', [foreign, 'create table t (x); insert into t values (1)']);
  await refused(start(foreign), foreign);
  assert.equal(execFileSync('sqlite3', [foreign, '.tables']).toString().trim(), 't');
  const newer = path.join(folder, 'newer.db');
  cpSync(db, newer);
  execFileSync('sqlite3', [newer, 'pragma user_version = 99']);
  await refused(start(newer), 'newer');
  const corrupt = path.join(folder, 'corrupt.db');
  cpSync(db, corrupt);
  const fd = openSync(corrupt, 'r+');
  for (let page = 1; page < 12; page++) writeSync(fd, Buffer.alloc(4096, 0xa5), 0, 4096, page * 4096);
  closeSync(fd);
  await refused(start(corrupt), corrupt);
  const torn = path.join(folder, 'torn.db');
  cpSync(db, torn);
  truncateSync(torn, 4096);
  await refused(start(torn), torn);
  await refused(start('/nonexistent/folder/parley.db'), '/nonexistent/folder/parley.db: '); // the file, not its lock
  await refused(start(folder), folder);
  const again = await Server.start(t, { model: tiny, db, args: unlimited });
  const reader = await Follower.attach(await again.connect(), follower.session);
  assert.deepEqual(transcript(await reader.done(0)), transcript(follower.turns.get(0)));
});

test('a read-only database is named at the start', async (t) => {
  const folder = temporaryFolder(t);
  const db = path.join(folder, 'parley.db');
  const first = await Server.start(t, { model: tiny, db, args: unlimited });
  await first.stop();
  readdirSync(folder).forEach((name) => chmodSync(path.join(folder, name), 0o444));
  chmodSync(folder, 0o555);
  const model = copyOfModel(t); // nobody may not read what lies in root's home, where a clone may be
  chmodSync(path.dirname(model), 0o755);
  await refused(['serve', '--model', model, '--db', db, '--port', '0'], db, { wrap: asNobody });
  chmodSync(folder, 0o755);
});

test('a disk that fills in the middle of an answer: attached clients learn why nothing comes', async (t) => {
  const disk = smallDisk(t);
  if (!disk) return t.skip('no file system can be mounted here');
  const own = await Server.start(t, { db: path.join(disk, 'parley.db'), args: unlimited });
  const [first, second] = [await own.connect(), await own.connect()];
  const follower = await Follower.open(first);
  const turn = await follower.start('Tell me a story.', { sampling: { max_tokens: 1500, ignore_eos: true } });
  await follower.tokens(turn, 5);
  const ballast = fillDisk(disk);
  const stalled = (client) => until('session.stalled', () => client.frames.find(({ type }) => type === 'session.stalled'));
  const told = await stalled(first);
  assert.deepEqual(Object.keys(told).sort(), ['message', 'reason', 'session', 'type']);
  assert.equal(told.reason, 'disk_full');
  assert.equal(told.session, follower.session);
  assert.match(told.message, /no space left/);
  await second.ask({ type: 'session.attach', session: follower.session, after: 0 });
  await stalled(second);
  rmSync(ballast);
  const { ids } = await follower.done(turn);
  assert.equal(ids.length, 1500);
  const after = first.frames.findLastIndex(({ type }) => type === 'session.stalled');
  assert.equal(first.frames.at(-1).type, 'turn.done');
  assert.ok(after < first.frames.length - 1, 'what waited comes after it');
});

test('a full disk: store_failed, nothing changed, not ready; with room again it goes on', async (t) => {
  const disk = smallDisk(t);
  if (!disk) return t.skip('no file system can be mounted here');
  const own = await Server.start(t, { model: tiny, db: path.join(disk, 'parley.db'), args: unlimited });
  const connection = await own.connect();
  const follower = await Follower.open(connection);
  const small = { sampling: { max_tokens: 5, ignore_eos: true } };
  await follower.say({ ids: [5] }, small);
  const before = (await connection.ask({ type: 'session.get', session: follower.session })).session;
  const ballast = fillDisk(disk);
  // What fits into space already allocated may still be taken; in the end it is refused.
  let refusal;
  for (let i = 0; i < 200 && !refusal; i++) {
    const answer = await connection.ask({ type: 'session.open', system: 'x'.repeat(20000) });
    if (answer.type === 'error') refusal = answer;
  }
  isError(refusal, 'store_failed');
  const turn = await connection.ask({ type: 'turn.start', session: follower.session, input: { ids: Array(100).fill(6) }, sampling: { max_tokens: 200, ignore_eos: true } });
  if (turn.type === 'error') {
    isError(turn, 'store_failed');
    const now = (await connection.ask({ type: 'session.get', session: follower.session })).session;
    assert.deepEqual([now.n_turns, now.n_tokens, now.seq], [before.n_turns, before.n_tokens, before.seq]);
  } else {
    await follower.done(turn.turn);
  }
  const ready = await fetch(`${own.url}/readyz`);
  assert.equal(ready.status, 503);
  assert.equal((await ready.json()).reason, 'store');
  assert.equal((await fetch(`${own.url}/healthz`)).status, 200);
  assert.equal((await connection.ask({ type: 'session.get', session: follower.session })).type, 'session.state', 'reading goes on');
  rmSync(ballast);
  await until('the store to recover', async () => (await fetch(`${own.url}/readyz`)).ok);
  await follower.say({ ids: [7] }, small);
  const { turns } = await connection.ask({ type: 'session.get', session: follower.session });
  await own.stop();
  assert.ok(existsSync(path.join(disk, 'parley.db')));
  const again = await Server.start(t, { model: tiny, db: path.join(disk, 'parley.db'), args: unlimited });
  assert.deepEqual((await (await again.connect()).ask({ type: 'session.get', session: follower.session })).turns, turns);
});
