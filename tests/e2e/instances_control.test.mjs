// Instances that come and go while the server runs, through its control socket: clients under load see no error and
// every token of a server that is left alone; caches move as they are; and only the server's user gets in.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { chmodSync, cpSync, existsSync, renameSync, statSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { Follower, transcript } from './follower.mjs';
import { few, parley, root, Server, temporaryFolder, unlimited, until } from './harness.mjs';
import { run } from './run.mjs';

const demo = path.join(root, 'configs/demo-model');

/** One request to the control socket. */
function ask(server, request) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(`${server.db}.control`);
    let text = '';
    socket.on('error', reject).on('data', (bytes) => { text += bytes; }).on('end', () => resolve(text && JSON.parse(text)));
    socket.write(typeof request === 'string' ? request : `${JSON.stringify(request)}\n`);
  });
}
const states = (answer) => Object.fromEntries(answer.instances.map(({ name, state }) => [name, state]));
const good = async (server, request) => {
  const answer = await ask(server, request);
  assert.equal(answer.ok, true, JSON.stringify(answer));
  return states(answer);
};
const refused = async (server, request, want) => {
  const answer = await ask(server, request);
  assert.equal(answer.ok, false, JSON.stringify(answer));
  assert.match(answer.message, want);
};

test('instances take the devices of a list in order, and say how many places they have', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--instances', '2', '--device', 'cpu,cpu', '--threads', '1'] });
  const { instances } = await ask(server, { command: 'list' });
  assert.deepEqual(instances.map(({ name, state, max_sequences }) => [name, state, max_sequences]), [['1', 'serving', 16], ['2', 'serving', 16]]);
  const three = await run(['serve', '--model', demo, '--db', ':memory:', '--port', '0', '--instances', '2', '--device', 'cpu,cpu,cpu']);
  assert.notEqual(three.code, 0);
  assert.match(three.stderr, /device names 3 devices, and 2 instances of 1 rank take 2 of them, or 1 for all/);
});

test('load, drain and unload under load: no error, every token of a server left alone, nothing computed twice', async (t) => {
  const texts = ['My name is Zora.', 'What is my name?', 'What is 17 plus 25?'];
  const turn = (session, i) => session.say(texts[i % texts.length], { sampling: { temperature: 0.8, seed: '99', max_tokens: 24 } });
  const n_turns = few(20);
  const single = await Server.start(t, { args: unlimited });
  const one = await Follower.open(await single.connect(), { memory_len: 128 });
  const alone = [];
  for (let i = 0; i < n_turns; i++) alone.push(transcript(await turn(one, i)));
  await single.stop();

  const server = await Server.start(t, { args: [...unlimited, '--instances', '2', '--max-sequences', '2', '--threads', '1'] });
  const client = await server.connect();
  const sessions = await Promise.all(Array.from({ length: 6 }, () => Follower.open(client, { memory_len: 128 })));
  const idle = await Promise.all(Array.from({ length: 6 }, () => Follower.open(client, { memory_len: 128 })));
  await Promise.all(idle.map((session) => turn(session, 0)));
  const sources = new Map();
  const talk = sessions.map(async (session) => {
    const told = [];
    for (let i = 0; i < n_turns; i++) {
      const said = await turn(session, i);
      sources.set(said.done.cache.source, (sources.get(said.done.cache.source) ?? 0) + 1);
      told.push(transcript(said));
    }
    return told;
  });
  assert.deepEqual(await good(server, { command: 'load', instance: 'third', settings: { threads: 1, max_sequences: 2 } }),
    { 1: 'serving', 2: 'serving', third: 'serving' });
  assert.deepEqual(await good(server, { command: 'drain', instance: '1' }), { 1: 'drained', 2: 'serving', third: 'serving' });
  assert.deepEqual(await good(server, { command: 'unload', instance: '1' }), { 2: 'serving', third: 'serving' });
  assert.equal(await server.metric('parley_engine_steps_total{engine="1"}').catch(() => undefined) ?? 0, 0);
  assert.deepEqual(await good(server, { command: 'load', instance: '1' }), { 2: 'serving', third: 'serving', 1: 'serving' });
  assert.deepEqual(await good(server, { command: 'unload', instance: '2' }), { third: 'serving', 1: 'serving' });
  for (const told of await Promise.all(talk)) assert.deepEqual(told.map(({ text, ids }) => [text, ids]), alone.map(({ text, ids }) => [text, ids]));
  // What idled through all this was moved, and is not computed again, unless the machine measured that as faster: a busy one
  // measures badly.
  const back = [];
  for (const session of idle) {
    const said = await turn(session, 1);
    assert.deepEqual(transcript(said).ids, alone[1].ids);
    back.push(said.done.cache.source);
  }
  assert.ok(back.every((source) => ['host', 'kept', 'recomputed'].includes(source)) && back.some((source) => source !== 'recomputed'), back.join());
  t.diagnostic(`caches: ${JSON.stringify([...sources])}`);
  const ready = await (await fetch(`${server.url}/readyz`)).json();
  assert.deepEqual(ready.instances.map(({ name, state }) => [name, state]), [['third', 'serving'], ['1', 'serving']]);
  assert.ok(await server.metric('parley_engine_steps_total{engine="1"}') > 0);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  assert.ok(!existsSync(`${server.db}.control`));
});

