// @ts-check
// A button that copies a text and says for a moment that it has.
import { copyText } from '../clipboard.js';
import { icon } from '../dom.js';
import { t } from '../text.js';
import { toast } from '../notices.js';

/** @param {HTMLElement} button @param {string} text @param {string} [html] */
export async function copyFrom(button, text, html) {
  const done = await copyText(text, html);
  if (!done) {
    toast(t('The browser blocked copying.'), 'error');
    return;
  }
  const before = [...button.childNodes];
  if (button.classList.contains('done')) return;
  button.replaceChildren(icon('check'));
  button.classList.add('done');
  setTimeout(() => {
    button.replaceChildren(...before);
    button.classList.remove('done');
  }, 1600);
}
