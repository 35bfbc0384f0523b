// Runs programs beside each other. Each has a weight, the processors that it keeps busy; together they stay below the
// machine's. The longest start first, so that none runs alone at the end.
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import { endedIn } from './groups.mjs';
import { HangWatch } from './hang.mjs';
import { testIn } from './results.mjs';

const SLACK = 0.6;      // programs wait for disks and each other: a little more than the processors
const OVERTAKEN = 12;   // programs that may start before an older one for which there is no room yet
const LOOK_MS = 2000;
// bash measures the processor time of the program and of the processes that it waited for.
const TIMED = 'TIMEFORMAT="%R %U %S"; { time "$@" >"$TEST_LOG" 2>&1; } 2>"$TEST_TIME"';

/** Starts a program; resolves to { status, seconds, own, cpu }: own is without what it waited for a processor. */
function start(program, scratch) {
  const times = `${scratch}/${program.name.replace(/\W/g, '-')}.time`, begun = Date.now();
  writeFileSync(program.log, '');
  const child = spawn('bash', ['-c', TIMED, 'bash', ...program.command], {
    env: { ...process.env, ...program.env, TEST_LOG: program.log, TEST_TIME: times },
    stdio: 'ignore', detached: true, // a session of its own, which ends as a whole
  });
  program.pid = child.pid;
  Object.assign(program, { begun, used: 0, delayed: 0 });
  // What waits for others has timeouts, so that programs that only compute give way to it. Not below other work of the
  // machine: where the whole run has a low priority already, it stays the same for all.
  if (!program.waits && child.pid && os.getPriority() <= 0)
    try {
      os.setPriority(child.pid, 5);
    } catch { /* it has ended */ }
  return new Promise((resolve) => {
    child.once('error', () => resolve({ status: 255, seconds: 0, own: 0, cpu: 0 }));
    child.once('exit', (code, signal) => {
      let user = 0, system = 0;
      try {
        [, user, system] = readFileSync(times, 'utf8').trim().split('\n').at(-1).split(' ').map(Number);
      } catch { /* it was killed */ }
      const seconds = (Date.now() - begun) / 1000, cpu = Math.max(user + system || 0, program.used ?? 0);
      resolve({ status: signal ? 137 : code, seconds, own: Math.max(seconds - (program.delayed ?? 0), 0), cpu });
    });
  });
}

/**
 * Runs all programs; each ends with ended(program, result). `state` has { pending, running } for whoever reports.
 * jobs: processors to fill; 1 runs a single program at a time. stop(): whether no further program shall start.
 */
export async function runAll(programs, { jobs, scratch, ended, state, stop = () => false }) {
  const pending = [...programs], running = new Map(), watch = new HangWatch();
  const capacity = jobs === 1 ? 1 : jobs + SLACK;
  state.pending = pending;
  state.running = running;
  const load = () => [...running.keys()].reduce((sum, { weight }) => sum + weight, 0);
  const fits = (program) => !running.size || (jobs > 1 && running.size < 4 * jobs && load() + Math.min(program.weight, jobs) <= capacity);
  const startSome = () => {
    for (let i = 0; i < pending.length && !stop();) {
      const program = pending[i];
      if (fits(program)) {
        pending.splice(i, 1);
        for (const older of pending.slice(0, i)) older.overtaken = (older.overtaken ?? 0) + 1;
        running.set(program, start(program, scratch).then((result) => ({ program, result })));
      } else if ((program.overtaken ?? 0) >= OVERTAKEN) return; // nothing more starts before it
      else i++;
    }
  };
  startSome();
  const timer = setInterval(() => {
    const now = [...running.keys()];
    for (const program of now.filter(({ members }) => members)) { // the limit is that of the file that runs
      const at = endedIn(program.log);
      if (at !== program.at) watch.restart(program);
      program.at = at;
      program.limit = program.members[Math.min(at, program.members.length - 1)].limit;
    }
    for (const [program, why] of watch.look(now)) {
      const test = testIn(program.log);
      program.hung = test ? `${why} in "${test}"` : why;
      HangWatch.kill(program.pid);
    }
  }, LOOK_MS);
  while (running.size) {
    const { program, result } = await Promise.race(running.values());
    running.delete(program);
    HangWatch.kill(program.pid); // what it left behind
    if (program.hung) result.status ||= 124;
    ended(program, result);
    startSome();
  }
  clearInterval(timer);
}
