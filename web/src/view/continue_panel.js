// @ts-check
// Goes on with the conversation under another model or system prompt.
import { sentence, show } from '../actions.js';
import { h, setText } from '../dom.js';
import { count } from '../format.js';
import { rewrite } from '../rewriting.js';
import { currentChat, currentSession, isBusy, state } from '../state.js';
import { t } from '../text.js';
import { openDialog } from './dialog.js';
import { toast } from '../notices.js';

/** @param {{system?: string}} [given] a system prompt to begin with */
export function openContinue({ system } = {}) {
  const session = currentSession();
  if (!session) return;
  const names = state.connection.models.map(({ name }) => name);
  const select = h(
    'select',
    { id: 'continue-model' },
    ...[...new Set([session.model, ...names])].map((name) =>
      h('option', { value: name, selected: name === session.model, disabled: !names.includes(name) }, names.includes(name) ? name : t('{0} (not loaded)', name)),
    ),
  );
  const area = h('textarea', { id: 'continue-system', rows: 5, dir: 'auto', placeholder: t('None'), value: system ?? session.system ?? '' });
  const status = h('p', { class: 'panel-text', role: 'status' });
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });
  const go = h('button', { type: 'submit', class: 'button primary' }, t('Continue'));
  const tokens = Math.max(session.n_tokens, currentChat()?.logTokens ?? 0);

  function draw() {
    const changed = select.value !== session?.model || area.value.trim() !== (session?.system ?? '');
    go.disabled = !changed;
    setText(status, changed && tokens ? t('About {0} tokens will be computed again with your next message.', count(tokens)) : '');
  }
  select.addEventListener('change', draw);
  area.addEventListener('input', draw);

  async function submit() {
    if (!session) return;
    problem.hidden = true;
    if (isBusy(currentChat())) throw new Error(t('Wait for the answer to end, or stop it.'));
    go.disabled = true;
    const id = await rewrite(session, { model: select.value, system: area.value.trim() }, (done, of) => setText(status, t('Copying message {0} of {1}…', count(done + 1), count(of))));
    dialog.close();
    show(id);
    toast(t('The conversation continues here. The one before stays in the list.'));
  }
  const dialog = openDialog({
    title: t('Model and system prompt'),
    name: 'continue-dialog',
    body: [
      h(
        'form',
        {
          class: 'panel',
          onsubmit(/** @type {Event} */ event) {
            event.preventDefault();
            submit().catch((error) => {
              problem.hidden = false;
              setText(problem, sentence(error));
              draw();
            });
          },
        },
        h('p', { class: 'panel-text' }, t('The conversation continues in a copy that holds its messages as text, without the thinking.')),
        h('label', { for: 'continue-model', class: 'field-label block' }, t('Model')),
        select,
        h('label', { for: 'continue-system', class: 'field-label block' }, t('System prompt')),
        area,
        status,
        problem,
        h(
          'div',
          { class: 'dialog-actions' },
          h('span', { class: 'spacer' }),
          h('button', { type: 'button', class: 'button', onclick: () => dialog.close() }, t('Cancel')),
          go,
        ),
      ),
    ],
  });
  draw();
}
