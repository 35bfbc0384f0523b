"""parley serve on a GPU, from end to end: README.md says what each part tries. usage: serve.py [PART ...]"""
import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import time

from wire import DEVICE, MODEL, PARLEY, Client, Server, check, run

GREEDY = {'temperature': 0, 'logprobs': True}
LINES = ['My name is Zora and I live in Lima.', 'What is my name?', 'Count from one to ten.', 'Where do I live?']


def drawn(seed, n=40):
    return {'temperature': 0.8, 'top_p': 0.95, 'seed': str(seed), 'max_tokens': n, 'ignore_eos': True, 'logprobs': True}


def same(a, b):
    return a['ids'] == b['ids'] and a['logprobs'] == b['logprobs']


def apart(a, b):
    """Whether all tokens are equal, how many are at the start, and how far log-probabilities are apart in these."""
    n = 0
    while n < min(len(a['ids']), len(b['ids'])) and a['ids'][n] == b['ids'][n]:
        n += 1
    far = max([abs(x - y) for x, y in zip(a['logprobs'][:n], b['logprobs'][:n])] or [0])
    return n == len(a['ids']) == len(b['ids']), n, far


def near(a, b):
    """Not the same bits (another batch, other kernels): the same beginning, with about the same log-probabilities."""
    return apart(a, b)[1] > 3 and apart(a, b)[2] < 0.1


def talk(server, sampling):
    client = Client(server)
    session = client.open()
    return [client.turn(session, line, sampling=sampling) for line in LINES]


def together(n, f):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(f, range(n)))


def cpu():
    server = Server('--compute-dtype', 'f32', device='cpu', cache='64MiB')
    want = talk(server, GREEDY)
    server.stop()
    for compute, bound in (('f32', 2e-3), ('auto', 0.15)):
        server = Server('--compute-dtype', compute)
        got = talk(server, GREEDY)
        server.stop()
        far = [apart(a, b) for a, b in zip(want, got)]
        check('%s: tokens as on the CPU, log-probabilities near' % compute,
              (all(f[0] for f in far) or compute == 'auto') and far[0][1] > 3 and max(f[2] for f in far) < bound, far)
        check('%s: what was said before is known' % compute, 'Zora' in got[1]['text'], got[1]['text'])
        # Tokens that come faster than they are sent share a frame.
        check('%s: tokens stream' % compute, any(len(g['deltas']) >= 3 for g in got), [(len(g['deltas']), len(g['ids'])) for g in got])


def life():
    server = Server('--max-sequence-idle-microseconds', 400000, '--host-cache-bytes', 0)
    c = Client(server)
    evicted, kept = c.open(), c.open()
    first, second = [c.turn(s, LINES[0], sampling=drawn(7)) for s in (evicted, kept)]
    check('one log and one seed: the same bits', same(first, second))
    stays = c.turn(kept, LINES[1], sampling=drawn(8))
    c.wait(lambda f: f['type'] == 'session.evicted' and f['session'] == evicted, 20)
    back = c.turn(evicted, LINES[1], sampling=drawn(8))
    check('an evicted session is computed again and goes on',
          (back['source'], stays['source']) == ('recomputed', 'kept') and near(back, stays), apart(back, stays))

    fork = c.ask({'type': 'session.fork', 'session': kept})['session']['id']
    here, there = [c.turn(s, LINES[2], sampling=drawn(9)) for s in (kept, fork)]
    check('a fork goes on as its origin', near(here, there), apart(here, there))
    c.ask({'type': 'session.rewind', 'session': kept, 'turn': 1})
    again = c.turn(kept, LINES[2], sampling=drawn(9))
    check('rewound and said again', near(again, here), apart(again, here))
    other = c.done(kept, c.ask({'type': 'turn.regenerate', 'session': kept, 'sampling': {'seed': '1234'}})['turn'])
    check('regenerated', other['why'] == 'length' and len(other['ids']) == 40, other['why'])

    tab = Client(server)
    reset = tab.ask({'type': 'session.attach', 'session': kept, 'after': 0})['reset']
    last = c.ask({'type': 'session.get', 'session': kept})['session']['seq']
    tab.wait(lambda m: m.get('seq') == last and m.get('session') == kept)
    ids = [i for m in tab.frames if m['type'] == 'turn.delta' and m['turn'] == 0 for i in m['ids']]
    check('another tab sees all of it', ids == second['ids'] and not reset)

    turn = c.start(kept, LINES[2], sampling=drawn(3, 2000))
    c.wait(lambda m: m['type'] == 'turn.delta' and m['session'] == kept and m['turn'] == turn)
    c.ask({'type': 'turn.cancel', 'session': kept})
    cut = c.done(kept, turn)
    check('cancelled', cut['why'] == 'cancelled' and cut['done']['usage']['output_tokens'] == len(cut['ids']), cut['why'])
    after = c.turn(kept, LINES[1], sampling={'max_tokens': 5})
    check('and the cache is kept', after['source'] == 'kept' and
          after['done']['cache']['computed_tokens'] == after['done']['usage']['input_tokens'] + 1, after['done']['cache'])

    small = c.open(memory_len=64, sink_len=4)
    for i in range(3):
        far = c.turn(small, LINES[2], sampling=drawn(i, 150))
    check('far past its window', far['why'] == 'length' and len(far['ids']) == 150, far['why'])
    chat = subprocess.run([PARLEY, 'chat', '--url', 'ws://127.0.0.1:%d/ws' % server.port, '--temperature', '0'],
                          input='My name is Zora.\nWhat is my name?\n', capture_output=True, text=True, timeout=60)
    check('parley chat --url', chat.returncode == 0 and 'Zora' in chat.stdout, chat.stdout + chat.stderr)

    before = c.ask({'type': 'session.get', 'session': kept})['session']
    check('SIGTERM: exit 0', server.stop() == 0)
    server = Server(db=server.db)
    c = Client(server)
    now = c.ask({'type': 'session.get', 'session': kept, 'attach': True})['session']
    check('started again: the session is there', all(before[k] == now[k] for k in ('n_tokens', 'n_turns', 'head', 'title')), now)
    on = c.turn(kept, LINES[1], sampling=drawn(5, 10))
    check('and goes on', on['source'] == 'recomputed' and len(on['ids']) == 10, on['source'])
    killed(server, c, kept)


