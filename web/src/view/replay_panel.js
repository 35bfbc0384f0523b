// @ts-check
// Replays a turn on the server, from an empty cache, and compares every token and log-probability with the record.
import { cancelReplay, replayOf, replayTurn } from '../debug.js';
import { h, icon } from '../dom.js';
import { count, plural } from '../format.js';
import { RequestError } from '../socket.js';
import { t } from '../text.js';
import { endWord } from './server_words.js';
import { alternatives, exact, percent, tokenView, visible } from './tokens.js';

/** @typedef {import('../debug.js').Replayed} Replayed */
/** @typedef {import('../debug.js').Record_} Record_ */

/** @param {string} session @param {Record_} record @returns {Node[]} */
export function replayPanel(session, record) {
  const result = h('div', { class: 'replay-result', role: 'status' });
  const button = h(
    'button',
    { type: 'button', class: 'button primary', onclick: () => run() },
    icon('again'),
    t('Replay this turn'),
  );

  async function run() {
    button.disabled = true;
    const cancel = h('button', { type: 'button', class: 'button small quiet', onclick: () => stop() }, t('Cancel'));
    const stop = () => {
      cancel.disabled = true;
      cancelReplay(session).catch(() => (cancel.disabled = false)); // the replay's answer shows the result
    };
    result.replaceChildren(
      h(
        'p',
        { class: 'replay-runs' },
        h('span', { class: 'spinner', 'aria-hidden': 'true' }),
        t('Recomputing the answer…'),
        cancel,
      ),
    );
    try {
      result.replaceChildren(...verdict(session, await replayTurn(session, record.turn.turn), record));
    } catch (error) {
      if (error instanceof RequestError && error.code === 'cancelled')
        result.replaceChildren(h('p', { class: 'panel-text' }, t('The replay was cancelled.')));
      else
        result.replaceChildren(
          h('p', { class: 'form-problem' }, t('The replay failed: {0}', error instanceof Error ? error.message : error)),
        );
    }
    button.disabled = false;
    if (result.contains(document.activeElement) || document.activeElement === document.body) button.focus({ preventScroll: true });
  }

  const known = replayOf(session, record.turn.turn);
  if (known?.running) run();
  else if (known?.found) result.append(...verdict(session, known.found, record));
  return [
    h(
      'p',
      { class: 'panel-text' },
      t('The server processes the conversation up to this answer with an empty cache and samples again with the recorded seed. Every token and log-probability is compared; nothing is recorded.'),
    ),
    h('p', null, button),
    result,
  ];
}

/** @param {Replayed} found @returns {string} */
function ending(found) {
  if (found.cut_short) return t(' The recorded answer was stopped; the comparison ends there.');
  if (found.ended_alike === false && found.finish_reason)
    return t(' Different finish reasons: {0} recorded, {1} now.', endWord(found.finish_reason.recorded), endWord(found.finish_reason.replayed));
  return '';
}

/** @param {string} session @param {Replayed} found @param {Record_} record @returns {Node[]} */
function verdict(session, found, record) {
  const { divergence, other_token: other } = found;
  const position = record.log_first === null ? null : record.log_first + record.input_ids.length;
  const parts = [
    h(
      'p',
      { class: found.equal ? 'verdict equal' : 'verdict differs' },
      icon(found.equal ? 'check' : 'warning'),
      h(
        'span',
        null,
        h('strong', null, found.equal ? t('Equal to the last bit.') : headline(divergence)),
        t(' {0} compared{1}.{2}', plural(found.compared_tokens, 'token'), found.logprobs_differ ? `, ${found.logprobs_differ === 1 ? t('one log-probability differs') : t('{0} log-probabilities differ', count(found.logprobs_differ))}`
            : '', ending(found)),
      ),
    ),
  ];
  if (found.differs.length)
    parts.push(
      h('h3', null, t('What has changed')),
      h(
        'table',
        { class: 'differs' },
        h('thead', null, h('tr', null, ...['', t('Then'), t('Now')].map((name) => h(name ? 'th' : 'td', name ? { scope: 'col' } : null, name)))),
        h(
          'tbody',
          null,
          ...found.differs.map((d) =>
            h('tr', null, h('th', { scope: 'row' }, d.what), h('td', null, d.recorded), h('td', null, d.now)),
          ),
        ),
      ),
    );
  if (!found.equal && found.differs.some((d) => d.what === 'instance'))
    parts.push(
      h(
        'p',
        { class: 'panel-text' },
        t('This server replays with its current settings. '),
        h('code', null, `parley replay ${session} --turn ${record.turn.turn}`),
        t(' uses the recorded number format.'),
      ),
    );
  if (divergence) parts.push(sides(divergence, found, record));
  if (other) parts.push(h('h3', null, headline(other)), sides(other, found, record));
  const at = other?.index ?? divergence?.index;
  if (at === undefined) {
    parts.push(h('h3', null, t('Replayed answer')));
    parts.push(tokenView(found.tokens, { label: t('Tokens in the replay'), position }).element);
    return parts;
  }
  // Both texts are equal up to the first different token.
  /** @param {import('../debug.js').Token[]} tokens */
  const marks = (tokens) => new Map(tokens.map((_, i) => [i, i < at ? 'same' : i === at ? 'diverges' : 'after']));
  parts.push(
    h(
      'div',
      { class: 'both' },
      h(
        'section',
        null,
        h('h3', null, t('Then')),
        tokenView(record.tokens, { label: t('Recorded tokens'), position, marks: marks(record.tokens), chosen: at }).element,
      ),
      h(
        'section',
        null,
        h('h3', null, t('Now')),
        tokenView(found.tokens, { label: t('Tokens in the replay'), position, marks: marks(found.tokens), chosen: at }).element,
      ),
    ),
  );
  return parts;
}

/** @param {import('../debug.js').Divergence | undefined} divergence */
function headline(divergence) {
  if (!divergence) return t('Not equal.');
  const at = t('at token {0}', count(divergence.index + 1));
  if (divergence.kind === 'logprob') return t('The log-probabilities differ {0}.', at);
  if (divergence.kind === 'end') return t('One answer ends {0}.', at);
  return t('The answers differ {0}.', at);
}

/** @param {import('../debug.js').Divergence} divergence @param {Replayed} found @param {Record_} record */
function sides({ position, recorded, replayed, index }, found, record) {
  /** @param {string} name @param {import('../debug.js').Choice} choice @param {Array<Node | false>} more */
  const side = (name, choice, ...more) =>
    h(
      'section',
      { class: 'side' },
      h('h4', null, name),
      choice.id === null
        ? h('p', null, t('the end'))
        : h('p', null, h('code', null, visible(choice)), ` ${percent(choice.logprob)} `, h('small', null, exact(choice.logprob))),
      ...more,
    );
  const then = record.tokens[index]?.top; // only if the turn recorded alternatives
  const top = replayed.top?.length ? replayed.top : found.tokens[index]?.top;
  return h(
    'div',
    { class: 'sides', 'data-position': String(position) },
    side(
      t('Then'),
      recorded,
      recorded.logprob_now !== null &&
        recorded.logprob_now !== undefined &&
        h('p', { class: 'panel-text' }, t('Now the model gives it {0}.', percent(recorded.logprob_now))),
      !!then?.length && alternatives(then, recorded.id),
    ),
    side(t('Now'), replayed, !!top?.length && alternatives(top, replayed.id)),
  );
}
