// Conversations of 150 turns, sent again whole with each turn through OpenAI's and Anthropic's own clients, beside parley.v1 and
// llama.cpp's server: what is computed in each turn beside what is new, and the first token of the last turns beside that of
// the first ones. Writes results/protocols.json.
// usage: PARLEY=build/release/parley [LLAMA_SERVER=llama-server] node protocols.mjs [TURNS [ROUNDS]]     (README.md says more)
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import Anthropic from '../e2e/node_modules/@anthropic-ai/sdk/index.mjs';
import OpenAI from '../e2e/node_modules/openai/index.mjs';
import { freePort, parley, root, Server, unlimited, until } from '../e2e/harness.mjs';
import { convert } from './gguf.mjs';
import { median, save } from './results.mjs';

const [allTurns = 150, rounds = 3] = process.argv.slice(2).map(Number);
const EARLY = 8; // turns whose median stands for turn 2, and as many at the end for the last one
const LENGTH = 4096; // the demo model's context
const KEPT = 95; // turns that fit it where every thought stays
const WINDOW = 256, FULL = 16; // memory_len, and the first turn that surely finds it full
const demo = path.join(root, 'configs/demo-model');
const folder = mkdtempSync(path.join(os.tmpdir(), 'parley-protocols-'));
const tool = { name: 'add', description: 'Adds two numbers.', parameters: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } } } };
const tools = [{ type: 'function', function: tool }];

// --- templates and answers --------------------------------------------------------------------------------------

/** The demo model's form with thinking, which the model is shown again where `shown`, an expression, holds. */
const thinking = (shown) => `{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['reasoning_content'] and ${shown} %}{{ '<think>\\n' + m['reasoning_content'] + '\\n</think>\\n' }}{% endif %}`
  + `{{ m['content'] + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;
const templates = { kept: thinking('true'), removed: thinking('false') };
for (const [name, text] of Object.entries(templates)) writeFileSync(path.join(folder, `${name}.jinja`), text);
// Every answer is the same few tokens, so that all ways hold the same conversation.
const plain = { words: 'Yes.', thought: '' }, thoughtful = { words: 'Yes.', thought: 'Hm.' };
const grammarOf = ({ words, thought }) => `root ::= "${thought && `<think>\\n${thought}\\n</think>\\n`}${words}"`;
const answerOf = ({ words, thought }, returned) => ({ role: 'assistant', content: words, ...(returned && thought && { reasoning_content: thought }) });

// --- the wire under a client ------------------------------------------------------------------------------------

// What an SDK makes of 300 messages before it sends them is the client's time, not the server's.
const FIRST_TOKEN = /"text_delta"|output_text\.delta|"(reasoning_)?content":"[^"]/;
let wire_ms; // of the last request: from its bytes to those of the first token
async function timedFetch(url, init) {
  const begun = performance.now();
  wire_ms = undefined;
  const response = await fetch(url, init);
  const watched = response.body.pipeThrough(new TransformStream({
    transform(chunk, out) {
      if (wire_ms === undefined && FIRST_TOKEN.test(Buffer.from(chunk).toString('latin1'))) wire_ms = performance.now() - begun;
      out.enqueue(chunk);
    },
  }));
  return new Response(watched, response);
}

// --- ways -------------------------------------------------------------------------------------------------------

/** Each gives, for a conversation: ask(text) -> {prompt, cached, answer (tokens), first_ms, at the client; wire_ms}. */
const chat = (openai, said, more = {}, returned = false) => () => {
  const messages = [];
  return async (content) => {
    messages.push({ role: 'user', content });
    const begun = performance.now();
    let first_ms, usage, timings;
    const stream = await openai.chat.completions.create({ model: 'demo-model', messages, max_tokens: 40, temperature: 0, stream: true, stream_options: { include_usage: true }, grammar: grammarOf(said), ...more });
    for await (const chunk of stream) {
      const delta = chunk.choices[0]?.delta;
      if (delta?.content || delta?.reasoning_content) first_ms ??= performance.now() - begun;
      usage = chunk.usage ?? usage;
      timings = chunk.timings ?? timings; // llama.cpp's own count
    }
    messages.push(answerOf(said, returned));
    return { prompt: usage.prompt_tokens, cached: timings ? usage.prompt_tokens - timings.prompt_n : usage.prompt_tokens_details.cached_tokens, answer: usage.completion_tokens, first_ms, wire_ms };
  };
};
const responses = (openai) => () => {
  let previous;
  return async (input) => {
    const begun = performance.now();
    let first_ms, response;
    const stream = await openai.responses.create({ model: 'demo-model', input, max_output_tokens: 40, temperature: 0, stream: true, previous_response_id: previous, structured_outputs: { grammar: grammarOf(plain) } });
    for await (const event of stream) {
      if (event.type === 'response.output_text.delta') first_ms ??= performance.now() - begun;
      response = event.response ?? response;
    }
    previous = response.id;
    return { prompt: response.usage.input_tokens, cached: response.usage.input_tokens_details.cached_tokens, answer: response.usage.output_tokens, first_ms, wire_ms };
  };
};
const anthropicMessages = (anthropic, more = {}) => () => {
  const messages = [];
  return async (content) => {
    messages.push({ role: 'user', content });
    const begun = performance.now();
    let first_ms;
    const stream = anthropic.messages.stream({ model: 'demo-model', messages, max_tokens: 4, temperature: 0, ...more });
    stream.on('text', () => (first_ms ??= performance.now() - begun));
    const { content: answer, usage } = await stream.finalMessage();
    messages.push({ role: 'assistant', content: answer });
    return { prompt: usage.input_tokens + usage.cache_read_input_tokens, cached: usage.cache_read_input_tokens, answer: usage.output_tokens, first_ms, wire_ms };
  };
};
const session = (server) => () => {
  let client, id;
  return async (content) => {
    client ??= await server.connect();
    id ??= await client.open();
    const begun = performance.now();
    let first_ms;
    const listener = (frame) => { if (frame.type === 'turn.delta') first_ms ??= performance.now() - begun; };
    client.listeners.add(listener);
    const { done } = await client.turn(id, content, { sampling: { max_tokens: 4, temperature: 0 } });
    client.listeners.delete(listener);
    const { log_tokens, output_tokens } = done.usage;
    return { prompt: log_tokens - output_tokens, cached: done.cache.kept_tokens, answer: output_tokens, first_ms, wire_ms: first_ms };
  };
};

// --- measuring --------------------------------------------------------------------------------------------------

const figures = [];
// Another conversation for each way: the same one would be found, whichever protocol it came by.
const question = (turn, round, way) => `${way[0]}${way.length} ${round} ${turn}`;

async function measure(way, open, { turns = allTurns, first = 2 } = {}) {
  let computed = 0, fresh = 0, n = 0;
  const early = [], late = [], earlyWire = [], lateWire = [];
  for (let round = 0; round < rounds; round++) {
    const ask = open();
    let before = 0;
    for (let turn = 1; turn <= turns; turn++) {
      const { prompt, cached, answer, first_ms, wire_ms: on_wire } = await ask(question(turn, round, way));
      n++;
      computed += prompt - cached;
      fresh += prompt - before;
      before = prompt + answer;
      if (turn >= first && turn < first + EARLY) early.push(first_ms), earlyWire.push(on_wire);
      if (turn > turns - EARLY) late.push(first_ms), lateWire.push(on_wire);
    }
  }
  // Of each answer the last token drawn was never an input, so it is computed with the next turn.
  const figure = { way, turns, new_tokens: fresh / n, computed_tokens: computed / n, first_ms_early: median(early), first_ms_late: median(late) };
  figure.ratio = figure.first_ms_late / figure.first_ms_early;
  [figure.wire_ms_early, figure.wire_ms_late] = [median(earlyWire), median(lateWire)];
  figure.wire_ratio = figure.wire_ms_late / figure.wire_ms_early;
  figures.push(figure);
  console.error(`${way}: ${figure.new_tokens.toFixed(1)} new, ${figure.computed_tokens.toFixed(1)} computed; first token ${figure.first_ms_early.toFixed(1)} and ${figure.first_ms_late.toFixed(1)} ms, on the wire ${figure.wire_ms_early.toFixed(1)} and ${figure.wire_ms_late.toFixed(1)}`);
}

async function withParley(template, run, more = []) {
  const db = path.join(folder, `${figures.length}.db`);
  const server = await Server.start(null, { db, args: [...unlimited, ...(template ? ['--chat-template', template] : []), ...more] });
  try {
    await run(server, new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, fetch: timedFetch }));
  } finally {
    await server.stop();
  }
  return statSync(db).size;
}

/** llama.cpp's server with the same weights, and its prompt cache on, as it comes. */
async function withLlama(template, run) {
  const program = process.env.LLAMA_SERVER;
  if (!program) return;
  const weights = path.join(folder, 'demo.gguf'), port = await freePort();
  convert(demo, weights);
  const child = spawn(program, ['-m', weights, '--port', String(port), '-c', String(LENGTH), '-np', '1', '-t', '2', '--jinja', '--reasoning-format', 'none',
    '--chat-template-file', template ?? path.join(demo, 'chat_template.jinja')], { stdio: ['ignore', 'ignore', 'ignore'] });
  try {
    await until('llama.cpp\'s server', async () => (await fetch(`http://127.0.0.1:${port}/health`).catch(() => ({ ok: false }))).ok);
    await run(new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'none', maxRetries: 0, fetch: timedFetch }));
  } finally {
    child.kill('SIGKILL');
  }
}

