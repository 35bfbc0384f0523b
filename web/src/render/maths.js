// @ts-check
// Maths in TeX. Markdown would take away backslashes and turn stars and underscores into emphasis. It becomes code first,
// and a formula when formulas.js has drawn it; what that cannot draw stays code.

const MOST = 4000; // characters of a formula: a mark that never closes costs no more to look at

const DOLLARS = `\\$\\$([^$]{1,${MOST}})\\$\\$`;
const BRACKETS = `\\\\\\[((?:(?!\\\\[[\\]])[^]){1,${MOST}})\\\\\\]`;
const PARENTHESES = `\\\\\\(((?:(?!\\\\[()])[^]){1,${MOST}})\\\\\\)`;
/** No price and no variable: no space inside the marks, no letter or digit behind them. */
const DOLLAR = `\\$(?![\\s$])([^$\\n\`]{0,${MOST}}[^\\s$\\\\\`])\\$(?!\\w)`;

/** Formulas with lines of their own. */
const LINES = ` {0,3}(?:${DOLLARS}|${BRACKETS})[ \\t]*(?:\\n+|$)`;
const BLOCK = new RegExp(`^${LINES}`);
const NEXT_BLOCK = new RegExp(`\\n(?=${LINES})`);
const INLINE = new RegExp(`^(?:${DOLLARS}|${BRACKETS}|${PARENTHESES}|${DOLLAR})`);

/** An amount of money and words behind it, up to the next dollar: "$5 (US$)". @param {string} raw */
const isPrice = (raw) => /^\$\d[\d.,]*\s/.test(raw) && !/[\\^_={}+<>]/.test(raw);

/** @param {RegExp} form @param {string} src @param {string} type */
function token(form, src, type) {
  const found = form.exec(src);
  return found && !isPrice(found[0]) ? { type, raw: found[0], text: (found.slice(1).find((text) => text !== undefined) ?? '').trim() } : undefined;
}

/** Extensions of the parser. @param {(text: string) => string} escape @returns {any[]} */
export const maths = (escape) => [
  {
    name: 'mathsBlock',
    level: 'block',
    /** Where a formula ends a paragraph. @param {string} src */
    start(src) {
      const blank = src.indexOf('\n\n');
      const paragraph = src.slice(0, blank < 0 ? MOST : Math.min(blank, MOST)); // all of the text would take too long
      const at = paragraph.includes('$$') || paragraph.includes('\\[') ? NEXT_BLOCK.exec(src.slice(0, paragraph.length + MOST)) : null;
      return at && at.index < paragraph.length ? at.index + 1 : undefined;
    },
    tokenizer: (/** @type {string} */ src) => token(BLOCK, src, 'mathsBlock'),
    renderer: (/** @type {any} */ { text }) => `<pre><code class="language-tex maths">${escape(text)}</code></pre>`,
  },
  {
    name: 'maths',
    level: 'inline',
    start: (/** @type {string} */ src) => src.match(/\$\$?[^\s$]|\\[([]/)?.index,
    tokenizer: (/** @type {string} */ src) => token(INLINE, src, 'maths'),
    renderer: (/** @type {any} */ { text, raw }) => `<code class="${/^(?:\$\$|\\\[)/.test(raw) ? 'maths language-tex' : 'maths'}">${escape(text)}</code>`,
  },
];
