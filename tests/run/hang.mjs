// Finds programs that hang. A program hangs if for PATIENCE seconds it wrote nothing to its log and, with all processes
// that it started, used almost no processor time. Looks in which it waited for a processor do not count. While the
// machine has no idle processor a second counts a third: what the program waits for may be late. A program that computes
// or polls for ever is ended at its limit (programs.mjs), in seconds of its own: those in which it waited for a processor
// are not counted, so that a busy machine ends no program that gets on.
import { readdirSync, readFileSync, statSync } from 'node:fs';

export const PATIENCE = Number(process.env.TEST_PATIENCE ?? 60);
const IDLE_SHARE = 0.03; // of one processor: below it, a program is waiting
const TICKS = 100;       // a second, in /proc (USER_HZ)

/**
 * Of `elapsed` seconds those that count for a program whose threads had processors for `used` seconds and waited for one
 * for `waited`: all but the waiting, and of several threads at once the share of what they wanted that they got.
 */
export const ownSeconds = (elapsed, used, waited) => (used + waited <= elapsed ? elapsed - waited : elapsed * used / (used + waited));

/**
 * The seconds for which a program that writes nothing has seemed to hang, after `elapsed` more. One that used a processor
 * gets on: it begins again. Time in which it waited for one does not count, but is no sign of life either: on a busy
 * machine a mere timer of a program that hangs is late.
 */
export function waitedFor(before, elapsed, used, delayed, busy) {
  if (used >= IDLE_SHARE * elapsed) return 0;
  if (delayed >= IDLE_SHARE * elapsed) return before;
  return before + Math.min(elapsed, 10) * (busy ? 1 / 3 : 1);
}

/** Seconds that a process's threads have waited for a processor, where the kernel counts them. */
function delay(pid) {
  let ns = 0;
  try {
    for (const thread of readdirSync(`/proc/${pid}/task`)) ns += Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'latin1').split(' ')[1]);
  } catch { /* it has ended, or there is no such file */ }
  return ns / 1e9;
}

/** Processor time in seconds of every process and its ended children, with its parent: pid -> { parent, seconds }. */
function processes() {
  const found = new Map();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const ticks = [11, 12, 13, 14].reduce((sum, i) => sum + Number(fields[i]), 0);
      found.set(Number(pid), { parent: Number(fields[1]), session: Number(fields[3]), seconds: ticks / TICKS });
    } catch { /* it has ended */ }
  }
  return found;
}

/** The pids of `top`'s session and of all descendants. */
function tree(all, top) {
  const members = new Set([top]);
  for (let grown = true; grown;) {
    grown = false;
    for (const [pid, { parent, session }] of all)
      if (!members.has(pid) && (session === top || members.has(parent))) {
        members.add(pid);
        grown = true;
      }
  }
  return members;
}

/** Idle and all processor time of the machine so far. */
function machine() {
  const times = readFileSync('/proc/stat', 'latin1').split('\n', 1)[0].trim().split(/\s+/).slice(1, 9).map(Number);
  return { idle: times[3] + times[4], all: times.reduce((a, b) => a + b, 0) };
}

const size = (file) => {
  try {
    return statSync(file).size;
  } catch {
    return 0;
  }
};

/**
 * Watches programs of { pid, log, limit }; look() returns those to be ended now, each with the reason: [program, reason].
 * It adds up in each program `used`, seconds of processor time, and `delayed`, seconds that it waited for a processor.
 */
export class HangWatch {
  constructor() {
    this.seen = new Map(); // program -> { used, delayed, size, waited, own }
    this.before = machine();
    this.at = Date.now();
  }

  look(programs) {
    const now = machine(), elapsed = (Date.now() - this.at) / 1000;
    const busy = (now.idle - this.before.idle) < 0.1 * (now.all - this.before.all);
    this.before = now;
    this.at = Date.now();
    const all = processes(), hung = [];
    for (const program of [...this.seen.keys()]) if (!programs.includes(program)) this.seen.delete(program);
    for (const program of programs) {
      const members = [...tree(all, program.pid)], sum = (of) => members.reduce((total, pid) => total + of(pid), 0);
      const now = { used: sum((pid) => all.get(pid)?.seconds ?? 0), delayed: sum(delay), size: size(program.log), waited: 0, own: 0 };
      const seen = this.seen.get(program);
      if (seen) {
        const used = Math.max(now.used - seen.used, 0), delayed = Math.max(now.delayed - seen.delayed, 0);
        if (now.size === seen.size) now.waited = waitedFor(seen.waited, elapsed, Math.abs(now.used - seen.used), Math.abs(now.delayed - seen.delayed), busy);
        const own = ownSeconds(elapsed, used, delayed);
        now.own = seen.own + Math.min(own, 10);
        program.used = (program.used ?? 0) + used; // also of processes that nobody waits for, as a browser's
        program.delayed = (program.delayed ?? 0) + elapsed - own;
      }
      this.seen.set(program, now);
      if (now.waited >= PATIENCE) hung.push([program, 'hangs: no output and no processor time']);
      else if (now.own >= program.limit) hung.push([program, `still runs after ${program.limit} s`]);
    }
    return hung;
  }

  /** Counts a program's seconds from here on: it begins something else. */
  restart(program) {
    const seen = this.seen.get(program);
    if (seen) seen.own = 0;
  }

  /** Ends a program and all that it started. */
  static kill(pid) {
    const all = processes();
    for (const member of pid ? tree(all, pid) : []) {
      if (!all.has(member)) continue;
      try {
        process.kill(member, 'SIGKILL');
      } catch { /* it has ended */ }
    }
  }
}
