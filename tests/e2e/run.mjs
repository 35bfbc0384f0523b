// One run of the program, as a shell would: exit status, standard output, standard error.
import { spawn } from 'node:child_process';
import { parley, patience, root } from './harness.mjs';

/** { input, timeoutMs, wrap: ['prlimit', ...], env } */
export function run(args, options = {}) {
  const [program, ...rest] = [...(options.wrap ?? []), parley, ...args];
  const child = spawn(program, rest, { cwd: root, env: { ...process.env, ...options.env }, stdio: 'pipe' });
  const result = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => { result.stdout += text; });
  child.stderr.setEncoding('utf8').on('data', (text) => { result.stderr += text; });
  child.stdin.on('error', () => {}); // it may end without reading
  child.stdin.end(options.input ?? '');
  const timer = setTimeout(() => { result.timedOut = true; child.kill('SIGKILL'); }, options.timeoutMs ?? patience);
  return new Promise((resolve) => child.once('close', (code, signal) => {
    clearTimeout(timer);
    resolve({ ...result, code, signal });
  }));
}
