// Why an engine process is lost: a line of the log, and a sentence for the operator. The supervising
// thread writes, any thread reads.
#pragma once
#include "base/err.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct loss {
    pthread_mutex_t lock; // of the text
    char text[512];       // the last reason; "": none
    // It was silent, so its end by our signal is not the reason. The supervising thread's.
    bool hung;
};

void loss_init(struct loss *l);
void loss_release(struct loss *l);
void loss_note(struct loss *l, const char *text); // "": it serves again
void loss_hangs(struct loss *l, const char *name, pid_t pid, int64_t silent_us);
void loss_ended(struct loss *l, const char *name, pid_t pid, int status); // waitpid's status
void loss_not_reopened(struct loss *l, const char *name, int attempt, const struct err *why);
void loss_read(struct loss *l, char *out, size_t cap); // (cap)
