// Memory for large data that is read from end to end. It uses huge pages, because the hardware's
// prefetcher and the TLB stop at the end of a small page.
#pragma once
#include <stddef.h>

// Zeroed, 2 MiB aligned and in whole huge pages from half of one up; NULL when memory is out.
void *cpu_pages_alloc(size_t bytes);
void cpu_pages_free(void *p, size_t bytes);
// Gives the whole 4 KiB pages in this part of an allocation back to the system. They read as zeros, and become
// resident again at their next use.
void cpu_pages_give_back(void *p, size_t bytes);

// Allocations with about the same lifetime (a model's weights) share huge pages: they lie one after
// another in large regions, so that part of a page is lost for each region, not for each weight.
// Memory that was never written is reserved but not resident.
struct pages_region;
struct pages_pool {
    struct pages_region *regions;
};

// Zeroed, 4 KiB aligned; NULL when memory is out. A region is unmapped when everything in it is
// free.
void *pages_pool_alloc(struct pages_pool *pool, size_t bytes);
void pages_pool_free(struct pages_pool *pool, void *p); // NULL is ignored
void pages_pool_release(struct pages_pool *pool);
