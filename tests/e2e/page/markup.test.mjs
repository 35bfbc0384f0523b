// Markdown to markup: a table of cases, without a browser. What the browser makes of the markup: render.test.mjs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blocksOf, isClosed, markupOf } from '../../../web/src/render/markup.js';

const markup = (text) => markupOf(blocksOf(text)).replace(/\n/g, '');

/** [Markdown, markup] */
const CASES = [
  ['# One\n\nTwo\n===', '<h3>One</h3><h3>Two</h3>'], // levels 1 and 2 are the page's own
  ['###### Six', '<h6>Six</h6>'],
  ['**bold** *slanted* ~~gone~~ `code`', '<p><strong>bold</strong> <em>slanted</em> <del>gone</del> <code>code</code></p>'],
  ['a_b_c 2*3*4 \\*not\\*', '<p>a_b_c 2<em>3</em>4 *not*</p>'],
  ['one\ntwo', '<p>one<br>two</p>'],
  ['- a\n- b\n  1. c', '<ul><li>a</li><li>b<ol><li>c</li></ol></li></ul>'],
  ['3. c\n4. d', '<ol start="3"><li>c</li><li>d</li></ol>'],
  ['- [x] done\n- [ ] open', '<ul><li class="task">☑ done</li><li class="task">☐ open</li></ul>'],
  ['> a\n> > b', '<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>'],
  ['| a | b |\n|:-|-:|\n| 1 | 2 |', '<table><thead><tr><th align="left">a</th><th align="right">b</th></tr></thead><tbody><tr><td align="left">1</td><td align="right">2</td></tr></tbody></table>'],
  ['```python {.x}\na < b\n```', '<pre><code class="language-python">a &#60; b</code></pre>'],
  ['```"><b>\nx\n```', '<pre><code class="language-&#34;&#62;&#60;b&#62;">x</code></pre>'],
  ['    indented', '<pre><code class="language-">indented</code></pre>'],
  ['---', '<hr>'],
  // links and pictures
  ['[a](https://e.example "t")', '<p><a href="https://e.example" title="t">a</a></p>'],
  ['https://e.example.', '<p><a href="https://e.example">https://e.example</a>.</p>'],
  ['![cat](https://e.example/c.png)', '<p><a href="https://e.example/c.png">cat</a></p>'],
  ['[a]\n\n[a]: https://e.example', '<p><a href="https://e.example">a</a></p>'],
  // markup of the model
  ['a<br>b <kbd>Ctrl</kbd> H<sub>2</sub>O', '<p>a<br>b <kbd>Ctrl</kbd> H<sub>2</sub>O</p>'],
  ['<b>x</b> <script>y</script> <sub onclick="z">', '<p>&#60;b&#62;x&#60;/b&#62; &#60;script&#62;y&#60;/script&#62; &#60;sub onclick=&#34;z&#34;&#62;</p>'],
  ['<img src=x onerror=y>', '&#60;img src=x onerror=y&#62;'],
  ['<details open><summary>*S*</summary>\n\n- a\n</details>', '<details open><summary><em>S</em></summary><ul><li>a</li></ul></details>'],
  // formulas, prices and variables
  ['$a_1*b$ and \\(c\\)', '<p><code class="maths">a_1*b</code> and <code class="maths">c</code></p>'],
  ['$$\nx < y\n$$', '<pre><code class="language-tex maths">x &#60; y</code></pre>'],
  ['\\[z\\]', '<pre><code class="language-tex maths">z</code></pre>'],
  ['$5 and $6, $HOME/$PATH', '<p>$5 and $6, $HOME/$PATH</p>'],
  // footnotes
  ['a[^1] [^no]\n\n[^1]: *n* "q"', '<p>a<sup title="n &#34;q&#34;">1</sup> [^no]</p><ul class="notes"><li><sup>1</sup> <p><em>n</em> &quot;q&quot;</p></li></ul>'],
  ['[^a-z] `[^1]`\n\n[^1]: n', '<p>[^a-z] <code>[^1]</code></p><ul class="notes"><li><sup>1</sup> <p>n</p></li></ul>'],
  ['[^1]: word', '<ul class="notes"><li><sup>1</sup> <p>word</p></li></ul>'],
];

for (const [text, wanted] of CASES) test(JSON.stringify(text), () => assert.equal(markup(text), wanted));

test('a block of code is closed by its own fence', () => {
  const closed = (text) => isClosed(blocksOf(text)[0]);
  assert.deepEqual(['```\na\n```', '~~~~\na\n~~~~', '    a', 'a'].map(closed), [true, true, true, true]);
  assert.deepEqual(['```', '```\na', '````\na\n```', '```\na\n~~~'].map(closed), [false, false, false, false]);
});

test('a note that all of its marks have as a hint is cut', () => {
  assert.ok(markup(`${'[^1] '.repeat(1000)}\n\n[^1]: ${'n'.repeat(10000)}`).length < 400000);
});

test('a block that costs too much leaves the others as they are', () => {
  const drawn = markup(`**before**\n\n${'*a_'.repeat(9000)}\n\nAfter, **bold** and _slanted_.\n\n${'*a_'.repeat(9000)}\n\n- **last**`);
  for (const part of ['<strong>before</strong>', '<strong>bold</strong>', '<em>slanted</em>', '<strong>last</strong>']) assert.ok(drawn.includes(part), part);
});

test('what lies too deep inside each other stays text, and costs no stack', () => {
  for (const [mark, tag] of [['> ', '<blockquote>'], ['- ', '<ul>'], ['<details>\n', '<details>'], ['[^1]: ', '<ul class="notes">']]) {
    const found = markup(`${mark.repeat(3000)}x`).split(tag).length - 1;
    assert.ok(found > 0 && found <= 24, `${found} of ${tag}`);
  }
});
