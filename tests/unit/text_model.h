// Small tokenizers for tests: a temporary model folder around a tokenizer.json that knows the 256
// bytes.
#pragma once
#include "base/buf.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Its bytes have the ids 0 to 255. NULL for any part: the plainest that works.
struct text_model {
    const char *more_vocab; // ",\"ab\":256"
    const char *merges;     // "[\"a b\"]"
    const char *added;      // "{...},{...}"
    const char *normalizer, *pre_tokenizer, *decoder;
    const char *model_keys; // ",\"ignore_merges\":true"
    const char *root_keys;  // ",\"padding\":null"
    const char *config;     // tokenizer_config.json
};

static inline void text_model_json(const struct text_model *m, struct buf *out) {
#define OR(value, other) ((m->value) ? (m->value) : (other))
    buf_init(out, 1 << 28);
    buf_addf(out, "{\"version\":\"1.0\"%s,\"added_tokens\":[%s],", OR(root_keys, ""),
             OR(added, ""));
    buf_addz(out, "\"normalizer\":");
    buf_addz(out, OR(normalizer, "null"));
    buf_addz(out, ",\"pre_tokenizer\":");
    buf_addz(out, OR(pre_tokenizer,
                     "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"));
    buf_addf(out, ",\"decoder\":%s,\"model\":{\"type\":\"BPE\"%s,\"vocab\":{",
             OR(decoder, "{\"type\":\"ByteLevel\"}"), OR(model_keys, ""));
    for (int byte = 0; byte < 256; byte++) {
        char c[2];
        size_t n = byte_alphabet_encode((unsigned char)byte, c);
        buf_addf(out, "%s\"%s%.*s\":%d", byte ? "," : "", *c == '"' || *c == '\\' ? "\\" : "",
                 (int)n, c, byte);
    }
    buf_addz(out, OR(more_vocab, ""));
    buf_addz(out, "},\"merges\":");
    buf_addz(out, OR(merges, "[]"));
    buf_addz(out, "}}");
#undef OR
}

static inline void text_model_write(const char *dir, const char *name, const char *text,
                                    size_t len) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(text, 1, len, f) != len || fclose(f) != 0) abort();
}

static inline void text_model_remove(const char *dir) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja", "tool_use.jinja"};
    char path[256];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

// Opens a tokenizer from the text of a tokenizer.json.
static inline int text_model_open_json(struct tokenizer **t, const char *json, size_t len,
                                       const char *config, struct err *err) {
    char dir[] = "/tmp/parley-text-XXXXXX";
    if (!mkdtemp(dir)) abort();
    text_model_write(dir, "tokenizer.json", json, len);
    if (config) text_model_write(dir, "tokenizer_config.json", config, strlen(config));
    int rc = tokenizer_open(t, dir, err);
    text_model_remove(dir);
    return rc;
}

static inline int text_model_open(struct tokenizer **t, const struct text_model *m,
                                  struct err *err) {
    struct buf json;
    text_model_json(m, &json);
    int rc = text_model_open_json(t, json.data, json.len, m->config, err);
    buf_release(&json);
    return rc;
}

// A tokenizer in which all end-of-turn tokens exist.
static inline struct tokenizer *text_model_open_ends(void) {
    static const char *const ends[] = {"<s>",
                                       "</s>",
                                       "<|im_end|>",
                                       "<|eot_id|>",
                                       "<end_of_turn>",
                                       "<|end|>",
                                       "<|user|>",
                                       "<|end_of_text|>",
                                       "<|end_of_turn|>",
                                       "<｜end▁of▁sentence｜>",
                                       "<|END_OF_TURN_TOKEN|>"};
    struct buf added;
    struct err err;
    struct tokenizer *t;
    buf_init(&added, 1 << 16);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        buf_addf(&added, "%s{\"id\":%zu,\"content\":\"%s\",\"special\":true}", i ? "," : "",
                 256 + i, ends[i]);
    struct text_model m = {.added = added.data,
                           .config = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}"};
    if (text_model_open(&t, &m, &err) < 0) abort();
    buf_release(&added);
    return t;
}
