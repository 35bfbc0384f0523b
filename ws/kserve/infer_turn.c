// Events of turns. See infer_turn.h.
#include "ws/kserve/infer_turn.h"
#include "base/array.h"
#include "base/json.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

struct turn_input infer_turn_input(const struct infer_row *row) {
    if (!row->text)
        return (struct turn_input){.kind = INPUT_IDS, .ids = row->ids, .n_ids = row->n_ids};
    return (struct turn_input){
        .kind = INPUT_TEXT, .text = row->text, .text_len = strlen(row->text)};
}

// --- log-probabilities, ids, context ---

static int take_logprobs(struct infer_turn *t, const struct session_event *ev) {
    size_t n = ev->logprobs ? ev->n_ids : 0;
    if (ARRAY_RESERVE(t->logprobs, t->cap_logprobs, t->n_logprobs + n) < 0) return E_NOMEM;
    if (n) memcpy(t->logprobs + t->n_logprobs, ev->logprobs, n * sizeof *t->logprobs);
    t->n_logprobs += n;
    return 0;
}

int infer_turn_log(const struct infer *i, struct infer_turn *t, size_t n_ids) {
    size_t n = 0;
    const int32_t *log = session_log(t->batch.session, &n);
    if (n < n_ids || n_ids < t->n_ids) return E_BUSY;
    if (ARRAY_RESERVE(t->ids, t->cap_ids, n_ids + 1) < 0) return E_NOMEM;
    if (n_ids > t->n_ids)
        memcpy(t->ids + t->n_ids, log + t->n_ids, (n_ids - t->n_ids) * sizeof *t->ids);
    t->n_ids = n_ids;
    return 0;
}

int infer_turn_delta(const struct infer *i, struct infer_turn *t, const struct session_event *ev) {
    size_t before = (size_t)t->n_before + i->request->rows[t - i->turns].n_ids;
    TRY(take_logprobs(t, ev));
    if (i->request->form != FORM_PIECES) return 0;
    return infer_turn_log(i, t, (t->n_ids ? t->n_ids : before) + ev->n_ids);
}

int infer_turn_context(const struct infer *i, struct infer_turn *t, const char *json) {
    const cJSON *item;
    int32_t n = 0, width = i->request->served->info->width;
    if (!json) return 0;
    cJSON *context = cJSON_Parse(json);
    const cJSON *logprob = cJSON_GetObjectItemCaseSensitive(context, "logprob");
    const cJSON *embedding = cJSON_GetObjectItemCaseSensitive(context, "embedding");
    t->context_logprob = logprob ? logprob->valuedouble : 0;
    t->embedding = embedding ? calloc((size_t)width, sizeof *t->embedding) : NULL;
    int rc = !context || (embedding && !t->embedding) ? E_NOMEM : 0;
    cJSON_ArrayForEach(item, embedding) if (rc == 0 && n < width) t->embedding[n++] =
        (float)item->valuedouble;
    cJSON_Delete(context);
    return rc;
}

// --- beams ---

static int copy_answer(struct infer_answer *a, const struct turn_answer *from) {
    size_t n = from->n;
    a->ids = malloc((n + 1) * sizeof *a->ids);
    a->logprobs = malloc((n + 1) * sizeof *a->logprobs);
    if (!a->ids || !a->logprobs) return E_NOMEM;
    memcpy(a->ids, from->ids, n * sizeof *a->ids);
    memcpy(a->logprobs, from->logprobs, n * sizeof *a->logprobs);
    a->n = n;
    return 0;
}

// {"index":0,"of":4,"score":-2.25}: the search may have found fewer than it is wide.
static int32_t n_answers(const struct turn_view *v) {
    cJSON *branch = v->branch ? cJSON_Parse(v->branch) : NULL;
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(branch, "of");
    int32_t n = of ? (int32_t)of->valuedouble : 1;
    cJSON_Delete(branch);
    return n;
}

int infer_turn_beams(const struct infer *i, struct infer_turn *t, const struct turn_view *v) {
    size_t n = i->request->n_beams - 1, n_found = (size_t)n_answers(v) - 1;
    if (n == 0) return 0;
    t->beams = calloc(n, sizeof *t->beams);
    if (!t->beams) return E_NOMEM;
    for (t->n_beams = 0; t->n_beams < n && t->n_beams < n_found;) {
        struct turn_answer answer;
        int32_t branch = (int32_t)t->n_beams + 1;
        if (session_answer_of(t->batch.session, v->turn, branch, &answer) < 0) return E_NOMEM;
        TRY(copy_answer(&t->beams[t->n_beams++], &answer));
    }
    return 0;
}

void infer_turn_release(struct infer_turn *t) {
    for (size_t n = 0; n < t->n_beams; n++) {
        free(t->beams[n].ids);
        free(t->beams[n].logprobs);
    }
    free(t->beams);
    free(t->ids);
    free(t->logprobs);
    free(t->embedding);
}

// --- steps ---

static size_t n_drawn(const struct infer *i, size_t row) {
    const struct infer_turn *t = &i->turns[row];
    size_t before = (size_t)t->n_before + i->request->rows[row].n_ids;
    return t->n_ids > before ? t->n_ids - before : 0;
}

// Whether the row's turn has ended, or ends with its newest token.
static bool is_last_token(const struct infer *i, size_t row) {
    const struct infer_turn *t = &i->turns[row];
    const struct sampling_params *p = &i->request->rows[row].sampling.params;
    const struct engine_info *info = i->request->served->info;
    size_t n = n_drawn(i, row);
    if (t->state == ROW_ENDED || n >= (size_t)p->max_tokens) return true;
    if (n == 0) return false;
    if (p->end_id >= 0) return t->ids[t->n_ids - 1] == p->end_id;
    for (int e = 0; e < info->n_eos; e++)
        if (t->ids[t->n_ids - 1] == info->eos_ids[e]) return true;
    return false;
}

// Beams are final only at the end: they are one piece, or the last answer.
static size_t beam_steps(const struct infer *i) {
    for (size_t row = 0; row < i->request->n_rows; row++)
        if (i->turns[row].state != ROW_ENDED) return 0;
    return i->request->empty_final ? SIZE_MAX : 0;
}

size_t infer_steps(const struct infer *i) {
    if (i->request->n_beams > 1) return beam_steps(i);
    size_t least = SIZE_MAX, most = 0;
    bool last = true;
    for (size_t row = 0; row < i->request->n_rows; row++) {
        size_t n = n_drawn(i, row);
        bool ends = is_last_token(i, row);
        if (n > most) most = n;
        if (!ends && n < least) least = n;
        last &= ends;
    }
    if (!last) return least;
    return most > 0 && !i->request->empty_final ? most - 1 : most;
}
