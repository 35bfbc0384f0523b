"""What penalties, biases and grammars cost a decode on a GPU: tokens/s over the wire with a vocabulary of 128k, in turns.

usage: adjusted_gpu.py [SHAPE [SESSIONS ...]]   PARLEY names the program; SHAPE: as `parley synth --like`, or a config.json
"""
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'gpu'))
from wire import MODEL, PARLEY, Client, Server  # noqa: E402

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


def byte_alphabet():
    """The characters that stand for bytes in a byte-level vocabulary (GPT-2's)."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    other = iter(range(256, 512))
    return [chr(b if b in plain else next(other)) for b in range(256)]


def tokenizer(folder, n=128256):
    """Pieces of words, two thirds behind a space, some with marks as in code."""
    alphabet, rng = byte_alphabet(), random.Random(1)
    vocab = {c: i for i, c in enumerate(alphabet)}
    while len(vocab) < n - 1:
        text = rng.choice(['', ' ', ' ']) + ''.join(rng.choices('etaoinshrdlucmfwypvbgkjqxzETAS01', k=rng.randint(2, 12)))
        if len(vocab) % 25 == 0:
            text += rng.choice(['":', '",', ' {', '}\n', ' "', "',", '();', '\\n', '}]'])
        vocab.setdefault(''.join(alphabet[b] for b in text.encode()), len(vocab))
    vocab['<|end|>'] = n - 1
    with open(folder + '/tokenizer.json', 'w') as f:
        json.dump({'added_tokens': [{'id': n - 1, 'content': '<|end|>', 'special': True, 'single_word': False, 'lstrip': False,
                                     'rstrip': False, 'normalized': False}],
                   'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'use_regex': True},
                   'decoder': {'type': 'ByteLevel'},
                   'model': {'type': 'BPE', 'vocab': vocab, 'merges': []}}, f)
    with open(folder + '/tokenizer_config.json', 'w') as f:
        json.dump({'eos_token': '<|end|>'}, f)
    shutil.copy(MODEL + '/chat_template.jinja', folder)


def count(server, name):
    with urllib.request.urlopen('http://127.0.0.1:%d/metrics' % server.port, timeout=30) as answer:
        return sum(float(line.split()[-1]) for line in answer.read().decode().splitlines() if re.match(name + r'[ {]', line))


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
    folder = tempfile.mkdtemp(prefix='parley-adjusted-')
    os.mkdir(folder + '/words')
    tokenizer(folder + '/words')
    what = ['--config', shape] if shape.endswith('.json') else ['--like', shape]
    subprocess.run([PARLEY, 'synth', *what, '--out', folder + '/model', '--tokenizer-from', folder + '/words'], check=True,
                   stdout=subprocess.DEVNULL)
    shutil.copy(folder + '/words/chat_template.jinja', folder + '/model')
    server = Server('--max-sequences', max(sessions), '--session-len', 16384, model=folder + '/model',
                    cache=os.environ.get('CACHE', '4GiB'))
    try:
        for n in sessions:
            compare(server, os.path.basename(shape), n)
    finally:
        server.stop()
        shutil.rmtree(folder)


main()
