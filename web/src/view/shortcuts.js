// @ts-check
// Keyboard shortcuts: one table for the keys and the list of shortcuts.
import { stop } from '../sending.js';
import { h } from '../dom.js';
import { withPanels } from '../late.js';
import { setShortcutsOn, shortcutsOn } from '../prefs.js';
import { currentSession, currentChat, isBusy } from '../state.js';
import { t } from '../text.js';
import { dialogOpen, openDialog } from './dialog.js';
import { isNarrow, sessionsShown, toggleSessions } from './layout_state.js';
import { field, isComposing } from './message_field.js';
import { askRemove, searchField, startNew } from './sidebar.js';
import { copyLast } from './transcript.js';

const mac = /Mac|iPhone|iPad/.test(navigator.platform);

/**
 * @typedef {{keys: string[], label: string, fits?: (event: KeyboardEvent) => boolean, run?: () => void}} Shortcut
 *   without run it is only listed; other code handles it
 */

/** @param {KeyboardEvent} event */
const command = (event) =>
  (mac ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey) && !event.altKey;
/** @param {string} code @param {boolean} shift */
const pressed = (code, shift) => (/** @type {KeyboardEvent} */ event) =>
  command(event) && event.shiftKey === shift && event.code === code;

const focusField = () => field.focus();

/** @type {Shortcut[]} */
const SHORTCUTS = [
  { keys: ['Mod', 'Shift', 'O'], label: t('New chat'), fits: pressed('KeyO', true), run: startNew },
  {
    keys: ['Mod', 'K'],
    label: t('Search chats'),
    fits: pressed('KeyK', false),
    run() {
      if (!sessionsShown()) toggleSessions(true);
      searchField.focus();
      searchField.select();
    },
  },
  {
    keys: ['Mod', 'Shift', 'S'],
    label: t('Show or hide chats'),
    fits: (event) => pressed('KeyS', true)(event) || pressed('KeyB', false)(event),
    run: () => toggleSessions(),
  },
  {
    keys: ['Shift', 'Esc'],
    label: t('Focus the message field'),
    fits: (event) => event.shiftKey && event.key === 'Escape',
    run: focusField,
  },
  {
    keys: ['Mod', 'Shift', 'C'],
    label: t('Copy the last answer'),
    fits: pressed('KeyC', true),
    run: () => copyLast('answer'),
  },
  {
    keys: ['Mod', 'Shift', ';'],
    label: t('Copy the last code'),
    fits: pressed('Semicolon', true),
    run: () => copyLast('code'),
  },
  {
    keys: ['Mod', 'Shift', '.'],
    label: t('Quote the selected text'),
    fits: pressed('Period', true),
    run: () => withPanels(({ quoteSelection }) => quoteSelection()),
  },
  {
    keys: ['Mod', 'Shift', 'Backspace'],
    label: t('Delete this chat'),
    fits: pressed('Backspace', true),
    run() {
      const session = currentSession();
      if (session) askRemove(session.id);
    },
  },
  { keys: ['Mod', '/'], label: t('Show this list'), fits: pressed('Slash', false), run: openShortcuts },
  { keys: ['Esc'], label: t('Stop the answer') },
  { keys: ['Enter'], label: t('Send') },
  { keys: ['Shift', 'Enter'], label: t('New line') },
  { keys: ['↑'], label: t('In the empty field: edit your last message') },
];

/** @type {Record<string, string>} */
const KEY_NAMES = { Mod: mac ? '⌘' : t('Ctrl'), Shift: mac ? '⇧' : t('Shift'), Backspace: t('Backspace') };
/** @param {string} key */
const keyName = (key) => KEY_NAMES[key] ?? key;

/** @type {HTMLDialogElement | null} */
let sheet = null;
export function openShortcuts() {
  if (sheet) {
    sheet.close();
    return;
  }
  const on = h('input', {
    type: 'checkbox',
    id: 'sheet-shortcuts-on',
    checked: shortcutsOn(),
    onchange: () => setShortcutsOn(on.checked),
  });
  sheet = openDialog({
    title: t('Keyboard shortcuts'),
    name: 'shortcuts',
    onClose: () => (sheet = null),
    body: [
      h(
        'ul',
        { class: 'shortcut-list', tabIndex: 0 }, // it scrolls, so the keyboard must reach it
        ...SHORTCUTS.map(({ keys, label }) =>
          h(
            'li',
            null,
            h('span', null, label),
            h('span', { class: 'keys' }, ...keys.map((key) => h('kbd', null, keyName(key)))),
          ),
        ),
      ),
      h('label', { class: 'check' }, on, h('span', null, t('Keyboard shortcuts (Esc and Enter always work)'))),
    ],
  });
}

document.addEventListener('keydown', (event) => {
  if (isComposing(event) || event.defaultPrevented) return;
  const inDialog = dialogOpen();
  if (event.key === 'Escape' && !event.shiftKey && !inDialog) {
    if (isNarrow() && sessionsShown()) toggleSessions(false);
    else if (isBusy(currentChat())) stop();
    else return;
    event.preventDefault();
    return;
  }
  if (!shortcutsOn()) return;
  const shortcut = SHORTCUTS.find((s) => s.fits?.(event));
  if (!shortcut || (inDialog && shortcut.run !== openShortcuts)) return;
  event.preventDefault();
  shortcut.run?.();
});
