// Three servers behind one address: which of them a request comes to, and what clients see of one that ends.
import assert from 'node:assert/strict';
import test from 'node:test';
import { affinity, Cluster, tokenOf, withoutHaproxy } from './balancer.mjs';
import { Client, few } from './harness.mjs';

const bearer = (owner) => ({ authorization: `Bearer ${tokenOf(owner)}` });
const connect = (cluster, owner) => Client.connect(cluster, { headers: { Authorization: `Bearer ${tokenOf(owner)}` } });
async function chat(cluster, owner, messages, headers = {}) {
  const answer = await fetch(`${cluster.url}/v1/chat/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json', ...bearer(owner), ...headers },
    body: JSON.stringify({ model: 'demo-model', messages, max_tokens: 8, temperature: 0, ignore_eos: true }),
  });
  return { status: answer.status, retry: answer.headers.get('retry-after'), session: answer.headers.get('x-session-id'), body: await answer.json() };
}
const user = (content) => ({ role: 'user', content });

test('several servers', { skip: withoutHaproxy }, async (t) => {
  const cluster = await Cluster.start(t);
  const homes = new Map(); // owner -> server's name

  await t.test('an owner comes to one server, by its token or by the number that the page sends', async () => {
    for (const owner of cluster.owners) {
      const one = await connect(cluster, owner);
      homes.set(owner, one.hello.server.id);
      const page = await Client.connect(cluster, { token: tokenOf(owner), query: `?affinity=${affinity(tokenOf(owner))}` });
      assert.equal(page.hello.server.id, homes.get(owner));
      await one.close();
      await page.close();
    }
    assert.ok(new Set(homes.values()).size > 1, `all owners are on one server: ${[...homes.values()]}`);
  });

  await t.test('new ids name their server', async () => {
    const [owner] = cluster.owners;
    const client = await connect(cluster, owner);
    const id = await client.open();
    assert.match(id, new RegExp(`^${homes.get(owner)}-[0-9a-f]{32}$`));
    await client.turn(id, 'Hello', { sampling: { max_tokens: 4 } });
    const fork = await client.request({ type: 'session.fork', session: id });
    assert.match(fork.session.id, new RegExp(`^${homes.get(owner)}-[0-9a-f]{32}$`));
    await client.close();
  });

  await t.test('a session on another server than its owner is found by its id', async () => {
    const [owner] = cluster.owners;
    const other = ['a', 'b', 'c'].find((name) => name !== homes.get(owner));
    const there = await Client.connect(cluster.servers[other], { headers: { Authorization: `Bearer ${tokenOf(owner)}` } });
    const id = await there.open();
    await there.close();
    const client = await Client.connect(cluster, { token: tokenOf(owner), query: `?session=${id}` });
    assert.equal(client.hello.server.id, other);
    await client.request({ type: 'session.attach', session: id, after: 0 });
    await client.turn(id, 'Hello', { sampling: { max_tokens: 4 } });
    await client.close();
    const answer = await chat(cluster, owner, [user('Hello')], { 'x-session-id': id });
    assert.equal(answer.status, 200);
    assert.equal(answer.session, id);
  });

  await t.test('stateless conversations go on in their session, and responses in theirs', async () => {
    for (const owner of cluster.owners.slice(0, 6)) {
      const first = await chat(cluster, owner, [user('Hello')]);
      assert.match(first.session, new RegExp(`^${homes.get(owner)}-`));
      const messages = [user('Hello'), first.body.choices[0].message, user('And more?')];
      assert.equal((await chat(cluster, owner, messages)).session, first.session);
      const made = await fetch(`${cluster.url}/v1/responses`, {
        method: 'POST', headers: { 'content-type': 'application/json', ...bearer(owner) },
        body: JSON.stringify({ model: 'demo-model', input: 'Hello', max_output_tokens: 16 }),
      }).then((answer) => answer.json());
      assert.match(made.id, new RegExp(`^resp_${homes.get(owner)}-`));
      const read = await fetch(`${cluster.url}/v1/responses/${made.id}`, { headers: bearer(owner) });
      assert.equal(read.status, 200);
    }
  });

  await t.test('a server that drains ends its turns, the others serve new ones, and it comes back', async () => {
    const [owner] = cluster.owners;
    const name = homes.get(owner), old = cluster.servers[name];
    const client = await connect(cluster, owner);
    const id = await client.open();
    await client.start(id, 'Hello', { sampling: { max_tokens: few(400), ignore_eos: true } });
    await client.next((frame) => frame.type === 'turn.delta');
    const ended = old.stop();
    await cluster.is(name, 'DOWN');
    const answer = await chat(cluster, owner, [user('Are you there?')]);
    assert.equal(answer.status, 200);
    assert.notEqual(answer.session.split('-')[0], name);
    const away = await chat(cluster, owner, [user('And this one?')], { 'x-session-id': id });
    assert.deepEqual([away.status, away.retry], [503, '2']);
    assert.equal((await client.next((frame) => frame.type === 'turn.done')).finish_reason, 'length');
    assert.equal((await ended).code, 0);
    cluster.servers[name] = await cluster.server(name, { port: old.port, db: old.db });
    await cluster.up(name);
    assert.equal((await chat(cluster, owner, [user('And now?')], { 'x-session-id': id })).status, 200);
  });
});

test('a server that goes down behind the check of its state: no other one is asked for its session', { skip: withoutHaproxy }, async (t) => {
  // Without the check, each request comes as late as one that overtakes a server's end.
  const cluster = await Cluster.start(t, (config) => config.replace(/^.*srv_is_up.*\n/gm, ''));
  const [owner] = cluster.owners;
  const { session, status } = await chat(cluster, owner, [user('Are you there?')]);
  assert.equal(status, 200);
  const [name] = session.split('-');
  assert.equal((await cluster.servers[name].stop()).code, 0);
  await cluster.is(name, 'DOWN');
  const away = await chat(cluster, owner, [user('And now?')], { 'x-session-id': session });
  assert.deepEqual([away.status, away.retry, away.body.error.code], [503, '2', 'overloaded']);
  assert.equal((await chat(cluster, owner, [user('And without its id?')])).status, 200);
});
