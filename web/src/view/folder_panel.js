// @ts-check
// Asks for the folder of a session, or of several. A folder exists as long as a session has its name.
import { sentence, update } from '../actions.js';
import { h, setText } from '../dom.js';
import { byFolder, state } from '../state.js';
import { t } from '../text.js';
import { openDialog } from './dialog.js';

/** @param {string[]} ids */
export function openMove(ids) {
  const known = new Set([...state.sessions.values()].map(({ folder }) => folder ?? ''));
  const names = [...known].filter(Boolean).sort(byFolder);
  const field = h('input', { id: 'folder-name', list: 'folder-names', maxLength: 64, autocomplete: 'off', 'aria-describedby': 'folder-help' });
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });
  const agree = h('button', { type: 'submit', class: 'button primary' }, t('Move'));
  if (ids.length === 1) field.value = state.sessions.get(ids[0])?.folder ?? '';

  async function move() {
    agree.disabled = true;
    try {
      for (const id of ids) await update(id, { folder: field.value.trim() });
      dialog.close();
    } catch (error) {
      problem.hidden = agree.disabled = false;
      setText(problem, sentence(error));
    }
  }
  const form = h(
    'form',
    {
      class: 'panel',
      onsubmit(/** @type {Event} */ event) {
        event.preventDefault();
        move();
      },
    },
    h('div', { class: 'field' }, h('label', { for: 'folder-name', class: 'field-label' }, t('Folder')), field, h('datalist', { id: 'folder-names' }, ...names.map((name) => h('option', { value: name })))),
    h('p', { class: 'panel-text', id: 'folder-help' }, t('Empty: in no folder.')),
    problem,
    h('div', { class: 'dialog-actions' }, agree),
  );
  const dialog = openDialog({ title: t('Move to folder'), name: 'folder-dialog', body: [form] });
  field.focus();
  field.select();
}
