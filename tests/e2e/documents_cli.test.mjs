// The manual pages and the completion of bash say what --help says, and their readers accept them.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { longTest, shortTest as test, temporaryFolder } from './harness.mjs';
import { run } from './run.mjs';

async function good(...args) {
  const result = await run(args);
  assert.equal(result.code, 0, `parley ${args.join(' ')}: ${result.stderr}`);
  return result.stdout;
}
const listed = async () => [...(await good('--help')).matchAll(/^ {2}([a-z]+) {2,}\S/gm)].map(([, name]) => name);
/** The options in a command's help, without dashes: "[no-]json", "model". */
const optionsOf = (help) => [...help.matchAll(/^ {2}--(\S+)/gm)].map(([, name]) => name);

test('both manual pages are clean, and have every command and every option', async (t) => {
  const folder = temporaryFolder(t), words = {};
  for (const name of ['man', 'man-settings']) {
    const file = path.join(folder, name);
    writeFileSync(file, await good('documents', name));
    const lint = spawnSync('mandoc', ['-T', 'lint', '-W', 'warning', file], { encoding: 'utf8' });
    assert.deepEqual([lint.status, lint.stdout, lint.stderr], [0, '', ''], name);
    words[name] = spawnSync('mandoc', ['-T', 'ascii', '-O', 'width=100', file], { encoding: 'utf8' }).stdout.replace(/.\x08/g, '');
  }
  for (const command of await listed()) {
    assert.match(words.man, new RegExp(`^ +parley ${command}\\b`, 'm'));
    const options = optionsOf(await good(command, '--help'));
    for (const option of options) {
      const setting = option.replace('[no-]', '').replaceAll('-', '_');
      const found = words.man.includes(`--${option}`) || (['serve', 'doctor'].includes(command) && new RegExp(`^ +${setting} = `, 'm').test(words['man-settings']));
      assert.ok(found, `parley ${command} --${option} is in neither page`);
    }
  }
  assert.match(words['man-settings'], /^\[server\]$/m);
});

/** What bash offers for the words of a line; the last one is completed. */
function complete(script, words, cwd) {
  const program = `source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _parley; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const result = spawnSync('bash', ['-c', program, 'bash', script, ...words], { cwd, encoding: 'utf8' });
  assert.deepEqual([result.status, result.stderr], [0, ''], words.join(' '));
  return result.stdout.split('\n').filter(Boolean).sort();
}

longTest('bash completes commands, options, values, files and actions', async (t) => {
  const folder = temporaryFolder(t), script = path.join(folder, 'completion');
  writeFileSync(script, await good('documents', 'bash'));
  mkdirSync(path.join(folder, 'models'));
  writeFileSync(path.join(folder, 'models.ini'), '');
  const offers = (...words) => complete(script, ['parley', ...words], folder);
  assert.deepEqual(offers(''), ['--help', '--version', ...await listed()].sort());
  assert.deepEqual(offers('sc'), ['score']);
  for (const command of await listed()) {
    const expected = optionsOf(await good(command, '--help'))
      .flatMap((name) => name.startsWith('[no-]') ? [`--${name.slice(5)}`, `--no-${name.slice(5)}`] : [`--${name}`]);
    assert.deepEqual(offers(command, '--'), ['--help', ...expected].sort(), command);
  }
  assert.deepEqual(offers('sessions', ''), ['backup', 'doctor', 'export', 'import', 'list', 'move', 'rm', 'show', ...offers('sessions', '--')].sort());
  assert.deepEqual(offers('serve', '--log-level', ''), ['debug', 'error', 'info', 'off', 'warn']);
  assert.deepEqual(offers('serve', '--log-level', '=', 'w'), ['warn']);
  assert.deepEqual(offers('serve', '--log-level', '='), ['debug', 'error', 'info', 'off', 'warn']);
  assert.deepEqual(offers('serve', '--model', 'm'), ['models'], 'a folder');
  assert.deepEqual(offers('serve', '--config', 'm'), ['models', 'models.ini'], 'a file');
  assert.deepEqual(offers('serve', '--port', ''), [], 'a number');
  assert.deepEqual(offers('unknown', '--'), []);
});
