// Every command in the exact forms that other programs rely on, against the fixtures.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { Follower } from './follower.mjs';
import { longTest, parley, root, Server, shortTest, temporaryFolder, unlimited } from './harness.mjs';
import { good, json, run } from './run.mjs';
import { logSoftmax, readTensor } from './safetensors.mjs';

const demo = 'configs/demo-model';
const commands = ['serve', 'doctor', 'chat', 'generate', 'tokenize', 'score', 'sessions', 'models', 'bench', 'inspect', 'export', 'quantize', 'replay', 'synth'];
const fixture = (name) => `tests/fixtures/models/${name}`;
const golden = (file) => JSON.parse(readFileSync(path.join(root, 'tests/fixtures', file)));


/** How far the logits are off, in units of the reference's spread. */
function distance(got, want) {
  const mean = want.reduce((sum, x) => sum + x, 0) / want.length;
  const spread = Math.sqrt(want.reduce((sum, x) => sum + (x - mean) ** 2, 0) / want.length);
  return got.reduce((worst, x, i) => Math.max(worst, Math.abs(x - want[i])), 0) / spread;
}

// --- help and usage ------------------------------------------------------------------------------------------------

shortTest('a result that cannot be written is a failure', async () => {
  const wrap = ['sh', '-c', 'exec "$@" > /dev/full', 'sh'];
  const result = await run(['tokenize', '--model', demo, '--json'], { input: 'hi', wrap });
  assert.equal(result.code, 1);
  assert.match(result.stderr, /^parley: cannot write standard output$/m);
});

longTest('--help of every command is on standard output, whole and without rubbish', async () => {
  const all = await good(['--help']);
  for (const command of commands) {
    assert.match(all, new RegExp(`^  ${command} `, 'm'));
    const help = await good([command, '--help']);
    assert.match(help, new RegExp(`^usage: parley ${command}`));
    assert.match(help, /\n {2}--\S/, command);
    for (const heading of help.match(/^.*:$/gm) ?? []) assert.match(heading, /^[A-Z][A-Za-z ]+:$/, `${command}: ${heading}`);
    assert.ok(help.split('\n').every((line) => line.length <= 120), command);
    assert.doesNotMatch(help, /-1000/, `${command} shows how it marks what is not given`);
  }
  assert.doesNotMatch(await good(['chat', '--help']), /required/, 'chat needs a server or a model');
});

shortTest('--version says what the program was built from, and not where', async () => {
  const text = await good(['--version']), facts = await json(['--version', '--json']);
  assert.match(text, /^parley \d+\.\d+\.\d+\n/);
  for (const [name, value] of Object.entries(facts))
    if (value !== null) assert.ok(text.split(/\s+/).join(' ').includes(name === 'version' ? `parley ${value}` : `${name} ${value.trim()}`), name);
  const git = spawnSync('git', ['rev-parse', '--show-toplevel', 'HEAD'], { cwd: root, encoding: 'utf8' });
  const [top, head] = git.stdout.split('\n');
  if (git.status === 0 && path.resolve(top) === path.resolve(root)) {
    assert.match(facts.commit, /^[0-9a-f]{12}(-dirty)?$/);
    assert.match(facts.date, /^\d{4}-\d\d-\d\d$/);
    // The program under test may be older than the last commit, but it is of this history.
    assert.equal(spawnSync('git', ['cat-file', '-e', facts.commit.slice(0, 12)], { cwd: root }).status, 0, `${head} does not know ${facts.commit}`);
  }
  assert.match(facts.build, /^[0-9a-f]{16}$/);
  assert.match(facts.cuda, /^(no|sm_\d+( sm_\d+)*)$/);
  assert.match(facts.mpi, /^(no|.*\d+\.\d+.*)$/);
  assert.match(facts.pcre2_jit, /^(yes|no)$/);
  for (const library of ['pcre2', 'libwebsockets', 'libuv', 'openssl', 'sqlite', 'zlib']) assert.match(facts[library], /\d+\.\d+/);
  for (const [name, fact] of Object.entries(facts)) assert.doesNotMatch(String(fact), /[-\s]$/, name);
  const wrong = await run(['--version', '--yaml']);
  assert.deepEqual([wrong.code, wrong.stderr], [2, 'parley: --version takes no argument but --json\n']);
});

