// Health, metadata, configuration and statistics, the start of inferences, and answers to Triton's other
// requests. See routes.h.
#include "ws/kserve/http/routes.h"
#include "base/json_form.h"
#include "ws/health.h"
#include "ws/kserve/http/exchange.h"
#include "ws/kserve/http/request.h"
#include "ws/kserve/infer_inputs.h"
#include "ws/kserve/infer_outputs.h"
#include "ws/kserve/kserve.h"
#include "ws/service.h"
#include "ws/version.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_MAX_BYTES (1 << 20)

// What a path under /v2/models/ asks for.
enum verb {
    VERB_METADATA,
    VERB_READY,
    VERB_CONFIG,
    VERB_STATS,
    VERB_TRACE,
    VERB_INFER,
    VERB_GENERATE,
    VERB_GENERATE_STREAM,
    VERB_NONE
};
struct target {
    enum verb verb; // VERB_NONE: there is no such address
    enum infer_model model;
    char name[INFER_NAME_MAX + 1]; // the model's, as the client calls it
    bool known;                    // a model of this name is served
};

static void begin(struct json_writer *w, struct buf *out) {
    buf_init(out, METADATA_MAX_BYTES);
    json_writer_init(w, out);
    json_open(w, NULL, '{');
}

static void finish(struct http *h, struct json_writer *w) {
    json_close(w, '}');
    http_reply_json(h, 200, w->buf);
}

// --- models ---

static const char *const verbs[] = {[VERB_READY] = "/ready",
                                    [VERB_CONFIG] = "/config",
                                    [VERB_STATS] = "/stats",
                                    [VERB_TRACE] = "/trace/setting",
                                    [VERB_INFER] = "/infer",
                                    [VERB_GENERATE] = "/generate",
                                    [VERB_GENERATE_STREAM] = "/generate_stream"};

static struct target target_of(const struct service *s, const char *path) {
    struct target t = {.verb = VERB_NONE};
    const char *name = path + strlen("/v2/models/");
    size_t len = strcspn(name, "/");
    const char *rest = name + len;
    char version[8] = "";
    if (len == 0 || len >= sizeof t.name) return t;
    memcpy(t.name, name, len);
    if (strncmp(rest, "/versions/", 10) == 0) {
        const char *v = rest + 10;
        rest = v + strcspn(v, "/");
        snprintf(version, sizeof version, "%.*s", rest == v ? 1 : (int)(rest - v), v);
    }
    t.known = kserve_find_model(s, t.name, version, &t.model);
    if (!*rest) t.verb = VERB_METADATA;
    for (int v = VERB_READY; v < VERB_NONE; v++)
        if (strcmp(rest, verbs[v]) == 0) t.verb = (enum verb)v;
    return t;
}

static void put_shape(struct json_writer *w, const char *key, const struct infer_field *f,
                      bool with_batch) {
    json_open(w, key, '[');
    if (with_batch) json_put_int(w, NULL, -1);
    for (int i = 0; i < f->n_dims; i++) json_put_int(w, NULL, f->shape[i]);
    json_close(w, ']');
}

static void put_field(struct json_writer *w, const struct infer_field *f, bool config) {
    char type[32];
    const char *name = tensor_type_name(f->type);
    json_form(w, "{name:%s", f->name);
    snprintf(type, sizeof type, "TYPE_%s", f->type == TENSOR_BYTES ? "STRING" : name);
    json_put_string(w, config ? "data_type" : "datatype", config ? type : name);
    put_shape(w, config ? "dims" : "shape", f, !config);
    if (config && f->optional) json_put_bool(w, "optional", true);
    json_close(w, '}');
}

static void put_fields(struct json_writer *w, enum infer_model model, bool config) {
    const struct infer_field *f;
    json_open(w, config ? "input" : "inputs", '[');
    for (size_t i = 0; (f = infer_input(i)); i++)
        if (f->models & 1u << model) put_field(w, f, config);
    json_form(w, "],%s:[", config ? "output" : "outputs");
    for (int i = 0; i < INFER_OUTPUTS; i++)
        if (infer_outputs[i].field.models & 1u << model)
            put_field(w, &infer_outputs[i].field, config);
    json_close(w, ']');
}

static void put_version(struct json_writer *w) {
    json_form(w, "versions:['1']");
}

static void put_metadata(struct json_writer *w, const struct target *t) {
    json_put_string(w, "name", t->name);
    put_version(w);
    json_put_string(w, "platform", "parley");
    put_fields(w, t->model, false);
}

