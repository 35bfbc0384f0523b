// @ts-check
// A small plot of the last minutes: lines over a common scale that begins at 0.
import { h, setText } from '../dom.js';
import { KEPT_S } from '../metrics.js';
import { t } from '../text.js';

const WIDTH = 300;
const HEIGHT = 72;
const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {string} title
 * @param {string[]} names of the lines
 * @param {(value: number) => string} format
 * @param {number} [least] the scale's least end
 */
export function plot(title, names, format, least = 0) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  const lines = names.map((_, i) => {
    const line = document.createElementNS(SVG, 'polyline');
    line.setAttribute('class', `plot-line plot-${i}`);
    svg.append(line);
    return line;
  });
  const now = names.map(() => h('b', null));
  const top = h('span', { class: 'plot-top', 'aria-hidden': 'true' });
  const element = h(
    'section',
    { class: 'tile' },
    h('h2', null, title),
    h(
      'p',
      { class: 'plot-legend' },
      ...names.map((name, i) => h('span', null, h('i', { class: `plot-${i}`, 'aria-hidden': 'true' }), `${name} `, now[i])),
    ),
    h('div', { class: 'plot' }, top, svg),
    h('p', { class: 'plot-axis', 'aria-hidden': 'true' }, h('span', null, t('{0} min ago', KEPT_S / 60)), h('span', null, t('now'))),
  );
  /**
   * @param {number[][]} values of each line, oldest first; NaN is a gap
   * @param {number[]} times of the values, in seconds; of a line with fewer values they are the last ones
   */
  function draw(values, times) {
    const latest = times.at(-1) ?? 0;
    const most = Math.max(least, ...values.flat().filter(Number.isFinite));
    const scale = most > 0 ? (HEIGHT - 4) / most : 0;
    setText(top, most > 0 ? format(most) : '');
    values.forEach((list, i) => {
      const first = times.length - list.length;
      const points = list
        .map((value, i) => [(1 - (latest - times[first + i]) / KEPT_S) * WIDTH, HEIGHT - 2 - value * scale])
        .filter(([, y]) => Number.isFinite(y));
      lines[i].setAttribute('points', points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' '));
      const last = list.at(-1);
      setText(now[i], last === undefined || !Number.isFinite(last) ? '–' : format(last));
    });
    svg.setAttribute('aria-label', names.map((name, i) => `${name}: ${now[i].textContent}`).join(', '));
  }
  return { element, draw };
}
