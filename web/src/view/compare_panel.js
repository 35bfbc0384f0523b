// @ts-check
// Two versions of a turn side by side, with the words that differ.
import { fetchTurn } from '../debug.js';
import { h, setText } from '../dom.js';
import { currentChat, turnOf } from '../state.js';
import { t } from '../text.js';
import { textsSideBySide } from './texts.js';

/** @typedef {import('../debug.js').Record_} Record_ */

/** The turns that a turn can be compared with: those that follow the same one. @param {number} turn @returns {number[]} */
export function otherVersions(turn) {
  const chat = currentChat(); // a record does not have them
  const siblings = (chat && turnOf(chat, turn)?.siblings) ?? [];
  return siblings.filter((other) => other !== turn);
}

/** Counts the versions from the oldest, as the switch at a message does. @param {number} turn @param {number[]} all */
const versionName = (turn, all) => t('Version {0}', all.filter((other) => other <= turn).length);

/** @param {Record_['turn']['input']} input */
const said = (input) => input.content ?? input.text ?? '';

/** @param {string} session @param {Record_} record @param {number[]} others @returns {Node[]} */
export function comparePanel(session, record, others) {
  const result = h('div', { 'aria-live': 'polite' });
  let asked = 0;

  /** @param {number} number */
  async function compare(number) {
    const mine = ++asked;
    result.replaceChildren(h('p', { class: 'panel-text' }, t('Loading…')));
    try {
      const other = await fetchTurn(session, number);
      if (mine === asked) result.replaceChildren(...differences(record, other, [...others, record.turn.turn]));
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
    ...others.map((turn) => h('option', { value: String(turn) }, versionName(turn, [...others, record.turn.turn]))),
  );
  const nearest = others.filter((turn) => turn < record.turn.turn).at(-1) ?? others[0];
  choice.value = String(nearest);
  compare(nearest);
  return [
    h('p', { class: 'inspector-choice' }, h('label', { for: 'compare-with' }, t('{0} compared with', versionName(record.turn.turn, [...others, record.turn.turn]))), choice),
    result,
  ];
}

/** @param {Record_} mine @param {Record_} other @param {number[]} all the versions @returns {Node[]} */
function differences(mine, other, all) {
  const [older, newer] = mine.turn.turn < other.turn.turn ? [mine.turn, other.turn] : [other.turn, mine.turn];
  const names = /** @type {[string, string]} */ ([versionName(older.turn, all), versionName(newer.turn, all)]);
  const messages = [said(older.input), said(newer.input)];
  return [
    ...(messages[0] === messages[1]
      ? [h('p', { class: 'panel-text' }, t('Both answer the same message.'))]
      : [h('h3', null, t('Message')), textsSideBySide(messages[0], messages[1], names)]),
    h('h3', null, t('Answer')),
    ...(older.text === newer.text ? [h('p', { class: 'panel-text' }, t('Both answers are the same.'))] : []),
    textsSideBySide(older.text, newer.text, names),
  ];
}
