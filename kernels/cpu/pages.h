// Memory for what is large and read end to end: on huge pages, since the hardware's prefetcher and
// the TLB stop at small ones.
#pragma once
#include <stddef.h>

// Zeroed, 2 MiB aligned and in whole huge pages from half of one up; NULL when memory is out.
void *cpu_pages_alloc(size_t bytes);
void cpu_pages_free(void *p, size_t bytes);

// Many allocations that live about as long as each other (a model's weights) share huge pages: they
// lie one behind another in large regions, so that what is lost is part of a page for each region
// and not for each weight. Memory that nothing was put into is reserved only and not resident.
struct pages_region;
struct pages_pool {
    struct pages_region *regions;
};

// Zeroed, 4 KiB aligned; NULL when memory is out. A region goes back when all in it is freed.
void *pages_pool_alloc(struct pages_pool *pool, size_t bytes);
void pages_pool_free(struct pages_pool *pool, void *p); // NULL is nothing
void pages_pool_release(struct pages_pool *pool);
