// Another program cuts the mapped index of the database's log short, again and again, while turns are committed. Between
// transactions the server repairs it; in the middle of one it ends by SIGBUS, says why, and has lost nothing that it told.
import assert from 'node:assert/strict';
import { truncateSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { Follower } from './follower.mjs';
import { Server, scale, sleep, temporaryFolder, unlimited, until } from './harness.mjs';

test('an index that is cut short at any moment loses nothing that was told', async (t) => {
  const db = path.join(temporaryFolder(t), 'parley.db');
  const told = new Map(); // session -> the texts of its turns that are over
  let ends = 0;
  for (let round = 0; round < Math.ceil(4 * scale); round++) {
    const server = await Server.start(t, { db, args: [...unlimited, '--commit-interval-us', '1000'] });
    const clients = await Promise.all(Array.from({ length: 4 }, () => server.connect()));
    const talks = clients.map(async (client) => {
      try {
        const follower = await Follower.open(client);
        told.set(follower.session, []);
        for (;;) {
          const turn = await follower.say('Hello!', { after: null, sampling: { max_tokens: 12, ignore_eos: true } });
          told.get(follower.session).push([turn.done.turn, turn.ids]);
        }
      } catch { /* its connection ends */ }
    });
    const before = [...told.values()].flat().length;
    await until('the first turns', () => server.status || [...told.values()].flat().length > before + 4);
    for (const end = Date.now() + 2000; Date.now() < end && !server.status;) {
      truncateSync(`${db}-shm`, 0);
      await sleep(20 + Math.random() * 100);
    }
    const { signal } = await server.stop('SIGKILL');
    assert.ok(['SIGKILL', 'SIGBUS'].includes(signal), signal);
    if (signal === 'SIGBUS') {
      ends++;
      assert.match(server.log, /event=server\.mapped_file_cut/);
    }
    await Promise.all(talks);
  }
  const server = await Server.start(t, { db, args: unlimited });
  const client = await server.connect();
  let n = 0;
  for (const [session, turns] of told)
    for (const [number, ids] of turns) {
      const record = await client.ask({ type: 'turn.get', session, turn: number });
      assert.deepEqual(record.tokens.map((token) => token.id), ids, `${session}, turn ${number}`);
      n++;
    }
  t.diagnostic(`${n} turns told, none lost; ${ends} ends by SIGBUS`);
  assert.ok(n > 0);
});
