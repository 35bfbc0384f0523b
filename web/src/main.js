// @ts-check
// Puts the page together and starts it. Reading order of the modules: web/README.md.
import { connect, showAddress } from './actions.js';
import { h, iconButton, setText } from './dom.js';
import { askImport } from './files.js';
import { notLoaded, part } from './late.js';
import './notify.js';
import { renderBlocks } from './render/markdown.js';
import { blocksOf } from './render/markup.js';
import { subscribe, state } from './state.js';
import { t } from './text.js';
import { planDeletions } from './turn_deletion.js';
import { AnswerFoot } from './view/answer_foot.js';
import { announcer } from './view/announcer.js';
import { composer } from './view/composer.js';
import { banner, connectionState } from './view/connection.js';
import { header } from './view/header.js';
import { applyLayout, closeDrawer, toggleSessions } from './view/layout_state.js';
import { field } from './view/message_field.js';
import { serverView } from './view/server_view.js';
import { openShortcuts } from './view/shortcuts.js';
import { sidebar } from './view/sidebar.js';
import { toasts } from './view/toasts.js';
import { transcript } from './view/transcript.js';

const app = /** @type {HTMLElement} */ (document.getElementById('app'));
const isShared = () => location.hash.startsWith('#/shared/'); // a chat that others have shared: it has a page of its own

function startPage() {
  app.replaceChildren(
    sidebar(
      connectionState,
      iconButton('upload', t('Import chats from files'), { onclick: askImport }),
      iconButton('keyboard', t('Keyboard shortcuts'), { onclick: openShortcuts }),
    ),
    h('div', { class: 'scrim', onclick: closeDrawer }),
    h('main', null, header, serverView, banner, transcript, h('div', { class: 'toast-place' }, toasts), composer),
    announcer,
  );
  document.addEventListener('click', (event) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest('[data-toggle=sidebar]')) toggleSessions();
    else if (target.closest('.connection')) closeDrawer();
  });
  for (const name of ['hashchange', 'popstate']) addEventListener(name, () => (isShared() ? location.reload() : showAddress()));

  // A new connection carries out what an earlier one did not.
  subscribe('connection', () => state.connection.phase === 'open' && planDeletions());

  setText(/** @type {Element} */ (document.querySelector('.skip')), t('Skip to the message field'));
  applyLayout();
  // Each in a task of its own: running this script has taken one already. While the server is answering, all but the first
  // three prepare what would hold up the first drawing of a conversation: the parser of Markdown and the sanitiser, kind by
  // kind, and what stands around an answer.
  const SAMPLES = ['```\na\n```', '---', '|a|\n|-|\n|b|', '# a', 'a', '- a', '**b** `c` [d](https://e)'];
  const start = [
    connect,
    showAddress,
    () => matchMedia('(hover: hover)').matches && field.focus(),
    ...SAMPLES.flatMap((sample) => {
      /** @type {ReturnType<typeof blocksOf>} */
      let blocks;
      return [() => (blocks = blocksOf(sample)), () => renderBlocks(blocks)];
    }),
    () => new AnswerFoot(),
  ];
  for (const step of start) setTimeout(step);
}

if (isShared()) part('panels').then(({ showShared }) => showShared(app), () => app.replaceChildren(notLoaded()));
else startPage();
