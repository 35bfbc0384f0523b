// @ts-check
// Work that changes what is seen, at most once a frame. A hidden tab gets no frames, so there a slow timer stands in:
// its title and its live region still move on.

const HIDDEN_MS = 250;
/** @type {Set<() => void>} */
const waiting = new Set();
let scheduled = false;

function run() {
  scheduled = false;
  const jobs = [...waiting];
  waiting.clear();
  for (const job of jobs) job();
}

/** Runs job before the next paint; asked for again before then, still once. @param {() => void} job */
export function onFrame(job) {
  waiting.add(job);
  if (scheduled) return;
  scheduled = true;
  if (document.hidden) setTimeout(run, HIDDEN_MS);
  else requestAnimationFrame(run);
}

/** Runs what waits for the next paint now. */
export function runNow() {
  if (scheduled) run();
}

// A frame that was asked for while the tab was seen never comes once it is hidden: run what waits.
document.addEventListener('visibilitychange', () => {
  if (scheduled) setTimeout(run, document.hidden ? HIDDEN_MS : 0);
});
