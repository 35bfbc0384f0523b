// What a program's log says about its tests: how many passed, failed and were skipped, and why.
// A program that crashes, prints no result or exits with an error counts as a failure: silence never passes.
import { readFileSync } from 'node:fs';

const count = (log, pattern) => (log.match(pattern) ?? []).length;

const readers = {
  cmocka(log) {
    const failed = new Set([...log.matchAll(/^\[ {2}FAILED {2}\] (?!\d)(.*)$/gm)].map(([, name]) => name)); // named twice
    const skipped = new Set([...log.matchAll(/^\[ {2}SKIPPED \] (?!\d)(.*)$/gm)].map(([, name]) => name));
    const reason = /^.*not run$/m.exec(log)?.[0].trim();
    return { passed: count(log, /^\[ {7}OK \]/gm), failed: failed.size, skipped: [...skipped].map((name) => [name, reason]) };
  },
  // By node's sum. A program that left a socket open ends without the sum (e2e/harness.mjs), so that its lines are counted.
  // A program that ended before all its tests did has neither the sum nor harness.mjs's `ended`.
  node(log) {
    const skipped = [...log.matchAll(/^ *ok \d+ - (.*?) # SKIP ?(.*)$/gm)].map(([, name, reason]) => [name, reason]);
    const sum = (of) => [...log.matchAll(new RegExp(`^# ${of} (\\d+)$`, 'gm'))].at(-1)?.[1];
    if (sum('pass') !== undefined) return { passed: Number(sum('pass')), failed: Number(sum('fail') ?? 0), skipped };
    const failed = count(log, /^ *not ok \d+ - /gm), whole = /^# ended$/m.test(log);
    return { passed: count(log, /^ *ok \d+ - /gm) - skipped.length, failed: failed || (whole ? 0 : 1), skipped };
  },
  // A script that is one test.
  check: (log, status) => ({ passed: status ? 0 : 1, failed: status ? 1 : 0, skipped: [] }),
  // A fuzz target over its corpus, by libFuzzer or by tests/fuzz/walk.c. An empty corpus tests nothing.
  fuzz(log, status) {
    const good = !status && /seed corpus: files|^[1-9]\d* inputs$/m.test(log);
    return { passed: good ? 1 : 0, failed: good ? 0 : 1, skipped: [] };
  },
};

/** { passed, failed, skipped: [[test, reason]] } of a program that ended with `status`. */
export function resultOf(kind, file, status) {
  let log = '';
  try {
    log = readFileSync(file, 'utf8');
  } catch { /* it was not even begun */ }
  const result = readers[kind](log, status);
  if (status && !result.failed) result.failed = 1;
  if (!result.passed && !result.failed && !result.skipped.length) result.failed = 1;
  return result;
}

/** Whether the log has a sanitizer's report: such a failure is never one of the machine's. */
export const sanitizerReport = (file) => /Sanitizer|runtime error:/.test(readFileSync(file, 'utf8'));

/** What a reader needs of a failed program's log: of node's form (TAP) the tests that failed, of others the end. */
export function failuresIn(file, most = 60) {
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n');
  if (!lines.some((line) => /^ *not ok /.test(line))) return lines.slice(-most);
  let on = false;
  return lines.filter((line) => {
    if (/^ *not ok /.test(line)) on = true;
    const shown = on;
    if (/^ *\.\.\.$/.test(line)) on = false;
    return shown;
  }).slice(0, most);
}

/** One line of why it failed. */
export function reasonIn(file) {
  const log = readFileSync(file, 'utf8');
  const found = /^ *not ok \d+ - (.*)$/m.exec(log)?.[1] ?? /^\[ {2}FAILED {2}\] (?!\d)(.*)$/m.exec(log)?.[1];
  const said = /^ *error: (?:\|-\n *)?(.*)$/m.exec(log)?.[1] ?? /^\[ {2}ERROR {3}\] --- (.*)$/m.exec(log)?.[1];
  return [found, said].filter(Boolean).join(': ').slice(0, 200) || log.trimEnd().split('\n').at(-1).slice(0, 200);
}

/** The test that runs, by the log of a program that has not ended: the last that began and has no result; or undefined. */
export function testIn(file) {
  const open = [];
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    const begun = /^ *# Subtest: (.*)$/.exec(line)?.[1] ?? /^\[ RUN {6}\] (.*)$/.exec(line)?.[1];
    const ended = /^ *(?:not )?ok \d+ - (.*?)(?: # .*)?$/.exec(line)?.[1] ?? /^\[ .{8} \] (.*)$/.exec(line)?.[1];
    if (begun !== undefined) open.push(begun);
    else if (ended !== undefined && open.includes(ended)) open.splice(open.lastIndexOf(ended), 1);
  }
  return open.at(-1);
}
