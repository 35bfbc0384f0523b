// A later turn's first token over the wire: from turn.start being sent to the first turn.delta, on an idle server.
// usage: PARLEY=build/release/parley node later_turn.mjs MODEL_DIR [CONTEXT [NEW [OPTIONS of serve]]]
import { Client, Server } from '../e2e/harness.mjs';

const [model, context = '4096', fresh = '200', ...options] = process.argv.slice(2);
if (!model) {
  console.error('usage: PARLEY=build/release/parley node later_turn.mjs MODEL_DIR [CONTEXT [NEW [OPTIONS of serve]]]');
  process.exit(2);
}
const REPEAT = 7;
const server = await Server.start(null, { model, args: ['--memory-len', '0', ...options], wait: false });
await server.ready(600000);
const client = await Client.connect(server);
const vocabulary = client.hello.models[0].n_vocab;
const ids = (n) => Array.from({ length: n }, () => Math.floor(Math.random() * vocabulary));
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const sampling = { temperature: 0, ignore_eos: true };
const wire = [], engine = [];
for (let i = 0; i <= REPEAT; i++) { // the first warms up
  const session = await client.open();
  await client.turn(session, { ids: ids(Number(context)) }, { sampling: { ...sampling, max_tokens: 1 } });
  const message = { type: 'turn.start', session, input: { ids: ids(Number(fresh)) }, sampling: { ...sampling, max_tokens: 4 } };
  const delta = new Promise((resolve) => {
    const listener = (frame) => {
      if (frame.type !== 'turn.delta' || frame.session !== session) return;
      client.listeners.delete(listener);
      resolve(performance.now());
    };
    client.listeners.add(listener);
  });
  const begin = performance.now();
  client.send(message);
  const took = (await delta) - begin;
  const done = await client.next((frame) => frame.type === 'turn.done' && frame.session === session && frame.turn === 1);
  if (done.cache.kept_tokens !== Number(context)) throw new Error(`not kept: ${JSON.stringify(done.cache)}`);
  if (i) wire.push(took), engine.push(done.timings.queue_ms + done.timings.prefill_ms);
  await client.request({ type: 'session.close', session, delete: true });
}
console.log(`${client.hello.models[0].backend}: ${fresh} new tokens on ${context} in the cache: first delta after ${median(wire).toFixed(2)} ms, `
  + `${median(engine).toFixed(2)} ms of it in the engine (medians of ${REPEAT})`);
await server.stop();
process.exit(0);
