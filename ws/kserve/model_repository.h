// Triton's model repository, as FasterTransformer shipped it: DIR/fastertransformer/config.pbtxt beside
// the models preprocessing, postprocessing and ensemble, which need no files here.
#pragma once
#include "base/err.h"

struct serve_config;

// Reads the settings that the repository has into *c. What has no meaning here is logged, each once.
// Errors name file, line and field.
int model_repository_apply(const char *dir, struct serve_config *c, struct err *err);
