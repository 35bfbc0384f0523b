// Several instances and models in one server, over the real wire: who serves what, where sessions live, what a restart
// and a missing model do, and which settings are refused.
import assert from 'node:assert/strict';
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Follower, transcript } from './follower.mjs';
import { longTest, root, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';
import { run } from './run.mjs';

const demo = path.join(root, 'configs/demo-model');
const greedy = { sampling: { temperature: 0 } };

/** A second model, with the demo model's tokenizer and weights of its own. */
async function otherModel(folder) {
  const out = path.join(folder, 'other-model');
  const { code, stderr } = await run(['synth', '--like', 'demo', '--tokenizer-from', demo, '--out', out, '--seed', '7']);
  assert.equal(code, 0, stderr);
  return out;
}

/** A folder with a database and the settings of a server with these sections. */
function settings(t, text) {
  const folder = temporaryFolder(t);
  const file = path.join(folder, 'parley.ini');
  writeFileSync(file, text);
  return { folder, file, options: { db: path.join(folder, 'parley.db'), args: [...unlimited, '--config', file] } };
}

const instances = async (server) => (await (await fetch(`${server.url}/readyz`)).json()).instances;
/** What one instance counted. */
const count = (server, name, instance) => server.metric(`${name}{engine="${instance}"}`);
const generated = (server, instance) => count(server, 'parley_engine_generated_tokens_total', instance);

const post = (server, target, body) => fetch(`${server.url}${target}`, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
const hi = [{ role: 'user', content: 'Hi' }];
/** Requests of the stateless protocols, without a model. */
const stateless = [['/v1/chat/completions', { max_tokens: 1, messages: hi }], ['/v1/completions', { max_tokens: 1, prompt: 'Hi' }],
  ['/v1/responses', { max_output_tokens: 1, input: 'Hi' }], ['/v1/responses/input_tokens', { input: 'Hi' }], ['/v1/responses/compact', { max_output_tokens: 1, input: 'Hi' }],
  ['/v1/embeddings', { input: 'Hi' }], ['/v1/messages', { max_tokens: 1, messages: hi }], ['/v1/messages/count_tokens', { messages: hi }]];

test('one model answers requests that name none', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  for (const [target, body] of stateless)
    for (const unnamed of [body, { ...body, model: null }, { ...body, model: '' }]) {
      const answer = await post(server, target, unnamed);
      const said = await answer.json();
      assert.equal(answer.status, 200, `${target}: ${JSON.stringify(said)}`);
      if ('model' in said) assert.equal(said.model, 'demo-model', target);
    }
});

longTest('two models: hello, /readyz, /v1/models and /metrics list them; sessions use the one that they name', async (t) => {
  const { folder, file, options } = settings(t, '');
  const other = await otherModel(folder);
  writeFileSync(file, `[instance main]\n[instance second]\nmodel = ${other}\nmemory_len = 512\ntemperature = 0.25\n`);
  const server = await Server.start(t, options);
  const client = await server.connect();
  assert.deepEqual(client.hello.models.map(({ name, memory_len, sampling }) => [name, memory_len, sampling.temperature]),
    [['demo-model', client.hello.models[0].memory_len, 0.7], ['other-model', 512, 0.25]]);
  assert.deepEqual((await instances(server)).map(({ name, model, state }) => [name, model, state]),
    [['main', 'demo-model', 'serving'], ['second', 'other-model', 'serving']]);
  const { data } = await (await fetch(`${server.url}/v1/models`)).json();
  assert.deepEqual(data.map(({ id, object }) => [id, object]), [['demo-model', 'model'], ['other-model', 'model']]);

  // An instance's name stands for its model, in every protocol.
  for (const [name, model] of [['main', 'demo-model'], ['second', 'other-model']]) {
    const { session } = await client.request({ type: 'session.open', model: name });
    assert.equal(session.model, model);
    await client.request({ type: 'session.close', session: session.id, delete: true });
    for (const [target, body] of [['/v1/chat/completions', { max_tokens: 1, messages: [{ role: 'user', content: 'Hi' }] }], ['/tokenize', { content: 'Hi' }]])
      assert.equal((await fetch(`${server.url}${target}`, { method: 'POST', body: JSON.stringify({ model: name, store: false, ...body }), headers: { 'content-type': 'application/json' } })).status, 200, `${target} ${name}`);
    assert.equal((await fetch(`${server.url}/v1/models/${name}`)).status, 200);
    assert.equal((await fetch(`${server.url}/v2/models/${name}`)).status, 200);
  }

  for (const [target, body] of stateless) { // with several models, each of these requests names one
    const answer = await post(server, target, body);
    assert.equal(answer.status, 400, target);
    assert.match((await answer.json()).error.message, /^model:? is missing; this server has 'demo-model', 'other-model'$/, target);
  }

  const unknown = await client.request({ type: 'session.open', model: 'third-model' });
  assert.equal(unknown.code, 'invalid');
  assert.match(unknown.message, /'third-model'.*'demo-model', 'other-model'/);

  const first = await Follower.open(client, {});
  const second = await Follower.open(client, { model: 'other-model' });
  const [a, b] = [await first.say('What is 2 plus 3?', greedy), await second.say('What is 2 plus 3?', { sampling: { temperature: 0, max_tokens: 12 } })];
  assert.match(a.text, /5/);
  assert.notDeepEqual(a.ids, b.ids);
  assert.equal(await generated(server, 'main'), a.ids.length + 1); // and that of the chat completion above
  assert.equal(await generated(server, 'second'), b.ids.length + 1);
  const { session } = await client.request({ type: 'session.get', session: second.session });
  assert.deepEqual([session.model, session.memory_len], ['other-model', 512]);

  // Every other protocol finds the model by its name.
  for (const model of ['demo-model', 'other-model']) {
    const answer = await fetch(`${server.url}/v1/chat/completions`, {
      method: 'POST', body: JSON.stringify({ model, max_tokens: 4, temperature: 0, messages: [{ role: 'user', content: 'What is 2 plus 3?' }] }) });
    const { choices } = await answer.json();
    assert.equal(a.text.startsWith(choices[0].message.content), model === 'demo-model');
    const infer = await fetch(`${server.url}/v2/models/${model}/generate`, { method: 'POST', body: JSON.stringify({ text_input: 'One, two', max_tokens: 3 }) });
    assert.equal(infer.status, 200, await infer.clone().text());
  }
  const missing = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST', body: JSON.stringify({ model: 'third-model', messages: [{ role: 'user', content: 'x' }] }) });
  assert.equal(missing.status, 404);

  // A replay runs on the session's model, with the same bits; a fork keeps the model; an export names it.
  await client.request({ type: 'turn.replay', session: second.session, turn: 0 });
  const replayed = await client.next((frame) => frame.type === 'turn.replayed');
  assert.deepEqual([replayed.equal, replayed.tokens.map(({ id }) => id).slice(0, b.ids.length)], [true, b.ids]);
  const fork = await Follower.fork(client, second.session, 0);
  const again = await fork.say('And 3 plus 4?', { sampling: { temperature: 0, max_tokens: 8 } });
  assert.equal(again.done.cache.source, 'kept');
  assert.ok(again.done.cache.kept_tokens > 0);
  const exported = await client.request({ type: 'session.export', session: second.session });
  assert.equal(JSON.parse(exported.archive).session.model, 'other-model');
});

test('two instances: sessions spread, stay with their cache, and give the tokens of a single one', async (t) => {
  const texts = ['My name is Zora.', 'What is my name?', 'What is 17 plus 25?'];
  const sampling = { temperature: 0.8, seed: '99', max_tokens: 24 };
  const tell = async (server, n) => {
    const client = await server.connect();
    const sessions = await Promise.all(Array.from({ length: n }, () => Follower.open(client)));
    const told = sessions.map(async (session) => {
      const turns = [];
      for (const text of texts) turns.push(await session.say(text, { sampling }));
      return turns;
    });
    return Promise.all(told);
  };
  const alone = await tell(await Server.start(t, { args: unlimited }), 1);
  const server = await Server.start(t, { args: [...unlimited, '--instances', '2', '--max-sequences', '2'] });
  const together = await tell(server, 6);
  for (const turns of together) {
    assert.deepEqual(turns.map(transcript).map(({ text, ids }) => [text, ids]), alone[0].map(transcript).map(({ text, ids }) => [text, ids]));
    for (const turn of turns.slice(1)) assert.equal(turn.done.cache.source, 'kept');
  }
  const [one, two] = [await generated(server, '1'), await generated(server, '2')];
  assert.ok(one > 0 && two > 0, `${one} and ${two} tokens`);
  assert.equal(one + two, together.flat().reduce((sum, { ids }) => sum + ids.length, 0));
  assert.deepEqual((await instances(server)).map(({ name, turns }) => [name, turns]), [['1', 0], ['2', 0]]);
  assert.equal((await instances(server)).reduce((sum, { sessions }) => sum + sessions, 0), 6);
});

longTest('a hot instance hands an idle session over with its cache, ahead of its next turn', async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--instances', '2', '--max-sequences', '2'] });
  const client = await server.connect();
  const counts = async () => (await instances(server)).map(({ sessions }) => sessions);
  const say = (session, i) => session.say(['My name is Zora.', 'What is my name?'][i], { sampling: { temperature: 0, max_tokens: 16 } });
  const plain = (turn) => [transcript(turn).text, transcript(turn).ids];
  const at = [[], []];
  let first;
  while (at[0].length < 3) { // sessions with a cache on the first instance
    const before = await counts(), session = await Follower.open(client);
    first = await say(session, 0);
    at[(await counts()).findIndex((n, k) => n > before[k])].push(session);
  }
  for (const { session } of at[1]) await client.request({ type: 'session.close', session });
  await until('the other instance to be empty', async () => (await counts())[1] === 0);
  const [idle, ...busy] = at[0];
  const moved = () => idle.evictions.some(({ type, reason }) => type === 'session.parked' && reason === 'moved');
  await Promise.all(busy.map(async (session) => {
    while (!moved()) await session.say('Go on.', { after: null, sampling: { max_tokens: 1000, ignore_eos: true } });
  }));
  assert.equal((await counts())[1], 1);
  const second = await say(idle, 1);
  // Brought back, or, where the machine measured that as slower, computed again: there.
  assert.ok(['host', 'recomputed'].includes(second.done.cache.source), second.done.cache.source);
  assert.equal((await counts())[1], 1);
  const other = await Follower.open(client);
  assert.deepEqual([plain(await say(other, 0)), plain(await say(other, 1))], [plain(first), plain(second)]);
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
});