longTest('make help names what a user may type; a variable with a value that does not exist is said', () => {
  const env = { ...process.env, MAKEFLAGS: '', MAKELEVEL: '0' }; // not those of the make that runs the tests
  const make = (...args) => spawnSync('make', ['--no-print-directory', ...args], { cwd: root, encoding: 'utf8', env, maxBuffer: 1 << 26 });
  const { stdout } = make('help');
  for (const target of ['all', 'run', 'test', 'check-asan', 'check-tsan', 'bench', 'format', 'install', 'clean'])
    assert.match(stdout, new RegExp(`^  make ${target} +\\S`, 'm'));
  for (const variable of ['CUDA=0|1', 'MPI=', 'PREFIX=']) assert.ok(stdout.includes(variable), variable);
  for (const wrong of ['CUDA=2', 'MPI=2', 'VARIANT=relaese']) {
    const { status, stderr } = make('help', wrong);
    assert.equal(status, 2, wrong);
    assert.ok(stderr.includes(wrong.split('=')[0]), stderr);
  }
  // What is installed runs from anywhere, wherever the prefix was given from.
  assert.match(make('-n', 'install', 'PREFIX=some/where', 'CUDA=0').stdout, new RegExp(`model = ${root}/some/where/share/parley/demo-model`));
});

shortTest('wrong usage: exit status 2, one line of what is wrong and where to look', async () => {
  const wrong = [
    [], ['bogus'], ['--bogus'], ['sessions'], ['sessions', 'dance', '--db', 'x'], ['sessions', 'show', '--db', 'x'], ['synth', '--like', 'tiny'],
    ['synth', '--out', '/tmp/x'], ['generate', '--model', demo], ['generate', '--model', demo, '--ids', '1', '--prompt', 'x'],
    ['serve', '--model', demo, '--port', '99999'], ['serve', '--model', demo, '--port', 'x'], ['serve', '--prot', '1'], ['serve', 'extra'], ['serve', '--model', demo, '--threads', '65'],
    ['bench', '--model', demo, '--repeat', '0'], ['inspect'],
    ['generate', '--model', demo, '--ids', '1', '--max-tokens', '0'],
    ['generate', '--model', demo, '--ids', '1', '--temperature', 'nan'], ['generate', '--model', demo, '--ids', '1', '--temperature', '-3'],
    ['generate', '--model', demo, '--ids', '1', '--top-p', '2'], ['generate', '--model', demo, '--ids', '1', '--seed', 'x'],
    ...commands.filter((command) => command !== 'sessions').map((command) => [command, '--no-such-option']),
    ...['generate', 'tokenize', 'score', 'bench'].map((command) => [command]),
  ];
  for (const args of wrong) {
    const { code, stdout, stderr } = await run(args);
    assert.equal(code, 2, `parley ${args.join(' ')}: status ${code}, ${stderr}`);
    assert.equal(stdout, '', args.join(' '));
    assert.ok(stderr.length > 0 && (args.length === 0 || stderr.startsWith('parley')), `${args.join(' ')}: ${stderr}`);
  }
});

// Without the breaks and indents of a terminal's lines.
const flat = (text) => text.replaceAll(/\n[; ]*/g, ' ');

