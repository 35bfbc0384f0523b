// A vocabulary of 128k tokens for the benchmarks of grammars: a model folder's, or synthetic tokens of such lengths and
// kinds. And the time, by a clock that other programs do not move.
#pragma once
#include "base/philox.h"
#include "engine/text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_SYNTHETIC = 128256 };

struct token {
    uint8_t len;
    char text[31];
};

static struct token *synthetic;
static struct tokenizer *real;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); // other programs do not count
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static uint32_t draw(uint64_t stream, uint64_t i, uint32_t below) {
    return (uint32_t)(philox_uniform(stream, i, 0) * below);
}

// 256 bytes; pieces of words of 2 to 12 letters, two thirds behind a space; every 25th with punctuation, as
// quotes, braces and line ends are in code; every 12th of two to four characters of another script.
static void make_synthetic(void) {
    static const char *const marks[] = {"\":", "\",", " {",  "}\n", "\n\n",
                                        " \"", "',",  "();", "\\n", "}]"};
    synthetic = calloc(N_SYNTHETIC, sizeof *synthetic);
    for (int i = 0; i < N_SYNTHETIC; i++) {
        struct token *t = &synthetic[i];
        uint64_t k = 0, id = (uint64_t)i;
        if (i < 256) {
            t->text[0] = (char)i;
            t->len = 1;
            continue;
        }
        if (draw(id, k++, 3)) t->text[t->len++] = ' ';
        if (i % 12 == 0) {
            for (uint32_t n = 2 + draw(id, k++, 3); n > 0; n--) {
                t->text[t->len++] = (char)(0xe4 + draw(id, k++, 4));
                t->text[t->len++] = (char)(0x80 + draw(id, k++, 64));
                t->text[t->len++] = (char)(0x80 + draw(id, k++, 64));
            }
            continue;
        }
        for (uint32_t n = 2 + draw(id, k++, 11); n > 0; n--)
            t->text[t->len++] = (char)("etaoinshrdlucmfwypvbgkjqxzETAS01"[draw(id, k++, 32)]);
        if (i % 25 == 0) {
            const char *mark = marks[draw(id, k++, 10)];
            memcpy(t->text + t->len, mark, strlen(mark));
            t->len = (uint8_t)(t->len + strlen(mark));
        }
    }
}

static const char *bytes_of(void *ctx, int32_t id, size_t *len) {
    if (real) return tokenizer_is_special(real, id) ? NULL : tokenizer_bytes(real, id, len);
    *len = synthetic[id].len;
    return synthetic[id].text;
}

// dir: a model folder, or NULL. Returns the number of tokens; exits where the folder has no tokenizer.
static int32_t open_vocabulary(const char *dir) {
    struct err err = {0};
    if (!dir) {
        make_synthetic();
        return N_SYNTHETIC;
    }
    if (tokenizer_open(&real, dir, &err) == 0) return tokenizer_n_tokens(real);
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}
