// What is refused before its route is called, or before a turn: each protocol's own form of error, with its id header and
// the name of the setting that a user may change.
import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import test from 'node:test';
import { absent, column, connect, grpc, inputsOf, requestOf } from './grpc.mjs';
import { freePort, root, Server, temporaryFolder, unlimited } from './harness.mjs';

const hello = [{ role: 'user', content: 'Hello' }];
/** { status, headers, body } of a request over this agent's connection; raw headers as given. */
const ask = (server, target, body, { agent, headers = {}, method = 'POST' } = {}) => new Promise((resolve, reject) => {
  const request = http.request({ host: '127.0.0.1', port: server.port, path: target, method, agent, headers: { 'content-type': 'application/json', ...headers } }, (answer) => {
    let text = '';
    answer.on('data', (piece) => { text += piece; });
    answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, text, body: (() => { try { return JSON.parse(text); } catch { return null; } })() }));
  });
  request.on('error', reject);
  request.end(typeof body === 'string' ? body : JSON.stringify(body));
});

const openai = ({ headers, body }) => {
  assert.match(headers['x-request-id'], /^req_/);
  assert.equal(typeof body.error.message, 'string');
  assert.ok('type' in body.error && 'param' in body.error && 'code' in body.error);
  return body.error.message;
};
const anthropic = ({ headers, body }) => {
  assert.match(headers['request-id'], /^req_/);
  assert.equal(body.type, 'error');
  assert.equal(body.request_id, headers['request-id']);
  return body.error.message;
};
const kserve = ({ body }) => {
  assert.deepEqual(Object.keys(body), ['error']);
  return body.error;
};
const llamacpp = ({ status, body }) => {
  assert.equal(body.error.code, status);
  return body.error.message;
};
const protocols = [
  ['/v1/chat/completions', openai], ['/v1/completions', openai], ['/v1/responses', openai], ['/v1/embeddings', openai],
  ['/v1/conversations', openai], ['/v1/no-such-address', openai],
  ['/v1/messages', anthropic, { 'anthropic-version': '2023-06-01' }], ['/v1/messages/count_tokens', anthropic, { 'anthropic-version': '2023-06-01' }],
  ['/v2/models/ensemble/infer', kserve], ['/v2/models/ensemble/generate', kserve], ['/apply-template', llamacpp], ['/tokenize', llamacpp],
];

test('refusals before a route keep the form of the address', async (t) => {
  const server = await Server.start(t, { args: ['--messages-per-second', '2', '--max-message-bytes', '4KiB', '--max-conversation-bytes', '8KiB', '--max-infer-bytes', '4KiB'] });
  for (const [target, form, headers] of protocols)
    await t.test(target, async () => {
      const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
      for (let i = 0, refused = target.includes('no-such'); !refused; i++) { // whose connections end with each answer
        assert.ok(i < 100, 'no rate is kept');
        const answer = await ask(server, target, { model: 'no-such-model', messages: hello, input: 'x', inputs: [] }, { agent, headers });
        refused = answer.status === 429;
        if (refused) assert.match(form(answer), /messages_per_second/);
      }
      agent.destroy();
      const host = await ask(server, target, {}, { headers: { ...headers, host: 'evil.example' } });
      assert.equal(host.status, 403);
      assert.match(form(host), /allowed_hosts/);
      const head = await ask(server, target, {}, { headers: { ...headers, 'x-long': 'x'.repeat(15000), 'x-more': 'y'.repeat(5000) } });
      assert.equal(head.status, 431);
      form(head);
      const twice = await ask(server, target, {}, { headers: { ...headers, 'content-encoding': 'br' } });
      assert.equal(twice.status, 415);
      form(twice);
      if (target.includes('no-such')) return;
      const long = await ask(server, target, ' '.repeat(9000), { headers: { ...headers, connection: 'close' } });
      assert.equal(long.status, 413);
      assert.match(form(long), /max_(message|conversation|infer)_bytes/);
    });
});

