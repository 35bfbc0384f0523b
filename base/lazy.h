// Libraries that few runs of the program use, loaded at the first call of one of their functions. Linked as usual, gRPC
// and libcurl bring 75 other libraries, and every start of the program pays 50 ms for them.
//
// LAZY_FUNCTION defines a function that jumps to the library's one of the same name. Callers include the library's
// header and notice nothing. x86-64, as the rest of Parley is.
#pragma once

struct err;

struct lazy_library {
    const char *soname; // of the version that the program was compiled for
    void *handle;       // NULL: not loaded
};

struct lazy_function {
    // First: LAZY_FUNCTION's code jumps to it. lazy_first_NAME until the first call.
    void *address;
    const char *name;
    struct lazy_library *library;
};

// Loads it. A library that is missing is an error here, and the end of the program in a call of its functions, which
// have no error for it. Any thread.
int lazy_open(struct lazy_library *l, struct err *err);

#define LAZY_FUNCTION(lib, function)                                                               \
    extern char lazy_first_##function[] __attribute__((visibility("hidden")));                     \
    struct lazy_function lazy_##function                                                           \
        __attribute__((used, visibility("hidden"))) = {lazy_first_##function, #function, &(lib)};  \
    __asm__(".text\n"                                                                              \
            ".globl " #function "\n"                                                               \
            ".type " #function ", @function\n" #function ":\n"                                     \
            "jmp *lazy_" #function "(%rip)\n"                                                      \
            ".globl lazy_first_" #function "\n"                                                    \
            ".hidden lazy_first_" #function "\n"                                                   \
            "lazy_first_" #function ":\n"                                                          \
            "leaq lazy_" #function "(%rip), %r11\n"                                                \
            "jmp lazy_first\n"                                                                     \
            ".size " #function ", . - " #function "\n")
