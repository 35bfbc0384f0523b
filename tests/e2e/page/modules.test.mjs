// How the page's modules depend on each other: views read the state and call the logic, never the other way round.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SOURCES = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../../web/src');

test('no module of the logic imports a view; main.js alone puts them together', () => {
  const files = readdirSync(SOURCES, { recursive: true }).map(String).filter((name) => name.endsWith('.js'));
  const logic = files.filter((name) => !/^(view\/|main\.js)/.test(name));
  assert.ok(logic.length > 30 && logic.length < files.length - 30);
  const imports = (name) => readFileSync(path.join(SOURCES, name), 'utf8').match(/^import [^;]*from '[^']*view\/[^']*'/gm) ?? [];
  assert.deepEqual(logic.flatMap((name) => imports(name).map((line) => `${name}: ${line}`)), []);
});
