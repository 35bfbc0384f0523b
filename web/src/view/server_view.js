// @ts-check
// The place of the dashboard (dashboard.js), which loads when it is first shown.
import { h, setText } from '../dom.js';
import { notLoaded, part } from '../late.js';
import { state, subscribe } from '../state.js';
import { t } from '../text.js';

const problem = h('span', null);
const again = h('button', { type: 'button', class: 'link-button', hidden: true, onclick: load }, t('Try again'));
const note = h('p', { class: 'panel-text dashboard-note', role: 'status' }, problem, ' ', again);
export const serverView = h('section', { class: 'dashboard', 'aria-label': t('Server'), hidden: true }, note);
let loading = false;

async function load() {
  if (loading || serverView.hidden || !note.isConnected) return;
  loading = true;
  try {
    const { figures } = await part('panels');
    serverView.replaceChildren(...figures);
  } catch {
    setText(problem, notLoaded());
    again.hidden = false;
  }
  loading = false;
}

subscribe('selection', () => {
  serverView.hidden = state.view !== 'server';
  document.documentElement.dataset.view = state.view;
  load();
});
subscribe('connection', load);
