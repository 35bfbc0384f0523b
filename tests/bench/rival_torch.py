"""The same models in PyTorch, as gpt-fast has them: static cache, torch.compile into CUDA graphs, bf16, random weights, greedy.
Experts as in gpt-fast's Mixtral: the chosen experts' matrices by their ids. Of the models with experts norms of heads, biases,
sinks and windows are left out. Prints tokens/s of one sequence behind 128 tokens. Run it and gpu.sh on the same machine, one
after the other.
usage: rival_torch.py [llama-1b] [llama-8b] [qwen3-30b-a3b] [gpt-oss-20b] [glm-4.7-flash]"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = {
    'llama-1b': dict(layers=16, width=2048, hidden=8192, heads=32, kv_heads=8, head_dim=64),
    'llama-8b': dict(layers=32, width=4096, hidden=14336, heads=32, kv_heads=8, head_dim=128),
    'qwen3-30b-a3b': dict(layers=48, width=2048, hidden=768, heads=32, kv_heads=4, head_dim=128, experts=128, chosen=8, vocab=151936),
    'gpt-oss-20b': dict(layers=24, width=2880, hidden=2880, heads=64, kv_heads=8, head_dim=64, experts=32, chosen=4, vocab=201088),
    'glm-4.7-flash': dict(layers=47, width=2048, hidden=1536, heads=20, head_dim=64, nope=192, q_rank=768, rank=512, v_dim=256, experts=64,
                          chosen=4, shared=1, vocab=154880),
}
VOCAB, CONTEXT, TOKENS, CACHE, REPEAT = 128256, 128, 128, 512, 5


class FeedForward(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate = torch.nn.Linear(s['width'], s['hidden'], bias=False)
        self.up = torch.nn.Linear(s['width'], s['hidden'], bias=False)
        self.down = torch.nn.Linear(s['hidden'], s['width'], bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.chosen = s['chosen']
        self.router = torch.nn.Linear(s['width'], s['experts'], bias=False)
        self.gate, self.up = (torch.nn.Parameter(torch.empty(s['experts'], s['hidden'], s['width'])) for _ in range(2))
        self.down = torch.nn.Parameter(torch.empty(s['experts'], s['width'], s['hidden']))

    def forward(self, x):
        share, ids = self.router(x[0]).softmax(-1).topk(self.chosen, -1)
        share = share / share.sum(-1, keepdim=True)
        hidden = F.silu(torch.einsum('ti,taoi->tao', x[0], self.gate[ids])) * torch.einsum('ti,taoi->tao', x[0], self.up[ids])
        return torch.einsum('tao,ta->to', torch.einsum('tai,taoi->tao', hidden, self.down[ids]), share)[None]


class Latents(torch.nn.Module):
    """Absorbed: queries in the latents' space, one cached vector of a position for all heads; head_dim is its rotated part."""
    def __init__(self, s):
        super().__init__()
        self.s, d = s, s['head_dim']
        self.q_a = torch.nn.Linear(s['width'], s['q_rank'], bias=False)
        self.q = torch.nn.Linear(s['q_rank'], s['heads'] * (s['nope'] + d), bias=False)
        self.kv_a = torch.nn.Linear(s['width'], s['rank'] + d, bias=False)
        self.k_up = torch.nn.Parameter(torch.empty(s['heads'], s['nope'], s['rank']))
        self.v_up = torch.nn.Parameter(torch.empty(s['heads'], s['v_dim'], s['rank']))
        self.o = torch.nn.Linear(s['heads'] * s['v_dim'], s['width'], bias=False)
        self.register_buffer('k', torch.zeros(1, 1, CACHE, s['rank'] + d))

    def forward(self, x, at, mask, cos, sin):
        s, d = self.s, self.s['head_dim']
        q, turned = self.q(rms(self.q_a(x))).view(s['heads'], -1).split([s['nope'], d], -1)
        c, k = self.kv_a(x).split([s['rank'], d], -1)
        self.k[:, :, at] = torch.cat([rms(c), rotate(k, cos, sin)], -1)[None]
        q = torch.cat([torch.einsum('hn,hnr->hr', q, self.k_up), rotate(turned, cos, sin)], -1)[None, :, None]
        y = F.scaled_dot_product_attention(q, self.k, self.k[..., :s['rank']], attn_mask=mask, scale=(s['nope'] + d) ** -0.5, enable_gqa=True)
        return self.o(torch.einsum('hr,hvr->hv', y[0, :, 0], self.v_up).reshape(1, 1, -1))