shortTest('sampling parameters: help, ini file and hello say the same, from one table', async (t) => {
  const server = await Server.start(t);
  const client = await server.connect({ malformed: true });
  const { sampling_parameters: rows, models } = client.hello;
  const defaults = Object.keys(models[0].sampling);
  const [generate, chat, serve] = await Promise.all(['generate', 'chat', 'serve'].map(async (name) => flat(await good([name, '--help']))));
  const ini = flat(readFileSync(path.join(root, 'configs/demo.ini'), 'utf8'));
  assert.ok(rows.length > 10 && defaults.length > 5);
  for (const { name, help, form } of rows) {
    const named = { len_penalty: 'length-penalty', beam_search_diversity_rate: 'beam-diversity' }[name] ?? name.replaceAll('_', '-');
    const option = new RegExp(`--(\\[no-\\])?${named} `);
    for (const text of [generate, chat]) {
      assert.ok(option.test(text) || !form, name);
      assert.equal(text.includes(help), option.test(text), name);
    }
    for (const text of [serve, ini]) assert.equal(text.includes(help), defaults.includes(name), name);
    assert.equal(option.test(serve), defaults.includes(name), name);
    // A value of a wrong type (an object is a schema): the refusal names the parameter.
    const wrong = name === 'json_schema' ? [7] : { x: [] };
    const refusal = await client.request({ type: 'session.open', sampling: { [name]: wrong } });
    assert.deepEqual([refusal.type, refusal.message.includes(name)], ['error', true], name);
  }
});

shortTest('configs/demo.ini is what --print-config writes', async () => {
  const ini = readFileSync(path.join(root, 'configs/demo.ini'), 'utf8');
  const printed = await good(['serve', '--config', 'configs/demo.ini', '--print-config'],
    { env: { PARLEY_THREADS: undefined } }); // tests/run.sh sets it
  assert.equal(ini.slice(ini.indexOf('; Every key is also')), printed);
});

shortTest('a misspelled setting in the environment is named by every command, another program\'s variable is not', async () => {
  const env = { PARLEY_PROT: 'secret', PARLEY_WHEREABOUTS: 'here' };
  const { code, stderr } = await run(['tokenize', '--model', demo, '--json'], { input: 'hi', env });
  assert.deepEqual([code, stderr], [0, 'parley: warning: unknown environment variable PARLEY_PROT; did you mean PARLEY_PORT?\n']);
});

// --- tokenize --------------------------------------------------------------------------------------------------------

for (const [define, n] of [[shortTest, 8], [longTest, 40]]) // golden/tokenizers has them all
define(`tokenize --json and --decode: the reference's ids and texts, ${n} of them`, async () => {
  const { cases } = golden('text/demo.golden.json');
  const some = cases.filter((_, i) => i % Math.ceil(cases.length / n) === 0);
  for (const { text, ids, decoded } of some) {
    assert.deepEqual(await json(['tokenize', '--model', demo, '--json'], { input: text }), { ids }, JSON.stringify(text));
    assert.deepEqual(await json(['tokenize', '--model', demo, '--decode'], { input: JSON.stringify({ ids }) }), { text: decoded });
  }
});

longTest('tokenize: special tokens only where they are asked for; plain output', async () => {
  const input = '<|im_start|>user';
  const { ids } = await json(['tokenize', '--model', demo, '--json'], { input });
  assert.equal(ids[0], 1);
  assert.deepEqual((await json(['tokenize', '--model', demo, '--json', '--special'], { input })).ids, ids);
  const plain = await json(['tokenize', '--model', demo, '--json', '--no-special'], { input });
  assert.ok(!plain.ids.includes(1));
  assert.deepEqual(await json(['tokenize', '--model', demo, '--decode'], { input: JSON.stringify(plain) }), { text: input });
  assert.equal((await good(['tokenize', '--model', demo], { input })).trim(), ids.join(' '));
});

shortTest('tokenize --chat: the reference\'s conversations', async () => {
  for (const { messages, text, ids, add_generation_prompt = true } of golden('text/chat_demo.golden.json')) {
    const input = JSON.stringify({ messages, add_generation_prompt });
    assert.deepEqual(await json(['tokenize', '--model', demo, '--chat'], { input }), { text, ids });
  }
  const chatml = await json(['tokenize', '--model', demo, '--chat', '--chat-template', 'chatml'],
    { input: JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }], add_generation_prompt: true }) });
  assert.equal(chatml.text, '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n');
});

// --- score and generate ------------------------------------------------------------------------------------------------

