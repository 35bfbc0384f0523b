// See fake_engine.h.
#include "tests/fakes/fake_engine.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct engine {
    struct engine_info info;
};
static bool device_lost;

void fake_engine_lose_device(void) {
    device_lost = true;
}

void engine_options_init(struct engine_options *o) {
    memset(o, 0, sizeof(*o));
}
void engine_unload(struct engine *e) {}
int engine_open(struct engine **out, const struct engine_options *o, struct err *err) {
    struct engine *e = calloc(1, sizeof(*e));
    if (!e) return err_set(err, E_NOMEM, "no memory");
    if (strcmp(o->model_dir, "missing") == 0) {
        free(e);
        return err_set(err, E_NOTFOUND, "missing: no such model");
    }
    if (o->progress) o->progress(o->progress_ctx, 1, 1);
    e->info = (struct engine_info){.model_name = "fake",
                                   .family = "llama",
                                   .fingerprint = "f-1",
                                   .chat_template = "chatml",
                                   .backend = "none",
                                   .n_vocab = 1000,
                                   .n_params = 1,
                                   .max_session_len = 4096,
                                   .default_memory_len = 1024,
                                   .max_memory_len = 4096,
                                   .max_sequences = o->max_sequences > 0 ? o->max_sequences : 16};
    sampling_params_init(&e->info.suggested);
    *out = e;
    return 0;
}
int engine_n_gpus(void) {
    return 0;
}
bool engine_has_snapshot(const struct engine *e, const char *lasting_id) {
    return false;
}
void engine_stop(struct engine *e) {}
void engine_close(struct engine *e) {
    free(e);
}
int64_t engine_prompt_width(const struct engine *e, enum prompt_kind kind) {
    return 1;
}
const struct engine_info *engine_info(const struct engine *e) {
    return &e->info;
}
void engine_save_at_stop(struct engine *e) {}
bool engine_token_is_near(const struct engine *e) {
    return true; // for ever: a loop that polls as long as this holds would use a whole core
}
void engine_why_lost(const struct engine *e, char *out, size_t cap) {
    snprintf(out, cap, "%s", device_lost ? "the device failed" : "");
}
void engine_load(const struct engine *e, struct engine_load *out) {
    memset(out, 0, sizeof(*out));
    out->heartbeat_us = clock_mono_us(&clock_system);
    out->device_lost = device_lost;
    if (getenv("FAKE_STUCK")) {
        out->heartbeat_us -= 3600000000;
        out->running = 1;
    }
}
bool engine_token_is_text(const struct engine *e, int32_t id) {
    return false;
}
const char *engine_token_bytes(const struct engine *e, int32_t id, size_t *len) {
    *len = 2;
    return "\xc3(";
}
// One id for each message.
int engine_render_turn(const struct engine *e, const struct engine_message *messages, size_t n,
                       int32_t last_id, struct token_list *out, struct err *err) {
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) rc = token_list_push(out, (int32_t)i);
    return rc;
}
// One id for each byte.
int engine_tokenize(const struct engine *e, const char *text, size_t len, bool special,
                    struct token_list *out, struct err *err) {
    int rc = 0;
    for (size_t i = 0; i < len && rc == 0; i++) rc = token_list_push(out, (unsigned char)text[i]);
    return rc;
}
int engine_tokenize_start(const struct engine *e, const char *text, size_t len,
                          struct token_list *out, struct err *err) {
    return engine_tokenize(e, text, len, true, out, err);
}
int engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *err) {
    for (size_t i = 0; i < n; i++) buf_addc(out, (char)ids[i]);
    return out->error;
}
const char *engine_cache_source_name(enum engine_cache_source s) {
    return s == CACHE_NONE ? "none" : "kept";
}
const char *engine_finish_name(enum engine_finish f) {
    return "eos";
}
int engine_gpus(const struct engine_options *o, bool used[ENGINE_MAX_GPUS]) {
    return 0;
}
int engine_devices(const struct engine_options *o, int32_t i, int32_t n,
                   char out[ENGINE_DEVICES_BYTES], int32_t *n_sharing, struct err *err) {
    snprintf(out, ENGINE_DEVICES_BYTES, "%s", o->device);
    return *n_sharing = 1, 0;
}
bool engine_is_launched(void) {
    return false;
}
bool engine_reopens(const struct engine *e) {
    return false;
}
