// config.json, then after a NUL generation_config.json. An accepted configuration is consistent.
#include "base/json.h"
#include "engine/model/packed_tensors.h"
#include "tests/fuzz/model_config_check.h"
#include <limits.h>
#include <stdio.h>

// What people call the quantisation, whether or not it is known.
static void check_name(void) {
    char path[PATH_MAX], name[PACKED_NAME];
    struct err err = {0};
    snprintf(path, sizeof path, "%s/config.json", fuzz_dir());
    cJSON *config = json_parse_file(path, &json_limits_file, &err);
    packed_name_of(name, quantization_of(config));
    FUZZ_CHECK(memchr(name, '\0', sizeof name));
    cJSON_Delete(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct model_config c;
    struct err err = {0};
    const uint8_t *rest;
    size_t n_rest, n = fuzz_split(data, size, &rest, &n_rest);
    fuzz_file("config.json", data, n);
    if (n_rest > 0)
        fuzz_file("generation_config.json", rest, n_rest);
    else
        fuzz_file("generation_config.json", (const uint8_t *)"{}", 2);
    check_name();
    int rc = model_config_load(&c, fuzz_dir(), &err);
    fuzz_check_err(rc, &err);
    if (rc == 0) model_config_check(&c);
    if (rc < 0) FUZZ_CHECK(strstr(err.text, "config.json"));
    return 0;
}