for (const [define, families] of [[shortTest, ['llama']], [longTest, ['gpt_neox', 'mistral', 'qwen2', 'qwen3', 'gptj']]])
define(`score --logits: ${families.join(', ')}, plain and under each window`, async (t) => {
  const out = path.join(temporaryFolder(t), 'logits.safetensors');
  for (const family of families) {
    const reference = path.join(root, fixture(family), 'golden.safetensors');
    const ids = readTensor(reference, 'input_ids').data;
    for (const [name, window] of [['logits', []], ['logits_m16_s0', ['--memory-len', '16', '--sink-len', '0']],
      ['logits_m32_s4', ['--memory-len', '32', '--sink-len', '4']]]) {
      const report = await json(['score', '--model', fixture(family), '--ids', ids.join(','), ...window, '--logits', out]);
      const got = readTensor(out, 'logits');
      const want = readTensor(reference, name);
      const vocabulary = want.shape[1];
      assert.deepEqual(got.shape, [96, vocabulary]);
      assert.ok(distance(got.data, want.data) < 2e-4, `${family} ${name}: ${distance(got.data, want.data)}`);
      let sum = 0;
      for (let i = 1; i < 96; i++) sum += logSoftmax(got.data.slice((i - 1) * vocabulary, i * vocabulary), ids[i]);
      assert.ok(Math.abs(report.logprob - sum) < 1e-3, `${report.logprob} is not ${sum}`);
      assert.equal(report.tokens, 96);
    }
  }
});

longTest('score and generate see the same: each drawn token is the best of its row, with its log-probability', async (t) => {
  const out = path.join(temporaryFolder(t), 'logits.safetensors');
  for (const window of [[], ['--memory-len', '24', '--sink-len', '4'], ['--memory-len', '10', '--sink-len', '0']]) {
    const prompt = golden('models/qwen3/golden.json').greedy.prompt;
    const { ids, logprobs, finish_reason } = await json(['generate', '--model', fixture('qwen3'), '--ids', prompt.join(','), '--max-tokens', '60',
      '--ignore-eos', '--temperature', '0', ...window, '--json']);
    assert.deepEqual([ids.length, logprobs.length, finish_reason], [60, 60, 'length']);
    await json(['score', '--model', fixture('qwen3'), '--ids', [...prompt, ...ids].join(','), ...window, '--logits', out]);
    const { data, shape } = readTensor(out, 'logits');
    for (const [i, id] of ids.entries()) {
      const at = (prompt.length + i - 1) * shape[1];
      const row = data.slice(at, at + shape[1]);
      assert.equal(row.indexOf(Math.max(...row)), id, `token ${i}`);
      assert.ok(Math.abs(logSoftmax(row, id) - logprobs[i]) < 1e-4, `token ${i}`);
    }
  }
});

shortTest('generate: greedy as the reference, as far as its lead is clear', async () => {
  let equal = 0;
  for (const family of ['llama', 'mistral', 'qwen2', 'qwen3']) {
    const { greedy } = golden(`models/${family}/golden.json`);
    const { ids } = await json(['generate', '--model', fixture(family), '--ids', greedy.prompt.join(','), '--max-tokens', String(greedy.output.length),
      '--ignore-eos', '--temperature', '0', '--json']);
    let same = 0;
    while (same < ids.length && ids[same] === greedy.output[same]) same++;
    equal += same;
    // Where two logits are closer than this, another order of additions may rightly take the second.
    assert.ok(greedy.min_top2_gap < 1e-3 ? same > 0 : same === ids.length, `${family}: ${same} tokens are equal`);
  }
  assert.ok(equal >= 144, `${equal} tokens of four times 48 before the first difference`);
});

longTest('generate: text, chat, standard input, stop, seeds, plain output', async () => {
  const base = ['generate', '--model', demo, '--max-tokens', '20'];
  const chat = await json([...base, '--prompt', 'My name is Zora.', '--chat', '--json']);
  assert.match(chat.text, /Zora/);
  assert.equal(chat.finish_reason, 'eos');
  assert.equal((await good([...base, '--prompt', 'My name is Zora.', '--chat'])).trim(), chat.text);
  assert.deepEqual(await json([...base, '--prompt', '-', '--chat', '--json'], { input: 'My name is Zora.' }), chat);
  const stopped = await json([...base, '--prompt', 'My name is Zora.', '--chat', '--stop', 'Zora', '--json']);
  assert.equal(stopped.text, chat.text.slice(0, chat.text.indexOf('Zora')));
  assert.equal(stopped.finish_reason, 'stop');
  const draw = (seed) => json([...base, '--prompt', 'Once', '--temperature', '1.3', '--seed', seed, '--ignore-eos', '--json']);
  assert.deepEqual(await draw('18446744073709551615'), await draw('18446744073709551615'));
  assert.notDeepEqual((await draw('1')).ids, (await draw('2')).ids);
});

