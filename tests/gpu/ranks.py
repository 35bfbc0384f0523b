"""An instance of two ranks that share a GPU (PARLEY_TEST_DEVICE=cuda:0,cuda:1 gives each its own). usage: ranks.py [PART ...]"""
import array
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

from wire import DEVICE, PARLEY, ROOT, Client, Server, check, run
from serve import GREEDY, LINES, apart, drawn, near, same

PAIR = DEVICE if ',' in DEVICE else DEVICE + ',' + DEVICE
ONE = PAIR.split(',')[0]
MODELS = ROOT + '/tests/fixtures/models/'
TP, PP = ['--tensor-parallel', '2'], ['--pipeline-parallel', '2']


def parley(*args, limit=90, env=None):
    done = subprocess.run([PARLEY, *args], capture_output=True, text=True, timeout=limit, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


def logits(model, device, *args):
    """The logits of a prompt, as F32."""
    with tempfile.TemporaryDirectory() as folder:
        ids = ','.join(str(5 + (7 * i) % 90) for i in range(24))
        code, _, said = parley('score', '--model', MODELS + model, '--device', device, '--ids', ids, '--kv-cache-bytes', '64MiB',
                               '--logits', folder + '/x', *args)
        if code != 0:
            raise RuntimeError('%s %s: %s' % (model, args, said[-400:]))
        with open(folder + '/x', 'rb') as f:
            head = f.read(struct.unpack('<Q', f.read(8))[0])
            assert json.loads(head)['logits']['dtype'] == 'F32'
            return array.array('f', f.read())


def spread(x):
    mean = sum(x) / len(x)
    return (sum((v - mean) ** 2 for v in x) / len(x)) ** 0.5


def families():
    exact = ['--compute-dtype', 'f32', '--deterministic']
    for model in sorted(os.listdir(MODELS)):
        one = logits(model, ONE, *exact)
        for name, sizes in (('tp 2', TP), ('pp 2', PP)):
            two = logits(model, PAIR, *exact, *sizes)
            far = max(abs(a - b) for a, b in zip(one, two)) / spread(one)
            check('%s, %s: logits within 2e-4 of one rank\'s' % (model, name), len(one) == len(two) and far < 2e-4, far)
            if sizes is PP:
                check('%s, pp 2: the same bits' % model, one == two)
        if model in ('llama', 'gpt2'):
            check('%s: tp 2 has the same bits again' % model, logits(model, PAIR, *exact, *TP) == logits(model, PAIR, *exact, *TP))


def serve(*args, **more):
    return Server(*TP, *args, device=PAIR, cache='256MiB', **more)


def pids(server):
    return [int(p) for p in re.findall(r'engine\.rank rank=\d+ pid=(\d+)', server.text())]


def alive(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return ') Z ' not in f.read()
    except OSError:
        return False


def gone(pid, seconds=20):
    end = time.time() + seconds
    while alive(pid) and time.time() < end:
        time.sleep(0.05)
    return not alive(pid)


def turns():
    server = serve('--max-sequence-idle-microseconds', 400000, '--host-cache-bytes', 0)
    c = Client(server)
    single = Server(device=ONE, cache='256MiB')
    alone = Client(single)
    s, other = c.open(), alone.open()
    for line in LINES[:2]:
        two, one = c.turn(s, line, sampling=GREEDY), alone.turn(other, line, sampling=GREEDY)
        check('a turn, as one rank gives it', apart(two, one)[1] > 3 and apart(two, one)[2] < 0.15, apart(two, one))
    check('what was said before is known', 'Zora' in two['text'], two['text'])
    single.stop()
    evicted, kept = c.open(), c.open()
    first, second = [c.turn(x, LINES[0], sampling=drawn(7)) for x in (evicted, kept)]
    check('one log and one seed: the same bits', same(first, second), apart(first, second))
    stays = c.turn(kept, LINES[1], sampling=drawn(8))
    c.wait(lambda f: f['type'] == 'session.evicted' and f['session'] == evicted, 20)
    back = c.turn(evicted, LINES[1], sampling=drawn(8))
    check('an evicted session is computed again', back['source'] == 'recomputed' and near(back, stays), apart(back, stays))
    fork = c.ask({'type': 'session.fork', 'session': kept})['session']['id']
    here, there = [c.turn(x, LINES[2], sampling=drawn(9)) for x in (kept, fork)]
    check('a fork goes on as its origin', near(here, there), apart(here, there))
    follower = pids(server)[1]
    check('SIGTERM: exit 0, and no rank is left', server.stop() == 0 and gone(follower))


def parked():
    server = serve('--max-sequence-idle-microseconds', 300000, '--host-cache-bytes', '64MiB', '--deterministic')
    c = Client(server)
    s, kept = c.open(), c.open()
    long = ' '.join('The number %d comes before the number %d.' % (i, i + 1) for i in range(60))
    c.turn(s, long, sampling=drawn(1))
    c.wait(lambda f: f['type'] == 'session.parked' and f['session'] == s, 20)
    c.turn(kept, long, sampling=drawn(1))
    stays, back = c.turn(kept, LINES[1], sampling=drawn(2)), c.turn(s, LINES[1], sampling=drawn(2))
    check('parked on both ranks and back: the bits of one that was kept',
          same(back, stays) and (back['source'], stays['source']) == ('host', 'kept'), (back['source'], apart(back, stays)))
    server.stop()


def failure():
    server = serve()
    c = Client(server)
    s = c.open()
    turn = c.start(s, LINES[2], sampling=drawn(6, 1500))
    c.wait(lambda m: m['type'] == 'turn.delta' and m['turn'] == turn)
    follower, began = pids(server)[1], time.time()
    os.kill(follower, signal.SIGKILL)
    status = server.process.wait(30)
    check('kill -9 of a rank in a turn: status 75 within seconds', status == 75 and time.time() - began < 10,
          (status, time.time() - began, server.text()[-500:]))
    check('with a sentence', re.search(r'rank 1 of 2 \(process %d\) has ended' % follower, server.text()), server.text()[-300:])
    server = serve(db=server.db)
    c = Client(server)
    c.ask({'type': 'session.attach', 'session': s})
    check('its sessions go on', len(c.turn(s, LINES[1], sampling=drawn(5, 10))['ids']) == 10)
    turn = c.start(s, LINES[2], sampling=drawn(6, 1500))
    c.wait(lambda m: m['type'] == 'turn.delta' and m['turn'] == turn)
    follower, began = pids(server)[1], time.time()
    server.stop(signal.SIGKILL)
    check('kill -9 of the leader in a turn ends the rank', gone(follower), time.time() - began)
    server = serve('--rank-timeout', '3')
    c = Client(server)
    s = c.open()
    turn = c.start(s, LINES[2], sampling=drawn(6, 1500))
    c.wait(lambda m: m['type'] == 'turn.delta' and m['turn'] == turn) # an idle instance does not ask its ranks
    follower, began = pids(server)[1], time.time()
    os.kill(follower, signal.SIGSTOP)
    status = server.process.wait(40)
    os.kill(follower, signal.SIGCONT)
    check('a rank that is silent: status 75 after rank_timeout', status == 75 and time.time() - began < 25,
          (status, time.time() - began, server.text()[-500:]))
    check('and it ends', gone(follower))


def nccl():
    """NCCL refuses two ranks on one GPU; as two hosts, which NCCL_HOSTID makes of them, it takes sockets."""
    line = [PARLEY, 'generate', '--model', MODELS + 'llama', '--ids', '5,6,7,8,9,10', '--max-tokens', '24', '--temperature', '0',
            '--json', '--kv-cache-bytes', '64MiB', '--compute-dtype', 'f32']
    one = json.loads(parley(*line[1:], '--device', ONE)[1])
    for sizes in (TP, PP):
        for more in ([], ['--deterministic']):
            job = subprocess.run(['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', '2', 'sh', '-c',
                                  'NCCL_HOSTID=h$OMPI_COMM_WORLD_RANK NCCL_SOCKET_IFNAME=lo exec "$@"', 'sh', *line, '--device', PAIR, *sizes, *more],
                                 capture_output=True, text=True, timeout=100)
            two = json.loads(job.stdout) if job.returncode == 0 else {}
            far = max([abs(a - b) for a, b in zip(two.get('logprobs', [9]), one['logprobs'])])
            check('over NCCL, %s' % ' '.join(sizes + more), two.get('ids') == one['ids'] and far < 1e-3, (job.returncode, far, job.stderr[-600:]))


if __name__ == '__main__':
    sys.exit(run({'families': families, 'turns': turns, 'parked': parked, 'failure': failure, 'nccl': nccl}, sys.argv[1:]))
