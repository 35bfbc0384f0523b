// Makes a GPU fail while a server runs, by LD_PRELOAD. Once the file named by CUDA_FAULT_FILE exists,
// CUDA_FAULT says how:
// - refuse (default): the driver's launches, copies and waits fail without being executed;
// - trap: launches a kernel that traps (function trap of the code in CUDA_FAULT_CODE), so that the
//   context is lost for good, as after a fault in one of our kernels.
//
// The CUDA runtime is linked into the program and has no symbols to override. So this library wraps the
// way to the driver: the runtime asks dlsym() for cuGetProcAddress, and gets all else from that.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAUNCH_FAILED = 719 }; // CUDA_ERROR_LAUNCH_FAILED

typedef void *arg;
typedef int (*driver_fn)(arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg, arg);
typedef void *(*dlsym_fn)(void *, const char *);
typedef int (*proc_address_fn)(const char *, void **, int, unsigned long long, void *);

static dlsym_fn real_dlsym(void) {
    static dlsym_fn f;
    if (!f) f = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!f) f = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return f;
}

// Once: the kernel that traps, in whatever context is current.
static void trap(void) {
    static int done;
    void *driver, *module = NULL, *function = NULL;
    if (done++) return;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*load)(void **, const char *) = driver ? real_dlsym()(driver, "cuModuleLoad") : NULL;
    int (*get)(void **, void *, const char *) =
        driver ? real_dlsym()(driver, "cuModuleGetFunction") : NULL;
    driver_fn launch = driver ? (driver_fn)real_dlsym()(driver, "cuLaunchKernel") : NULL;
    const char *code = getenv("CUDA_FAULT_CODE");
    int rc = -1;
    arg one = (arg)1, none = NULL;
    if (load && get && launch && code) rc = load(&module, code);
    if (rc == 0) rc = get(&function, module, "trap");
    if (rc == 0) rc = launch(function, one, one, one, one, one, one, none, none, none, none, none);
    fprintf(stderr, "cuda_fault: the kernel that traps was launched: %d\n", rc);
}

// Whether this call is to fail.
static int fails(void) {
    const char *file = getenv("CUDA_FAULT_FILE"), *how = getenv("CUDA_FAULT");
    if (!file || access(file, F_OK) != 0) return 0;
    if (how && !strcmp(how, "trap")) {
        trap();
        return 0; // the driver knows by itself
    }
    return 1;
}

// What is watched, each with a wrapper of as many words as any of them takes.
#define WATCHED(x)                                                                                 \
    x(cuGraphLaunch) x(cuLaunchKernel) x(cuLaunchKernelEx) x(cuStreamSynchronize)                  \
        x(cuEventSynchronize) x(cuEventQuery) x(cuMemcpyHtoDAsync) x(cuMemcpyDtoHAsync)            \
            x(cuMemcpyAsync) x(cuMemcpy2DAsync)
#define WRAPPER(name)                                                                              \
    static driver_fn real_##name;                                                                  \
    static int wrapped_##name(arg a, arg b, arg c, arg d, arg e, arg f, arg g, arg h, arg i,       \
                              arg j, arg k, arg l) {                                               \
        return fails() ? LAUNCH_FAILED : real_##name(a, b, c, d, e, f, g, h, i, j, k, l);          \
    }
WATCHED(WRAPPER)

static int wrapped_proc_address(const char *name, void **out, int version, unsigned long long flags,
                                void *status);
static proc_address_fn real_proc_address;

static void *wrap(const char *name, void *found) {
    if (!found) return found;
#define WRAP(n)                                                                                    \
    if (!strcmp(name, #n)) {                                                                       \
        if (!real_##n) real_##n = (driver_fn)found;                                                \
        if (real_##n == (driver_fn)found) return (void *)wrapped_##n;                              \
    }
    WATCHED(WRAP)
    if (!strcmp(name, "cuGetProcAddress") || !strcmp(name, "cuGetProcAddress_v2")) {
        real_proc_address = (proc_address_fn)found;
        return (void *)wrapped_proc_address;
    }
    return found;
}

static int wrapped_proc_address(const char *name, void **out, int version, unsigned long long flags,
                                void *status) {
    int rc = real_proc_address(name, out, version, flags, status);
    if (rc == 0 && out) *out = wrap(name, *out);
    return rc;
}

void *dlsym(void *handle, const char *name) {
    void *found = real_dlsym()(handle, name);
    return strncmp(name, "cu", 2) ? found : wrap(name, found);
}
