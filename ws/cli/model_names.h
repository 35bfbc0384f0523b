// Names of models on the hub (ORG/NAME[:QUANT][@REVISION]) where a command takes a model's path.
#pragma once
#include "base/config.h"
#include "ws/hub/pull.h"

// Whether the text is a name of the hub: it has a name's form, and there is no such file or folder.
bool model_name_is(const char *text);
// Downloads into the cache. Reports to stderr why it waits, and with a progress bar if stderr is a terminal.
int model_name_pull(const struct hub_place *p, const struct hub_name *n, enum hub_want want,
                    char out[PATH_MAX], struct err *err);
// The path of the model that the text names, from the cache or by a download. A path stays as it is.
int model_name_path(const char *text, enum hub_want want, char out[PATH_MAX], struct err *err);
// Replaces names by paths in all rows with MODEL_VALUE (model_settings.h). The row `tokenizer` fetches text files alone, the
// other rows as `want` says.
int model_names_resolve(const struct config_table *t, void *settings, enum hub_want want,
                        struct err *err);
// Replaces names of models in the cache, and leaves other names. Downloads nothing.
int model_names_look(const struct config_table *t, void *settings, struct err *err);

struct config_parts;
int model_names_resolve_parts(struct config_parts *parts, struct err *err);
int model_names_look_parts(struct config_parts *parts, struct err *err);
