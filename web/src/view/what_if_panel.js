// @ts-check
// What if: other values from a turn on, and both answers side by side.
import { show } from '../actions.js';
import { h, icon, newMemo, setText } from '../dom.js';
import { plural } from '../format.js';
import { state } from '../state.js';
import { t } from '../text.js';
import { dropWhatIf, keepWhatIf, startWhatIf, stopWhatIf, whatIfOf } from '../what_if.js';
import { makeField, samplingGrid, samplingRows } from './fields.js';
import { textsSideBySide } from './texts.js';

/** @typedef {import('../debug.js').Record_} Record_ */

const FIRST = ['temperature', 'top_p', 'seed'];

/** @param {string} session @param {Record_} record @param {() => void} close @returns {Node[]} */
export function whatIfPanel(session, record, close) {
  const { turn } = record;
  const source = state.sessions.get(session);
  const used = /** @type {Record<string, any>} */ ({ ...turn.sampling, seed: turn.seed });
  const fields = samplingRows(state.connection.sampling).map((row) => makeField({ ...row, none: undefined }, { fallback: used[row.key] }));
  const system = h('textarea', { id: 'what-if-system', rows: 3, dir: 'auto', value: source?.system ?? '' });
  const problem = h('p', { class: 'form-problem', role: 'alert', hidden: true });
  const result = h('div', { class: 'what-if-result' });
  const button = h('button', { type: 'submit', class: 'button primary' }, icon('again'), t('Run with these values'));

  /** @param {string} message */
  function fail(message) {
    problem.hidden = !message;
    setText(problem, message);
  }

  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    fail('');
    try {
      const sampling = Object.fromEntries(
        fields.map((field) => [field.row.key, field.get()]).filter(([, value]) => value !== undefined),
      );
      const prompt = system.value === (source?.system ?? '') ? undefined : system.value;
      const names = [...Object.entries(sampling).map((pair) => pair.join(' ')), ...(prompt === undefined ? [] : [t('system prompt')])];
      if (!names.length) throw new Error(t('Change at least one value.'));
      watch(startWhatIf(session, turn.turn, { sampling, system: prompt, title: t('What if: {0}', names.join(', ')) }));
    } catch (error) {
      const folded = fields.find((field) => field.element.classList.contains('bad'))?.element.closest('details');
      if (folded) folded.open = true;
      fail(error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {import('../what_if.js').Run} run */
  function watch(run) {
    run.changed = () => draw(run);
    draw(run);
  }

  /** @type {Map<import('../what_if.js').Pair, {memo: ReturnType<typeof newMemo>, element: Element | null}>} */
  let drawn = new Map();
  const status = h('p', { class: 'replay-runs', role: 'status' });
  const statusMemo = newMemo();

  // Only what has changed, so that a button can be pressed while an answer streams.
  /** @param {import('../what_if.js').Run} run */
  function draw(run) {
    drawStatus(run);
    const before = drawn;
    drawn = new Map();
    for (const pair of run.pairs) {
      const view = before.get(pair) ?? { memo: newMemo(), element: null };
      view.memo([pair.now?.state, pair.now?.text.length], () => {
        const element = pairView(pair);
        view.element?.replaceWith(element);
        view.element = element;
      });
      drawn.set(pair, view);
    }
    if (result.childElementCount !== run.pairs.length + 1 || before.size !== drawn.size)
      result.replaceChildren(status, ...[...drawn.values()].map(({ element }) => /** @type {Element} */ (element)));
  }

  /** @param {import('../what_if.js').Run} run */
  function drawStatus(run) {
    statusMemo([run.session, run.phase, run.left, run.message, run.pairs.length], () => redrawStatus(run));
  }

  /** @param {import('../what_if.js').Run} run */
  function redrawStatus(run) {
    const running = run.phase === 'running';
    button.disabled = running;
    const action = (/** @type {string} */ label, /** @type {() => void} */ onclick) =>
      h('button', { type: 'button', class: 'button small', onclick }, label);
    const line = running
      ? [
          h('span', { class: 'spinner', 'aria-hidden': 'true' }),
          run.left ? t('Running; {0} to go…', plural(run.left, 'message')) : t('Running…'),
          action(t('Stop'), () => stopWhatIf(run)),
        ]
      : [
          run.message || t('Done. The copy is deleted when you close the inspector.'),
          run.pairs.length > 0 &&
            action(t('Keep as a chat'), () => {
              keepWhatIf(run);
              close();
              show(run.session);
            }),
          action(t('Discard'), () => {
            dropWhatIf(session, turn.turn);
            result.replaceChildren();
          }),
        ];
    status.replaceChildren(...line.filter((part) => part !== false));
  }

  const known = whatIfOf(session, turn.turn);
  if (known) watch(known);
  return [
    h(
      'p',
      { class: 'panel-text' },
      t('Runs this message and those after it again, in a copy of the chat. Empty fields keep the recorded values.'),
    ),
    h(
      'form',
      { noValidate: true, onsubmit: submit },
      samplingGrid(fields, FIRST),
      h('label', { for: 'what-if-system', class: 'field-label block' }, t('System prompt')),
      h('p', { class: 'field-hint block' }, t('Another prompt runs the conversation again from its first message.')),
      system,
      problem,
      h('p', { class: 'what-if-run' }, button),
    ),
    result,
  ];
}

/** @param {import('../what_if.js').Pair} pair */
function pairView({ said, before, now }) {
  const over = now?.state === 'done';
  const words = over && before.text === now.text ? t('The same answer.') : '';
  return h(
    'div',
    { class: 'what-if-pair' },
    h('h3', { dir: 'auto' }, said),
    words && h('p', { class: 'panel-text' }, words),
    textsSideBySide(before.text, now?.text ?? '', [t('Recorded'), t('Now')], over),
  );
}
