// @ts-check
// What the next session starts with, beside the values of all new sessions: a system prompt of its own, or the latest
// messages of a session that is full.
import { show } from '../actions.js';
import { h, newMemo } from '../dom.js';
import { setChosenModel } from '../prefs.js';
import { currentChat, currentSession, nextChat, nextModel, setFresh, state, subscribe } from '../state.js';
import { t } from '../text.js';
import { exchangesOf, joined } from '../turns.js';
import { moveFiles } from './file_chips.js';
import { addMessage, field } from './message_field.js';

const MARK = 'This continues an earlier conversation. Its latest messages:'; // for the model
const SHARE = 0.25; // of the new session, for the messages that are carried over

/** The latest exchanges that fit, oldest first. @param {import('../state.js').Turn[]} turns @param {number} tokens */
function latest(turns, tokens) {
  /** @type {string[]} */
  const parts = [];
  let left = tokens;
  for (const turn of exchangesOf(turns).map(joined).reverse()) {
    const cost = turn.n_input + turn.n_output;
    if (turn.state !== 'done' || (cost > left && parts.length)) break;
    // An answer that is too long by itself is carried over without its beginning.
    const text = cost > left ? `…${turn.text.slice(-Math.floor((turn.text.length * left) / cost))}` : turn.text;
    parts.unshift(`User: ${turn.input.content ?? turn.input.text ?? ''}\n\nAssistant: ${text}`);
    left -= cost;
    if (left <= 0) break;
  }
  return parts;
}

/** A new session that begins with the latest messages of this one, in its system prompt. */
export function continueElsewhere() {
  const session = currentSession();
  const chat = currentChat();
  if (!session || !chat) return;
  const limit = state.connection.limits.system_bytes ?? Infinity;
  const before = (session.system ?? '').split(MARK)[0].trim();
  const parts = latest(chat.turns, session.session_len * SHARE);
  const compose = () => [before, [MARK, ...parts].join('\n\n')].filter(Boolean).join('\n\n');
  while (parts.length && new TextEncoder().encode(compose()).length > limit) parts.shift();
  const text = field.value;
  field.value = '';
  show(null);
  moveFiles(session.id, '');
  setFresh({ system: parts.length ? compose() : before, model: session.model, sampling: session.sampling });
  if (text.trim()) addMessage(text.trim());
  else field.focus();
}

/** @param {string} id @param {string} label @param {(value: string) => void} onchange */
function picker(id, label, onchange) {
  const select = h('select', { id, onchange: () => onchange(select.value) });
  const box = h('div', { class: 'fresh-model' }, h('label', { for: id }, label), select);
  const memo = newMemo();
  return {
    box,
    /** @param {Array<[string, string]>} options value and text @param {string} value @param {number} least */
    draw(options, value, least) {
      box.hidden = options.length < least;
      memo(options, () => select.replaceChildren(...options.map(([name, text]) => h('option', { value: name }, text))));
      select.value = value;
    },
  };
}

/** Which model the next session uses, and for which task it was trained: where there is something to choose. */
export function modelPicker() {
  const models = picker('fresh-model', t('Model'), (value) => {
    setChosenModel(value);
    setFresh({ ...state.fresh, model: undefined });
  });
  const tasks = picker('fresh-task', t('Task'), (value) => setFresh({ ...state.fresh, task: value }));
  drawPicker = () => {
    const chosen = nextModel();
    models.draw(state.connection.models.map(({ name }) => [name, name]), chosen?.name ?? '', 2);
    const known = (chosen?.prompt_tasks ?? []).map(({ task }) => task);
    tasks.draw([['', t('None')], ...known.map((name) => /** @type {[string, string]} */ ([name, name]))], nextChat().task ?? '', 2);
  };
  drawPicker();
  return h('div', { class: 'fresh-choices' }, models.box, tasks.box);
}

/** @type {() => void} */
let drawPicker = () => {};
subscribe('prefs', () => drawPicker());
subscribe('connection', () => drawPicker());

/** The system prompt of the session that begins with the next message, folded away until it is wanted. */
export function systemField() {
  const area = h('textarea', {
    id: 'fresh-system',
    rows: 4,
    dir: 'auto',
    'aria-describedby': 'fresh-system-hint',
    oninput: () => setFresh({ ...state.fresh, system: area.value }),
  });
  const summary = h('summary', null, t('System prompt'));
  const box = h(
    'details',
    { class: 'fresh-system' },
    summary,
    h('label', { for: 'fresh-system', class: 'field-hint', id: 'fresh-system-hint' }, t('Sent to the model before your first message, in this chat only.')),
    area,
  );
  summary.addEventListener('click', () => requestAnimationFrame(() => area.scrollIntoView({ block: 'nearest' })));
  function draw() {
    const text = nextChat().system;
    if (area.value !== text) area.value = text;
    summary.classList.toggle('set', !!text.trim());
    if (state.fresh.system && document.activeElement !== area) box.open = true;
  }
  draw();
  drawFresh = draw;
  return box;
}

/** @type {() => void} */
let drawFresh = () => {};
subscribe('prefs', () => drawFresh());
