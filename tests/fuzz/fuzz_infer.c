// A whole inference request: a byte that chooses the model and a sequence or none, then tensors as in
// fuzz_kserve. An accepted request makes turns that an engine can run: ids of its vocabulary, or rows of a
// finite table of virtual tokens; beams that fit; words within their bounds.
#include "tests/fuzz/tensor_check.h"
#include "ws/kserve/http/tensor_json.h"
#include "ws/kserve/infer_request.h"
#include <math.h>

enum { N_VOCAB = 300, WIDTH = 4, PREFIX_WIDTH = 8, TASK_ROWS = 2 };

// --- an engine without a model ---

static const int32_t eos_ids[] = {2};
static struct prompt_task tasks[1];
static struct engine_info info = {.n_vocab = N_VOCAB,
                                  .width = WIDTH,
                                  .eos_ids = eos_ids,
                                  .n_eos = 1,
                                  .prompt_tasks = tasks,
                                  .n_prompt_tasks = 1,
                                  .prompt_start_id = N_VOCAB};
static const struct served_model served = {.name = "fuzzed", .info = &info};

const struct engine_info *engine_info(const struct engine *e) {
    return &info;
}
int64_t engine_prompt_width(const struct engine *e, enum prompt_kind kind) {
    return kind == PROMPT_PREFIX ? PREFIX_WIDTH : WIDTH;
}
int engine_tokenize(const struct engine *e, const char *text, size_t len, bool special,
                    struct token_list *out, struct err *err) {
    for (size_t i = 0; i < len; i++) TRY(token_list_push(out, (unsigned char)text[i]));
    return 0;
}
int engine_tokenize_start(const struct engine *e, const char *text, size_t len,
                          struct token_list *out, struct err *err) {
    return engine_tokenize(e, text, len, true, out, err);
}
int engine_tokenize_after(const struct engine *e, int32_t last_id, const char *text, size_t len,
                          struct token_list *out, struct err *err) {
    return engine_tokenize(e, text, len, true, out, err);
}
int engine_detokenize(const struct engine *e, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(ids[i] >= 0 && ids[i] < N_VOCAB);
        buf_addc(out, 'a');
    }
    return out->error;
}
bool engine_token_is_text(const struct engine *e, int32_t id) {
    return id >= 0 && id < N_VOCAB;
}
const char *engine_token_bytes(const struct engine *e, int32_t id, size_t *len) {
    *len = 1;
    return id >= 0 && id < N_VOCAB ? "a" : NULL;
}
void placement_drop(const struct served_model *m) {}

static void make_task(void) {
    static const float rows[TASK_ROWS * WIDTH] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct err err;
    struct prompt *p;
    if (tasks[0].prompt) return;
    FUZZ_CHECK(prompt_new(&p, PROMPT_ROWS, TASK_ROWS, WIDTH, rows, &err) == 0);
    tasks[0].prompt = p;
    strcpy(tasks[0].name, "task_0");
}

// --- what holds ---

static void check_row(const struct infer_request *r, const struct infer_row *row) {
    const struct prompt *p = row->prompt;
    size_t n_virtual = 0;
    struct err err = {0};
    for (size_t i = 0; i < row->n_ids; i++) {
        bool is_virtual = prompt_is_virtual(row->ids[i]);
        n_virtual += is_virtual;
        FUZZ_CHECK(is_virtual ? p && row->ids[i] - PROMPT_ID_FIRST < p->n_rows
                              : row->ids[i] >= 0 && row->ids[i] < N_VOCAB);
    }
    FUZZ_CHECK(n_virtual == row->n_virtual);
    FUZZ_CHECK(row->n_ids > 0);
    for (int64_t i = 0; p && i < p->n_rows * p->width; i++) FUZZ_CHECK(isfinite(p->data[i]));
    FUZZ_CHECK(row->sampling.params.beam_width == (int32_t)r->n_beams);
    // What is left is refused by the engine, by name.
    int rc = sampling_params_check(&row->sampling.params, N_VOCAB, &err);
    fuzz_check_err(rc, &err);
}

static void check_request(const struct infer_request *r) {
    FUZZ_CHECK(r->n_rows >= 1 && r->n_rows <= INFER_ROWS_MAX);
    FUZZ_CHECK(r->n_beams == 1 || r->n_beams * r->n_rows <= INFER_BEAMS_MAX);
    for (size_t i = 0; i < r->n_rows; i++) check_row(r, &r->rows[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tensors tensors = {0};
    struct err err = {0};
    if (size == 0) return 0;
    make_task();
    enum infer_model model = (enum infer_model)(data[0] % INFER_MODELS);
    struct infer_request *r = infer_request_new(FORM_TENSORS, model, "fuzzed", &served);
    FUZZ_CHECK(r);
    if (data[0] & 64) strcpy(r->sequence, "42");
    r->start = data[0] & 128;
    const uint8_t *binary;
    size_t n_binary, json_len = fuzz_split(data + 1, size - 1, &binary, &n_binary);
    const char *text = (const char *)data + 1;
    cJSON *json = json_parse(text, json_len, &json_limits_message, &err);
    if (json && tensors_read(&tensors, json, text, (const char *)binary, n_binary, &err) == 0) {
        int rc = infer_request_tensors(r, &tensors, NULL, 0, &err);
        fuzz_check_err(rc, &err);
        if (rc == 0 && !r->answered) check_request(r);
    }
    tensors_release(&tensors);
    cJSON_Delete(json);
    infer_request_free(r);
    return 0;
}