longTest('an answer of generate is that of a session', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const prompt = [1, 463, 273, 201, 899, 2, 201];
  const sampling = { temperature: 0.9, top_k: 50, top_p: 0.95, min_p: 0.01, repetition_penalty: 1.1, presence_penalty: 0.2, frequency_penalty: 0.1,
    seed: '77', max_tokens: 50, ignore_eos: true };
  const options = Object.entries(sampling).flatMap(([key, value]) => (value === true ? [`--${key.replaceAll('_', '-')}`]
    : [`--${key.replaceAll('_', '-')}`, String(value)]));
  const alone = await json(['generate', '--model', demo, '--compute-dtype', 'auto', '--ids', prompt.join(','), ...options, '--json']);
  const turn = await (await Follower.open(await server.connect(), { sink_len: 0 })).say({ ids: prompt }, { sampling: { ...sampling, logprobs: true } });
  assert.deepEqual([turn.ids, turn.text, turn.logprobs], [alone.ids, alone.text, alone.logprobs]);
});

// --- sessions, chat, bench, inspect, synth --------------------------------------------------------------------------

shortTest('sessions: list newest first, show, export, rm, beside a running server and without', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  const server = await Server.start(t, { db, args: unlimited });
  const client = await server.connect();
  const first = await Follower.open(client, { session: 'first', title: 'The first' });
  await first.say('My name is Zora.', { sampling: { temperature: 0 } });
  const second = await Follower.open(client, { session: 'second', sampling: { temperature: 0 } });
  const turn = await second.say('What is the capital of France?');
  const { sessions } = await json(['sessions', 'list', '--db', db, '--json']);
  assert.deepEqual(sessions.map(({ id, title, n_turns }) => ({ id, title, n_turns })),
    [{ id: 'second', title: 'What is the capital of France?', n_turns: 1 }, { id: 'first', title: 'The first', n_turns: 1 }]);
  assert.deepEqual((await json(['sessions', 'list', '--db', db, '--json', '--query', 'zora'])).sessions.map((s) => s.id), ['first']);
  assert.match(await good(['sessions', 'list', '--db', db]), /second.*\n.*first/);
  const busy = await run(['sessions', 'rm', 'first', '--db', db]);
  assert.equal(busy.code, 1, 'the server has the database');
  assert.match(busy.stderr, /^parley: .*parley\.db.*\n$/);
  await server.stop();
  const shown = await json(['sessions', 'show', 'second', '--db', db, '--json']);
  assert.equal(shown.session.id, 'second');
  assert.deepEqual(shown.turns.map(({ text, finish_reason }) => ({ text, finish_reason })), [{ text: turn.text, finish_reason: 'eos' }]);
  assert.ok((await good(['sessions', 'show', 'second', '--db', db])).includes(turn.text));
  assert.ok(JSON.stringify(await json(['sessions', 'export', 'second', '--db', db])).includes(JSON.stringify(turn.text).slice(1, -1)));
  await good(['sessions', 'rm', 'first', '--db', db]);
  assert.deepEqual((await json(['sessions', 'list', '--db', db, '--json'])).sessions.map((s) => s.id), ['second']);
  for (const [verb, id] of [['show', 'nobody'], ['export', 'nobody'], ['rm', 'nobody'], ['show', '../etc']]) {
    const { code, stderr } = await run(['sessions', verb, id, '--db', db]);
    assert.equal(code, 1, `${verb} ${id}: ${stderr}`);
    assert.match(stderr, /^parley: .+\n$/);
  }
});