def killed(server, c, session):
    turn = c.start(session, LINES[2], sampling=drawn(6, 1500))
    ids = lambda: [i for m in list(c.frames) if m['type'] == 'turn.delta' and m['session'] == session and m['turn'] == turn
                   for i in m['ids']]
    while len(ids()) < 30:
        time.sleep(0.005)
    server.stop(signal.SIGKILL)
    seen = ids()
    server = Server(db=server.db)
    c = Client(server)
    turns = c.ask({'type': 'session.get', 'session': session, 'attach': True})['turns']
    had = [t['id'] for t in c.ask({'type': 'turn.get', 'session': session, 'turn': turn})['tokens']]
    why = [t for t in turns if t['turn'] == turn][0]['finish_reason']
    check('kill -9: nothing that was seen is missing', had[:len(seen)] == seen and why == 'interrupted', (len(seen), len(had), why))
    check('and it goes on', len(c.turn(session, LINES[1], sampling=drawn(5, 10))['ids']) == 10)
    server.stop()


def tiers():
    said = [' '.join('The number %d comes before the number %d.' % (i, i + 1) for i in range(60))] + LINES[1:]

    def parked_or_kept(park):
        server = Server('--max-sequence-idle-microseconds', 300000 if park else 60000000, '--host-cache-bytes', '256MiB')
        c = Client(server)
        session, turns = c.open(), []
        for i, line in enumerate(said):
            if park and i:
                c.wait(lambda f: f['type'] == 'session.parked' and f['session'] == session and f['_at'] > c.sent, 20)
            turns.append(c.turn(session, line, sampling=drawn(i)))
        return server, c, turns

    server, c, kept = parked_or_kept(False)
    system = ' '.join('You are a helpful assistant number %d.' % i for i in range(60))
    alone, shares = [c.turn(c.open(system=system), 'Hello!', sampling=drawn(1, 20)) for _ in range(2)]
    check('a shared system prompt is computed once', shares['done']['cache']['kept_tokens'] >= 256 and near(alone, shares),
          shares['done']['cache'])
    server.stop()
    server, c, parked = parked_or_kept(True)
    for i in range(1, len(said)):
        check('parked and back, turn %d: the bits of one that was kept' % i,
              same(parked[i], kept[i]) and (parked[i]['source'], kept[i]['source']) == ('host', 'kept'),
              (parked[i]['done']['cache'], apart(parked[i], kept[i])))
    server.stop()


