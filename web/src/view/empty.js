// @ts-check
// An empty chat: a greeting, and what the model's folder suggests to say.
import { send } from '../sending.js';
import { h, icon, newMemo } from '../dom.js';
import { nextModel, subscribe } from '../state.js';
import { t } from '../text.js';
import { modelPicker, systemField } from './fresh.js';

const suggestions = h('ul', { class: 'suggestions' });
const memo = newMemo();

function drawSuggestions() {
  const rows = nextModel()?.suggestions ?? [];
  const items = () =>
    rows.map(({ title, text }) =>
      h(
        'li',
        null,
        h(
          'button',
          { type: 'button', class: 'suggestion', onclick: () => send(text) },
          h('span', { class: 'suggestion-title', dir: 'auto' }, title),
          h('span', { class: 'suggestion-text', dir: 'auto' }, text),
        ),
      ),
    );
  memo(rows, () => suggestions.replaceChildren(...items()));
}
subscribe('connection', drawSuggestions);
subscribe('prefs', drawSuggestions); // the model of the next chat

export function emptyView() {
  drawSuggestions();
  return h(
    'div',
    { class: 'empty' },
    h('div', { class: 'empty-mark' }, icon('logo')),
    h('h2', null, t('What would you like to talk about?')),
    h('p', { class: 'empty-text' }, t('The server keeps the conversation. You can close this page and continue later.')),
    suggestions,
    modelPicker(),
    systemField(),
  );
}
