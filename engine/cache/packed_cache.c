// See packed_cache.h.
#include "engine/cache/packed_cache.h"

#include <stdlib.h>
#include <string.h>

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int take_blocks(struct packed_cache *p, const struct kv_image *m, size_t block_bytes) {
    p->numbers = malloc((size_t)m->n_held * sizeof *p->numbers);
    p->bytes = malloc((size_t)m->n_held * block_bytes);
    if (!p->numbers || !p->bytes) return E_NOMEM;
    for (int32_t i = 0; i < m->n_slots; i++)
        if (m->copies[i].host >= 0) p->numbers[p->n_blocks++] = m->copies[i].number;
    qsort(p->numbers, (size_t)p->n_blocks, sizeof *p->numbers, by_number);
    return 0;
}

struct packed_cache *packed_cache_new(const struct sequence *s,
                                      const struct kv_snapshot_maker *maker) {
    struct packed_cache *p = malloc(sizeof *p);
    if (!p) return NULL;
    *p = (struct packed_cache){.maker = *maker,
                               .names = s->names,
                               .group = s->image_group,
                               .prompt = s->image_prompt,
                               .memory_len = s->image.memory_len,
                               .sink_len = s->image.sink_len,
                               .ids = malloc((size_t)s->n_image * sizeof *p->ids),
                               .n_ids = s->n_image,
                               .used_us = s->used_us};
    if (!p->ids || take_blocks(p, &s->image, (size_t)maker->block_bytes) < 0) {
        packed_cache_free(p);
        return NULL;
    }
    memcpy(p->ids, s->image_ids, (size_t)p->n_ids * sizeof *p->ids);
    return p;
}

void packed_cache_free(struct packed_cache *p) {
    if (!p) return;
    free(p->ids);
    free(p->numbers);
    free(p->bytes);
    free(p);
}

char *packed_cache_block(const struct packed_cache *p, int64_t number) {
    const int64_t *at =
        bsearch(&number, p->numbers, (size_t)p->n_blocks, sizeof *p->numbers, by_number);
    return at ? p->bytes + (size_t)(at - p->numbers) * (size_t)p->maker.block_bytes : NULL;
}
