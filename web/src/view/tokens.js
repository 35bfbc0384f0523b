// @ts-check
// A text as tokens, shaded by probability, with details of one token. Arrow keys and the pointer select it.
import { h } from '../dom.js';
import { count, decimal, percentOf } from '../format.js';
import { forms, t } from '../text.js';

/** @typedef {import('../debug.js').Token} Token */
/**
 * @typedef {{label: string, position: number | null, marks?: Map<number, string>, chosen?: number,
 *   alternatives?: (index: number) => Token[] | undefined, missing?: (index: number) => Node}} How
 *   position: of the first token in the log. marks: classes. missing: shown if there are no alternatives.
 */

// Limits of the shades, most likely first. Below the last limit the shade is strongest.
const SURE = [0.9, 0.7, 0.5, 0.3, 0.1, 0.01];

/** @param {number} logprob @returns {number} 0: sure */
const doubt = (logprob) => {
  const p = Math.exp(logprob);
  const at = SURE.findIndex((least) => p >= least);
  return at < 0 ? SURE.length : at;
};

/** The class of a token's shade. @param {{logprob: number}} token */
export const shadeOf = ({ logprob }) => (Number.isFinite(logprob) ? ` doubt-${doubt(logprob)}` : '');

/** @param {number | null | undefined} logprob */
export function percent(logprob) {
  if (logprob === null || logprob === undefined) return '–';
  const p = Math.exp(logprob) * 100;
  if (p > 0 && p < 0.01) return `<${percentOf(decimal(0.01, 2))}`;
  return percentOf(p >= 99.95 ? '100' : decimal(p, p < 1 ? 2 : 1));
}

/** As many digits as a number of 32 bits needs to be told from its neighbours. @param {number} logprob */
export const exact = (logprob) => String(Number(logprob.toPrecision(9))).replace('.', forms.point);

/** A token's text with visible white space. @param {{id: number, text: string}} token */
export function visible(token) {
  if (!token.text) return `⟨${token.id}⟩`;
  return token.text.replaceAll('\n', '↵').replaceAll('\t', '→').replace(/^ +| +$/g, (spaces) => '␣'.repeat(spaces.length));
}

/** The alternatives of a token as bars. @param {Token[]} top @param {number} [id] the sampled one */
export function alternatives(top, id) {
  return h(
    'ol',
    { class: 'alternatives' },
    ...top.map((other) => {
      const bar = h('span', { class: 'alternative-bar' });
      bar.style.width = `${Math.exp(other.logprob) * 100}%`;
      return h(
        'li',
        { class: other.id === id ? 'alternative taken' : 'alternative' },
        h('code', null, visible(other)),
        h('span', { class: 'alternative-rail', 'aria-hidden': 'true' }, bar),
        h('span', { class: 'alternative-p', title: t('Log-probability {0}', exact(other.logprob)) }, percent(other.logprob)),
      );
    }),
  );
}

/** The legend of the shades. */
export const legend = () =>
  h(
    'p',
    { class: 'legend' },
    t('Probability '),
    ...[t('over {0}', percentOf('90')), ...['70', '50', '30', '10', '1'].map(percentOf), t('less')].map((words, i) =>
      h('span', { class: `legend-step doubt-${i}` }, words),
    ),
  );

let lists = 0;

