// Pages from the kernel, and a pool that allocates from large regions in order. See pages.h.
#include "kernels/cpu/pages.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

// Below half a huge page small pages waste less. Both are mapped, so that both are zeroed and freed
// in the same way.
static size_t page_unit(size_t bytes) {
    return bytes >= HUGE_PAGE / 2 ? HUGE_PAGE : 4096;
}

void *cpu_pages_alloc(size_t bytes) {
    size_t unit = page_unit(bytes), size = round_up(bytes ? bytes : 1, unit);
    if (size < bytes || size > SIZE_MAX / 2) return NULL;
    // One unit more, so that it contains an aligned range; the rest is unmapped.
    size_t slack = unit > 4096 ? unit : 0;
    char *p = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    char *aligned = (char *)round_up((size_t)p, unit);
    if (aligned > p) munmap(p, (size_t)(aligned - p));
    size_t tail = (size_t)(p + size + slack - (aligned + size));
    if (tail) munmap(aligned + size, tail);
    if (slack) madvise(aligned, size, MADV_HUGEPAGE); // only advice: everything works without it
    return aligned;
}

void cpu_pages_free(void *p, size_t bytes) {
    if (p) munmap(p, round_up(bytes ? bytes : 1, page_unit(bytes)));
}

enum { SMALL_PAGE = 4096, REGION_BYTES = 256 << 20 };

void cpu_pages_give_back(void *p, size_t bytes) {
    char *begin = (char *)round_up((size_t)p, SMALL_PAGE);
    char *end = (char *)(((size_t)p + bytes) / SMALL_PAGE * SMALL_PAGE);
    if (end > begin) madvise(begin, (size_t)(end - begin), MADV_DONTNEED);
}

// --- pool

struct pages_region {
    struct pages_region *next;
    char *base;
    size_t size, used; // freed memory is reused only when the whole region is free
    size_t n_live;
};

static void region_free(struct pages_region *r) {
    cpu_pages_free(r->base, r->size);
    free(r);
}

// The usual size; or only the requested size if that is larger or address space is short.
static struct pages_region *region_new(size_t bytes) {
    struct pages_region *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->size = bytes > REGION_BYTES ? bytes : REGION_BYTES;
    r->base = cpu_pages_alloc(r->size);
    if (!r->base && bytes < r->size) r->base = cpu_pages_alloc(r->size = bytes);
    if (r->base) return r;
    free(r);
    return NULL;
}

void *pages_pool_alloc(struct pages_pool *pool, size_t bytes) {
    if (bytes > SIZE_MAX / 4) return NULL;
    size_t size = round_up(bytes ? bytes : 1, SMALL_PAGE);
    struct pages_region *r = pool->regions;
    while (r && r->size - r->used < size) r = r->next;
    if (!r) {
        r = region_new(size);
        if (!r) return NULL;
        r->next = pool->regions;
        pool->regions = r;
    }
    char *p = r->base + r->used;
    r->used += size;
    r->n_live++;
    return p;
}

void pages_pool_free(struct pages_pool *pool, void *p) {
    if (!p) return;
    struct pages_region **at = &pool->regions;
    while ((uintptr_t)p - (uintptr_t)(*at)->base >= (*at)->size) at = &(*at)->next;
    struct pages_region *r = *at;
    if (--r->n_live > 0) return;
    *at = r->next;
    region_free(r);
}

void pages_pool_release(struct pages_pool *pool) {
    for (struct pages_region *r = pool->regions, *next; r; r = next) {
        next = r->next;
        region_free(r);
    }
    pool->regions = NULL;
}
