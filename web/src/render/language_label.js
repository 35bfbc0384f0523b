// @ts-check
// The names of programming languages above blocks of code.

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
  tex: 'TeX',
  typescript: 'TypeScript',
  ts: 'TypeScript',
  html: 'HTML',
  xml: 'XML',
  yaml: 'YAML',
  yml: 'YAML',
};

/** @param {string} language as written after the fence */
export const languageLabel = (language) => LABELS[language.toLowerCase()] ?? (language || 'Text');
