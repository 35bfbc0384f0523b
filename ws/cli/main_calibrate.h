// The text of --calibrate, run through a model, for `quantize` and `score`.
#pragma once

struct calibration;
struct err;

// file: a path, or "-" for the standard input. *out is the caller's (calibration_free).
int cli_calibrate(struct calibration **out, const char *model, const char *file, struct err *err);
