// @ts-check
// Edits a message, or an answer, in place.
import { typing } from '../sending.js';
import { h } from '../dom.js';
import { t } from '../text.js';
import { fitText, isComposing, touchScreen } from './message_field.js';

/**
 * @typedef {{element: HTMLElement, text: () => string, changed: () => boolean, setBusy: (busy: boolean) => void}} Editor
 */

/**
 * @param {string} text
 * @param {(text: string) => Promise<string>} send gives '' or what went wrong
 * @param {() => void} leave
 * @param {{label: string, name: string, action: string}} [words]
 * @returns {Editor}
 */
export function messageEditor(text, send, leave, words = { label: t('Edit message'), name: t('Your message'), action: t('Send') }) {
  const area = h('textarea', {
    class: 'editor-text',
    value: text,
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
  const hint = h('p', { class: 'editor-hint', id: 'editor-hint' });
  const problem = h('p', { class: 'editor-problem', role: 'alert', hidden: true });
  const sendButton = h('button', { type: 'submit', class: 'button small primary' }, words.action);
  const element = h(
    'form',
    { class: 'editor', 'aria-label': words.label, onsubmit: submit },
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

  function draw() {
    sendButton.disabled = busy || sending || !area.value.trim();
    hint.textContent = busy
      ? t('You can send this after the answer.')
      : t('Creates a new version. The original is kept.');
  }

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    if (busy || sending || !area.value.trim()) return;
    sending = true;
    problem.hidden = true;
    draw();
    const wrong = await send(area.value.trim());
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
  draw();
  requestAnimationFrame(() => fitText(area)); // when it is on the page
  return {
    element,
    text: () => area.value.trim(),
    changed: () => area.value.trim() !== text,
    setBusy(now) {
      busy = now;
      draw();
    },
  };
}
