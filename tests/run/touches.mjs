// The tests that a folder's change can break, for `make test-of FOLDER`: C tests that include something of the folder,
// and what the table `touches` names.
import { existsSync, readFileSync } from 'node:fs';
import { named, table, top } from './programs.mjs';

const included = (file) => [...readFileSync(`${top}/${file}`, 'utf8').matchAll(/^#include "([^"]*)"/gm)].flatMap(([, name]) =>
  name.startsWith('tests/unit/') ? [name, ...included(name)] : [name]);

/** Whether the C test behind a program's name includes a file of the folder, itself or by a header in tests/unit. */
function includes(name, folder) {
  const [, suite, test] = /^(unit|ops|golden)\/([^-]*)/.exec(name) ?? [];
  const file = `tests/${suite}/test_${test}.c`;
  return Boolean(suite) && existsSync(`${top}/${file}`) && included(file).some((header) => header.startsWith(`${folder}/`));
}

/** A predicate of program names. */
export function touchedBy(given) {
  const folder = given.replace(/^\.\//, '').replace(/\/+$/, '');
  if (!existsSync(`${top}/${folder}`)) throw new Error(`--of ${given}: there is no such folder`);
  // The row of the folder itself, or of the nearest one above it.
  let row;
  for (let at = folder; at && !row; at = at.includes('/') ? at.slice(0, at.lastIndexOf('/')) : '') row = table('touches').find(([name]) => name === at);
  const names = row?.slice(1) ?? [];
  const test = /^tests\/(unit|ops|golden|e2e\/page|e2e)$/.exec(folder)?.[1].replace('e2e/page', 'page');
  return (name) => name.split('/')[0] === test || includes(name, folder) || named(names, name) || !name.includes('/');
}
