// `parley sessions move`: sessions go to another server's database, over kill -9, and no session is ever in two servers.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { cpSync, mkdirSync, statSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { Cluster, tokenOf, withoutHaproxy } from './balancer.mjs';
import { Client, few, parley, Server, sleep, temporaryFolder, unlimited } from './harness.mjs';

const call = promisify(execFile);
const sessions = (...args) => call(parley, ['sessions', ...args], { maxBuffer: 1 << 28 });
const move = (from, to, ...args) => sessions('move', '--db', from, '--to', to, ...args);
const list = async (db) => JSON.parse((await sessions('list', '--db', db, '--json')).stdout).sessions.map((s) => s.id).sort();
const record = async (db, id) => JSON.parse((await sessions('export', id, '--db', db)).stdout);
const sampling = { max_tokens: 6, ignore_eos: true };

async function filled(t, n, options = {}) {
  const server = await Server.start(t, { ...options, args: [...unlimited, ...(options.args ?? [])] });
  const client = await server.connect();
  const ids = [];
  for (let i = 0; i < n; i++) {
    ids.push(await client.open({ title: `Number ${i}` }));
    if (i < 4) await client.turn(ids[i], `Hello ${i}`, { sampling: { ...sampling, seed: i + 1 } });
  }
  await client.close();
  await server.stop();
  return { server, ids };
}

test('sessions go to another database as they are, beside a server too, and go on from their snapshots', async (t) => {
  const folder = temporaryFolder(t);
  const [here, there] = ['here', 'there'].map((name) => path.join(folder, name));
  const { server, ids } = await filled(t, 4, { args: ['--snapshot-dir', here] });
  const before = await Promise.all(ids.map((id) => record(server.db, id)));
  const target = path.join(folder, 'target.db');
  mkdirSync(there);
  cpSync(here, there, { recursive: true });
  assert.match((await move(server.db, target)).stdout, /moved 4 sessions/);
  assert.deepEqual(await list(server.db), []);
  assert.deepEqual(await Promise.all(ids.map((id) => record(target, id))), before);
  const second = await Server.start(t, { db: target, args: ['--snapshot-dir', there] });
  const client = await second.connect();
  await client.request({ type: 'session.attach', session: ids[0], after: 0 });
  const { done } = await client.turn(ids[0], 'More', { sampling });
  assert.equal(done.cache.source, 'snapshot');

  await assert.rejects(move(target, server.db), /in use by another Parley/);
  const third = await filled(t, 2);
  await move(third.server.db, target, '--owner', 'nobody'); // moves none
  assert.equal((await list(third.server.db)).length, 2);
  await move(third.server.db, target);
  for (const id of third.ids) assert.equal((await client.request({ type: 'session.get', session: id })).session.id, id);
  await assert.rejects(move(target, target), /same database/);
});

test('a session whose id the target has stays, and is said', async (t) => {
  const made = [];
  for (let i = 0; i < 2; i++) {
    const server = await Server.start(t);
    const client = await server.connect();
    await client.open({ session: 'mine' });
    await client.turn('mine', `Hello ${i}`, { sampling });
    await client.open({ session: `other${i}` });
    await client.close();
    await server.stop();
    made.push(server.db);
  }
  await assert.rejects(move(...made), (error) => /mine of owner local stays/.test(error.stderr));
  assert.deepEqual(await list(made[0]), ['mine']);
  assert.deepEqual(await list(made[1]), ['mine', 'other0', 'other1']);
});

test('killed at any time, a move finishes when it is said again, and until then no server has the source', async (t) => {
  const n = 320;
  const { server, ids } = await filled(t, n);
  const target = path.join(server.folder, 'target.db');
  const before = new Map(await Promise.all(ids.slice(0, 4).map(async (id) => [id, await record(server.db, id)])));
  let marked = 0;
  for (let attempt = 0; attempt < 8; attempt++) {
    const mover = spawn(parley, ['sessions', 'move', '--db', server.db, '--to', target], { stdio: 'ignore' });
    const ended = new Promise((resolve) => mover.once('exit', (code) => resolve(code)));
    // killed when it has written to the target, at another moment of that each time
    const written = () => statSync(`${target}-wal`, { throwIfNoEntry: false })?.size ?? 0;
    for (let last = written(), n = 0; mover.exitCode === null && n <= attempt % 3; await new Promise(setImmediate))
      if (written() > last) [last, n] = [written(), n + 1];
    mover.kill('SIGKILL');
    await ended;
    const [from, to] = [await list(server.db), await list(target).catch(() => [])];
    assert.deepEqual([...new Set([...from, ...to])].sort(), [...ids].sort(), 'none is lost');
    if (from.length === 0) break;
    if (to.length === 0) continue; // it had only made the target
    const second = await Server.start(t, { db: server.db, wait: false });
    assert.notEqual((await second.exited).code, 0);
    assert.match(second.log, /being moved; finish with: parley sessions move/);
    marked++;
    await assert.rejects(move(server.db, path.join(server.folder, 'elsewhere.db')), /being moved/);
  }
  t.diagnostic(`${marked} of the kills came in the middle`);
  await move(server.db, target);
  assert.deepEqual(await list(server.db), []);
  assert.deepEqual(await list(target), [...ids].sort());
  for (const [id, whole] of before) assert.deepEqual(await record(target, id), whole);
  const again = await Server.start(t, { db: server.db }); // empty, and free
  await again.stop();
});

