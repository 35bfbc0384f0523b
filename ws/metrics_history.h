// The figures that the page plots, over the last five minutes: a page that opens shows what happened before.
#pragma once
#include "base/buf.h"
#include <stdint.h>

#define HISTORY_EVERY_US INT64_C(5000000)
#define HISTORY_SAMPLES 61 // of five minutes, both ends included

struct http;
struct metrics;

struct metrics_history {
    struct {
        int64_t at_us;
        struct buf text; // the rows of /metrics that are plotted
    } samples[HISTORY_SAMPLES];
    int n, oldest;
};

void metrics_history_init(struct metrics_history *h);
void metrics_history_release(struct metrics_history *h);
// Takes a sample if the latest is old enough. Without memory it takes none.
void metrics_history_note(struct metrics_history *h, struct metrics *registry, int64_t now_us);
// The samples, oldest first. Each begins with a line "# age_s SECONDS".
int metrics_history_write(const struct metrics_history *h, int64_t now_us, struct buf *out);
