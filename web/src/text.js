// @ts-check
// The page's words. English stands in the code, as t('New chat'); a translation is one file that has its own words for each
// (text/de.js) and a row here. boot.js has chosen the language and set it as the document's.

/** The languages by their own names. @type {Record<string, string>} */
export const LANGUAGES = { en: 'English', de: 'Deutsch' };

/** @typedef {{thousands: string, point: string, hours: 12 | 24, day: string, date: string, percent: string, millions: string, billions: string}} Forms */
/** @typedef {{forms: Forms, plurals: Record<string, [string, string]>, words: Record<string, string>, errors: Record<string, string>}} Translation
 *   errors: the server's errors by their code: {0} is its sentence, {1} the name of the wrong value. */

/** @type {Record<string, () => Promise<{translation: Translation}>>} */
const FILES = { de: () => import('./text/de.js') };

const language = globalThis.document?.documentElement.lang ?? 'en'; // tests run parts of the page without a document
const found = FILES[language] && (await FILES[language]().catch(() => null)); // English is better than no page
const translation = found?.translation;

/** How numbers and dates are written; {0} in day is the month. @type {Forms} */
export const forms = translation?.forms ?? { thousands: ',', point: '.', hours: 12, day: '{0} {1}', date: '{0}, {1}', percent: '{0}%', millions: '{0}M', billions: '{0}B' };

/** @param {string} text @param {any[]} values */
const filled = (text, values) => (values.length ? text.replace(/\{(\d)\}/g, (_, i) => String(values[i])) : text);

/** A text in the user's language, with values for its {0}, {1}. @param {string} english @param {...any} values @returns {string} */
export const t = (english, ...values) => filled(translation?.words[english] ?? english, values);

/**
 * What the server says of an error, in the user's language: its code decides; 'CODE KEY' is for one that names a value.
 * @param {{code?: string, message: string, key?: string}} error
 */
export function errorText({ code = '', message, key }) {
  const errors = translation?.errors ?? {};
  return filled((key && errors[`${code} KEY`]) || errors[code] || '{0}', [message, key]);
}

/** A form of `forms` with its values. @param {string} form @param {...any} values */
export const formed = (form, ...values) => filled(form, values);

/** "token" or "tokens". @param {number} n @param {string} word */
export function pluralWord(n, word) {
  const both = translation?.plurals[word] ?? [word, `${word}s`];
  return both[n === 1 ? 0 : 1];
}
