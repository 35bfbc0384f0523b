// The demo model with the first of its eight layers alone, for tests that draw a hundred thousand tokens and need no sense in
// them: its tokenizer, its template and rows of logits as wide, for a quarter of the arithmetic.
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { root, temporaryFolder } from './harness.mjs';
import { putTogether, takeApart } from './safetensors.mjs';

/** The folder of the shallow model, which a server calls demo-model too. It is removed after the test. */
export function shallowDemo(t) {
  const from = path.join(root, 'configs/demo-model'), to = path.join(temporaryFolder(t), 'demo-model');
  mkdirSync(to);
  const header = {}, parts = [];
  let at = 0;
  for (const name of readdirSync(from)) {
    if (!name.endsWith('.safetensors')) {
      if (!name.includes('.safetensors.')) cpSync(path.join(from, name), path.join(to, name)); // all but the index
      continue;
    }
    const { header: all, data } = takeApart(path.join(from, name));
    for (const [tensor, row] of Object.entries(all)) {
      const layer = /\.layers\.(\d+)\./.exec(tensor);
      if (tensor === '__metadata__' || (layer && layer[1] !== '0')) continue;
      const { data_offsets: [begin, end], ...kind } = row;
      header[tensor] = { ...kind, data_offsets: [at, at += end - begin] };
      parts.push(data.subarray(begin, end));
    }
  }
  putTogether(path.join(to, 'model.safetensors'), header, Buffer.concat(parts));
  const config = JSON.parse(readFileSync(path.join(from, 'config.json'), 'utf8'));
  writeFileSync(path.join(to, 'config.json'), JSON.stringify({ ...config, num_hidden_layers: 1 }));
  return to;
}
