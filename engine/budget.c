// See budget.h.
#include "engine/budget.h"

#include <stdio.h>
#include <string.h>

static const double DEFAULT_FRACTION = 0.95;
// For captured graphs, work of attention and cuBLASLt, and the driver.
static const int64_t RESERVE = INT64_C(512) << 20;
enum { LEAST_CHUNK = 64 };

static int64_t at_least_0(int64_t n) {
    return n > 0 ? n : 0;
}

int64_t budget_cache(const struct budget *b) {
    double fraction = b->fraction > 0 ? b->fraction : DEFAULT_FRACTION;
    return at_least_0((int64_t)(fraction * (double)b->total) - (b->total - b->left) - b->work -
                      RESERVE);
}

int64_t budget_largest_cache(const struct budget *b) {
    return at_least_0(b->left - b->work - RESERVE);
}

// The window, the chunk of slack, and the partly used blocks at the ends of window and sinks.
static int64_t least_cache(const struct budget *b, int64_t chunk) {
    int64_t blocks = (b->memory_len + chunk + b->block_tokens - 1) / b->block_tokens + 2;
    int64_t all = (b->session_len + b->block_tokens - 1) / b->block_tokens;
    return (blocks < all ? blocks : all) * b->block_bytes;
}

int64_t budget_places(const struct budget *b, int64_t asked, int64_t tokens) {
    if (tokens > b->session_len) tokens = b->session_len;
    int64_t each = (tokens + b->block_tokens - 1) / b->block_tokens * b->block_bytes;
    return (asked > 0 ? asked : budget_cache(b)) / (each > 0 ? each : 1);
}

int64_t budget_least_cache(const struct budget *b) {
    return least_cache(b, b->prefill_chunk_tokens);
}

// --- sentences -----------------------------------------------------------------------------------

struct size {
    char text[24];
};

static struct size size_of(int64_t bytes) {
    struct size s;
    if (bytes >= INT64_C(1) << 30)
        snprintf(s.text, sizeof s.text, "%.1f GiB", (double)bytes / (double)(1 << 30));
    else
        snprintf(s.text, sizeof s.text, "%.0f MiB", (double)bytes / (double)(1 << 20));
    return s;
}

// Memory of the device that other processes hold.
static int64_t others(const struct budget *b) {
    return at_least_0(b->total - b->left - (b->loaded ? b->weights : 0));
}

int budget_no_weights(const struct budget *b, struct err *err) {
    char fits[160];
    int64_t small = b->weights / 2;
    if (!b->eight_bits && small < budget_largest_cache(b))
        snprintf(fits, sizeof fits, "weight_dtype = int8 (about %s) would fit",
                 size_of(small).text);
    else if (others(b) > b->total / 16)
        snprintf(fits, sizeof fits, "%s are in use by others: free them, or name another device",
                 size_of(others(b)).text);
    else
        snprintf(fits, sizeof fits, "take a smaller model, or another device");
    return err_set(err, E_NOMEM, "the weights take about %s, and %s has %s free of %s; %s",
                   size_of(b->weights).text, b->device, size_of(b->left).text,
                   size_of(b->total).text, fits);
}

// Which setting would make room for the smallest cache, the cheapest first.
static void say_what_fits(const struct budget *b, char *out, size_t cap) {
    int64_t used = b->total - b->left, need = budget_least_cache(b);
    int64_t all = used + b->work + RESERVE + need;
    double fraction = (double)all / (double)b->total;
    int percent = (int)(fraction * 100) + 1;
    if (percent <= 99 && fraction > b->fraction) {
        snprintf(out, cap, "gpu_memory_fraction = %d.%02d would do", percent / 100, percent % 100);
        return;
    }
    for (int32_t chunk = b->prefill_chunk_tokens / 2; chunk >= LEAST_CHUNK; chunk /= 2) {
        int64_t saved = b->work_per_token * (b->prefill_chunk_tokens - chunk);
        if (budget_cache(b) + saved < least_cache(b, chunk)) continue;
        if (used + b->work - saved + RESERVE + least_cache(b, chunk) > b->total) continue;
        snprintf(out, cap, "prefill_chunk_tokens = %d would do", chunk);
        return;
    }
    snprintf(out, cap, "%s more must be free on the device%s",
             size_of(at_least_0(all - b->total) + (INT64_C(1) << 20)).text,
             b->eight_bits ? "" : ", or weight_dtype = int8 may do");
}

int budget_no_cache(const struct budget *b, struct err *err) {
    char fits[160], allowed[64] = "";
    say_what_fits(b, fits, sizeof fits);
    if (b->fraction > 0)
        snprintf(allowed, sizeof allowed, ", of which gpu_memory_fraction allows %s",
                 size_of((int64_t)(b->fraction * (double)b->total)).text);
    return err_set(
        err, E_NOMEM,
        "no room for the cache: %s has %s%s; the weights take %s, others %s, the work of "
        "%d turns and chunks of %d tokens %s, and a cache for memory_len %lld would take "
        "%s; %s",
        b->device, size_of(b->total).text, allowed, size_of(b->weights).text,
        size_of(others(b)).text, b->max_sequences, b->prefill_chunk_tokens,
        size_of(b->work + RESERVE).text, (long long)b->memory_len,
        size_of(budget_least_cache(b)).text, fits);
}

int budget_cache_too_large(const struct budget *b, int64_t asked, struct err *err) {
    int64_t most = budget_largest_cache(b);
    if (most < budget_least_cache(b)) return budget_no_cache(b, err);
    return err_set(
        err, E_NOMEM,
        "kv_cache_bytes: %s do not fit %s: %s are free of %s beside the weights (%s), and "
        "the work of %d turns and chunks of %d tokens takes %s; at most %lld MiB would fit",
        size_of(asked).text, b->device, size_of(b->left).text, size_of(b->total).text,
        size_of(b->weights).text, b->max_sequences, b->prefill_chunk_tokens,
        size_of(b->work + RESERVE).text, (long long)(most >> 20));
}