static void put_config(struct json_writer *w, const struct service *s, const struct target *t) {
    json_form(w, "name:%s,platform:'',backend:'parley',max_batch_size:%d", t->name, INFER_ROWS_MAX);
    put_fields(w, t->model, true);
    json_form(w,
              "sequence_batching:{max_sequence_idle_microseconds:%ld},"
              "model_transaction_policy:{decoupled:%hhd}",
              s->config->max_sequence_idle_microseconds, s->config->decoupled);
}

static void put_duration(struct json_writer *w, const char *key, int64_t n, int64_t us) {
    json_form(w, "%s:{count:%ld,ns:%ld}", key, n, us * 1000);
}

static void put_stats(struct json_writer *w, const struct service *s, const char *name,
                      enum infer_model model) {
    const struct kserve_stats *k = &s->kserve->stats[model];
    json_form(w,
              "{name:%s,version:'1',last_inference:%ld,inference_count:%ld,execution_count:%ld,"
              "inference_stats:{",
              name, k->last_ms, k->n_done, k->n_done);
    put_duration(w, "success", k->n_done, k->done_us);
    put_duration(w, "fail", k->n_failed, 0);
    put_duration(w, "queue", k->n_done, k->queue_us);
    put_duration(w, "compute_input", k->n_done, 0);
    put_duration(w, "compute_infer", k->n_done, k->infer_us);
    put_duration(w, "compute_output", k->n_done, 0);
    json_form(w, "},batch_stats:[]}");
}

// name NULL: of all models.
static void put_model_stats(struct json_writer *w, const struct service *s, const char *name,
                            enum infer_model model) {
    const char *each;
    json_open(w, "model_stats", '[');
    if (name) put_stats(w, s, name, model);
    for (size_t i = 0; !name && (each = kserve_model_name(s, i)); i++)
        if (kserve_find_model(s, each, NULL, &model)) put_stats(w, s, each, model);
    json_close(w, ']');
}

// --- routes ---

void kserve_live(void *user, struct http *h) {
    http_reply(h, health_is_live(user) ? 200 : 400, "text/plain", "", "", 0, false);
}

void kserve_ready(void *user, struct http *h) {
    http_reply(h, health_is_ready(user) ? 200 : 400, "text/plain", "", "", 0, false);
}

void kserve_server(void *user, struct http *h) {
    struct buf out;
    struct json_writer w;
    begin(&w, &out);
    json_form(&w, "name:'parley',version:%s,extensions:[", PARLEY_VERSION);
    for (size_t i = 0; kserve_extensions[i]; i++) json_put_string(&w, NULL, kserve_extensions[i]);
    json_close(&w, ']');
    finish(h, &w);
}

static void refuse_absent(struct http *h, enum kserve_lacking what) {
    kserve_reply_error(h, kserve_absences[what].code, kserve_absences[what].message);
}

static bool refuse_target(struct http *h, const struct target *t) {
    char text[160];
    if (t->verb == VERB_NONE) {
        kserve_reply_error(h, KSERVE_NOT_FOUND, "there is no such address");
    } else if (!t->known) {
        snprintf(text, sizeof text, "Request for unknown model: '%s' is not found", t->name);
        kserve_reply_error(h, KSERVE_NOT_FOUND, text);
    } else if (t->verb == VERB_TRACE) {
        refuse_absent(h, LACKS_TRACING);
    }
    return t->verb == VERB_NONE || !t->known || t->verb == VERB_TRACE;
}

void kserve_model(void *user, struct http *h) {
    struct service *s = user;
    struct target t = target_of(s, http_path(h));
    struct buf out;
    struct json_writer w;
    if (t.verb == VERB_READY) {
        http_reply(h, t.known && health_is_ready(s) ? 200 : 400, "text/plain", "", "", 0, false);
        return;
    }
    bool all = strcmp(http_path(h), "/v2/models/stats") == 0;
    if (!all && refuse_target(h, &t)) return;
    if (t.verb >= VERB_INFER) {
        kserve_reply_status(h, 405, "this address takes POST");
        return;
    }
    begin(&w, &out);
    if (all || t.verb == VERB_STATS) put_model_stats(&w, s, all ? NULL : t.name, t.model);
    if (!all && t.verb == VERB_METADATA) put_metadata(&w, &t);
    if (t.verb == VERB_CONFIG) put_config(&w, s, &t);
    finish(h, &w);
}

// --- Triton's other addresses ---

