// @ts-check
// Plays the recorded conversation back, or goes through it token by token with a slider: what stood there, and what the
// model had to choose from.
import { fetchWhole } from '../actions.js';
import { fetchTurn, replayOf } from '../debug.js';
import { h, setText } from '../dom.js';
import { clock, count, plural } from '../format.js';
import { countSteps, momentOf, pauseOf, placeOf, stepOf } from '../playback.js';
import { t } from '../text.js';
import { bubble } from './bubble.js';
import { alternatives, exact, percent, shadeOf, visible } from './tokens.js';

/** @typedef {import('../debug.js').Record_} Record_ */
/** @typedef {import('../turns.js').Turn} Turn */

/** @param {string} session @param {number} turn the one that is inspected @returns {Node[]} */
export function playbackPanel(session, turn) {
  /** @type {Turn[]} */
  let turns = [];
  /** @type {Map<number, Promise<Record_>>} */
  const records = new Map();
  /** @type {any} */
  let timer = null;
  let playing = false;
  let drawn = 0; // counts drawings: a record that comes late is not drawn over a later place

  const status = h('p', { class: 'panel-text', role: 'status' }, t('Loading…'));
  const slider = h('input', { type: 'range', id: 'playback', class: 'playback-slider', min: '0', step: '1', value: '0', 'aria-label': t('Place in the conversation'), oninput: () => (pause(), draw()) });
  const play = h('button', { type: 'button', class: 'button small', onclick: () => (playing ? pause() : start()) });
  const back = h('button', { type: 'button', class: 'button small quiet', onclick: () => jump(-1) }, t('Previous turn'));
  const on = h('button', { type: 'button', class: 'button small quiet', onclick: () => jump(1) }, t('Next turn'));
  const controls = h('div', { class: 'playback', hidden: true }, slider, h('div', { class: 'playback-buttons' }, play, back, on));
  const scene = h('div', { class: 'playback-scene' });
  const at = () => placeOf(turns, slider.valueAsNumber);

  /** @param {number} number */
  function recordOf(number) {
    const known = records.get(number) ?? fetchTurn(session, number);
    records.set(number, known);
    return known;
  }

  function pause() {
    playing = false;
    clearTimeout(timer);
    setText(play, t('Play'));
  }

  function start() {
    if (slider.valueAsNumber >= Number(slider.max)) slider.value = '0';
    playing = true;
    setText(play, t('Pause'));
    next();
  }

  function next() {
    const place = at();
    timer = setTimeout(async () => {
      if (!slider.isConnected) return; // another tab of the inspector
      slider.value = String(slider.valueAsNumber + 1);
      await draw();
      if (!playing) return;
      if (slider.valueAsNumber < Number(slider.max)) next();
      else pause();
    }, pauseOf(turns[place.turn], place.tokens));
  }

  /** @param {1 | -1} step */
  function jump(step) {
    pause();
    const place = at();
    const to = step < 0 && place.tokens ? place.turn : place.turn + step;
    slider.value = String(stepOf(turns, Math.max(0, Math.min(turns.length - 1, to))));
    draw();
  }

  async function draw() {
    const mine = ++drawn;
    const place = at();
    const shown = turns[place.turn];
    const name = t('Turn {0} of {1}', count(place.turn + 1), count(turns.length));
    slider.setAttribute('aria-valuetext', place.tokens ? t('{0}, token {1}', name, count(place.tokens)) : t('{0}, the message', name));
    back.disabled = slider.valueAsNumber === 0;
    on.disabled = place.turn === turns.length - 1;
    try {
      const record = await recordOf(shown.turn);
      if (mine !== drawn) return;
      setText(status, [name, place.tokens && t('token {0} of {1}', count(place.tokens), count(record.tokens.length)), clock(momentOf(shown, record.started_ms, place.tokens))].filter(Boolean).join(' · '));
      scene.replaceChildren(...sceneOf(record, place.tokens));
    } catch (error) {
      pause();
      if (mine === drawn) setText(status, error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {Record_} record @param {number} n of its tokens @returns {Node[]} */
  function sceneOf(record, n) {
    const { input } = record.turn;
    const said = input.continue ? t('Continues the previous answer') : (input.content ?? input.text ?? plural(record.input_ids.length, 'token id'));
    const last = record.tokens[n - 1];
    const replay = replayOf(session, record.turn.turn)?.found;
    const top = last?.top ?? (replay?.equal ? replay.tokens[n - 1]?.top : undefined);
    return [
      h('div', { class: 'said' }, bubble(said)),
      h('div', { class: 'tokens', dir: 'auto' }, ...record.tokens.slice(0, n).map((token) => h('span', { class: `token${shadeOf(token)}` }, token.text ? token.text.replaceAll('\n', '↵\n') : visible(token)))),
      ...(last ? [h('p', { class: 'token-text' }, h('code', null, visible(last)), Number.isFinite(last.logprob) && ` ${percent(last.logprob)} `, Number.isFinite(last.logprob) && h('small', null, exact(last.logprob)))] : []),
      ...(top?.length ? [alternatives(top, last.id)] : []),
    ];
  }

  async function load() {
    turns = (await fetchWhole(session)).turns.filter((/** @type {Turn} */ one) => one.state === 'done');
    slider.max = String(countSteps(turns) - 1);
    controls.hidden = !turns.length;
    if (!turns.length) return setText(status, t('This chat has no answers yet.'));
    const first = turns.findIndex((one) => one.turn === turn); // not of the path shown: from the start
    slider.value = String(stepOf(turns, Math.max(0, first)));
    return draw();
  }
  pause();
  load().catch((error) => setText(status, error instanceof Error ? error.message : String(error)));
  return [h('p', { class: 'panel-text' }, t('The conversation as it was at any moment, from its record: no model runs.')), controls, status, scene];
}
