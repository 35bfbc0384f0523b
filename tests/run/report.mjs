// What a run says: failures as they come, one line of progress on a terminal, the sums at the end.
import { failuresIn, reasonIn } from './results.mjs';

const QUIET_MS = 30000; // between two lines of progress where there is no terminal

export class Report {
  constructor({ jobs, verbose }) {
    this.jobs = jobs;
    this.verbose = verbose;
    this.state = { pending: [], running: new Map() };
    this.terminal = process.stdout.isTTY && !process.env.CI;
    this.passed = this.failed = this.programs = 0;
    this.skipped = new Map(); // reason -> { tests, programs }
    this.again = [];          // [name, reason, whether it passed then]
    this.begun = Date.now();
    this.ended = { work: 0 }; // expected seconds of processor time of what has ended
    if (!process.env.CI) {
      this.timer = setInterval(() => this.progress(), this.terminal ? 1000 : QUIET_MS);
      this.timer.unref();
    }
  }

  line(text) {
    process.stdout.write(`${this.terminal ? '\r\x1b[K' : ''}${text}\n`);
  }

  /** What runs, how much is left and about how long that takes: by the table of costs and the speed so far. */
  progress() {
    const running = [...this.state.running.keys()], { pending } = this.state;
    const work = (programs) => programs.reduce((sum, { seconds, weight }) => sum + seconds * Math.max(weight, 0.2), 0);
    const elapsed = (Date.now() - this.begun) / 1000;
    const left = work(pending) + work(running) / 2;
    const speed = (this.ended.work + work(running) / 2) / Math.max(elapsed, 1);
    const minutes = left / Math.max(speed, 0.1) / 60;
    const many = (programs) => programs.reduce((sum, { members }) => sum + (members?.length ?? 1), 0);
    const text = `${this.programs} of ${this.programs + many(running) + many(pending)} programs, ${this.failed} tests failed, ` +
      `about ${minutes < 1 ? 'a minute' : `${Math.ceil(minutes)} min`} left`;
    if (!this.terminal) this.line(`  ${text}`);
    else process.stdout.write(`\r\x1b[K  ${`${text}: ${running.map(({ name }) => name).join(' ')}`.slice(0, (process.stdout.columns ?? 80) - 3)}`);
  }

  skip(name, tests, reason) {
    const known = this.skipped.get(reason) ?? { tests: 0, programs: new Set() };
    known.tests += tests;
    known.programs.add(name);
    this.skipped.set(reason, known);
  }

  /** A program has ended and counts. */
  count(program, result, tests) {
    this.programs++;
    this.ended.work += program.seconds * Math.max(program.weight, 0.2);
    this.passed += tests.passed;
    this.failed += tests.failed;
    for (const [, reason] of tests.skipped) this.skip(program.name, 1, reason || 'no reason given');
    const name = program.name.padEnd(34), seconds = `${result.seconds.toFixed(1)} s`;
    if (tests.failed) {
      this.line(`  FAIL  ${name} ${tests.passed} passed, ${tests.failed} failed (status ${result.status}${program.hung ? `, ${program.hung}` : ''}) after ${seconds}`);
      for (const line of failuresIn(program.log)) this.line(`        ${line}`);
    } else if (this.verbose) this.line(`  ok    ${name} ${String(tests.passed).padStart(4)} ${seconds.padStart(9)}`);
  }

  /** A program has failed and runs once more, alone, at the end. */
  runsAgain(program, result) {
    const reason = program.hung ?? reasonIn(program.log);
    this.again.push({ program, reason });
    this.line(`  again ${program.name.padEnd(34)} failed (status ${result.status}) after ${result.seconds.toFixed(1)} s`);
    for (const line of failuresIn(program.log)) this.line(`        ${line}`);
  }

  /** The last line alone is for programs. */
  end() {
    clearInterval(this.timer);
    if (this.terminal) process.stdout.write('\r\x1b[K');
    for (const { program, reason, passed } of this.again)
      this.line(`  ran twice: ${program.name}, which ${passed ? 'passed' : 'failed again'} alone. First: ${reason}`);
    for (const [reason, { tests, programs }] of this.skipped) {
      const names = [...programs];
      this.line(`  skipped: ${tests} of ${names.slice(0, 6).join(' ')}${names.length > 6 ? ` and ${names.length - 6} more` : ''}: ${reason}`);
    }
    const skipped = [...this.skipped.values()].reduce((sum, { tests }) => sum + tests, 0);
    this.line(`${this.passed} passed, ${this.failed} failed${skipped ? `, ${skipped} skipped` : ''}`);
  }
}
