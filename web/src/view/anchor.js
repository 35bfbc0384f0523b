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

  /** @param {Element} turn */
  #at(turn) {
    return turn.getBoundingClientRect().top + this.scroller.scrollTop;
  }

  // The first turn that begins in sight; else the one that fills the screen. What changes within the turn above the first
  // then moves nothing.
  #inSight() {
    const { left, width, top, bottom } = this.scroller.getBoundingClientRect();
    let turn = null;
    for (let y = top + 1; y < bottom; y += STEP) {
      const here = document.elementFromPoint(left + width / 2, y)?.closest('.turn');
      if (!here || !this.scroller.contains(here)) continue;
      turn = here;
      if (here.getBoundingClientRect().top >= top) break;
    }
    return turn && { turn, at: this.#at(turn) };
  }
}
