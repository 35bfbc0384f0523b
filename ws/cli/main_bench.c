// parley bench: prefill and decode rates of a model on this machine, and decode as a share of the
// memory bandwidth, which is measured in the same run.
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/json_form.h"
#include "engine/engine_internal.h"
#include "engine/model/synth.h"
#include "ws/cli/bench.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_REPEAT = 1000, MAX_TOGETHER = 1024, WARM_TOKENS = 8 };

#define SETTINGS struct bench_settings
static const struct config_key keys[] = {
    TEXT("bench", like, "", "SHAPE",
         "Measure a random model of this shape (`parley synth --help` lists them) in place of "
         "--model; its values are made in memory and never written."),
    INT("bench", prompt_tokens, 1, 1e7, "512", "Prompt tokens in the prefill part."),
    INT("bench", context_tokens, 1, 1e7, "16", "Tokens in each session before the decode part."),
    INT("bench", decode_tokens, 2, 1e7, "128", "Tokens to generate in the decode part."),
    INT("bench", sequences, 1, MAX_TOGETHER, "8",
        "Sessions in the together part, which decodes them in one batch."),
    TEXT("bench", parts, "prefill,decode,together", "LIST", "Parts to measure."),
    INT("bench", later_turn, 0, 1e6, "0",
        "Also measure the first token of a later turn with this many new tokens on a cache of "
        "context_tokens."),
    INT("bench", turns, 0, 1e6, "0",
        "Also measure a session of this many turns beyond its window (memory_len): time per token "
        "at 10 times memory_len against 1 time."),
    INT("bench", turn_tokens, 2, 1e5, "16",
        "New tokens, and tokens to generate, in each turn of --turns."),
    INT("bench", first_turn, 0, 1e6, "0",
        "Also measure the first tokens of the first two turns after opening, of this many tokens "
        "each."),
    INT("bench", arrivals, 0, 1e4, "0",
        "Also measure the sessions' time between tokens while this many prompts of context_tokens "
        "arrive."),
    INT("bench", arrival_ms, 1, 1e5, "50", "Milliseconds between two of these prompts."),
    INT("bench", repeat, 1, MAX_REPEAT, "5", "Runs of each part; the result is the median."),
    BOOL("bench", json, "off", "Print JSON."),
};

// --- the ceiling: how fast all threads together can read memory that no cache holds --------------

struct reader {
    pthread_t thread;
    const uint64_t *words;
    size_t n;
    uint64_t sum;
};

// A thread reads several streams at once, as the kernels do: one stream does not use all
// outstanding loads of a core, so the ceiling would be too low. Lines are prefetched to L2 only,
// because L1 has half as many outstanding misses.
enum { STREAMS = 8, LINE_WORDS = 8 /* 64 bytes */, AHEAD_WORDS = 64 * LINE_WORDS };

static void *read_words(void *arg) {
    struct reader *r = arg;
    size_t stretch = r->n / STREAMS / LINE_WORDS * LINE_WORDS;
    uint64_t sums[STREAMS][LINE_WORDS] = {
        {0}}; // separate sums, so that the loop waits for memory and not for an addition
    for (size_t i = 0; i < stretch; i += LINE_WORDS)
        for (int s = 0; s < STREAMS; s++) {
            const uint64_t *line = r->words + (size_t)s * stretch + i;
            __builtin_prefetch(line + AHEAD_WORDS, 0, 2);
            for (int k = 0; k < LINE_WORDS; k++) sums[s][k] += line[k];
        }
    for (int s = 0; s < STREAMS; s++)
        for (int k = 0; k < LINE_WORDS; k++) r->sum += sums[s][k];
    return NULL;
}

