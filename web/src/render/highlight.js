// @ts-check
// Colours for code: the core of highlight.js with the common languages.
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
import { sanitize } from './sanitize.js';

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

/** What stands above a block, for the names that are not their own best spelling. @type {Record<string, string>} */
const LABELS = {
  bash: 'Shell',
  sh: 'Shell',
  c: 'C',
  cpp: 'C++',
  'c++': 'C++',
  css: 'CSS',
  diff: 'Diff',
  go: 'Go',
  ini: 'INI',
  toml: 'TOML',
  java: 'Java',
  javascript: 'JavaScript',
  js: 'JavaScript',
  json: 'JSON',
  makefile: 'Makefile',
  python: 'Python',
  py: 'Python',
  rust: 'Rust',
  rs: 'Rust',
  sql: 'SQL',
  typescript: 'TypeScript',
  ts: 'TypeScript',
  html: 'HTML',
  xml: 'XML',
  yaml: 'YAML',
  yml: 'YAML',
};

/** @param {string} language as written after the fence */
export const languageLabel = (language) => LABELS[language.toLowerCase()] ?? (language || 'Text');

/**
 * Colours the code of one element if its language is known.
 * @param {HTMLElement} code
 * @param {string} language
 */
export function highlight(code, language) {
  const text = code.textContent ?? '';
  if (!language || text.length > MAX_LENGTH || !isKnown(language)) return;
  code.replaceChildren(sanitize(hljs.highlight(text, { language, ignoreIllegals: true }).value));
}
