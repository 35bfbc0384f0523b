// See lazy.h.
#include "base/lazy.h"
#include "base/err.h"
#include "base/log.h"
#include <dlfcn.h>
#include <stdlib.h>

// The first call of a function comes here, with its struct lazy_function in r11: its arguments, in whatever registers,
// are kept while the function is looked for.
__asm__(".text\n"
        ".globl lazy_first\n"
        ".hidden lazy_first\n"
        ".type lazy_first, @function\n"
        "lazy_first:\n"
        "pushq %rdi\n pushq %rsi\n pushq %rdx\n pushq %rcx\n pushq %r8\n pushq %r9\n pushq %rax\n"
        "subq $128, %rsp\n" // the return address and seven registers: a multiple of 16 already
        "movups %xmm0, (%rsp)\n movups %xmm1, 16(%rsp)\n"
        "movups %xmm2, 32(%rsp)\n movups %xmm3, 48(%rsp)\n"
        "movups %xmm4, 64(%rsp)\n movups %xmm5, 80(%rsp)\n"
        "movups %xmm6, 96(%rsp)\n movups %xmm7, 112(%rsp)\n"
        "movq %r11, %rdi\n"
        "call lazy_find\n"
        "movq %rax, %r11\n"
        "movups (%rsp), %xmm0\n movups 16(%rsp), %xmm1\n"
        "movups 32(%rsp), %xmm2\n movups 48(%rsp), %xmm3\n"
        "movups 64(%rsp), %xmm4\n movups 80(%rsp), %xmm5\n"
        "movups 96(%rsp), %xmm6\n movups 112(%rsp), %xmm7\n"
        "addq $128, %rsp\n"
        "popq %rax\n popq %r9\n popq %r8\n popq %rcx\n popq %rdx\n popq %rsi\n popq %rdi\n"
        "jmp *%r11\n"
        ".size lazy_first, . - lazy_first\n");

int lazy_open(struct lazy_library *l, struct err *err) {
    if (__atomic_load_n(&l->handle, __ATOMIC_ACQUIRE)) return 0;
    void *handle = dlopen(l->soname, RTLD_LAZY | RTLD_LOCAL); // a second thread's is the same one
    if (!handle) return err_set(err, E_NOTFOUND, "%s cannot be loaded: %s", l->soname, dlerror());
    __atomic_store_n(&l->handle, handle, __ATOMIC_RELEASE);
    return 0;
}

__attribute__((used, visibility("hidden"))) void *lazy_find(struct lazy_function *f);
void *lazy_find(struct lazy_function *f) {
    struct err err = {0};
    void *address = lazy_open(f->library, &err) == 0 ? dlsym(f->library->handle, f->name) : NULL;
    if (!address) {
        log_error("library.missing", "library=%s function=%s", f->library->soname, f->name);
        abort();
    }
    __atomic_store_n(&f->address, address, __ATOMIC_RELEASE);
    return address;
}
