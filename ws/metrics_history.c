// Samples of /metrics in a ring. See metrics_history.h.
#include "ws/metrics_history.h"
#include "base/metrics.h"
#include <stdbool.h>
#include <string.h>

#define PAGE_BYTES (1 << 20)
#define SAMPLE_BYTES (1 << 16) // some 20 instances

// What web/src/view/dashboard.js plots. A name includes those that begin with it.
static const char *const plotted[] = {
    "parley_engine_generated_tokens_total", "parley_engine_prompt_tokens_total",
    "parley_engine_time_to_first_token_",   "parley_engine_requests_running",
    "parley_engine_requests_waiting",       "parley_engine_kv_cache_usage_ratio",
    "parley_engine_host_cache_usage_ratio", "parley_sessions_resident",
};

static bool is_plotted(const char *line, size_t len) {
    for (size_t i = 0; i < sizeof plotted / sizeof *plotted; i++) {
        size_t n = strlen(plotted[i]);
        if (len > n && memcmp(line, plotted[i], n) == 0) return true;
    }
    return false;
}

static void keep_plotted(const char *page, struct buf *out) {
    for (const char *end; (end = strchr(page, '\n')); page = end + 1)
        if (is_plotted(page, (size_t)(end - page))) buf_add(out, page, (size_t)(end + 1 - page));
}

static struct buf *text_at(const struct metrics_history *h, int i, int64_t *at_us) {
    int at = (h->oldest + i) % HISTORY_SAMPLES;
    *at_us = h->samples[at].at_us;
    return (struct buf *)&h->samples[at].text;
}

void metrics_history_init(struct metrics_history *h) {
    h->n = h->oldest = 0;
    for (int i = 0; i < HISTORY_SAMPLES; i++) buf_init(&h->samples[i].text, SAMPLE_BYTES);
}

void metrics_history_release(struct metrics_history *h) {
    for (int i = 0; i < HISTORY_SAMPLES; i++) buf_release(&h->samples[i].text);
}

void metrics_history_note(struct metrics_history *h, struct metrics *registry, int64_t now_us) {
    int64_t latest_us;
    if (h->n > 0 && (text_at(h, h->n - 1, &latest_us), now_us - latest_us < HISTORY_EVERY_US))
        return;
    struct buf page;
    buf_init(&page, PAGE_BYTES);
    if (metrics_write(registry, &page) == 0) {
        if (h->n == HISTORY_SAMPLES)
            h->oldest = (h->oldest + 1) % HISTORY_SAMPLES;
        else
            h->n++;
        int at = (h->oldest + h->n - 1) % HISTORY_SAMPLES;
        struct buf *text = &h->samples[at].text;
        buf_reset(text);
        keep_plotted(buf_z(&page), text);
        h->samples[at].at_us = now_us;
        if (text->error) h->n--; // a part of a sample would look like a restart
    }
    buf_release(&page);
}

int metrics_history_write(const struct metrics_history *h, int64_t now_us, struct buf *out) {
    for (int i = 0; i < h->n; i++) {
        int64_t at_us;
        const struct buf *text = text_at(h, i, &at_us);
        buf_addf(out, "# age_s %.3f\n", (double)(now_us - at_us) / 1e6);
        buf_add(out, buf_z(text), text->len);
    }
    return out->error;
}
