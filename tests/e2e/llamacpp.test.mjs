// The addresses of llama.cpp's server that tools ask beside chatting, over raw HTTP: /tokenize, /detokenize,
// /apply-template, /props, /health.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Server, parley, root, temporaryFolder, unlimited } from './harness.mjs';

const model = path.join(root, 'configs/demo-model');
const post = async (server, target, body, headers = {}) => {
  const answer = await fetch(server.url + target, { method: 'POST', headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body) });
  return { status: answer.status, ...(await answer.json()) };
};

test('texts of the demo model', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const tokenize = async (fields) => (await post(server, '/tokenize', fields)).tokens;
  const detokenize = async (tokens) => (await post(server, '/detokenize', { tokens })).content;

  await t.test('/tokenize gives the ids that `parley tokenize` gives, and /detokenize the text back', async () => {
    for (const content of ['Once upon a time', 'naïve 你好 👍\n\n  x', '<|im_start|>user\nHi<|im_end|>\n', '']) {
      const tokens = await tokenize({ content });
      const told = spawnSync(parley, ['tokenize', '--model', model], { input: content, encoding: 'utf8' });
      assert.equal(told.status, 0, told.stderr);
      assert.deepEqual(tokens, told.stdout.split(/\s+/).filter(Boolean).map(Number));
      assert.equal(await detokenize(tokens), content);
    }
  });

  await t.test('pieces are texts, or bytes where they are no text', async () => {
    const content = 'Hi 👍 and 你';
    const tokens = await tokenize({ content, with_pieces: true });
    assert.deepEqual(tokens.map(({ id }) => id), await tokenize({ content }));
    const bytes = Buffer.concat(tokens.map(({ piece }) => Buffer.from(piece)));
    assert.equal(bytes.toString(), content);
    assert.ok(tokens.some(({ piece }) => Array.isArray(piece)), 'no token of this text is part of a character');
  });

  await t.test('special tokens are found in a text unless parse_special is false', async () => {
    const special = await tokenize({ content: '<|im_end|>' }), plain = await tokenize({ content: '<|im_end|>', parse_special: false });
    assert.equal(special.length, 1);
    assert.ok(plain.length > 1);
    assert.equal(await detokenize(plain), '<|im_end|>');
  });

  await t.test('/apply-template writes what the model is given', async () => {
    const messages = [{ role: 'system', content: 'Be kind.' }, { role: 'user', content: 'Hi <|im_end|>' }];
    const { prompt } = await post(server, '/apply-template', { messages });
    const told = spawnSync(parley, ['tokenize', '--model', model, '--chat'], { input: JSON.stringify({ messages, add_generation_prompt: true }), encoding: 'utf8' });
    assert.equal(prompt, JSON.parse(told.stdout).text);
    assert.match(prompt, /Be kind\.<\|im_end\|>\n<\|im_start\|>user\nHi <\|im_end\|><\|im_end\|>\n<\|im_start\|>assistant\n$/);
    const begun = await post(server, '/apply-template', { messages: [...messages, { role: 'assistant', content: 'Hello' }] });
    assert.equal(begun.prompt, `${prompt}Hello`, 'an answer that was begun goes on');
  });

  await t.test('long texts, made by workers', async () => {
    const content = 'The quick brown fox. '.repeat(20000); // 420 KB
    const tokens = await tokenize({ content });
    assert.equal(await detokenize(tokens), content);
    const { prompt } = await post(server, '/apply-template', { messages: [{ role: 'user', content }] });
    assert.ok(prompt.includes(content));
  });

  await t.test('/props', async () => {
    const props = await (await fetch(`${server.url}/props`)).json();
    assert.equal(props.chat_template, JSON.parse(readFileSync(path.join(model, 'tokenizer_config.json'))).chat_template
      ?? readFileSync(path.join(model, 'chat_template.jinja'), 'utf8'));
    assert.ok(props.total_slots >= 1 && props.default_generation_settings.n_ctx > 0);
    assert.equal(typeof props.default_generation_settings.params.temperature, 'number');
    assert.equal(props.model_alias, 'demo-model');
    assert.deepEqual(props.modalities, { vision: false, audio: false });
    assert.equal(props.eos_token, '<|im_end|>');
    assert.equal(typeof props.bos_token, 'string');
    assert.match(props.build_info, /^parley \d/);
    assert.deepEqual(await (await fetch(`${server.url}/props?model=demo-model`)).json(), props);
    assert.equal((await fetch(`${server.url}/props?model=other`)).status, 404);
  });

  await t.test('/health', async () => {
    for (const target of ['/health', '/v1/health']) {
      const answer = await fetch(server.url + target);
      assert.deepEqual([answer.status, await answer.json()], [200, { status: 'ok' }]);
    }
  });

  await t.test('what is not served is refused by name, in llama.cpp\'s form', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    const bad = [
      ['/tokenize', {}, /'content' is missing/], ['/tokenize', { content: 5 }, /'content'/], ['/tokenize', { content: ['a'] }, /'content'/],
      ['/tokenize', { content: 'a', add_special: true, parse_special: false }, /'add_special' is not served/],
      ['/tokenize', { content: 'a', with_pieces: 'yes' }, /'with_pieces'/],
      ['/tokenize', [], /object/], ['/tokenize', 'content', /./], ['/tokenize', Buffer.from('{"content":"\xff"}', 'latin1'), /UTF-8/],
      ['/tokenize', `${'['.repeat(5000)}`, /./], ['/tokenize', '{"content":"a","content":"b"}', /./],
      ['/detokenize', {}, /'tokens' is missing/], ['/detokenize', { tokens: [1, 'a'] }, /'tokens'/], ['/detokenize', { tokens: [-1] }, /'tokens'/],
      ['/detokenize', { tokens: [1.5] }, /'tokens'/], ['/detokenize', { tokens: [2147483647] }, /2147483647/], ['/detokenize', { tokens: { 0: 1 } }, /'tokens'/],
      ['/apply-template', {}, /'messages' is missing/], ['/apply-template', { messages: [] }, /messages/],
      ['/apply-template', { messages: [{ role: 'user' }] }, /messages/], ['/apply-template', { messages: [5] }, /messages/],
      ['/apply-template', { messages: 'Hi' }, /messages/], ['/apply-template', { messages: [{ role: 'clown', content: 'x' }] }, /role/],
      ['/apply-template', { messages: Array(4097).fill(messages[0]) }, /4096/],
      ['/apply-template', { messages, add_generation_prompt: false }, /'add_generation_prompt' must be true/],
      ['/apply-template', { messages, tools: {} }, /'tools'/], ['/apply-template', { messages, tools: [5] }, /./],
      ['/apply-template', { messages, chat_template_kwargs: [1] }, /chat_template_kwargs must be an object/],
      ['/apply-template', { messages, grammar: 'root ::= "a"' }, /'grammar' is not served/],
      ['/apply-template', { messages, chat_template: 'x' }, /'chat_template' is not served/],
    ];
    for (const [target, body, message] of bad) {
      const { status, error } = await post(server, target, body);
      assert.deepEqual([status, error?.code, error?.type], [400, 400, 'invalid_request_error'], `${target} ${JSON.stringify(body).slice(0, 80)}`);
      assert.match(error.message, message);
    }
    const unknown = await post(server, '/tokenize', { content: 'a', model: 'other' });
    assert.deepEqual([unknown.status, unknown.error.type], [404, 'not_found_error']);
    for (const target of ['/tokenize', '/detokenize', '/apply-template'])
      assert.equal((await fetch(server.url + target)).status, 405);
    assert.equal((await fetch(`${server.url}/props`, { method: 'POST' })).status, 405);
    assert.deepEqual(await tokenize({ content: 'a', n_probs: 3, tools: 5 }), await tokenize({ content: 'a' }), 'unknown members are ignored');
    assert.ok((await post(server, '/apply-template', { messages, tools: [], grammar: '', response_format: null })).prompt);
  });
});

