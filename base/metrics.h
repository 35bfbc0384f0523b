// Metrics in Prometheus' text format 0.0.4. A registry lives as long as the process; rows come and go
// under its lock, on any thread. Updates are atomic, come from any thread and never allocate. Names begin with parley_
// and use base units (seconds, bytes, ratio); counters end in _total. A session's or user's id is
// never a label.
#pragma once
#include <stdint.h>

struct buf;
struct metrics;
struct metric;

struct metrics *metrics_new(void);    // NULL when memory is out
void metrics_free(struct metrics *m); // with all rows; NULL is allowed

// labels: NULL or text such as `reason="idle"`; unique among the rows of one name. name, help and
// labels are borrowed for the life of the registry. Returns NULL: out of memory. An update of a NULL
// metric does nothing, so parts can run without a registry.
struct metric *metrics_counter(struct metrics *m, const char *name, const char *help,
                               const char *labels);
struct metric *metrics_gauge(struct metrics *m, const char *name, const char *help,
                             const char *labels);
// One row of a family that differ in one label: KEY="value". Both are copied.
struct metric *metrics_counter_of(struct metrics *m, const char *name, const char *help,
                                  const char *key, const char *value);
struct metric *metrics_gauge_of(struct metrics *m, const char *name, const char *help,
                                const char *key, const char *value);
// bounds: ascending upper bounds, without +Inf; borrowed for the life of the process.
struct metric *metrics_histogram(struct metrics *m, const char *name, const char *help,
                                 const char *labels, const double *bounds, int n_bounds);
// A gauge (or counter) whose value fn returns when the page is made, on the thread that makes it.
struct metric *metrics_gauge_fn(struct metrics *m, const char *name, const char *help,
                                const char *labels, double (*fn)(void *ctx), void *ctx);

// Takes rows (n) out and frees them; NULL among them are skipped. Nothing updates them any more.
void metrics_remove(struct metrics *m, struct metric *const *rows, int n);

void metric_add(struct metric *m, double v);     // counter (v >= 0) or gauge
void metric_set(struct metric *m, double v);     // gauge
void metric_observe(struct metric *m, double v); // histogram
double metric_value(const struct metric *m);     // counter, gauge; a histogram's count

// A counter's or a histogram's numbers, for the same row of another process. Gauges have none.
int metric_n_numbers(const struct metric *m); // NULL: 0
void metric_read(const struct metric *m, double *out /* (metric_n_numbers) */);
// Adds what the numbers have grown by.
void metric_grow(struct metric *m, const double *from, const double *to);

int metrics_write(struct metrics *m, struct buf *out); // the whole page
