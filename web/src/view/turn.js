// @ts-check
// One exchange: the message, the growing answer and the line below it. Includes turns that continue the answer.
import { sentence } from '../actions.js';
import { answerInstead, sayInstead } from '../branching.js';
import { h, icon, iconButton, newMemo, setAttribute, setText } from '../dom.js';
import { count, plural } from '../format.js';
import { AnswerView } from '../render/answer.js';
import { cancel } from '../sending.js';
import { errorText, t } from '../text.js';
import { joined, wordingsOf } from '../turns.js';
import { AnswerFoot } from './answer_foot.js';
import { bubble } from './bubble.js';
import { messageEditor } from './message_editor.js';
import { takeBack } from './file_chips.js';
import { field } from './message_field.js';
import { toast } from '../notices.js';
import { versionSwitch, WHAT } from './versions.js';

/** @typedef {import('../state.js').Turn} Turn */

/** @param {Turn['input']} input @returns {string | null} null: not known yet */
const said = (input) =>
  input.content ??
  input.text ??
  (input.continue ? t('Continues the previous answer') : input.n_ids !== undefined ? plural(input.n_ids, 'token id') : null);

/** A request_id for each edit, so that a retry starts no second turn. */
const newKey = () => crypto.getRandomValues(new Uint32Array(3)).join('-');

export class TurnView {
  /**
   * @param {Turn[]} exchange
   * @param {import('./answer_foot.js').Place} place
   * @param {HTMLElement} [element] that showed its text so far
   */
  constructor(exchange, place, element = h('section', { class: 'turn' })) {
    this.number = exchange[0].turn;
    this.user = h('article', { class: 'message user' });
    this.prose = h('div', { class: 'prose', dir: 'auto' });
    this.waiting = h('div', { class: 'waiting' });
    this.problem = h('div', { class: 'problem', hidden: true });
    this.foot = new AnswerFoot();
    this.assistant = h(
      'article',
      { class: 'message assistant' },
      this.prose,
      this.waiting,
      this.problem,
      this.foot.element,
    );
    this.element = element;
    element.dataset.turn = String(this.number);
    element.replaceChildren(this.user, this.assistant);
    this.answer = new AnswerView(this.prose);
    this.parts = ''; // the numbers of the turns in it
    this.fed = 0;
    this.finished = false;
    this.inputMemo = newMemo();
    this.edits = 0; // each leaves the message to be drawn again
    /** @type {import('./message_editor.js').Editor | null} */
    this.editor = null;
    /** @type {HTMLElement | null | undefined} */
    this.answerEditor = null;
    this.position = -1;
    this.place = place;
    this.exchange = exchange;
    this.turn = exchange[0]; // the exchange as one turn
    this.update(exchange);
  }

  /** @param {Turn[]} exchange */
  update(exchange) {
    this.exchange = exchange;
    const turn = (this.turn = joined(exchange));
    this.#updateInput();
    this.#updateText(exchange.map((part) => `${part.turn},`).join(''));
    setAttribute(this.element, 'data-state', turn.state);
    setAttribute(this.assistant, 'aria-busy', turn.state === 'running' ? 'true' : null);
    this.assistant.hidden = exchange[0].state === 'queued';
    this.prose.hidden = !turn.text || !!this.answerEditor;
    this.#updateWaiting(turn);
    this.#updateProblem(turn);
    this.foot.update(turn, exchange, this.place);
  }

  /** Its surroundings have changed. @param {import('./answer_foot.js').Place} place @param {number} position from 0 */
  setPlace(place, position) {
    if (place !== this.place) {
      this.place = place;
      this.#updateInput();
      this.editor?.setBusy(place.busy);
      this.foot.update(this.turn, this.exchange, place);
    }
    if (position === this.position) return;
    this.position = position;
    this.user.setAttribute('aria-label', t('You, message {0}', 2 * position + 1));
    this.assistant.setAttribute('aria-label', t('Assistant, message {0}', 2 * position + 2));
  }

