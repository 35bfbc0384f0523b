// @ts-check
// Two texts side by side.
import { h } from '../dom.js';
import { wordDiff } from '../word_diff.js';

/**
 * @param {string} one @param {string} other @param {[string, string]} names
 * @param {boolean} [marked] whether words that differ are marked: not while the other one still grows
 */
export function textsSideBySide(one, other, names, marked = true) {
  const sides = marked ? wordDiff(one, other) : [one, other].map((text) => [{ text, same: true }]);
  /** @param {0 | 1} i @param {'del' | 'ins'} tag */
  const side = (i, tag) =>
    h(
      'section',
      null,
      h('h4', null, names[i]),
      h('div', { class: 'compared', dir: 'auto' }, ...sides[i].map(({ text, same }) => (same ? text : h(tag, null, text)))),
    );
  return h('div', { class: 'both' }, side(0, 'del'), side(1, 'ins'));
}
