// See string_table.h. Words are short: the hash reads up to 16 bytes with two loads and no loop.
#include "engine/text/string_table.h"
#include "base/err.h"
#include "engine/text/word_cache.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int hash_seed(uint64_t *seed) {
    return getrandom(seed, sizeof *seed, 0) == sizeof *seed ? 0 : E_IO;
}

static uint64_t hash_bytes(const char *s, size_t len, uint64_t seed) {
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xc2b2ae3d27d4eb4fu;
    uint64_t h = seed ^ hash_mix(len ^ k0, k1 ^ seed);
    for (; len > 16; s += 16, len -= 16)
        h = hash_mix(word_load(s, 8) ^ k0 ^ h, word_load(s + 8, 8) ^ k1 ^ seed);
    uint64_t a = word_load(s, len), b = len > 8 ? word_load(s + len - 8, 8) : 0;
    return hash_mix(a ^ k0 ^ h, b ^ k1 ^ seed);
}

int string_table_init(struct string_table *t, size_t n_expected) {
    *t = (struct string_table){0};
    TRY(hash_seed(&t->seed));
    size_t cap = 16;
    while (cap / 2 <= n_expected) cap *= 2;
    t->slots = malloc(cap * sizeof *t->slots);
    if (!t->slots) return E_NOMEM;
    for (size_t i = 0; i < cap; i++) t->slots[i].id = -1;
    t->mask = cap - 1;
    return 0;
}

void string_table_release(struct string_table *t) {
    free(t->slots);
    *t = (struct string_table){0};
}

// The slot of the string, or the free slot for it.
static struct string_slot *probe(const struct string_table *t, const char *arena, const char *s,
                                 size_t len, uint64_t hash) {
    for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        struct string_slot *slot = &t->slots[i];
        if (slot->id < 0) return slot;
        if (slot->hash == hash && slot->len == len && memcmp(arena + slot->offset, s, len) == 0)
            return slot;
    }
}

static int grow(struct string_table *t) {
    struct string_table bigger = {.mask = t->mask * 2 + 1, .n = t->n, .seed = t->seed};
    bigger.slots = malloc((bigger.mask + 1) * sizeof *bigger.slots);
    if (!bigger.slots) return E_NOMEM;
    for (size_t i = 0; i <= bigger.mask; i++) bigger.slots[i].id = -1;
    for (size_t i = 0; i <= t->mask; i++) {
        if (t->slots[i].id < 0) continue;
        size_t j = t->slots[i].hash & bigger.mask;
        while (bigger.slots[j].id >= 0) j = (j + 1) & bigger.mask;
        bigger.slots[j] = t->slots[i];
    }
    free(t->slots);
    *t = bigger;
    return 0;
}

int string_table_add(struct string_table *t, const char *arena, uint32_t offset, uint32_t len,
                     int32_t id, int32_t *existing) {
    if (t->n >= (t->mask + 1) / 2) TRY(grow(t));
    uint64_t hash = hash_bytes(arena + offset, len, t->seed);
    struct string_slot *slot = probe(t, arena, arena + offset, len, hash);
    *existing = slot->id;
    if (slot->id >= 0) return 0;
    *slot = (struct string_slot){.hash = hash, .offset = offset, .len = len, .id = id};
    t->n++;
    return 0;
}

int32_t string_table_find(const struct string_table *t, const char *arena, const char *s,
                          size_t len) {
    return probe(t, arena, s, len, hash_bytes(s, len, t->seed))->id;
}
