// @ts-check
// Colours for code: the core of highlight.js with the common languages. Loads late (late.js).
import hljs from 'highlight.js/lib/core';
import bash from 'highlight.js/lib/languages/bash';
import c from 'highlight.js/lib/languages/c';
import cpp from 'highlight.js/lib/languages/cpp';
import diff from 'highlight.js/lib/languages/diff';
import go from 'highlight.js/lib/languages/go';
import ini from 'highlight.js/lib/languages/ini';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import makefile from 'highlight.js/lib/languages/makefile';
import python from 'highlight.js/lib/languages/python';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import css from './css_language.js';

const MAX_LENGTH = 50000; // longer code is shown without colours

const GRAMMARS = {
  bash,
  c,
  cpp,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  makefile,
  python,
  rust,
  sql,
  typescript,
  xml,
  yaml,
};

// These contain others.
const WITH_OTHERS = new Set(['javascript', 'typescript', 'xml']);

/**
 * Registers a language when its first block of code comes: all of them take longer than a frame. Other names than those
 * of GRAMMARS may be aliases, which a grammar tells only once it is registered.
 * @param {string} language
 */
function isKnown(language) {
  const name = language.toLowerCase();
  if (hljs.getLanguage(name)) return true;
  const alone = Object.hasOwn(GRAMMARS, name) && !WITH_OTHERS.has(name);
  for (const [each, grammar] of Object.entries(GRAMMARS))
    if ((!alone || each === name) && !hljs.getLanguage(each)) hljs.registerLanguage(each, grammar);
  return !!hljs.getLanguage(name);
}

/**
 * Code with its colours, as markup.
 * @param {string} text
 * @param {string} language
 * @returns {string | null} null: the language is unknown, or the code too long
 */
export function highlight(text, language) {
  if (text.length > MAX_LENGTH || !isKnown(language)) return null;
  return hljs.highlight(text, { language, ignoreIllegals: true }).value;
}
