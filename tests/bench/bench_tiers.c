// Measures what parking gains: the time to bring a cache back from host memory
// and from a file, beside computing it, and the speed of a server with four
// times more sessions than its cache holds, with host memory and without.
//
//   make bench-tiers ARGS="MODEL [TOKENS [SESSIONS [TURNS]]]"
#include "base/log.h"
#include "engine/engine_internal.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MEMORY = 512,
    INPUT = 24,
    ANSWER = 16,
    START = 400,
    THINK_US = 50000,
    MOST = 256,
    FILED = 1 << 20
};

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint64_t seed = 1;
static int32_t draw(int32_t n) { // splitmix64
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int32_t)((z ^ (z >> 31)) % (uint32_t)n);
}

static struct engine *open_engine(const char *model, int64_t session_len, int64_t cache_bytes,
                                  int64_t host_bytes, const char *snapshots) {
    struct engine_options o;
    struct engine *e;
    struct err err = {0};
    engine_options_init(&o);
    o.model_dir = model;
    o.device = "auto";
    o.max_session_len = session_len;
    o.max_sequences = 8;
    o.default_memory_len = session_len > MEMORY * 4 ? 0 : MEMORY;
    o.kv_cache_bytes = cache_bytes;
    o.host_cache_bytes = host_bytes;
    o.snapshot_dir = snapshots;
    o.snapshot_bytes = INT64_C(1) << 40;
    if (engine_open(&e, &o, &err) == 0) return e;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

static void submit(struct engine *e, uint64_t sequence, const int32_t *log, int64_t n,
                   int64_t n_input, int32_t memory_len, int32_t max_tokens) {
    struct err err = {0};
    struct engine_turn t = {.sequence = sequence,
                            .turn = 1,
                            .ids = malloc((size_t)n * sizeof *log),
                            .n_ids = n,
                            .n_input = n_input,
                            .memory_len = memory_len,
                            .sink_len = 4,
                            .session_len = engine_info(e)->max_session_len,
                            .lasting_id = sequence == FILED ? "filed" : NULL};
    sampling_params_init(&t.sampling);
    t.sampling.temperature = 0;
    t.sampling.ignore_eos = true;
    t.sampling.max_tokens = max_tokens;
    if (t.ids) memcpy(t.ids, log, (size_t)n * sizeof *log);
    if (t.ids && engine_turn_submit(e, &t, &err) == 0) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

// Until a turn is done, or a sequence parked.
static struct engine_event until(struct engine *e, enum engine_event_kind kind,
                                 enum engine_cache_source *source) {
    struct engine_event ev;
    for (;;) {
        if (engine_wait(e, &ev, -1) != 1) exit(1);
        if (ev.kind == ENGINE_STARTED && source) *source = ev.source;
        if (ev.kind == kind) return ev;
        if (ev.kind == ENGINE_DONE && ev.finish == FINISH_ERROR) exit(1);
    }
}

// How many tokens are new in the turns that bring a cache back: what they cost comes behind it.
enum { FEW = 1, SOME = 32 };

// The machine's own rate for bytes that are in memory twice.
static double copy_rate(size_t bytes) {
    char *a = malloc(bytes), *b = malloc(bytes);
    double best = 0;
    if (!a || !b) exit(1);
    memset(a, 1, bytes);
    memset(b, 2, bytes);
    for (int i = 0; i < 5; i++) {
        int64_t t = now_us();
        memcpy(i % 2 ? a : b, i % 2 ? b : a, bytes);
        double rate = (double)bytes / (double)(now_us() - t);
        if (rate > best) best = rate;
    }
    free(a);
    free(b);
    return best * 1e6;
}

// From here on a turn's first step waits for all copies, as it does where none run beside it. The
// engine's thread sees it with the next command.
static void copies_first(struct engine *e) {
    static struct backend_ops ops;
    ops = *e->backend->ops;
    ops.kv_layer_wait = NULL;
    e->backend->ops = &ops;
}

static void resume(const char *model, int64_t n) {
    struct engine *e = open_engine(model, n + 256, 0, INT64_C(4) << 30, NULL);
    const struct engine_info *info = engine_info(e);
    int32_t *log = malloc((size_t)(n + 64) * sizeof *log);
    enum engine_cache_source source = CACHE_NONE;
    if (!log) exit(1);
    for (int64_t i = 0; i < n + 64; i++) log[i] = draw(info->n_vocab);
    submit(e, 1, log, n, n, info->max_memory_len, 1);
    struct engine_event first = until(e, ENGINE_DONE, NULL);
    double bytes =
        (double)((n + info->block_tokens - 1) / info->block_tokens) * (double)info->block_bytes;
    printf("%s, %s: %lld tokens, %.1f MiB of cache; computing them took %.0f ms\n",
           info->model_name, info->backend, (long long)n, bytes / 1048576,
           (double)first.prefill_us / 1e3);
    printf("one memcpy of so many bytes: %.2f GB/s\n", copy_rate((size_t)bytes) / 1e9);
    const bool beside = e->backend->ops->kv_layer_wait;
    for (int i = 0; i < (beside ? 20 : 15); i++) {
        int64_t began = now_us(), n_new = i < 5 ? FEW : SOME;
        bool parks = i < 10 || i >= 15;
        if (i == 15) copies_first(e);
        if (parks) engine_sequence_park(e, 1);
        if (parks) (void)until(e, ENGINE_PARKED, NULL);
        int64_t parked = now_us() - began;
        for (int64_t k = n; k < n + 64; k++) log[k] = draw(info->n_vocab); // all of it is computed
        submit(e, 1, log, n + n_new, n_new, info->max_memory_len, 1);
        struct engine_event done = until(e, ENGINE_DONE, &source);
        printf("parked in %.1f ms; %s: waited for %.1f ms (%.2f GB/s), first token "
               "after %.1f ms, %d new%s\n",
               (double)parked / 1e3, engine_cache_source_name(source), (double)done.resume_us / 1e3,
               bytes / (double)done.resume_us / 1e3, (double)done.prefill_us / 1e3, (int)n_new,
               !beside   ? ""
               : i >= 15 ? ", copies first"
               : parks   ? ", copies beside the first step"
                         : "");
    }
    free(log);
    engine_close(e);
}

// --- from a file ---------------------------------------------------------------------------------

// What the system holds of the folder's files goes, so that the disk itself is
// read.
static void forget_pages(const char *folder) {
    char path[600];
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        int fd = open(path, O_RDONLY);
        if (fd >= 0) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (fd >= 0) close(fd);
    }
    if (d) closedir(d);
}

static void remove_folder(const char *folder) {
    char path[600];
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        if (f->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(folder);
}

static void resume_file(const char *model, int64_t n) {
    const char *tmp = getenv("TMPDIR");
    char folder[300];
    snprintf(folder, sizeof folder, "%s/parley-bench-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) exit(1);
    struct engine *e = open_engine(model, n + 256, 0, 0, folder);
    const struct engine_info *info = engine_info(e);
    int32_t *log = malloc((size_t)(n + 64) * sizeof *log);
    enum engine_cache_source source = CACHE_NONE;
    if (!log) exit(1);
    for (int64_t i = 0; i < n + 64; i++) log[i] = draw(info->n_vocab);
    submit(e, FILED, log, n, n, info->max_memory_len, 1);
    (void)until(e, ENGINE_DONE, NULL);
    double bytes =
        (double)((n + info->block_tokens - 1) / info->block_tokens) * (double)info->block_bytes;
    printf("files in %s\n", folder);
    for (int i = 0; i < 12; i++) {
        int64_t began = now_us(), n_new = i < 6 ? FEW : SOME;
        for (int64_t k = n; k < n + 64; k++) log[k] = draw(info->n_vocab);
        engine_sequence_park(e, FILED);
        (void)until(e, ENGINE_RELEASED, NULL);
        int64_t written = now_us() - began;
        bool cold = i % 6 >= 3;
        if (cold) forget_pages(folder);
        submit(e, FILED, log, n + n_new, n_new, info->max_memory_len, 1);
        struct engine_event done = until(e, ENGINE_DONE, &source);
        printf("written in %.1f ms; %s, %s: back in %.1f ms (%.2f GB/s), first "
               "token after "
               "%.1f ms, %d new\n",
               (double)written / 1e3, engine_cache_source_name(source),
               cold ? "pages dropped" : "pages in memory", (double)done.resume_us / 1e3,
               bytes / (double)done.resume_us / 1e3, (double)done.prefill_us / 1e3, (int)n_new);
    }
    free(log);
    engine_close(e);
    remove_folder(folder);
}

// --- four times more sessions than there is room for ---------------------------------------------

struct guest {
    int32_t *log;
    int64_t n, due_us;
    int32_t turns;
    bool running;
};

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void guests(const char *model, int32_t n, int32_t turns, int64_t host_bytes, uint64_t *sum) {
    struct engine *e = open_engine(model, 2048, 0, 0, NULL);
    int64_t block = engine_info(e)->block_bytes, tokens = engine_info(e)->block_tokens;
    engine_close(e);
    // Room for a quarter of them at their start, and for one window with its
    // slack.
    int64_t blocks = n / 4 * (START / tokens + 2);
    if (blocks < (MEMORY + 512) / tokens) blocks = (MEMORY + 512) / tokens;
    e = open_engine(model, 2048, blocks * block, host_bytes, NULL);
    static struct guest all[MOST];
    static int64_t first[MOST * 64];
    int64_t n_first = 0, drawn = 0, sources[CACHE_SNAPSHOT + 1] = {0};
    seed = 99;
    for (int32_t i = 0; i < n; i++) {
        all[i] = (struct guest){.log = malloc(2048 * sizeof(int32_t)), .n = START};
        if (!all[i].log) exit(1);
        for (int32_t k = 0; k < START; k++) all[i].log[k] = draw(engine_info(e)->n_vocab);
    }
    int64_t began = now_us();
    for (int32_t left = n * turns; left > 0;) {
        int64_t now = now_us();
        for (int32_t i = 0; i < n; i++) {
            struct guest *g = &all[i];
            if (g->running || g->turns == turns || g->due_us > now) continue;
            for (int32_t k = 0; g->turns > 0 && k < INPUT; k++)
                g->log[g->n++] = (int32_t)((uint64_t)(i * 7919 + g->turns * 104729 + k * 31) %
                                           (uint64_t)engine_info(e)->n_vocab);
            g->running = true;
            submit(e, (uint64_t)i + 1, g->log, g->n, g->turns ? INPUT : START, MEMORY, ANSWER);
        }
        struct engine_event ev;
        if (engine_wait(e, &ev, 5000) != 1) continue;
        struct guest *g = &all[ev.sequence - 1];
        if (ev.kind == ENGINE_STARTED && g->turns > 0) sources[ev.source]++;
        if (ev.kind == ENGINE_TOKEN && ev.id >= 0) {
            uint32_t bits;
            memcpy(&bits, &ev.logprob, sizeof bits);
            *sum += (uint64_t)(ev.sequence * 1000003 + (uint64_t)g->n) * (bits ^ (uint32_t)ev.id);
            g->log[g->n++] = ev.id;
            drawn++;
        }
        if (ev.kind != ENGINE_DONE) continue;
        if (ev.finish != FINISH_LENGTH) exit(1);
        if (g->turns > 0) first[n_first++] = ev.queue_us + ev.prefill_us;
        g->running = false;
        g->turns++;
        g->due_us = now_us() + THINK_US / 2 +
                    (int64_t)(ev.sequence * 7919 + (uint64_t)g->turns * 104729) % THINK_US;
        left--;
    }
    double took = (double)(now_us() - began) / 1e6;
    qsort(first, (size_t)n_first, sizeof *first, by_value);
    printf("%d sessions, room for %d; host memory %lld MiB: %.1f s, %.0f "
           "tokens/s drawn; first "
           "token of later turns: median %.1f ms, 95%% %.1f ms; kept %lld, host "
           "%lld, recomputed "
           "%lld\n",
           n, n / 4, (long long)(host_bytes >> 20), took, (double)drawn / took,
           (double)first[n_first / 2] / 1e3, (double)first[n_first * 95 / 100] / 1e3,
           (long long)sources[CACHE_KEPT], (long long)sources[CACHE_HOST],
           (long long)sources[CACHE_RECOMPUTED]);
    for (int32_t i = 0; i < n; i++) free(all[i].log);
    engine_close(e);
}

int main(int argc, char **argv) {
    const char *model = argc > 1 ? argv[1] : "configs/demo-model";
    int64_t n = argc > 2 ? atoll(argv[2]) : 1024;
    int32_t sessions = argc > 3 ? atoi(argv[3]) : 32, turns = argc > 4 ? atoi(argv[4]) : 6;
    uint64_t with = 0, without = 0;
    log_set_level(LOG_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (sessions > MOST || turns > 64) return 2;
    resume(model, n);
    resume_file(model, n);
    if (sessions < 4) return 0;
    guests(model, sessions, turns, 0, &without);
    guests(model, sessions, turns, INT64_C(1) << 30, &with);
    printf("tokens and log-probabilities are %s\n", with == without ? "equal" : "NOT EQUAL");
    return with != without;
}