def deterministic():
    server = Server('--deterministic', '--max-sequences', 20)

    def talks(i):
        c, rng = Client(server), random.Random(i)
        session = c.open()
        for k in range(4):
            c.turn(session, LINES[rng.randrange(4)], sampling=drawn(i * 10 + k, 20 + rng.randrange(80)), seconds=120)
            time.sleep(rng.random() * 0.05)
        return session

    recorded = together(8, talks)
    alone = talks(100)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        company = [pool.submit(talks, 200 + i) for i in range(8)]
        time.sleep(0.1)
        c, again = Client(server), []
        for k in range(4):
            c.send({'type': 'turn.replay', 'session': alone, 'turn': k, 'request_id': str(k)})
            again.append(c.wait(lambda f: f.get('request_id') == str(k) and f['type'] in ('turn.replayed', 'error'), 120))
            busy = sum(not f.done() for f in company)
        for f in company:
            f.result()
    check('recorded alone, run again beside %d others: equal' % busy, all(a.get('equal') for a in again), again[0])
    server.stop()

    def replay(i):
        return subprocess.run([PARLEY, 'replay', recorded[i], '--db', server.db, '--model', MODEL, '--device', DEVICE, '--deterministic',
                               '--kv-cache-bytes', '1GiB'], capture_output=True, text=True, timeout=120)

    ends = together(8, replay)
    check('recorded beside seven others, replayed alone: exit 0', all(e.returncode == 0 for e in ends),
          [(e.returncode, (e.stdout + e.stderr)[-300:]) for e in ends if e.returncode])


def lost(how):
    trigger = '/tmp/parley-gpu-fault-%x' % random.getrandbits(60)
    server = Server(env={'LD_PRELOAD': os.environ['FAULT'], 'CUDA_FAULT_FILE': trigger, 'CUDA_FAULT': how})
    c = Client(server)
    idle = c.open()
    said = c.turn(idle, LINES[0], sampling=drawn(1))
    live = [c.open() for _ in range(3)]
    turns = [c.start(s, LINES[2], sampling=drawn(i, 3000)) for i, s in enumerate(live)]
    for s in live:
        c.wait(lambda m: m['type'] == 'turn.delta' and m['session'] == s)
    open(trigger, 'w').close()
    ends = [c.done(s, t, 30) for s, t in zip(live, turns)]
    check('%s: running turns end with an error event' % how, all(e['why'] == 'error' and e['done'].get('error') for e in ends),
          [e['why'] for e in ends])
    check('%s: the process leaves with 75' % how, server.process.wait(40) == 75, server.process.returncode)
    os.unlink(trigger)
    server = Server(db=server.db)
    c = Client(server)
    there = c.ask({'type': 'session.get', 'session': idle, 'attach': True})['turns'][0]['text'] == said['text']
    for s, t, e in zip(live, turns, ends):
        had = [x['id'] for x in c.ask({'type': 'turn.get', 'session': s, 'turn': t})['tokens']]
        there = there and had == e['ids'] and len(had) > 0
        c.ask({'type': 'session.attach', 'session': s})
    check('%s: a new process finds everything' % how, there)
    check('%s: and goes on' % how, all(len(c.turn(s, LINES[1], sampling=drawn(2, 10))['ids']) == 10 for s in (live[0], idle)))
    server.stop()


def engine_of(server):
    """The process id of its engine process; None: there is none now."""
    found = subprocess.run(['pgrep', '-P', str(server.process.pid), '-f', 'parley engine'], capture_output=True, text=True)
    return int(found.stdout.split()[0]) if found.stdout.split() else None


def process():
    """An engine process: the tokens of before, and turns that go on with them when it is killed or its device is lost."""
    same_bits = ['--deterministic']
    server = Server(*same_bits)
    want = talk(server, GREEDY)
    c = Client(server)
    alone = [c.turn(c.open(), LINES[2], sampling=drawn(i, 1500)) for i in range(3)]
    spans = [alone[0]['deltas'][-1]['_at'] - alone[0]['deltas'][0]['_at']]
    server.stop()
    trigger = '/tmp/parley-gpu-fault-%x' % random.getrandbits(60)
    server = Server(*same_bits, '--engine-process', 'on', '--engine-backoff', '1',
                    env={'LD_PRELOAD': os.environ['FAULT'], 'CUDA_FAULT_FILE': trigger, 'CUDA_FAULT': 'trap'})
    got = talk(server, GREEDY)
    check('the bits of an engine in the process of the server', all(same(a, b) for a, b in zip(want, got)))
    c = Client(server)
    there = c.turn(c.open(), LINES[2], sampling=drawn(0, 1500))
    spans.append(there['deltas'][-1]['_at'] - there['deltas'][0]['_at'])
    check('and of a long turn', same(alone[0], there))
    print('     microseconds for a token, in the process and outside: %s' % [round(x / 1499 * 1e6, 1) for x in spans])
    for how in ('killed', 'trapped'):
        live = [c.open() for _ in range(3)]
        turns = [c.start(s, LINES[2], sampling=drawn(i, 1500)) for i, s in enumerate(live)]
        for s in live:
            c.wait(lambda m: m['type'] == 'turn.delta' and m['session'] == s)
        engine = engine_of(server)
        if how == 'killed':
            os.kill(engine, signal.SIGKILL)
        else:
            open(trigger, 'w').close()
        end = time.time() + 60
        while engine_of(server) == engine and time.time() < end:
            time.sleep(0.02)
        if how == 'trapped':
            os.unlink(trigger)
        ends = [c.done(s, t, 120) for s, t in zip(live, turns)]
        check('%s: another process took its place' % how, engine and engine_of(server) not in (None, engine), engine)
        check('%s: running turns go on with the same tokens' % how, [e['ids'] for e in ends] == [a['ids'] for a in alone],
              [(e['why'], e['done'].get('error'), apart(e, a)) for e, a in zip(ends, alone)])
        check('%s: and their sessions' % how, all(len(c.turn(s, LINES[1], sampling=drawn(2, 10))['ids']) == 10 for s in live))
    check('the server ends in order', server.stop() == 0)


