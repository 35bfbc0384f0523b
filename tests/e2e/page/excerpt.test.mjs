// Excerpts of a search show text, not Markdown: a table of cases, without a browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { plainExcerpt } from '../../../web/src/excerpt.js';

// What the server sends, with the words that were found in «», and what is shown.
const CASES = [
  ['My name is «Zora», and you?', 'My name is «Zora», and you?'],
  ['…the **«bold» text** and *«slanted»*, `code`, ~~gone~~', '…the «bold» text and «slanted», code, gone'],
  ['cut «here»** and on* and `', 'cut «here» and on and '],
  ['# «Plan»\n\n- one\n* two\n1. three\n> quoted\n> - [x] done', '«Plan»\n\none\ntwo\n1. three\nquoted\ndone'],
  ['See [the «manual»](https://a.example/b_c) and ![a cat](cat.png) or rest](https://a.exam', 'See the «manual» and a cat or rest'],
  ['an address [x](https://«example».com) that was found', 'an address [x](https://«example».com) that was found'],
  ['| a | «b» |\n|:--|--:|\n| 1 | 2 |', ' a «b» \n\n 1 2 '],
  ['text\n```python\nx = a || «b»\n```\n', 'text\n\nx = a || «b»\n\n'],
  ['a word[^1] and\n[^1]: its «note»', 'a word and\n its «note»'],
  ['H<sub>2</sub>O<br>«line»', 'H 2 O «line»'],
  ['2 * 3 = 2*3, __init__, snake_case, C#, a_b, «x» - y, [brackets]', '2 * 3 = 2*3, __init__, snake_case, C#, a_b, «x» - y, [brackets]'],
];

test('an excerpt is without the marks of Markdown, and its found words stay found', () => {
  for (const [sent, shown] of CASES) {
    const parts = plainExcerpt(sent.split(/[«»]/));
    assert.equal(parts.map((part, i) => (i % 2 ? `«${part}»` : part)).join(''), shown);
  }
});

test('a long run of marks costs no time', () => {
  for (const mark of ['*', '[', '|', '`', '- ', '[a](', '> ', '|-', '** '])
    for (const text of [mark.repeat(3000), ` ${mark.repeat(3000)}x`]) {
      const before = process.cpuUsage();
      plainExcerpt([text]);
      const { user, system } = process.cpuUsage(before); // the clock goes on while others have the processor
      assert.ok(user + system < 2e6, mark);
    }
});
