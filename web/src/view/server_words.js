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

const ENDS = /** @type {Record<string, string>} */ ({
  eos: t('end token'),
  stop: t('stop string'),
  length: t('length limit'),
  cancelled: t('stopped'),
  interrupted: t('interrupted'),
  deadline: t('deadline'),
  error: t('failed'),
});

/** Why an answer ended. @param {string | null} reason */
export const endWord = (reason) => ENDS[reason ?? ''] ?? reason ?? '';

/** @param {string} word */
export const serverWord = (word) => WORDS[word] ?? word;
