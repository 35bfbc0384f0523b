// @ts-check
// The only way from a model's text to elements: takes markup, returns a sanitised fragment, never a string.
import purify from 'dompurify';

export { purify as createPurify }; // makes others: in one chunk with this module

const TAGS = [
  'a',
  'blockquote',
  'br',
  'code',
  'del',
  'details',
  'em',
  'h3',
  'h4',
  'h5',
  'h6',
  'hr',
  'kbd',
  'li',
  'ol',
  'p',
  'pre',
  'span',
  'strong',
  'sub',
  'summary',
  'sup',
  'table',
  'tbody',
  'td',
  'th',
  'thead',
  'tr',
  'ul',
];
const ATTRIBUTES = ['href', 'title', 'class', 'align', 'start', 'open'];
// Classes of the renderers. Other classes could make an answer look like a part of the page.
const CLASS = /^(?:task|maths|notes|language-[\w+#.-]{1,32}|hljs-[a-z_-]+|[a-z]+_{1,3})$/;

purify.addHook('uponSanitizeAttribute', (_node, data) => {
  if (data.attrName === 'class')
    data.attrValue = data.attrValue
      .split(/\s+/)
      .filter((name) => CLASS.test(name))
      .join(' ');
});
purify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName !== 'A') return;
  if (!node.hasAttribute('href')) return;
  node.setAttribute('rel', 'noopener noreferrer nofollow');
  node.setAttribute('target', '_blank');
});

// Set once: a configuration that is passed with every call is parsed again with every block.
purify.setConfig({
  RETURN_DOM_FRAGMENT: true,
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ATTRIBUTES,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: ['align', 'start', 'open'], // values of other attributes must be addresses
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  SANITIZE_NAMED_PROPS: true,
});

/** @param {string} markup @returns {DocumentFragment} */
export function sanitize(markup) {
  return /** @type {DocumentFragment} */ (/** @type {unknown} */ (purify.sanitize(markup)));
}
