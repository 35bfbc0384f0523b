// @ts-check
// Marks the words of a search in the turn to which its result leads. The marks are no elements, so they do not touch
// what is drawn (CSS custom highlights; a browser without them marks the turn alone).
import { state, subscribe } from '../state.js';

const MOST = 200; // marks

export function clearFound() {
  if ('highlights' in CSS) CSS.highlights.delete('found');
}

/** @param {Element} turn */
export function markFound(turn) {
  clearFound();
  const words = state.list.query.split(/\s+/u).filter((word) => /[\p{L}\p{N}]/u.test(word));
  if (!words.length || !('highlights' in CSS)) return;
  const found = new RegExp(words.map((word) => word.replace(/[^\p{L}\p{N}]/gu, '\\$&')).join('|'), 'gi');
  /** @type {Range[]} */
  const ranges = [];
  const texts = document.createTreeWalker(turn, NodeFilter.SHOW_TEXT);
  while (texts.nextNode() && ranges.length < MOST) {
    const node = texts.currentNode;
    if (!node.parentElement?.closest('.bubble, .prose')) continue;
    for (const { index, 0: word } of (node.textContent ?? '').matchAll(found)) {
      const range = new Range();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set('found', new Highlight(...ranges));
}
subscribe('selection', clearFound);
subscribe('list', () => state.list.query || clearFound());
