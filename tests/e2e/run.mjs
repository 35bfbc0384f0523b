// One run of the program, as a shell would: exit status, standard output, standard error.
import assert from 'node:assert/strict';
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

/** Its standard output; it must end well. */
export async function good(args, options) {
  const result = await run(args, options);
  const said = `parley ${args.join(' ')}: ${result.stderr}${result.stdout.slice(-2000)}`;
  assert.deepEqual([result.code, result.signal], [0, null], said);
  return result.stdout;
}
/** The same, as JSON. */
export const json = async (args, options) => JSON.parse(await good(args, options));

/** A conversation in the demo model's form, for what measures how well it is predicted. */
export const chat = `<|endoftext|><|im_start|>user
Hi! My name is Zora and I live in Lisbon.<|im_end|>
<|im_start|>assistant
Nice to meet you, Zora! How is life in Lisbon?<|im_end|>
<|im_start|>user
Good. What is my name, and what is 12 plus 30?<|im_end|>
<|im_start|>assistant
Your name is Zora. 12 plus 30 is 42.<|im_end|>
`;