// GB/s, the best of five passes over 1 GiB; 0 if there is not enough memory.
static double read_ceiling(int n_threads) {
    enum { GIB = 1 << 30 };
    struct reader readers[64];
    double best = 0;
    char *memory = mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 0;
    madvise(memory, GIB, MADV_HUGEPAGE);
    memset(memory, 1, GIB);
    for (int pass = 0; pass < 5; pass++) {
        size_t n = GIB / sizeof(uint64_t) / (size_t)n_threads;
        int started = 0;
        int64_t start = clock_mono_us(&clock_system);
        for (int i = 0; i < n_threads; i++) {
            readers[i] =
                (struct reader){.words = (const uint64_t *)(void *)memory + n * (size_t)i, .n = n};
            if (pthread_create(&readers[i].thread, NULL, read_words, &readers[i])) break;
            started++;
        }
        for (int i = 0; i < started; i++) pthread_join(readers[i].thread, NULL);
        double rate =
            (double)started * (double)n * 8 / (double)(clock_mono_us(&clock_system) - start) / 1e3;
        if (rate > best) best = rate;
    }
    munmap(memory, GIB);
    return best;
}

// --- turns ---------------------------------------------------------------------------------------

struct finished {
    int64_t prefill_us;           // the last turn's, by the engine
    int64_t started_us;           // when every turn had its first token, which belongs to prefill
    int64_t decode_us, n_decoded; // from then until the first of them ended
};

// Waits for n turns.
static int finish(struct bench *b, int n, struct finished *f) {
    struct engine_event ev;
    const uint64_t oldest = b->next - (uint64_t)n; // turns have numbers above it
    int64_t last = 0, n_started = 0, n_turns = n;
    bool started[MAX_TOGETHER] = {false}, ended = false;
    *f = (struct finished){0};
    while (n > 0) {
        TRY(engine_wait(b->engine, &ev, -1));
        if (ev.kind == ENGINE_TOKEN && n_started < n_turns) {
            bool *mine = &started[ev.turn - oldest - 1];
            n_started += !*mine;
            *mine = true;
            f->started_us = last = ev.time_us;
        } else if (ev.kind == ENGINE_TOKEN && !ended) {
            last = ev.time_us;
            f->n_decoded++;
        }
        ended = ended || ev.kind == ENGINE_DONE;
        if (ev.kind != ENGINE_DONE) continue;
        TRY(cli_check_done(&ev, b->err));
        f->prefill_us = ev.prefill_us;
        engine_sequence_release(b->engine, ev.sequence);
        n--;
    }
    f->decode_us = last - f->started_us;
    return 0;
}

enum part { PREFILL, DECODE, TOGETHER, PARTS };
static const char *const part_names[] = {"prefill", "decode", "together"};

struct result { // of a part
    bool measured;
    double rate;         // tokens/s
    double idle_us;      // how long the device idles between two steps; negative: unknown
    double prefill_rate; // together: tokens/s of all the sessions' prompts, of context_tokens each
};

// One run of a part in tokens/s. Prefill ends and decode begins with the first token, because
// prefill computes it. With several prompts, prefill lasts from the first call until each has its
// token.
static int run(struct bench *b, enum part part, int64_t n_decode, struct result *out) {
    const struct bench_settings *s = b->settings;
    int n = part == TOGETHER ? (int)s->sequences : 1;
    int64_t n_prompt = part == PREFILL ? s->prompt_tokens : s->context_tokens;
    struct finished f;
    int64_t began = clock_mono_us(&clock_system);
    for (int i = 0; i < n; i++) TRY(bench_submit(b, n_prompt, part == PREFILL ? 1 : n_decode));
    TRY(finish(b, n, &f));
    out->rate = part == PREFILL
                    ? (double)n_prompt * 1e6 / (double)f.prefill_us
                    : (double)f.n_decoded * 1e6 / (double)(f.decode_us ? f.decode_us : 1);
    int64_t prompts_us = f.started_us - began;
    out->prefill_rate = (double)(n * n_prompt) * 1e6 / (double)(prompts_us > 0 ? prompts_us : 1);
    return 0;
}

// Warms up. If the device can report its idle time between steps, the warm-up is a whole run that
// measures it, because measuring slows the steps down.
static int warm_up(struct bench *b, enum part part, struct result *out) {
    struct backend *be = b->engine->backend;
    const int64_t n = b->settings->decode_tokens;
    double before;
    out->idle_us = -1;
    if (!be->ops->idle_time || part == PREFILL)
        return run(b, part, n < WARM_TOKENS ? n : WARM_TOKENS, out);
    TRY(be->ops->idle_time(be, true, &before));
    TRY(run(b, part, n, out));
    return be->ops->idle_time(be, false, &out->idle_us);
}

