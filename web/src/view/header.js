// @ts-check
// The line above the conversation: title, model, actions.
import { h, iconButton, setText } from '../dom.js';
import { parameters } from '../format.js';
import { withPanels } from '../late.js';
import { currentChat, currentSession, model, nextModel, state, subscribe } from '../state.js';
import { t } from '../text.js';
import { answerReady } from '../unread.js';
import { renameInPlace, sessionMenu, startNew, titleOf } from './sidebar.js';

const title = h('h1', { class: 'title', dir: 'auto' });
const modelName = h('button', {
  type: 'button',
  class: 'model',
  onclick: () => (currentSession() ? withPanels(({ openContinue }) => openContinue(), true) : document.getElementById('fresh-model')?.focus()),
});
const menu = iconButton('more', t('Chat menu'), {
  'aria-haspopup': 'menu',
  'aria-expanded': 'false',
  onclick() {
    const session = currentSession();
    if (session)
      sessionMenu(menu, session.id, () => renameInPlace(title, session, 'title-rename', () => menu.focus()));
  },
});
const settings = iconButton('gear', t('Settings'), {
  onclick: () => withPanels(({ openSettings }) => openSettings(state.view === 'server' ? 'page' : currentSession() ? 'session' : 'new')),
});

const back = iconButton('left', t('Back to the chat'), { hidden: true, onclick: () => (history.length > 1 ? history.back() : startNew()) });

export const header = h(
  'header',
  { class: 'header' },
  iconButton('sidebar', t('Show chats'), { 'data-toggle': 'sidebar' }),
  back,
  h('div', { class: 'title-box' }, title, modelName),
  settings,
  menu,
  iconButton('plus', t('New chat'), { class: 'icon-button header-new', onclick: startNew }),
);

title.addEventListener('dblclick', () => {
  const session = state.view === 'chat' && currentSession();
  if (session) renameInPlace(title, session, 'title-rename', () => menu.focus());
});

/** What a tab in the background tells by its title. @param {import('../state.js').Session | null} session */
function titleMark(session) {
  if (session?.state === 'active') return '● ';
  return answerReady() ? `✓ ${t('Answer ready')} · ` : '';
}

function draw() {
  const session = currentSession();
  const known = session ? model(session.model) : nextModel();
  const server = state.view === 'server';
  back.hidden = !server;
  if (server) {
    setText(title, t('Server'));
    setText(modelName, '');
    modelName.hidden = true;
    menu.hidden = true;
    document.title = `${title.textContent} · Parley`;
    return;
  }
  const chat = currentChat();
  const phase = chat && !chat.local ? chat.phase : '';
  const name = session
    ? titleOf(session)
    : phase === 'failed'
      ? t('Chat not loaded')
      : phase === 'loading'
        ? t('Loading…')
        : state.fresh.folder
          ? t('New chat in {0}', state.fresh.folder)
          : t('New chat');
  setText(title, name);
  setText(modelName, session?.model ?? (phase ? '' : (known?.name ?? '')));
  modelName.setAttribute('aria-label', t('Model: {0}', modelName.textContent));
  modelName.hidden = !modelName.textContent;
  modelName.disabled = !(session ? session.state !== 'closed' && session.n_turns : state.connection.models.length > 1);
  modelName.title = known
    ? t('{0}, {1} parameters, {2}', known.family, parameters(known.n_params), known.backend)
    : '';
  menu.hidden = !session;
  document.title = `${titleMark(session)}${state.current && session ? `${name} · ` : ''}Parley`;
}
for (const topic of /** @type {const} */ (['selection', 'session', 'connection', 'chat', 'prefs']))
  subscribe(topic, draw);
draw();
