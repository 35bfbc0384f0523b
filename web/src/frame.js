// @ts-check
// Runs work that changes the view at most once a frame. A page that is not drawn gets no frames, and it need not be
// hidden for that: a covered window, a busy graphics process. A timer then runs the work, so that the page's title, its
// live region and its text still change.

const LATE_MS = 250;
/** @type {Set<() => void>} */
const waiting = new Set();
let scheduled = false;
let frame = 0;
/** @type {any} */
let timer = null;

function run() {
  scheduled = false;
  cancelAnimationFrame(frame);
  clearTimeout(timer);
  const jobs = [...waiting];
  waiting.clear();
  for (const job of jobs) job();
}

/** Runs job before the next paint; asked for again before then, still once. @param {() => void} job */
export function onFrame(job) {
  waiting.add(job);
  if (scheduled) return;
  scheduled = true;
  frame = requestAnimationFrame(run);
  timer = setTimeout(run, LATE_MS);
}

/**
 * Runs job in a task of its own behind the next frame, which draws what was changed so far; without a frame it runs late.
 * @param {() => void} job
 */
export function afterFrame(job) {
  const go = () => {
    cancelAnimationFrame(frame);
    clearTimeout(late);
    setTimeout(job, 0);
  };
  const frame = requestAnimationFrame(go);
  const late = setTimeout(go, LATE_MS);
}

/** Runs the waiting work now. */
export function runNow() {
  if (scheduled) run();
}
