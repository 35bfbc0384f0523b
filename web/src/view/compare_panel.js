// @ts-check
// Two versions of a turn side by side, with the words that differ.
import { fetchTurn } from '../debug.js';
import { h, setText } from '../dom.js';
import { currentChat, turnOf } from '../state.js';
import { textsSideBySide } from './texts.js';

/** @typedef {import('../debug.js').Record_} Record_ */

/** The turns that a turn can be compared with: those that follow the same one. @param {number} turn @returns {number[]} */
export function otherVersions(turn) {
  const chat = currentChat(); // a record does not have them
  const siblings = (chat && turnOf(chat, turn)?.siblings) ?? [];
  return siblings.filter((other) => other !== turn);
}

/** @param {Record_['turn']['input']} input */
const said = (input) => input.content ?? input.text ?? '';

/** @param {string} session @param {Record_} record @param {number[]} others @returns {Node[]} */
export function comparePanel(session, record, others) {
  const result = h('div', { 'aria-live': 'polite' });
  let asked = 0;

  /** @param {number} number */
  async function compare(number) {
    const mine = ++asked;
    result.replaceChildren(h('p', { class: 'panel-text' }, 'Loading…'));
    try {
      const other = await fetchTurn(session, number);
      if (mine === asked) result.replaceChildren(...differences(record, other));
    } catch (error) {
      if (mine !== asked) return;
      const problem = h('p', { class: 'form-problem' });
      setText(problem, error instanceof Error ? error.message : String(error));
      result.replaceChildren(problem);
    }
  }

  const choice = h(
    'select',
    { id: 'compare-with', onchange: (/** @type {any} */ event) => compare(Number(event.target.value)) },
    ...others.map((turn) => h('option', { value: String(turn) }, `turn ${turn}`)),
  );
  const nearest = others.filter((turn) => turn < record.turn.turn).at(-1) ?? others[0];
  choice.value = String(nearest);
  compare(nearest);
  return [
    h('p', { class: 'inspector-choice' }, h('label', { for: 'compare-with' }, `Turn ${record.turn.turn} compared with`), choice),
    result,
  ];
}

/** @param {Record_} mine @param {Record_} other @returns {Node[]} */
function differences(mine, other) {
  const [older, newer] = mine.turn.turn < other.turn.turn ? [mine.turn, other.turn] : [other.turn, mine.turn];
  const names = /** @type {[string, string]} */ ([`Turn ${older.turn}`, `Turn ${newer.turn}`]);
  const messages = [said(older.input), said(newer.input)];
  return [
    ...(messages[0] === messages[1]
      ? [h('p', { class: 'panel-text' }, 'Both answer the same message.')]
      : [h('h3', null, 'Message'), textsSideBySide(messages[0], messages[1], names)]),
    h('h3', null, 'Answer'),
    ...(older.text === newer.text ? [h('p', { class: 'panel-text' }, 'Both answers are the same.')] : []),
    textsSideBySide(older.text, newer.text, names),
  ];
}
