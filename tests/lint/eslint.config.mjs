// Refuses what the oldest Node that we run on lacks: language features by ECMAScript version, Node's own modules and
// globals by Node version. The page's sources run in browsers (web/build.mjs names them): they may use ES2023. Also
// refuses what is imported or defined and not used.
import { readFileSync } from 'node:fs';
import esX from 'eslint-plugin-es-x';
import n from 'eslint-plugin-n';

const { engines } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));
const oldest = Number(/^>=(\d+)/.exec(engines.node)[1]);
// The last ECMAScript version that each Node has as a whole, and the rules for what it has of later ones.
const LANGUAGE = {
  18: { version: 2022, has: ['no-array-prototype-findlast-findlastindex', 'no-hashbang'] },
  20: { version: 2023 },
};
if (!LANGUAGE[oldest]) throw new Error(`tests/lint/eslint.config.mjs: add what Node ${oldest} has`);

// A method of an iterator may have the name of one of an array's, or of our own, and a rule cannot tell them apart.
const ambiguous = [...Object.getOwnPropertyNames(Array.prototype), 'take'].map((name) => `no-iterator-prototype-${name.toLowerCase()}`);

/** The rules that refuse everything after an ECMAScript version, and what no version has yet. */
function restrictTo(version, has = []) {
  const rules = [`flat/restrict-to-es${version}`, 'flat/no-new-in-esnext'].map((name) => esX.configs[name].rules);
  const off = [...has, ...ambiguous].filter((rule) => esX.rules[rule]).map((rule) => [`es-x/${rule}`, 'off']);
  return { ...Object.assign({}, ...rules), ...Object.fromEntries(off) };
}

const builtins = (ignores = []) => ['error', { version: engines.node, allowExperimental: true, ignores }];

const page = ['**/web/src/**/*.js'];
export default [
  { ignores: ['**/node_modules/**', '**/build/**'] },
  {
    files: ['**/*.mjs', '**/*.js'],
    languageOptions: {
      ecmaVersion: 'latest', sourceType: 'module', globals: n.configs['flat/recommended-module'].languageOptions.globals,
    },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    // A method is judged by its name: no type is known here.
    settings: { 'es-x': { aggressive: true } },
    plugins: { 'es-x': esX, n },
    rules: { 'no-unused-vars': ['error', { args: 'none', caughtErrors: 'none', ignoreRestSiblings: true, varsIgnorePattern: '^_' }] },
  },
  {
    files: ['**/*.mjs', '**/*.js'],
    ignores: page,
    rules: {
      ...restrictTo(LANGUAGE[oldest].version, LANGUAGE[oldest].has),
      'n/no-unsupported-features/node-builtins': builtins(),
      'no-restricted-syntax': ['error', {
        selector: 'MemberExpression[object.type=MetaProperty][property.name=/^(dirname|filename)$/]',
        message: 'Node 18 lacks import.meta.dirname and import.meta.filename.',
      }],
    },
  },
  // Functions that these tests hand to the browser use its globals.
  { files: ['**/e2e/page/*.mjs'], rules: { 'n/no-unsupported-features/node-builtins': builtins(['navigator', 'localStorage']) } },
  { files: page, rules: restrictTo(2023) },
];
