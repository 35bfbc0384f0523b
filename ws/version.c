// The version and the build id. See version.h.
#include "ws/version.h"
#include "base/build_id.h"
#include <stdio.h>

void version_build(char out[VERSION_BUILD_MAX]) {
    char id[BUILD_ID_DIGITS + 1];
    build_id(id);
    if (id[0])
        snprintf(out, VERSION_BUILD_MAX, "%s (build %s)", PARLEY_VERSION, id);
    else
        snprintf(out, VERSION_BUILD_MAX, "%s", PARLEY_VERSION);
}
