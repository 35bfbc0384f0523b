// Finds faults of a database, and repairs those that it can.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct doctor_fault {
    char *session; // NULL: the file's own
    char *what;    // one sentence
    bool repaired;
};
struct doctor_report {
    int64_t n_sessions, n_exported;
    struct doctor_fault *faults;
    size_t n_faults, n_left; // left: not repaired
};
void doctor_report_release(struct doctor_report *r); // a zeroed one is allowed

struct doctor_options {
    // Rebuilds indexes, deletes orphan rows, and cuts sessions that contradict themselves to what
    // fits. E_BUSY while a server has the database. Without `repair` nothing is written, and a
    // server may run.
    bool repair;
    // Exports each readable session into this folder, repaired where needed; NULL: none. Makes the
    // folder.
    const char *folder;
    void (*progress)(void *ctx, int64_t done, int64_t total); // or NULL
    void *progress_ctx;
};
// Checks the file, references, each session's record (check.h) and the index of words. Fails when
// the file cannot be read at all or the folder cannot be written; other faults go into the report.
// Release the report in any case.
int doctor_examine(const char *path, const struct doctor_options *o, struct doctor_report *out,
                   struct err *err);