/** @param {Token[]} tokens @param {How} how */
export function tokenView(tokens, how) {
  const name = `tokens-${lists++}`;
  const close = h('div', { class: 'token-detail', id: `${name}-detail` });
  const options = tokens.map((token, i) => {
    const shade = shadeOf(token);
    return h(
      'span',
      {
        class: `token${shade} ${how.marks?.get(i) ?? ''}`,
        role: 'option',
        tabIndex: -1,
        'data-index': String(i),
        'aria-selected': 'false',
        'aria-label': `${visible(token)}${shade && `, ${percent(token.logprob)}`}`,
      },
      token.text ? token.text.replaceAll('\n', '↵\n') : visible(token),
    );
  });
  const list = h('div', { class: 'tokens', role: 'listbox', 'aria-label': how.label, dir: 'auto' }, ...options);
  let chosen = -1;

  /** @param {number} at */
  function look(at) {
    if (at < 0 || !tokens[at]) return;
    const token = tokens[at];
    const top = token.top ?? how.alternatives?.(at);
    close.replaceChildren(
      h('p', { class: 'token-text' }, h('code', null, visible(token))),
      h(
        'dl',
        { class: 'facts-list' },
        ...[
          [t('Token'), t('{0} of {1}', count(at + 1), count(tokens.length))],
          [t('Id'), String(token.id)],
          ...(how.position === null ? [] : [[t('Position'), count(how.position + at)]]),
          ...(Number.isFinite(token.logprob)
            ? [
                [t('Probability'), percent(token.logprob)],
                [t('Log-prob.'), exact(token.logprob)],
              ]
            : []),
        ].flatMap(([term, value]) => [h('dt', null, term), h('dd', null, value)]),
      ),
      ...(top?.length
        ? [h('h3', null, t('Most likely here')), alternatives(top, token.id)]
        : how.missing
          ? [how.missing(at)]
          : []),
    );
  }

  /** @param {number} at @param {boolean} [focus] */
  function choose(at, focus = false) {
    if (!options[at]) return;
    options[chosen]?.setAttribute('aria-selected', 'false');
    options[chosen]?.removeAttribute('aria-describedby');
    if (options[chosen]) options[chosen].tabIndex = -1;
    chosen = at;
    options[at].tabIndex = 0;
    options[at].setAttribute('aria-selected', 'true');
    options[at].setAttribute('aria-describedby', close.id);
    look(at);
    if (focus) {
      options[at].focus({ preventScroll: true });
      options[at].scrollIntoView({ block: 'nearest' });
    }
  }

  /** The token nearest to it on the next line. @param {number} at @param {1 | -1} step */
  function otherLine(at, step) {
    const here = options[at].getBoundingClientRect();
    let best = -1;
    let line = NaN;
    let least = Infinity;
    for (let i = at + step; options[i]; i += step) {
      const box = options[i].getClientRects()[0];
      if (!box || Math.abs(box.top - here.top) < box.height / 2) continue;
      if (Number.isNaN(line)) line = box.top;
      if (Math.abs(box.top - line) > box.height / 2) break;
      if (Math.abs(box.left - here.left) < least) {
        least = Math.abs(box.left - here.left);
        best = i;
      }
    }
    return best < 0 ? at : best;
  }

  /** @param {Event} event */
  const indexOf = (event) =>
    Number(/** @type {Element} */ (event.target).closest('.token')?.getAttribute('data-index') ?? -1);
  list.addEventListener('pointerover', (event) => look(indexOf(event)));
  list.addEventListener('pointerleave', () => look(chosen));
  list.addEventListener('click', (event) => choose(indexOf(event), true));
  list.addEventListener('keydown', (event) => {
    /** @type {Record<string, () => number>} */
    const moves = {
      ArrowRight: () => Math.min(chosen + 1, options.length - 1),
      ArrowLeft: () => Math.max(chosen - 1, 0),
      ArrowDown: () => otherLine(chosen, 1),
      ArrowUp: () => otherLine(chosen, -1),
      Home: () => 0,
      End: () => options.length - 1,
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    choose(move(), true);
  });
  choose(Math.min(how.chosen ?? 0, options.length - 1));
  return { element: h('div', { class: 'token-view' }, list, close), choose, list };
}

/** Mean doubt of an answer. @param {Token[]} tokens */
export function perplexity(tokens) {
  const known = tokens.filter((token) => Number.isFinite(token.logprob));
  return known.length ? Math.exp(-known.reduce((sum, token) => sum + token.logprob, 0) / known.length) : NaN;
}

/** @param {Token[]} tokens @returns {number} index of the least likely token; -1 for no tokens */
export const leastSure = (tokens) =>
  tokens.reduce((least, token, i) => (least < 0 || token.logprob < tokens[least].logprob ? i : least), -1);

