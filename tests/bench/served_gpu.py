"""Tokens/s that clients receive from a server on a GPU, beside those of its engine alone (`parley bench`, the same lengths), and
the processor time of the server's threads for each token.

usage: served_gpu.py [SHAPE [SESSIONS ...]]   PARLEY names the program; SHAPE: as `parley synth --like`, or a config.json
"""
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time

from random_model import random_model
from wire import DEVICE, PARLEY, Server, connect, count, masked # found by random_model

FIRST = 64 # tokens of each session before the clock starts
AHEAD = 1024 # how many tokens the first stream may have more than the last, which opens later
TOKENS = int(os.environ.get('TOKENS', 256))
ROUNDS = int(os.environ.get('ROUNDS', 3))
DRAWN = 'parley_engine_generated_tokens_total'
GREEDY = {'temperature': 0, 'ignore_eos': True, 'max_tokens': FIRST + TOKENS + AHEAD}
SAMPLED = {**GREEDY, 'temperature': 0.8, 'top_p': 0.95}
THREADS = {'net': 'parley', 'engine': 'parley-engine', 'store': 'parley-store'}


def parley_v1(server, sampling):
    s, file = connect(server)

    def send(message):
        s.sendall(masked(1, json.dumps(message).encode()))
    send({'type': 'session.open'})
    heard = b''
    while b'"type":"session.opened"' not in heard:
        heard += file.read1()
    session = heard.split(b'"session":{"id":"')[1].split(b'"')[0].decode()
    send({'type': 'turn.start', 'session': session, 'input': {'content': 'Hello'}, 'sampling': sampling})
    return s


def chat_completion(server, sampling):
    s = socket.create_connection(('127.0.0.1', server.port), timeout=120)
    body = json.dumps({'model': 'model', 'stream': True, 'messages': [{'role': 'user', 'content': 'Hello'}], **sampling}).encode()
    s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s'
              % (server.port, len(body), body))
    return s


WAYS = {'parley.v1, greedy': (parley_v1, GREEDY), 'parley.v1': (parley_v1, SAMPLED), 'chat completions': (chat_completion, SAMPLED)}


def processor_seconds(server):
    folder, seconds = '/proc/%d/task' % server.process.pid, dict.fromkeys(THREADS, 0.0)
    for task in os.listdir(folder):
        with open('%s/%s/comm' % (folder, task)) as name, open('%s/%s/schedstat' % (folder, task)) as stat:
            comm = name.read().strip()
            for thread, named in THREADS.items():
                seconds[thread] += float(stat.read().split()[0]) / 1e9 if comm == named else 0
    return seconds


def drain(streams, until):
    """Takes what has come, without a look at it: a client that parses each frame would be what is measured."""
    while not until():
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            for key, _ in streams.select(0):
                if not key.fileobj.recv(1 << 18):
                    raise RuntimeError('a connection closed')
            time.sleep(0.001)


def measure(server, way, n):
    """Tokens/s of n streams at once, by the server's count while all of them run, and microseconds of each thread for a token."""
    begin, sampling = WAYS[way]
    drawn_before, streams = count(server, DRAWN), selectors.DefaultSelector()
    for _ in range(n):
        streams.register(begin(server, sampling), selectors.EVENT_READ)
    drain(streams, lambda: count(server, DRAWN) >= drawn_before + n * FIRST)
    first, at, spent = count(server, DRAWN), time.perf_counter(), processor_seconds(server)
    drain(streams, lambda: count(server, DRAWN) >= first + n * TOKENS)
    last, took, now = count(server, DRAWN), time.perf_counter() - at, processor_seconds(server)
    if count(server, 'parley_engine_requests_running') < n:
        raise RuntimeError('%s: a turn ended while its tokens were counted' % way)
    drain(streams, lambda: count(server, 'parley_engine_requests_running') == 0)
    for key in list(streams.get_map().values()):
        key.fileobj.close()
    return (last - first) / took, {thread: 1e6 * (now[thread] - spent[thread]) / (last - first) for thread in THREADS}


def engine_alone(model, n):
    line = [PARLEY, 'bench', '--model', model, '--device', DEVICE, '--parts', 'together', '--context-tokens', str(FIRST + 16),
            '--decode-tokens', str(TOKENS), '--sequences', str(n), '--repeat', str(ROUNDS), '--json']
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)['together_tokens_per_second']


def main():
    shape, sessions = (sys.argv[1:2] or ['llama-1b'])[0], [int(n) for n in sys.argv[2:]] or [1, 16, 64, 128]
    with random_model(shape) as model:
        server = Server('--max-sequences', max(sessions), '--session-len', 2048, '--max-connections-per-ip', 4 * max(sessions), model=model,
                        cache=os.environ.get('CACHE', '12GiB'))
        try:
            for n in sessions:
                runs = {way: [] for way in WAYS}
                for _ in range(1 + ROUNDS): # the first is not counted: it records the steps
                    for way in WAYS:
                        runs[way].append(measure(server, way, n))
                for way, (_, *kept) in runs.items():
                    rate = statistics.median(r for r, _ in kept)
                    spent = ', '.join('%s %.1f' % (t, statistics.median(s[t] for _, s in kept)) for t in THREADS)
                    print('%s, %d sessions, %-18s %9.1f tokens/s, us of a token: %s' % (os.path.basename(shape), n, way, rate, spent), flush=True)
        finally:
            server.stop()
        for n in sessions:
            print('%s, %d sessions, %-18s %9.1f tokens/s' % (os.path.basename(shape), n, 'the engine alone', engine_alone(model, n)), flush=True)


main()
