// Caches the ids of short words within one call. Most words of a text recur, and one access to warm
// memory costs less than a search in the vocabulary or merging. Direct-mapped: a word replaces the
// word in its slot, so the cache does not grow and no text makes it slow.
#pragma once
#include "engine/text/string_table.h"
#include "engine/text/token_list.h"
#include <stdbool.h>
#include <string.h>

#define CACHED_WORD_MAX_BYTES 16
#define CACHED_WORD_MAX_IDS 5
#define WORD_CACHE_SIZE 8192      // slots of 40 bytes: they fit in the L2 cache
#define WORD_CACHE_MIN_TEXT 32768 // shorter texts are not worth clearing a cache

struct cached_word {
    // The first and the last eight bytes, which may overlap. For a word of up to eight bytes: head is
    // word_load's result, tail is 0.
    uint64_t head, tail;
    uint8_t len, n; // number of bytes (0: the slot is free); number of ids
    int32_t ids[CACHED_WORD_MAX_IDS];
};

// Packs up to eight bytes into a number. Words of one length have equal numbers only if they are equal.
static inline uint64_t word_load(const char *s, size_t len) {
    uint64_t v = 0;
    if (len >= 8) {
        memcpy(&v, s, 8);
    } else if (len >= 4) {
        uint32_t low, high;
        memcpy(&low, s, 4);
        memcpy(&high, s + len - 4, 4);
        v = (uint64_t)high << 32 | low;
    } else if (len > 0) {
        v = (uint64_t)(unsigned char)s[0] << 16 | (uint64_t)(unsigned char)s[len / 2] << 8 |
            (unsigned char)s[len - 1];
    }
    return v;
}

// The slot of a word of 1 to CACHED_WORD_MAX_BYTES bytes. True: the word is in it. False: the slot now
// belongs to the word, and word_cache_fill may fill it.
static inline bool word_cache_find(struct cached_word *cache, const char *word, size_t len,
                                   struct cached_word **place) {
    uint64_t head = word_load(word, len), tail = len > 8 ? word_load(word + len - 8, 8) : 0;
    uint64_t hash = hash_mix(head ^ 0x9e3779b97f4a7c15u, tail ^ 0xc2b2ae3d27d4eb4fu ^ len);
    struct cached_word *c = *place = &cache[hash % WORD_CACHE_SIZE];
    if (c->len == len && c->head == head && c->tail == tail) return true;
    c->head = head;
    c->tail = tail;
    c->len = 0;
    return false;
}

// Stores the word's ids: those of out from `before` on.
static inline void word_cache_fill(struct cached_word *c, size_t len, const struct token_list *out,
                                   size_t before) {
    size_t n = out->len - before;
    if (n > CACHED_WORD_MAX_IDS) return;
    for (size_t i = 0; i < n; i++) c->ids[i] = out->ids[before + i];
    c->n = (uint8_t)n;
    c->len = (uint8_t)len;
}
