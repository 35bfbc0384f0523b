// A forced call (tool_choice required, or a name) is drawn as the model's template writes calls, in each syntax, so that the next
// request computes its own text alone. Where the template cannot be followed, the call is plain JSON.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import Ajv from 'ajv/dist/2020.js';
import { few, longTest, Server, shortIf, shortTest as test, temporaryFolder, unlimited } from './harness.mjs';
import { cached, clientOf, sessionOf, user } from './openai_client.mjs';

const model = 'demo-model';
const parameters = {
  type: 'object', additionalProperties: false, required: ['city', 'days'],
  properties: { city: { type: 'string', maxLength: 12 }, days: { type: 'integer', minimum: 1, maximum: 99 }, unit: { type: 'string', enum: ['c', 'f'] }, tags: { type: 'array', maxItems: 2, items: { enum: ['a', 'b'] } } },
};
// Where arguments stand without quotes, a string has no other bound than a list.
const unquoted = { ...parameters, properties: { ...parameters.properties, city: { type: 'string', enum: ['Rome', 'Oslo "S"', 'a < b'] } } };
// A conversation stays within the window of 512 tokens, so that all of it can be cached.
const small = { type: 'object', additionalProperties: false, required: ['city'], properties: { city: { type: 'string', enum: ['Rome', 'Oslo'] } } };
const toolsOf = (given) => ['weather', 'news'].map((name) => ({ type: 'function', function: { name, parameters: given } }));

/** A template of ChatML whose calls are written by `calls`; the `hint` shows it the syntax where calls do not. */
const chatml = (calls, hint = '', after = '<|im_end|>\n') => `{% for t in tools or [] %}{{ '<|im_start|>system\n' + t | tojson + ${JSON.stringify(hint)} + '<|im_end|>\n' }}{% endfor %}`
  + `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ m.content or '' }}`
  + `${calls}{{ ${JSON.stringify(after)} }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`;
const each = (text) => `{% for c in m.tool_calls or [] %}${text}{% endfor %}`;
const qwen = each(`{% if (loop.first and m.content) or not loop.first %}{{ '\n' }}{% endif %}{{ '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}\n</tool_call>' }}`);
const harmony = `{% for t in tools or [] %}{{ '<|start|>developer<|message|>type ' + t.function.name + '<|end|>' }}{% endfor %}{% for m in messages %}`
  + `{% if m.role == 'assistant' and 'tool_calls' in m %}{% if m.thinking %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{% endif %}`
  + `{{ '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' + m.tool_calls[0].function.arguments | tojson + '<|call|>' }}`
  + `{% elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}`
  + `{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}`;

const syntaxes = {
  hermes: { template: chatml(qwen), starts: '<tool_call>\n{"name": "', several: true },
  xml: {
    given: unquoted, starts: '<tool_call>\n<function=', several: true,
    template: chatml(each(`{% if not loop.first %}{{ '\n' }}{% endif %}{{ '<tool_call>\n<function=' + c.function.name + '>\n' }}{% for k, v in c.function.arguments.items() %}`
      + `{{ '<parameter=' + k + '>\n' }}{% if v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}{{ '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}`)),
  },
  glm: {
    given: unquoted, starts: '\n<tool_call>', several: true,
    template: chatml(each(`{{ '\n<tool_call>' + c.function.name }}{% for k, v in c.function.arguments.items() %}{{ '\n<arg_key>' + k + '</arg_key>\n<arg_value>' }}`
      + `{% if v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}{{ '</arg_value>' }}{% endfor %}{{ '\n</tool_call>' }}`)),
  },
  llama: {
    starts: '{"name": "',
    template: chatml(`{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif %}{% set c = m.tool_calls[0].function %}`
      + `{{ '{"name": "' + c.name + '", "parameters": ' + c.arguments | tojson + '}' }}{% endif %}`, '<|python_tag|>'),
  },
  mistral: { template: chatml(each(`{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' + c.function.arguments | tojson }}`)), starts: '[TOOL_CALLS]', several: true },
  list: {
    starts: '<|tool_call|>[{"name": "', several: true,
    template: chatml(`{% if m.tool_calls %}{{ '<|tool_call|>[' }}{% for c in m.tool_calls %}{{ ', ' if not loop.first else '' }}{{ '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}' }}{% endfor %}{{ ']' }}{% endif %}`),
  },
  harmony: { template: harmony, starts: ' to=functions.', harmony: true },
};

async function start(t, template) {
  const file = path.join(temporaryFolder(t), 'template.jinja');
  writeFileSync(file, template);
  const server = await Server.start(t, { args: [...unlimited, '--chat-template', file] });
  return { server, openai: clientOf(server), parley: await server.connect() };
}

const textOf = async (parley, id) => (await parley.request({ type: 'session.get', session: sessionOf(id) })).turns.at(-1).text;
const results = (calls) => calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: 'fine' }));

