// Schemas as the SDKs of the field write them (fixtures/schemas): each is served, and every answer is valid by ajv; or it
// is refused by the path that the fixture names.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import Ajv7 from 'ajv';
import Ajv2019 from 'ajv/dist/2019.js';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { few, root, Server, unlimited } from './harness.mjs';
import { Random } from './random.mjs';
import { shallowDemo } from './shallow.mjs';

const fixture = path.join(root, 'tests/fixtures/schemas/sdk.jsonl');
const rows = fs.readFileSync(fixture, 'utf8').trim().split('\n').map((line) => JSON.parse(line));

// One instance of ajv for each draft and flag: a new one compiles its meta-schema first, which costs more than the schema.
const judges = new Map();
function judge(Ajv, unicodeRegExp) {
  if (!judges.has(Ajv)) judges.set(Ajv, new Map());
  const flags = judges.get(Ajv);
  if (!flags.has(unicodeRegExp)) flags.set(unicodeRegExp, addFormats(new Ajv({ strict: false, logger: false, unicodeRegExp })));
  return flags.get(unicodeRegExp);
}

function checker({ $schema = '', ...schema }) {
  const Ajv = $schema.includes('draft-07') ? Ajv7 : $schema.includes('2019-09') ? Ajv2019 : Ajv2020;
  const compile = (unicodeRegExp) => {
    const ajv = judge(Ajv, unicodeRegExp);
    try {
      return ajv.compile(schema);
    } finally {
      ajv.removeSchema(schema); // the next one may have the same $id
    }
  };
  try { return compile(true); } catch { return compile(false); } // some patterns are valid without the flag u alone
}

async function refusalOf(client, schema) {
  const id = await client.open({});
  const answer = await client.start(id, 'Say it.', { sampling: { json_schema: schema } });
  if (answer.type !== 'turn.accepted') return answer.message;
  const done = await client.next((frame) => frame.type === 'turn.done' && frame.session === id);
  return done.error?.message;
}

test('schemas of the field are answered, or refused by path', async (t) => {
  const server = await Server.start(t, { model: shallowDemo(t), args: unlimited });
  const numbers = new Random(31);
  const lanes = await Promise.all(Array.from({ length: 4 }, () => server.connect()));
  let next = 0, answers = 0, refused = 0, short = 0;
  await Promise.all(lanes.map(async (client) => {
    while (next < rows.length) {
      const { from, schema, refused: why } = rows[next++];
      if (why) {
        const message = await refusalOf(client, schema);
        assert.ok(message?.includes(why), `${from}: ${message}, not ${why}`);
        refused++;
        continue;
      }
      const validate = checker(schema);
      const id = await client.open({ sampling: { json_schema: schema, temperature: 2, top_p: 1 } });
      for (let i = 0; i < few(3); i++) {
        const sampling = { max_tokens: 1 + numbers.below(i === 0 ? 400 : 60), seed: String(answers) };
        const made = await client.turn(id, 'Say it.', { sampling });
        if (made.done.finish_reason === 'length') { // only because no answer has room
          assert.equal(made.done.usage.output_tokens, sampling.max_tokens, from);
          short++;
        } else {
          assert.equal(made.done.finish_reason, 'eos', from);
          assert.ok(validate(JSON.parse(made.text)), `${from}: ${made.text}: ${JSON.stringify(validate.errors)}`);
          answers++;
        }
        await client.request({ type: 'session.rewind', session: id, turn: null });
      }
      await client.request({ type: 'session.close', session: id, delete: true });
    }
  }));
  t.diagnostic(`${answers} answers under ${rows.length - refused} schemas, ${short} had no room; ${refused} schemas refused`);
  assert.equal(answers + short, few(3) * (rows.length - refused));
  assert.ok(answers > 2 * short);
});
