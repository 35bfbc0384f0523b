// @ts-check
// Turns far from what is on the screen: their text alone, without Markdown, buttons and figures. Such a turn costs a
// tenth of a complete one, can be found with the browser's own search, and is completed (TurnView) when it comes near.
import { h, setText } from '../dom.js';
import { proseOf } from '../render/answer_parts.js';
import { joined } from '../turns.js';
import { bubble } from './bubble.js';

/** @typedef {import('../state.js').Turn} Turn */
/** @typedef {import('./answer_foot.js').Place} Place */

const NEAR = 1000; // px from the screen
const SLICE_MS = 4; // after which a task that completes turns ends

/** Whether a turn in it still changes. @param {Turn[]} exchange */
export const changes = (exchange) => exchange.some(({ state }) => state !== 'done');

export class FarTurn {
  /** @param {Turn[]} exchange of which all turns are done @param {Place} place */
  constructor(exchange, place) {
    this.number = exchange[0].turn;
    this.exchange = exchange;
    this.place = place;
    this.position = -1;
    this.turn = joined(exchange);
    this.prose = h('div', { class: 'prose plain', dir: 'auto' });
    this.user = h('article', { class: 'message user' });
    this.assistant = h('article', { class: 'message assistant' }, this.prose);
    this.element = h('section', { class: 'turn', 'data-turn': String(this.number), 'data-state': 'done' }, this.user, this.assistant);
    this.said = '';
    this.update(exchange);
  }

  /** @param {Turn[]} exchange */
  update(exchange) {
    this.exchange = exchange;
    this.turn = joined(exchange);
    const { input } = this.turn;
    const said = input.content ?? input.text ?? '';
    if (said !== this.said) this.user.replaceChildren(h('div', { class: 'said' }, bubble(said)));
    this.said = said;
    setText(this.prose, proseOf(this.turn));
  }

  /** @param {Place} place @param {number} position from 0 */
  setPlace(place, position) {
    this.place = place;
    this.position = position;
  }

  /** The turn has left the path: nothing of it is being edited. */
  leave() {}
}

export class Nearby {
  /**
   * @param {HTMLElement} scroller what moves the turns
   * @param {(turn: FarTurn) => void} complete takes a turn that has come near
   * @param {(change: () => void) => void} keeping runs what completes turns, and keeps the reader's place
   */
  constructor(scroller, complete, keeping) {
    this.complete = complete;
    this.keeping = keeping;
    /** @type {Map<Element, FarTurn>} */
    this.far = new Map();
    /** @type {Map<FarTurn, number>} those that are near, and their distance from the screen's middle */
    this.due = new Map();
    this.scheduled = false;
    this.observer = new IntersectionObserver((entries) => this.#moved(entries), { root: scroller, rootMargin: `${NEAR}px 0px` });
    // On paper every turn is near.
    addEventListener('beforeprint', () => [...this.far.values()].forEach((turn) => this.take(turn)));
  }

  /** @param {FarTurn} turn */
  watch(turn) {
    this.far.set(turn.element, turn);
    this.observer.observe(turn.element);
  }

  /** @param {FarTurn} turn which is completed or has left the path */
  forget(turn) {
    this.far.delete(turn.element);
    this.due.delete(turn);
    this.observer.unobserve(turn.element);
  }

  /** Completes a turn now. @param {FarTurn} turn */
  take(turn) {
    this.forget(turn);
    this.complete(turn);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #moved(entries) {
    for (const { target, isIntersecting, boundingClientRect } of entries) {
      const turn = this.far.get(target);
      if (!turn) continue;
      if (isIntersecting) this.due.set(turn, Math.abs(boundingClientRect.top + boundingClientRect.height / 2 - innerHeight / 2));
      else this.due.delete(turn);
    }
    this.#schedule();
  }

  // Between the frames: the next one then lays out at once what has come near and what scrolling has brought into sight.
  // After a leap to another place many are near at once: the closest first, and no frame is kept waiting.
  #schedule() {
    if (this.scheduled || !this.due.size) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      if (this.due.size) this.keeping(() => this.#takeSome());
      this.#schedule();
    }, 0);
  }

  #takeSome() {
    const end = performance.now() + SLICE_MS;
    for (const [turn] of [...this.due].sort(([, a], [, b]) => a - b)) {
      this.take(turn);
      if (performance.now() > end) break;
    }
  }
}
