// @ts-check
// All sessions with a box each: to export, move, archive or delete several.
import { archive, removeSeveral, request, sentence } from '../actions.js';
import { h, setText } from '../dom.js';
import { exportSessions } from '../exports.js';
import { moment, plural } from '../format.js';
import { state } from '../state.js';
import { t } from '../text.js';
import { confirmDialog, openDialog } from './dialog.js';
import { openMove } from './folder_panel.js';

const PAGE = 200;

export function openManage() {
  const rows = h('ul', { class: 'manage-list' });
  const status = h('p', { class: 'panel-text', role: 'status' });
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });
  const all = h('input', { type: 'checkbox', id: 'manage-all', onchange: () => boxes().forEach((box) => (box.checked = all.checked)) });
  const take = h('button', { type: 'button', class: 'button', onclick: () => exporting().catch(fail) }, t('Export'));
  const move = h('button', { type: 'button', class: 'button', onclick: () => openMove(chosen(), () => dialog.close()) }, t('Move…'));
  const shelve = h('button', { type: 'button', class: 'button', onclick: () => archiving() }, t('Archive'));
  const drop = h('button', { type: 'button', class: 'button danger', onclick: () => deleting() }, t('Delete…'));
  const boxes = () => /** @type {HTMLInputElement[]} */ ([...rows.querySelectorAll('input')]);
  const chosen = () => boxes().filter((box) => box.checked).map((box) => box.value);
  /** @type {Set<string>} */
  const archived = new Set();
  const allArchived = () => chosen().every((id) => archived.has(id));
  const fail = (/** @type {unknown} */ error) => {
    problem.hidden = false;
    setText(problem, sentence(error));
    draw();
  };
  let open = true;
  const dialog = openDialog({
    title: t('Manage chats'),
    name: 'manage-dialog',
    onClose: () => (open = false),
    body: [
      h(
        'div',
        { class: 'panel', onchange: draw },
        h('label', { class: 'check' }, all, h('span', null, t('All'))),
        rows,
        problem,
        h('div', { class: 'dialog-actions' }, status, h('span', { class: 'spacer' }), take, move, shelve, drop),
      ),
    ],
  });

  function draw() {
    const n = chosen().length;
    take.disabled = move.disabled = shelve.disabled = drop.disabled = !n;
    setText(shelve, n && allArchived() ? t('Unarchive') : t('Archive'));
    all.checked = n > 0 && n === boxes().length;
    setText(status, n ? t('{0} chosen', n) : '');
  }

  async function exporting() {
    const ids = chosen();
    take.disabled = move.disabled = shelve.disabled = drop.disabled = true;
    await exportSessions(ids, (done) => setText(status, t('{0} of {1}…', done + 1, ids.length)));
    draw();
  }

  function archiving() {
    archive(chosen(), !allArchived());
    dialog.close();
  }

  async function deleting() {
    const ids = chosen();
    const what = plural(ids.length, 'chat');
    const agreed = await confirmDialog({ title: t('Delete {0}?', what), action: t('Delete'), text: t('All their messages will be deleted from the server, too.') });
    if (!agreed) return;
    removeSeveral(ids);
    dialog.close();
  }

  async function load() {
    for (let cursor = null; open; ) {
      const page = await request({ type: 'session.list', limit: PAGE, ...(cursor ? { cursor } : {}) });
      for (const { id, title, updated_ms: at, archived: put } of page.sessions) {
        if (state.deleting.has(id)) continue;
        if (put) archived.add(id);
        rows.append(
          h(
            'li',
            null,
            h(
              'label',
              { class: 'check' },
              h('input', { type: 'checkbox', value: id, checked: all.checked }),
              h('span', { class: 'manage-title', dir: 'auto' }, title || t('New chat')),
              h('span', { class: 'manage-date' }, [put && t('Archived'), moment(at)].filter(Boolean).join(' · ')),
            ),
          ),
        );
      }
      draw();
      cursor = page.cursor;
      if (!cursor) return;
    }
  }
  draw();
  load().catch(fail);
}
