// Frameworks that people build agents with, unmodified: Vercel's AI SDK, LangChain, OpenAI's agents. They need Node 20, more
// than the other tests, and 240 MB of packages, so they are a suite of their own (make check-clients).
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { Agent, OpenAIProvider, Runner, tool as agentTool } from '@openai/agents';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { Server, unlimited } from '../harness.mjs';

const digits = z.object({ a: z.number().int().min(0).max(9), b: z.number().int().min(0).max(9) });
const person = z.object({ name: z.enum(['Zora', 'Max']), age: z.number().int().min(1).max(99) });
const inRange = ({ a, b }) => [a, b].every((n) => Number.isInteger(n) && n >= 0 && n <= 9);
let server, baseURL, model;

before(async () => {
  server = await Server.start(null, { args: unlimited });
  baseURL = `${server.url}/v1`;
  model = createOpenAICompatible({ name: 'parley', baseURL, apiKey: 'none', includeUsage: true, supportsStructuredOutputs: true })('demo-model');
});
after(() => server.stop());

test("Vercel's AI SDK: a conversation that is sent again is computed once", async () => {
  const messages = [];
  let known = 0;
  for (const content of ['My name is Zora.', 'What is my name?', 'Thank you!']) {
    messages.push({ role: 'user', content });
    const answer = streamText({ model, messages, maxOutputTokens: 30, temperature: 0 });
    let text = '';
    for await (const piece of answer.textStream) text += piece;
    const { inputTokens, cachedInputTokens, outputTokens } = await answer.usage;
    assert.ok(text && inputTokens > known);
    // All that was there but the last token drawn, which was never an input.
    assert.ok((cachedInputTokens ?? 0) >= known - 1, `${cachedInputTokens} of ${known} tokens were not computed`);
    known = inputTokens + outputTokens;
    messages.push({ role: 'assistant', content: text });
  }
});

test("Vercel's AI SDK: a tool that must be called, its result, and an object by a schema", async () => {
  const add = tool({ description: 'adds two digits', inputSchema: digits, execute: ({ a, b }) => a + b });
  const { steps } = await generateText({ model, prompt: 'Add 2 and 3.', toolChoice: 'required', stopWhen: stepCountIs(2), tools: { add }, maxOutputTokens: 80 });
  assert.equal(steps.length, 2);
  for (const { toolCalls, toolResults } of steps) {
    assert.ok(inRange(toolCalls[0].input));
    assert.equal(toolResults[0].output, toolCalls[0].input.a + toolCalls[0].input.b);
  }
  const { object } = await generateObject({ model, schema: person, prompt: 'Make one up.', maxOutputTokens: 80 });
  assert.ok(person.safeParse(object).success, JSON.stringify(object));
});

test("Vercel's AI SDK over responses: what the server has stored is sent as references", async () => {
  const bodies = [];
  const fetchAndNote = (url, init) => { bodies.push(JSON.parse(init.body)); return fetch(url, init); };
  const responses = createOpenAI({ baseURL, apiKey: 'none', fetch: fetchAndNote }).responses('demo-model');
  const add = tool({ description: 'adds two digits', inputSchema: digits, execute: ({ a, b }) => a + b });
  const messages = [{ role: 'user', content: 'My name is Zora.' }];
  const ask = async (rest) => {
    const answer = await generateText({ model: responses, messages, maxOutputTokens: 80, temperature: 0, ...rest });
    messages.push(...answer.response.messages);
    return answer;
  };
  const first = await ask({});
  messages.push({ role: 'user', content: 'Add 2 and 3.' });
  const called = await ask({ tools: { add }, toolChoice: 'required', stopWhen: stepCountIs(2) });
  assert.equal(called.steps.length, 2);
  messages.push({ role: 'user', content: 'What is my name?' });
  const last = await ask({});
  assert.ok(last.text);
  const sent = bodies.at(-1).input;
  assert.ok(sent.some((item) => item.type === 'item_reference'), JSON.stringify(sent));
  const stored = await (await fetch(`${baseURL}/responses/${last.response.id}/input_items?order=asc&limit=100`)).json();
  assert.equal(stored.data.length, sent.length);
  assert.ok(stored.data.every((item) => item.type !== 'item_reference'));
  assert.equal(stored.data[1].content[0].text, first.text);
  assert.equal(stored.data.filter((item) => item.type === 'function_call').length, called.steps.flatMap((s) => s.toolCalls).length);
  assert.ok(last.usage.cachedInputTokens > 0);
});

test('LangChain: whole, streamed, structured, a named tool, responses, embeddings', async () => {
  const fields = { model: 'demo-model', apiKey: 'none', maxTokens: 40, temperature: 0, maxRetries: 0, configuration: { baseURL } };
  const chat = new ChatOpenAI(fields);
  const whole = await chat.invoke([['system', 'Be brief.'], ['human', 'Hello']]);
  assert.ok(whole.content && whole.usage_metadata.total_tokens === whole.usage_metadata.input_tokens + whole.usage_metadata.output_tokens);
  let streamed = '';
  for await (const piece of await chat.stream('Hello there')) streamed += piece.content;
  assert.ok(streamed);
  assert.ok(person.safeParse(await chat.withStructuredOutput(person, { method: 'jsonSchema' }).invoke('Make one up.')).success);
  const pick = { type: 'function', function: { name: 'pick', parameters: { type: 'object', properties: { x: { enum: [1, 2] } }, required: ['x'] } } };
  const { tool_calls: calls } = await chat.bindTools([pick], { tool_choice: 'pick' }).invoke('Choose.');
  assert.equal(calls.length, 1);
  assert.ok(calls[0].name === 'pick' && [1, 2].includes(calls[0].args.x), JSON.stringify(calls));
  const response = await new ChatOpenAI({ ...fields, useResponsesApi: true }).invoke('Hello');
  assert.ok(response.text && response.usage_metadata.output_tokens > 0);
  const vectors = await new OpenAIEmbeddings({ model: 'demo-model', apiKey: 'none', configuration: { baseURL } }).embedDocuments(['a dog', 'a cat']);
  for (const vector of vectors) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-3);
});

for (const useResponses of [false, true])
  test(`OpenAI's agents over ${useResponses ? 'responses' : 'chat completions'}: a tool, its result, an answer`, async () => {
    const asked = [];
    const add = agentTool({ name: 'add', description: 'adds two digits', parameters: digits, execute: async (input) => { asked.push(input); return String(input.a + input.b); } });
    const agent = new Agent({ name: 'A', model: 'demo-model', instructions: 'Use the tool.', tools: [add], modelSettings: { toolChoice: 'required', maxTokens: 80, temperature: 0 } });
    const runner = new Runner({ modelProvider: new OpenAIProvider({ baseURL, apiKey: 'none', useResponses }), tracingDisabled: true });
    const result = await runner.run(agent, 'Add 1 and 2.', { maxTurns: 4 });
    assert.ok(asked.length === 1 && inRange(asked[0]), JSON.stringify(asked));
    assert.equal(typeof result.finalOutput, 'string');
    assert.deepEqual(result.newItems.map((item) => item.type), ['tool_call_item', 'tool_call_output_item', 'message_output_item']);
  });
