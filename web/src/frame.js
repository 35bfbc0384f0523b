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

/** @type {Array<() => void>} one behind each frame */
const behind = [];
let awaited = false;

function awaitFrame() {
  awaited = true;
  const next = () => {
    awaited = false;
    const job = behind.shift();
    if (behind.length) awaitFrame();
    job?.();
  };
  const frame = requestAnimationFrame(() => {
    clearTimeout(late);
    setTimeout(next, 0);
  });
  // No frames come: each job has a task of its own.
  const late = setTimeout(() => {
    cancelAnimationFrame(frame);
    awaited = false;
    for (const job of behind.splice(0)) setTimeout(job, 0);
  }, LATE_MS);
}

/**
 * Runs job in a task of its own behind a frame that draws what was changed so far. Each job has its frame, so that no
 * frame draws the work of two. Without frames it runs late.
 * @param {() => void} job
 * @param {boolean} [first] before those that wait
 */
export function afterFrame(job, first = false) {
  if (first) behind.unshift(job);
  else behind.push(job);
  if (!awaited) awaitFrame();
}

/** Runs the waiting work now. */
export function runNow() {
  if (scheduled) run();
}