shortTest('chat: a pipe through an engine of its own and through a server, the same words', async (t) => {
  const input = 'My name is Zora.\nWhat is my name?\n';
  const own = await good(['chat', '--model', demo, '--temperature', '0'], { input });
  assert.deepEqual(own.trim().split('\n').length, 2);
  assert.match(own.trim().split('\n')[1], /Zora/);
  const server = await Server.start(t, { args: unlimited });
  const url = ['--url', `ws://127.0.0.1:${server.port}/ws`];
  assert.equal(await good(['chat', ...url, '--temperature', '0'], { input }), own);
  const client = await server.connect();
  const { sessions } = await client.ask({ type: 'session.list' });
  assert.deepEqual([sessions.length, sessions[0].n_turns], [1, 2]);
  const more = await good(['chat', ...url, '--session', sessions[0].id, '--temperature', '0'], { input: 'What is my name?\n' });
  assert.match(more, /Zora/);
  const gone = await run(['chat', '--url', 'ws://127.0.0.1:1/ws'], { input });
  assert.equal(gone.code, 1);
  assert.match(gone.stderr, /^parley: .*127\.0\.0\.1:1.*\n$/);
  const lost = await run(['chat', ...url, '--session', 'nobody'], { input });
  assert.equal(lost.code, 1);
  assert.match(lost.stderr, /^parley: .+\n$/);
});

longTest('bench --json: rates, bytes, the ceiling', async () => {
  const all = ['bench', '--model', fixture('llama'), '--json', '--repeat', '1', '--prompt-tokens', '64', '--decode-tokens', '16', '--sequences', '2'];
  let report; // this model is so fast that on a busy machine one session may be over before the other is submitted
  for (let i = 0; i < 5 && !(report?.together_tokens_per_second > 0); i++) report = await json(all);
  for (const key of ['prefill_tokens_per_second', 'decode_tokens_per_second', 'together_tokens_per_second', 'prompts_tokens_per_second',
    'bytes_per_step', 'gb_per_second', 'ceiling_gb_per_second', 'ceiling_share', 'weight_bytes'])
    assert.ok(report[key] > 0, `${key}: ${report[key]}`);
  assert.ok(report.bytes_per_step < report.weight_bytes); // its embedding is looked up, the head is another matrix
  const one = ['bench', '--model', fixture('llama'), '--repeat', '1', '--decode-tokens', '4', '--sequences', '2', '--parts', 'together'];
  let part; // likewise
  for (let i = 0; i < 5 && !(part?.together_tokens_per_second > 0); i++) part = await json([...one, '--json']);
  assert.ok(part.together_tokens_per_second > 0 && part.prompts_tokens_per_second > 0);
  assert.deepEqual(Object.keys(part).filter((key) => /^(prefill|decode)_.*second|^gb_/.test(key)), []);
  for (const parts of ['', 'prefill,', 'decode;together', 'pre'])
    assert.equal((await run(['bench', '--model', fixture('llama'), '--parts', parts])).code, 2, parts);
});

longTest('bench --like: a shape of which nothing is written, on several ranks too', async (t) => {
  const dir = temporaryFolder(t), model = path.join(dir, 'm');
  assert.equal((await run(['synth', '--like', 'tiny', '--no-weights', '--out', model])).code, 0);
  assert.deepEqual(readdirSync(model).sort(), ['config.json', 'generation_config.json', 'random.json']);
  const small = ['--device', 'cpu', '--repeat', '1', '--prompt-tokens', '64', '--decode-tokens', '4', '--sequences', '2', '--json'];
  const bench = async (...args) => JSON.parse((await run(['bench', '--like', 'tiny', ...small, ...args], { env: { TMPDIR: dir } })).stdout);
  const one = await bench();
  assert.equal(one.model, 'tiny');
  assert.ok(one.decode_tokens_per_second > 0 && one.prefill_tokens_per_second > 0);
  const two = await run(['bench', '--like', 'tiny', ...small, '--tensor-parallel', '2'], { env: { TMPDIR: dir } });
  if (!/built without MPI/.test(two.stderr)) assert.ok(JSON.parse(two.stdout).weight_bytes > one.weight_bytes); // tables on both
  assert.deepEqual(readdirSync(dir).filter((name) => name.startsWith('parley-bench')), []);
  assert.match((await run(['bench', '--like', 'huge'])).stderr, /no shape is called 'huge'/);
  assert.equal((await run(['bench', '--like', 'tiny', '--model', model])).code, 2);
});

