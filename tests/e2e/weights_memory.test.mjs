// Weights of few bits take the memory that the file has, and loading takes no more: a tenth on top is allowed.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, statSync, truncateSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { parley, temporaryFolder } from './harness.mjs';
import { build, write } from './gguf.mjs';

const VOCABULARY = 512;
// Values and bytes of a block. Two bits with minimums have half bytes for them, which memory has as whole ones.
const types = {
  Q4_0: [2, 32, 18], Q8_0: [8, 32, 34], Q2_K: [10, 256, 84, 1.3], Q3_K: [11, 256, 110], Q4_K: [12, 256, 144], Q5_K: [13, 256, 176], Q6_K: [14, 256, 210],
  MXFP4: [39, 32, 17],
};

/** A file whose tensors are zeros, which take no room on the disk. */
function fileOf(t, [type, values, bytes], width, layers) {
  const file = path.join(temporaryFolder(t), 'zeros.gguf');
  const llama = { block_count: layers, context_length: 256, embedding_length: width, feed_forward_length: 4 * width, 'attention.head_count': width / 64, vocab_size: VOCABULARY };
  const metadata = { 'general.architecture': ['text', 'llama'], 'tokenizer.ggml.model': ['text', 'none'], 'llama.attention.layer_norm_rms_epsilon': ['f32', 1e-5] };
  for (const [key, value] of Object.entries(llama)) metadata[`llama.${key}`] = ['u32', value];
  const tensors = [];
  let offset = 0;
  const add = (name, ...dims) => {
    tensors.push({ name: `${name}.weight`, dims, type: dims.length > 1 ? type : 0, data: Buffer.alloc(0), offset });
    offset += Math.ceil((dims.length > 1 ? dims[0] * dims[1] / values * bytes : dims[0] * 4) / 32) * 32;
  };
  add('token_embd', width, VOCABULARY);
  add('output_norm', width);
  for (let i = 0; i < layers; i++) {
    for (const name of ['attn_q', 'attn_k', 'attn_v', 'attn_output']) add(`blk.${i}.${name}`, width, width);
    for (const name of ['ffn_gate', 'ffn_up']) add(`blk.${i}.${name}`, width, 4 * width);
    add(`blk.${i}.ffn_down`, 4 * width, width);
    for (const name of ['attn_norm', 'ffn_norm']) add(`blk.${i}.${name}`, width);
  }
  const head = build({ metadata, tensors });
  write(file, head);
  truncateSync(file, head.length + offset);
  return file;
}

/** The most memory that the process has ever had resident, in bytes. */
async function peakOf(file) {
  const child = spawn(parley, ['generate', '--model', file, '--ids', '1,2,3', '--max-tokens', '4', '--ignore-eos', '--device', 'cpu', '--session-len', '64'], { stdio: ['ignore', 'ignore', 'pipe'] });
  let peak = 0, status, stderr = '';
  child.stderr.on('data', (text) => { stderr += text; });
  const ended = new Promise((resolve) => child.on('close', (code) => { status = code; resolve(); }));
  while (status === undefined) {
    try {
      const found = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'));
      if (found) peak = Math.max(peak, Number(found[1]) * 1024);
    } catch { /* it has ended */ }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await ended;
  assert.equal(status, 0, stderr);
  return peak;
}

for (const [name, type] of Object.entries(types))
  test(`${name}: loading takes little more than the file`, { skip: /asan|tsan/.test(parley) }, async (t) => {
    const small = fileOf(t, type, 2048, 1), large = fileOf(t, type, 2048, 5); // of the same activations
    const bytes = statSync(large).size - statSync(small).size;
    const share = (await peakOf(large) - await peakOf(small)) / bytes;
    t.diagnostic(`${(bytes / 1e6).toFixed(0)} MB, peak ${share.toFixed(3)} of it`);
    assert.ok(share < (type[3] ?? 1.1), `${share.toFixed(3)} of the file's size`);
    assert.ok(share > 0.9); // the weights were in memory at all
  });
