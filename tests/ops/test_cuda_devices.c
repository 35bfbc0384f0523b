// The table of facts about devices and kernels (kernels/cuda/devices.c), on two fake devices: no GPU
// is needed.
#include "tests/cmocka.h"
#include <cuda_runtime_api.h>
// cmocka wants these before it.

static int here, n_set, set_device[16];
static size_t set_bytes[16];

static cudaError_t fake_get_device(int *device) {
    *device = here;
    return here < 0 ? cudaErrorNoDevice : cudaSuccess;
}
static cudaError_t fake_attribute(int *value, enum cudaDeviceAttr which, int device) {
    *value = which == cudaDevAttrMultiProcessorCount ? 100 + device : 9;
    return cudaSuccess;
}
static cudaError_t fake_set(const void *kernel, enum cudaFuncAttribute which, int bytes) {
    (void)kernel;
    assert_int_equal(which, cudaFuncAttributeMaxDynamicSharedMemorySize);
    set_device[n_set] = here;
    set_bytes[n_set++] = (size_t)bytes;
    return bytes > 200 << 10 ? cudaErrorInvalidValue : cudaSuccess;
}
#define cudaGetDevice fake_get_device
#define cudaDeviceGetAttribute fake_attribute
#define cudaFuncSetAttribute fake_set
#include "kernels/cuda/devices.c"

static void shared_memory_is_allowed_once_on_each_device(void **state) {
    (void)state;
    const char kernel[2] = {0};
    n_set = 0;
    for (int times = 0; times < 3; times++)
        for (here = 0; here < 2; here++) cuda_allow_shared(&kernel[0], 64 << 10);
    assert_int_equal(n_set, 2);
    assert_int_equal(set_device[0], 0);
    assert_int_equal(set_device[1], 1);
    here = 1;
    cuda_allow_shared(&kernel[0], 32 << 10); // less: allowed already
    assert_int_equal(n_set, 2);
    cuda_allow_shared(&kernel[0], 96 << 10);
    cuda_allow_shared(&kernel[1], 32 << 10); // another kernel
    assert_int_equal(n_set, 4);
    assert_int_equal(set_bytes[2], 96 << 10);
    cuda_allow_shared(&kernel[1], 220 << 10); // refused: asked for again
    cuda_allow_shared(&kernel[1], 220 << 10);
    assert_int_equal(n_set, 6);
}

static void a_device_has_facts_of_its_own(void **state) {
    (void)state;
    const char kernel = 0;
    int value = 0;
    here = 0;
    assert_int_equal(cuda_current_device().multiprocessors, 100);
    assert_false(cuda_kernel_fact(&kernel, 4, &value));
    cuda_keep_kernel_fact(&kernel, 4, 62);
    here = 1;
    assert_int_equal(cuda_current_device().multiprocessors, 101);
    assert_false(cuda_kernel_fact(&kernel, 4, &value));
    cuda_keep_kernel_fact(&kernel, 4, 30);
    assert_true(cuda_kernel_fact(&kernel, 4, &value) && value == 30);
    here = 0;
    assert_true(cuda_kernel_fact(&kernel, 4, &value) && value == 62);
    assert_false(cuda_kernel_fact(&kernel, 2, &value));
    here = -1; // no device answers
    assert_int_equal(cuda_current_device().multiprocessors, 1);
    assert_int_equal(cuda_current_device().major, 0);
}

static void a_full_table_keeps_what_it_has(void **state) {
    (void)state;
    static const char kernels[2 * MAX_FACTS];
    int value = 0;
    here = 0;
    for (int i = 0; i < 2 * MAX_FACTS; i++) cuda_keep_kernel_fact(&kernels[i], 1, i);
    assert_int_equal(n_facts, MAX_FACTS / 2);
    assert_true(cuda_kernel_fact(&kernels[0], 1, &value) && value == 0);
    assert_false(cuda_kernel_fact(&kernels[2 * MAX_FACTS - 1], 1, &value));
    cuda_keep_kernel_fact(&kernels[0], 1, 7); // a known one still changes
    assert_true(cuda_kernel_fact(&kernels[0], 1, &value) && value == 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_memory_is_allowed_once_on_each_device),
        cmocka_unit_test(a_device_has_facts_of_its_own),
        cmocka_unit_test(a_full_table_keeps_what_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