longTest('bench --deterministic: what it costs, where it costs something', async () => {
  const report = await json(['bench', '--model', fixture('llama'), '--json', '--repeat', '1', '--decode-tokens', '4', '--parts', 'decode', '--deterministic']);
  assert.ok(report.decode_tokens_per_second > 0);
  for (const key of ['plain_decode_tokens_per_second', 'deterministic_cost_decode'])
    assert.equal(key in report, report.backend.startsWith('cuda: '), key); // the CPU knows no other way
});

longTest('bench: a later turn, and a session past its window', async () => {
  const args = ['bench', '--model', fixture('llama'), '--repeat', '1', '--prompt-tokens', '16', '--decode-tokens', '4', '--sequences', '1',
    '--context-tokens', '100', '--later-turn', '10', '--memory-len', '16', '--turns', '24', '--turn-tokens', '4'];
  const report = await json([...args, '--json']);
  for (const key of ['load_seconds', 'peak_resident_bytes', 'anonymous_resident_bytes', 'later_turn_first_token_ms', 'later_turn_engine_ms',
    'session_token_us_at_1', 'session_token_us_at_10', 'session_turn_ms_at_1', 'session_turn_ms_at_10'])
    assert.ok(report[key] > 0, `${key}: ${report[key]}`);
  assert.deepEqual([report.later_turn_tokens, report.session_turns, report.session_log_tokens], [10, 24, 24 * 8]);
  assert.ok(report.later_turn_engine_ms <= report.later_turn_first_token_ms);
  assert.match(await good(args), /a later turn of 10 tokens on a cache of 100[^]*a session of 24 turns, 192 tokens, memory_len 16: /);
  const { code, stderr } = await run(['bench', '--model', fixture('llama'), '--turns', '3']);
  assert.equal(code, 2);
  assert.match(stderr, /--memory-len/);
});

