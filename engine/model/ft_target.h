// The files of an export: each array is split into its ranks' files, a block of rows at a time.
#pragma once
#include "engine/model/ft_source.h"
#include <signal.h>

struct ft_target {
    const char *dir;
    int32_t n_ranks;
    enum dtype dtype;
    int64_t done, total; // bytes
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
    const volatile sig_atomic_t *stop; // or NULL
};

// Writes one array from an open source.
int ft_target_array(struct ft_target *t, const struct ft_source *s, const struct ft_array *a,
                    struct err *err);
int ft_target_file(const struct ft_target *t, const char *name, const void *bytes, size_t n,
                   struct err *err);
void ft_target_remove(const char *dir); // removes a folder of files that we made
