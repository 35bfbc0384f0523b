// @ts-check
// The fields of the settings dialog, one row for each value. The sampling rows come from the server.
import { h, iconButton } from '../dom.js';
import { t } from '../text.js';

/**
 * @typedef {{key: string, label: string, hint: string, type: 'number' | 'seed' | 'lines', min?: number, max?: number,
 *   step?: number, whole?: boolean, none?: string}} Row
 *   none: shown instead of the server's value 0
 * @typedef {{row: Row, element: HTMLElement, input: HTMLInputElement | HTMLTextAreaElement, set: (value: any) => void,
 *   get: () => any, fail: (message: string) => void}} Field
 */

/**
 * A sampling parameter as the server's hello describes it.
 * @typedef {{name: string, type: string, min?: number, max?: number, above_min?: boolean, step?: number, label: string,
 *   zero?: string, help: string, form: boolean}} Parameter
 */

const TYPES = /** @type {Record<string, Row['type']>} */ ({
  number: 'number',
  integer: 'number',
  seed: 'seed',
  words: 'lines',
});

/** The rows of the sampling parameters that belong in a form. @param {Parameter[]} parameters @returns {Row[]} */
export const samplingRows = (parameters) =>
  parameters
    .filter((p) => p.form && TYPES[p.type])
    .map((p) => ({
      key: p.name,
      label: t(p.label),
      hint: p.type === 'words' ? t('{0} One per line, at most {1}; ids as [13, 198].', t(p.help), p.max) : t(p.help),
      type: TYPES[p.type],
      min: p.min,
      max: p.max,
      step: p.step,
      whole: p.type === 'integer',
      none: p.zero && t(p.zero),
    }));

/** @type {Row[]} */
export const MEMORY = [
  {
    key: 'memory_len',
    label: t('Memory'),
    hint: t('How many of the latest tokens the model sees.'),
    type: 'number',
    min: 1,
    step: 1,
    whole: true,
  },
  {
    key: 'session_len',
    label: t('Chat length'),
    hint: t('Maximum number of tokens in the chat.'),
    type: 'number',
    min: 2,
    step: 1,
    whole: true,
  },
  {
    key: 'sink_len',
    label: t('Tokens kept from the start'),
    hint: t('First tokens that always stay visible to the model.'),
    type: 'number',
    min: 0,
    step: 1,
    whole: true,
  },
];

/** A value that a field has refused. */
export class FieldError extends Error {
  /** @param {Row} row @param {string} message */
  constructor(row, message) {
    super(`${row.label}: ${message}`);
    this.key = row.key;
  }
}

/** The error for a value, or ''. @param {Row} row @param {string} text @param {number} [max] */
function complaint(row, text, max = row.max) {
  if (row.type === 'seed')
    return /^\d{1,20}$/.test(text) && BigInt(text) < 2n ** 64n ? '' : t('Enter a whole number, 0 or greater.');
  if (row.type === 'lines')
    return text.split('\n').filter(Boolean).length <= (max ?? Infinity) ? '' : t('At most {0} lines.', max);
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value)) return t('Enter a number.');
  if (row.whole && !Number.isInteger(value)) return t('Enter a whole number.');
  if (row.min !== undefined && value < row.min) return t('At least {0}.', row.min);
  if (max !== undefined && value > max) return t('At most {0}.', max);
  return '';
}

/** A line as an entry of a list of words: a text, or a list of token ids. @param {string} line */
const word = (line) => (/^\[\s*\d+(\s*,\s*\d+)*\s*\]$/.test(line) ? JSON.parse(line) : line);

/** A value as text. The server keeps floats: 0.7 must not come back as 0.699999988. @param {any} value */
function shown(value) {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value))
    return value.map((word) => (Array.isArray(word) ? JSON.stringify(word) : word)).join('\n');
  return typeof value === 'number' && !Number.isInteger(value)
    ? String(Number(value.toPrecision(6)))
    : String(value);
}

/**
 * @param {Row} row
 * @param {{fallback: any, max?: number, readOnly?: boolean}} how fallback: the server's value, shown in an empty field
 * @returns {Field}
 */
export function makeField(row, { fallback, max = row.max, readOnly = false }) {
  const id = `field-${row.key}`;
  const common = {
    id,
    placeholder: row.none && !fallback ? row.none : shown(fallback),
    autocomplete: 'off',
    readOnly,
    'aria-describedby': `${id}-hint`,
  };
  const input =
    row.type === 'lines'
      ? h('textarea', { ...common, rows: 2, spellcheck: false })
      : h('input', {
          ...common,
          type: row.type === 'number' ? 'number' : 'text',
          inputMode: row.whole || row.type === 'seed' ? 'numeric' : 'decimal',
          step: 'any',
        });
  if (row.type === 'number')
    Object.assign(input, { min: row.min ?? '', max: max ?? '', step: String(row.step ?? 'any') });
  const hint = h('p', { class: 'field-hint', id: `${id}-hint` }, row.hint);
  const reset = iconButton('reset', t('Reset {0}', row.label), {
    class: 'icon-button small field-reset',
    hidden: true,
    onclick() {
      input.value = '';
      check();
      input.focus();
    },
  });
  const element = h(
    'div',
    { class: 'field' },
    h(
      'div',
      { class: 'field-line' },
      h('label', { for: id, class: 'field-label' }, row.label),
      !readOnly && reset,
      input,
    ),
    hint,
  );

  /** @param {string} [message] */
  function check(message) {
    const text = input.value;
    // A number field with other text has an empty value and reports badInput.
    const bad = message ?? (text ? complaint(row, text, max) : input.validity.badInput ? t('Enter a number.') : '');
    hint.textContent = bad || row.hint;
    element.classList.toggle('bad', !!bad);
    input.setAttribute('aria-invalid', String(!!bad));
    reset.hidden = !text;
    return !bad;
  }
  input.addEventListener('input', () => check());
  return {
    row,
    element,
    input,
    set(value) {
      input.value = shown(value);
      check();
    },
    /** The value, or undefined for the server's. Throws an error for an invalid value. */
    get() {
      if (!check()) throw new FieldError(row, hint.textContent ?? '');
      const text = input.value;
      if (!text) return undefined;
      if (row.type === 'seed') return text;
      if (row.type === 'lines') return text.split('\n').filter(Boolean).map(word);
      return Number(text);
    },
    fail: (message) => void check(message),
  };
}

const FIRST = ['temperature', 'top_p', 'max_tokens']; // what most people change
/**
 * The sampling fields: the first ones, and the others folded away until one of them has a value.
 * @param {Field[]} fields @param {string[]} [keys] of the first ones
 */
export function samplingGrid(fields, keys = FIRST) {
  const others = fields.filter(({ row }) => !keys.includes(row.key));
  const first = keys.flatMap((key) => fields.filter(({ row }) => row.key === key));
  const more = h('details', { class: 'more-fields', open: others.some(({ input }) => input.value !== '') }, h('summary', null, t('More sampling values')), grid(others));
  return h('div', null, grid(first), more);
}

/** @param {Field[]} fields */
export const grid = (fields) => h('div', { class: 'fields' }, ...fields.map((field) => field.element));
