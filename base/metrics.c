// Metrics registry and its page in Prometheus' text format. See metrics.h.
#include "base/metrics.h"
#include "base/buf.h"
#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { COUNTER, GAUGE, HISTOGRAM };

struct metric {
    enum kind kind;
    const char *name, *help, *labels; // labels: NULL for none
    char *own_labels;                 // the same, ours; or NULL
    double value;                     // atomic; a histogram's sum
    double (*fn)(void *ctx);          // when set, stands for value
    void *ctx;
    const double *bounds; // (n_bounds)
    int n_bounds;
    uint64_t *buckets; // (n_bounds + 1): atomic, each its own count; the page adds them up
    struct metric *next;
};

struct metrics {
    struct metric *first, *last;
    pthread_mutex_t lock; // of the list, not of values
};

struct metrics *metrics_new(void) {
    struct metrics *m = calloc(1, sizeof *m);
    if (m) pthread_mutex_init(&m->lock, NULL);
    return m;
}

static void free_row(struct metric *m) {
    free(m->buckets);
    free(m->own_labels);
    free(m);
}

void metrics_free(struct metrics *m) {
    if (!m) return;
    for (struct metric *i = m->first, *next; i; i = next) {
        next = i->next;
        free_row(i);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static bool same_labels(const char *a, const char *b) {
    return strcmp(a ? a : "", b ? b : "") == 0;
}

// The format requires the rows of one name to be adjacent: a new row goes behind the last one of its
// name, or to the end.
static struct metric *row_before(const struct metrics *m, const char *name, const char *labels) {
    struct metric *before = NULL;
    for (struct metric *i = m->first; i; i = i->next) {
        if (strcmp(i->name, name) != 0) continue;
        assert(!same_labels(i->labels, labels)); // rows are unique
        before = i;
    }
    return before ? before : m->last;
}

// Complete before it is in the list: another thread may be making the page.
static struct metric *add(struct metrics *m, struct metric row) {
    struct metric *metric = m ? malloc(sizeof *metric) : NULL;
    if (!metric) return NULL;
    pthread_mutex_lock(&m->lock);
    struct metric *before = row_before(m, row.name, row.labels);
    struct metric **at = before ? &before->next : &m->first;
    *metric = row;
    metric->next = *at;
    *at = metric;
    if (before == m->last) m->last = metric;
    pthread_mutex_unlock(&m->lock);
    return metric;
}

void metrics_remove(struct metrics *m, struct metric *const *rows, int n) {
    if (!m) return;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < n; i++) {
        struct metric *before = NULL, *at = m->first;
        while (at && at != rows[i]) before = at, at = at->next;
        if (!at) continue;
        *(before ? &before->next : &m->first) = at->next;
        if (m->last == at) m->last = before;
        free_row(at);
    }
    pthread_mutex_unlock(&m->lock);
}

struct metric *metrics_counter(struct metrics *m, const char *name, const char *help,
                               const char *labels) {
    return add(m, (struct metric){.kind = COUNTER, .name = name, .help = help, .labels = labels});
}

struct metric *metrics_gauge(struct metrics *m, const char *name, const char *help,
                             const char *labels) {
    return add(m, (struct metric){.kind = GAUGE, .name = name, .help = help, .labels = labels});
}

static struct metric *add_labelled(struct metrics *m, enum kind kind, const char *name,
                                   const char *help, const char *key, const char *value) {
    char *labels;
    if (!m || asprintf(&labels, "%s=\"%s\"", key, value) < 0) return NULL;
    struct metric *metric = add(
        m, (struct metric){
               .kind = kind, .name = name, .help = help, .labels = labels, .own_labels = labels});
    if (!metric) free(labels);
    return metric;
}

struct metric *metrics_counter_of(struct metrics *m, const char *name, const char *help,
                                  const char *key, const char *value) {
    return add_labelled(m, COUNTER, name, help, key, value);
}

struct metric *metrics_gauge_of(struct metrics *m, const char *name, const char *help,
                                const char *key, const char *value) {
    return add_labelled(m, GAUGE, name, help, key, value);
}

struct metric *metrics_histogram(struct metrics *m, const char *name, const char *help,
                                 const char *labels, const double *bounds, int n_bounds) {
    uint64_t *buckets = calloc((size_t)n_bounds + 1, sizeof *buckets);
    struct metric *metric = buckets ? add(m, (struct metric){.kind = HISTOGRAM,
                                                             .name = name,
                                                             .help = help,
                                                             .labels = labels,
                                                             .bounds = bounds,
                                                             .n_bounds = n_bounds,
                                                             .buckets = buckets})
                                    : NULL;
    if (!metric) free(buckets);
    return metric;
}

struct metric *metrics_gauge_fn(struct metrics *m, const char *name, const char *help,
                                const char *labels, double (*fn)(void *ctx), void *ctx) {
    size_t n = strlen(name);
    bool total = n > 6 && strcmp(name + n - 6, "_total") == 0;
    return add(m, (struct metric){.kind = total ? COUNTER : GAUGE,
                                  .name = name,
                                  .help = help,
                                  .labels = labels,
                                  .fn = fn,
                                  .ctx = ctx});
}

static double load(const double *p) {
    double v;
    __atomic_load(p, &v, __ATOMIC_RELAXED);
    return v;
}

static void add_atomic(double *p, double v) {
    double old = load(p), sum;
    do sum = old + v;
    while (!__atomic_compare_exchange(p, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void metric_add(struct metric *m, double v) {
    if (m) add_atomic(&m->value, v);
}

void metric_set(struct metric *m, double v) {
    if (m) __atomic_store(&m->value, &v, __ATOMIC_RELAXED);
}

void metric_observe(struct metric *m, double v) {
    if (!m) return;
    int i = 0;
    while (i < m->n_bounds && !(v <= m->bounds[i])) i++;
    __atomic_fetch_add(&m->buckets[i], 1, __ATOMIC_RELAXED);
    add_atomic(&m->value, v);
}

double metric_value(const struct metric *m) {
    if (!m) return 0;
    if (m->fn) return m->fn(m->ctx);
    if (m->kind != HISTOGRAM) return load(&m->value);
    uint64_t count = 0;
    for (int i = 0; i <= m->n_bounds; i++)
        count += __atomic_load_n(&m->buckets[i], __ATOMIC_RELAXED);
    return (double)count;
}

int metric_n_numbers(const struct metric *m) {
    if (!m || m->fn || m->kind == GAUGE) return 0;
    return m->kind == HISTOGRAM ? m->n_bounds + 2 : 1;
}

void metric_read(const struct metric *m, double *out) {
    int n = metric_n_numbers(m);
    for (int i = 0; i < n - 1; i++)
        out[i + 1] = (double)__atomic_load_n(&m->buckets[i], __ATOMIC_RELAXED);
    if (n > 0) out[0] = load(&m->value);
}

void metric_grow(struct metric *m, const double *from, const double *to) {
    int n = metric_n_numbers(m);
    for (int i = 0; i < n - 1; i++)
        __atomic_fetch_add(&m->buckets[i], (uint64_t)(to[i + 1] - from[i + 1]), __ATOMIC_RELAXED);
    if (n > 0) add_atomic(&m->value, to[0] - from[0]);
}

// --- the page ---

static void write_head(struct buf *out, const struct metric *m) {
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buf_addf(out, "# HELP %s ", m->name);
    for (const char *p = m->help; *p; p++) {
        if (*p == '\\' || *p == '\n')
            buf_addz(out, *p == '\n' ? "\\n" : "\\\\");
        else
            buf_addc(out, *p);
    }
    buf_addf(out, "\n# TYPE %s %s\n", m->name, kinds[m->kind]);
}

// Writes name{labels} value; suffix and bound (NULL: none) are for histograms.
static void write_row(struct buf *out, const struct metric *m, const char *suffix,
                      const double *bound, double value) {
    buf_addf(out, "%s%s", m->name, suffix);
    if (m->labels || bound) buf_addc(out, '{');
    if (m->labels) buf_addz(out, m->labels);
    if (m->labels && bound) buf_addc(out, ',');
    if (bound) {
        buf_addz(out, "le=\"");
        buf_add_double(out, *bound);
        buf_addc(out, '"');
    }
    if (m->labels || bound) buf_addc(out, '}');
    buf_addc(out, ' ');
    buf_add_double(out, value);
    buf_addc(out, '\n');
}

// Buckets are read once, so that the last one and _count agree while other threads observe.
static void write_histogram(struct buf *out, const struct metric *m) {
    const double infinity = HUGE_VAL;
    uint64_t count = 0;
    for (int i = 0; i <= m->n_bounds; i++) {
        count += __atomic_load_n(&m->buckets[i], __ATOMIC_RELAXED);
        write_row(out, m, "_bucket", i < m->n_bounds ? &m->bounds[i] : &infinity, (double)count);
    }
    write_row(out, m, "_sum", NULL, load(&m->value));
    write_row(out, m, "_count", NULL, (double)count);
}

int metrics_write(struct metrics *m, struct buf *out) {
    const char *name = "";
    pthread_mutex_lock(&m->lock);
    for (const struct metric *i = m->first; i; i = i->next) {
        if (strcmp(i->name, name) != 0) write_head(out, i);
        name = i->name;
        if (i->kind == HISTOGRAM)
            write_histogram(out, i);
        else
            write_row(out, i, "", NULL, metric_value(i));
    }
    pthread_mutex_unlock(&m->lock);
    return out->error;
}
