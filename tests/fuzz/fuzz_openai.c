// Bodies of POST /v1/completions and, after a NUL, of POST /v1/embeddings. An accepted body has inputs that
// can be read and numbers within their ranges; a refusal has a status, a code and a sentence.
#include "tests/fuzz/fuzz.h"
#include "ws/openai/completions_request.h"
#include "ws/openai/embeddings_request.h"
#include "ws/openai/openai.h"
#include "ws/service.h"

enum { VOCAB = 100, WIDTH = 8 };

// --- what the readers ask of the server ---

static struct engine_info info = {.n_vocab = VOCAB, .width = WIDTH};
static struct served_model model = {.info = &info};

const struct served_model *service_hold_asked_model(const struct service *s, const char *name,
                                                    struct err *err) {
    if (name && strcmp(name, "m") == 0) return &model;
    if (name && *name)
        err_set(err, E_NOTFOUND, "no such model");
    else
        err_set(err, E_INVAL, "the name is missing");
    return NULL;
}
const struct served_model *placement_keep(const struct served_model *m) {
    FUZZ_CHECK(!m || m == &model);
    return m;
}
void placement_drop(const struct served_model *m) {
    FUZZ_CHECK(!m || m == &model);
}
int engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *err) {
    for (size_t i = 0; i < n; i++) buf_addf(out, "%d ", ids[i]);
    return 0;
}
void http_reply_json(struct http *h, int status, struct buf *body) {
    abort();
}

// --- what holds ---

// false: refused.
static bool check_failure(const struct completion_failure *f) {
    struct buf out;
    struct err err = {0};
    if (f->status == 0) return true;
    FUZZ_CHECK((f->status == 400 || f->status == 404) && *f->code && *f->message);
    buf_init(&out, 8192);
    openai_write_failure(&out, f);
    cJSON *json = json_parse(buf_z(&out), out.len, &json_limits_message, &err);
    FUZZ_CHECK(json);
    cJSON_Delete(json);
    buf_release(&out);
    return false;
}

static void check_ids(const int32_t *ids, size_t n) {
    FUZZ_CHECK(n > 0);
    for (size_t i = 0; i < n; i++) FUZZ_CHECK(ids[i] >= 0 && ids[i] < VOCAB);
}

static void check_completions(const struct completions_request *r) {
    struct err err = {0};
    if (!check_failure(&r->in.failure)) return;
    FUZZ_CHECK(r->in.n > 0 && r->n > 0 && r->in.n * r->n <= COMPLETIONS_CHOICES_MAX);
    FUZZ_CHECK(!(r->echo && r->logprobs) && r->in.sampling.params.max_tokens > 0);
    FUZZ_CHECK(sampling_params_check(&r->in.sampling.params, VOCAB, &err) == 0);
    for (size_t i = 0; i < r->in.n; i++) {
        const struct openai_prompt *p = &r->in.prompts[i];
        if (p->ids) check_ids(p->ids, p->n_ids);
        FUZZ_CHECK(p->ids || p->len > 0);
        FUZZ_CHECK(p->text ? strlen(p->text) == p->len : p->ids && !r->echo);
    }
}

static void check_embeddings(const struct embeddings_request *r) {
    if (!check_failure(&r->in.failure)) return;
    FUZZ_CHECK(r->in.n > 0 && r->in.n <= EMBEDDINGS_INPUTS_MAX);
    FUZZ_CHECK(r->dimensions >= 1 && r->dimensions <= WIDTH);
    FUZZ_CHECK(r->in.sampling.params.context_embedding && r->in.sampling.params.max_tokens == 1);
    for (size_t i = 0; i < r->in.n; i++) {
        if (r->in.prompts[i].ids) check_ids(r->in.prompts[i].ids, r->in.prompts[i].n_ids);
        FUZZ_CHECK(r->in.prompts[i].ids || *r->in.prompts[i].text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *second;
    size_t n_second, n = fuzz_split(data, size, &second, &n_second);
    struct completions_request *c = openai_completions_decode(
        NULL, &(struct http_payload){.body = (const char *)data, .len = n});
    struct embeddings_request *e = openai_embeddings_decode(
        NULL, &(struct http_payload){.body = (const char *)second, .len = n_second});
    FUZZ_CHECK(c && e);
    check_completions(c);
    check_embeddings(e);
    prompts_request_free(c);
    prompts_request_free(e);
    return 0;
}
