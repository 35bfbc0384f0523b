// See prompt_inputs.h.
#include "ws/kserve/prompt_inputs.h"
#include <stdlib.h>
#include <string.h>

#define TASK_IDS "prompt_learning_task_name_ids"
#define TYPE "request_prompt_type"
#define LENGTHS "request_prompt_lengths"
#define EMBEDDING "request_prompt_embedding"
enum prompt_type { TYPE_NONE, TYPE_SOFT, TYPE_PREFIX, TYPE_PTUNING, N_TYPES };

struct prompt_reading {
    struct infer_request *r;
    const struct engine *e;
    const struct tensor *task_ids, *type, *lengths, *embedding; // NULL: not given
    struct err *err;
};

// A row's value in a tensor with one value for each row, or one value for all rows.
static double value_of(const struct tensor *t, size_t row) {
    return tensor_number(t, t->n == 1 ? 0 : row);
}

static int check_count(const struct prompt_reading *p, const struct tensor *t) {
    if (!t || t->n == 1 || t->n == p->r->n_rows) return 0;
    return err_set(p->err, E_INVAL, "input '%s' must have one element, or one for each row",
                   t->name);
}

// --- a client's own table ------------------------------------------------------------------------

static int check_shape(const struct prompt_reading *p, const struct tensor *t) {
    bool outer = t->n_dims == 4;
    const int64_t *shape = t->shape + outer;
    if (t->n_dims == 3 + outer && (!outer || t->shape[0] == 1) &&
        shape[0] == (int64_t)p->r->n_rows && shape[1] > 0 && shape[2] > 0)
        return 0;
    return err_set(p->err, E_INVAL,
                   "input '" EMBEDDING "' must have the shape [rows, longest table, values of a "
                   "virtual token] with %zu rows",
                   p->r->n_rows);
}

static int need_tensors(const struct prompt_reading *p) {
    const char *missing = !p->type        ? TYPE
                          : !p->lengths   ? LENGTHS
                          : !p->embedding ? EMBEDDING
                                          : NULL;
    if (!missing) return check_shape(p, p->embedding);
    return err_set(p->err, E_INVAL,
                   "input '%s' is missing: a table needs '" TYPE "', '" LENGTHS "' and '" EMBEDDING
                   "'",
                   missing);
}

static int own_table(const struct prompt_reading *p, size_t row, enum prompt_type type) {
    const struct tensor *t = p->embedding;
    const int64_t *shape = t->shape + (t->n_dims == 4);
    enum prompt_kind kind = type == TYPE_PREFIX ? PROMPT_PREFIX : PROMPT_ROWS;
    int64_t wants = engine_prompt_width(p->e, kind);
    double length = value_of(p->lengths, row);
    struct err why = {0};
    if (!(length >= 1 && length <= (double)shape[1]))
        return err_set(p->err, E_INVAL,
                       "input '" LENGTHS "' must be from 1 to the %lld rows of '" EMBEDDING "'",
                       (long long)shape[1]);
    if (shape[2] != wants)
        return err_set(p->err, E_INVAL,
                       "input '" EMBEDDING
                       "' has %lld values for a virtual token; this model needs "
                       "%lld for type %d",
                       (long long)shape[2], (long long)wants, type);
    size_t n = (size_t)length * (size_t)wants, first = row * (size_t)shape[1] * (size_t)wants;
    float *data = malloc(n * sizeof *data);
    if (!data) return kserve_no_memory(p->err);
    for (size_t i = 0; i < n; i++) data[i] = (float)tensor_number(t, first + i);
    int rc = prompt_new(&p->r->rows[row].prompt, kind, (int64_t)length, wants, data, &why);
    free(data);
    if (rc == E_NOMEM) return kserve_no_memory(p->err);
    return rc < 0 ? err_set(p->err, E_INVAL, "input '" EMBEDDING "', row %zu: %s", row, why.text)
                  : 0;
}

// --- a task --------------------------------------------------------------------------------------

static int task_table(const struct prompt_reading *p, size_t row) {
    const struct engine_info *info = engine_info(p->e);
    double id = value_of(p->task_ids, row);
    if (!(id < (double)info->n_prompt_tasks))
        return err_set(p->err, E_INVAL,
                       "input '" TASK_IDS "' is %.0f, and the model has %zu tasks%s", id,
                       info->n_prompt_tasks,
                       info->n_prompt_tasks ? ", numbered from 0" : " of prompt learning");
    const struct prompt_task *task = &info->prompt_tasks[(size_t)id];
    p->r->rows[row].prompt_task = task->name;
    p->r->rows[row].prompt = prompt_hold(task->prompt);
    return 0;
}