// Medians of one part.
static int measure(struct bench *b, enum part part, struct result *out) {
    const int64_t repeat = b->settings->repeat;
    double rates[MAX_REPEAT], prefill_rates[MAX_REPEAT];
    TRY(warm_up(b, part, out));
    for (int64_t i = 0; i < repeat; i++) {
        TRY(run(b, part, b->settings->decode_tokens, out));
        rates[i] = out->rate;
        prefill_rates[i] = out->prefill_rate;
    }
    out->rate = bench_median(rates, repeat);
    out->prefill_rate = bench_median(prefill_rates, repeat);
    out->measured = true;
    return 0;
}

// A line of /proc/self/status in bytes; 0 if there is none.
static int64_t status_bytes(const char *name) {
    char line[128];
    long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':')
            kib = atoll(line + strlen(name) + 1);
    if (f) fclose(f);
    return kib * 1024;
}

// Results of the optional parts.
struct extras {
    struct later_turn later;
    struct long_session session;
    struct first_turns first;
    struct arrivals arrivals;
    double load_s;
    int64_t peak_bytes, anonymous_bytes;
    bool compared;              // `deterministic` on a GPU: also measure its cost
    struct result plain[PARTS]; // the same without it
};

// The cost of `deterministic`, as a share of the time without it.
static double cost_of(const struct result *r, const struct extras *x, enum part part) {
    return x->plain[part].rate / r[part].rate - 1;
}

static double idle_share(const struct bench_settings *s, const struct result *r, enum part part) {
    return r[part].idle_us * 1e-6 * r[part].rate / (part == TOGETHER ? (double)s->sequences : 1);
}

static bool idle_known(const struct result *r) {
    return r->measured && r->idle_us >= 0;
}

static void print_parts(const struct bench_settings *s, const struct result r[PARTS], double gbs,
                        double ceiling) {
    if (r[PREFILL].measured)
        printf("  prefill of %lld tokens    %10.1f tokens/s\n", (long long)s->prompt_tokens,
               r[PREFILL].rate);
    if (r[DECODE].measured)
        printf("  decode of %lld tokens     %10.1f tokens/s   %.1f GB/s, %.0f%% of the memory "
               "bandwidth, %.1f GB/s\n",
               (long long)s->decode_tokens, r[DECODE].rate, gbs, 100 * gbs / ceiling, ceiling);
    if (r[TOGETHER].measured)
        printf(
            "  %lld sessions together     %10.1f tokens/s   prompts of %lld tokens %.1f tokens/s\n",
            (long long)s->sequences, r[TOGETHER].rate, (long long)s->context_tokens,
            r[TOGETHER].prefill_rate);
    if (idle_known(&r[DECODE]))
        printf("  the device idles %.1f us between two steps (%.2f%% of a step)\n",
               r[DECODE].idle_us, 100 * idle_share(s, r, DECODE));
    if (idle_known(&r[TOGETHER]))
        printf("  with %lld sessions it idles %.1f us (%.2f%%)\n", (long long)s->sequences,
               r[TOGETHER].idle_us, 100 * idle_share(s, r, TOGETHER));
}