class Layer(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s, d = s, s['head_dim']
        self.feed_forward = Experts(s) if 'experts' in s else FeedForward(s)
        self.shared = FeedForward(s) if 'shared' in s else None
        self.norms = torch.nn.Parameter(torch.ones(2, s['width']))
        self.latents = Latents(s) if 'rank' in s else None
        if self.latents:
            return
        self.qkv = torch.nn.Linear(s['width'], (s['heads'] + 2 * s['kv_heads']) * d, bias=False)
        self.o = torch.nn.Linear(s['heads'] * d, s['width'], bias=False)
        for name in ('k', 'v'):
            self.register_buffer(name, torch.zeros(1, s['kv_heads'], CACHE, d))

    def attend(self, x, at, mask, cos, sin):
        s, d = self.s, self.s['head_dim']
        q, k, v = self.qkv(x).split([s['heads'] * d, s['kv_heads'] * d, s['kv_heads'] * d], -1)
        q, k = rotate(q.view(1, 1, -1, d), cos, sin).transpose(1, 2), rotate(k.view(1, 1, -1, d), cos, sin).transpose(1, 2)
        self.k[:, :, at] = k
        self.v[:, :, at] = v.view(1, 1, -1, d).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(1, 1, -1))

    def forward(self, x, at, mask, cos, sin):
        x = x + (self.latents or self.attend)(norm(x, self.norms[0]), at, mask, cos, sin)
        y = norm(x, self.norms[1])
        return x + self.feed_forward(y) + (self.shared(y) if self.shared else 0)


def rms(x):
    return norm(x, 1)


def norm(x, weight):
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-5)).type_as(x) * weight


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).type_as(x)


class Model(torch.nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = torch.nn.Embedding(s.get('vocab', VOCAB), s['width'])
        self.layers = torch.nn.ModuleList(Layer(s) for _ in range(s['layers']))
        self.head = torch.nn.Linear(s['width'], s.get('vocab', VOCAB), bias=False)
        self.last = torch.nn.Parameter(torch.ones(s['width']))
        self.half = s['head_dim'] // 2

    def forward(self, token, at):
        x = self.embed(token)
        angle = at.float() / 10000 ** (torch.arange(self.half, device=x.device) / self.half)
        mask = (torch.arange(CACHE, device=x.device) <= at)[None, None, None]
        for layer in self.layers:
            x = layer(x, at, mask, angle.cos(), angle.sin())
        return self.head(norm(x, self.last))[0].argmax(-1, keepdim=True)


@torch.no_grad()
def measure(name):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device('cuda'):
        model = Model(SHAPES[name]).eval().requires_grad_(False)
        for w in model.parameters():
            if w.dim() > 1 and len(w) > 2: # all but norms
                w.normal_(0, 0.02)
    step = torch.compile(model, mode='reduce-overhead', fullgraph=True)
    rates = []
    for _ in range(REPEAT + 1): # the first compiles
        token, at = torch.zeros(1, 1, dtype=torch.long, device='cuda'), torch.tensor([CONTEXT], device='cuda')
        for i in range(TOKENS + 8):
            if i == 8: # recorded by now
                torch.cuda.synchronize()
                begun = time.perf_counter()
            token = step(token, at).clone()
            at = at + 1
        torch.cuda.synchronize()
        rates.append(TOKENS / (time.perf_counter() - begun))
    print('%s bf16, one sequence behind %d: %.1f tokens/s (PyTorch %s)' %
          (name, CONTEXT, statistics.median(rates[1:]), torch.__version__), flush=True)


for shape in sys.argv[1:] or SHAPES:
    measure(shape)