// --- ids -----------------------------------------------------------------------------------------

static int translate(const struct prompt_reading *p, struct infer_row *row, bool ptuning) {
    const struct engine_info *info = engine_info(p->e);
    for (size_t i = 0; i < row->n_ids; i++) {
        int32_t id = row->ids[i], at = id - info->prompt_start_id;
        if (ptuning && at >= 0) {
            if (at >= row->prompt->n_rows)
                return err_set(p->err, E_INVAL,
                               "input 'input_ids' has %d; the table's %d rows are the ids from %d",
                               id, row->prompt->n_rows, info->prompt_start_id);
            row->ids[i] = PROMPT_ID_FIRST + at;
            row->n_virtual++;
        } else if (id >= info->n_vocab) {
            return err_set(p->err, E_INVAL, "input 'input_ids' has an id outside the vocabulary");
        }
    }
    return 0;
}

// Puts the whole table in front of a first input that names none of its rows.
static int put_in_front(const struct prompt_reading *p, struct infer_row *row) {
    size_t n = (size_t)row->prompt->n_rows;
    int32_t *ids = malloc((n + row->n_ids + 1) * sizeof *ids);
    if (!ids) return kserve_no_memory(p->err);
    for (size_t i = 0; i < n; i++) ids[i] = PROMPT_ID_FIRST + (int32_t)i;
    memcpy(ids + n, row->ids, row->n_ids * sizeof *ids);
    free(row->ids);
    row->ids = ids;
    row->n_ids += n;
    row->n_virtual += n;
    return 0;
}

static int read_row(const struct prompt_reading *p, size_t at) {
    struct infer_row *row = &p->r->rows[at];
    double type = p->type ? value_of(p->type, at) : TYPE_NONE;
    bool first = !p->r->sequence[0] || p->r->start;
    if (!(type >= TYPE_NONE && type < N_TYPES))
        return err_set(p->err, E_INVAL, "input '" TYPE "' must be from 0 to %d", N_TYPES - 1);
    if (type != TYPE_NONE && p->task_ids)
        return err_set(p->err, E_INVAL,
                       "inputs '" TASK_IDS "' and '" TYPE
                       "' exclude each other: a table comes with "
                       "the request, or is a task's");
    if (type != TYPE_NONE) TRY(need_tensors(p));
    if (type != TYPE_NONE) TRY(own_table(p, at, (enum prompt_type)type));
    if (p->task_ids) TRY(task_table(p, at));
    bool rows =
        row->prompt && row->prompt->kind == PROMPT_ROWS && p->r->model == MODEL_IDS; // not of text
    TRY(translate(p, row, rows && (p->task_ids || type == TYPE_PTUNING)));
    return row->prompt && first && row->n_virtual == 0 ? put_in_front(p, row) : 0;
}

// Virtual tokens that stand in the input are not part of the output, so its width shrinks.
static void shrink_width(struct infer_request *r, const size_t *given) {
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < r->n_rows; i++)
        if (given[i] < least) least = given[i];
    r->width -= least < r->width ? least : r->width;
}

int prompt_inputs_read(struct infer_request *r, const struct engine *e, const struct tensors *all,
                       struct err *err) {
    struct prompt_reading p = {.r = r,
                               .e = e,
                               .task_ids = tensors_find(all, TASK_IDS),
                               .type = tensors_find(all, TYPE),
                               .lengths = tensors_find(all, LENGTHS),
                               .embedding = tensors_find(all, EMBEDDING),
                               .err = err};
    TRY(check_count(&p, p.task_ids));
    TRY(check_count(&p, p.type));
    TRY(check_count(&p, p.lengths));
    if ((p.lengths || p.embedding) && !p.type) TRY(need_tensors(&p));
    size_t given[INFER_ROWS_MAX];
    for (size_t row = 0; row < r->n_rows; row++) {
        size_t n = r->rows[row].n_ids;
        TRY(read_row(&p, row));
        given[row] = n == r->rows[row].n_ids ? r->rows[row].n_virtual : 0;
    }
    shrink_width(r, given);
    return 0;
}
