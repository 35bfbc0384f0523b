// @ts-check
// The message field: a module of its own, because several views put text into it.
import { h } from '../dom.js';
import { t } from '../text.js';

export const touchScreen = matchMedia('(pointer: coarse) and (hover: none)');

export const field = h('textarea', {
  id: 'message',
  rows: 1,
  placeholder: t('Message'),
  autocomplete: 'off',
  enterKeyHint: touchScreen.matches ? 'enter' : 'send',
  dir: 'auto',
  'aria-describedby': 'composer-hint',
});

// Safari sizes no field by its text (field-sizing).
const sizesItself = CSS.supports('field-sizing', 'content');

/** Makes a field as high as its text. @param {HTMLTextAreaElement} area */
export function fitText(area) {
  if (sizesItself) return;
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight}px`;
}

/**
 * Whether a key belongs to an input method. Safari ends the composition before the key that ends it (key code 229).
 * @param {KeyboardEvent} event
 */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

/** Puts text behind what is in the field. @param {string} text */
export const addMessage = (text) => writeMessage(field.value.trim() ? `${field.value.trimEnd()}\n\n${text}` : text);

/** Puts text into the field as if it had been typed, the cursor at its end. @param {string} text */
export function writeMessage(text) {
  field.value = text;
  field.setSelectionRange(text.length, text.length);
  field.dispatchEvent(new Event('input'));
  field.focus();
}
