// @ts-check
// CSS for highlight.js, by the shape of declarations and selectors. Its own grammar names every property and element
// and is a third of all grammars together.

// A declaration ends before a brace opens; `a:hover {` does not.
const DECLARED = /\s*:(?=[^{}]{0,1000}?[;}])/;

/** @param {import('highlight.js').HLJSApi} hljs @returns {import('highlight.js').Language} */
export default function css(hljs) {
  const comment = hljs.C_BLOCK_COMMENT_MODE;
  const strings = [hljs.APOS_STRING_MODE, hljs.QUOTE_STRING_MODE];
  const number = { scope: 'number', begin: /(?<![\w-])[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?([a-z]+|%)?/ };
  const call = { scope: 'built_in', begin: /[\w-]+(?=\()/ };
  const values = [
    comment,
    ...strings,
    { scope: 'number', begin: /#[\da-f]{3,8}\b/ },
    { scope: 'attr', begin: /--[\w-]+/ },
    { begin: [/url/, /\(/], beginScope: { 1: 'built_in' }, end: /\)/, contains: [...strings, { scope: 'string', begin: /[^)'"]+/ }] },
    call,
    number,
    { scope: 'meta', begin: /!important/ },
  ];
  return {
    name: 'CSS',
    case_insensitive: true,
    contains: [
      comment,
      ...strings,
      {
        begin: /(?=@)/,
        end: /[{;]/,
        contains: [
          comment,
          ...strings,
          { scope: 'keyword', begin: /@[\w-]+|\b(and|or|not|only)\b/ },
          { scope: 'attribute', begin: /[a-z-]+(?=\s*:)/ },
          call,
          number,
        ],
      },
      { begin: [/--[\w-]+/, DECLARED], beginScope: { 1: 'attr' }, end: /(?=[;}])/, contains: values },
      { begin: [/[a-z-]+/, DECLARED], beginScope: { 1: 'attribute' }, end: /(?=[;}])/, contains: values },
      { scope: 'selector-id', begin: /#[\w-]+/ },
      { scope: 'selector-class', begin: /\.[a-z_-][\w-]*/ },
      { scope: 'selector-attr', begin: /\[/, end: /\]/, contains: strings },
      { scope: 'selector-pseudo', begin: /::?[a-z-]+/ },
      number,
      { scope: 'selector-tag', begin: /\b[a-z][\w-]*/ },
    ],
  };
}
