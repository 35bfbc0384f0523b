// The parts of a step that pipeline stages compute one after the other (micro-batches), so that a stage
// works on a part while the next stage works on the one before it.
//
// How many: let w be a stage's time to read its weights, and r its time for a row. In k parts of n rows
// each stage reads its weights k times, and the last of P stages ends after k + P - 1 parts:
//
//   (k + P - 1) (w + r n / k)
//
// k parts are no slower than k - 1 where k (k - 1) <= (P - 1) n r / w. So what decides is w / r, the
// number of rows that take as long as reading the weights once (PARTS_ROWS_*). Few rows gain nothing:
// their step is one part.
#pragma once
#include "base/err.h"
#include "kernels/backend.h"
#include "kernels/batch.h"
#include <stdint.h>

enum {
    PARTS_MAX = 16,
    PARTS_ROWS_HOST = 8,  // measured: 2 (a model within caches) to 11
    PARTS_ROWS_GPU = 160, // an H200's, by its rates of prefill and of one session's decode
};

struct step_part {
    struct batch batch;             // its rows, sequences and wanted rows, numbered from 0
    int32_t first_row, first_logit; // in the step
};
struct parts {
    int32_t max_rows;
    struct batch_seq *seqs; // (max_rows + PARTS_MAX) of all parts
    int32_t *logit_rows;    // (max_rows) likewise
    int32_t n;
    struct step_part of[PARTS_MAX];
    struct batch end; // the whole step, for the ops after its parts
};

int parts_init(struct parts *p, int32_t max_rows, struct err *err); // E_NOMEM
void parts_release(struct parts *p);                                // a zeroed one is allowed
// 1 .. PARTS_MAX
int32_t parts_count(const struct backend *be, int32_t n_rows, int32_t n_stages);
// Splits b, which has no load and no virtual rows, into n parts of about as many rows, 1 <= n <= PARTS_MAX
// and at most b's rows. The order of the rows stays. A part ends with a sequence where one ends near its
// share; else it ends within a sequence, whose earlier rows are in the cache when the later ones run. The
// parts borrow b's arrays.
void parts_split(struct parts *p, const struct batch *b, int32_t n);
