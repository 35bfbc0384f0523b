// @ts-check
// Files that are chosen or dropped: sessions and conversations to import, and files for the message.
import { h } from './dom.js';
import { withPanels } from './late.js';
import { t } from './text.js';

/** Asks for the files, and imports them. */
export function askImport() {
  const input = h('input', {
    type: 'file',
    accept: '.json,.jsonl,application/json',
    multiple: true,
    onchange: () => importFiles([...(input.files ?? [])]),
  });
  input.click();
}

/** @param {File[]} files */
const importFiles = (files) => withPanels(({ importAll }) => importAll(files));

/** Whether a file is a session, or an export of another chat page: by how it begins. @param {File} file */
async function isSession(file) {
  if (!/\.jsonl?$/i.test(file.name)) return false;
  const start = await file.slice(0, 4096).text();
  return /^\s*\{\s*"format"\s*:\s*"parley/.test(start) || (/^\s*[[{]/.test(start) && /"(mapping|chat|conv)"\s*:\s*\{/.test(start));
}

/** @type {(files: File[]) => Promise<void> | void} */
let intoMessage = () => {};
/** Who takes files into the message. @param {(files: File[]) => Promise<void> | void} take */
export const onFilesDropped = (take) => (intoMessage = take);

/** @param {File[]} files */
async function dropped(files) {
  /** @type {File[]} */
  const sessions = [];
  /** @type {File[]} */
  const others = [];
  for (const file of files) (await isSession(file) ? sessions : others).push(file);
  if (sessions.length) await importFiles(sessions);
  if (others.length) await intoMessage(others);
}

const HINT_MS = 500; // longer than between two events of a drag
const hint = h('div', { class: 'drop-hint', 'aria-hidden': 'true' }, h('span', null, t('Drop files here')));
/** @type {any} */
let hiding = null;

/** While files are over the page, it says that it takes them. @param {boolean} over */
function showHint(over) {
  clearTimeout(hiding);
  if (!over) return hint.remove();
  if (!hint.isConnected) document.body.append(hint);
  hiding = setTimeout(() => hint.remove(), HINT_MS);
}

/**
 * Of files that are dropped anywhere, sessions are imported; the others go into the message. A browser would show them, or what a dropped link names, in place of the
 * page; a link or a text goes into a field only.
 * @param {DragEvent} event
 */
function drag(event) {
  const { dataTransfer: brought, target } = event;
  const files = brought?.types.includes('Files');
  if (!brought || (!files && target instanceof Element && target.matches('input, textarea'))) return;
  event.preventDefault();
  brought.dropEffect = files ? 'copy' : 'none';
  if (files) showHint(event.type === 'dragover');
  if (event.type === 'drop') dropped([...brought.files]);
}
addEventListener('dragover', drag);
addEventListener('drop', drag);
