// Runs before the first paint, so that the page does not flash in the wrong theme. prefs.js owns the key.
try {
  const theme = JSON.parse(localStorage.getItem('parley.theme') || '"auto"');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
  if (JSON.parse(localStorage.getItem('parley.sidebar') || 'true') === false)
    document.documentElement.dataset.sidebar = 'closed';
} catch {
  // No storage, or an invalid value in it: use the defaults.
}
