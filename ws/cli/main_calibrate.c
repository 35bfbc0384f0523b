// See main_calibrate.h.
#include "ws/cli/main_calibrate.h"
#include "engine/convert/calibrate.h"
#include "ws/cli/cli.h"
#include <string.h>

#define TEXT_BYTES ((size_t)64 << 20)

int cli_calibrate(struct calibration **out, const char *model, const char *file, struct err *err) {
    struct buf text;
    int rc = strcmp(file, "-") == 0 ? cli_read_stdin(&text, TEXT_BYTES, err)
                                    : buf_read_file(&text, file, TEXT_BYTES, err);
    const struct calibrate_options o = {.model_dir = model,
                                        .text = rc == 0 ? buf_z(&text) : NULL,
                                        .text_len = text.len,
                                        .progress = cli_progress,
                                        .progress_ctx = "calibrating",
                                        .stop = cli_stop_on_signal()};
    if (rc == 0) rc = calibrate_run(out, &o, err);
    buf_release(&text);
    return rc;
}
