// Cache groups: which layers share a block of the cache.
//
// Layers whose keys and values have the same shape and the same sliding window form a class. A group
// is a class, or a part of one: as many of its layers as fit into a block. All blocks of an engine have
// the same size in bytes and the same number of tokens, whatever their group, so one pool serves all
// groups, and a block that one group gives back is taken by any other: bytes go where the need is, and
// no share is fixed. A model whose layers are all alike has one group and one block for all of them.
//
//   Gemma-3-12B: 40 layers with a window of 1,024 tokens, 8 that see everything; a block has 8 layers
//
//   groups 0 .. 4  windowed layers 0 5 10 .. | 1 6 11 .. | ..     at most 1,024 tokens and a chunk
//   group  5       the 8 others                                   the whole log
//
//   one logical ring a sequence: positions, sinks, n_tokens       (kvcache/ring.h)
//     group 0   [ 17 | 4 | 22 ]            the blocks that this group still needs
//     ...
//     group 5   [ 3 | 8 | 9 | 1 | 30 | ..  ]
//
// Ownership: a struct kv_groups is plain data of its model and does not change. The ring owns the lists
// of blocks, one for each group. The pool counts holders of blocks and knows no groups; a block never
// changes its group while it is held. The arena and its layout are the backend's: a group's layers are
// found in a block through a view of the arena (engine/cache/stores.h).
//
// Invariants: a block belongs to one group of one position range. Each group holds what the window rule
// needs of it and nothing else: the stricter of memory_len and the group's window. Where the window is
// the stricter, the group keeps no sinks: the rule hides a sink that the window has passed. A position
// is in the cache if every group that needs it has it; so an equal prefix is shared, and a log cut, only
// where every group still has its part, and else computed again.
//
// A log that is cut or forked behind a group's window is computed again from its start: what a windowed
// layer holds depends on tokens many windows back. That is the price of the memory. A model whose layers
// all have one window does not pay it: its ring keeps memory_len tokens, and the kernels alone apply the
// window.
//
// Several ranks: every rank divides the layers of the whole model alike, so that block ids mean the same
// on all; a rank's block has the group's layers that the rank computes. Layers of a class are dealt to
// its groups in turn, so that each pipeline stage has about the same share of each group.
//
// A recurrent layer has a state of fixed size instead of keys and values. A state cannot be cut at a
// position, so states are no blocks and have no group (kv_place.group -1): they belong to the sequence
// beside its ring, as copies at marked positions.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { KV_GROUPS_MAX = 16 };

struct kv_layer {               // one layer of the model
    int32_t kv_heads, head_dim; // of the whole model; kv_heads 0: it has no keys and values
    int32_t window;             // 0: none
    int32_t uses; // whose keys and values it reads: its own number, or an earlier layer's
    bool latent;  // one vector for a position is both key and value
};

struct kv_group {
    int32_t kv_heads, head_dim; // of the whole model
    bool latent;                // as kv_layer's
    int32_t window;             // 0: none
    int32_t n_layers;           // that this rank computes
};

struct kv_place {  // where a layer's keys and values are
    int32_t group; // -1: it has none
    int32_t index; // among the group's layers of this rank
};

struct kv_groups {
    int32_t n;
    struct kv_group group[KV_GROUPS_MAX];
    int32_t first_layer, n_layers; // that this rank computes
    struct kv_place *places;       // (n_layers)
};

// Divides layers (n): of these, [first, first + n_own) are this rank's. one_group: the backend reads one
// list of blocks for all layers; windows then free no blocks, and layers of different shapes are
// E_UNSUPPORTED. E_INVAL names a layer that cannot be; E_UNSUPPORTED: too many different layers; E_NOMEM.
//
// The size of a block is chosen for a session of 16,384 tokens: the fewest groups of which the session
// holds at most a sixteenth more bytes than of the best division.
int kv_groups_init(struct kv_groups *g, const struct kv_layer *layers, int32_t n, int32_t first,
                   int32_t n_own, bool one_group, struct err *err);
void kv_groups_release(struct kv_groups *g); // a zeroed one is allowed