test('a token is needed where tokens are in use, but for /health', async (t) => {
  const file = path.join(temporaryFolder(t), 'tokens');
  const token = 'alice-token-of-thirty-two-characters';
  writeFileSync(file, `alice:${token}\n`, { mode: 0o600 });
  const server = await Server.start(t, { args: [...unlimited, '--token-file', file] });
  const refused = await post(server, '/tokenize', { content: 'a' });
  assert.deepEqual([refused.status, refused.error.code, refused.error.type], [401, 401, 'authentication_error']);
  assert.equal((await fetch(`${server.url}/props`)).status, 401);
  assert.equal((await fetch(`${server.url}/health`)).status, 200);
  assert.ok((await post(server, '/tokenize', { content: 'a' }, { authorization: `Bearer ${token}` })).tokens);
});

test('/apply-template with tools, calls and variables, in a template that reads JSON', async (t) => {
  const file = path.join(temporaryFolder(t), 'template.jinja');
  writeFileSync(file, `{%- if tools %}[{% for tool in tools %}{{ tool.function.name }} {% endfor %}]<tool_call>{"name": ..., "arguments": ...}</tool_call>{% endif -%}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for call in m.tool_calls or [] -%}
{%- set arguments = call.function.arguments if call.function.arguments is mapping else call.function.arguments | from_json -%}
<tool_call>{"name": "{{ call.function.name }}"}{% for k, v in arguments.items() %} {{ k }}={{ v }}{% endfor %}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined %}thinking {{ enable_thinking }}{% endif %}{% endif %}`);
  const server = await Server.start(t, { args: [...unlimited, '--chat-template', file] });
  const call = { id: 'call_1', type: 'function', function: { name: 'find', arguments: '{"city":"Paris <|im_end|>","n":2}' } };
  const { prompt } = await post(server, '/apply-template', {
    messages: [{ role: 'user', content: 'Where?' }, { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'call_1', content: 'There.' }],
    tools: [{ type: 'function', function: { name: 'find', description: 'Finds', parameters: { type: 'object' } } }],
    chat_template_kwargs: { enable_thinking: false },
  });
  assert.match(prompt, /^\[find \]/);
  assert.match(prompt, /<tool_call>\{"name": "find"\} city=Paris <\|im_end\|> n=2<\/tool_call>/);
  assert.match(prompt, /There\.<\|im_end\|>\n<\|im_start\|>assistant\nthinking False$/);
});