// A client as PROTOCOL.md wants it: it connects again when its connection ends, and says a request again under its id.
async function turnThrough(cluster, owner, id, turn, n) {
  const request_id = `turn-${turn}`;
  while (!cluster.t?.signal.aborted) {
    let client;
    try {
      client = await Client.connect(cluster, { headers: { Authorization: `Bearer ${tokenOf(owner)}` }, query: id ? `?session=${id}` : '' });
      if (!id) return await client.open({ sampling: { seed: 7 } });
      await client.request({ type: 'session.attach', session: id, after: 0 });
      client.send({ type: 'turn.start', session: id, request_id, input: { content: `Turn ${turn}` },
        sampling: { max_tokens: n, ignore_eos: true, seed: turn + 1 } });
      const answer = await client.next((frame) => frame.request_id === request_id);
      if (answer.type === 'turn.accepted') {
        const done = await client.next((frame) => frame.type === 'turn.done' && frame.turn === answer.turn);
        assert.equal(done.finish_reason, 'length', JSON.stringify(done));
        return client.frames.filter((frame) => frame.type === 'turn.delta' && frame.turn === answer.turn).flatMap((frame) => frame.ids);
      }
      assert.ok(['shutting_down', 'overloaded'].includes(answer.code), JSON.stringify(answer));
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error; // else: the connection has ended
    } finally {
      client?.socket.terminate();
    }
    await sleep(100);
  }
}

const messages = [{ role: 'user', content: 'Tell me a long story.' }];
const stateless = [
  ['/v1/chat/completions', { max_tokens: 32, temperature: 0, messages, stream: true }],
  ['/v1/responses', { max_output_tokens: 32, temperature: 0, input: 'Tell me a long story.', stream: true }],
  ['/v1/messages', { max_tokens: 32, temperature: 0, messages, stream: true }],
];

/** Sends one request after another until over(); each must be answered at once and whole. Gives the answers' number. */
async function requests(cluster, owner, [address, body], over) {
  for (let n = 0; ; n++) {
    if (over() && n > 2) return n;
    const answer = await fetch(`${cluster.url}${address}`, { method: 'POST', body: JSON.stringify({ model: 'demo-model', ...body }),
      headers: { 'content-type': 'application/json', 'anthropic-version': '2023-06-01', authorization: `Bearer ${tokenOf(owner)}` } });
    const text = await answer.text();
    assert.equal(answer.status, 200, `${address}: ${text}`);
    assert.match(text, /\[DONE\]|response\.(completed|incomplete)|message_stop/, address);
  }
}

test('a rolling restart: each server hands its sessions to another process, and no turn fails', { skip: withoutHaproxy }, async (t) => {
  const cluster = await Cluster.start(t);
  const n = few(40);
  const chosen = cluster.owners.slice(0, 6);
  const ids = await Promise.all(chosen.map((owner) => turnThrough(cluster, owner)));
  let over = false;
  const talk = async (owner, id) => {
    const turns = [];
    while (!over || turns.length < 3) turns.push(await turnThrough(cluster, owner, id, turns.length, n));
    return turns;
  };
  const talks = chosen.map((owner, i) => talk(owner, ids[i]));
  const asked = cluster.owners.flatMap((owner) => stateless.map((one) => requests(cluster, owner, one, () => over)));
  const failed = Promise.all([...talks, ...asked]).then(() => null, (error) => error);
  for (const name of ['a', 'b', 'c']) {
    const old = cluster.servers[name];
    await cluster.say(`set server parley/${name} state drain`);
    assert.equal((await old.stop()).code, 0);
    const db = path.join(cluster.folder, `${name}-next.db`);
    await move(old.db, db);
    const next = await cluster.server(name, { db });
    await cluster.say(`set server parley/${name} addr 127.0.0.1 port ${next.port}; set server parley/${name} state ready`);
    cluster.servers[name] = next;
    await cluster.up(name);
  }
  over = true;
  assert.equal(await failed, null);
  const all = await Promise.all(talks);
  // The same turns on a server that nothing disturbs.
  const quiet = await cluster.server('quiet');
  for (const [i, turns] of all.entries()) {
    const id = await turnThrough(quiet, chosen[i]);
    for (const [turn, tokens] of turns.entries()) {
      assert.equal(tokens.length, n);
      assert.deepEqual(await turnThrough(quiet, chosen[i], id, turn, n), tokens, `owner ${i}, turn ${turn}`);
    }
  }
});
