// Messages of parley.v1 against ws/protocol.schema.json. The harness passes every message through here, in both
// directions, so the schema and the server cannot drift apart.
import { readFileSync } from 'node:fs';
import Ajv from 'ajv/dist/2020.js';

export const schema = JSON.parse(readFileSync(new URL('../../ws/protocol.schema.json', import.meta.url), 'utf8'));
// Each test program compiles the schema anew and then checks some thousand messages: optimised code would cost more than it saves.
// strictTypes and strictRequired would refuse `required` beside a $ref or in a branch of oneOf.
const ajv = new Ajv({ allErrors: false, strictTypes: false, strictRequired: false, allowUnionTypes: true, inlineRefs: false, code: { optimize: false } });
ajv.addSchema(schema);

/** The validator of one definition: 'client', 'server', 'turn', ... */
export const validator = (name) => ajv.getSchema(`${schema.$id}#/$defs/${name}`);

/** Codes of errors that say that a message does not have the protocol's shape. Not bad_json: JSON.parse takes duplicate
 * keys, which the server refuses. */
const SHAPE = new Set(['bad_message', 'unknown_type']);

/** The beginning of a message; a hostile one may be nested too deeply to be written out. */
function shown(message) {
  try {
    return JSON.stringify(message)?.slice(0, 1000);
  } catch (error) {
    return String(error);
  }
}

/** @param {'client' | 'server'} side who sends it @returns null, or a sentence that says what is wrong */
export function complaint(side, message) {
  // By type: an error of oneOf would list what every other message lacks.
  const valid = typeof message?.type === 'string' ? validator(`${side}.${message.type}`) : undefined;
  if (!valid) return `${side} message of no known type: ${shown(message)}`;
  if (valid(message)) return null;
  const { instancePath, message: what, params } = valid.errors[0];
  return `${side} message '${message.type}'${instancePath}: ${what} ${JSON.stringify(params)} in ${shown(message)}`;
}

/** Throws where complaint() has one. */
export function check(side, message) {
  const wrong = complaint(side, message);
  if (wrong) throw new Error(`protocol.schema.json refuses a ${wrong}`);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The messages of one connection. `malformed`: its client sends malformed ones on purpose. */
export class Conversation {
  constructor(malformed = false) {
    this.malformed = malformed;
    this.asked = new Map(); // request_id to: the schema takes the message; null where two messages share the id
  }

  /** Notes what the client sends; text or an object. */
  sent(message) {
    const object = typeof message === 'string' ? parse(message) : JSON.parse(JSON.stringify(message));
    const wrong = complaint('client', object);
    if (wrong && !this.malformed) throw new Error(`protocol.schema.json refuses a ${wrong}`);
    const id = object?.request_id;
    if (typeof id === 'string') this.asked.set(id, this.asked.has(id) ? null : !wrong);
  }

  /** Checks a message of the server, and that server and schema agree about the message it answers. */
  received(message) {
    check('server', message);
    const taken = this.asked.get(message.request_id) ?? null;
    if (taken === null) return;
    this.asked.delete(message.request_id); // a client may use it again
    if (taken && SHAPE.has(message.code)) throw new Error(`protocol.schema.json takes what the server refuses: ${JSON.stringify(message)}`);
    if (!taken && message.type !== 'error') throw new Error(`protocol.schema.json refuses what the server takes: ${JSON.stringify(message)}`);
  }
}
