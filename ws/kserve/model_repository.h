// Triton's model repository, as FasterTransformer shipped it: DIR/fastertransformer/config.pbtxt beside
// the models preprocessing, postprocessing and ensemble, which need no files here.
#pragma once
#include "base/err.h"

struct serve_config;

// Reads the settings of the repository into *c. Logs each setting that has no meaning here, once. Errors name
// file, line and field.
int model_repository_apply(const char *dir, struct serve_config *c, struct err *err);
