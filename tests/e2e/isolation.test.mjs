// No client reaches another owner's session: every message that names a session, with every kind of session. The
// messages come from the protocol's own table, so that a new one is always included.
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Follower } from './follower.mjs';
import { longTest, root, Server, shortTest as test, temporaryFolder, unlimited, until } from './harness.mjs';

const secret = 'The secret word is Zanzibar.';
const tokens = { alice: 'alice-token-0123456789', mallory: 'mallory-token-0123456789' };
const unknown = 'ffffffffffffffffffffffffffffffff'; // as long as one that was drawn

/** What a message needs beside its session. A type of the protocol's table that is not here fails the test: add it. */
const fields = {
  'session.open': [{}], 'session.attach': [{}, { after: 0 }, { after: 1 << 30 }], 'session.detach': [{}],
  'session.get': [{}, { attach: true }, { before: 1 }], 'session.update': [{ title: 'Mine now' }, { sampling: { temperature: 0.1 } }],
  'session.share': [{}], 'session.unshare': [{}],
  'session.close': [{}, { delete: true }], 'session.events': [{}, { before: 4 }],
  'session.rewind': [{ turn: 0 }, { turn: null }, { turn: 99 }], 'session.fork': [{}, { turn: 0 }, { turn: 99 }, { new_session: 'stolen' }],
  'session.typing': [{}], 'session.export': [{}],
  'turn.start': [{ input: { content: 'What is the secret word?' } }, { input: { ids: [1] }, queue: true }, { input: { continue: true } }, { input: { content: 'x' }, after: 0 }],
  'turn.cancel': [{}, { turn: 0 }], 'turn.get': [{ turn: 0 }, { turn: 99 }], 'turn.replay': [{ turn: 0 }, { turn: 99 }],
  'turn.regenerate': [{}, { turn: 0 }],
  'turn.edit': [{ turn: 0, text: 'x' }, { turn: 99, text: 'x' }], 'turn.delete': [{ turn: 0 }, { turn: 99 }],
  'turn.write': [{ input: { content: 'x' }, text: 'y' }, { input: { content: 'x' }, text: 'y', after: null }],
  'session.outline': [{}, { from: 1, limit: 2 }],
};
const nameless = new Set(['hello', 'ping', 'usage.get', 'session.list', 'sessions.watch', 'session.import']);
/** Names the session that it makes: an id is its owner's own, so that another's is free. */
const makes = new Set(['session.open']);
/** No answer, right or wrong: sent, and looked for in what comes. */
const silent = new Set(['session.typing']);