test('another model comes while the server runs, and goes: hello, sessions and the list follow', async (t) => {
  const folder = temporaryFolder(t);
  const other = path.join(folder, 'other-model');
  const made = await run(['synth', '--like', 'demo', '--tokenizer-from', demo, '--out', other, '--seed', '7']);
  assert.equal(made.code, 0, made.stderr);
  const server = await Server.start(t, { args: unlimited });
  const models = async () => (await server.connect()).hello.models.map(({ name }) => name);
  const cli = (...args) => run(['instances', ...args, '--db', server.db]);
  assert.deepEqual(await models(), ['demo-model']);
  const loaded = await cli('load', 'second', '--model', other, '--set', 'threads=1,memory_len=256');
  assert.equal(loaded.code, 0, loaded.stderr);
  assert.match(loaded.stdout, /second +serving +other-model/);
  assert.deepEqual(await models(), ['demo-model', 'other-model']);
  const client = await server.connect();
  const theirs = await Follower.open(client, { model: 'other-model' });
  const first = await theirs.say('One, two, three.', { sampling: { temperature: 0, max_tokens: 6 } });
  assert.equal(first.ids.length, 6);
  assert.equal((await client.request({ type: 'session.get', session: theirs.session })).session.memory_len, 256);

  const last = await cli('unload', 'second');
  assert.equal(last.code, 1);
  assert.match(last.stderr, /no other instance of 'other-model' serves/);
  const gone = await cli('unload', 'second', '--last');
  assert.equal(gone.code, 0, gone.stderr);
  assert.deepEqual(await models(), ['demo-model']);
  const refusal = await client.request({ type: 'turn.start', session: theirs.session, input: { content: 'Four?' } });
  assert.equal(refusal.code, 'unsupported');
  const again = await cli('load', 'second', '--model', other, '--set', 'threads=1,memory_len=256');
  assert.equal(again.code, 0, again.stderr);
  const next = await theirs.say('Four?', { sampling: { temperature: 0, max_tokens: 6 } });
  assert.equal(next.done.cache.source, 'recomputed');

  // The only one of a server without names is called -.
  const list = await cli('list', '--json');
  assert.deepEqual(JSON.parse(list.stdout).instances.map(({ name }) => name), ['', 'second']);
  const unnamed = await cli('unload', '-', '--last');
  assert.equal(unnamed.code, 0, unnamed.stderr);
  assert.deepEqual(await models(), ['other-model']);
  assert.equal((await theirs.say('Five?', { sampling: { temperature: 0, max_tokens: 6 } })).ids.length, 6);
});

