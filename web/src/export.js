// @ts-check
// A session as a file: JSON with everything the server told, or Markdown to read.
import { fetchWhole } from './actions.js';
import { moment } from './format.js';
import { exchangesOf, joined } from './turns.js';
import { toast } from './view/toasts.js';

/** @param {any} input */
const said = (input) =>
  input.content ?? input.text ?? (input.continue ? '(goes on)' : `(${input.n_ids} token ids)`);

/** @param {any} frame session.state */
export function toMarkdown(frame) {
  const { session, turns } = frame;
  const parts = [`# ${session.title || 'Untitled'}`, `${session.model} · ${moment(session.created_ms)}`];
  if (session.system) parts.push(`**System**\n\n${session.system}`);
  if (frame.more) parts.push('*Earlier turns are left out.*');
  for (const turn of exchangesOf(turns).map(joined)) {
    parts.push(`## You\n\n${said(turn.input)}`, `## Assistant\n\n${turn.text}`);
    if (turn.state === 'done' && turn.finish_reason !== 'eos')
      parts.push(`*(ended by: ${turn.finish_reason})*`);
  }
  return parts.join('\n\n') + '\n';
}

/** @param {any} frame session.state */
export const toJson = (frame) =>
  JSON.stringify(
    {
      format: 'parley.session',
      version: 1,
      exported_ms: Date.now(),
      complete: !frame.more,
      session: frame.session,
      turns: frame.turns,
    },
    null,
    2,
  ) + '\n';

/** @param {string} name @param {string} type @param {string} text */
function download(name, type, text) {
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
    const frame = await fetchWhole(id);
    const stem =
      (frame.session.title || 'session')
        .replace(/[^\p{L}\p{N}]+/gu, '-')
        .replace(/^-|-$/g, '')
        .slice(0, 60) || 'session';
    if (kind === 'json') download(`${stem}.json`, 'application/json', toJson(frame));
    else download(`${stem}.md`, 'text/markdown', toMarkdown(frame));
  } catch (error) {
    toast(`The export failed: ${error instanceof Error ? error.message : error}`, 'error');
  }
}
