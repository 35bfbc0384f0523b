// Answers under a grammar, over the real wire, on the demo model's first layer: each is valid at temperature 2 and at any
// max_tokens that has room for one, several at once too; they replay with equal bits and survive kill -9; what cannot
// be served is refused with a sentence. ajv is the oracle of schemas.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { after, test } from 'node:test';
import Ajv from 'ajv/dist/2020.js';
import { few, longTest, parley, rounds, Server, shortTest, unlimited, until } from './harness.mjs';
import { clientOf } from './openai_client.mjs';
import { Random } from './random.mjs';
import { shallowDemo } from './shallow.mjs';

const demo = shallowDemo({ after });
const words = ['red', 'green', 'blue', 'a b', 'é"\\', ''];
const isUri = (s) => {
  try {
    return Boolean(new URL(s));
  } catch {
    return false;
  }
};
const formats = {
  date: /^\d{4}-\d\d-\d\d$/, time: /^\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/, 'date-time': (s) => !Number.isNaN(Date.parse(s)), uuid: /^[0-9a-f-]{36}$/,
  email: /^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$/, ipv4: /^(\d{1,3}\.){3}\d{1,3}$/, uri: isUri,
};

/** A random schema that is supported: depth bounds how deep it is nested. */
function randomSchema(random, depth) {
  const pick = (list) => list[Math.floor(random() * list.length)];
  const int = (lo, hi) => lo + Math.floor(random() * (hi - lo + 1));
  const kinds = ['string', 'integer', 'number', 'multiple', 'enum', 'const', 'boolean', 'pattern', 'format', 'types'];
  if (depth > 0) kinds.push('object', 'object', 'object', 'array', 'array', 'anyOf', 'allOf', 'map', 'patterns', 'tuple', 'record', 'oneOf', 'if',
    'dependent', 'not', 'unique', 'contains', 'unevaluated');
  const inner = () => randomSchema(random, depth - 1);
  switch (pick(kinds)) {
    case 'string': { const min = int(0, 4); return { type: 'string', ...(random() < 0.5 ? { minLength: min, maxLength: min + int(0, 6) } : {}) }; }
    case 'integer': { const min = int(-2000, 2000); return { type: 'integer', minimum: min, ...(random() < 0.7 ? { exclusiveMaximum: min + int(1, 3000) } : {}) }; }
    case 'number': { const min = (random() - 0.5) * 10 ** int(0, 4); return pick([{ type: 'number' }, { type: 'number', minimum: min, maximum: min + random() * 100 },
      { type: 'number', exclusiveMinimum: Math.round(min), exclusiveMaximum: Math.round(min) + 0.5 }]); }
    case 'multiple': return pick([{ type: 'integer', multipleOf: int(2, 30), minimum: int(-90, 90) }, { type: 'number', multipleOf: 0.5, minimum: -9, exclusiveMaximum: int(-8, 90) }]);
    case 'record': return { type: 'object', propertyNames: pick([{ type: 'string' }, { enum: ['a', 'b'] }, { pattern: '^k_', maxLength: 6 }]), additionalProperties: inner() };
    case 'enum': return { enum: [pick(words), int(0, 9), null, { x: [1] }] };
    case 'const': return { const: pick(words) };
    case 'boolean': return { type: 'boolean' };
    case 'types': return { type: ['null', pick(['string', 'integer', 'boolean'])] };
    case 'pattern': return pick([{ type: 'string', pattern: '^[A-Z]{2}-\\d{3}$' }, { type: 'string', pattern: '[xy]' },
      { type: 'string', pattern: '^(foo|ba[rz])+$', maxLength: 9 }, { type: 'string', pattern: '^[A-Z](?!00)\\d{2}$' },
      { type: 'string', pattern: '^\\p{Lu}[\\p{Ll}\\p{M}]{1,8}$' }, { type: 'string', pattern: '^[^\\s"]*$', minLength: 1 }]);
    case 'format': return { type: 'string', format: pick(Object.keys(formats)) };
    case 'array': { const min = int(0, 2); return { type: 'array', items: inner(), minItems: min, ...(random() < 0.5 ? { maxItems: min + int(0, 2) } : {}) }; }
    case 'tuple': return { type: 'array', prefixItems: [inner(), inner()], items: random() < 0.5 ? false : inner(), minItems: int(0, 2) };
    case 'anyOf': return { anyOf: [inner(), inner()] };
    case 'allOf': return { allOf: [{ type: 'object', properties: { p: { type: 'integer', minimum: 3 } }, required: ['p'] }, { type: 'object', properties: { p: { maximum: 50 }, q: inner() } }] };
    case 'oneOf': return { oneOf: [{ type: 'object', properties: { kind: { const: 'a' }, x: inner() }, required: pick([[], ['kind']]) }, { type: 'object', properties: { kind: { const: 'b' }, y: inner() }, required: ['y'] }] };
    case 'if': return { type: 'object', properties: { k: { enum: ['a', 'b', 'c'] }, x: inner(), y: inner() }, required: ['k'], additionalProperties: false,
      allOf: [{ if: { properties: { k: { const: 'a' } } }, then: { required: ['x'] } }, { if: { properties: { k: { const: 'b' } } }, then: { required: ['y'] }, else: { properties: { y: false } } }] };
    case 'dependent': return { type: 'object', properties: { p: inner(), q: inner() }, dependentRequired: { p: ['q'] }, ...(random() < 0.5 ? { dependentSchemas: { q: { required: ['r'] } } } : {}) };
    case 'not': return pick([{ type: 'string', not: { enum: words } }, { type: 'integer', minimum: -3, maximum: 3, not: { const: 0 } }, { not: { type: ['object', 'array', 'string'] } },
      { type: 'object', properties: { p: inner(), q: inner() }, not: { required: ['p', 'q'] } }]);
    case 'unique': return { type: 'array', items: pick([{ enum: words }, { type: 'integer', minimum: 1, maximum: 4 }, { type: 'integer', minimum: 1, maximum: 40 }]), uniqueItems: true, minItems: int(0, 3) };
    case 'contains': return { type: 'array', items: { anyOf: [{ enum: words }, inner()] }, contains: { const: 'red' }, minContains: int(0, 2), ...(random() < 0.5 ? { maxContains: 2 } : {}) };
    case 'unevaluated': return { allOf: [{ type: 'object', properties: { p: inner() } }, { type: 'object', properties: { q: inner() }, required: ['q'] }], unevaluatedProperties: false };
    case 'map': return { type: 'object', additionalProperties: inner(), ...(random() < 0.5 ? { maxProperties: int(1, 2), minProperties: 1 } : {}) };
    case 'patterns': return { type: 'object', patternProperties: { '^n_': { type: 'null' } }, properties: { a: inner() }, additionalProperties: { type: 'boolean' } };
    default: {
      const names = ['name', 'id', 'ünï', 'with "quote"', 'list'].slice(0, int(1, 5));
      return { type: 'object', properties: Object.fromEntries(names.map((name) => [name, inner()])), required: names.filter(() => random() < 0.5),
        ...(random() < 0.5 ? { additionalProperties: false } : {}), ...(random() < 0.2 ? { maxProperties: names.length } : {}) };
    }
  }
}

