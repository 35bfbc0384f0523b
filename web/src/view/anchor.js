// @ts-check
// Keeps what one reads in its place while turns above it change their height: they are completed when they come near, and
// laid out when they come into sight. Chromium does it by itself (overflow-anchor). Safari does not, and Firefox loses its
// anchor at such turns.

const STEP = 40; // px between the points at which a turn is looked for

export class Anchor {
  /** @param {HTMLElement} scroller what moves the turns */
  constructor(scroller) {
    this.scroller = scroller;
    this.needed = !CSS.supports('overflow-anchor', 'auto') || CSS.supports('-moz-appearance', 'none');
    if (this.needed) scroller.style.setProperty('overflow-anchor', 'none');
    /** @type {{turn: Element, at: number} | null} a turn in sight, and its distance from the start of the conversation */
    this.held = null;
  }

  /** Holds a turn that is in sight now; call it when the page itself has made up for a change. */
  hold() {
    if (this.needed) this.held = this.#inSight();
  }

  /** Holds nothing: the view follows the end. */
  release() {
    this.held = null;
  }

  /** Scrolls by as much as the held turn has moved, and holds the one that is in sight now. Call it before a frame is painted. */
  keep() {
    const { held, scroller } = this;
    const moved = held?.turn.isConnected ? this.#at(held.turn) - held.at : 0;
    if (Math.abs(moved) >= 1) scroller.scrollBy({ top: moved, behavior: 'instant' });
    this.hold();
  }

  /**
   * Makes a change of turns on the screen, and leaves what is read below them in its place. The browser would hold the top
   * of the first of them.
   * @param {() => void} change
   * @param {(turn: Element) => boolean} changes
   */
  during(change, changes) {
    const read = changes(this.#turns().next().value ?? this.scroller) ? this.#inSight(changes)?.turn : null;
    const before = read?.getBoundingClientRect().top ?? 0;
    change();
    if (!read) return;
    const moved = read.getBoundingClientRect().top - before; // what the browser has made up for by itself is not in it
    if (Math.abs(moved) >= 1) this.scroller.scrollBy({ top: moved, behavior: 'instant' });
    this.hold();
  }

  /** @param {Element} turn */
  #at(turn) {
    return turn.getBoundingClientRect().top + this.scroller.scrollTop;
  }

  /** The turns on the screen from its top, some of them several times. */
  *#turns() {
    const { left, width, top, bottom } = this.scroller.getBoundingClientRect();
    for (let y = top + 1; y < bottom; y += STEP) {
      const turn = document.elementFromPoint(left + width / 2, y)?.closest('.turn');
      if (turn && this.scroller.contains(turn)) yield turn;
    }
  }

  // The first turn that begins in sight; else the one that fills the screen. What changes within the turn above the first
  // then moves nothing.
  /** @param {(turn: Element) => boolean} [changes] those that it is not */
  #inSight(changes = () => false) {
    const { top } = this.scroller.getBoundingClientRect();
    let turn = null;
    for (const here of this.#turns()) {
      if (changes(here)) continue;
      turn = here;
      if (here.getBoundingClientRect().top >= top) break;
    }
    return turn && { turn, at: this.#at(turn) };
  }
}
