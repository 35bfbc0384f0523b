// Runs before the first paint, so that a chosen theme never flashes the other one. See prefs.js, which owns the key.
try {
  const theme = JSON.parse(localStorage.getItem('parley.theme') || '"auto"');
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
  if (JSON.parse(localStorage.getItem('parley.sidebar') || 'true') === false)
    document.documentElement.dataset.sidebar = 'closed';
} catch {
  // No storage, or somebody else's value in it: the defaults hold.
}