const recursive = { $ref: '#/$defs/node', $defs: { node: { type: 'object', properties: { value: { type: 'integer' }, children: { type: 'array', items: { $ref: '#/$defs/node' } } },
  required: ['value'], additionalProperties: false } } };

const checker = (schema) => new Ajv({ strict: false, formats }).compile(schema);
const check = (validate, schema, text, what) => {
  let value;
  try { value = JSON.parse(text); } catch (error) { assert.fail(`${what}: ${error.message}: ${text}, under ${JSON.stringify(schema)}`); }
  assert.ok(validate(value), `${what}: ${text} is not valid: ${JSON.stringify(validate.errors)}, under ${JSON.stringify(schema)}`);
};
const state = (client, id) => client.request({ type: 'session.get', session: id });

test('every answer is valid at temperature 2, whatever max_tokens is', async (t) => {
  const server = await Server.start(t, { model: demo, args: unlimited });
  const numbers = new Random(20);
  const random = () => numbers.below(1 << 24) / (1 << 24);
  const schemas = [recursive, {}, { type: 'object' }, ...Array.from({ length: rounds(60) }, () => randomSchema(random, 3))];
  const lanes = await Promise.all(Array.from({ length: 4 }, () => server.connect()));
  let answers = 0, cut = 0, seeds = 0, next = 0;
  await Promise.all(lanes.map(async (client) => {
    while (next < schemas.length) {
      const schema = schemas[next++];
      const validate = checker(schema);
      const id = await client.open({ sampling: { json_schema: schema, temperature: 2, top_p: 1 } });
      for (let i = 0; i < few(12); i++) {
        const max_tokens = 1 + Math.floor(random() ** 2 * 150);
        const seed = String(seeds++);
        const made = await client.turn(id, 'Say it.', { sampling: { max_tokens, seed } });
        if (made.done.finish_reason === 'length') { // only because no answer has room
          assert.equal(made.done.usage.output_tokens, max_tokens, JSON.stringify([made.done, schema]));
          cut++;
        } else {
          assert.equal(made.done.finish_reason, 'eos', JSON.stringify([made.done, schema]));
          check(validate, schema, made.text, `seed ${seed}, max_tokens ${max_tokens}`);
          answers++;
        }
        await client.request({ type: 'session.rewind', session: id, turn: null });
      }
      await client.request({ type: 'session.close', session: id, delete: true });
    }
  }));
  t.diagnostic(`${answers} answers under ${schemas.length} schemas, ${cut} had no room`);
  assert.ok(answers > schemas.length);
});

