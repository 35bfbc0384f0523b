// Random ids and seeds from the kernel. See random_id.h.
#include "base/random_id.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

// getrandom(2) cannot fail for so few bytes once the system is up; a sandbox may forbid the call.
static int from_device(void *out, size_t len) {
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, out, len);
    close(fd);
    return n == (ssize_t)len ? 0 : -1;
}

static void random_bytes(void *out, size_t len) {
    ssize_t n;
    do n = getrandom(out, len, 0);
    while (n < 0 && errno == EINTR);
    // The only abort() of this layer: a session's id also protects it from other clients, and
    // without random numbers no caller could continue safely.
    if (n != (ssize_t)len && from_device(out, len) < 0) abort();
}

void random_id(char out[RANDOM_ID_LEN + 1]) {
    unsigned char bytes[RANDOM_ID_LEN / 2];
    random_bytes(bytes, sizeof bytes);
    for (int i = 0; i < RANDOM_ID_LEN; i++)
        out[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    out[RANDOM_ID_LEN] = '\0';
}

uint64_t random_u64(void) {
    uint64_t v;
    random_bytes(&v, sizeof v);
    return v;
}
