// Microseconds for one draw, by vocabulary and parameters. Logits are of two kinds: "flat" (normal,
// spread 1: many thousand tokens share the probability) and "peaked" (spread 4, as a trained
// model's). Each line is the median over many draws, which a busy machine changes little.
#include "base/philox.h"
#include "engine/run/sampler.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_ROWS = 16, N_DRAWS = 300, MAX_VOCAB = 151936 };

struct setting {
    const char *name;
    struct sampling_params params;
};

// Box-Muller.
static void fill_row(float *x, int32_t n, float spread, uint64_t row) {
    for (int32_t i = 0; i < n; i++) {
        double u = 1 - (double)philox_uniform(row, (uint64_t)i, 0);
        double v = (double)philox_uniform(row, (uint64_t)i, 1);
        x[i] = spread * (float)(sqrt(-2 * log(u)) * cos(2 * M_PI * v));
    }
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(const struct setting *set, const float *rows, int32_t n_vocab,
                   double *median_us) {
    static double us[N_DRAWS];
    struct err err;
    struct sampler s = {0};
    struct sampler_work w = {0};
    int32_t history[1000];
    int rc;
    for (int32_t i = 0; i < 1000; i++) history[i] = i * 31 % n_vocab;
    TRY_GOTO(done, sampler_init(&s, n_vocab, &err));
    TRY_GOTO(done, sampler_work_init(&w, n_vocab, &err));
    TRY_GOTO(done, sampler_begin(&s, &set->params, 0, NULL, 0, history, 1000, &err));
    for (int i = 0; i < N_DRAWS; i++) {
        struct sampled out;
        double start = now_us();
        TRY_GOTO(done, sampler_draw(&s, &w, rows + (size_t)(i % N_ROWS) * (size_t)n_vocab, i, &out,
                                    &err));
        us[i] = now_us() - start;
    }
    qsort(us, N_DRAWS, sizeof *us, by_value);
    *median_us = us[N_DRAWS / 2];
done:
    if (rc < 0) fprintf(stderr, "%s\n", err.text);
    sampler_work_release(&w);
    sampler_release(&s);
    return rc;
}

static void settings_init(struct setting *set) {
    static const char *const names[] = {"greedy",
                                        "temperature 1",
                                        "temperature 0.7",
                                        "top-k 40",
                                        "top-p 0.9",
                                        "min-p 0.05",
                                        "all, penalties, 20 logprobs"};
    for (int i = 0; i < 7; i++) {
        set[i].name = names[i];
        sampling_params_init(&set[i].params);
    }
    set[0].params.temperature = 0;
    set[2].params.temperature = 0.7f;
    set[3].params.top_k = 40;
    set[4].params.top_p = 0.9f;
    set[5].params.min_p = 0.05f;
    struct sampling_params *all = &set[6].params;
    all->temperature = 0.7f;
    all->top_k = 1000;
    all->top_p = 0.9f;
    all->min_p = 0.01f;
    all->repetition_penalty = 1.1f;
    all->frequency_penalty = 0.1f;
    all->top_logprobs = SAMPLING_MAX_TOP_LOGPROBS;
}

int main(void) {
    static const int32_t sizes[] = {4096, 32000, 128256, MAX_VOCAB};
    static struct setting settings[7];
    settings_init(settings);
    float *rows = malloc((size_t)N_ROWS * MAX_VOCAB * sizeof *rows);
    if (!rows) return 1;
    printf("%-30s %8s %10s %10s\n", "us per draw (median)", "vocab", "flat", "peaked");
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        double us[2][7];
        for (int kind = 0; kind < 2; kind++) {
            for (uint64_t r = 0; r < N_ROWS; r++)
                fill_row(rows + r * (size_t)sizes[n], sizes[n], kind ? 4 : 1, r);
            for (int i = 0; i < 7; i++)
                if (measure(&settings[i], rows, sizes[n], &us[kind][i]) < 0) return 1;
        }
        for (int i = 0; i < 7; i++)
            printf("%-30s %8d %10.1f %10.1f\n", settings[i].name, sizes[n], us[0][i], us[1][i]);
    }
    free(rows);
    return 0;
}
