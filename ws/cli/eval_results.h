// An evaluation's results, one line of JSON for each item, in a file. A later run of the same evaluation
// continues the file. The first line names the evaluation. A line that a killed run left unfinished is
// removed.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdio.h>

struct eval_result {
    bool done;
    double logprob; // of the scored tokens; not of SQuAD
    bool correct;   // lambada: all tokens are the likeliest; squad: exact
    double f1;      // squad: 0 .. 1
    char *answer;   // squad, owned
};
struct eval_results {
    struct eval_result *list;  // (n)
    size_t n, n_done, n_found; // n_found: done by earlier runs
    FILE *file;
    const char *path; // borrowed
};
// header: a JSON object. E_INVAL: the file has the results of another evaluation.
int eval_results_open(struct eval_results *r, const char *path, const char *header, size_t n,
                      struct err *err);
// Takes result->answer. An error of the file, such as a full disk, is returned; the result is kept.
int eval_results_add(struct eval_results *r, size_t item, const struct eval_result *result,
                     struct err *err);
// Waits until the file is on the disk. *err is set only if nothing has failed before.
int eval_results_close(struct eval_results *r, struct err *err);
