// ws/PROTOCOL.md and ws/protocol.schema.json: they name the same messages, the examples are what the schema describes,
// and the schema refuses what is not the protocol.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { complaint, schema, validator } from './schema.mjs';
import { Wire } from './wire.mjs';

const text = readFileSync(new URL('../../ws/PROTOCOL.md', import.meta.url), 'utf8');
const blocks = [...text.matchAll(/^```\n(.*?)^```$/gms)].map(([, block]) => block);

/** Entries of all code blocks that begin with `mark`: the line, and the indented lines behind it. */
const entries = (mark) => blocks.flatMap((block) => block.split(/\n(?=\S)/)).filter((entry) => entry.startsWith(mark))
  .map((entry) => entry.slice(mark.length));
const [SESSION] = entries('SESSION = '), [TURN] = entries('TURN = ');
const LISTED = JSON.stringify({ ...JSON.parse(SESSION), system: undefined, system_start: null });
const CHANGED = JSON.stringify({ ...JSON.parse(SESSION), system: undefined });
const messages = (mark) => entries(mark).map((entry) => {
  const whole = entry.replace(/\bCHANGED\b/g, () => CHANGED).replace(/\bLISTED\b/g, () => LISTED).replace(/\bSESSION\b/g, () => SESSION).replace(/\bTURN\b/g, () => TURN);
  try {
    return JSON.parse(whole);
  } catch (error) {
    throw new Error(`${error.message} in ${entry}`);
  }
});
const examples = { client: messages('-> '), server: messages('<- ') };
const types = (side) => Object.keys(schema.$defs).filter((name) => name.startsWith(`${side}.`)).map((name) => name.slice(side.length + 1));

test('the document has an example of every message, and the schema takes each', () => {
  assert.equal(entries('').length, examples.client.length + examples.server.length + 2, 'an entry with another mark');
  for (const side of ['client', 'server']) {
    assert.deepEqual([...new Set(examples[side].map(({ type }) => type))].sort(), types(side).sort());
    for (const message of examples[side]) {
      assert.equal(complaint(side, message), null);
      assert.ok(validator(side)(message), JSON.stringify(validator(side).errors));
    }
  }
  assert.ok(validator('session')(JSON.parse(SESSION)), JSON.stringify(validator('session').errors));
  assert.ok(validator('turn')(JSON.parse(TURN)), JSON.stringify(validator('turn').errors));
});

test('no line of the document is longer than 120 columns', () => {
  assert.deepEqual(text.split('\n').filter((line) => [...line].length > 120), []);
});

test('each side lists every one of its messages once', () => {
  for (const side of ['client', 'server'])
    assert.deepEqual(schema.$defs[side].oneOf.map(({ $ref }) => $ref).sort(), types(side).map((type) => `#/$defs/${side}.${type}`).sort());
  assert.deepEqual(Object.keys(schema.$defs).filter((name) => !validator(name)), []);
});

test('the schema refuses unknown types, missing fields, fields of another type and, of the server, unknown fields', () => {
  for (const side of ['client', 'server']) {
    for (const type of ['turn.stop', '', 5, null, undefined]) assert.equal(validator(side)({ type }), false, String(type));
    for (const wrong of [null, [], 'ping', 1]) assert.equal(validator(side)(wrong), false, JSON.stringify(wrong));
    for (const message of examples[side]) {
      const valid = validator(`${side}.${message.type}`);
      const refuses = (change, what) => assert.equal(valid({ ...message, ...change }), false, `${message.type}: ${what}`);
      const definition = schema.$defs[`${side}.${message.type}`];
      const whole = definition.else?.$ref ? schema.$defs[definition.else.$ref.split('/').at(-1)] : definition;
      for (const key of whole.required) {
        const { [key]: _, ...rest } = message;
        assert.equal(valid(rest), false, `${message.type} without ${key}`);
      }
      for (const key of Object.keys(message)) refuses({ [key]: [[[]]] }, `${key} of another type`);
      if (side === 'server') refuses({ surplus: 1 }, 'an unknown field');
    }
  }
});

test('the schema refuses an input of two kinds or of none, a page that attaches, and a wrong id', () => {
  const start = (input) => complaint('client', { type: 'turn.start', session: 'a', input });
  for (const input of [{}, { content: 'a', text: 'b' }, { content: 'a', ids: [1] }, { continue: false }, { ids: ['1'] }, { ids: [-1] }, { ids: [0.5] }])
    assert.notEqual(start(input), null, JSON.stringify(input));
  assert.equal(start({ content: 'a', continue: false }), null);
  assert.notEqual(complaint('client', { type: 'session.get', session: 'a', attach: true, before: 3 }), null);
  assert.equal(complaint('client', { type: 'session.get', session: 'a', attach: false, before: 3 }), null);
  for (const session of ['', 'a/b', 'x'.repeat(65)]) assert.notEqual(complaint('client', { type: 'session.get', session }), null, session);
});

test('the ranges of sampling parameters are those of the server', async (t) => {
  const wire = await Wire.start(t);
  const { hello } = await wire.connect();
  const { properties } = schema.$defs.sampling;
  assert.deepEqual(hello.sampling_parameters.map(({ name }) => name).sort(), Object.keys(properties).sort());
  assert.deepEqual(Object.keys(schema.$defs.sampling_shown.properties).sort(), Object.keys(properties).sort());
  for (const { name, type, min, max, above_min } of hello.sampling_parameters.filter((row) => ['number', 'integer'].includes(row.type))) {
    const range = above_min ? { exclusiveMinimum: min, maximum: max } : { minimum: min, maximum: max };
    assert.deepEqual(properties[name], { type: [type, 'null'], ...range }, name);
  }
});

test('the server knows every message of the schema', async (t) => {
  const wire = await Wire.start(t);
  const client = await wire.connect({ malformed: true });
  for (const type of types('client').filter((name) => name !== 'hello' && name !== 'session.typing'))
    assert.notEqual((await client.request({ type })).code, 'unknown_type', type);
  assert.equal((await client.request({ type: 'turn.stop' })).code, 'unknown_type');
});