test('connections beyond a limit are told which setting it is', async (t) => {
  const server = await Server.start(t, { args: ['--max-connections', '2'], wait: false });
  const agent = () => new http.Agent({ keepAlive: true });
  let answers;
  for (let tries = 0; !answers; tries++)
    answers = await Promise.all([1, 2, 3, 4].map(() => ask(server, '/healthz', '', { agent: agent(), method: 'GET' }))).catch((error) => {
      assert.ok(tries < 3000, error);
      return new Promise((resolve) => setTimeout(resolve, 20));
    });
  assert.match(answers.find(({ status }) => status === 503).body.error.message, /max_connections/);
});

test('/apply-template renders as chat completions do', async (t) => {
  const model = path.join(temporaryFolder(t), 'qwen3');
  cpSync(path.join(root, 'configs/demo-model'), model, { recursive: true });
  const config = path.join(model, 'tokenizer_config.json'), tokenizer = JSON.parse(readFileSync(config));
  delete tokenizer.chat_template;
  writeFileSync(config, JSON.stringify(tokenizer));
  const thinking = `{%- for m in messages %}<|im_start|>{{ m.role }}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{%- if reasoning_effort is defined %} effort {{ reasoning_effort }}{% endif %}
{%- if enable_thinking is defined and enable_thinking is false %}
<think>

</think>

{% endif %}{% endif %}`;
  writeFileSync(path.join(model, 'chat_template.jinja'), thinking);
  const server = await Server.start(t, { model, args: unlimited });
  const rendered = new Set();
  const more = [{}, { reasoning_effort: 'none' }, { reasoning_effort: 'high' }, { enable_thinking: false }, { enable_thinking: true }, { reasoning: { effort: 'low' } },
    { reasoning: { enabled: false } }, { thinking: { type: 'disabled' } }, { chat_template_kwargs: { enable_thinking: false } }];
  for (const fields of more) {
    const body = { messages: [...hello, { role: 'assistant', content: 'Hi', reasoning: 'They greet.' }, ...hello], ...fields };
    const { body: { prompt } } = await ask(server, '/apply-template', body);
    const { body: { tokens } } = await ask(server, '/tokenize', { content: prompt });
    const { body: chat } = await ask(server, '/v1/chat/completions', { model: 'qwen3', max_tokens: 1, ...body });
    assert.equal(tokens.length, chat.usage.prompt_tokens, JSON.stringify(fields));
    rendered.add(prompt);
  }
  assert.ok(rendered.size >= 4, `${rendered.size} different prompts`);
  for (const [fields, named] of [[{ reasoning_effort: 5 }, /reasoning_effort must be a string/], [{ reasoning: 'high' }, /reasoning must be an object/]])
    for (const target of ['/apply-template', '/v1/chat/completions']) {
      const answer = await ask(server, target, { model: 'qwen3', messages: hello, ...fields });
      assert.equal(answer.status, 400);
      assert.match(answer.body.error.message, named);
    }
  const kwargs = Object.fromEntries(Array.from({ length: 50000 }, (_, i) => [`k${i}`, i]));
  for (const target of ['/apply-template', '/v1/chat/completions']) {
    const answer = await ask(server, target, { model: 'qwen3', messages: hello, chat_template_kwargs: kwargs });
    assert.equal(answer.status, 400);
    assert.match(answer.body.error.message, /chat_template_kwargs has 50000 members/);
  }
});