test('requests that cannot be: each is a sentence, and the server goes on', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--instances', '2'] });
  await refused(server, { command: 'drain', instance: 'x' }, /there is no instance 'x'/);
  await refused(server, { command: 'unload', instance: 'x' }, /there is no instance 'x'/);
  await refused(server, { command: 'drain' }, /'instance' is missing/);
  await refused(server, { command: 'reboot', instance: '1' }, /must be list, load, drain or unload/);
  await refused(server, { command: 'load', instance: '1' }, /there is an instance '1' already/);
  await refused(server, { command: 'load', instance: 'a/b' }, /a name has 1 to 32/);
  await refused(server, { command: 'load', instance: 'x', settings: { port: 1 } }, /'port' holds for the whole server/);
  await refused(server, { command: 'load', instance: 'x', settings: { nothing: 1 } }, /no setting 'nothing'/);
  await refused(server, { command: 'load', instance: 'x', settings: { threads: 100 } }, /threads.*64/);
  await refused(server, { command: 'load', instance: 'x', settings: { threads: [] } }, /'threads' must be a text/);
  await refused(server, { command: 'load', instance: 'x', settings: { model: '/nowhere' } }, /instance x: .*nowhere/);
  assert.deepEqual(await good(server, { command: 'list' }), { 1: 'serving', 2: 'serving', x: 'failed' });
  await refused(server, { command: 'load', instance: 'x', settings: { kv_dtype: 'int8' } }, /would not compute 'demo-model' as instance '1'/);
  assert.deepEqual(await good(server, { command: 'unload', instance: 'x' }), { 1: 'serving', 2: 'serving' });
  await refused(server, '{"command":\n', /./);
  await refused(server, '[]\n', /a JSON object/);
  await refused(server, `${'x'.repeat(70000)}\n`, /one line of at most/);
  const silent = net.connect(`${server.db}.control`);
  silent.on('error', () => {});
  await good(server, { command: 'drain', instance: '1' });
  await refused(server, { command: 'drain', instance: '2' }, /no other instance of 'demo-model' serves/);
  assert.deepEqual(await good(server, { command: 'unload', instance: '1', wait: false }).then(() => good(server, { command: 'list' })).then(Object.keys).then((names) => names.includes('2')), true);
  silent.destroy();
  const missing = await run(['instances', 'list', '--db', `${server.db}-other`]);
  assert.match(missing.stderr, /no server listens at/);
  assert.equal((await run(['instances', 'load'])).code, 2);
});

test('the socket is its user\'s alone; a dead server\'s is replaced, a living one\'s and other files are not', async (t) => {
  const folder = temporaryFolder(t);
  const socket = path.join(folder, 'control');
  const server = await Server.start(t, { args: ['--control-socket', socket] });
  assert.equal(statSync(socket).mode & 0o777, 0o600);
  assert.ok(!existsSync(`${server.db}.control`));
  if (process.getuid() === 0) { // another user, even where the mode would let it in
    chmodSync(socket, 0o777);
    chmodSync(folder, 0o755);
    const denied = await run(['instances', 'list', '--control-socket', socket], { wrap: ['setpriv', '--reuid', '65534', '--clear-groups', '--'] });
    assert.equal(denied.code, 1);
    assert.match(denied.stderr, /only the user who runs the server|No such file|ermission/);
  }
  const second = await Server.start(t, { wait: false, args: ['--control-socket', socket] });
  assert.equal((await second.exited).code, 1);
  assert.match(second.log, /another server listens at/);
  assert.equal((await run(['instances', 'list', '--control-socket', socket])).code, 0);
  await server.stop('SIGKILL');
  assert.ok(existsSync(socket));
  const third = await Server.start(t, { args: ['--control-socket', socket] });
  assert.equal((await run(['instances', 'list', '--control-socket', socket])).code, 0);
  await third.stop();
  assert.ok(!existsSync(socket));
  writeFileSync(socket, 'mine');
  const fourth = await Server.start(t, { wait: false, args: ['--control-socket', socket] });
  assert.equal((await fourth.exited).code, 1);
  assert.match(fourth.log, /exists and is no socket/);
  const long = await Server.start(t, { wait: false, args: ['--control-socket', path.join(folder, 'x'.repeat(120))] });
  assert.equal((await long.exited).code, 1);
  assert.match(long.log, /longer than the 107 bytes/);
  const none = await Server.start(t, { args: ['--control-socket', 'off'] });
  assert.ok(!existsSync(`${none.db}.control`));
  assert.match((await run(['instances', 'list', '--db', none.db])).stderr, /no server listens/);
});

