// @ts-check
// `< 2/3 >`: switches between versions of a message (shown at the message) or of an answer (shown below it).
import { h, iconButton } from '../dom.js';
import { t } from '../text.js';

/**
 * @typedef {{name: string, label: string}} What name: of one version. label: of the switch.
 * @type {Record<'message' | 'answer' | 'continuation', What>}
 */
export const WHAT = {
  message: { name: t('wording'), label: t('Versions of this message') },
  answer: { name: t('version'), label: t('Versions of this answer') },
  continuation: { name: t('continuation'), label: t('Continuations') },
};

/**
 * @param {What} what
 * @param {number[]} all a turn for each
 * @param {number} at the shown one
 * @param {boolean} busy the path cannot change now
 */
export function versionSwitch(what, all, at, busy) {
  /** @param {'left' | 'right'} name @param {string} label @param {number | undefined} to */
  const button = (name, label, to) =>
    iconButton(name, label, { 'data-action': 'version', 'data-to': String(to ?? ''), disabled: busy || to === undefined });
  return h(
    'div',
    { class: 'versions', role: 'group', 'aria-label': what.label },
    button('left', t('Previous {0}', what.name), all[at - 1]),
    h(
      'span',
      { class: 'versions-at' },
      h('span', { class: 'visually-hidden' }, t('{0} {1} of {2}', what.name, at + 1, all.length)),
      h('span', { 'aria-hidden': 'true' }, `${at + 1}/${all.length}`),
    ),
    button('right', t('Next {0}', what.name), all[at + 1]),
  );
}
