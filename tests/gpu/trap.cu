// What a device is lost by: fault.c launches it where a test asks for a fault that stays.
extern "C" __global__ void trap() {
    asm volatile("trap;");
}
