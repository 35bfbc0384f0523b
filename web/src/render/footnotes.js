// @ts-check
// Footnotes: "word[^1]" and, where the note stands, "[^1]: the note". A mark whose note is not there (yet) stays text:
// "[^a-z]" is no footnote. Notes stay where the answer has them, since it may still grow.

import { plainExcerpt } from '../excerpt.js';

const LABEL = '\\[\\^([^\\]\\s]{1,100})\\]';
const NOTE = new RegExp(`^ {0,3}${LABEL}:[ \\t]*`);
const NEXT_NOTE = new RegExp(`\\n(?= {0,3}${LABEL}:)`);
const MARK = new RegExp(`^${LABEL}`);
const HINT = 300; // characters of a note that its marks have as their hint: many marks may have the same
const MOST = 4000; // characters in which a note may end a paragraph: all of the text would take too long

/** The end of a note: before the next one, or an empty line without an indented one behind it. @param {string} src */
function endOf(src) {
  const end = /\n(?:[ \t]*\n)+(?! {4}|\t)/.exec(src);
  const next = NEXT_NOTE.exec(src);
  return Math.min(end ? end.index + end[0].length : src.length, next ? next.index + 1 : src.length);
}

/**
 * Extensions of the parser. A note is among the lexer's links, as "^1", so that marks find it, and a growing answer is
 * drawn again at its end (stream.js).
 * @param {(text: string) => string} escape
 * @param {(act: () => any) => any} nest runs what parses the inside, unless it lies too deep
 * @returns {any[]}
 */
export const footnotes = (escape, nest) => [
  {
    name: 'notes',
    level: 'block',
    start: (/** @type {string} */ src) => {
      const at = NEXT_NOTE.exec(src.slice(0, MOST));
      return at ? at.index + 1 : undefined;
    },
    /** @this {any} @param {string} src */
    tokenizer(src) {
      if (!NOTE.test(src)) return undefined;
      return nest(() => {
        const token = { type: 'notes', raw: '', notes: /** @type {any[]} */ ([]) };
        for (let head; (head = NOTE.exec(src)); ) {
          const raw = src.slice(0, endOf(src));
          const note = { label: head[1], tokens: /** @type {any[]} */ ([]) };
          const text = raw.slice(head[0].length).replace(/\n(?: {4}|\t)/g, '\n').trim();
          this.lexer.tokens.links[`^${head[1].toLowerCase()}`] ??= { href: '#', title: plainExcerpt([text.slice(0, HINT)])[0].trim() };
          this.lexer.blockTokens(text, note.tokens);
          token.notes.push(note);
          token.raw += raw;
          src = src.slice(raw.length);
        }
        return token;
      });
    },
    /** @this {any} @param {any} token */
    renderer({ notes }) {
      const items = notes.map((/** @type {any} */ { label, tokens }) => `<li><sup>${escape(label)}</sup> ${this.parser.parse(tokens)}</li>`);
      return `<ul class="notes">${items.join('')}</ul>`;
    },
  },
  {
    name: 'noteMark',
    level: 'inline',
    start: (/** @type {string} */ src) => src.indexOf('[^'),
    /** @this {any} @param {string} src */
    tokenizer(src) {
      const [raw, label] = MARK.exec(src) ?? [];
      const note = label && this.lexer.tokens.links[`^${label.toLowerCase()}`];
      return note ? { type: 'noteMark', raw, label, note: note.title } : undefined;
    },
    renderer: (/** @type {any} */ { label, note }) => `<sup title="${escape(note)}">${escape(label)}</sup>`,
  },
];
