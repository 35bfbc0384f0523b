// @ts-check
// A conversation under another model or system prompt: a new session, into which its messages and answers are written as
// text. The session of before stays as it is.
import { fetchWhole, newId, request } from './actions.js';
import { proseOf } from './render/answer_parts.js';
import { state } from './state.js';
import { t } from './text.js';
import { exchangesOf, joined } from './turns.js';

export const TITLE_BYTES = 190; // limits.title_bytes is 200

/** @typedef {{content: string, text: string, at?: number}} Exchange at: its time in ms, where it has one of its own */

/** The messages and answers of a session's path, without the thinking. @param {any} whole session.state @returns {Exchange[]} */
function exchangesIn({ turns }) {
  return exchangesOf(turns)
    .map(joined)
    .filter((turn) => turn.state === 'done')
    .map((turn) => {
      const content = turn.input.content ?? turn.input.text;
      if (!content) throw new Error(t('This chat has messages of bare token ids. They mean nothing to another model.'));
      return { content, text: proseOf(turn).trim() || '…' };
    });
}

/**
 * Makes a session of exchanges. If that fails, nothing of it stays.
 * @param {Record<string, any>} values members of session.open
 * @param {Exchange[]} exchanges
 * @param {(done: number, of: number) => void} [progress]
 * @returns {Promise<string>} its id
 */
export async function writeSession(values, exchanges, progress) {
  const id = newId();
  await request({ type: 'session.open', session: id, ...values }, { fits: (frame) => frame.type === 'session.opened' && frame.session.id === id });
  try {
    for (const [i, { content, text, at }] of exchanges.entries()) {
      progress?.(i, exchanges.length);
      await request({ type: 'turn.write', session: id, input: { content }, text, ...(at && { created_ms: at }) });
    }
    await request({ type: 'session.detach', session: id });
  } catch (error) {
    request({ type: 'session.close', session: id, delete: true }).catch(() => {});
    throw error;
  }
  return id;
}

/** The start of a text in so many bytes of UTF-8, in whole characters. @param {string} text @param {number} most */
export function cut(text, most) {
  let part = text;
  while (new TextEncoder().encode(part).length > most) part = [...part].slice(0, -Math.max(1, ([...part].length / 8) | 0)).join('');
  return part;
}

/** "Marmots" -> "Marmots (2)" -> "Marmots (3)": two chats of one title look the same in the list. @param {string} title */
export function nextTitle(title) {
  const [, stem, number = '1'] = /** @type {string[]} */ (/^(.*?)(?: \((\d{1,6})\))?$/su.exec(title));
  const titles = new Set([...state.sessions.values()].map((session) => session.title));
  let next = Number(number) + 1;
  while (titles.has(`${stem} (${next})`)) next++;
  return `${cut(stem, TITLE_BYTES - 10)} (${next})`;
}

/**
 * Goes on with a session under another model or system prompt.
 * @param {import('./state.js').Session} session
 * @param {{model: string, system: string}} change
 * @param {(done: number, of: number) => void} progress
 * @returns {Promise<string>} the new session's id
 */
export async function rewrite(session, { model, system }, progress) {
  const whole = await fetchWhole(session.id);
  const { memory_len, session_len, sink_len, sampling, title } = session;
  // Lengths are of the model: another one has its own.
  const lengths = model === session.model ? { memory_len, session_len, sink_len } : {};
  const values = { model, ...(system ? { system } : {}), sampling, ...lengths, ...(title && { title: nextTitle(title) }) };
  return writeSession(values, exchangesIn(whole), progress);
}
