// Reproducible random numbers, so that a failing run can be repeated.
const given = process.env.E2E_SEED;

export const seed = given ? Number(given) : (Date.now() ^ (process.pid << 8)) >>> 0;

export class Random {
  constructor(start = seed) { this.state = start >>> 0; }
  /** 0 .. n - 1 (mulberry32). */
  below(n) {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * n);
  }
  pick(list) { return list[this.below(list.length)]; }
}
