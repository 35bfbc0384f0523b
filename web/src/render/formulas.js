// @ts-check
// Formulas: TeX to MathML, which the browser draws. A part of its own (Temml), loaded with the first formula.
import temml from 'temml';
import { createPurify } from './sanitize.js';

// An instance of its own: the one of sanitize.js lets no MathML through.
const purify = createPurify(window);
purify.addHook('uponSanitizeAttribute', (_node, data) => {
  if (data.attrName === 'class' && !/^(?:boxed|tml-(?:left|right|center|jot|cases|small|sml-pad|med-pad))$/.test(data.attrValue)) data.keepAttr = false;
});
purify.setConfig({
  RETURN_DOM_FRAGMENT: true,
  USE_PROFILES: { mathMl: true },
  ADD_ATTR: ['class', 'form', 'movablelimits'],
  FORBID_ATTR: ['style', 'href', 'id', 'name'],
  FORBID_TAGS: ['maction', 'annotation-xml'],
  ALLOW_DATA_ATTR: false,
});

const KEPT = 500; // formulas: a paragraph that grows is drawn again each frame
/** @type {Map<string, Element | null>} */
const drawn = new Map();

/** Styles are refused by the content policy when the markup is parsed; the frame of \boxed becomes a class. @param {string} markup */
const withoutStyles = (markup) => markup.replace(/ style="([^"]*)"/g, (_, style) => (style.includes('border:1px solid') ? ' class="boxed"' : ''));

/** @param {string} tex @param {boolean} block */
function draw(tex, block) {
  try {
    const markup = temml.renderToString(tex, { displayMode: block, throwOnError: true, trust: false, maxExpand: 200, maxSize: [20, 20] });
    return /** @type {DocumentFragment} */ (/** @type {unknown} */ (purify.sanitize(withoutStyles(markup)))).querySelector('math');
  } catch {
    return null;
  }
}

/** @param {string} tex @param {boolean} block in lines of its own @returns {Node | null} null: not TeX that Temml knows */
export function formula(tex, block) {
  const key = `${block} ${tex}`;
  if (!drawn.has(key)) {
    if (drawn.size >= KEPT) drawn.delete(/** @type {string} */ (drawn.keys().next().value));
    drawn.set(key, draw(tex, block));
  }
  return drawn.get(key)?.cloneNode(true) ?? null;
}
