// Injects allocation failures: the n-th allocation of one thread fails, once or from then on. For
// test programs that the Makefile links with --wrap (ALLOC_FAULTS): every malloc, calloc, realloc,
// strdup and strndup of our code passes through here, also under the sanitizers.
#pragma once
#pragma GCC diagnostic ignored "-Wunused-function" // no test needs all of it
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

static struct {
    bool others;  // threads other than the test's own get the faults
    int64_t left; // allocations until one fails; -1: none fails
    int64_t last; // how many fail from there on
    int64_t n_failed;
} faults = {.left = -1};
static _Thread_local bool faults_own_thread;

// The n-th allocation from now on (0: the next) fails, and the ones after it up to n_failing.
static void faults_arm(int64_t n, int64_t n_failing, bool others) {
    faults_own_thread = true;
    faults.others = others;
    faults.last = n_failing;
    __atomic_store_n(&faults.n_failed, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&faults.left, n, __ATOMIC_SEQ_CST);
}
// How many have failed.
static int64_t faults_disarm(void) {
    __atomic_store_n(&faults.left, -1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&faults.n_failed, __ATOMIC_SEQ_CST);
}

static bool fault_due(void) {
    if (__atomic_load_n(&faults.left, __ATOMIC_SEQ_CST) < 0) return false;
    if (faults.others == faults_own_thread) return false;
    if (__atomic_load_n(&faults.left, __ATOMIC_SEQ_CST) > 0) {
        __atomic_sub_fetch(&faults.left, 1, __ATOMIC_SEQ_CST);
        return false;
    }
    if (__atomic_add_fetch(&faults.n_failed, 1, __ATOMIC_SEQ_CST) >= faults.last)
        __atomic_store_n(&faults.left, -1, __ATOMIC_SEQ_CST);
    return true;
}

void *__wrap_malloc(size_t n) {
    return fault_due() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size) {
    return fault_due() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n) {
    return fault_due() ? NULL : __real_realloc(p, n);
}
char *__wrap_strdup(const char *s) {
    return fault_due() ? NULL : __real_strdup(s);
}
char *__wrap_strndup(const char *s, size_t n) {
    return fault_due() ? NULL : __real_strndup(s, n);
}
