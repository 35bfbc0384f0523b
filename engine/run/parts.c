// See parts.h.
#include "engine/run/parts.h"
#include <assert.h>
#include <stdlib.h>

int parts_init(struct parts *p, int32_t max_rows, struct err *err) {
    *p = (struct parts){.max_rows = max_rows};
    p->seqs = calloc((size_t)max_rows + PARTS_MAX, sizeof *p->seqs);
    p->logit_rows = calloc((size_t)max_rows, sizeof *p->logit_rows);
    if (p->seqs && p->logit_rows) return 0;
    parts_release(p);
    return err_set(err, E_NOMEM, "no memory for the parts of a step of %d tokens", max_rows);
}

void parts_release(struct parts *p) {
    free(p->seqs);
    free(p->logit_rows);
    p->seqs = NULL;
    p->logit_rows = NULL;
}

int32_t parts_count(const struct backend *be, int32_t n_rows, int32_t n_stages) {
    const int64_t w = be->ops->mem_info ? PARTS_ROWS_GPU : PARTS_ROWS_HOST;
    const int64_t gain = (int64_t)(n_stages - 1) * n_rows;
    int32_t k = 1;
    while (k < PARTS_MAX && k < n_rows && w * (k + 1) * k <= gain) k++;
    return k;
}

// Where the part that should end at `share` ends: there, or at the end of a sequence at most `slack` rows
// before or after it. seq: the sequence that row share - 1 belongs to.
static int32_t end_near(const struct batch *b, int32_t seq, int32_t share, int32_t slack) {
    const struct batch_seq *q = &b->seqs[seq];
    const int32_t before = q->first_row, after = q->first_row + q->n_rows;
    if (after - share <= slack && after - share <= share - before) return after;
    return share - before <= slack ? before : share;
}

// Appends the rows [from, to) of b, which begin in sequence *seq and wanted row *logit, as a part.
static void add(struct parts *p, const struct batch *b, int32_t from, int32_t to, int32_t *seq,
                int32_t *logit, struct batch_seq *seqs) {
    struct step_part *out = &p->of[p->n++];
    *out = (struct step_part){.first_row = from, .first_logit = *logit};
    struct batch *o = &out->batch;
    *o = *b;
    o->is_part = true;
    o->n_rows = to - from;
    o->n_seqs = o->n_logits = 0;
    if (b->ids) o->ids = b->ids + from;
    o->positions = b->positions + from;
    o->logit_rows = p->logit_rows + *logit;
    o->draws = NULL; // the end of the step draws
    o->seqs = seqs;
    for (; *seq < b->n_seqs && b->seqs[*seq].first_row < to; (*seq)++) {
        const struct batch_seq *q = &b->seqs[*seq];
        const int32_t first = q->first_row > from ? q->first_row : from;
        const int32_t end = q->first_row + q->n_rows;
        struct batch_seq *s = &seqs[o->n_seqs++];
        *s = *q;
        s->first_row = first - from;
        s->n_rows = (end < to ? end : to) - first;
        if (end > to) break; // the next part goes on with it
    }
    for (; *logit < b->n_logits && b->logit_rows[*logit] < to; (*logit)++)
        p->logit_rows[out->first_logit + o->n_logits++] = b->logit_rows[*logit] - from;
}

void parts_split(struct parts *p, const struct batch *b, int32_t n) {
    assert(n >= 1 && n <= PARTS_MAX && n <= b->n_rows && b->n_rows <= p->max_rows);
    assert(!b->load && b->n_virtual == 0);
    const int32_t slack = b->n_rows / n / 8;
    struct batch_seq *seqs = p->seqs;
    int32_t from = 0, seq = 0, logit = 0, at = 0;
    p->n = 0;
    p->end = *b;
    p->end.is_part = true;
    for (int32_t i = 1; i <= n; i++) {
        int32_t to = (int32_t)((int64_t)b->n_rows * i / n);
        while (b->seqs[at].first_row + b->seqs[at].n_rows < to) at++;
        if (i < n) to = end_near(b, at, to, slack);
        add(p, b, from, to, &seq, &logit, seqs);
        seqs += p->of[p->n - 1].batch.n_seqs;
        from = to;
    }
}
