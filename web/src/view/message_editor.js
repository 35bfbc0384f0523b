// @ts-check
// Edits a message, or an answer, in place. The files of a message stay what they are, or are removed.
import { filesOf, withFiles } from '../attachments.js';
import { typing } from '../sending.js';
import { h } from '../dom.js';
import { t } from '../text.js';
import { fileChip } from './file_chips.js';
import { fitText, isComposing, touchScreen } from './message_field.js';

/**
 * @typedef {{element: HTMLElement, text: () => string, changed: () => boolean, setBusy: (busy: boolean) => void}} Editor
 */

/**
 * @param {string} text
 * @param {(text: string) => Promise<string>} send gives '' or what went wrong
 * @param {() => void} leave
 * @param {{label: string, name: string, action: string, files?: boolean}} [words] files: it may begin with some
 * @returns {Editor}
 */
export function messageEditor(text, send, leave, words = { label: t('Edit message'), name: t('Your message'), action: t('Send'), files: true }) {
  const parts = words.files ? filesOf(text) : { files: [], words: text };
  let { files } = parts;
  const area = h('textarea', {
    class: 'editor-text',
    value: parts.words,
    rows: 1,
    dir: 'auto',
    'aria-label': words.name,
    'aria-describedby': 'editor-hint',
    enterKeyHint: touchScreen.matches ? 'enter' : 'send',
    oninput() {
      typing();
      fitText(area);
      draw();
    },
  });
  const chips = h('ul', { class: 'file-chips', 'aria-label': t('Files in this message') });
  const whole = () => withFiles(files, area.value.trim());
  const hint = h('p', { class: 'editor-hint', id: 'editor-hint' });
  const problem = h('p', { class: 'editor-problem', role: 'alert', hidden: true });
  const sendButton = h('button', { type: 'submit', class: 'button small primary' }, words.action);
  const element = h(
    'form',
    { class: 'editor', 'aria-label': words.label, onsubmit: submit },
    chips,
    area,
    problem,
    h(
      'div',
      { class: 'editor-bar' },
      hint,
      h('button', { type: 'button', class: 'button small quiet', onclick: leave }, t('Cancel')),
      sendButton,
    ),
  );
  let busy = false;
  let sending = false;

  function drawFiles() {
    chips.hidden = !files.length;
    const remove = (/** @type {import('../attachments.js').Attachment} */ file) => {
      files = files.filter((other) => other !== file);
      drawFiles();
      draw();
      area.focus();
    };
    chips.replaceChildren(...files.map((file) => fileChip(file, () => remove(file))));
  }

  function draw() {
    sendButton.disabled = busy || sending || !whole();
    hint.textContent = busy
      ? t('You can send this after the answer.')
      : t('Creates a new version. The original is kept.');
  }

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    if (busy || sending || !whole()) return;
    sending = true;
    problem.hidden = true;
    draw();
    const wrong = await send(whole());
    sending = false;
    problem.hidden = !wrong;
    problem.textContent = wrong;
    draw();
  }

  area.addEventListener('keydown', (event) => {
    if (isComposing(event)) return;
    const sends = !event.shiftKey && !event.altKey && (!touchScreen.matches || event.ctrlKey || event.metaKey);
    if (event.key === 'Enter' && sends) {
      event.preventDefault();
      element.requestSubmit();
    }
  });
  element.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || isComposing(event)) return;
    event.preventDefault();
    event.stopPropagation(); // Esc elsewhere stops the answer
    leave();
  });
  drawFiles();
  draw();
  requestAnimationFrame(() => {
    fitText(area); // when it is on the page
    element.scrollIntoView({ block: 'nearest' });
  });
  return {
    element,
    text: whole,
    changed: () => whole() !== text,
    setBusy(now) {
      busy = now;
      draw();
    },
  };
}