static void reply_list(struct http *h, const struct service *models) {
    struct buf out;
    struct json_writer w;
    const char *name;
    buf_init(&out, METADATA_MAX_BYTES);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '[');
    for (size_t i = 0; models && (name = kserve_model_name(models, i)); i++) {
        json_form(&w, "{name:%s,version:'1',state:'READY'}", name);
    }
    json_close(&w, ']');
    http_reply_buf(h, 200, "application/json", "cache-control: no-store\r\n", &out);
    buf_release(&out);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// No region is ever registered, so the list is empty and there is nothing to unregister. Clients unregister
// all regions before and after their work.
static void answer_regions(struct http *h, const char *path) {
    if (ends_with(path, "/register"))
        refuse_absent(h, LACKS_REGIONS);
    else if (ends_with(path, "/unregister"))
        http_reply(h, 200, "application/json", "", "", 0, false);
    else if (strcmp(path, "/status") == 0)
        reply_list(h, NULL);
    else
        kserve_reply_error(h, KSERVE_NOT_FOUND, "Unable to find shared memory region");
}

void kserve_other(void *user, struct http *h) {
    const char *path = http_path(h) + strlen("/v2/");
    bool posted = http_verb(h) == HTTP_POST, index = strcmp(path, "repository/index") == 0,
         loads = strncmp(path, "repository/models/", 18) == 0 &&
                 (ends_with(path, "/load") || ends_with(path, "/unload"));
    size_t regions = strncmp(path, "systemsharedmemory/", 19) == 0 ? 19
                     : strncmp(path, "cudasharedmemory/", 17) == 0 ? 17
                                                                   : 0;
    if (strncmp(path, "health/", 7) == 0 || (!posted && (index || loads)) ||
        (regions && posted != ends_with(path, "register")))
        kserve_reply_status(h, 405, "this method is not served here");
    else if (index)
        reply_list(h, user);
    else if (loads)
        refuse_absent(h, LACKS_LOADING);
    else if (strcmp(path, "trace/setting") == 0)
        refuse_absent(h, LACKS_TRACING);
    else if (strcmp(path, "logging") == 0)
        refuse_absent(h, LACKS_LOGGING);
    else if (regions)
        answer_regions(h, path + regions - 1);
    else
        kserve_reply_error(h, KSERVE_NOT_FOUND, "there is no such address");
}

// --- inferences ---

// Tensors may be long, texts are messages.
size_t kserve_longest_body(void *user, const char *path) {
    const struct service *s = user;
    return ends_with(path, verbs[VERB_INFER]) ? kserve_infer_bytes(s)
                                              : (size_t)s->config->max_message_bytes;
}

struct decoded {
    struct target target;
    struct infer_request *request; // NULL: no inference is asked for
    struct buf body;               // request->answered: the reply
    size_t json_len;
    bool fits; // there was memory for it
};

void *kserve_decode(void *user, const struct http_payload *p) {
    const struct service *s = user;
    struct decoded *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->target = target_of(s, p->path);
    if (!d->target.known || d->target.verb < VERB_INFER || d->target.verb == VERB_NONE) return d;
    const struct served_model *served = service_hold_model(s, kserve_served_name(d->target.name));
    if (!served) {
        d->target.known = false;
        return d;
    }
    struct kserve_source source = {.form = d->target.verb == VERB_INFER      ? FORM_TENSORS
                                           : d->target.verb == VERB_GENERATE ? FORM_TEXT
                                                                             : FORM_STREAM,
                                   .model = d->target.model,
                                   .name = d->target.name,
                                   .served = served,
                                   .body = p->body,
                                   .header_len = p->json_length,
                                   .len = p->len};
    d->request = kserve_request_read(&source);
    if (d->request && d->request->answered)
        d->fits = kserve_encode_outputs(d->request, &d->request->answer, &d->body, &d->json_len);
    if (d->request) return d;
    placement_drop(served);
    free(d);
    return NULL;
}

void kserve_release(void *decoded) {
    struct decoded *d = decoded;
    infer_request_free(d->request);
    buf_release(&d->body);
    free(d);
}

void kserve_infer(void *user, struct http *h) {
    struct service *s = user;
    struct decoded *d = http_decoded(h);
    struct infer_request *r = d->request;
    if (refuse_target(h, &d->target)) return;
    if (!r) {
        kserve_reply_status(h, 405, "this address takes GET");
    } else if (r->code) {
        kserve_reply_error(h, r->code, r->err.text);
    } else if (r->answered && !d->fits) {
        kserve_reply_error(h, KSERVE_UNAVAILABLE, "no memory for the answer");
    } else if (r->answered) {
        s->kserve->stats[r->model].n_done++;
        kserve_reply_body(h, &d->body, d->json_len);
    } else {
        d->request = NULL;
        exchange_start(s, h, r);
    }
}
