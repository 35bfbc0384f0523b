// @ts-check
// The text of a message, with a button in it when it is very long.
import { h } from '../dom.js';
import { t } from '../text.js';
import { sentFiles } from './file_chips.js';

const LONG_CHARACTERS = 1600;
const LONG_LINES = 16;

/** @param {string} content */
export function bubble(content) {
  const { chips, words: text } = sentFiles(content);
  const body = h('div', { class: 'bubble-text', dir: 'auto' }, text);
  if (text.length <= LONG_CHARACTERS && text.split('\n').length <= LONG_LINES)
    return h('div', { class: 'bubble' }, chips, (!chips || !!text) && body);
  body.classList.add('folded');
  const button = h(
    'button',
    {
      type: 'button',
      class: 'link-button',
      'aria-expanded': 'false',
      onclick() {
        const folded = body.classList.toggle('folded');
        button.setAttribute('aria-expanded', String(!folded));
        button.textContent = folded ? t('Show all') : t('Show less');
      },
    },
    t('Show all'),
  );
  return h('div', { class: 'bubble' }, chips, body, button);
}
