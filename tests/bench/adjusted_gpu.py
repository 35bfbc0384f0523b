"""What penalties, biases and grammars cost a decode on a GPU: tokens/s over the wire with a vocabulary of 128k, in turns.

usage: adjusted_gpu.py [SHAPE [SESSIONS ...]]   PARLEY names the program; SHAPE: as `parley synth --like`, or a config.json
"""
import os
import statistics
import sys
import time

from random_model import random_model
from wire import Client, Server, count # found by random_model

TOKENS = int(os.environ.get('TOKENS', 256))
ROUNDS = int(os.environ.get('ROUNDS', 3))
PLAIN = {'temperature': 0.8, 'top_p': 0.95, 'max_tokens': 12000} # more than is counted
STRINGS = {'type': 'array', 'items': {'type': 'object', 'properties': {'name': {'type': 'string'}, 'n': {'type': 'integer'}},
                                      'required': ['name', 'n']}, 'minItems': 300}
FORMS = {
    'plain': {**PLAIN, 'ignore_eos': True},
    'greedy': {**PLAIN, 'ignore_eos': True, 'temperature': 0},
    'repetition_penalty': {**PLAIN, 'ignore_eos': True, 'repetition_penalty': 1.1},
    'logit_bias': {**PLAIN, 'ignore_eos': True, 'logit_bias': {str(i): -1.5 for i in range(300, 600)}},
    'regex': {**PLAIN, 'regex': '[a-zA-Z ,.]+'},
    'json_schema': {**PLAIN, 'json_schema': STRINGS},
}


def measure(server, form, n):
    """Tokens/s of n turns at once, by the server's own count. No client follows them: this one would be the bound."""
    client = Client(server)
    sessions = [client.open() for _ in range(n)]
    for i, session in enumerate(sessions):
        client.start(session, 'Hello', sampling={**FORMS[form], 'seed': str(i)})
        client.ask({'type': 'session.detach', 'session': session})
    drawn = 'parley_engine_generated_tokens_total'
    before = count(server, drawn)
    while count(server, 'parley_engine_requests_running') < n or count(server, drawn) < before + n:
        time.sleep(0.01)
    begin, first = time.perf_counter(), count(server, drawn)
    while (last := count(server, drawn)) < first + n * TOKENS:
        time.sleep(0.01)
    over = time.perf_counter()
    if count(server, 'parley_engine_requests_running') < n:
        raise RuntimeError('%s: a turn ended while its tokens were counted' % form)
    for session in sessions:
        client.ask({'type': 'session.attach', 'session': session})
        client.ask({'type': 'turn.cancel', 'session': session})
    while count(server, 'parley_engine_requests_running') > 0:
        time.sleep(0.01)
    client.socket.close()
    return (last - first) / (over - begin)


def compare(server, shape, n):
    rates = {form: [] for form in FORMS}
    for form in FORMS: # the grammars' masks, the recorded steps
        measure(server, form, n)
    for _ in range(ROUNDS):
        for form in FORMS:
            rates[form].append(measure(server, form, n))
    plain = statistics.median(rates['plain'])
    for form in FORMS:
        mid = statistics.median(rates[form])
        print('%s, %d sessions, %-20s %9.1f tokens/s, %5.1f %% more time than plain (%s)' % (
            shape, n, form, mid, 100 * (plain / mid - 1), ' '.join('%.0f' % r for r in rates[form])), flush=True)


def main():
    shape, sessions = (sys.argv[1:2] or ['llama-1b'])[0], [int(n) for n in sys.argv[2:]] or [1, 8, 64]
    with random_model(shape) as model:
        server = Server('--max-sequences', max(sessions), '--session-len', 16384, model=model, cache=os.environ.get('CACHE', '4GiB'))
        try:
            for n in sessions:
                compare(server, os.path.basename(shape), n)
        finally:
            server.stop()


main()
