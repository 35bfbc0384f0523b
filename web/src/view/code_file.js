// @ts-check
// A block of code as a file of the user's. Loads late.
import { download } from '../exports.js';

/** What a file's name ends with, for languages whose name does not say it. @type {Record<string, string>} */
const ENDINGS = {
  bash: 'sh', shell: 'sh', console: 'txt', text: 'txt', plaintext: 'txt', python: 'py', javascript: 'js', typescript: 'ts', rust: 'rs', ruby: 'rb', perl: 'pl', kotlin: 'kt',
  haskell: 'hs', markdown: 'md', 'c++': 'cpp', 'c#': 'cs', csharp: 'cs', golang: 'go', latex: 'tex', powershell: 'ps1', assembly: 's', makefile: 'mk', jsonc: 'json', yaml: 'yml',
};

/** @param {string} language as written after the fence */
const fileName = (language) => `code.${ENDINGS[language.toLowerCase()] ?? (/^[a-z0-9]{1,8}$/i.test(language) ? language.toLowerCase() : 'txt')}`;

/** @param {Element | null} block */
export function saveCode(block) {
  const code = block?.querySelector('code');
  const language = /(?:^|\s)language-(\S+)/.exec(code?.className ?? '')?.[1] ?? '';
  if (code) download(fileName(language), 'text/plain', (code.textContent ?? '').replace(/\n?$/, '\n'));
}
