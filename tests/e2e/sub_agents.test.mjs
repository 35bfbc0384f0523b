// An agent with 32 sub-agents at once on one server, over three protocols: each keeps a conversation of its own with tools, some
// leave in the middle of an answer and come back, all under the name of their parent's session. None may wait for ever.
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import test from 'node:test';
import WebSocket from 'ws';
import { patience, Server, unlimited, until } from './harness.mjs';
import { clientOf, user } from './openai_client.mjs';

const model = 'demo-model', agents = 32, rounds = 3;
const schema = { type: 'object', additionalProperties: false, required: ['file'], properties: { file: { enum: ['a.c', 'b.c'] } } };
const system = 'You are a careful sub-agent. Read the files that you need, one at a time, and report. '.repeat(4);
const task = (i) => `Task ${i}: find the fault in a.c and b.c.`;
const result = (i, round) => `${round}: int f${i}(void) { return ${i * round}; }`;
const max_tokens = 60;

/** Chat completions, streamed; every other round a call is forced. Leaves its first answer and asks again. */
async function chat(openai, i) {
  const tools = [{ type: 'function', function: { name: 'read', parameters: schema } }];
  const headers = { 'x-parent-session-id': 'the-parent' };
  const messages = [{ role: 'system', content: system }, user(task(i))];
  const ask = () => openai.chat.completions.create({ model, messages, tools, max_tokens, stream: true, tool_choice: messages.length % 2 ? 'auto' : 'required' }, { headers });
  if (i % 2) {
    const left = await ask();
    for await (const _ of left) break; // its connection ends
  }
  for (let round = 0; round < rounds; round++) {
    const answer = { role: 'assistant', content: '', tool_calls: [] };
    for await (const { choices: [choice] } of await ask()) {
      answer.content += choice?.delta.content ?? '';
      for (const { index, id, function: { name, arguments: text } } of choice?.delta.tool_calls ?? []) {
        answer.tool_calls[index] ??= { id, type: 'function', function: { name, arguments: '' } };
        answer.tool_calls[index].function.arguments += text ?? '';
      }
    }
    const calls = answer.tool_calls;
    for (const call of calls) assert.match(JSON.parse(call.function.arguments).file, /^[ab]\.c$/);
    messages.push(calls.length ? answer : { role: 'assistant', content: answer.content });
    if (calls.length) messages.push(...calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: result(i, round) })));
    else messages.push(user('Go on.'));
  }
  return messages.length;
}

/** Messages, whole and streamed in turn, under the header of Anthropic's own agent. */
async function messages(anthropic, i) {
  const headers = { 'x-claude-code-session-id': 'the-parent' };
  const tools = [{ name: 'read', input_schema: schema }];
  const said = [{ role: 'user', content: task(i) }];
  for (let round = 0; round < rounds; round++) {
    const body = { model, max_tokens, system, tools, tool_choice: { type: round % 2 ? 'auto' : 'any' }, messages: said };
    if (i % 2 && round === 1) await anthropic.messages.stream(body, { headers, signal: AbortSignal.timeout(30) }).finalMessage().catch(() => {});
    const { content } = round % 2 ? await anthropic.messages.stream(body, { headers }).finalMessage() : await anthropic.messages.create(body, { headers });
    const uses = content.filter(({ type }) => type === 'tool_use');
    for (const { input } of uses) assert.match(input.file, /^[ab]\.c$/);
    if (round % 2 === 0) assert.ok(uses.length > 0, JSON.stringify(content));
    said.push({ role: 'assistant', content }, { role: 'user', content: uses.length ? uses.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: result(i, round) })) : 'Go on.' });
  }
  return said.length;
}

/** Responses over one WebSocket that all sub-agents share, each in a lane of its own. */
function lanes(url) {
  const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/responses`, { headers: { authorization: 'Bearer none', 'session-id': 'the-parent' } });
  const waiting = new Map();
  const open = new Promise((resolve, reject) => socket.on('open', resolve).on('error', reject));
  socket.on('message', (data) => {
    const event = JSON.parse(data);
    if (event.type === 'error' || event.type === 'response.failed') waiting.get(event.stream_id)?.reject(new Error(data));
    if (/^response\.(completed|incomplete)$/.test(event.type)) waiting.get(event.stream_id)?.resolve(event.response);
  });
  const ask = async (stream_id, body) => {
    await open;
    const answer = new Promise((resolve, reject) => waiting.set(stream_id, { resolve, reject }));
    socket.send(JSON.stringify({ type: 'response.create', stream_id, model, store: false, max_output_tokens: max_tokens, instructions: system, ...body }));
    return answer;
  };
  return { ask, close: () => socket.terminate() };
}

async function responses(socket, i) {
  const tools = [{ type: 'function', name: 'read', parameters: schema }];
  let input = [{ role: 'user', content: task(i) }], id;
  for (let round = 0; round < rounds; round++) {
    const { output, ...answer } = await socket.ask(`lane-${i}`, { input, tools, previous_response_id: id, tool_choice: round % 2 ? 'auto' : 'required' });
    const calls = output.filter(({ type }) => type === 'function_call');
    if (round % 2 === 0) assert.ok(calls.length > 0, JSON.stringify(output));
    id = answer.id;
    input = calls.length ? calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: result(i, round) })) : [{ role: 'user', content: 'Go on.' }];
  }
  return rounds;
}

test(`${agents} overlapping sub-agents end, and leave nothing behind that runs`, { timeout: 4 * patience }, async (t) => {
  const server = await Server.start(t, { args: [...unlimited, '--max-sequences', '8', '--max-queued-turns', '64'] });
  const openai = clientOf(server);
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, timeout: patience });
  const sockets = [lanes(server.url), lanes(server.url)];
  const each = (i) => [() => chat(openai, i), () => messages(anthropic, i), () => responses(sockets[i % 2], i)][i % 3]();
  const ended = await Promise.allSettled(Array.from({ length: agents }, (_, i) => each(i)));
  const failures = ended.filter(({ status }) => status === 'rejected').map(({ reason }) => reason.message);
  assert.deepEqual(failures, []);
  sockets.forEach((socket) => socket.close());
  const parley = await server.connect();
  await until('no turn runs', async () => (await server.metrics()).get('parley_turns') === 0);
  const { sessions } = await parley.request({ type: 'session.list', limit: 200 });
  assert.ok(sessions.every(({ state }) => state !== 'active'), JSON.stringify(sessions.map(({ state }) => state)));
  // The parent goes on, under the same name.
  const answer = await openai.chat.completions.create({ model, max_tokens: 5, messages: [user('Sum up.')] }, { headers: { 'x-session-id': 'the-parent' } });
  assert.equal(answer.object, 'chat.completion');
});
