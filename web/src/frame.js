// @ts-check
// Runs work that changes the view at most once a frame. A hidden tab gets no frames, so a slow timer replaces them: the
// title and the live region still change.

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

/** Runs the waiting work now. */
export function runNow() {
  if (scheduled) run();
}

// A frame requested before the tab was hidden never comes: run the waiting work.
document.addEventListener('visibilitychange', () => {
  if (scheduled) setTimeout(run, document.hidden ? HIDDEN_MS : 0);
});
