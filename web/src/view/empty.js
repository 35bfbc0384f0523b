// @ts-check
// An empty chat: a greeting and suggestions.
import { send } from '../sending.js';
import { h, icon } from '../dom.js';
import { modelPicker, systemField } from './fresh.js';

/** @type {Array<[string, string]>} what it shows, what it says */
const SUGGESTIONS = [
  ['Introduce yourself', 'My name is Zora.'],
  ['Add two numbers', 'What is 17 + 25?'],
  ['Ask for a capital', 'What is the capital of Norway?'],
  ['Draw a small table', 'Make a table of three countries and their capitals.'],
  ['See some code', 'Write hello world in C.'],
  ['Book a restaurant', "I'd like to book a table at a restaurant."],
];

export function emptyView() {
  return h(
    'div',
    { class: 'empty' },
    h('div', { class: 'empty-mark' }, icon('logo')),
    h('h2', null, 'What would you like to talk about?'),
    h('p', { class: 'empty-text' }, 'The server keeps the conversation. You can close this page and continue later.'),
    h(
      'ul',
      { class: 'suggestions' },
      ...SUGGESTIONS.map(([title, text]) =>
        h(
          'li',
          null,
          h(
            'button',
            { type: 'button', class: 'suggestion', onclick: () => send(text) },
            h('span', { class: 'suggestion-title' }, title),
            h('span', { class: 'suggestion-text' }, text),
          ),
        ),
      ),
    ),
    modelPicker(),
    systemField(),
  );
}
