// @ts-check
// The words by which the server names states and reasons, in the user's language. A word of a later server stays as it is.
import { t } from '../text.js';

const WORDS = /** @type {Record<string, string>} */ ({
  open: t('open'),
  active: t('active'),
  idle: t('idle'),
  parked: t('parked'),
  cold: t('cold'),
  closed: t('closed'),
  loading: t('loading'),
  serving: t('serving'),
  draining: t('draining'),
  drained: t('drained'),
  lost: t('lost'),
  moved: t('moved'),
  pressure: t('memory was short'),
  recomputed: t('recomputed'),
});

/** @param {string} word */
export const serverWord = (word) => WORDS[word] ?? word;
