// Sampling parameters from and to JSON: one table row per key. See sampling_json.h.
#include "sessions/sampling_json.h"
#include "base/json.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum key_type { KEY_FLOAT, KEY_INT, KEY_BOOL, KEY_SEED, KEY_STOP, KEY_BIAS, KEY_BAD, KEY_DEADLINE };

struct key {
    const char *name;
    enum key_type type;
    size_t offset; // into struct turn_sampling
    double min, max;
};

#define AT(field) offsetof(struct turn_sampling, field)
static const struct key keys[] = {
    {"temperature", KEY_FLOAT, AT(params.temperature), 0, 100},
    {"top_k", KEY_INT, AT(params.top_k), 0, INT32_MAX},
    {"top_p", KEY_FLOAT, AT(params.top_p), 0, 1}, // 0 itself is refused below
    {"min_p", KEY_FLOAT, AT(params.min_p), 0, 1},
    {"repetition_penalty", KEY_FLOAT, AT(params.repetition_penalty), 0.01, 100},
    {"presence_penalty", KEY_FLOAT, AT(params.presence_penalty), -100, 100},
    {"frequency_penalty", KEY_FLOAT, AT(params.frequency_penalty), -100, 100},
    {"seed", KEY_SEED, AT(params.seed), 0, 0},
    {"max_tokens", KEY_INT, AT(params.max_tokens), 0, INT32_MAX},
    {"min_tokens", KEY_INT, AT(params.min_tokens), 0, INT32_MAX},
    {"stop", KEY_STOP, AT(params.stop), 0, 0},
    {"logit_bias", KEY_BIAS, AT(params.bias), -100, 100},
    {"bad_words", KEY_BAD, AT(params.bad), 0, 0},
    {"ignore_eos", KEY_BOOL, AT(params.ignore_eos), 0, 0},
    {"logprobs", KEY_BOOL, AT(logprobs), 0, 0},
    {"top_logprobs", KEY_INT, AT(params.top_logprobs), 0, SAMPLING_MAX_TOP_LOGPROBS},
    {"deadline_ms", KEY_DEADLINE, AT(params.deadline_us), 0, 86400000},
};
#define N_KEYS (int)(sizeof keys / sizeof *keys)

static int read_float(const cJSON *o, const struct key *k, float *out, struct err *err) {
    double v = 0;
    int rc = json_get_double(o, k->name, k->min, k->max, &v, err);
    if (rc != JSON_PRESENT) return rc;
    if ((float)v == 0 && (v != 0 || strcmp(k->name, "top_p") == 0))
        return err_set(err, E_INVAL, "'%s' is too small: nothing above 0 is left of it", k->name);
    *out = (float)v;
    return rc;
}

static int read_int(const cJSON *o, const struct key *k, int32_t *out, struct err *err) {
    int64_t v = 0;
    int rc = json_get_int(o, k->name, (int64_t)k->min, (int64_t)k->max, &v, err);
    if (rc == JSON_PRESENT) *out = (int32_t)v;
    return rc;
}

static int add_stop(struct sampling_params *p, const cJSON *item, struct err *err) {
    if (!cJSON_IsString(item))
        return err_set(err, E_INVAL, "stop must be a string or a list of strings");
    size_t len = strlen(item->valuestring);
    if (len == 0 || len >= SAMPLING_STOP_BYTES)
        return err_set(err, E_INVAL, "each string of stop must have 1 to %d bytes",
                       SAMPLING_STOP_BYTES - 1);
    if (p->n_stop == SAMPLING_MAX_STOP)
        return err_set(err, E_INVAL, "stop has more than %d strings", SAMPLING_MAX_STOP);
    memcpy(p->stop[p->n_stop++], item->valuestring, len + 1);
    return 0;
}

static int read_stop(const cJSON *value, struct sampling_params *p, struct err *err) {
    p->n_stop = 0;
    memset(p->stop, 0, sizeof p->stop);
    if (!cJSON_IsArray(value)) {
        TRY(add_stop(p, value, err));
        return JSON_PRESENT;
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, value) TRY(add_stop(p, item, err));
    return JSON_PRESENT;
}

// Digits only: strtol alone would take " +7" and "-0".
static int parse_token_id(const char *s, int32_t n_vocab, int32_t *out) {
    size_t len = strlen(s);
    if (len == 0 || len > 9 || strspn(s, "0123456789") != len) return E_INVAL;
    long v = strtol(s, NULL, 10);
    if (v >= n_vocab) return E_INVAL;
    *out = (int32_t)v;
    return 0;
}

static int read_bias(const cJSON *value, const struct key *k, struct sampling_params *p,
                     int32_t n_vocab, struct err *err) {
    if (!cJSON_IsObject(value))
        return err_set(err, E_INVAL, "logit_bias must be an object of token id: bias");
    p->n_bias = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, value) {
        int32_t id = 0;
        if (p->n_bias == SAMPLING_MAX_BIAS)
            return err_set(err, E_INVAL, "logit_bias has more than %d entries", SAMPLING_MAX_BIAS);
        if (parse_token_id(item->string, n_vocab, &id) < 0)
            return err_set(err, E_INVAL, "a key of logit_bias is not a token id below %d", n_vocab);
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble) || item->valuedouble < k->min ||
            item->valuedouble > k->max)
            return err_set(err, E_INVAL, "logit_bias of token %d must be a number from %g to %g",
                           id, k->min, k->max);
        for (int i = 0; i < p->n_bias; i++)
            if (p->bias[i].id == id)
                return err_set(err, E_INVAL, "logit_bias names token %d twice", id);
        p->bias[p->n_bias++] = (struct logit_bias){id, (float)item->valuedouble};
    }
    return JSON_PRESENT;
}

