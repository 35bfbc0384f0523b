// @ts-check
// Files that go into a message: their text stands in it as a fenced block below the file's name, so the session keeps
// them, and an export contains them, like all other text.
import { asText } from './format.js';
import { part } from './late.js';
import { t } from './text.js';

/** @typedef {{name: string, text: string, bytes: number, tokens: number}} Attachment tokens: an estimate */

const BYTES = 32 << 20; // of a file that is read
const TEXT_TYPES = /^text\/|[/+](json|xml|yaml|x-yaml|toml|javascript|x-sh|sql)$/;
/** Language names where the file's ending is not one. @type {Record<string, string>} */
const LANGUAGES = { h: 'c', hpp: 'cpp', cc: 'cpp', mjs: 'js', cjs: 'js', htm: 'html', yml: 'yaml', txt: '', log: '', md: 'markdown', pdf: '' };

/** About how many tokens a text has: the page has no tokenizer. @param {string} text */
export function estimateTokens(text) {
  let wide = 0;
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 0x2e7f) wide++; // about one token each
  return Math.ceil((text.length - wide) / 4 + wide);
}

/** @param {Uint8Array<ArrayBuffer>} bytes @returns {string | null} null: these are not text */
function decode(bytes) {
  const [first, second] = bytes;
  const wide = first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : '';
  try {
    const text = new TextDecoder(wide || 'utf-8', { fatal: true }).decode(bytes);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

/** @param {string} name @param {string} text @returns {Attachment} */
export const attachment = (name, text) => ({ name, text, bytes: new TextEncoder().encode(text).length, tokens: estimateTokens(text) });

/** The text of a file that is no session. @param {File} file @returns {Promise<Attachment>} rejects with a sentence for the user */
export async function readFile(file) {
  const name = asText(file.name || 'pasted').replace(/\s+/g, ' ');
  if (file.type.startsWith('image/')) throw new Error(t('“{0}” is an image, and this model cannot see images.', name));
  if (file.size > BYTES) throw new Error(t('“{0}” is too large: {1} MiB at most.', name, BYTES >> 20));
  const bytes = new Uint8Array(await file.arrayBuffer());
  const isPdf = String.fromCharCode(...bytes.slice(0, 5)) === '%PDF-';
  const text = isPdf ? await (await part('pdf')).textOfPdf(bytes, t) : decode(bytes);
  if (text === null) throw new Error(t('“{0}” is not text. Text, code and PDF files can be added{1}.', name, TEXT_TYPES.test(file.type) ? t(', in UTF-8') : ''));
  if (!text.trim()) throw new Error(isPdf ? t('“{0}” contains no text: its pages may be images.', name) : t('“{0}” is empty.', name));
  return attachment(name, asText(text).replace(/\r\n?/g, '\n').trimEnd());
}

/** A message with its files before its words. @param {Array<{name: string, text: string}>} files @param {string} words */
export function withFiles(files, words) {
  const blocks = files.map(({ name, text }) => {
    const longest = Math.max(2, ...[...text.matchAll(/`{3,}/g)].map(([run]) => run.length));
    const fence = '`'.repeat(longest + 1);
    const ending = /\.([A-Za-z0-9]{1,12})$/.exec(name)?.[1].toLowerCase() ?? '';
    return `File: ${name}\n${fence}${LANGUAGES[ending] ?? ending}\n${text}\n${fence}`;
  });
  return [...blocks, words].filter(Boolean).join('\n\n');
}

/** The files that a message begins with, and its words. @param {string} content @returns {{files: Attachment[], words: string}} */
export function filesOf(content) {
  const files = [];
  let words = content;
  for (let found; (found = /^File: ([^\n]+)\n(`{3,})[\w+#.-]*\n/.exec(words)); ) {
    const end = `\n${found[2]}`;
    const from = found[0].length;
    let at = words.indexOf(end, from - 1);
    while (at >= 0 && ![undefined, '\n'].includes(words[at + end.length])) at = words.indexOf(end, at + 1);
    if (at < 0) break;
    files.push(attachment(found[1], words.slice(from, at)));
    words = words.slice(at + end.length).replace(/^\n{1,2}/, '');
  }
  return { files, words };
}
