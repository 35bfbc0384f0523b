// @ts-check
// Conversations in the exports of other chat pages: ChatGPT's conversations.json, open-webui's and llama.cpp's. Of a tree
// of versions, the path that was shown last is taken.
import { t } from './text.js';

/** @typedef {{role: string, text: string, at?: number}} Message at: in ms */
/** @typedef {(files: Array<{name: string, text: string}>, words: string) => string} WithFiles attachments.js has it */
/** @typedef {{title: string, at: number, system: string, exchanges: import('./rewriting.js').Exchange[]}} Conversation
 *    at: when it was last changed, in any unit that orders one file */

const NO_ANSWER = '(no answer)';
const NO_QUESTION = '(no message)';

/** @param {any} value @returns {string} */
const asString = (value) => (typeof value === 'string' ? value : '');

/** A time in ms; these pages write seconds or ms. @param {any} time @returns {number | undefined} undefined: none */
function inMs(time) {
  const ms = typeof time === 'number' && time > 0 ? Math.round(time < 1e11 ? time * 1000 : time) : undefined;
  return Number.isSafeInteger(ms) ? ms : undefined;
}

/**
 * The nodes from the root to a leaf.
 * @param {(id: string) => any} nodeOf @param {any} leaf @param {(node: any) => any} parentOf
 */
function pathTo(nodeOf, leaf, parentOf) {
  const path = [];
  const seen = new Set();
  for (let id = leaf; typeof id === 'string' && !seen.has(id) && nodeOf(id); id = parentOf(nodeOf(id))) {
    seen.add(id);
    path.unshift(nodeOf(id));
  }
  return path;
}

/** @template T @param {Record<string, T> | undefined} record @param {string} id */
const member = (record, id) => (record && Object.hasOwn(record, id) ? record[id] : undefined);

/** A content that may be in parts. @param {any} content @returns {string} */
function textOf(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((part) => asString(part) || asString(part?.text)).filter(Boolean).join('\n\n');
}

/** @param {any} one @returns {Message[]} */
function ofChatGpt({ mapping, current_node: leaf }) {
  const ids = Object.keys(mapping);
  const last = member(mapping, leaf) ? leaf : ids.at(-1);
  return pathTo((id) => member(mapping, id), last, (node) => node.parent)
    .map(({ message }) => message)
    .filter((message) => message?.author && (message.recipient ?? 'all') === 'all' && !message.metadata?.is_visually_hidden_from_conversation)
    .filter(({ content }) => ['text', 'multimodal_text'].includes(content?.content_type))
    .map(({ author, content, create_time: at }) => ({ role: author.role, text: textOf(content.parts), at: inMs(at) }));
}

/** @param {any} chat @returns {Message[]} */
function ofOpenWebui(chat) {
  const { messages, currentId } = chat.history ?? {};
  const path = messages && member(messages, currentId) ? pathTo((id) => member(messages, id), currentId, (node) => node.parentId) : (chat.messages ?? []);
  const system = asString(chat.system) || asString(chat.params?.system);
  const said = path.map((/** @type {any} */ { role, content, timestamp }) => ({
    role,
    at: inMs(timestamp),
    text: textOf(content).replace(/<details type="(?:reasoning|code_interpreter|tool_calls)"[^]*?<\/details>\s*/g, ''),
  }));
  return system ? [{ role: 'system', text: system }, ...said] : said;
}

/** @param {any} one @param {WithFiles} withFiles @returns {Message[]} */
function ofLlamaCpp({ conv, messages }, withFiles) {
  const byId = new Map(messages.map((/** @type {any} */ message) => [message?.id, message]));
  const last = byId.has(conv.currNode) ? conv.currNode : messages.at(-1)?.id;
  return pathTo((id) => byId.get(id), last, (message) => message.parent)
    .filter(({ type }) => type !== 'root')
    .map(({ role, content, extra, timestamp }) => {
      const files = (Array.isArray(extra) ? extra : []).filter((file) => typeof file?.content === 'string');
      return { role, at: inMs(timestamp), text: withFiles(files.map((file) => ({ name: asString(file.name) || 'file', text: file.content })), asString(content)) };
    });
}

/**
 * Messages in pairs, each with the time of its last message; of several of one side in a row, one is made.
 * @param {Message[]} messages
 */
function paired(messages) {
  /** @type {import('./rewriting.js').Exchange[]} */
  const exchanges = [];
  const system = [];
  let side = '';
  for (const { role, text: said, at } of messages) {
    const text = said.trim();
    if (!text) continue;
    const last = exchanges[exchanges.length - 1];
    if (role === 'system') {
      if (!last) system.push(text);
    } else if (role === 'user') {
      if (side === 'user') last.content += `\n\n${text}`;
      else exchanges.push({ content: text, text: '' });
      side = role;
    } else if (role === 'assistant') {
      if (!last) exchanges.push({ content: NO_QUESTION, text });
      else last.text += last.text ? `\n\n${text}` : text;
      side = role;
    } else continue;
    if (at && exchanges.length) exchanges[exchanges.length - 1].at = at;
  }
  for (const exchange of exchanges) exchange.text ||= NO_ANSWER;
  return { exchanges, system: system.join('\n\n') };
}

/** @param {any} one @param {WithFiles} withFiles @returns {{messages: Message[], title: any, at: any} | null} null: of none of these pages */
function recognised(one, withFiles) {
  if (one?.mapping && typeof one.mapping === 'object') return { messages: ofChatGpt(one), title: one.title, at: one.update_time ?? one.create_time };
  if (one?.chat && typeof one.chat === 'object') return { messages: ofOpenWebui(one.chat), title: one.title ?? one.chat.title, at: one.updated_at ?? one.chat.timestamp };
  if (one?.conv && Array.isArray(one.messages)) return { messages: ofLlamaCpp(one, withFiles), title: one.conv.name, at: one.conv.lastModified };
  return null;
}

/** What the text of a file holds: JSON, or JSON in each line. @param {string} text @returns {any} */
function read(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    const lines = text.split('\n').filter((line) => line.trim());
    if (lines.length < 2 || !lines.every((line) => line.startsWith('{'))) throw error;
    return lines.map((line) => JSON.parse(line));
  }
}

/**
 * The conversations in the text of a file, oldest first; null: it is not of these pages. One that cannot be read is an Error
 * with its title.
 * @param {string} text @param {WithFiles} withFiles
 * @returns {Array<Conversation | Error> | null}
 */
export function conversationsIn(text, withFiles) {
  let all;
  try {
    all = read(text);
  } catch {
    return null;
  }
  const list = Array.isArray(all) ? all : [all];
  if (!list.length || !list.some((one) => one?.mapping || one?.chat || one?.conv)) return null;
  const found = list.map((one, i) => {
    const title = (asString(one?.title) || asString(one?.conv?.name) || asString(one?.chat?.title) || t('Conversation {0}', i + 1)).trim();
    try {
      const conversation = recognised(one, withFiles);
      if (!conversation) throw new Error(t('not a conversation'));
      const { exchanges, system } = paired(conversation.messages);
      if (!exchanges.length) throw new Error(t('no messages of text'));
      const changed = inMs(conversation.at);
      for (const exchange of exchanges) exchange.at ??= changed; // else the import would be its date
      return { title, at: Number(conversation.at) || 0, system, exchanges };
    } catch (error) {
      return new Error(`“${title}”: ${error instanceof Error ? error.message : error}`);
    }
  });
  return found.sort((a, b) => ('at' in a ? a.at : 0) - ('at' in b ? b.at : 0));
}