function typesOfTheProtocol() {
  const source = readFileSync(path.join(root, 'ws/parley/protocol.c'), 'utf8');
  const table = source.slice(source.indexOf('} rows[] = {'));
  return [...table.slice(0, table.indexOf('};')).matchAll(/\{"([a-z._]+)",\s*MESSAGE_/g)].map((match) => match[1]);
}

/** Options of a server that lets these two in. */
function owners(t) {
  const file = path.join(temporaryFolder(t), 'tokens');
  writeFileSync(file, Object.entries(tokens).map(([name, token]) => `${name}:${token}\n`).join(''));
  chmodSync(file, 0o600);
  return ['--token-file', file, '--sharing', ...unlimited];
}

test('the table of message types is the one that is tested', () => {
  const types = typesOfTheProtocol();
  assert.ok(types.length >= 15, types.join());
  assert.deepEqual(types.filter((type) => !fields[type] && !nameless.has(type)), []);
});

test('every message with a session of another owner: session_not_found, nothing learnt, nothing changed', async (t) => {
  const types = typesOfTheProtocol().filter((type) => fields[type]);
  const options = { db: path.join(temporaryFolder(t), 'parley.db'), args: [...owners(t), '--max-sequence-idle-microseconds', '300000'] };
  let server = await Server.start(t, options);
  let alice = await server.connect({ token: tokens.alice });
  const sampling = { max_tokens: 8, ignore_eos: true };
  // One of each kind: closed, on the disk alone, empty, with its cache gone, in use.
  const closed = await Follower.open(alice, { title: secret });
  await closed.say(secret, { sampling });
  await alice.ask({ type: 'session.close', session: closed.session });
  const cold = await Follower.open(alice, { system: secret });
  await cold.say(secret, { sampling });
  await server.stop();
  server = await Server.start(t, options);
  alice = await server.connect({ token: tokens.alice });
  const mallory = await server.connect({ token: tokens.mallory });
  assert.equal((await mallory.ask({ type: 'sessions.watch' })).type, 'sessions.watching');
  const own = await Follower.open(mallory);
  const empty = await Follower.open(alice);
  const evicted = await Follower.open(alice);
  await evicted.say(secret, { sampling });
  await evicted.wait('the eviction', () => evicted.evictions[0]);
  const busy = await Follower.open(alice);
  const running = await busy.start(secret, { sampling: { max_tokens: 3900, ignore_eos: true, n: 6 } }); // turn.sample too
  await busy.tokens(running, 2);
  const kinds = { closed, cold, empty, evicted, busy };

  const heard = mallory.frames.length;
  for (const type of types) {
    for (const more of fields[type]) {
      const other = silent.has(type) || makes.has(type) ? null : await mallory.ask({ type, session: unknown, ...more });
      for (const [kind, { session }] of Object.entries(kinds)) {
        const what = `${type} ${JSON.stringify(more)} of the ${kind} one`;
        if (silent.has(type)) {
          mallory.send({ type, session, ...more });
          continue;
        }
        const answer = await mallory.ask({ type, session, ...more });
        if (makes.has(type)) {
          assert.deepEqual([answer.type, answer.session.id, answer.session.n_turns, answer.session.title, answer.session.seq],
            ['session.opened', session, 0, '', 1], what);
          await mallory.ask({ type: 'session.close', session, delete: true });
          continue;
        }
        assert.equal(answer.code, 'session_not_found', `${what}: ${JSON.stringify(answer)}`);
        // The same sentence as for an unused id.
        assert.deepEqual({ ...answer, session: '', request_id: '' }, { ...other, session: '', request_id: '' }, what);
      }
    }
  }
  await mallory.ask({ type: 'ping' });
  const stolen = mallory.frames.slice(heard).filter((frame) => JSON.stringify(frame).match(/Zanzibar|secret/i));
  assert.deepEqual(stolen, []);
  const ids = Object.values(kinds).map(({ session }) => session);
  const events = mallory.frames.slice(heard).filter((frame) => frame.type !== 'error' && ids.some((id) => JSON.stringify(frame).includes(id)));
  // Only the sessions that mallory opened and deleted under these ids.
  const about = new Set(['session.opened', 'session.closed', 'session.changed', 'session.removed']);
  assert.deepEqual(events.filter((frame) => !about.has(frame.type) || (frame.session.n_turns ?? 0) > 0 || (frame.seq ?? 0) > 2), []);
  for (const query of [undefined, 'Zanzibar', 'secret'])
    assert.deepEqual((await mallory.ask({ type: 'session.list', query })).sessions.map(({ id }) => id).filter((id) => ids.includes(id)), [], query);

  // And the attempts had no effect.
  for (const [kind, follower] of Object.entries(kinds)) {
    const { session, turns } = await alice.ask({ type: 'session.get', session: follower.session });
    if (kind === 'busy') {
      assert.deepEqual([session.state, turns.length, turns[0].state], ['active', 1, 'running']);
      continue;
    }
    assert.deepEqual([session.seq, turns.length, session.title], [follower.seq, follower.turns.size,
      { closed: secret, empty: '' }[kind] ?? session.title], kind);
    assert.deepEqual(session.sampling, {}, kind);
  }
  const copy = await alice.ask({ type: 'session.fork', session: cold.session });
  const copies = async (client) => (await client.ask({ type: 'session.list', forked_from: cold.session })).sessions.map(({ id }) => id);
  assert.deepEqual([await copies(alice), await copies(mallory)], [[copy.session.id], []]);
  alice.send({ type: 'turn.cancel', session: busy.session });
  await busy.done(running);
  assert.equal(own.seq, 1);
});

test('ids that the server draws are 128 random bits', async (t) => {
  const server = await Server.start(t, { args: unlimited });
  const client = await server.connect();
  const ids = await Promise.all(Array.from({ length: 256 }, async () => (await client.ask({ type: 'session.open' })).session.id));
  assert.equal(new Set(ids).size, ids.length);
  assert.ok(ids.every((id) => /^[0-9a-f]{32}$/.test(id)));
  for (let bit = 0; bit < 128; bit++) { // each of them is drawn: 256 that are alike have a chance of 2^-255
    const ones = ids.filter((id) => Number.parseInt(id[bit >> 2], 16) >> (3 - (bit & 3)) & 1).length;
    assert.ok(ones > 0 && ones < ids.length, `bit ${bit}`);
  }
});

longTest('an id that two owners use names two sessions, and none has anything of the other', async (t) => {
  const server = await Server.start(t, { args: owners(t) });
  const clients = await Promise.all([tokens.alice, tokens.mallory].map((token) => server.connect({ token })));
  for (let round = 0; round < 20; round++) {
    const [client, other] = round % 2 ? clients : [...clients].reverse();
    const follower = await Follower.open(client, { session: 'mine', system: `Round ${round}.` });
    const asked = `I am owner ${round} and my number is ${round * 7919}.`;
    const { ids } = await follower.say(asked, { sampling: { max_tokens: 6, temperature: 0, ignore_eos: true } });
    const alone = await Follower.open(client, { system: `Round ${round}.` });
    assert.deepEqual((await alone.say(asked, { sampling: { max_tokens: 6, temperature: 0, ignore_eos: true } })).ids, ids);
    const { turns } = await client.ask({ type: 'session.get', session: 'mine' });
    assert.deepEqual(turns.map(({ input }) => input.content), [asked]);
    assert.equal((await other.ask({ type: 'session.get', session: 'mine' })).code, 'session_not_found');
    const theirs = await Follower.open(other, { session: 'mine', system: `Other ${round}.` });
    assert.equal((await other.ask({ type: 'session.open', session: 'mine' })).code, 'session_exists');
    await theirs.say('And I?', { sampling: { max_tokens: 4 } });
    await other.ask({ type: 'session.close', session: 'mine', delete: true });
    assert.equal((await client.ask({ type: 'session.get', session: 'mine' })).turns.length, 1);
    await client.ask({ type: 'session.close', session: 'mine', delete: true });
    await until('it to be gone', async () => (await client.ask({ type: 'session.get', session: 'mine' })).code === 'session_not_found');
    assert.equal((await other.ask({ type: 'session.attach', session: 'mine', after: 0 })).code, 'session_not_found');
  }
});