longTest('samples at once, beams, replays and kill -9', async (t) => {
  let server = await Server.start(t, { model: demo, args: unlimited });
  let client = await server.connect();
  const schema = { type: 'object', properties: { city: { type: 'string', maxLength: 30 }, year: { type: 'integer', minimum: 1900, maximum: 2100 } }, required: ['city', 'year'], additionalProperties: false };
  const validate = checker(schema);
  const id = await client.open({ sampling: { temperature: 2, top_p: 1, json_schema: schema } });
  const first = await client.turn(id, 'Where?', { sampling: { n: 4, seed: '11', max_tokens: 40 } });
  check(validate, schema, first.text, 'sample 0');
  await until('the versions', async () => (await state(client, id)).turns[0].siblings?.length === 4);
  const exported = () => JSON.parse(execFileSync(parley, ['sessions', 'export', id, '--db', server.db], { maxBuffer: 1 << 28 }));
  for (const turn of exported().turns.filter((one) => one.branch)) check(validate, schema, turn.text, `sample ${turn.branch.index}`);

  const beams = await client.turn(id, 'Where?', { sampling: { beam_width: 3, temperature: 1, max_tokens: 30 } });
  check(validate, schema, beams.text, 'beams');
  const short = await client.turn(id, 'Again?', { sampling: { max_tokens: 18, seed: '5' } });
  check(validate, schema, short.text, 'a short one');
  const regex = await client.turn(id, 'When?', { sampling: { regex: '(19|20)[0-9]{2}', seed: '6', max_tokens: 30 } });
  assert.match(regex.text, /^(19|20)\d\d$/);
  const choice = await client.turn(id, 'Sure?', { sampling: { choice: ['yes', 'no', 'perhaps'], seed: '7' } });
  assert.ok(['yes', 'no', 'perhaps'].includes(choice.text));
  const free = await client.turn(id, 'And?', { sampling: { grammar: '', max_tokens: 3, seed: '8' } }); // takes the session's away
  assert.throws(() => check(validate, schema, free.text, 'free'));

  // kill -9 in the midst of an answer: the next one is as valid as before.
  const long = { type: 'array', items: { type: 'integer' }, minItems: 60 };
  await client.start(id, 'Count!', { sampling: { json_schema: long, max_tokens: 400, seed: '9' } });
  await client.next((frame) => frame.type === 'turn.delta' && frame.session === id);
  await server.stop('SIGKILL');
  server = await Server.start(t, { db: server.db, model: demo, args: unlimited });
  client = await server.connect();
  await client.request({ type: 'session.attach', session: id });
  const again = await client.turn(id, 'Count!', { sampling: { json_schema: long, max_tokens: 400, seed: '9' } });
  check(checker(long), long, again.text, 'after the crash');
  await server.stop();

  const replayed = spawnSync(parley, ['replay', id, '--db', server.db, '--model', demo, '--json'], { encoding: 'utf8' });
  const odd = JSON.parse(replayed.stdout).turns.filter((turn) => turn.verdict !== 'equal');
  assert.deepEqual(odd, [], replayed.stderr);
});

