// Tokenizer speed: MB/s of encoding on one core, and of decoding, for a model folder. English text
// is this repository's own documentation, repeated; the other texts are hard for a tokenizer.
//   make bench-tokenizer [ARGS="DIR [FILE]"]
#include "engine/text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_BYTES (8u << 20)
#define REPEAT 5

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const char *const documents[] = {
    "README.md",          "engine/text/README.md", "engine/README.md", "kernels/README.md",
    "sessions/README.md", "ws/PROTOCOL.md",        "ws/README.md",     "tests/bench/README.md"};

static int read_english(struct buf *text, const char *file, struct err *err) {
    struct buf one;
    size_t n = file ? 1 : sizeof documents / sizeof *documents;
    buf_init(text, TEXT_BYTES);
    for (size_t i = 0; i < n; i++) {
        int rc = buf_read_file(&one, file ? file : documents[i], TEXT_BYTES, err);
        if (rc == 0) buf_add(text, buf_z(&one), one.len);
        buf_release(&one);
        if (rc < 0) return rc;
    }
    size_t whole = text->len;
    while (whole && text->len + whole <= TEXT_BYTES && buf_reserve(text, whole) == 0)
        buf_add(text, text->data, whole);
    return 0;
}

static void fill(struct buf *text, const char *unit) {
    buf_init(text, TEXT_BYTES + 8);
    while (text->len < TEXT_BYTES) buf_addz(text, unit);
}

// The best of a few runs: on a shared machine the others measure the neighbours.
static void measure(const struct tokenizer *t, const char *name, const struct buf *text) {
    double encoding = 1e9, decoding = 1e9;
    struct err err = {0};
    size_t n_ids = 0;
    for (int i = 0; i < REPEAT; i++) {
        struct token_list ids;
        struct buf back;
        token_list_init(&ids);
        buf_init(&back, SIZE_MAX);
        double start = seconds();
        if (tokenizer_encode(t, buf_z(text), text->len, NULL, &ids, &err) < 0) {
            printf("%-24s %s\n", name, err.text);
            return;
        }
        double middle = seconds();
        tokenizer_decode(t, ids.ids, ids.len, false, &back, &err);
        double end = seconds();
        if (middle - start < encoding) encoding = middle - start;
        if (end - middle < decoding) decoding = end - middle;
        n_ids = ids.len;
        token_list_release(&ids);
        buf_release(&back);
    }
    double mb = (double)text->len / 1e6;
    printf("%-24s %8.1f MB/s encoding", name, mb / encoding);
    if (n_ids > text->len / 100) // else there is next to nothing to decode
        printf(" %8.1f MB/s decoding %6.2f bytes/token", mb / decoding,
               (double)text->len / (double)n_ids);
    puts("");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name, *unit;
    } pathological[] = {{"one word of 'a'", "a"},
                        {"one word of 'ab'", "ab"},
                        {"spaces", " "},
                        {"CJK", "\u4e2d\u6587\u5b57"},
                        {"marks", "\u0301\u0323"}};
    const char *dir = argc > 1 ? argv[1] : "tests/fixtures/text/gpt2";
    struct tokenizer *t;
    struct err err = {0};
    struct buf text;
    double start = seconds();
    if (tokenizer_open(&t, dir, &err) < 0 ||
        read_english(&text, argc > 2 ? argv[2] : NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%s: %s, opened in %.0f ms\n", dir, tokenizer_description(t), (seconds() - start) * 1e3);
    measure(t, "English", &text);
    buf_release(&text);
    for (size_t i = 0; i < sizeof pathological / sizeof *pathological; i++) {
        fill(&text, pathological[i].unit);
        measure(t, pathological[i].name, &text);
        buf_release(&text);
    }
    tokenizer_close(t);
    return 0;
}