static int read_bad_word(const cJSON *word, int32_t n_vocab, int32_t *out, struct err *err) {
    int n = 0;
    for (int i = 0; i < SAMPLING_BAD_TOKENS; i++) out[i] = -1;
    const cJSON *id;
    cJSON_ArrayForEach(id, word) {
        double v = cJSON_IsNumber(id) ? id->valuedouble : -1;
        if (n == SAMPLING_BAD_TOKENS || !(v >= 0 && v < n_vocab) || v != floor(v))
            return err_set(err, E_INVAL, "bad_words must be lists of at most %d token ids below %d",
                           SAMPLING_BAD_TOKENS, n_vocab);
        out[n++] = (int32_t)v;
    }
    if (n == 0) return err_set(err, E_INVAL, "bad_words has an empty list");
    return 0;
}

static int read_bad(const cJSON *value, struct sampling_params *p, int32_t n_vocab,
                    struct err *err) {
    if (!cJSON_IsArray(value))
        return err_set(err, E_INVAL, "bad_words must be a list of lists of token ids");
    p->n_bad = 0;
    const cJSON *word;
    cJSON_ArrayForEach(word, value) {
        if (p->n_bad == SAMPLING_MAX_BAD)
            return err_set(err, E_INVAL, "bad_words has more than %d entries", SAMPLING_MAX_BAD);
        if (!cJSON_IsArray(word))
            return err_set(err, E_INVAL, "bad_words must be a list of lists of token ids");
        TRY(read_bad_word(word, n_vocab, p->bad[p->n_bad], err));
        p->n_bad++;
    }
    return JSON_PRESENT;
}

static int read_key(const cJSON *o, const struct key *k, struct turn_sampling *s, int32_t n_vocab,
                    struct err *err) {
    struct sampling_params *p = &s->params;
    void *at = (char *)s + k->offset;
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(o, k->name);
    if (!value || cJSON_IsNull(value)) return JSON_ABSENT;
    int rc;
    int64_t ms = 0;
    switch (k->type) {
    case KEY_FLOAT:
        return read_float(o, k, at, err);
    case KEY_INT:
        return read_int(o, k, at, err);
    case KEY_BOOL:
        return json_get_bool(o, k->name, at, err);
    case KEY_SEED:
        rc = json_get_u64(o, k->name, at, err);
        if (rc == JSON_PRESENT) p->has_seed = true;
        return rc;
    case KEY_STOP:
        return read_stop(value, p, err);
    case KEY_BIAS:
        return read_bias(value, k, p, n_vocab, err);
    case KEY_BAD:
        return read_bad(value, p, n_vocab, err);
    case KEY_DEADLINE:
        rc = json_get_int(o, k->name, (int64_t)k->min, (int64_t)k->max, &ms, err);
        if (rc == JSON_PRESENT) p->deadline_us = ms * 1000;
        return rc;
    }
    return JSON_ABSENT;
}

int sampling_json_apply(struct turn_sampling *s, const char *json, int32_t n_vocab,
                        struct err *err) {
    if (!json) return 0;
    cJSON *o = json_parse(json, strlen(json), &json_limits_message, err);
    if (!o) return E_INVAL;
    struct turn_sampling next = *s;
    int rc = cJSON_IsObject(o) ? 0 : err_set(err, E_INVAL, "sampling must be an object");
    for (int i = 0; rc >= 0 && i < N_KEYS; i++) {
        rc = read_key(o, &keys[i], &next, n_vocab, err);
        if (rc == JSON_PRESENT) next.set |= 1u << i;
    }
    cJSON_Delete(o);
    if (rc < 0) return rc;
    *s = next;
    return 0;
}

bool sampling_json_knows(const char *key) {
    for (int i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].name, key) == 0) return true;
    return false;
}

static void write_lists(struct json_writer *w, const struct key *k,
                        const struct sampling_params *p) {
    if (k->type == KEY_BIAS) {
        json_open(w, k->name, '{');
        for (int i = 0; i < p->n_bias; i++) {
            char id[16];
            snprintf(id, sizeof id, "%d", p->bias[i].id);
            json_put_float(w, id, p->bias[i].bias);
        }
        json_close(w, '}');
        return;
    }
    json_open(w, k->name, '[');
    for (int i = 0; k->type == KEY_STOP && i < p->n_stop; i++) json_put_string(w, NULL, p->stop[i]);
    for (int i = 0; k->type == KEY_BAD && i < p->n_bad; i++) {
        json_open(w, NULL, '[');
        for (int j = 0; j < SAMPLING_BAD_TOKENS && p->bad[i][j] >= 0; j++)
            json_put_int(w, NULL, p->bad[i][j]);
        json_close(w, ']');
    }
    json_close(w, ']');
}

int sampling_json_write(struct buf *out, const struct turn_sampling *s, uint32_t which) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    for (int i = 0; i < N_KEYS; i++) {
        const struct key *k = &keys[i];
        const void *at = (const char *)s + k->offset;
        if (!(which >> i & 1)) continue;
        switch (k->type) {
        case KEY_FLOAT:
            json_put_float(&w, k->name, *(const float *)at);
            break;
        case KEY_INT:
            json_put_int(&w, k->name, *(const int32_t *)at);
            break;
        case KEY_BOOL:
            json_put_bool(&w, k->name, *(const bool *)at);
            break;
        case KEY_SEED:
            if (s->params.has_seed) json_put_u64_string(&w, k->name, s->params.seed);
            break;
        case KEY_DEADLINE:
            json_put_int(&w, k->name, s->params.deadline_us / 1000);
            break;
        case KEY_STOP:
        case KEY_BIAS:
        case KEY_BAD:
            write_lists(&w, k, &s->params);
            break;
        }
    }
    json_close(&w, '}');
    return out->error;
}
