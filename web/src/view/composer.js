// @ts-check
// The message field and its buttons. Enter sends; on a touch screen it starts a new line. Unsent text is stored as the
// session's draft.
import { estimateTokens, withFiles } from '../attachments.js';
import { send, stop, typing, whyNot } from '../sending.js';
import { h, icon, iconButton, setText } from '../dom.js';
import { count } from '../format.js';
import { withPanels } from '../late.js';
import { draft, enterSends, setDraft } from '../prefs.js';
import { currentChat, isBusy, state, subscribe } from '../state.js';
import { t } from '../text.js';
import { dialogOpen } from './dialog.js';
import { field, fitText, isComposing, touchScreen } from './message_field.js';
import { askFiles, chosenFiles, clearFiles, fileChips, moveFiles, readingFiles } from './file_chips.js';
import { fullNotice, meters, showNext, tokensLeft } from './meters.js';
import { editLast, toEnd } from './transcript.js';

const DRAFT_MS = 300;
const LONG = 400; // characters of a text whose tokens are estimated before it is sent
const sendButton = h(
  'button',
  { type: 'submit', class: 'send', 'aria-label': t('Send'), title: t('Send') },
  icon('send'),
);
const stopButton = h(
  'button',
  { type: 'button', class: 'stop', 'aria-label': t('Stop'), title: t('Stop (Esc)'), hidden: true, onclick: stop },
  icon('stop'),
);
const hint = h('span', { class: 'composer-hint', id: 'composer-hint' });

export const composer = h(
  'form',
  {
    class: 'composer-area',
    onsubmit(/** @type {Event} */ event) {
      event.preventDefault();
      submit();
    },
  },
  fullNotice,
  h(
    'div',
    {
      class: 'composer',
      onclick: (/** @type {Event} */ event) => event.target === event.currentTarget && field.focus(),
    },
    h('label', { for: 'message', class: 'visually-hidden' }, t('Message')),
    fileChips,
    field,
    h('div', { class: 'composer-bar' }, iconButton('clip', t('Add text, code or PDF files'), { onclick: askFiles }), meters, hint, stopButton, sendButton),
  ),
);

let shownFor = '';
let kept = ''; // its draft, as this tab last read or stored it
let slashed = false; // the field began with “/”, which opens the list of presets
let sendsTo = ''; // the session whose loading a message waits for
/** @type {any} */
let timer = null;

/** @returns {undefined} */
function submit() {
  if (readingFiles()) return undefined;
  const text = withFiles(chosenFiles(), field.value.trim());
  const chat = currentChat();
  sendsTo = text && chat?.phase === 'loading' ? chat.id : '';
  if (sendsTo) return draw();
  if (!text || whyNot()) return undefined;
  field.value = '';
  clearFiles();
  keepDraft();
  fitText(field);
  send(text);
  toEnd();
  return draw();
}

function keepDraft() {
  clearTimeout(timer);
  if (field.value !== kept) setDraft(shownFor, field.value); // else another tab's may be newer
  kept = field.value;
}

field.addEventListener('input', () => {
  sendsTo = '';
  clearTimeout(timer);
  timer = setTimeout(keepDraft, DRAFT_MS);
  if (field.value) typing();
  if (field.value[0] === '/' || slashed) withPanels(({ offer }) => offer());
  slashed = field.value[0] === '/';
  fitText(field);
  draw();
});
field.addEventListener('keydown', (event) => {
  if (isComposing(event)) return;
  if (
    event.key === 'Enter' &&
    !event.shiftKey &&
    !event.altKey &&
    ((enterSends() && !touchScreen.matches) || event.ctrlKey || event.metaKey)
  ) {
    event.preventDefault();
    submit();
  } else if (event.key === 'ArrowUp' && !field.value && editLast()) {
    event.preventDefault();
  }
});
addEventListener('pagehide', keepDraft);

/** A hidden button passes its focus to the field. @param {HTMLButtonElement} button @param {boolean} shown */
function showButton(button, shown) {
  const focused = document.activeElement === button;
  button.hidden = !shown;
  if (!shown && focused && !touchScreen.matches) field.focus();
}

/** About how many tokens a long message, or one with files, has; 0 for a short one. */
function estimated() {
  const files = chosenFiles();
  if (field.value.length < LONG && !files.length) return 0;
  return files.reduce((sum, file) => sum + file.tokens, estimateTokens(field.value));
}

/** @returns {undefined} */
function draw() {
  const chat = currentChat();
  if (sendsTo && sendsTo === chat?.id && chat.phase === 'ready') return submit();
  const busy = isBusy(chat);
  const loading = chat?.phase === 'loading';
  const why = loading ? '' : whyNot();
  const text = !readingFiles() && (field.value.trim() || chosenFiles().length > 0);
  const queues = busy && !!text;
  const stops = busy && chat?.turns.some((turn) => turn.state !== 'done') === true;
  showButton(stopButton, stops);
  showButton(sendButton, !stops || !!text);
  sendButton.disabled = !text || !!why;
  const label = queues ? t('Send after this answer') : t('Send');
  sendButton.setAttribute('aria-label', label);
  sendButton.title = label;
  sendButton.classList.toggle('queues', queues);
  const tokens = estimated();
  showNext(tokens);
  const left = tokensLeft();
  // A guess, so it hinders nothing.
  const tooLong = tokens > left ? t('About {0} tokens; {1} left in this chat', count(tokens), count(left)) : '';
  const warning = queues ? '' : fullNotice.hidden && chat?.phase === 'ready' ? why || tooLong : chat ? '' : tooLong;
  const size = tokens ? t('About {0} tokens', count(tokens)) : '';
  setText(hint, sendsTo ? t('Will send when the chat has loaded') : queues ? t('Will send after this answer') : warning || size);
  hint.classList.toggle('notable', !!warning && !sendsTo); // a phone has room for nothing less
  return undefined;
}

subscribe('selection', () => {
  const id = state.current ?? '';
  if (shownFor === id) return;
  sendsTo = '';
  // A new chat that has just become a session keeps its unsent text.
  const begun = shownFor === '' && currentChat()?.local;
  if (begun) moveFiles('', id);
  if (!begun) {
    keepDraft();
    field.value = draft(id);
  }
  kept = begun ? '' : field.value;
  shownFor = id;
  fitText(field);
  if (
    !touchScreen.matches &&
    !dialogOpen() &&
    !document.activeElement?.closest('#sidebar')
  )
    field.focus();
});
for (const topic of /** @type {const} */ (['selection', 'session', 'connection', 'chat', 'turn']))
  subscribe(topic, draw);
field.value = kept = draft('');
