// Why an engine process is lost. See loss.h.
#include "engine/process/loss.h"
#include "base/log.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void loss_init(struct loss *l) {
    *l = (struct loss){0};
    pthread_mutex_init(&l->lock, NULL);
}

void loss_release(struct loss *l) {
    pthread_mutex_destroy(&l->lock);
}

void loss_note(struct loss *l, const char *text) {
    pthread_mutex_lock(&l->lock);
    snprintf(l->text, sizeof l->text, "%s", text);
    l->hung = false;
    pthread_mutex_unlock(&l->lock);
}

void loss_hangs(struct loss *l, const char *name, pid_t pid, int64_t silent_us) {
    char text[sizeof l->text];
    log_error("engine.process_hangs", "instance=%s pid=%d silent_s=%.1f", name, pid,
              (double)silent_us * 1e-6);
    snprintf(text, sizeof text, "the engine process said nothing for %.1f s and was killed",
             (double)silent_us * 1e-6);
    loss_note(l, text);
    l->hung = true;
}

void loss_ended(struct loss *l, const char *name, pid_t pid, int status) {
    char text[sizeof l->text];
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    log_error("engine.process_ended", "instance=%s pid=%d signal=%d status=%d", name, pid, signal,
              code);
    if (l->hung) return;
    if (signal)
        snprintf(text, sizeof text, "signal %d (%s) ended the engine process", signal,
                 strsignal(signal));
    else
        snprintf(text, sizeof text, "the engine process ended with status %d", code);
    loss_note(l, text);
}

void loss_not_reopened(struct loss *l, const char *name, int attempt, const struct err *why) {
    char quoted[1200], text[sizeof l->text];
    log_error("engine.reopen", "instance=%s attempt=%d error=%s", name, attempt,
              log_quote(quoted, sizeof quoted, why->text));
    snprintf(text, sizeof text, "attempt %d to start the engine process again failed: %.400s",
             attempt, why->text);
    loss_note(l, text);
}

void loss_read(struct loss *l, char *out, size_t cap) {
    pthread_mutex_lock(&l->lock);
    snprintf(out, cap, "%s", l->text);
    pthread_mutex_unlock(&l->lock);
}
