// What a model's matrices are multiplied by, measured on a text: `parley quantize --weight-dtype int4 --calibrate FILE`.
// See README.md, "Calibration".
#pragma once
#include "base/err.h"
#include "kernels/int4.h"
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

struct calibration;
struct calibrate_options {
    const char *model_dir;
    const char *text; // (text_len) special tokens are recognised in it
    size_t text_len;
    void (*progress)(void *ctx, int64_t done, int64_t total); // tokens
    void *progress_ctx;
    const volatile sig_atomic_t *stop; // may be NULL
};
// Loads the model on the CPU and runs the text through it, CALIBRATE_MAX_TOKENS at most. Memory holds the model and
// for each column of a matrix's inputs INT4_BLOCK numbers (experts: one for all their gates and ups, and one number for
// each column of a down). A warning says which experts saw too few rows. E_INVAL: the text has no token; E_CANCELLED: *stop was set.
enum { CALIBRATE_MAX_TOKENS = 16384 };
int calibrate_run(struct calibration **out, const struct calibrate_options *o, struct err *err);
void calibration_free(struct calibration *c); // NULL is allowed
// What was measured of the matrix of this tensor, whose inputs are `cols`. ctx: a struct calibration.
struct int4_inputs calibration_find(void *ctx, const char *tensor, int64_t cols);
