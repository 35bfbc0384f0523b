// @ts-check
// Numbers, durations and dates as people read them. Pure: no DOM, no state.
import { formed, forms, pluralWord, t } from './text.js';

/** 12345 -> "12,345". @param {number} n */
export const count = (n) => String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, forms.thousands);

/** 3.14 with so many digits behind the point. @param {number} n @param {number} digits */
export const decimal = (n, digits) => n.toFixed(digits).replace('.', forms.point);

/** "38%". @param {string} number in digits */
export const percentOf = (number) => formed(forms.percent, number);

/** A value as a person writes it: 0.7, not the 0.699999988 that its 32 bits are. @param {any} value */
export function plainValue(value) {
  if (typeof value === 'number') return String(Number(value.toPrecision(6))).replace('.', forms.point);
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** "1 token", "2 tokens". @param {number} n @param {string} word */
export const plural = (n, word) => `${count(n)} ${pluralWord(n, word)}`;

/** A rate with as many digits as it deserves. @param {number} perSecond */
export function rate(perSecond) {
  if (!(perSecond > 0)) return '';
  return perSecond >= 100 ? count(perSecond) : decimal(perSecond, perSecond >= 10 ? 0 : 1);
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1) return '<1 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${decimal(ms / 1000, ms < 10000 ? 1 : 0)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

/** Number of parameters: 14158464 -> "14M". @param {number} n */
export function parameters(n) {
  if (n >= 1e9) return formed(forms.billions, decimal(n / 1e9, n < 1e10 ? 1 : 0));
  return formed(forms.millions, Math.max(1, Math.round(n / 1e6)));
}

/** "812 bytes", "3.4 kB", "1.2 MB". @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return plural(bytes, 'byte');
  const [n, unit] = bytes < 999500 ? [bytes / 1e3, 'kB'] : [bytes / 1e6, 'MB'];
  return `${n < 10 ? decimal(n, 1) : count(n)} ${unit}`;
}

/** Words of a text, for the announcement at its end. @param {string} text */
export const words = (text) => text.split(/\s+/u).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;

// Dates by hand: the browser's own first formatter holds up the page longer than anything else that it does.
const MONTHS = [t('January'), t('February'), t('March'), t('April'), t('May'), t('June'), t('July'), t('August'), t('September'), t('October'), t('November'), t('December')];
const twoDigits = (/** @type {number} */ n) => String(n).padStart(2, '0');

/** "Nov 27". @param {number} ms */
export function day(ms) {
  const date = new Date(ms);
  return formed(forms.day, MONTHS[date.getMonth()].slice(0, 3), date.getDate());
}

/** "14:05:09". @param {number} ms */
export function clock(ms) {
  const date = new Date(ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(':');
}

/** "Nov 27, 2026, 2:05 PM", or with seconds. @param {number} ms */
export function moment(ms, seconds = false) {
  const date = new Date(ms);
  const [hours, minutes] = [date.getHours(), twoDigits(date.getMinutes())];
  const hour = forms.hours === 12 ? hours % 12 || 12 : twoDigits(hours);
  const half = forms.hours === 12 ? (hours < 12 ? ' AM' : ' PM') : '';
  return `${formed(forms.date, day(ms), date.getFullYear())}, ${hour}:${minutes}${seconds ? `:${twoDigits(date.getSeconds())}` : ''}${half}`;
}

/** The heading under which a session of that date stands in the list. @param {number} ms @param {number} [now] */
export function dateGroup(ms, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - ms) / 86400000);
  if (days <= 0) return t('Today');
  if (days === 1) return t('Yesterday');
  if (days <= 7) return t('Previous 7 days');
  if (days <= 30) return t('Previous 30 days');
  const date = new Date(ms);
  const month = MONTHS[date.getMonth()];
  return date.getFullYear() === new Date(now).getFullYear() ? month : `${month} ${date.getFullYear()}`;
}

/** Text as the server takes it: Unicode without NUL, which pasted binary text contains. @param {string} text */
export const asText = (text) => text.replace(/[\0\uD800-\uDFFF]/gu, '\uFFFD'); // with u: half a character alone
