// @ts-check
// Makes a link by which others read a chat, shows it, and takes it back. The server keeps no link: this browser does, for
// the chats that were shared in it.
import { request, sentence } from '../actions.js';
import { copyText } from '../clipboard.js';
import { h, icon } from '../dom.js';
import { sharedToken, setSharedToken } from '../prefs.js';
import { state } from '../state.js';
import { t } from '../text.js';
import { openDialog } from './dialog.js';

/** @param {string} token */
const linkOf = (token) => `${location.href.replace(/#.*$/, '')}#/shared/${token}`;

/** @param {string} id */
export function openShare(id) {
  const body = h('div', { class: 'panel share-body' });
  const status = h('p', { class: 'panel-text', role: 'status' });
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });

  /** @param {string} said @param {() => Promise<void>} job */
  async function run(said, job) {
    problem.hidden = true;
    try {
      await job();
      draw();
      status.textContent = said;
    } catch (error) {
      problem.hidden = false;
      problem.textContent = sentence(error);
    }
  }
  const make = () =>
    run(t('The chat is shared.'), async () => {
      const { token } = await request({ type: 'session.share', session: id });
      setSharedToken(id, token);
    });
  const takeBack = () =>
    run(t('The link was taken back. It opens nothing any more.'), async () => {
      await request({ type: 'session.unshare', session: id }, { fits: (frame) => frame.type === 'session.updated' && frame.session.id === id });
      setSharedToken(id, null);
    });
  const copy = (/** @type {string} */ link) => run('', async () => {
    if (!(await copyText(link))) throw new Error(t('The browser blocked copying.'));
  }).then(() => problem.hidden && (status.textContent = t('Link copied.')));

  function draw() {
    const shared = !!state.sessions.get(id)?.shared;
    const token = shared ? sharedToken(id) : undefined;
    const button = (/** @type {string} */ label, /** @type {() => void} */ onclick, look = '') =>
      h('button', { type: 'button', class: `button ${look}`, onclick }, label);
    const link = token && linkOf(token);
    const field = link && h('input', { class: 'share-link', readOnly: true, value: link, 'aria-label': t('Link to this chat'), onfocus: (/** @type {any} */ event) => event.target.select() });
    body.replaceChildren(
      h(
        'p',
        { class: 'panel-text' },
        t('Anyone with the link can read this chat without signing in: its title, messages and answers. Messages that you add later are shown, too.'),
      ),
      h('p', { class: 'panel-text muted' }, t('Not shown: the system prompt, the thinking, other versions and all settings.')),
      ...(field ? [h('div', { class: 'share-row' }, field, h('button', { type: 'button', class: 'button primary', onclick: () => copy(link) }, icon('copy'), t('Copy link')))] : []),
      ...(shared && !link ? [h('p', { class: 'panel-text' }, t('This chat is shared. Its link is known only where it was made. A new link replaces it.'))] : []),
      status,
      problem,
      h(
        'div',
        { class: 'dialog-actions' },
        ...(shared ? [button(t('Take the link back'), takeBack, 'danger')] : []),
        ...(link || !state.connection.sharing ? [] : [button(shared ? t('Make a new link') : t('Make a link'), make, 'primary')]),
      ),
    );
    status.textContent = '';
    if (!body.contains(document.activeElement)) /** @type {HTMLElement | null} */ (body.querySelector('.primary, .danger'))?.focus();
  }
  draw();
  openDialog({ title: t('Share this chat'), name: 'share-dialog', body: [body] });
}
