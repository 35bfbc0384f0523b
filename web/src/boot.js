// Runs before the first paint, so that the page does not flash in the wrong theme, size or language. prefs.js owns the keys.
// The language is the user's choice, or the first of the browser's that the page has; text.js loads its words.
let language = 'auto';
try {
  const theme = JSON.parse(localStorage.getItem('parley.theme') || '"auto"');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
  const text = JSON.parse(localStorage.getItem('parley.text-size') || '""');
  if (text === 'small' || text === 'large') document.documentElement.dataset.text = text;
  document.documentElement.toggleAttribute('data-wide', localStorage.getItem('parley.wide') === 'true');
  if (JSON.parse(localStorage.getItem('parley.sidebar') || 'true') === false)
    document.documentElement.dataset.sidebar = 'closed';
  language = JSON.parse(localStorage.getItem('parley.language') || '"auto"');
} catch {
  // No storage, or an invalid value in it: use the defaults.
}
const has = (tag) => ['en', 'de'].includes(tag);
if (!has(language)) language = navigator.languages.map((tag) => tag.slice(0, 2)).find(has) || 'en';
document.documentElement.lang = language;
// The page's script loads and starts behind the first frame, which shows the frame of the page as index.html has it:
// loading and compiling it would hold up that frame. A page that is not drawn (a tab in the background) gets no frames,
// so a timer starts it too; the second import does nothing. The sanitiser and the parser of answers run first, each in a
// task of its own: the whole script in one would hold up a frame.
addEventListener('DOMContentLoaded', () => {
  const load = ([name, ...rest]) => name && import(`./${name}.js`).finally(() => setTimeout(load, 0, rest));
  const start = () => {
    for (const link of document.querySelectorAll('link[rel=later]')) link.rel = 'modulepreload';
    load(['sanitize', 'parser', 'render', 'app']);
  };
  requestAnimationFrame(() => setTimeout(start, 0));
  setTimeout(start, 250);
});
