"""llama.cpp on the GPU, for the table beside Parley's: medians, tokens/s, of checkpoints of random weights that are written here.
usage: rival_gpu.py LLAMA_BENCH LLAMA_BATCHED_BENCH [REPEAT]   (both built with GGML_CUDA; 17 GB of space, in TMPDIR)"""
import array
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SHAPES = {
    'llama-1b': dict(layers=16, width=2048, hidden=8192, heads=32, kv_heads=8, head_dim=64, tied=True),
    'llama-8b': dict(layers=32, width=4096, hidden=14336, heads=32, kv_heads=8, head_dim=128, tied=False),
}
VOCAB = 128256
F32, Q8_0, BF16 = 0, 8, 30  # GGUF's numbers of types


def noise(n=1 << 20):
    """Normally distributed, as weights are: what is multiplied decides how much current is drawn."""
    rng = random.Random(1)
    return array.array('f', (rng.gauss(0, 0.02) for _ in range(n)))


def as_bf16(x):
    halves = array.array('H', x.tobytes())
    return halves[1::2].tobytes()


def as_q8_0(x):
    out = bytearray()
    for i in range(0, len(x), 32):
        block = x[i:i + 32]
        scale = max(map(abs, block)) / 127
        out += struct.pack('<e32b', scale, *(round(v / scale) for v in block))
    return bytes(out)


def field(key, value):
    head = struct.pack('<Q', len(key)) + key.encode()
    if isinstance(value, str):
        return head + struct.pack('<IQ', 8, len(value)) + value.encode()
    return head + (struct.pack('<If', 6, value) if isinstance(value, float) else struct.pack('<II', 4, value))


def tensors(s):
    width, q, kv = s['width'], s['heads'] * s['head_dim'], s['kv_heads'] * s['head_dim']
    yield 'token_embd.weight', (VOCAB, width)
    yield 'output_norm.weight', (width,)
    if not s['tied']:
        yield 'output.weight', (VOCAB, width)
    for i in range(s['layers']):
        for name, shape in (('attn_norm', (width,)), ('attn_q', (q, width)), ('attn_k', (kv, width)), ('attn_v', (kv, width)),
                            ('attn_output', (width, q)), ('ffn_norm', (width,)), ('ffn_gate', (s['hidden'], width)),
                            ('ffn_up', (s['hidden'], width)), ('ffn_down', (width, s['hidden']))):
            yield 'blk.%d.%s.weight' % (i, name), shape


def write_gguf(path, name, kind):
    s = SHAPES[name]
    pieces = as_bf16(noise()) if kind == BF16 else as_q8_0(noise())
    pieces *= 64
    norm = array.array('f', [1.0]) * s['width']
    fields = [field('general.architecture', 'llama'), field('general.name', name), field('tokenizer.ggml.model', 'none')]
    fields += [field('llama.' + key, value) for key, value in (
        ('context_length', 131072), ('embedding_length', s['width']), ('block_count', s['layers']),
        ('feed_forward_length', s['hidden']), ('attention.head_count', s['heads']), ('attention.head_count_kv', s['kv_heads']),
        ('attention.key_length', s['head_dim']), ('attention.value_length', s['head_dim']), ('vocab_size', VOCAB),
        ('rope.dimension_count', s['head_dim']), ('attention.layer_norm_rms_epsilon', 1e-5), ('rope.freq_base', 500000.0))]
    infos, parts, at = b'', [], 0
    for key, shape in tensors(s):
        size = shape[0] * 4 if len(shape) == 1 else shape[0] * shape[1] * 2 if kind == BF16 else shape[0] * shape[1] // 32 * 34
        infos += struct.pack('<Q', len(key)) + key.encode() + struct.pack('<I', len(shape))
        infos += b''.join(struct.pack('<Q', n) for n in reversed(shape))
        infos += struct.pack('<IQ', F32 if len(shape) == 1 else kind, at)
        parts.append((len(shape) == 1, size))
        at += size  # a multiple of 32 for all of these
    head = struct.pack('<IIQQ', 0x46554747, 3, len(parts), len(fields)) + b''.join(fields) + infos
    with open(path, 'wb', buffering=0) as f:
        f.write(head + b'\0' * (-len(head) % 32))
        for is_norm, size in parts:
            source = memoryview(norm.tobytes() if is_norm else pieces)
            for done in range(0, size, len(source)):
                f.write(source[:size - done])


def run(line):
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        sys.exit('%s: exit %d: %s' % (line[0], done.returncode, done.stderr[-600:]))
    return done.stdout


def show(title, values, note=''):
    print('%-44s %10.1f   %s of %s' % (title, statistics.median(values), note, ' '.join('%.1f' % v for v in values)), flush=True)


def single(bench, model, title, repeat, *more):
    """A prompt of 2,048 and 128 tokens drawn, from nothing and behind 128 tokens."""
    line = [bench, '-m', model, '-ngl', '99', '-fa', '1', '-r', str(repeat), '-o', 'json', '-p', '2048', '-n', '128', '-d', '0,128', *more]
    for test in json.loads(run(line)):
        what = 'prefill of %d' % test['n_prompt'] if test['n_prompt'] else 'decode of %d' % test['n_gen']
        show('%s %s after %d' % (title, what, test['n_depth']), test['samples_ts'], 'ubatch %d,' % test['n_ubatch'])


def together(bench, model, title, repeat, ubatch):
    """8 and 64 sequences of 1,024 tokens: their prompts, and 128 tokens drawn of each."""
    out = run([bench, '-m', model, '-ngl', '99', '-fa', 'on', '-c', str(64 * 1152), '-b', '2048', '-ub', str(ubatch), '-npp', '1024',
               '-ntg', '128', '-npl', ','.join(['8'] * repeat + ['64'] * repeat)])
    rows = [[float(x) for x in line.strip(' |').split('|')] for line in out.splitlines() if re.match(r'\|\s*\d', line)]
    for n in (8, 64):
        for column, what in ((5, 'prefill of %d x 1024'), (7, 'decode of %d at 1024')):
            show('%s %s' % (title, what % n), [row[column] for row in rows if row[2] == n], 'ubatch %d,' % ubatch)


def main():
    bench, batched = sys.argv[1:3]
    repeat = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    began = time.time()
    for name, kind, title in (('llama-1b', BF16, 'bf16'), ('llama-8b', BF16, 'bf16'), ('llama-8b', Q8_0, 'q8_0')):
        with tempfile.TemporaryDirectory() as folder:
            model = folder + '/model.gguf'
            write_gguf(model, name, kind)
            single(bench, model, '%s %s' % (name, title), repeat, '-ub', '512,2048')
            if name == 'llama-8b' and kind == BF16:
                for ubatch in (512, 2048):
                    together(batched, model, '%s %s' % (name, title), repeat, ubatch)
    print('%.0f s' % (time.time() - began))


main()
