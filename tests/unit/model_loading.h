// Loading a model onto a fake backend, for the tests of weight formats.
#pragma once
#include "base/log.h"
#include "engine/model/model.h"
#include "tests/unit/fake_backend.h"
#include "tests/unit/tmp_dir.h"

static struct tmp_dir dir; // for the folders that a test writes

static inline int model_loading_setup(void **state) {
    tmp_dir_open(&dir);
    log_set_level(LOG_OFF);
    return 0;
}
static inline int model_loading_teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}

// A model that must load; the caller frees it.
static inline struct model *load_model(struct fake_backend *f, const char *path,
                                       const struct split *s, enum weight_format weights) {
    struct model *m = NULL;
    struct err err = {0};
    *f = fake_backend();
    if (model_load(&m,
                   &(struct model_load_options){
                       .dir = path, .backend = &f->be, .split = s, .weights = weights},
                   &err) != 0)
        fail_msg("%s", err.text);
    return m;
}