static void report_text(const struct bench_settings *s, const struct engine_info *info,
                        const struct result r[PARTS], double gbs, double ceiling,
                        const struct extras *x) {
    printf("%s on %s, %.2f GB of %s weights\n", info->model_name, info->backend,
           (double)info->weight_bytes / 1e9, info->weight_format);
    printf(
        "  loaded in %.2f s         %10.2f GB/s     peak memory %.2f GB, %.2f GB of it anonymous\n",
        x->load_s, (double)info->weight_bytes / 1e9 / x->load_s, (double)x->peak_bytes / 1e9,
        (double)x->anonymous_bytes / 1e9);
    print_parts(s, r, gbs, ceiling);
    static const char *const whose[] = {"a prefill", "a decode", "sessions together"};
    for (enum part part = PREFILL; x->compared && part < PARTS; part++)
        if (r[part].measured)
            printf("  deterministic costs %.1f%% of the time of %s\n", 100 * cost_of(r, x, part),
                   whose[part]);
    if (s->first_turn)
        printf("  the first turn after opening, %lld tokens: first token in %.2f ms; the second: "
               "%.2f ms\n",
               (long long)s->first_turn, x->first.first_ms, x->first.second_ms);
    if (s->arrivals)
        printf("  while %lld prompts of %lld tokens arrive, one in %lld ms: %.2f ms between tokens "
               "(p99 %.2f; alone %.2f, %.2f), %.1f tokens/s, a prompt's first token in %.1f ms\n",
               (long long)s->arrivals, (long long)s->context_tokens, (long long)s->arrival_ms,
               x->arrivals.between_p50_ms, x->arrivals.between_p99_ms, x->arrivals.alone_p50_ms,
               x->arrivals.alone_p99_ms, x->arrivals.tokens_per_second,
               x->arrivals.first_token_p50_ms);
    if (s->later_turn)
        printf("  a later turn of %lld tokens on a cache of %lld: first token in %.2f ms, %.2f ms "
               "of it in the engine\n",
               (long long)s->later_turn, (long long)s->context_tokens, x->later.first_token_ms,
               x->later.engine_ms);
    if (s->turns)
        printf("  a session of %lld turns, %lld tokens, memory_len %lld: %.1f us per token at 1 x "
               "memory_len, %.1f from 10 x on (ratio %.3f); a whole turn %.2f ms and %.2f ms "
               "(ratio %.3f)\n",
               (long long)s->turns, (long long)x->session.log_tokens,
               (long long)s->model.memory_len, x->session.us_at_1, x->session.us_at_10,
               x->session.us_at_10 / x->session.us_at_1, x->session.turn_ms_at_1,
               x->session.turn_ms_at_10, x->session.turn_ms_at_10 / x->session.turn_ms_at_1);
}

// A figure of a part: "decode" and "_idle_us".
static void put(struct json_writer *w, const char *prefix, enum part part, const char *figure,
                double value) {
    char key[64];
    snprintf(key, sizeof key, "%s%s%s", prefix, part_names[part], figure);
    json_put_double(w, key, value);
}

// prefix: "plain_" for the results without `deterministic`, which stand beside the others.
static void put_rates(struct json_writer *w, const struct result r[PARTS], const char *prefix) {
    for (enum part part = PREFILL; part < PARTS; part++)
        if (r[part].measured) put(w, prefix, part, "_tokens_per_second", r[part].rate);
    if (r[TOGETHER].measured)
        json_put_double(w,
                        *prefix ? "plain_prompts_tokens_per_second" : "prompts_tokens_per_second",
                        r[TOGETHER].prefill_rate);
}

static void put_idle(struct json_writer *w, const struct bench_settings *s,
                     const struct result r[PARTS]) {
    for (enum part part = DECODE; part < PARTS; part++) {
        if (!idle_known(&r[part])) continue;
        put(w, "", part, "_idle_us", r[part].idle_us);
        put(w, "", part, "_idle_share", idle_share(s, r, part));
    }
}

static void put_extras(struct json_writer *w, const struct bench_settings *s,
                       const struct result r[PARTS], const struct extras *x) {
    json_form(w, "load_seconds:%g,peak_resident_bytes:%ld,anonymous_resident_bytes:%ld", x->load_s,
              x->peak_bytes, x->anonymous_bytes);
    for (enum part part = PREFILL; x->compared && part < PARTS; part++)
        if (r[part].measured) put(w, "deterministic_cost_", part, "", cost_of(r, x, part));
    if (s->later_turn) {
        json_form(w, "later_turn_tokens:%ld,later_turn_first_token_ms:%g,later_turn_engine_ms:%g",
                  s->later_turn, x->later.first_token_ms, x->later.engine_ms);
    }
    if (s->first_turn) {
        json_form(w, "first_turn_ms:%g,second_turn_ms:%g", x->first.first_ms, x->first.second_ms);
    }
    if (s->arrivals) {
        json_put_double(w, "arrivals_between_p50_ms", x->arrivals.between_p50_ms);
        json_put_double(w, "arrivals_between_p99_ms", x->arrivals.between_p99_ms);
        json_put_double(w, "arrivals_alone_p50_ms", x->arrivals.alone_p50_ms);
        json_put_double(w, "arrivals_alone_p99_ms", x->arrivals.alone_p99_ms);
        json_put_double(w, "arrivals_tokens_per_second", x->arrivals.tokens_per_second);
        json_put_double(w, "arrivals_first_token_p50_ms", x->arrivals.first_token_p50_ms);
    }
    if (s->turns) {
        json_form(w,
                  "session_turns:%ld,session_log_tokens:%ld,session_token_us_at_1:%g,"
                  "session_token_us_at_10:%g,session_turn_ms_at_1:%g,session_turn_ms_at_10:%g",
                  s->turns, x->session.log_tokens, x->session.us_at_1, x->session.us_at_10,
                  x->session.turn_ms_at_1, x->session.turn_ms_at_10);
    }
}

