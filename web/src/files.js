// @ts-check
// A session as a file: JSON with the complete record, which can be imported, or Markdown to read.
import { fetchArchive, fetchWhole } from './actions.js';
import { h } from './dom.js';
import { moment } from './format.js';
import { withPanels } from './late.js';
import { state } from './state.js';
import { t } from './text.js';
import { exchangesOf, joined } from './turns.js';
import { toast } from './notices.js';

/** @param {any} input */
const said = (input) =>
  input.content ?? input.text ?? (input.continue ? '(continued)' : `(${input.n_ids} token ids)`);

/** @param {any} frame session.state */
export function toMarkdown(frame) {
  const { session, turns } = frame;
  const parts = [`# ${session.title || t('Untitled')}`, `${session.model} · ${moment(session.created_ms)}`];
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
      (state.sessions.get(id)?.title || 'chat')
        .replace(/[^\p{L}\p{N}]+/gu, '-')
        .replace(/^-|-$/g, '')
        .slice(0, 60) || 'chat';
    if (kind === 'json') download(`${stem}.json`, 'application/json', `${await fetchArchive(id)}\n`);
    else download(`${stem}.md`, 'text/markdown', toMarkdown(await fetchWhole(id)));
  } catch (error) {
    toast(t("Couldn't export: {0}", error instanceof Error ? error.message : error), 'error');
  }
}

/** Exports sessions as one file of JSON lines, which an import takes. @param {string[]} ids @param {(done: number) => void} progress */
export async function exportSessions(ids, progress) {
  const lines = [];
  for (const id of ids) {
    progress(lines.length);
    lines.push(`${await fetchArchive(id)}\n`);
  }
  download('sessions.jsonl', 'application/jsonl', lines.join(''));
}

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
  const sessions = [];
  const others = [];
  for (const file of files) (await isSession(file) ? sessions : others).push(file);
  if (sessions.length) await importFiles(sessions);
  if (others.length) await intoMessage(others);
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