def traps():
    """Two servers trap at once beside five that serve. It once took the GPU away, so it is no part of a run of all: by hand, last."""
    trigger = '/tmp/parley-gpu-fault-%x' % random.getrandbits(60)
    env = {'LD_PRELOAD': os.environ['FAULT'], 'CUDA_FAULT_FILE': trigger, 'CUDA_FAULT': 'trap'}
    doomed, others = [Server(env=env) for _ in range(2)], [Server() for _ in range(5)]
    clients = [Client(server) for server in doomed + others]
    sessions = [c.open() for c in clients]
    turns = [c.start(s, LINES[2], sampling=drawn(i, 3000)) for i, (c, s) in enumerate(zip(clients, sessions))]
    for c in clients:
        c.wait(lambda m: m['type'] == 'turn.delta')
    open(trigger, 'w').close()
    for i, server in enumerate(doomed):
        began = time.time()
        try:
            code = server.process.wait(60)
        except subprocess.TimeoutExpired:
            code = 'hangs: ' + '; '.join(stuck(server.process.pid))
        check('server %d that traps leaves with 75' % i, code == 75, (code, time.time() - began, server.text()[-600:]))
    ends = [c.done(s, t, 120) for c, s, t in list(zip(clients, sessions, turns))[2:]]
    check('the five beside them finish their turns', all(e['why'] != 'error' for e in ends), [e['why'] for e in ends])
    server = Server()
    c = Client(server)
    check('a new server serves', len(c.turn(c.open(), LINES[1], sampling=drawn(2, 10))['ids']) == 10)
    for s in [server] + others:
        s.stop()
    os.unlink(trigger)


def stuck(pid):
    """Where each thread of a process waits in the kernel."""
    for task in os.listdir('/proc/%d/task' % pid):
        at = '/proc/%d/task/%s/' % (pid, task)
        yield ' '.join(open(at + name).read().strip() for name in ('comm', 'wchan', 'syscall'))


def used():
    out = subprocess.check_output(['nvidia-smi', '--query-gpu=memory.used,memory.total', '--format=csv,noheader,nounits'], text=True)
    return [int(x) for x in out.splitlines()[int(DEVICE.split(':')[-1])].split(',')]


def memory():
    def refused(*args):
        server = Server(*args, cache=None, wait=0)
        try:
            code = server.process.wait(60)
        except subprocess.TimeoutExpired:
            code = server.stop(signal.SIGKILL)
        return code, server.text()

    code, said = refused('--kv-cache-bytes', '3TiB')
    check('a cache larger than the GPU', code == 1 and 'at most' in said and 'would fit' in said, (code, said[-400:]))
    server = Server('--gpu-memory-fraction', '0.5', '--max-sequences', '16', cache=None)
    before, total = used()
    together(8, lambda i: talk(server, drawn(i, 200)))
    after = used()[0]
    code, said = refused('--gpu-memory-fraction', '0.3')
    check('a fraction below what is in use says which would do', code == 1 and 'gpu_memory_fraction = 0.' in said, (code, said[-400:]))
    server.stop()
    check('gpu_memory_fraction 0.5 is kept, and little is taken while serving: recorded steps',
          before < 0.505 * total and after - before < 64, (before, after, total))
    holder = Server('--gpu-memory-fraction', '0.99', cache=None)
    code, said = refused()
    check('a GPU that another process has filled', code == 1 and 'others' in said, (code, said[-400:]))
    holder.stop()


if __name__ == '__main__':
    if sys.argv[1:] == ['traps']:
        sys.exit(run({'traps': traps}, []))
    sys.exit(run({'cpu': cpu, 'life': life, 'tiers': tiers, 'deterministic': deterministic, 'process': process, 'refuse': lambda: lost('refuse'),
                  'trap': lambda: lost('trap'), 'memory': memory}, sys.argv[1:]))
