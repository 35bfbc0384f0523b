// @ts-check
// <details> with a <summary>, which models write for what a reader may skip. What is inside is Markdown. Without its end
// it reaches to the end of the text: the answer is still being written.
import { t } from '../text.js';

const OPEN = /^ {0,3}<details( open)?>\s*(?:<summary>([^]{0,1000}?)<\/summary>)?/i;
const MARK = /<(\/?)details(?: open)?>/gi;

/** Where the end of what begins here is, and how long that mark is. @param {string} src @param {number} from */
function endOf(src, from) {
  let inside = 1;
  MARK.lastIndex = from;
  for (let mark = MARK.exec(src); mark; mark = MARK.exec(src)) {
    inside += mark[1] ? -1 : 1;
    if (!inside) return [mark.index, mark[0].length];
  }
  return [src.length, 0];
}

/**
 * An extension of the parser.
 * @param {(act: () => any) => any} nest runs what parses the inside, unless it lies too deep
 * @returns {any}
 */
export const details = (nest) => ({
  name: 'details',
  level: 'block',
  /** @this {any} @param {string} src */
  tokenizer(src) {
    const head = OPEN.exec(src);
    if (!head) return undefined;
    return nest(() => {
      const [end, mark] = endOf(src, head[0].length);
      const blanks = /^[ \t]*\n*/.exec(src.slice(end + mark))?.[0].length ?? 0;
      const token = { type: 'details', raw: src.slice(0, end + mark + blanks), open: !!head[1], summary: /** @type {any[]} */ ([]), tokens: /** @type {any[]} */ ([]) };
      this.lexer.inline((head[2] ?? t('Details')).trim(), token.summary);
      this.lexer.blockTokens(src.slice(head[0].length, end).replace(/^\n+/, ''), token.tokens);
      return token;
    });
  },
  childTokens: ['summary', 'tokens'],
  /** @this {any} @param {any} token */
  renderer({ open, summary, tokens }) {
    return `<details${open ? ' open' : ''}><summary>${this.parser.parseInline(summary)}</summary>${this.parser.parse(tokens)}</details>`;
  },
});