for (const [name, syntax] of Object.entries(syntaxes)) {
  shortIf(name === 'hermes')(`${name}: a forced call is the template's own text, and the next request continues the log`, async (t) => {
    const { server, openai, parley } = await start(t, syntax.template);
    const given = syntax.given ?? parameters, tools = toolsOf(given), valid = new Ajv({ strict: false }).compile(given);
    const ask = { model, tools, max_tokens: 200, temperature: 1, top_p: 1 };
    for (let seed = 0; seed < few(4); seed++) {
      const messages = [user(`The weather, please. ${seed}`)];
      const tool_choice = seed % 2 ? { type: 'function', function: { name: 'news' } } : 'required';
      const first = await openai.chat.completions.create({ ...ask, messages, seed, tool_choice, parallel_tool_calls: false });
      const [{ message, finish_reason }] = first.choices;
      assert.deepEqual([finish_reason, message.content, message.tool_calls.length], ['tool_calls', null, 1]);
      const call = message.tool_calls[0].function, text = await textOf(parley, first.id);
      assert.ok(valid(JSON.parse(call.arguments)), call.arguments);
      if (seed % 2) assert.equal(call.name, 'news');
      assert.ok(text.startsWith(syntax.starts) || (syntax.harmony && text.includes(syntax.starts)), JSON.stringify(text));
      messages.push(message, ...results(message.tool_calls));
      const next = await openai.chat.completions.create({ ...ask, messages, max_tokens: 2 });
      // The demo model has no token <|call|>: it ends with another one than the template writes.
      if (!syntax.harmony) assert.ok(cached(next) >= first.usage.prompt_tokens + first.usage.completion_tokens - 1, `${JSON.stringify([first.usage, next.usage])} ${JSON.stringify(text)}`);
      const { prompt } = await (await fetch(`${server.url}/apply-template`, { method: 'POST', body: JSON.stringify({ messages, tools }) })).json();
      assert.ok(prompt.includes(text), `${JSON.stringify(text)} is not in ${JSON.stringify(prompt)}`);
      assert.equal(sessionOf(next.id), sessionOf(first.id));
    }
  });
}

longTest('several forced calls in one answer: continued, and the same when streamed', async (t) => {
  let most = 0;
  for (const syntax of Object.values(syntaxes).filter((one) => one.several)) {
    const { openai } = await start(t, syntax.template);
    // A bias against the end of the answer makes it go on with further calls.
    const ask = { model, tools: toolsOf(small), max_tokens: 160, temperature: 1, tool_choice: 'required', logit_bias: { 2: -3 } };
    for (let seed = 0; seed < few(4); seed++) {
      const messages = [user(`News and weather. ${seed}`)], continued = [...messages];
      const first = await openai.chat.completions.create({ ...ask, messages, seed });
      const [{ message, finish_reason }] = first.choices;
      assert.equal(finish_reason, 'tool_calls');
      for (const call of message.tool_calls) assert.ok(['weather', 'news'].includes(call.function.name) && small.properties.city.enum.includes(JSON.parse(call.function.arguments).city));
      assert.equal(new Set(message.tool_calls.map((call) => call.id)).size, message.tool_calls.length);
      most = Math.max(most, message.tool_calls.length);
      continued.push(message, ...results(message.tool_calls));
      const next = await openai.chat.completions.create({ ...ask, tool_choice: 'auto', messages: continued, max_tokens: 2 });
      assert.ok(cached(next) >= first.usage.prompt_tokens + first.usage.completion_tokens - 1, JSON.stringify([first.usage, next.usage, message.tool_calls]));
      const streamed = [];
      let finish;
      for await (const { choices: [choice] } of await openai.chat.completions.create({ ...ask, messages, seed, stream: true })) {
        for (const part of choice?.delta.tool_calls ?? []) {
          streamed[part.index] ??= ['', ''];
          streamed[part.index][0] += part.function.name ?? '';
          streamed[part.index][1] += part.function.arguments ?? '';
        }
        finish = choice?.finish_reason ?? finish;
      }
      assert.deepEqual([finish, streamed], ['tool_calls', message.tool_calls.map((call) => [call.function.name, call.function.arguments])]);
    }
  }
  assert.ok(most > 1, 'no answer had several calls');
});

// As Qwen's: the thinking is opened in the prompt, and earlier thinking is shown before a call.
const thinking = chatml(`{% if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}${qwen}`)
  .replace("'<|im_start|>assistant\n' }}{% endif %}", "'<|im_start|>assistant\n<think>\n' }}{% endif %}");

longTest('a forced call behind thinking that the budget ends', async (t) => {
  const { openai, parley } = await start(t, thinking);
  for (let seed = 0; seed < few(3); seed++) {
    const messages = [user(`The weather? ${seed}`)];
    const first = await openai.chat.completions.create({ model, messages, seed, tools: toolsOf(parameters), tool_choice: 'required', parallel_tool_calls: false, thinking_budget: 12, max_tokens: 200 });
    const [{ message }] = first.choices;
    assert.equal(message.tool_calls.length, 1);
    assert.match(await textOf(parley, first.id), /<\/think>\n\n<tool_call>\n\{"name": "(weather|news)", "arguments": \{"city": "[^]*\}\}\n<\/tool_call>$/);
  }
});

test('a template that writes no calls, or a tool that its form does not suit: the call is plain JSON', async (t) => {
  const cases = [[chatml('', '<tool_call>'), parameters], [syntaxes.xml.template, parameters]];
  for (const [template, given] of cases) {
    const { openai, parley } = await start(t, template);
    const first = await openai.chat.completions.create({ model, messages: [user('The weather?')], tools: toolsOf(given), tool_choice: 'required', max_tokens: 200 });
    assert.deepEqual([first.choices[0].finish_reason, first.choices[0].message.tool_calls.length], ['tool_calls', 1]);
    assert.match(await textOf(parley, first.id), /^\{\s*"name"/);
  }
});
