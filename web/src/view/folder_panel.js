// @ts-check
// Asks for the folder of a session, of several, or of all in a folder, which renames it. A folder exists as long as a
// session has its name.
import { request, sentence, update } from '../actions.js';
import { h, setText } from '../dom.js';
import { byFolder, state } from '../state.js';
import { t } from '../text.js';
import { openDialog } from './dialog.js';

const PAGE = 200;

/** The archived ones, too. @param {string} folder */
async function sessionsIn(folder) {
  const ids = [];
  let cursor = null;
  do {
    const page = await request({ type: 'session.list', limit: PAGE, in_folder: true, ...(cursor ? { cursor } : {}) });
    for (const session of page.sessions) if (session.folder === folder) ids.push(session.id);
    cursor = page.cursor;
  } while (cursor);
  return ids;
}

/** @param {string} folder */
export const openRenameFolder = (folder) =>
  ask({ title: t('Rename folder'), action: t('Rename'), help: t('Leave empty to take its chats out of the folder.'), folder, ids: () => sessionsIn(folder) });

/** @param {string[]} ids @param {() => void} [done] */
export const openMove = (ids, done) =>
  ask({
    title: t('Move to folder'),
    action: t('Move'),
    help: t('Leave empty for no folder.'),
    folder: (ids.length === 1 && state.sessions.get(ids[0])?.folder) || '',
    ids: async () => ids,
    done,
  });

/** @param {{title: string, action: string, help: string, folder: string, ids: () => Promise<string[]>, done?: () => void}} what */
function ask({ title, action, help, folder, ids, done }) {
  const known = new Set([...state.sessions.values()].map(({ folder }) => folder ?? ''));
  const names = [...known].filter(Boolean).sort(byFolder);
  const field = h('input', { type: 'text', id: 'folder-name', list: 'folder-names', maxLength: 64, autocomplete: 'off', 'aria-describedby': 'folder-help' });
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });
  const agree = h('button', { type: 'submit', class: 'button primary' }, action);
  field.value = folder;

  async function move() {
    agree.disabled = true;
    try {
      const name = field.value.trim();
      for (const id of name === folder ? [] : await ids()) await update(id, { folder: name });
      dialog.close();
      done?.();
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
    h('p', { class: 'panel-text', id: 'folder-help' }, help),
    problem,
    h('div', { class: 'dialog-actions' }, agree),
  );
  const dialog = openDialog({ title, name: 'folder-dialog', body: [form] });
  field.focus();
  field.select();
}
