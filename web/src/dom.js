// @ts-check
// Creates elements without markup strings, as the content policy (Trusted Types) requires.

/**
 * An element with properties and children. `class`, `aria-*`, `data-*`, `role` and the like are attributes; `on*` are
 * listeners; the rest are properties. Children that are null or false are left out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null) continue;
    if (name === 'class') element.className = value;
    else if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'role' || name === 'for' || name === 'list' || name === 'popover' || name.includes('-'))
      element.setAttribute(name, String(value));
    else /** @type {any} */ (element)[name] = value;
  }
  for (const child of children)
    if (child !== null && child !== undefined && child !== false) element.append(/** @type {any} */ (child));
  return element;
}

/** Sets text only where it differs: an unchanged node costs no layout. @param {Node} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {Element} element @param {string} name @param {string | null} value null removes it */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/**
 * For a place that is drawn again only where a value differs from those drawn: `const memo = newMemo()`, then
 * `memo(values, draw)` as often as one likes. The values are plain data.
 * @returns {(values: any[], draw: () => void) => void}
 */
export function newMemo() {
  /** @type {string | undefined} */
  let drawn;
  return (values, draw) => {
    const now = JSON.stringify(values);
    if (now === drawn) return;
    drawn = now;
    draw();
  };
}

const SVG = 'http://www.w3.org/2000/svg';

