// @ts-check
// The dialog of an import: how far it is, and what could not be imported, and why. It closes itself where all went well.
import { withFiles } from '../attachments.js';
import { addArchive, isCode, sentence, show } from '../actions.js';
import { h, setText } from '../dom.js';
import { plural } from '../format.js';
import { conversationsIn } from '../foreign.js';
import { cut, TITLE_BYTES, writeSession } from '../rewriting.js';
import { nextModel, state } from '../state.js';
import { t } from '../text.js';
import { openDialog } from './dialog.js';
import { closeDrawer } from './layout_state.js';
import { toast } from '../notices.js';

const ARCHIVE_BYTES = 15 << 20; // limit of session.import
const FILE_BYTES = 256 << 20; // of an export with many conversations

/** @param {import('../foreign.js').Conversation} conversation @returns {Promise<string>} the session's id */
async function write({ title, system, exchanges }) {
  const values = { title: cut(title, TITLE_BYTES), ...(system ? { system: cut(system, state.connection.limits.system_bytes ?? 32768) } : {}) };
  const known = nextModel();
  try {
    return await writeSession(values, exchanges);
  } catch (error) {
    if (!isCode(error, 'session_full') || !known || known.max_session_len <= known.session_len) throw error;
    return writeSession({ ...values, session_len: known.max_session_len }, exchanges);
  }
}

/** What a file holds, each with how to import it. @param {File} file @returns {Promise<Array<{title: string, run: () => Promise<string>} | Error>>} */
async function partsOf(file) {
  if (file.size > FILE_BYTES) throw new Error(t('File too large: 256 MiB at most.'));
  const text = await file.text();
  const lines = text.split('\n').filter((line) => line.trim());
  const archives = lines.length > 1 && lines.every((line) => line.startsWith('{"format":"parley')) ? lines : null;
  const foreign = archives ? null : conversationsIn(text, withFiles);
  if (foreign) return foreign.map((one) => (one instanceof Error ? one : { title: one.title, run: () => write(one) }));
  return (archives ?? [text]).map((archive, i) => ({
    title: archives ? t('chat {0} of “{1}”', i + 1, file.name) : file.name,
    run() {
      if (archive.length > ARCHIVE_BYTES) throw new Error(t('File too large: 15 MiB at most. “parley sessions import” has no limit.'));
      return addArchive(archive);
    },
  }));
}

/** Imports the sessions and conversations of files. @param {File[]} files */
export async function importAll(files) {
  const status = h('p', { class: 'panel-text', role: 'status' });
  const problems = h('ul', { class: 'import-problems' });
  const close = h('button', { type: 'button', class: 'button', onclick: () => dialog.close() }, t('Stop'));
  let stopped = false;
  const dialog = openDialog({
    title: t('Import'),
    name: 'import-dialog',
    onClose: () => (stopped = true),
    body: [h('div', { class: 'panel' }, status, problems, h('div', { class: 'dialog-actions' }, h('span', { class: 'spacer' }), close))],
  });
  let done = 0;
  let last = '';
  /** @param {string} name @param {unknown} error */
  const failed = (name, error) => problems.append(h('li', { dir: 'auto' }, name ? t("Couldn't import “{0}”: {1}", name, sentence(error)) : sentence(error)));
  for (const file of files) {
    setText(status, t('Reading “{0}”…', file.name));
    const parts = await partsOf(file).catch((error) => {
      failed(file.name, error);
      return [];
    });
    for (const [i, part] of parts.entries()) {
      if (stopped) break;
      if (part instanceof Error) {
        failed('', part);
        continue;
      }
      setText(status, parts.length > 1 ? t('{0} of {1}: “{2}”', i + 1, parts.length, part.title) : t('Importing “{0}”…', part.title));
      try {
        last = await part.run();
        done++;
      } catch (error) {
        failed(part.title, error);
      }
    }
  }
  const result = done === 1 ? t('Chat imported.') : t('{0} imported.', plural(done, 'chat'));
  if (done && (files.length === 1 || !problems.children.length)) {
    show(last);
    closeDrawer(); // it is behind
  }
  if (stopped || !problems.children.length) {
    dialog.close();
    toast(stopped && !done ? t('Nothing was imported.') : result);
    return;
  }
  setText(status, `${done ? result : t('Nothing was imported.')} ${plural(problems.children.length, 'problem')}:`);
  setText(close, t('Close'));
}
