// Files of node's tests that share one process (e2e/together.mjs), and what the process's log says about each file.
// A file that starts alone costs 0.5 s of processor time for node and its imports, a file of the page 1.2 s, and then each
// runs code that node has not compiled yet.
import { readFileSync, writeFileSync } from 'node:fs';
import { resultOf } from './results.mjs';

const LONGEST = 120; // seconds of a group

/** The same programs, with files of one environment in groups. `alone`: names that stay as they are. */
export function inGroups(programs, alone = []) {
  const groups = [], rest = [];
  for (const program of [...programs].sort((a, b) => b.seconds - a.seconds)) {
    if (program.kind !== 'node' || !program.file || alone.includes(program.name)) {
      rest.push(program);
      continue;
    }
    const key = `${program.lane} ${JSON.stringify(program.env)}`;
    const group = groups.find((each) => each.key === key && each.seconds + program.seconds <= LONGEST);
    if (group) {
      group.members.push(program);
      group.seconds += program.seconds;
    } else groups.push({ key, members: [program], seconds: program.seconds });
  }
  return [...rest, ...groups.map(({ members }) => (members.length > 1 ? groupOf(members) : members[0]))]
    .sort((a, b) => b.seconds - a.seconds || (a.name < b.name ? -1 : 1));
}

function groupOf(members) {
  const [first] = members, seconds = members.reduce((sum, each) => sum + each.seconds, 0);
  return {
    name: `${first.name}+${members.length - 1}`, kind: 'group', members, seconds,
    command: ['node', '--test-reporter=tap', 'tests/e2e/together.mjs', ...members.map(({ name, file }) => `${name}=${file}`)],
    env: first.env, log: first.log.replace(/\.log$/, '.group.log'), waits: true, limit: first.limit,
    weight: members.reduce((sum, each) => sum + each.seconds * each.weight, 0) / seconds,
  };
}

/** A log's lines file by file: [name, lines, whether its end was reached]. Lines behind the last end have no name. */
function sections(log) {
  const found = [];
  let lines = [], mark; // the test of together.mjs's own whose result is being read
  for (const line of log.split('\n')) {
    const [, failed, kind, name] = /^(not )?ok \d+ - (begin|end) of (\S+)$/.exec(line) ?? [];
    if (name !== undefined) mark = { kind, name, failed };
    if (!mark || mark.failed) lines.push(line);
    if (mark && line === '  ...') {
      if (mark.kind === 'end') {
        found.push([mark.name, lines.filter((each) => !/^# Subtest: (begin|end) of \S+$/.test(each)), true]);
        lines = [];
      }
      mark = undefined;
    }
  }
  return [...found, [mark?.name, lines, false]];
}

/** How many files of a group have ended. */
export const endedIn = (file) => sections(readFileSync(file, 'utf8')).length - 1;

/**
 * What the process of a group did: { done: [[program, result, tests]], left: programs that it did not begin }. The file
 * in which the process ended has failed. Each file gets a log of its own.
 */
export function outcomes(group, result) {
  const parts = sections(readFileSync(group.log, 'utf8')), done = [];
  const whole = parts.length - 1;
  const note = (program, lines, status) => {
    writeFileSync(program.log, `${lines.join('\n')}\n`);
    const seconds = lines.reduce((sum, line) => sum + Number(/^ {2}duration_ms: (.*)$/.exec(line)?.[1] ?? 0), 0) / 1000;
    done.push([program, { ...result, status, seconds }, resultOf('node', program.log, status)]);
  };
  for (const [i, program] of group.members.slice(0, whole).entries()) note(program, [...parts[i][1], '# ended'], 0);
  const [, lines] = parts[whole], program = group.members[whole];
  if (program) {
    program.hung = group.hung;
    note(program, lines.filter((line) => !/^# (pass|fail) \d+$/.test(line)), result.status || 1);
  } else if (result.status && !done.some(([, , { failed }]) => failed)) {
    const [last] = done.pop(); // it ended with an error behind its last test
    note(last, [...parts[whole - 1][1], ...lines], result.status);
  }
  return { done, left: group.members.slice(whole + 1) };
}