static int report_json(const struct bench_settings *s, const struct engine_info *info,
                       const struct result r[PARTS], double bytes, double ceiling,
                       const struct extras *x, struct err *err) {
    struct cli_json j;
    cli_json_begin(&j);
    json_form(
        &j.w,
        "model:%s,backend:%s,weight_dtype:%s,weight_format:%s,weight_bytes:%ld,prompt_tokens:%ld,"
        "context_tokens:%ld,decode_tokens:%ld,sequences:%ld,repeat:%ld",
        info->model_name, info->backend, info->weight_dtype, info->weight_format,
        info->weight_bytes, s->prompt_tokens, s->context_tokens, s->decode_tokens, s->sequences,
        s->repeat);
    put_rates(&j.w, r, "");
    if (x->compared) put_rates(&j.w, x->plain, "plain_");
    json_form(&j.w, "bytes_per_step:%g,ceiling_gb_per_second:%g", bytes, ceiling);
    if (r[DECODE].measured) {
        double gbs = bytes * r[DECODE].rate / 1e9;
        json_form(&j.w, "gb_per_second:%g,ceiling_share:%g", gbs, ceiling > 0 ? gbs / ceiling : 0);
    }
    put_idle(&j.w, s, r);
    put_extras(&j.w, s, r, x);
    return cli_json_end(&j, err);
}

static int report(const struct bench_settings *s, const struct engine_info *info,
                  const struct result r[PARTS], double ceiling, const struct extras *x,
                  struct err *err) {
    // A decoded token reads each of its weights once, and the cache (which grows by half the run on
    // average).
    double kv = (double)info->block_bytes / info->block_tokens *
                ((double)s->context_tokens + (double)s->decode_tokens / 2);
    double bytes = (double)info->weight_bytes_read + kv;
    if (s->json) return report_json(s, info, r, bytes, ceiling, x, err);
    report_text(s, info, r, bytes * r[DECODE].rate / 1e9, ceiling, x);
    return 0;
}

static int measure_all(struct bench *b, unsigned parts, struct result results[PARTS]) {
    for (enum part part = PREFILL; part < PARTS; part++)
        if (parts >> part & 1) TRY(measure(b, part, &results[part]));
    return 0;
}

// The parts in a list of names, as bits; 0: the list is malformed.
static unsigned parts_of(const char *list) {
    unsigned parts = 0;
    while (*list) {
        size_t n = strcspn(list, ",");
        enum part part = PREFILL;
        while (part < PARTS &&
               (strlen(part_names[part]) != n || strncmp(list, part_names[part], n)))
            part++;
        if (part == PARTS) return 0;
        parts |= 1u << part;
        list += n;
        if (*list && !*++list) return 0; // trailing comma
    }
    return parts;
}

// Measures the parts without `deterministic` right after; nothing if the device is always
// deterministic.
static int measure_plain(struct bench *b, struct bench_settings *s, unsigned parts,
                         struct extras *x) {
    s->model.deterministic = false;
    int rc = cli_engine_open(&b->engine, &s->model, (int)s->sequences, b->err);
    x->compared = rc >= 0 && strcmp(b->engine->backend->ops->name, "cuda") == 0;
    if (x->compared) rc = measure_all(b, parts, x->plain);
    engine_close(b->engine);
    b->engine = NULL;
    s->model.deterministic = true;
    return rc;
}

