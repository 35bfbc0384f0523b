"""A parley serve and a client of parley.v1, by the standard library alone: where a GPU is, there may be nothing else."""
import base64
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import traceback
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARLEY = os.path.abspath(os.environ.get('PARLEY', ROOT + '/build/release/parley'))
MODEL = ROOT + '/configs/demo-model'
DEVICE = os.environ.get('PARLEY_TEST_DEVICE', 'cuda:0')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Server:
    """parley serve with these options; a cache of a size that several servers at once have room for, unless cache is None.
    The engine is in the server's process, unless the options say otherwise."""

    def __init__(self, *args, db=None, env=None, device=DEVICE, model=MODEL, cache='2GiB', wait=120):
        self.folder = tempfile.mkdtemp(prefix='parley-gpu-')
        self.db = db or self.folder + '/parley.db'
        self.port = free_port()
        self.log = open(self.folder + '/log', 'w+')
        line = [PARLEY, 'serve', '--model', model, '--device', device, '--port', str(self.port), '--db', self.db,
                '--messages-per-second', '100000', '--message-burst', '1000000']
        if cache:
            line += ['--kv-cache-bytes', cache]
        if '--engine-process' not in args:
            line += ['--engine-process', 'off']
        self.process = subprocess.Popen(line + [str(a) for a in args], stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(env or {})})
        if wait:
            self.ready(wait)

    def text(self):
        with open(self.folder + '/log', errors='replace') as f:
            return f.read()

    def ready(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            if self.process.poll() is not None:
                raise RuntimeError('the server ended with %s: %s' % (self.process.returncode, self.text()[-600:]))
            try:
                with urllib.request.urlopen('http://127.0.0.1:%d/readyz' % self.port, timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            time.sleep(0.03)
        raise RuntimeError('the server is not ready: ' + self.text()[-600:])

    def stop(self, how=signal.SIGTERM, seconds=40):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return 'hangs'


def count(server, name):
    """The sum of a metric's values now."""
    with urllib.request.urlopen('http://127.0.0.1:%d/metrics' % server.port, timeout=30) as answer:
        return sum(float(line.split()[-1]) for line in answer.read().decode().splitlines() if re.match(name + r'[ {]', line))


def connect(server):
    """A socket that speaks parley.v1, and a file to read from it; the first frame, hello, is still to be read."""
    s = socket.create_connection(('127.0.0.1', server.port), timeout=120)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall(('GET /ws HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
               'Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n'
               'Sec-WebSocket-Protocol: parley.v1\r\n\r\n' % (server.port, key)).encode())
    file = s.makefile('rb')
    status = file.readline()
    if b' 101 ' not in status:
        raise RuntimeError(status)
    while file.readline() not in (b'\r\n', b''):
        pass
    return s, file


def masked(kind, body):
    """A client's frame: kind 1 is text, 10 a pong."""
    mask, n = os.urandom(4), len(body)
    if n < 126:
        head = bytes([128 | kind, 128 | n])
    elif n < 65536:
        head = bytes([128 | kind, 254]) + struct.pack('>H', n)
    else:
        head = bytes([128 | kind, 255]) + struct.pack('>Q', n)
    pad = (mask * (n // 4 + 1))[:n]
    return head + mask + (int.from_bytes(body, 'big') ^ int.from_bytes(pad, 'big')).to_bytes(n, 'big')


class Client:
    """One connection; frames are read by a thread of its own and kept, each with the moment of its arrival as _at."""

    def __init__(self, server):
        self.server = server
        self.socket, self.file = connect(server)
        self.frames, self.changed, self.closed, self.asked = [], threading.Condition(), False, 0
        self.tag = '%x' % random.getrandbits(40)
        threading.Thread(target=self.read, daemon=True).start()
        self.hello = self.wait(lambda m: m['type'] == 'hello')

    def read(self):
        part = b''
        try:
            while True:
                head = self.file.read(2)
                if len(head) < 2:
                    break
                last, kind, n = head[0] & 128, head[0] & 15, head[1] & 127
                if n == 126:
                    n = struct.unpack('>H', self.file.read(2))[0]
                elif n == 127:
                    n = struct.unpack('>Q', self.file.read(8))[0]
                body = self.file.read(n)
                if kind == 9:
                    self.socket.sendall(masked(10, body))
                elif kind == 8:
                    break
                elif kind in (0, 1):
                    part += body
                    if last:
                        message, part = json.loads(part), b''
                        message['_at'] = time.perf_counter()
                        with self.changed:
                            self.frames.append(message)
                            self.changed.notify_all()
        except OSError:
            pass
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def send(self, message):
        self.socket.sendall(masked(1, json.dumps(message).encode()))

    def wait(self, fits, seconds=60, start=0):
        """The first frame from number start on that fits, now or later."""
        end, i = time.time() + seconds, start
        with self.changed:
            while True:
                while i < len(self.frames):
                    if fits(self.frames[i]):
                        return self.frames[i]
                    i += 1
                if self.closed:
                    time.sleep(0.5) # a server that has failed writes why, and ends
                    raise RuntimeError('the connection closed; the server: %s, %s' % (self.server.process.poll(), self.server.text()[-1500:]))
                left = end - time.time()
                if left <= 0:
                    raise RuntimeError('timed out; last frames: %s' % str(self.frames[-2:])[:400])
                self.changed.wait(left)

    def ask(self, message, seconds=60):
        self.asked += 1
        request, start = '%s.%d' % (self.tag, self.asked), len(self.frames)
        self.send({**message, 'request_id': request})
        answer = self.wait(lambda f: f.get('request_id') == request, seconds, start)
        if answer['type'] == 'error':
            raise RuntimeError('%s: %s' % (answer['code'], answer['message']))
        return answer

    def open(self, **fields):
        return self.ask({'type': 'session.open', **fields})['session']['id']

    def start(self, session, said, **fields):
        self.sent = time.perf_counter()
        said = {'content': said} if isinstance(said, str) else said
        return self.ask({'type': 'turn.start', 'session': session, 'input': said, **fields})['turn']

    def done(self, session, turn, seconds=60):
        end = self.wait(lambda f: f['type'] == 'turn.done' and f['session'] == session and f['turn'] == turn, seconds)
        deltas = [f for f in self.frames if f['type'] == 'turn.delta' and f['session'] == session and f['turn'] == turn]
        return {'done': end, 'deltas': deltas, 'turn': turn, 'why': end['finish_reason'], 'source': end['cache']['source'],
                'ids': [i for f in deltas for i in f['ids']], 'logprobs': [x for f in deltas for x in f.get('logprobs', [])],
                'text': ''.join(f['text'] for f in deltas) + end.get('text', '')}

    def turn(self, session, said, seconds=60, **fields):
        return self.done(session, self.start(session, said, **fields), seconds)


# --- a count of what was tried

results = []


def check(name, ok, note=''):
    results.append(bool(ok))
    print('%s %s%s' % ('ok  ' if ok else 'FAIL', name, '' if ok else ': ' + str(note)), flush=True)


def run(parts, names):
    """Runs the parts named, all if none is; ends as tests/run.sh reads it, and gives the exit status."""
    for name in names or parts:
        began = time.time()
        try:
            parts[name]()
        except Exception as error: # what came before it has been counted
            check(name, False, '%s: %s' % (type(error).__name__, str(error)[:2000]))
            traceback.print_exc()
        print('     %s: %.1f s' % (name, time.time() - began), flush=True)
    print('# pass %d\n# fail %d' % (sum(results), len(results) - sum(results)))
    return 0 if results and all(results) else 1