longTest('a restart places sessions by the model on record and the snapshot of their instance; a missing model is named', async (t) => {
  const { folder, file, options } = settings(t, '');
  const other = await otherModel(folder);
  const snapshots = path.join(folder, 'snapshots');
  const both = `[engine]\nsnapshot_dir = ${snapshots}\n[instance a]\n[instance b]\n[instance other]\nmodel = ${other}\n`;
  writeFileSync(file, both);
  let server = await Server.start(t, options);
  let client = await server.connect();
  const demos = await Promise.all(['s0', 's1', 's2', 's3'].map((session) => Follower.open(client, { session })));
  const third = await Follower.open(client, { session: 'theirs', model: 'other-model' });
  const words = 'remember all of these words: red, green, blue, white, black, yellow, orange, violet, brown, pink. ';
  await Promise.all(demos.map((session) => session.say(`${session.session}, ${words.repeat(4)}`, { sampling: { temperature: 0, max_tokens: 4 } })));
  await third.say('One, two, three.', { sampling: { temperature: 0, max_tokens: 6 } });
  await server.stop();
  assert.deepEqual(readdirSync(snapshots).sort(), ['a', 'b', 'other']);
  const files = Object.fromEntries(['a', 'b'].map((name) => [name, readdirSync(path.join(snapshots, name)).filter((file) => file.endsWith('.kv')).length]));
  assert.deepEqual(files, { a: 2, b: 2 });

  server = await Server.start(t, options);
  client = await server.connect();
  for (const { session } of demos) {
    const follower = new Follower(session);
    await follower.attach(client);
    await follower.say('Thank you.', { sampling: { temperature: 0, max_tokens: 4 } });
  }
  for (const name of ['a', 'b']) { // each turn went where its snapshot was
    assert.equal(await server.metric(`parley_engine_requests_finished_total{engine="${name}",reason="length"}`), files[name], name);
  }
  await server.stop();

  writeFileSync(file, `[instance a]\n`);
  server = await Server.start(t, options);
  client = await server.connect();
  const state = await client.request({ type: 'session.attach', session: 'theirs', after: 0 });
  assert.equal(state.type, 'session.attached');
  const refused = await client.request({ type: 'turn.start', session: 'theirs', input: { content: 'Four?' } });
  assert.equal(refused.code, 'unsupported');
  assert.match(refused.message, /'other-model'.*this server has 'demo-model'/);
  const read = await client.request({ type: 'session.get', session: 'theirs' });
  assert.equal(read.turns.length, 1);
  const renamed = await client.request({ type: 'session.update', session: 'theirs', title: 'Theirs', sampling: { temperature: 0.5 } });
  assert.equal(renamed.type, 'session.updated');
  await server.stop();

  writeFileSync(file, both);
  server = await Server.start(t, options);
  client = await server.connect();
  const back = new Follower('theirs');
  await back.attach(client);
  const turn = await back.say('Four?', { sampling: { temperature: 0, max_tokens: 6 } });
  assert.equal(turn.ids.length, 6);
  await until('the list to show both models', async () => {
    const { sessions } = await client.request({ type: 'session.list' });
    return new Set(sessions.map(({ model }) => model)).size === 2;
  });
});

