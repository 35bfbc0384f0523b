// Finds programs that hang. A program hangs if for PATIENCE seconds it wrote nothing to its log and, with all processes
// that it started, neither used processor time nor waited for a processor, or almost none. While the machine has no idle
// processor a second counts a third: what the program waits for may be late. Time alone says nothing: a program that
// computes may take as long as its limit.
import { readdirSync, readFileSync, statSync } from 'node:fs';

export const PATIENCE = Number(process.env.TEST_PATIENCE ?? 60);
const IDLE_SHARE = 0.03; // of one processor: below it, a program is waiting
const TICKS = 100;       // a second, in /proc (USER_HZ)

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

/** Watches programs of { pid, log }; look() returns those that hang now. */
export class HangWatch {
  constructor() {
    this.seen = new Map(); // program -> { used, size, waited }
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
      const used = [...tree(all, program.pid)].reduce((sum, pid) => sum + (all.get(pid)?.seconds ?? 0) + delay(pid), 0);
      const now = { used, size: size(program.log), waited: 0 }, seen = this.seen.get(program);
      if (seen && now.size === seen.size && Math.abs(used - seen.used) < IDLE_SHARE * elapsed)
        now.waited = seen.waited + Math.min(elapsed, 10) * (busy ? 1 / 3 : 1);
      this.seen.set(program, now);
      if (now.waited >= PATIENCE) hung.push(program);
    }
    return hung;
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