shortTest('a server says where it runs; a GPU that is not there is said', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  assert.match(server.log, /event=engine\.open .*backend="(cpu|cuda): /);
  if (!/backend="cuda: /.test(server.log)) assert.match(server.log, /event=engine\.no_gpu device=cpu why="(CUDA finds none|built without CUDA)"/);
  const { code, stderr } = await run(['generate', '--model', demo, '--prompt', 'Hi', '--device', 'cuda:1000']);
  assert.equal(code, 1);
  assert.match(stderr, /^parley: device: .*1000.*\n$/);
});

shortTest('a model that loads shows a bar on a terminal, and nothing in a pipe', async (t) => {
  const args = ['generate', '--model', demo, '--prompt', 'Hi', '--max-tokens', '1'];
  const seen = spawnSync('script', ['-qec', [parley, ...args].join(' '), '/dev/null'], { cwd: root, encoding: 'utf8' });
  if (seen.error || /pseudo-?terminal|openpty/i.test(seen.stderr)) return t.skip('no pseudo-terminal to be had here');
  assert.equal(seen.status, 0);
  assert.match(seen.stdout, /\rloading \[#*\.*\] +\d+%/);
  assert.match(seen.stdout, /\[#{40}\] 100%\r\x1b\[K/); // and goes when it is full
  assert.equal((await run(args)).stderr, '');
});

shortTest('inspect: the family, the shape, the text, as JSON and for people', async () => {
  const report = await json(['inspect', '--model', demo, '--json']);
  assert.deepEqual([report.family, report.n_layers, report.width, report.vocab_size, report.max_positions, report.dtype],
    ['llama', 8, 384, 4096, 4096, 'bf16']);
  assert.ok(report.tokenizer && report.chat_template);
  assert.match(await good(['inspect', '--model', demo]), /^family +llama$/m);
  const bare = await json(['inspect', '--model', fixture('qwen3'), '--json']);
  assert.deepEqual([bare.family, bare.qk_norm], ['qwen3', true]);
  const families = (await good(['inspect', '--families'])).trim().split('\n');
  assert.equal(new Set(families).size, families.length);
  for (const name of ['llama', 'gpt2', 'gemma3_text', 'mixtral']) assert.ok(families.includes(name), name);
  const architectures = (await good(['inspect', '--architectures'])).trim().split('\n');
  assert.equal(new Set(architectures).size, architectures.length);
  for (const name of ['llama', 'deepseek2', 'gpt-oss']) assert.ok(architectures.includes(name), name);
});

shortTest('synth: the same seed gives the same bytes, and a model that runs', async (t) => {
  const folder = temporaryFolder(t);
  const write = (name, seed, more = []) => good(['synth', '--like', 'tiny', '--out', path.join(folder, name), '--seed', seed, ...more]);
  assert.equal(await write('a', '3'), `${path.join(folder, 'a')}\n`);
  await write('b', '3');
  await write('c', '4', ['--dtype', 'f32']);
  for (const file of readdirSync(path.join(folder, 'a')))
    assert.ok(readFileSync(path.join(folder, 'a', file)).equals(readFileSync(path.join(folder, 'b', file))), file);
  assert.equal((await json(['inspect', '--model', path.join(folder, 'c'), '--json'])).dtype, 'f32');
  const { ids } = await json(['generate', '--model', path.join(folder, 'a'), '--ids', '5,6', '--max-tokens', '5', '--ignore-eos', '--json']);
  assert.equal(ids.length, 5);
});

shortTest('serve: every key of the file is an option; --print-config gives the file back', async (t) => {
  const printed = await good(['serve', '--model', demo, '--port', '8123', '--max-sequences', '7', '--print-config']);
  assert.match(printed, /^port = 8123$/m);
  assert.match(printed, /^max_sequences = 7$/m);
  const help = await good(['serve', '--help']);
  for (const [, key] of printed.matchAll(/^;?\s*(\w+) =/gm)) assert.match(help, new RegExp(`--(\\[no-\\])?${key.replaceAll('_', '-')}\\b`));
  const folder = temporaryFolder(t);
  const { writeFileSync } = await import('node:fs');
  writeFileSync(path.join(folder, 'parley.ini'), printed);
  assert.equal(await good(['serve', '--config', path.join(folder, 'parley.ini'), '--print-config']), printed);
});

// --- prompt learning ---------------------------------------------------------------------------------------------------

longTest('generate with a task of prompt learning: each table has an answer of its own, always the same', async () => {
  const task = (kind, model = 'llama') => ['--prompt-task', `tests/fixtures/prompts/${model}/${kind}`];
  const args = (...more) => ['generate', '--model', fixture('llama'), '--ids', '5,6,7', '--max-tokens', '8', '--ignore-eos', '--json', ...more];
  const answers = await Promise.all([[], task('soft'), task('other'), task('ptuning'), task('prefix')].map((more) => json(args(...more))));
  assert.equal(new Set(answers.map(({ logprobs }) => logprobs.join())).size, answers.length);
  assert.deepEqual(await json(args(...task('prefix'))), answers[4]);
  // The window covers the virtual tokens unless sink_len says otherwise.
  const [covered, named, passed] = await Promise.all([[], ['--sink-len', '5'], ['--sink-len', '0']].map((more) =>
    json(args(...task('soft'), '--memory-len', '8', ...more))));
  assert.deepEqual(covered, named);
  assert.notDeepEqual(covered.logprobs, passed.logprobs);
  for (const [more, says] of [
    [task('prefix', 'gpt2'), /gpt2\/prefix\/adapter_model\.safetensors: 'prompt_embeddings' is \(5, 384\).*needs \(5, 192\)/],
    [task('nothing'), /nothing\/adapter_config\.json/], [['--ids', '5,1073741824'], /ids: 1073741824 at position 1 is not in the vocabulary/],
  ]) {
    const result = await run(args(...more));
    assert.equal(result.code, 1, result.stderr);
    assert.match(result.stderr, says);
  }
});