  /** @param {string} parts */
  #updateText(parts) {
    const { turn } = this;
    if (!parts.startsWith(this.parts)) {
      this.prose.replaceChildren(); // a different continuation
      this.answer = new AnswerView(this.prose);
      this.fed = 0;
      this.finished = false;
    }
    this.parts = parts;
    const over = turn.state === 'done';
    if (turn.text.length === this.fed && (!over || this.finished)) return;
    if (this.finished) this.answer.reopen();
    const cost = { tokens: turn.n_output, characters: turn.text.length, ms: turn.timings?.decode_ms ?? 0 };
    this.answer.draw(turn.text.slice(this.fed), over, cost, turn.thinking);
    this.fed = turn.text.length;
    this.finished = over;
  }

  #updateInput() {
    const { input } = this.turn;
    const waits = this.exchange[0].state === 'queued';
    const text = said(input);
    const editable = this.place.branching && !waits && (input.content ?? input.text) !== undefined;
    const wordings = this.place.branching ? wordingsOf(this.turn) : { all: [], at: 0 };
    const several = wordings.all.length > 1;
    if (this.editor) return;
    this.inputMemo([this.edits, waits, editable, this.place.busy, several && wordings, text], () => this.#drawInput(text, { waits, editable, wordings: several ? wordings : null }));
  }

  /** @param {string | null} text @param {{waits: boolean, editable: boolean, wordings: {all: number[], at: number} | null}} how */
  #drawInput(text, { waits, editable, wordings }) {
    const { input } = this.turn;
    const raw = input.content === undefined && text !== null;
    this.user.classList.toggle('raw', raw);
    this.user.replaceChildren(
      h(
        'div',
        { class: 'said' },
        h(
          'div',
          { class: 'message-foot' },
          editable && iconButton('pencil', t('Edit message'), { 'data-action': 'edit' }),
          iconButton('copy', t('Copy message'), { 'data-action': 'copy-message' }),
          editable && iconButton('trash', t('Delete from here on'), { 'data-action': 'delete', disabled: this.place.busy }),
        ),
        bubble(text ?? t('Queued message')),
      ),
      ...(wordings ? [versionSwitch(WHAT.message, wordings.all, wordings.at, this.place.busy)] : []),
      ...(raw && !input.continue ? [h('div', { class: 'queued' }, t('Raw input'))] : []),
      ...(waits
        ? [
            h(
              'div',
              { class: 'queued' },
              icon('queue'),
              t('Will send after the answer above'),
              h(
                'button',
                { type: 'button', class: 'link-button', onclick: () => cancel(this.number) },
                t('Cancel'),
              ),
            ),
          ]
        : []),
    );
  }

  /** Opens the editor in place of the message. */
  edit() {
    const { input } = this.turn;
    const text = input.content ?? input.text;
    if (this.editor || text === undefined || !this.place.branching) return;
    let key = newKey();
    let sent = text;
    const send = async (/** @type {string} */ words) => {
      if (words !== sent) key = newKey();
      sent = words;
      try {
        await sayInstead(this.turn, input.content === undefined ? { text: words } : { content: words }, key);
        this.#leaveEditor(field);
        return '';
      } catch (error) {
        return sentence(error);
      }
    };
    this.editor = messageEditor(text, send, () => this.#leaveEditor(null));
    this.editor.setBusy(this.place.busy);
    this.user.replaceChildren(this.editor.element);
    const area = this.editor.element.querySelector('textarea');
    area?.setSelectionRange(area.value.length, area.value.length);
    area?.focus();
  }

  /** Opens an editor in place of the answer. */
  editAnswer() {
    if (this.answerEditor || !this.place.branching || this.place.busy) return;
    const { text } = this.turn;
    let key = newKey();
    let sent = text;
    const leave = () => {
      this.answerEditor?.remove();
      this.answerEditor = null;
      this.prose.hidden = this.foot.element.hidden = false;
      this.foot.edit.focus({ preventScroll: true });
    };
    const { element } = messageEditor(
      text,
      async (words) => {
        if (words !== sent) key = newKey();
        sent = words;
        try {
          await answerInstead(this.number, words, key);
          leave();
          return '';
        } catch (error) {
          return sentence(error);
        }
      },
      leave,
      { label: t('Edit answer'), name: t('Answer'), action: t('Save') },
    );
    this.answerEditor = element;
    element.classList.add('of-answer');
    this.prose.hidden = this.foot.element.hidden = true;
    this.prose.before(element);
    element.querySelector('textarea')?.focus();
  }

  /** @param {HTMLElement | null} focus null: the edit button */
  #leaveEditor(focus) {
    if (!this.editor) return;
    this.editor = null;
    this.edits++;
    this.#updateInput();
    const button = this.user.querySelector('[data-action=edit]');
    (focus ?? (button instanceof HTMLElement ? button : field)).focus({ preventScroll: true });
  }

  /** The turn has left the path. Unsent text of its editor is kept. @param {Turn[]} path */
  leave(path) {
    const text = this.editor?.changed() ? this.editor.text() : '';
    if (!text || field.value || path.some((turn) => turn.parent === this.turn.parent && said(turn.input) === text)) return;
    takeBack(text);
    toast(t('The message you were editing is no longer in this conversation. Your text is in the message field.'));
  }

  /** @param {Turn} turn */
  #updateWaiting(turn) {
    const waits = turn.state === 'running' && !this.exchange[this.exchange.length - 1].text;
    this.waiting.hidden = !waits;
    if (!waits) return;
    const { progress } = turn;
    if (!progress || !progress.total) {
      if (!this.waiting.firstElementChild?.classList.contains('dots'))
        this.waiting.replaceChildren(
          h(
            'span',
            { class: 'dots', role: 'img', 'aria-label': t('Generating') },
            h('i', null),
            h('i', null),
            h('i', null),
          ),
        );
      return;
    }
    let bar = this.waiting.querySelector('progress');
    if (!bar) {
      bar = h('progress', { 'aria-label': t('Processing the conversation') });
      this.waiting.replaceChildren(h('span', { class: 'waiting-text' }), bar);
    }
    bar.max = progress.total;
    bar.value = progress.done;
    setText(
      /** @type {Node} */ (this.waiting.firstChild),
      t('Processing {0} of {1}', count(progress.done), plural(progress.total, 'token')),
    );
  }

  /** @param {Turn} turn */
  #updateProblem(turn) {
    this.problem.hidden = !turn.error;
    if (turn.error)
      this.problem.replaceChildren(icon('warning'), h('span', null, errorText(turn.error) || turn.error.code));
  }
}
