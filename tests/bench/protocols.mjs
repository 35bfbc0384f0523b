// Conversations of many turns, sent again whole with each turn through OpenAI's and Anthropic's own clients: what is computed
// in each turn beside what is new, and the first token of the last turn beside that of the second. Writes results/protocols.json.
// usage: PARLEY=build/release/parley node protocols.mjs [TURNS [ROUNDS]]     (README.md says more)
import Anthropic from '../e2e/node_modules/@anthropic-ai/sdk/index.mjs';
import OpenAI from '../e2e/node_modules/openai/index.mjs';
import { parley, Server, unlimited } from '../e2e/harness.mjs';
import { median, save } from './results.mjs';

const [turns = 100, rounds = 3] = process.argv.slice(2).map(Number);
const ANSWER = 4; // tokens, so that the whole fits the demo model's 4,096
const EARLY = 8; // turns whose median stands for turn 2, and as many at the end for the last one
const server = await Server.start(null, { args: unlimited });
const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' });
const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none' });
const tools = [{ name: 'add', description: 'Adds two numbers.', parameters: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } } } }];
// Another conversation for each way: the same one would be found, whichever protocol it came by.
const question = (turn, round, way) => `${way[0]}${way.length} ${round} ${turn}`;

/** Each gives, for a conversation: {ask(text)} -> {prompt, cached, answer (tokens), first_ms}. */
const ways = {
  'chat completions': (more = {}) => {
    const messages = [];
    return async (content) => {
      messages.push({ role: 'user', content });
      const begun = performance.now();
      let first_ms, text = '', usage;
      const stream = await openai.chat.completions.create({ model: 'demo-model', messages, max_tokens: ANSWER, temperature: 0, stream: true, stream_options: { include_usage: true }, ...more });
      for await (const { choices: [choice], usage: whole } of stream) {
        if (choice?.delta.content) first_ms ??= performance.now() - begun, text += choice.delta.content;
        usage = whole ?? usage;
      }
      messages.push({ role: 'assistant', content: text });
      return { prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens, answer: usage.completion_tokens, first_ms };
    };
  },
  'chat completions with tools': () => ways['chat completions']({ tools: tools.map((one) => ({ type: 'function', function: one })) }),
  responses: () => {
    let previous;
    return async (input) => {
      const begun = performance.now();
      let first_ms, response;
      const stream = await openai.responses.create({ model: 'demo-model', input, max_output_tokens: 16, temperature: 0, stream: true, previous_response_id: previous });
      for await (const event of stream) {
        if (event.type === 'response.output_text.delta') first_ms ??= performance.now() - begun;
        response = event.response ?? response;
      }
      previous = response.id;
      return { prompt: response.usage.input_tokens, cached: response.usage.input_tokens_details.cached_tokens, answer: response.usage.output_tokens, first_ms };
    };
  },
  messages: () => {
    const messages = [];
    return async (content) => {
      messages.push({ role: 'user', content });
      const begun = performance.now();
      let first_ms;
      const stream = anthropic.messages.stream({ model: 'demo-model', messages, max_tokens: ANSWER, temperature: 0 });
      stream.on('text', () => (first_ms ??= performance.now() - begun));
      const { content: answer, usage } = await stream.finalMessage();
      messages.push({ role: 'assistant', content: answer });
      return { prompt: usage.input_tokens + usage.cache_read_input_tokens, cached: usage.cache_read_input_tokens, answer: usage.output_tokens, first_ms };
    };
  },
};

const figures = [];
for (const [way, open] of Object.entries(ways)) {
  let computed = 0, fresh = 0, n = 0;
  const early = [], late = [];
  for (let round = 0; round < rounds; round++) {
    const ask = open();
    let before = 0;
    for (let turn = 1; turn <= turns; turn++) {
      const { prompt, cached, answer, first_ms } = await ask(question(turn, round, way));
      n++;
      computed += prompt - cached;
      fresh += prompt - before;
      before = prompt + answer;
      if (turn >= 2 && turn < 2 + EARLY) early.push(first_ms);
      if (turn > turns - EARLY) late.push(first_ms);
    }
  }
  // Of each answer the last token drawn was never an input, so it is computed with the next turn.
  const figure = { way, turns, new_tokens: fresh / n, computed_tokens: computed / n, first_ms_early: median(early), first_ms_late: median(late) };
  figures.push({ ...figure, ratio: figure.first_ms_late / figure.first_ms_early });
}
console.table(figures.map(({ way, ...rest }) => ({ way, ...Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, Number(value.toFixed(2))])) })));
save('protocols', parley, { source: 'protocols.mjs: conversations sent again whole, demo model', figures });
await server.stop();
