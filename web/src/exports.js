// @ts-check
// A session as a file: JSON with the complete record, which can be imported, or Markdown to read. Loads late.
import { fetchArchive, fetchWhole } from './actions.js';
import { moment } from './format.js';
import { toast } from './notices.js';
import { state } from './state.js';
import { t } from './text.js';
import { exchangesOf, joined } from './turns.js';

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