// Drawn on a grid of 24, strokes only. Each icon is a list of path data.
const ICONS = {
  plus: ['M12 5v14', 'M5 12h14'],
  search: ['M17 10.5a6.5 6.5 0 1 1-13 0a6.5 6.5 0 0 1 13 0', 'M15.4 15.4L20 20'],
  send: ['M12 19V5.5', 'M6 11.5l6-6l6 6'],
  stop: ['M7.5 7.5h9v9h-9z'],
  copy: [
    'M9 9.5a1.5 1.5 0 0 1 1.5-1.5h8A1.5 1.5 0 0 1 20 9.5v8.500a1.5 1.5 0 0 1-1.5 1.500h-8a1.5 1.5 0 0 1-1.5-1.500z',
    'M5.5 15.500A1.5 1.5 0 0 1 4 14V5.500A1.5 1.5 0 0 1 5.5 4H14a1.5 1.5 0 0 1 1.5 1.5',
  ],
  check: ['M5 12.500l4.5 4.500L19 7.5'],
  close: ['M6.5 6.500l11 11', 'M17.5 6.500l-11 11'],
  more: ['M6 12h.01', 'M12 12h.01', 'M18 12h.01'],
  sidebar: ['M6 5h12a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V7a2 2 0 0 1 2-2z', 'M9.5 5v14'],
  keyboard: [
    'M5 6.500h14a2 2 0 0 1 2 2v7a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2v-7a2 2 0 0 1 2-2z',
    'M7 10h.01',
    'M11 10h.01',
    'M15 10h.01',
    'M8 14h8',
  ],
  pencil: [
    'M5 19l.8-3.700L16 5.100a1.8 1.8 0 0 1 2.6 0l.3.3a1.8 1.8 0 0 1 0 2.600L8.7 18.200z',
    'M14.3 6.800l2.9 2.9',
  ],
  clip: ['M18.500 11.500l-6.800 6.800a4.200 4.200 0 0 1-6-6l7.400-7.400a2.800 2.800 0 0 1 4 4l-7.400 7.400a1.400 1.400 0 0 1-2-2l6.800-6.800'],
  file: ['M13.500 4H7.500A1.5 1.5 0 0 0 6 5.500v13A1.5 1.5 0 0 0 7.500 20h9a1.5 1.5 0 0 0 1.500-1.500V8.500z', 'M13.500 4v4.500H18'],
  trash: ['M5 7h14', 'M9.5 7V5h5v2', 'M7 7l.8 12h8.400L17 7', 'M10.5 10.500v5', 'M13.5 10.500v5'],
  upload: ['M12 14.500v-10', 'M7.5 9l4.5-4.500l4.5 4.5', 'M5 19.500h14'],
  download: ['M12 4.500v10', 'M7.5 10.500l4.5 4.500l4.5-4.5', 'M5 19.500h14'],
  down: ['M12 5v13.5', 'M6 12.500l6 6l6-6'],
  inspect: ['M5 19.500v-6', 'M10 19.500v-11', 'M15 19.500v-8', 'M20 19.500v-15'],
  left: ['M14 7l-5 5l5 5'],
  right: ['M10 7l5 5l-5 5'],
  again: ['M19 12a7 7 0 1 1-2.300-5.200L19 9', 'M19 4.500V9h-4.5'],
  forward: ['M6.500 6.500l5.5 5.500l-5.5 5.5', 'M12.500 6.500l5.5 5.500l-5.5 5.5'],
  branch: [
    'M9 6a2 2 0 1 1-4 0a2 2 0 0 1 4 0',
    'M9 18a2 2 0 1 1-4 0a2 2 0 0 1 4 0',
    'M19 8a2 2 0 1 1-4 0a2 2 0 0 1 4 0',
    'M7 8v8',
    'M17 10c0 3.5-10 2-10 5.5',
  ],
  link: [
    'M10 13.500a4 4 0 0 0 6 .4l2.600-2.600a4 4 0 0 0-5.700-5.700l-1.300 1.300',
    'M14 10.500a4 4 0 0 0-6-.4l-2.600 2.600a4 4 0 0 0 5.700 5.700l1.300-1.300',
  ],
  reset: ['M5 12a7 7 0 1 0 2.3-5.200L5 9', 'M5 4.500V9h4.5'],
  warning: ['M12 4.500l8.5 14.500h-17z', 'M12 10v4', 'M12 16.600h.01'],
  thought: ['M9.500 17.500h5', 'M10.500 20.500h3', 'M9.500 17.500c0-3-3-4-3-7.500a5.500 5.500 0 0 1 11 0c0 3.500-3 4.500-3 7.500'],
  tool: ['M14.500 6.500a4 4 0 0 1 5-1l-2.700 2.700l1 1.800l2.400-.600a4 4 0 0 1-5.200 3.600L8.500 19.500a2.100 2.100 0 0 1-3-3l6.500-6.500a4 4 0 0 1 2.500-3.500'],
  gear: ['M15 12a3 3 0 1 1-6 0a3 3 0 0 1 6 0', 'M10.4 6L10.6 3.5L13.4 3.5L13.6 6L15.1 6.6L17 5L19 7L17.4 8.9L18 10.4L20.5 10.6L20.5 13.4L18 13.6L17.4 15.1L19 17L17 19L15.1 17.4L13.6 18L13.4 20.5L10.6 20.5L10.4 18L8.9 17.4L7 19L5 17L6.6 15.1L6 13.6L3.5 13.4L3.5 10.6L6 10.4L6.6 8.9L5 7L7 5L8.9 6.6z'],
  tree: ['M6 4.500v10a3 3 0 0 0 3 3h4', 'M6 9.500h7', 'M16 7h4v5h-4z', 'M16 15h4v5h-4z'],
  share: ['M18.500 6.500a2 2 0 1 1-4 0a2 2 0 0 1 4 0', 'M9.500 12a2 2 0 1 1-4 0a2 2 0 0 1 4 0', 'M18.500 17.500a2 2 0 1 1-4 0a2 2 0 0 1 4 0', 'M9.300 11l5.400-3.500', 'M9.300 13l5.400 3.500'],
  pin: ['M9 4.500h6', 'M10 4.500v5l-3 4.500h10l-3-4.500v-5', 'M12 14v5.500'],
  quote: ['M4.500 7h5v6l-2.500 4', 'M13.500 7h5v6l-2.500 4'],
  folder: ['M4 18.500v-12.500h5.500l2 2.500h8.500v10z'],
  archive: ['M4.5 5.500h15v4h-15z', 'M6 9.500v9h12v-9', 'M10 13h4'],
  queue: ['M5 6.500h14', 'M5 12h14', 'M5 17.500h7'],
  logo: ['M7 18.800A8.6 8.6 0 1 1 12 20.600H4l1.7-3.4', 'M14.5 12a2.5 2.5 0 1 1-5 0a2.5 2.5 0 0 1 5 0'],
};

/** @typedef {keyof typeof ICONS} IconName */

/** @type {Map<IconName, SVGElement>} copies are cheaper than new elements, and a long page has thousands of icons */
const drawn = new Map();

/** @param {IconName} name @returns {SVGElement} */
export function icon(name) {
  let svg = drawn.get(name);
  if (!svg) {
    svg = document.createElementNS(SVG, 'svg');
    svg.setAttribute('viewBox', '0 0 24 24');
    svg.setAttribute('class', `icon icon-${name}`);
    svg.setAttribute('aria-hidden', 'true');
    // One element for all strokes: they share their style, and none of them is filled.
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('d', ICONS[name].join(''));
    svg.append(path);
    drawn.set(name, svg);
  }
  return /** @type {SVGElement} */ (svg.cloneNode(true));
}

/**
 * A button with an icon and an accessible name.
 * @param {IconName} name @param {string} label @param {Record<string, any>} [props]
 */
export function iconButton(name, label, props) {
  return h(
    'button',
    { type: 'button', class: 'icon-button', 'aria-label': label, title: label, ...props },
    icon(name),
  );
}
