// Sampling parameters in layers: a turn's values go over its session's, those over the server's.
// See service.h.
#include "base/err.h"
#include "base/json_raw.h"
#include "sessions/service.h"
#include <stdlib.h>
#include <string.h>

int layers_turn(struct session *s, const char *sampling, struct turn_sampling *out,
                struct err *err) {
    struct sessions *ss = s->service;
    *out = (struct turn_sampling){.params = ss->o.sampling};
    TRY(sampling_json_apply(out, s->rec.sampling, ss->info->n_vocab, err));
    return sampling_json_apply(out, sampling, ss->info->n_vocab, err);
}

static char *write_sampling(const struct turn_sampling *t, uint32_t keys, struct err *err) {
    struct buf out;
    buf_init(&out, 65536);
    sampling_json_write(&out, t, keys);
    char *text = buf_take(&out, NULL);
    if (!text) err_set(err, E_NOMEM, "the server is out of memory");
    buf_release(&out);
    return text;
}

char *layers_normal(struct sessions *ss, const char *sampling, struct err *err) {
    struct turn_sampling t = {.params = ss->o.sampling};
    if (sampling_json_apply(&t, sampling, ss->info->n_vocab, err) < 0) return NULL;
    return write_sampling(&t, t.set, err);
}

char *layers_again(struct session *s, const char *request, const char *sampling, struct err *err) {
    struct sessions *ss = s->service;
    struct turn_sampling t = {.params = ss->o.sampling};
    size_t len;
    const char *asked = json_raw_value(request ? request : "{}", "sampling", &len);
    char *copy = asked && *asked == '{' ? strndup(asked, len) : strdup("{}");
    int rc = copy ? sampling_json_apply(&t, copy, ss->info->n_vocab, err)
                  : err_set(err, E_NOMEM, "the server is out of memory");
    free(copy);
    t.params.has_seed = false; // another answer is what is wanted
    if (rc == 0) rc = sampling_json_apply(&t, sampling, ss->info->n_vocab, err);
    return rc < 0 ? NULL : write_sampling(&t, t.set, err);
}