// Over the whole conversation attention itself takes longer with every turn; behind a window it does not.
const ways = (first) => async (server, openai) => {
  const name = (way) => (first > 2 ? `${way}, window of ${WINDOW}` : way);
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, fetch: timedFetch });
  await measure(name('chat completions'), chat(openai, plain), { first });
  await measure(name('chat completions, a tool'), chat(openai, plain, { tools, tool_choice: 'none' }), { first });
  await measure(name('responses, previous_response_id'), responses(openai), { first });
  await measure(name('messages'), anthropicMessages(anthropic), { first });
  await measure(name('messages, a tool'), anthropicMessages(anthropic, { tools: [{ name: tool.name, description: tool.description, input_schema: tool.parameters }] }), { first });
  await measure(name('parley.v1'), session(server), { first });
};
await withParley(null, ways(2));
await withParley(null, ways(FULL), ['--memory-len', String(WINDOW)]);
await withLlama(null, (openai) => measure('llama.cpp: chat completions', chat(openai, plain)));
for (const kind of Object.keys(templates)) {
  const file = path.join(folder, `${kind}.jinja`);
  const turns = kind === 'kept' ? Math.min(KEPT, allTurns) : allTurns;
  const bytes = await withParley(file, (server, openai) => measure(`thinking ${kind}`, chat(openai, thoughtful, {}, kind === 'kept'), { turns }));
  figures.at(-1).stored_bytes = bytes / turns / rounds; // of a turn, in the database
  await withLlama(file, (openai) => measure(`llama.cpp: thinking ${kind}`, chat(openai, thoughtful, {}, kind === 'kept'), { turns }));
}
console.table(figures.map(({ way, ...rest }) => ({ way, ...Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, Number(value.toFixed(2))])) })));
save('protocols', parley, { source: 'protocols.mjs: conversations sent again whole, demo model', rounds, figures });
rmSync(folder, { recursive: true });
process.exit(0);
