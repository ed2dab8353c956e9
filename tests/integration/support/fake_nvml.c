// A libnvidia-ml.so.1 as a machine has it: two GPUs, of which a tenant of the software GPU has one. Not NVIDIA's.
#include <string.h>

static int devices[2];

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (strncmp(uuid, "GPU-74616c6c", 12) != 0) return 6;
  return *device = &devices[1], 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  (void)device;
  memory[0] = 100ull << 30, memory[1] = 1ull << 30, memory[2] = 99ull << 30;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* degrees) {
  return *degrees = device == &devices[1] && sensor == 0 ? 44 : 0, 0;
}
// Six words and floating-point numbers: nothing of a call may be lost on its way.
double nvmlGpmMetricsGet(long a, long b, long c, long d, long e, long f, double x, double y, long g) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * x + 8 * y + 9 * g;
}