// GB/s: of the device, else of this machine's memory.
static int measure_ceiling(struct bench *b, double *ceiling) {
    struct backend *be = b->engine->backend;
    const struct model_settings *m = &b->settings->model;
    int64_t n_threads = m->threads ? m->threads : cgroup_processors();
    if (!be->ops->read_rate) {
        *ceiling = read_ceiling((int)(n_threads > 64 ? 64 : n_threads));
        return 0;
    }
    TRY(be->ops->read_rate(be, ceiling, b->err)); // no turn runs yet
    *ceiling /= 1e9;
    return 0;
}

static int measure_extras(struct bench *b, struct extras *x) {
    const struct bench_settings *s = b->settings;
    if (s->arrivals) TRY(bench_arrivals(b, &x->arrivals));
    if (s->later_turn) TRY(bench_later_turn(b, &x->later));
    return s->turns ? bench_long_session(b, &x->session) : 0;
}

// --- a model that exists in memory alone ---------------------------------------------------------

struct random_model { // "": none
    char parent[PATH_MAX], dir[PATH_MAX + 64];
};

static int make_random(struct random_model *r, struct bench_settings *s, struct err *err) {
    const char *temporary = getenv("TMPDIR");
    snprintf(r->parent, sizeof r->parent, "%s/parley-bench-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(r->parent)) {
        int rc = err_errno(err, "cannot create %s", r->parent);
        r->parent[0] = '\0';
        return rc;
    }
    snprintf(r->dir, sizeof r->dir, "%s/%.60s", r->parent, s->like); // the last part is its name
    TRY(synth_write(
        &(struct synth_options){.like = s->like, .out_dir = r->dir, .seed = 1, .no_weights = true},
        err));
    free(s->model.model);
    s->model.model = strdup(r->dir);
    return s->model.model ? 0 : err_set(err, E_NOMEM, "no memory for a path");
}

static void remove_random(struct random_model *r) {
    if (!r->parent[0]) return;
    synth_remove(r->dir);
    rmdir(r->dir);
    rmdir(r->parent);
}

static int bench(void *settings, char **words, struct err *err) {
    struct bench_settings *s = settings;
    struct bench b = {.settings = s, .err = err};
    struct result results[PARTS] = {0};
    struct extras extras = {0};
    double ceiling;
    int rc;
    struct random_model random = {0};
    if (!s->model.model[0] && !s->like[0]) return cli_usage(err, CLI_NO_MODEL);
    if (s->model.model[0] && s->like[0]) return cli_usage(err, "give --model or --like, not both");
    if (s->turns && !s->model.memory_len)
        return cli_usage(err, "--turns measures a session beyond its window: it needs "
                              "--memory-len");
    const unsigned parts = parts_of(s->parts);
    if (!parts) return cli_usage(err, "--parts takes a list of prefill, decode and together");
    if (s->like[0]) TRY_GOTO(out, make_random(&random, s, err));
    if (s->model.deterministic && strcmp(s->model.device, "cpu") != 0)
        TRY_GOTO(out, measure_plain(&b, s, parts, &extras));
    const int64_t arriving = s->arrivals ? 16 : 0; // prompts that find a place beside the sessions
    TRY_GOTO(out, cli_engine_open(&b.engine, &s->model, (int)(s->sequences + arriving), err));
    extras.load_s = (double)engine_info(b.engine)->load_us / 1e6;
    extras.peak_bytes = status_bytes("VmHWM");
    extras.anonymous_bytes = status_bytes("RssAnon");
    TRY_GOTO(out, measure_ceiling(&b, &ceiling));
    if (s->first_turn) TRY_GOTO(out, bench_first_turns(&b, &extras.first));
    TRY_GOTO(out, measure_all(&b, parts, results));
    TRY_GOTO(out, measure_extras(&b, &extras));
    rc = report(s, engine_info(b.engine), results, ceiling, &extras, err);
out:
    engine_close(b.engine);
    remove_random(&random);
    return rc;
}

const struct cli_command command_bench = {
    .name = "bench",
    .summary = "measure prefill and decode against the machine's memory bandwidth",
    .usage = "bench (--model MODEL | --like SHAPE) [--json] [OPTIONS]",
    .about = "Measures prefill, decode, and decode of several sessions together; medians of "
             "--repeat runs.",
    CLI_SETTINGS(keys),
    .compute = {CLI_COMPUTE_AUTO},
    .run = bench,
};
