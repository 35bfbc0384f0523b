// What drafts of earlier text save (engine/README.md, Drafts): a model is asked to write a program again with one name
// changed, to summarise a report in its own words, and to go on with a text that does not repeat, with several
// draft_tokens in turns. Prints for each the time of a token, and how many drafts were checked and right.
// usage: PARLEY=build/release/parley node drafts.mjs [MODEL [ROUNDS [TOKENS]]]     (README.md says more)
import path from 'node:path';
import { root, Server, unlimited } from '../e2e/harness.mjs';
import { median } from './results.mjs';

const [model = path.join(root, 'configs/demo-model'), rounds = '5', tokens = '160'] = process.argv.slice(2);
const program = ['total', 'count', 'mean', 'largest', 'smallest'].map((name) => `def ${name}_of(values):\n    result = 0\n    for value in values:\n`
  + `        if value is None:\n            continue\n        result = combine_${name}(result, value)\n    return result\n`).join('\n');
const report = 'The bridge over the river was closed on Monday because of a storm. The city council said that the bridge will stay closed until Friday. '
  + 'Engineers found a crack in the second pillar of the bridge. The repair of the second pillar takes four days and costs two million. ';
const tasks = {
  'code editing': `${program}\nWrite the program again; only \`result\` is now called \`sum\`.\n\n${program.slice(0, 200).replaceAll('result', 'sum')}`,
  summary: `${report}${report}\nSummary: The bridge over the river`,
  'new text': 'Tell me a story that nobody has told before.',
};
const server = await Server.start(null, { model, args: [...unlimited, '--threads', '2'] });
const client = await server.connect();
const metric = (name) => server.metric(`parley_engine_${name}_total`);

async function once(prompt, temperature, draft_tokens) {
  const id = await client.open({});
  const before = [await metric('draft_tokens'), await metric('accepted_draft_tokens')];
  const { done, ids } = await client.turn(id, { text: prompt }, { sampling: { temperature, seed: '1', max_tokens: Number(tokens), ignore_eos: true, draft_tokens } });
  const after = [await metric('draft_tokens'), await metric('accepted_draft_tokens')];
  await client.request({ type: 'session.close', session: id, delete: true });
  return { ids: ids.join(), token_ms: done.timings.decode_ms / (ids.length - 1), drafted: after[0] - before[0], accepted: after[1] - before[1] };
}

console.log(`${client.hello.models[0].name}, ${client.hello.models[0].backend}: ${tokens} tokens, greedy but for the new text; median of ${rounds} runs`);
for (const [name, prompt] of Object.entries(tasks)) {
  const sizes = [0, 2, 4, 8, 16, 32], runs = sizes.map(() => []);
  for (let round = 0; round < Number(rounds); round++)
    for (const [i, size] of sizes.entries()) runs[i].push(await once(prompt, name === 'new text' ? 1 : 0, size));
  for (const [i, size] of sizes.entries()) {
    if (runs[i].some((run) => run.ids !== runs[0][0].ids)) throw new Error(`${name}: draft_tokens ${size} changed the answer`);
    const ms = (of) => median(of.map((run) => run.token_ms));
    const { drafted, accepted } = runs[i][0];
    console.log(`${name.padEnd(14)} draft_tokens ${String(size).padStart(2)}  ${ms(runs[i]).toFixed(3).padStart(8)} ms a token  `
      + `${(ms(runs[0]) / ms(runs[i])).toFixed(2)} times as fast  ${String(drafted).padStart(4)} drafted, ${String(accepted).padStart(4)} right`);
  }
}
await client.close();
await server.stop();
process.exit(0);
