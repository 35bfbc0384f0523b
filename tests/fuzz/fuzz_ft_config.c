// config.ini of FasterTransformer folders. An accepted configuration is consistent.
#include "engine/model/ft_config.h"
#include "tests/fuzz/model_config_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ft_config c;
    struct err err = {0};
    int rc = ft_config_parse(&c, "x/config.ini", (const char *)data, size, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(strstr(err.text, "x/config.ini"));
        return 0;
    }
    model_config_check(&c.model);
    FUZZ_CHECK(c.n_ranks >= 0 && c.n_ranks <= FT_MAX_RANKS);
    FUZZ_CHECK((c.n_unused == 0) == (c.unused[0] == '\0'));
    return 0;
}
