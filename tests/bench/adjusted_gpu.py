"""What penalties, biases and grammars cost a decode on a GPU: tokens/s over the wire with a vocabulary of 128k, in turns.

usage: adjusted_gpu.py [SHAPE [SESSIONS ...]]   PARLEY names the program; SHAPE: as `parley synth --like`, or a config.json
FORMS="plain regex" measures these alone. A step gives each turn a token, but for turns whose mask is not made in time:
"tokens a step" below the number of turns shows these.
"""
import os
import statistics
import sys
import time

from random_model import random_model
from wire import Client, Server, count # found by random_model

CACHE = os.environ.get('CACHE', '28GiB') # a turn of Llama-1B reserves 380 MiB
TOKENS = int(os.environ.get('TOKENS', 256))
ROUNDS = int(os.environ.get('ROUNDS', 3))
PLAIN = {'temperature': 0.8, 'top_p': 0.95, 'max_tokens': 12000} # more than is counted
STRINGS = {'type': 'array', 'items': {'type': 'object', 'properties': {'name': {'type': 'string'}, 'n': {'type': 'integer'}},
                                      'required': ['name', 'n']}, 'minItems': 300}
# Counters in strings, in numbers and in lists of lists: nearly every position has a mask of its own.
COUNTED = {'type': 'array', 'minItems': 100, 'maxItems': 200, 'items': {
    'type': 'object', 'additionalProperties': False, 'required': ['customer', 'amount', 'price', 'state', 'tags'], 'properties': {
        'customer': {'type': 'string', 'minLength': 1, 'maxLength': 80}, 'amount': {'type': 'integer', 'minimum': 1, 'maximum': 999},
        'price': {'type': 'number', 'minimum': 0, 'maximum': 100000}, 'state': {'enum': ['open', 'paid', 'sent', 'returned']},
        'tags': {'type': 'array', 'maxItems': 5, 'items': {'type': 'string', 'maxLength': 20}}}}}
ALL = {
    'plain': {**PLAIN, 'ignore_eos': True},
    'greedy': {**PLAIN, 'ignore_eos': True, 'temperature': 0},
    'repetition_penalty': {**PLAIN, 'ignore_eos': True, 'repetition_penalty': 1.1},
    'logit_bias': {**PLAIN, 'ignore_eos': True, 'logit_bias': {str(i): -1.5 for i in range(300, 600)}},
    # Few masks, and two end marks that a random model draws behind each other once in billions of tokens: with an end that
    # is allowed everywhere, one token in 24,000 ends a turn.
    'regex': {**PLAIN, 'regex': '([a-zA-Z ,.]|![a-zA-Z])+!!'},
    'json_schema': {**PLAIN, 'json_schema': STRINGS},
    'counted': {**PLAIN, 'json_schema': COUNTED},
}
FORMS = {form: ALL[form] for form in os.environ.get('FORMS', ' '.join(ALL)).split()}
DRAWN, STEPS, RUNNING = 'parley_engine_generated_tokens_total', 'parley_engine_steps_total', 'parley_engine_requests_running'


def wait_until_all_run(server, n):
    """Until each turn has drawn a token. A turn waits where the cache has no room for its max_tokens."""
    before, end = count(server, DRAWN), time.monotonic() + 60
    while count(server, RUNNING) < n or count(server, DRAWN) < before + n:
        if time.monotonic() > end:
            raise RuntimeError('%d of %d turns run: set CACHE to more than %s' % (count(server, RUNNING), n, CACHE))
        time.sleep(0.01)


def measure(server, form, n):
    """Tokens/s and tokens a step of n turns at once, by the server's own count. No client follows them: this one would be
    the bound."""
    client = Client(server)
    sessions = [client.open() for _ in range(n)]
    for i, session in enumerate(sessions):
        client.start(session, 'Hello', sampling={**FORMS[form], 'seed': str(i)})
        client.ask({'type': 'session.detach', 'session': session})
    wait_until_all_run(server, n)
    begin, first, steps = time.perf_counter(), count(server, DRAWN), count(server, STEPS)
    while (last := count(server, DRAWN)) < first + n * TOKENS:
        time.sleep(0.01)
    over, steps = time.perf_counter(), count(server, STEPS) - steps
    if count(server, RUNNING) < n:
        raise RuntimeError('%s: a turn ended while its tokens were counted' % form)
    for session in sessions:
        client.ask({'type': 'session.attach', 'session': session})
        client.ask({'type': 'turn.cancel', 'session': session})
    while count(server, RUNNING) > 0:
        time.sleep(0.01)
    client.socket.close()
    return (last - first) / (over - begin), (last - first) / steps


def compare(server, shape, n):
    rates, of_step = {form: [] for form in FORMS}, {}
    for form in FORMS: # the grammars' masks, the recorded steps
        _, of_step[form] = measure(server, form, n)
        print('%s, %d sessions, %-20s at first %5.1f tokens a step' % (shape, n, form, of_step[form]), flush=True)
    for _ in range(ROUNDS):
        for form in FORMS:
            rate, of_step[form] = measure(server, form, n)
            rates[form].append(rate)
    plain = statistics.median(rates[next(iter(FORMS))])
    for form in FORMS:
        mid = statistics.median(rates[form])
        print('%s, %d sessions, %-20s %9.1f tokens/s, %5.1f %% more time than plain (%s), %5.1f tokens a step' % (
            shape, n, form, mid, 100 * (plain / mid - 1), ' '.join('%.0f' % r for r in rates[form]), of_step[form]), flush=True)


def main():
    shape, sessions = (sys.argv[1:2] or ['llama-1b'])[0], [int(n) for n in sys.argv[2:]] or [1, 8, 64]
    with random_model(shape) as model:
        server = Server('--max-sequences', max(sessions), '--session-len', 16384, model=model, cache=CACHE)
        try:
            for n in sessions:
                compare(server, os.path.basename(shape), n)
        finally:
            server.stop()


main()
