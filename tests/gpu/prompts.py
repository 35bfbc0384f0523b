"""Prompt learning on a GPU against transformers on the same GPU. usage: prompts.py [FAMILY ...]

transformers computes the whole log of each session in float32, virtual tokens by `inputs_embeds` and prefixes by
`past_key_values`, under the session's window; the server has computed it in turns, with an eviction, a kill -9 and a
replay between them. Every token must be the reference's, and every log-probability within 1e-3 of it.
"""
import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, DynamicCache

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from wire import DEVICE, PARLEY, ROOT, Client, Server, check, run  # noqa: E402

MODELS, TABLES = ROOT + '/tests/fixtures/models/', ROOT + '/tests/fixtures/prompts/'
TASKS, WINDOWS = ['soft', 'ptuning', 'prefix'], [(0, 5), (24, 7)] # memory_len, sink_len
N_IN, N_OUT, NEAR = 20, 8, 1e-3
GREEDY = {'temperature': 0, 'max_tokens': N_OUT, 'ignore_eos': True, 'logprobs': True}
HERE = 'cuda:0' if DEVICE.startswith('cuda') else 'cpu'


@contextlib.contextmanager
def masked(model, mask):
    """The model attends by this additive mask, not by its own."""
    module = sys.modules[type(model).__module__]
    names = [n for n in ('create_causal_mask', 'create_sliding_window_causal_mask') if hasattr(module, n)]
    if not names:
        raise RuntimeError('%s: its mask is made elsewhere' % type(model).__name__)
    kept = {n: getattr(module, n) for n in names}
    for n in names:
        setattr(module, n, lambda *a, **k: mask)
    try:
        yield
    finally:
        for n in names:
            setattr(module, n, kept[n])


def mask_of(n, first, memory_len, sink_len):
    """Rows first .. n of what each position sees: the first sink_len positions, and the latest of memory_len."""
    t, p = torch.arange(first, n, device=HERE)[:, None], torch.arange(n, device=HERE)[None, :]
    seen = p <= t
    if memory_len:
        seen &= (p < sink_len) | (p > t - (memory_len - sink_len))
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]


def heads_of(c):
    n = getattr(c, 'num_attention_heads', None) or c.n_head
    width = getattr(c, 'hidden_size', None) or c.n_embd
    return getattr(c, 'num_key_value_heads', None) or n, getattr(c, 'head_dim', None) or width // n


def reference(model, task, table, log, window):
    """Log-probabilities (len(log), vocabulary): row i is of the token behind log[i]."""
    ids, n = torch.tensor([log], device=HERE), len(table)
    with torch.no_grad():
        if task == 'prefix':
            n_kv, head_dim = heads_of(model.config)
            keys = table.view(n, model.config.num_hidden_layers, 2, n_kv, head_dim).permute(1, 2, 3, 0, 4)
            cache = DynamicCache()
            for i, (k, v) in enumerate(keys):
                cache.update(k[None].clone(), v[None].clone(), i)
            with masked(model, mask_of(n + len(log), n, *window)):
                logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0]
        else:
            rows = torch.cat([table[None], model.get_input_embeddings()(ids)], 1)
            with masked(model, mask_of(n + len(log), 0, *window)):
                logits = model(inputs_embeds=rows, use_cache=True).logits[0, n:]
    return torch.log_softmax(logits.double(), -1)


def compare(name, said, want):
    """Every answered token and log-probability; two tokens that the reference has within NEAR are equal."""
    worst, wrong = 0.0, []
    for at, token, logprob in said:
        row = want[at - 1]
        worst = max(worst, abs(float(row[token]) - logprob))
        if float(row.max() - row[token]) > NEAR:
            wrong.append(at)
    check('%s: %d tokens as by transformers, log-probabilities within %g (%.1e)' % (name, len(said), NEAR, worst),
          said and not wrong and worst < NEAR and math.isfinite(worst), (wrong, worst))


def family(name):
    rng = random.Random(name)
    model = AutoModelForCausalLM.from_pretrained(MODELS + name, dtype=torch.float32, attn_implementation='eager').eval().to(HERE)
    tables = {t: next(iter(load_file(TABLES + '%s/%s/adapter_model.safetensors' % (name, t)).values())).to(HERE) for t in TASKS}
    options = ['--prompt-tasks', TABLES + name, '--compute-dtype', 'f32', '--deterministic',
               '--max-sequence-idle-microseconds', '300000', '--host-cache-bytes', '0']
    server = Server(*options, model=MODELS + name, cache='64MiB')
    client, sessions = Client(server), []
    for task in TASKS:
        for memory_len, sink_len in WINDOWS:
            fields = {'memory_len': memory_len, 'sink_len': sink_len} if memory_len else {}
            sessions.append({'task': task, 'window': (memory_len, sink_len), 'log': [], 'said': [],
                             'id': client.open(prompt_task=task, **fields)})

    def turns():
        for s in sessions:
            s['ids'] = [rng.randrange(5, 300) for _ in range(N_IN)]
            s['turn'] = client.start(s['id'], {'ids': s['ids']}, sampling=GREEDY)
        for s in sessions:
            done = client.done(s['id'], s['turn'])
            s['log'] += s['ids']
            for token, logprob in zip(done['ids'], done['logprobs'], strict=True):
                s['said'].append((len(s['log']), token, logprob))
                s['log'].append(token)
            s['source'] = done['source']

    turns()
    for s in sessions:
        client.wait(lambda f: f['type'] == 'session.evicted' and f['session'] == s['id'], 30)
    turns()
    check('%s: the second turn was computed again after an eviction' % name, all(s['source'] == 'recomputed' for s in sessions),
          [s['source'] for s in sessions])
    server.stop(signal.SIGKILL)
    server = Server(*options, db=server.db, model=MODELS + name, cache='64MiB')
    client = Client(server)
    for s in sessions:
        client.ask({'type': 'session.attach', 'session': s['id']})
    turns()
    for s in sessions:
        want = reference(model, s['task'], tables[s['task']], s['log'], s['window'])
        compare('%s, %s, window %d' % (name, s['task'], s['window'][0]), s['said'], want)
    server.stop()
    for s in sessions:
        done = subprocess.run([PARLEY, 'replay', s['id'], '--db', server.db, '--model', MODELS + name, '--prompt-tasks', TABLES + name,
                               '--device', DEVICE, '--deterministic', '--kv-cache-bytes', '64MiB'], capture_output=True, text=True, timeout=90)
        check('%s, %s, window %d: replay has the same bits' % (name, s['task'], s['window'][0]), done.returncode == 0,
              done.stdout[-300:] + done.stderr[-300:])


sys.exit(run({name: lambda name=name: family(name) for name in sorted(os.listdir(MODELS))}, sys.argv[1:]))
