// @ts-check
// The list that “/” opens in the message field: presets by name, and the library.
import { h } from '../dom.js';
import { presets } from '../prefs.js';
import { t } from '../text.js';
import { field, isComposing, writeMessage } from './message_field.js';
import { described, openPresets, usePreset } from './presets.js';

const list = h('ul', { class: 'slash', id: 'slash', role: 'listbox', 'aria-label': t('Presets'), hidden: true });
/** @type {Array<{label: string, text: string, run: () => void}>} */
let shown = [];
let at = 0;

function close() {
  list.hidden = true;
  field.removeAttribute('aria-activedescendant');
  field.removeAttribute('aria-controls');
}

/** @param {number} i */
function choose(i) {
  const { run } = shown[i];
  close();
  writeMessage('');
  run();
}

function mark() {
  [...list.children].forEach((row, i) => row.setAttribute('aria-selected', String(i === at)));
  list.children[at]?.scrollIntoView({ block: 'nearest' });
  field.setAttribute('aria-activedescendant', `slash-${at}`);
}

/** Shows what fits the text of the field, or nothing. */
export function offer() {
  const typed = /^\/(\S*)$/u.exec(field.value)?.[1].toLowerCase();
  const fits = typed === undefined ? [] : presets().filter(({ name }) => name.toLowerCase().replace(/\s/gu, '-').includes(typed));
  shown = fits.map((preset) => ({ label: preset.name, text: described(preset), run: () => usePreset(preset) }));
  if (typed !== undefined && (!typed || 'presets'.startsWith(typed))) shown.push({ label: t('Presets…'), text: t('Add, change, import, export'), run: openPresets });
  if (!shown.length) return close();
  if (!list.isConnected) field.before(list);
  list.replaceChildren(
    ...shown.map(({ label, text }, i) =>
      h(
        'li',
        { role: 'option', id: `slash-${i}`, class: 'slash-row', onpointerdown: (/** @type {Event} */ event) => event.preventDefault(), onclick: () => choose(i) },
        h('span', { class: 'preset-name', dir: 'auto' }, label),
        h('span', { class: 'preset-text', dir: 'auto' }, text),
      ),
    ),
  );
  list.hidden = false;
  field.setAttribute('aria-controls', 'slash');
  at = 0;
  return mark();
}

field.addEventListener(
  'keydown',
  (event) => {
    if (list.hidden || isComposing(event)) return;
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      at = (at + move + shown.length) % shown.length;
      mark();
    } else if ((event.key === 'Enter' || event.key === 'Tab') && !event.shiftKey) choose(at);
    else if (event.key === 'Escape') close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  },
  true,
);
field.addEventListener('blur', close);