test('a request whose model is unloaded while it waits for a place is refused alike by every protocol', async (t) => {
  const folder = temporaryFolder(t), other = path.join(folder, 'other-model'), ini = path.join(folder, 'parley.ini'), file = path.join(folder, 'tokens');
  const token = 'alice-token-of-thirty-two-characters';
  assert.equal((await run(['synth', '--like', 'demo', '--tokenizer-from', demo, '--out', other, '--seed', '7'])).code, 0);
  writeFileSync(ini, `[instance main]\n[instance second]\nmodel = ${other}\n`);
  writeFileSync(file, `alice:${token} running_turns=1\n`, { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--config', ini, '--token-file', file] });
  const client = await server.connect({ token });
  const session = await client.open();
  const { turn } = await client.start(session, 'Tell me a story.', { sampling: { max_tokens: 3900, ignore_eos: true } });
  const model = 'other-model', messages = [{ role: 'user', content: 'Hello' }];
  const post = async (target, body) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
    const answer = await fetch(`${server.url}${target}`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { target, status: answer.status, text: await answer.text() };
  };
  const row = (name, data) => ({ name, datatype: 'UINT32', shape: [1, data.length], data });
  const asked = Object.entries({
    '/v1/chat/completions': { model, messages }, '/v1/completions': { model, prompt: 'Hello' }, '/v1/embeddings': { model, input: 'Hello' },
    '/v1/responses': { model, input: 'Hello' }, '/v1/messages': { model, max_tokens: 5, messages },
    '/v2/models/other-model/infer': { inputs: [row('input_ids', [5, 6, 7]), row('input_lengths', [3]), row('request_output_len', [4])] },
    '/v2/models/other-model/generate': { text_input: 'Hello', parameters: { max_tokens: 5 } },
  }).map(([target, body]) => post(target, body));
  await until('the requests wait', async () => (await client.request({ type: 'session.list' })).sessions.filter(({ state }) => state === 'active').length === asked.length + 1);
  await good(server, { command: 'unload', instance: 'second', last: true, wait: false });
  const models = async () => (await (await fetch(`${server.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } })).json()).data;
  await until('the end of the model', async () => (await models()).length === 1);
  await client.request({ type: 'turn.cancel', session, turn });
  for (const { target, status, text } of await Promise.all(asked)) {
    assert.equal(status, target === '/v1/messages' ? 529 : 503, `${target}: ${text}`); // Anthropic's name of it
    assert.match(text, /model: 'other-model' was unloaded while the request waited; this server has 'demo-model'/, target);
  }
});

test('an instance that is lost can be drained, unloaded and loaded again; a drained one stays drained when its process dies', async (t) => {
  const model = path.join(temporaryFolder(t), 'demo-model');
  cpSync(demo, model, { recursive: true });
  const server = await Server.start(t, { model, args: [...unlimited, '--threads', '1', '--instances', '3', '--engine-process', 'on', '--engine-backoff', '0.2'] });
  const client = await server.connect();
  const kill = (name) => process.kill(Number([...server.log.matchAll(new RegExp(`engine\\.process instance=${name} pid=(\\d+)`, 'g'))].at(-1)[1]), 'SIGKILL');
  const state = async (name) => states(await ask(server, { command: 'list' }))[name];
  const ready = async (name) => (await (await fetch(`${server.url}/readyz`)).json()).instances.find((one) => one.name === name).state;
  const starts = () => [...server.log.matchAll(/event=engine\.process instance=3/g)].length;

  // It cannot be opened again: its model is gone. Unloading removes it, and loading starts it again.
  const shard = path.join(model, 'model-00001-of-00002.safetensors');
  renameSync(shard, `${shard}.away`);
  const began = Date.now();
  kill('1');
  await until('the instance to be lost', async () => (await state('1')) === 'lost');
  const lost = async () => (await ask(server, { command: 'list' })).instances.find(({ name }) => name === '1');
  await until('the attempt that failed', async () => /^attempt \d+ to start the engine process again failed: .*model-00001-of-00002\.safetensors/.test((await lost()).error));
  const { lost_ms: since } = await lost();
  assert.ok(since >= began && since <= Date.now(), `${since}`);
  const listed = await run(['instances', 'list', '--db', server.db]);
  assert.match(listed.stdout, new RegExp(`\\n1 +lost .*\\n    lost since ${new Date(since).toISOString().slice(0, 19)}Z: attempt \\d+ .*safetensors.*\\n2 +serving .*\\n3 `));
  const inState = (engine, what) => server.metric(`parley_instance_state{engine="${engine}",model="demo-model",state="${what}"}`);
  for (const [engine, want] of [['1', { serving: 0, draining: 0, drained: 0, lost: 1, stuck: 0 }], ['2', { serving: 1, draining: 0, drained: 0, lost: 0, stuck: 0 }]])
    for (const [what, value] of Object.entries(want)) assert.equal(await inState(engine, what), value, `${engine} ${what}`);
  for (const cache of ['kv', 'host']) assert.equal(await server.metric(`parley_engine_${cache}_cache_usage_ratio{engine="1"}`), 0);
  await refused(server, { command: 'load', instance: '1' }, /instance '1' is lost; unload it before you load it again/);
  assert.equal((await good(server, { command: 'drain', instance: '1' }))[1], 'drained');
  await refused(server, { command: 'load', instance: '1' }, /instance '1' is drained; unload it/);
  assert.deepEqual(await good(server, { command: 'unload', instance: '1' }), { 2: 'serving', 3: 'serving' });
  assert.equal(await inState('1', 'lost'), undefined);
  renameSync(`${shard}.away`, shard);
  assert.deepEqual(await good(server, { command: 'load', instance: '1' }), { 2: 'serving', 3: 'serving', 1: 'serving' });

  await good(server, { command: 'drain', instance: '3' });
  const before = starts();
  kill('3');
  await until('another process', () => starts() > before);
  assert.equal(await state('3'), 'drained');
  assert.equal(await ready('3'), 'drained');
  await client.turn(await client.open(), 'Hello', { sampling: { max_tokens: 4 } });
  assert.deepEqual([await state('3'), await ready('3')], ['drained', 'drained']);
  assert.deepEqual(await good(server, { command: 'unload', instance: '3' }), { 2: 'serving', 1: 'serving' });
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

test('the command: words and options that say nothing are refused, lists in --set, a model beside the operator', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--threads', '1'] });
  const cli = (...args) => run(['instances', ...args, '--db', server.db]);
  for (const [args, want] of [[['list', 'x'], /list takes no name/], [['list', '--set', 'threads=1'], /for load only/],
    [['drain', 'x', '--model', demo], /for load only/], [['load', 'x', '--last'], /for drain and unload only/]]) {
    const said = await cli(...args);
    assert.deepEqual([said.code, want.test(said.stderr)], [2, true], said.stderr);
  }
  const list = await cli('load', 'x', '--set', 'threads=1,device=cuda:70,cuda:71,max_sequences=2');
  assert.match(list.stderr, /device names 2 devices/);
  assert.match((await cli('load', 'x', '--set', 'threads,device=cpu')).stderr, /'threads' is not KEY=VALUE/);
  assert.match((await cli('load', 'x', '--model', 'nowhere')).stderr, /--model nowhere: No such file/);
  const here = await promisify(execFile)(parley, ['instances', 'load', 'y', '--model', 'demo-model', '--db', server.db, '--json'], { cwd: path.dirname(demo) });
  assert.equal(JSON.parse(here.stdout).instances.at(-1).folder, demo);
});
