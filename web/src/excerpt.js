// @ts-check
// Where a search has found its words: a piece of a message without the marks of Markdown. It may begin and end anywhere,
// so a mark need not have its counterpart.

const FOUND = '\u0001'; // stands around each word that was found; no mark contains it

/** Marks, and what stands in their place. @type {Array<[RegExp, string]>} */
const MARKS = [
  [/^\s*(?:`{3,}|~{3,})[\w+#.-]*[ \t]*$/gm, ''],
  [/^[ \t]*\|?(?:[ \t]*:?-{2,}:?[ \t]*\|)+[ \t]*(?::?-+:?)?[ \t]*$/gm, ''], // below a table's head
  [/^[ \t]*(?:[-*_][ \t]*){3,}$/gm, ''],
  [/^[ \t]*(?:(?:#{1,6}|>+|[-*+])[ \t]+)+(?:\[[ xX]\][ \t]+)?/gm, ''],
  [/\[\^[^\]\s\u0001]{1,100}\]:?/g, ''],
  [/!?\[([^\][\n]*)\]\([^)\s\u0001]*(?:\)|(?=\s|$))/g, '$1'],
  [/\]\([^)\s\u0001]*(?:\)|(?=\s|$))/g, ''], // of a link whose beginning is cut off
  [/<\/?(?:br|sub|sup|kbd|details|summary)[ /]*>/gi, ' '],
  [/`+|\*\*|~~/g, ''],
  [/(?<![\p{L}\p{N}\s])\*(?=\S)|(?<=\S)\*(?![\p{L}\p{N}\s])|(?<!\S)\*(?=\S)|(?<=\S)\*(?!\S)/gu, ''],
  [/[ \t]*(?<!\|)\|(?!\|)[ \t]*/g, ' '],
];

/** @param {string[]} parts every second one is a word that was found @returns {string[]} likewise */
export const plainExcerpt = (parts) => MARKS.reduce((text, [mark, instead]) => text.replace(mark, instead), parts.join(FOUND)).split(FOUND);
