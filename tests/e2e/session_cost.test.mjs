// What a session costs in memory: the windows of a model's layers in hello.
import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { root, Server } from './harness.mjs';

test('hello says what layers with and without a window keep', async (t) => {
  const server = await Server.start(t, { model: path.join(root, 'tests/fixtures/models/qwen3_windows'), args: ['--kv-dtype', 'f32', '--block-tokens', '8'] });
  const client = await server.connect();
  const { cache, session_len: tokens, memory_len } = client.hello.models[0];
  const of = Object.fromEntries(cache.windows.map(({ window, bytes_per_token }) => [window, bytes_per_token]));
  assert.deepEqual(Object.keys(of), ['0', '24']);
  const layer = 2 * 2 * 32 * 4; // keys and values of 2 heads of 32, F32
  assert.ok(of[24] >= 2 * layer && of[0] >= layer && of[0] + of[24] <= 4 * layer, JSON.stringify(of));
  const most = Math.min(tokens, memory_len);
  assert.equal(cache.session_bytes, of[24] * 24 + of[0] * most);
});