shortTest('what cannot be served is refused with a sentence', async (t) => {
  const server = await Server.start(t, { model: demo, args: unlimited });
  const client = await server.connect();
  const id = await client.open({});
  const refusal = async (sampling) => {
    const answer = await client.start(id, 'Hello.', { sampling });
    if (answer.type !== 'turn.accepted') return `${answer.code}: ${answer.message}`;
    const done = await client.next((frame) => frame.type === 'turn.done' && frame.session === id && frame.turn === answer.turn);
    return `${done.error?.code}: ${done.error?.message}`;
  };
  for (const [sampling, sentence] of [
    [{ json_schema: { type: 'object', properties: { a: { not: { format: 'uri' } } } } }, /#\/properties\/a\/not: the opposite of this schema is not supported/],
    [{ json_schema: { type: 'array', items: { type: 'array', maxItems: 1e9 } } }, /#\/items\/maxItems: more than 100000/],
    [{ json_schema: { $ref: '#' } }, /no finite answer/],
    [{ json_schema: '{' }, /json_schema/],
    [{ grammar: 'root ::= root "a" | "b"' }, /left recursion/],
    [{ grammar: 'root ::= (("a"{999}){999}){999}', max_tokens: 9 }, /cannot write any answer/],
    [{ regex: '(a' }, /regex: at character \d+/],
    [{ choice: [] }, /list of strings/],
    [{ choice: ['a'], regex: 'b' }, /exclude each other/],
    [{ regex: 'a', ignore_eos: true }, /ignore_eos/],
    [{ regex: 'x'.repeat(200000) }, /at most 131072/],
  ]) {
    assert.match(await refusal(sampling), sentence, JSON.stringify(sampling).slice(0, 200));
    // A session is not opened with it, and does not take it: each of its turns would be refused.
    const opened = await client.request({ type: 'session.open', sampling });
    assert.match(`${opened.code}: ${opened.message}`, sentence, JSON.stringify(sampling).slice(0, 200));
    const updated = await client.request({ type: 'session.update', session: id, sampling });
    assert.match(`${updated.code}: ${updated.message}`, sentence, JSON.stringify(sampling).slice(0, 200));
  }
  // A grammar whose shortest answer does not fit is followed as far as the tokens go.
  const cut = await client.turn(id, 'Hello.', { sampling: { regex: 'a{50}', max_tokens: 3 } });
  assert.match(cut.text, /^a+$/);
  assert.deepEqual([cut.done.finish_reason, cut.ids.length], ['length', 3]);
  // and the session goes on
  assert.match((await client.turn(id, 'Hello.', { sampling: { regex: '[a-z]{3}', max_tokens: 9 } })).text, /^[a-z]{3}$/);
});

test('chat completions: response_format, grammar, guided_regex', async (t) => {
  const server = await Server.start(t, { model: demo, args: unlimited });
  const openai = clientOf(server);
  const ask = (more) => openai.chat.completions.create({ model: 'demo-model', messages: [{ role: 'user', content: 'Tell me.' }], temperature: 2, max_tokens: 80, ...more });
  const schema = { type: 'object', properties: { answer: { type: 'string' }, sure: { type: 'boolean' } }, required: ['answer', 'sure'], additionalProperties: false };
  const textOf = (made) => made.choices[0].message.content;
  for (let seed = 0; seed < rounds(10); seed++) {
    check(checker(schema), schema, textOf(await ask({ seed, response_format: { type: 'json_schema', json_schema: { name: 'it', strict: seed % 2 === 0, schema } } })), 'json_schema');
    check(checker({ type: 'object' }), {}, textOf(await ask({ seed, response_format: { type: 'json_object' } })), 'json_object');
  }
  let streamed = '';
  for await (const chunk of await ask({ stream: true, seed: 3, response_format: { type: 'json_schema', json_schema: { name: 'it', schema } } })) streamed += chunk.choices[0]?.delta?.content ?? '';
  check(checker(schema), schema, streamed, 'streamed');
  assert.match(textOf(await ask({ guided_regex: '[0-9]{4}' })), /^\d{4}$/);
  assert.equal(textOf(await ask({ grammar: 'root ::= "just this"' })), 'just this');
  await assert.rejects(ask({ response_format: { type: 'json_schema', json_schema: { name: 'it', schema: { if: { format: 'uri' }, then: false } } } }), (error) => error.status === 400 && error.param === 'response_format' && /#\/if/.test(error.message));
  await assert.rejects(ask({ response_format: { type: 'xml' } }), (error) => error.status === 400 && error.param === 'response_format');
});
