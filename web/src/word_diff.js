// @ts-check
// Which words of two texts differ. Pure: no DOM, no state.

const MOST = 2e6; // cells of the table; longer texts are compared at both ends only

/** @param {string} text */
const words = (text) => text.match(/\s+|[^\s]+/gu) ?? [];

/** How many elements two lists share at their start. @param {string[]} a @param {string[]} b */
function sharedStart(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

/** Marks of the longest common subsequence. @param {string[]} a @param {string[]} b @returns {[boolean[], boolean[]]} */
function common(a, b) {
  const inA = a.map(() => false);
  const inB = b.map(() => false);
  if (a.length * b.length > MOST) return [inA, inB];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  for (let i = 0, j = 0; i < a.length && j < b.length; )
    if (a[i] === b[j]) inA[i++] = inB[j++] = true;
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i++;
    else j++;
  return [inA, inB];
}

/**
 * Two texts in pieces that are shared, or of one side alone.
 * @param {string} one @param {string} other
 * @returns {Array<Array<{text: string, same: boolean}>>} the pieces of each
 */
export function wordDiff(one, other) {
  const a = words(one);
  const b = words(other);
  const start = sharedStart(a, b);
  const end = sharedStart(a.slice(start).reverse(), b.slice(start).reverse());
  const middle = common(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [a, b].map((list, side) => {
    /** @type {Array<{text: string, same: boolean}>} */
    const pieces = [];
    list.forEach((text, i) => {
      const shared = (/** @type {number} */ at) => at < start || at >= list.length - end || middle[side][at - start];
      const same = shared(i) && (!/^\s+$/u.test(text) || shared(i - 1) || shared(i + 1)); // a blank goes with its words
      const last = pieces.at(-1);
      if (last?.same === same) last.text += text;
      else pieces.push({ text, same });
    });
    return pieces;
  });
}
