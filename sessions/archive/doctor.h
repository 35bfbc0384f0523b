// What is wrong with a database, and putting right what can be.
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
void doctor_report_release(struct doctor_report *r);

struct doctor_options {
    // Puts right what can be: indexes, rows of nothing, sessions that contradict themselves (what
    // does not fit is cut off, and the turn ends as interrupted), the index of words. E_BUSY while
    // a server has the database. Without it nothing is written: a server may be running.
    bool repair;
    // Every session that can be read goes into a file of this folder (made when it is not there)
    // for `sessions import`, put right as above where it must be; NULL: none.
    const char *folder;
    void (*progress)(void *ctx, int64_t done, int64_t total); // or NULL
    void *progress_ctx;
};
// Checks integrity, references, every session's record (stored_check.h) and the index of words.
// Faults are no failure: those of the file that keep it from being read at all are, and what keeps
// the folder from being written. Release the report in any case.
int doctor_examine(const char *path, const struct doctor_options *o, struct doctor_report *out,
                   struct err *err);
