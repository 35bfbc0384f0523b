// @ts-check
// The files that the next message will contain, above the message field; and those of a message that was sent.
import { attachment, filesOf, readFile } from '../attachments.js';
import { h, icon, iconButton } from '../dom.js';
import { onFilesDropped } from '../files.js';
import { plural, size } from '../format.js';
import { draftFiles, setDraftFiles } from '../prefs.js';
import { state, subscribe, touch } from '../state.js';
import { t } from '../text.js';
import { addMessage, field } from './message_field.js';
import { toast } from '../notices.js';

/** @typedef {import('../attachments.js').Attachment} Attachment */

const FOLDED = 20000; // characters of a file that an opened chip shows

/** @type {Map<string, Attachment[]>} by session; '' for the chat that has not begun */
const chosen = new Map();
let reading = 0;

export const fileChips = h('ul', { class: 'file-chips', 'aria-label': t('Files in this message'), hidden: true });
const key = () => state.current ?? '';

/** The files of a session's next message; the browser keeps them, like its text. @returns {Attachment[]} */
export function chosenFiles(session = key()) {
  let files = chosen.get(session);
  if (!files) chosen.set(session, (files = draftFiles(session).map(({ name, text }) => attachment(name, text))));
  return files;
}
/** @param {string} session @param {Attachment[]} files */
function choose(session, files) {
  if (!files.length && !chosenFiles(session).length) return;
  chosen.set(session, files);
  setDraftFiles(session, files.map(({ name, text }) => ({ name, text })));
  draw();
  touch('chat');
}
export const readingFiles = () => reading > 0;

/** @param {Attachment} file @returns {string} */
const figures = ({ bytes, tokens }) => t('{0}, about {1}', size(bytes), plural(tokens, 'token'));

export const clearFiles = () => choose(key(), []);

/** The new chat has become a session; or a session is continued in a new chat. @param {string} from @param {string} to */
export function moveFiles(from, to) {
  const files = chosenFiles(from);
  choose(from, []);
  choose(to, [...chosenFiles(to), ...files]);
}

/** Puts a message that was not sent back into the field, its files above it. @param {string} content */
export function takeBack(content) {
  const { files, words } = filesOf(content);
  choose(key(), [...chosenFiles(), ...files]);
  if (words) addMessage(words);
  else field.focus();
}

/** A file that can be removed. @param {Attachment} file @param {() => void} remove */
export const fileChip = (file, remove) =>
  h(
    'li',
    { class: 'file-chip' },
    icon('file'),
    h('span', { class: 'file-name', title: file.name, dir: 'auto' }, file.name),
    h('span', { class: 'file-figures' }, figures(file)),
    iconButton('close', t('Remove {0}', file.name), { onclick: remove }),
  );

function draw() {
  const files = chosenFiles();
  fileChips.hidden = !files.length && !reading;
  fileChips.replaceChildren(
    ...files.map((file) =>
      fileChip(file, () => {
        choose(key(), chosenFiles().filter((other) => other !== file));
        field.focus();
      }),
    ),
    ...(reading ? [h('li', { class: 'file-chip', role: 'status' }, t('Reading…'))] : []),
  );
}

/** Reads files and puts them into the next message of the session shown; says which it cannot take. @param {File[]} files */
export async function addFiles(files) {
  const session = key();
  reading++;
  draw();
  touch('chat');
  try {
    for (const file of files)
      try {
        const read = await readFile(file);
        const most = state.connection.limits.message_bytes ?? Infinity;
        const bytes = new TextEncoder().encode(JSON.stringify(read.text)).length;
        if (bytes > most - 1000) throw new Error(t('“{0}” is too long: {1}, and a message can have {2}.', read.name, size(bytes), size(most)));
        choose(session, [...chosenFiles(session), read]);
      } catch (error) {
        toast(error instanceof Error ? error.message : String(error), 'error');
      }
  } finally {
    reading--;
    draw();
    touch('chat');
  }
  field.focus();
}

onFilesDropped(addFiles);

export function askFiles() {
  const input = h('input', { type: 'file', multiple: true, onchange: () => addFiles([...(input.files ?? [])]) });
  input.click();
}

field.addEventListener('paste', (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (!files.length || event.clipboardData?.types.includes('text/plain')) return; // a word processor adds a picture of its text
  event.preventDefault();
  addFiles(files);
});
subscribe('selection', draw);
draw();

/** A file of a message that was sent: its name, and its text on demand. @param {Attachment} file */
function sentFile(file) {
  const body = h('pre', { tabIndex: 0, dir: 'auto' });
  const box = h(
    'details',
    {
      class: 'sent-file',
      ontoggle: () => {
        if (box.open && !body.firstChild) body.append(file.text.length > FOLDED ? `${file.text.slice(0, FOLDED)}\n… ${plural(file.text.length - FOLDED, 'more character')}` : file.text);
      },
    },
    h('summary', { class: 'file-chip' }, icon('file'), h('span', { class: 'file-name', title: file.name, dir: 'auto' }, file.name), h('span', { class: 'file-figures' }, figures(file))),
    body,
  );
  return box;
}

/** @param {string} content @returns {{chips: HTMLElement | null, words: string}} */
export function sentFiles(content) {
  const { files, words } = filesOf(content);
  return { chips: files.length ? h('div', { class: 'sent-files' }, ...files.map(sentFile)) : null, words };
}
