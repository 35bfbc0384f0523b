// One run of llama.cpp on a GGUF file: prefill of 512 tokens, greedy decode of N (128), eight sequences decoding N together,
// on two threads of the CPU, as JSON on stdout. Each part warms up first.
// usage: node rival.mjs npm|native MODEL.gguf [N]
//   npm     node-llama-cpp's prebuilt binaries. Its sampling loop runs in JavaScript, which costs a small model much
//   native  llama-bench and llama-batched-bench of a llama.cpp built on this machine, in LLAMA_BENCH and LLAMA_BATCHED_BENCH
import { execFileSync } from 'node:child_process';

const THREADS = 2, PREFILL = 512, TOGETHER = 8, CONTEXT = 16, DECODE = Number(process.argv[4] ?? 128);

function native(model) {
  const run = (program, args) => execFileSync(program, ['-m', model, '-t', String(THREADS), ...args],
    { encoding: 'utf8', stdio: 'pipe', maxBuffer: 1 << 26 });
  const tests = JSON.parse(run(process.env.LLAMA_BENCH, ['-p', String(PREFILL), '-n', String(DECODE), '-r', '1', '-o', 'json']));
  // llama-batched-bench prints from a thread that its exit does not wait for: the last rows may be lost, so ours is not the last.
  const together = () => run(process.env.LLAMA_BATCHED_BENCH, ['-c', '2048', '-b', '512', '-ub', '512', '-npp', String(CONTEXT),
    '-ntg', `${DECODE},1,1`, '-npl', String(TOGETHER), '--output-format', 'jsonl']).split('\n').find((line) => line.startsWith('{'));
  let row;
  for (let tries = 0; !row && tries < 6; tries++) row = together();
  if (!row) throw new Error('llama-batched-bench says nothing');
  return {
    engine: `llama.cpp ${tests[0].build_commit}, built here`,
    prefill: tests.find((test) => test.n_prompt > 0).avg_ts,
    decode: tests.find((test) => test.n_gen > 0).avg_ts,
    together: JSON.parse(row).speed_tg,
  };
}

async function npm(file) {
  const { getLlama, getModuleVersion } = await import('node-llama-cpp');
  const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error', maxThreads: THREADS });
  const model = await llama.loadModel({ modelPath: file });
  const context = await model.createContext({
    contextSize: PREFILL + DECODE, sequences: TOGETHER, batchSize: PREFILL, threads: { ideal: THREADS, min: THREADS },
  });
  const sequences = Array.from({ length: TOGETHER }, () => context.getSequence());
  const prompt = (n) => Array.from({ length: n }, (_, i) => 5 + (i * 7919) % 4000);

  async function prefill(n) {
    await sequences[0].clearHistory();
    const start = performance.now();
    await sequences[0].evaluateWithoutGeneratingNewTokens(prompt(n));
    return n * 1000 / (performance.now() - start);
  }
  // From the first token to the last, of all the sequences.
  async function decode(n_sequences, n) {
    const used = sequences.slice(0, n_sequences);
    let first = Infinity, last = 0;
    for (const sequence of used) await sequence.clearHistory();
    await Promise.all(used.map(async (sequence) => {
      let left = n;
      for await (const _ of sequence.evaluate(prompt(CONTEXT), { temperature: 0, yieldEogToken: true })) {
        last = performance.now();
        first = Math.min(first, last);
        if (--left === 0) break;
      }
    }));
    return n_sequences * (n - 1) * 1000 / (last - first);
  }

  await prefill(PREFILL);
  const figures = { engine: `node-llama-cpp ${await getModuleVersion()}`, prefill: await prefill(PREFILL) };
  await decode(1, 8);
  figures.decode = await decode(1, DECODE);
  await decode(TOGETHER, 8);
  figures.together = await decode(TOGETHER, DECODE);
  return figures;
}

const [kind, model] = process.argv.slice(2);
if (![4, 5].includes(process.argv.length) || !(DECODE >= 2) || !['npm', 'native'].includes(kind)) {
  console.error('usage: node rival.mjs npm|native MODEL.gguf [N]');
  process.exit(2);
}
console.log(JSON.stringify(kind === 'native' ? native(model) : await npm(model)));
process.exit(0); // node-llama-cpp's threads would hold the process for seconds
