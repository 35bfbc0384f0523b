// Runs before the first paint, so that the page does not flash in the wrong theme or size. prefs.js owns the keys.
try {
  const theme = JSON.parse(localStorage.getItem('parley.theme') || '"auto"');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
  const text = JSON.parse(localStorage.getItem('parley.text-size') || '""');
  if (text === 'small' || text === 'large') document.documentElement.dataset.text = text;
  if (JSON.parse(localStorage.getItem('parley.sidebar') || 'true') === false)
    document.documentElement.dataset.sidebar = 'closed';
} catch {
  // No storage, or an invalid value in it: use the defaults.
}
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