longTest('settings of instances: what is wrong is named with its line; --print-config gives the file back', async (t) => {
  const { file } = settings(t, '');
  const refused = async (text, want, ...more) => {
    writeFileSync(file, text);
    const { code, stderr } = await run(['serve', '--model', demo, '--db', ':memory:', '--port', '0', '--config', file, ...more]);
    assert.notEqual(code, 0, text);
    assert.match(stderr, want, text);
  };
  await refused('[instance a]\n[instance a]\n', /parley\.ini:2: there are two sections \[instance a\]/);
  await refused('[instance a/b]\n', /parley\.ini:1: .*a name has 1 to 32 letters/);
  await refused('[instance ]\n', /parley\.ini:1: .*a name has/);
  await refused('[instance a]\nport = 1\n', /parley\.ini:2: 'port' holds for the whole server: it belongs in section \[server\]/);
  await refused('[instance a]\nthreds = 1\n', /parley\.ini:2: .*'threds'.*'threads'/);
  await refused('[instance a]\nthreads = 1\nthreads = 2\n', /parley\.ini:3: 'threads' is set twice/);
  await refused('[instance a]\nthreads = 100\n', /parley\.ini:2: .*64/);
  await refused('[instance a]\ninstances = 2\n', /'instances' holds for the whole server/);
  await refused('[instance a]\n', /exclude each other/, '--instances', '2');
  await refused('[instance a]\nmodel = /nowhere\n', /instance a: .*nowhere/);
  await refused('[instance a]\n[instance b]\nkv_dtype = int8\n', /instance 'b' would not compute 'demo-model' as instance 'a' does/);
  await refused('[instance a]\nmemory_len = 2\n', /instance a: sink_len/);
  const folder = path.join(path.dirname(file), 'snapshots');
  await refused(`[instance a]\nsnapshot_dir = ${folder}\n[instance b]\nsnapshot_dir = ${folder}\n`, /instance b: snapshot_dir .*: instance a uses it already/);
  await refused('[instance a]\n[instance b]\ndevice = cpu,cpu\n', /instance b: device names 2 devices, and this machine has 1 rank/);
  await refused('[instance a]\n[instance b]\nrank_timeout = 0\n', /parley\.ini:3: rank_timeout = 0: must be a number from 1/);
  const text = '[instance a]\nmodel = /x\nthreads = 2\n\n[instance b]\n';
  writeFileSync(file, text);
  const { stdout } = await run(['serve', '--config', file, '--print-config']);
  assert.ok(stdout.endsWith(`\n${text}`), stdout.slice(-200));
  writeFileSync(file, stdout);
  assert.equal((await run(['serve', '--config', file, '--print-config'])).stdout, stdout);
});
