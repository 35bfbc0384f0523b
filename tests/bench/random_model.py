"""Models with random weights and a vocabulary of 128k, for figures over the wire."""
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'gpu'))
from wire import MODEL, PARLEY  # noqa: E402


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


@contextlib.contextmanager
def random_model(shape):
    """The folder of such a model while the block runs. shape: as `parley synth --like`, or a config.json."""
    folder = tempfile.mkdtemp(prefix='parley-random-')
    try:
        os.mkdir(folder + '/words')
        tokenizer(folder + '/words')
        what = ['--config', shape] if shape.endswith('.json') else ['--like', shape]
        subprocess.run([PARLEY, 'synth', *what, '--out', folder + '/model', '--tokenizer-from', folder + '/words'], check=True,
                       stdout=subprocess.DEVNULL)
        shutil.copy(folder + '/words/chat_template.jinja', folder + '/model')
        yield folder + '/model'
    finally:
        shutil.rmtree(folder)
