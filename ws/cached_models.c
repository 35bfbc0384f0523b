// See cached_models.h.
#include "ws/cached_models.h"
#include "engine/engine.h"
#include <stdlib.h>

#define REPLY_MAX_BYTES ((size_t)64 << 20)

struct reply {
    struct buf body;
    struct err err; // of reading the cache
};

void cached_models_name_weights(struct hub_cached_list *l) {
    _Static_assert((int)HUB_WEIGHTS >= ENGINE_WEIGHTS_NAME, "a name fits");
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].kind == CACHED_SAFETENSORS)
            engine_weights_name(l->items[i].weights, l->items[i].path);
}

static int put_models(struct buf *out, struct err *err) {
    struct hub_place place;
    struct hub_cached_list l = {0};
    struct json_writer w;
    int rc = hub_place_read(&place, err);
    if (rc == 0) rc = hub_cached_read(&l, &place, err);
    json_writer_init(&w, out);
    if (rc == 0) cached_models_name_weights(&l);
    if (rc == 0) hub_cached_put(&w, &place, &l);
    hub_cached_release(&l);
    buf_addc(out, '\n');
    if (rc == 0 && out->error)
        rc = err_set(err, out->error,
                     out->error == E_NOMEM ? "no memory for the list of models"
                                           : "the list of models is too long");
    return rc;
}

void *cached_models_decode(void *user, const struct http_payload *p) {
    struct reply *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    buf_init(&r->body, REPLY_MAX_BYTES);
    put_models(&r->body, &r->err);
    return r;
}

bool cached_models_is_costly(const char *body, size_t len) {
    return true; // a file system may be slow
}

void cached_models_release(void *decoded) {
    struct reply *r = decoded;
    if (!r) return;
    buf_release(&r->body);
    free(r);
}

void cached_models_handle(void *user, struct http *h) {
    struct reply *r = http_decoded(h);
    if (r->err.code == 0)
        http_reply_json(h, 200, &r->body);
    else
        http_reply_error(h, 500, err_name(r->err.code), r->err.text, 0);
}
