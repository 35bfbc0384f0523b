// @ts-check
// A session as a file: JSON with the complete record, which can be imported, or Markdown to read.
import { addArchive, fetchArchive, fetchWhole, show } from './actions.js';
import { h } from './dom.js';
import { moment } from './format.js';
import { state } from './state.js';
import { exchangesOf, joined } from './turns.js';
import { addFiles } from './view/file_chips.js';
import { toast } from './view/toasts.js';

const ARCHIVE_BYTES = 15 << 20; // limit of session.import
const LONG_BYTES = 2 << 20; // an import that takes a while

/** @param {any} input */
const said = (input) =>
  input.content ?? input.text ?? (input.continue ? '(continued)' : `(${input.n_ids} token ids)`);

/** @param {any} frame session.state */
export function toMarkdown(frame) {
  const { session, turns } = frame;
  const parts = [`# ${session.title || 'Untitled'}`, `${session.model} · ${moment(session.created_ms)}`];
  if (session.system) parts.push(`**System**\n\n${session.system}`);
  if (frame.more) parts.push('*Earlier turns are left out.*');
  for (const turn of exchangesOf(turns).map(joined)) {
    parts.push(`## You\n\n${said(turn.input)}`, `## Assistant\n\n${turn.thinking ? '<think>' : ''}${turn.text}`);
    if (turn.state === 'done' && turn.finish_reason !== 'eos')
      parts.push(`*(finish reason: ${turn.finish_reason})*`);
  }
  return parts.join('\n\n') + '\n';
}

/** @param {string} name @param {string} type @param {string} text */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** @param {string} id @param {'json' | 'markdown'} kind */
export async function exportSession(id, kind) {
  try {
    const stem =
      (state.sessions.get(id)?.title || 'session')
        .replace(/[^\p{L}\p{N}]+/gu, '-')
        .replace(/^-|-$/g, '')
        .slice(0, 60) || 'session';
    if (kind === 'json') download(`${stem}.json`, 'application/json', `${await fetchArchive(id)}\n`);
    else download(`${stem}.md`, 'text/markdown', toMarkdown(await fetchWhole(id)));
  } catch (error) {
    toast(`Couldn't export: ${error instanceof Error ? error.message : error}`, 'error');
  }
}

/** Imports a file as a new session and shows it. @param {File} file */
async function importFile(file) {
  try {
    if (file.size > ARCHIVE_BYTES)
      throw new Error('File too large: 15 MiB at most. “parley sessions import” has no limit.');
    if (file.size > LONG_BYTES) toast(`Importing “${file.name}”…`);
    const id = await addArchive(await file.text());
    show(id);
    toast('Session imported.');
  } catch (error) {
    toast(`Couldn't import “${file.name}”: ${error instanceof Error ? error.message : error}`, 'error');
  }
}

/** Asks for the files, and imports them. */
export function askImport() {
  const input = h('input', {
    type: 'file',
    accept: '.json,application/json',
    multiple: true,
    onchange: () => importFiles(input.files),
  });
  input.click();
}

/** @param {FileList | null} files */
async function importFiles(files) {
  for (const file of [...(files ?? [])]) await importFile(file);
}

/** Whether a file is a session: its record begins with its format. @param {File} file */
const isSession = async (file) => /\.json$/i.test(file.name) && /^\s*\{\s*"format"\s*:\s*"parley/.test(await file.slice(0, 200).text());

/** @param {File[]} files */
async function dropped(files) {
  const others = [];
  for (const file of files)
    if (await isSession(file)) await importFile(file);
    else others.push(file);
  if (others.length) await addFiles(others);
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
  if (event.type === 'drop') dropped([...brought.files]);
}
addEventListener('dragover', drag);
addEventListener('drop', drag);