test('/apply-template reads tool_choice as chat completions do', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const hello = [{ role: 'user', content: 'Hello' }];
  const tools = [{ type: 'function', function: { name: 'add', description: 'Adds.', parameters: { type: 'object', properties: {} } } }];
  for (const tool_choice of [undefined, 'none', 'auto', 'required', { type: 'function', function: { name: 'add' } }]) {
    const { body: { prompt } } = await ask(server, '/apply-template', { messages: hello, tools, tool_choice });
    const { body: { tokens } } = await ask(server, '/tokenize', { content: prompt });
    const { body: chat } = await ask(server, '/v1/chat/completions', { model: 'demo-model', max_tokens: 1, messages: hello, tools, tool_choice });
    assert.equal(tokens.length, chat.usage.prompt_tokens, JSON.stringify(tool_choice));
  }
  for (const more of [{ tools, tool_choice: 'nosuch' }, { tools, tool_choice: { type: 'function', function: { name: 'nosuch' } } }, { tool_choice: 'required' }])
    for (const target of ['/apply-template', '/v1/chat/completions']) {
      const answer = await ask(server, target, { model: 'demo-model', messages: hello, ...more });
      assert.equal(answer.status, 400, answer.text);
      assert.match(answer.body.error.message, /tool/, `${target} ${JSON.stringify(more)}: ${answer.text}`);
    }
});

test('KServe: a value of another type or out of range is refused, over HTTP and gRPC', async (t) => {
  const port = absent ? null : await freePort();
  const server = await Server.start(t, { args: [...unlimited, ...(port ? ['--grpc-port', String(port)] : [])] });
  server.grpc = port;
  const client = port ? connect(t, server) : null;
  const inputs = (more = []) => inputsOf([[100, 101, 7]], 3, more);
  const fp32 = (name, value) => column(name, 'FP32', [value]);
  const infer = async (fields, more) => ask(server, '/v2/models/demo-model/infer', { inputs: inputs(more), ...fields });
  assert.equal((await infer({ parameters: { priority: 3, mine: 'x', other: 1.5, last: true, none: null }, outputs: [{ name: 'output_ids' }] })).status, 200);
  const values = [fp32('runtime_top_p', 1.5), fp32('runtime_top_p', 1e18), fp32('runtime_top_p', -1), column('beam_width', 'UINT32', [65]), fp32('temperature', 101),
    fp32('repetition_penalty', 0), fp32('top_p_decay', 0), column('request_output_len', 'UINT32', [0])];
  for (const value of values) {
    const rest = inputs().filter(({ name }) => name !== value.name);
    const answer = await ask(server, '/v2/models/demo-model/infer', { inputs: [...rest, value] });
    assert.equal(answer.status, 400, `${value.name} ${value.data}`);
    assert.ok(kserve(answer).includes(value.name), answer.text);
    if (client) await assert.rejects(client.call('ModelInfer', requestOf([...rest, value], {}, { model: 'demo-model' })), (error) => error.code === grpc.status.INVALID_ARGUMENT && error.details.includes(value.name));
  }
  const wrong = [{ outputs: 5 }, { outputs: 'x' }, { outputs: {} }, { outputs: [5] }, { outputs: [{}] }, { outputs: [{ name: 5 }] }, { outputs: [{ name: 'output_ids', parameters: 5 }] },
    { outputs: [{ name: 'output_ids', parameters: { binary_data: 1 } }] }, { parameters: 5 }, { parameters: { priority: [] } }, { parameters: { priority: -1 } }, { parameters: { priority: 'high' } },
    { parameters: { timeout: 'x' } }, { parameters: { mine: [] } }, { parameters: { mine: {} } }, { parameters: { sequence_start: 1 } }, { id: 5 }, { inputs: 5 }, { inputs: [5] }];
  for (const fields of wrong) {
    const answer = await infer(fields);
    assert.equal(answer.status, 400, JSON.stringify(fields));
    kserve(answer);
  }
  if (!client) return;
  for (const parameters of [{ priority: { string_param: 'high' } }, { priority: { int64_param: -1 } }, { priority: { double_param: 0.5 } }, { priority: { bool_param: true } }, { mine: {} }])
    await assert.rejects(client.call('ModelInfer', { ...requestOf(inputs(), {}, { model: 'demo-model' }), parameters }), (error) => error.code === grpc.status.INVALID_ARGUMENT, JSON.stringify(parameters));
});
