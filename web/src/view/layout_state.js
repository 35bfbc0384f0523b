// @ts-check
// Whether the sidebar is open: beside the conversation if there is room, else in a drawer.
import { setSidebarOpen, sidebarOpen } from '../prefs.js';

const narrow = matchMedia('(max-width: 800px)');
let drawer = false;
/** @type {HTMLElement | null} */
let opener = null;

/** @returns {boolean} */
export const sessionsShown = () => (narrow.matches ? drawer : sidebarOpen());
export const isNarrow = () => narrow.matches;

export function applyLayout() {
  const root = document.documentElement;
  root.dataset.sidebar = sidebarOpen() ? 'open' : 'closed';
  root.dataset.drawer = narrow.matches && drawer ? 'open' : 'closed';
  const shown = sessionsShown();
  const sidebar = document.getElementById('sidebar');
  if (sidebar) sidebar.inert = !shown;
  const main = document.querySelector('main');
  if (main) main.inert = narrow.matches && drawer;
  for (const button of document.querySelectorAll('[data-toggle=sidebar]')) {
    button.setAttribute('aria-expanded', String(shown));
    button.setAttribute('aria-controls', 'sidebar');
  }
}

/** @param {boolean} [open] */
export function toggleSessions(open = !sessionsShown()) {
  if (narrow.matches) {
    if (open && !drawer)
      opener = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    drawer = open;
  } else {
    setSidebarOpen(open);
  }
  applyLayout();
  const focused = document.activeElement;
  if (open && narrow.matches) {
    /** @type {HTMLElement | null} */ (document.querySelector('#sidebar [data-toggle=sidebar]'))?.focus();
  } else if (!open && (!focused || focused === document.body || focused.closest('#sidebar'))) {
    (narrow.matches && opener
      ? opener
      : /** @type {HTMLElement | null} */ (document.querySelector('.header [data-toggle=sidebar]'))
    )?.focus();
  }
}

export function closeDrawer() {
  if (drawer) toggleSessions(false);
}

narrow.addEventListener('change', () => {
  drawer = false;
  applyLayout();
});
