// OpenAI's own client of a server, and what tests read from its answers.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { patience } from './harness.mjs';

/** It sends nothing again by itself, so that a test sees each refusal. */
export const clientOf = (server, apiKey = 'none', more = {}) =>
  new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0, timeout: patience, ...more });
export const user = (content) => ({ role: 'user', content });
/** The session and the turn in a chat completion's id. */
export const sessionOf = (id) => id.slice('chatcmpl-'.length, id.lastIndexOf('-'));
export const turnOf = (id) => Number(id.slice(id.lastIndexOf('-') + 1));
/** Tokens of a chat completion's prompt that were in the cache. */
export const cached = (answer) => answer.usage.prompt_tokens_details.cached_tokens;
/** The call is refused with this status, code and parameter. */
export const refused = (call, status, code, param = null, message = /./) => assert.rejects(call, (e) => {
  assert.deepEqual([e.status, e.code, e.param], [status, code, param], e.message);
  assert.match(e.message, message);
  return true;
});
