// A kernel that loses the device's context: fault.c launches it when a test asks for a permanent fault.
extern "C" __global__ void trap() {
    asm volatile("trap;");
}
