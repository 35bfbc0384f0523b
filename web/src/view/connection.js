// @ts-check
// The state of the connection: a banner while it is lost, a dialog when the server requires a token.
import { authorise, retryNow } from '../actions.js';
import { h, icon, setText } from '../dom.js';
import { state, subscribe } from '../state.js';
import { token } from '../prefs.js';
import { t } from '../text.js';
import { openDialog } from './dialog.js';

const GRACE_MS = 700; // shorter interruptions are not shown

const text = h('span', null);
export const banner = h(
  'div',
  { class: 'banner', hidden: true },
  h('span', { class: 'spinner', 'aria-hidden': 'true' }),
  text,
  h('button', { type: 'button', class: 'link-button', onclick: retryNow }, t('Try now')),
);
const dot = h('span', { class: 'dot' });
const words = h('span', null);
const leads = icon('inspect');
export const connectionState = h('a', { class: 'connection', href: '#/server' }, dot, words, leads);

/** @type {any} */
let grace = null;
/** @type {any} */
let ticking = null;
/** @type {HTMLDialogElement | null} */
let dialog = null;

function countdown() {
  const left = Math.ceil((state.connection.retryAt - Date.now()) / 1000);
  setText(
    text,
    left > 1
      ? t('Not connected to the server. Retrying in {0} s.', left)
      : t('Not connected to the server. Retrying…'),
  );
}

function askToken() {
  if (dialog) return;
  const field = h('input', {
    type: 'password',
    id: 'token',
    autocomplete: 'current-password',
    required: true,
    value: token(),
    'aria-describedby': 'token-problem',
  });
  const problem = h(
    'p',
    { class: 'dialog-text', id: 'token-problem' },
    token()
      ? t('The server rejected this token.')
      : t('This server requires an access token. Ask its administrator for one.'),
  );
  dialog = openDialog({
    title: t('Sign in'),
    name: 'token-dialog',
    closable: false,
    onClose: () => (dialog = null),
    body: [
      h(
        'form',
        {
          onsubmit(/** @type {Event} */ event) {
            event.preventDefault();
            const value = field.value.trim();
            if (!value) return;
            dialog?.close();
            authorise(value);
          },
        },
        problem,
        h('label', { for: 'token', class: 'field-label' }, t('Token')),
        field,
        h('p', { class: 'field-hint' }, t('Kept in this tab, and in those opened beside it, until you close them or sign out.')),
        h(
          'div',
          { class: 'dialog-actions' },
          h('button', { type: 'submit', class: 'button primary' }, t('Connect')),
        ),
      ),
    ],
  });
  field.focus();
  field.select();
}

function draw() {
  const { phase, server, user } = state.connection;
  const name = {
    open: t('Connected'),
    connecting: t('Connecting…'),
    waiting: t('Reconnecting…'),
    unauthorized: t('Not authorised'),
  }[phase];
  dot.dataset.connection = phase;
  setText(words, user.name && phase === 'open' ? t('{0} as {1}', name, user.name) : name);
  const program = server && phase === 'open' ? [t('Connected to {0} {1}', server.name, server.version)] : [];
  connectionState.title = [...program, ...(user.admin ? [t('Open the dashboard')] : [])].join('\n');
  // The figures are an administrator's alone.
  if (user.admin) connectionState.href = '#/server';
  else connectionState.removeAttribute('href');
  leads.toggleAttribute('hidden', !user.admin);
  clearInterval(ticking);
  if (phase === 'waiting') {
    countdown();
    ticking = setInterval(countdown, 500);
    grace ??= setTimeout(() => (banner.hidden = false), GRACE_MS);
  } else {
    clearTimeout(grace);
    grace = null;
    banner.hidden = true;
  }
  if (phase === 'unauthorized') askToken();
}
subscribe('connection', draw);
draw();
