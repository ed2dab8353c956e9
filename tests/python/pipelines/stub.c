/* Stands in for libtally-pipelines.so: writes down what is called, refuses what it is told to by TALLY_STUB_REFUSES. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan {
  int warpgroups, weights_resident, stages, shared_bytes;
  double predicted_us;
};

struct training {
  struct plan forward, backward;
  int64_t saved_bytes, dz_bytes;
};

static void Say(const char* format, long a, long b, long c, long d, long e) {
  FILE* file = fopen(getenv("TALLY_STUB_CALLS"), "a");
  fprintf(file, format, a, b, c, d, e);
  fclose(file);
}
static int Fails(const char* name) {
  const char* refused = getenv("TALLY_STUB_REFUSES");
  return refused != NULL && strcmp(refused, name) == 0 ? 801 : 0;
}

void* tallyPipelineCreate(int dtype) { return Say("Create %ld\n", dtype, 0, 0, 0, 0), malloc(1); }
int tallyPipelineAddLinear(void* p, const void* w, size_t pitch, const void* b, int in, int out) {
  return Say("AddLinear %ld %ld %ld %ld %ld\n", (long)w, (long)pitch, (long)b, in, out), p == NULL;
}
int tallyPipelineAddActivation(void* p, int kind) { return Say("AddActivation %ld\n", kind, 0, 0, 0, 0), p == NULL; }
int tallyPipelineAddNorm(void* p, int kind, const void* scale, const void* shift, float epsilon) {
  return Say("AddNorm %ld %ld %ld %ld\n", kind, (long)scale, (long)shift, (long)(epsilon * 1e6f + 0.5f), 0), p == NULL;
}
int tallyPipelineAddConcat(void* p, int order) { return Say("AddConcat %ld\n", order, 0, 0, 0, 0), p == NULL; }
int tallyPipelineAddResidual(void* p) { return Say("AddResidual\n", 0, 0, 0, 0, 0), p == NULL; }
int tallyPipelineInstantiate(void* p, int64_t rows) {
  return Say("Instantiate %ld\n", rows, 0, 0, 0, 0), p == NULL ? 1 : Fails("Instantiate");
}
int tallyPipelineLaunch(const void* p, void* stream, const void* x, size_t xp, void* y, size_t yp, int64_t rows) {
  Say("Launch %ld %ld %ld %ld", (long)stream, (long)x, (long)xp, (long)y, 0);
  return Say(" %ld %ld\n", (long)yp, rows, 0, 0, 0), p == NULL ? 1 : Fails("Launch");
}
int tallyPipelineQuery(const void* p, int64_t rows, struct plan* plan) {
  *plan = (struct plan){2, 1, 0, 200 << 10, rows / 1000.0};
  return p == NULL ? 1 : Fails("Query");
}
int tallyPipelineInstantiateTraining(void* p, int64_t rows, int with_dx) {
  return Say("InstantiateTraining %ld %ld\n", rows, with_dx, 0, 0, 0), p == NULL ? 1 : Fails("InstantiateTraining");
}
int tallyPipelineLaunchForward(const void* p, void* stream, const void* x, size_t xp, void* y, size_t yp, void* saved,
                               int64_t rows) {
  Say("LaunchForward %ld %ld %ld %ld", (long)stream, (long)x, (long)xp, (long)y, 0);
  return Say(" %ld %ld %ld\n", (long)yp, (long)saved, rows, 0, 0), p == NULL ? 1 : Fails("LaunchForward");
}
int tallyPipelineLaunchBackward(const void* p, void* stream, const void* dy, size_t dyp, const void* saved, void* dz,
                                void* dx, size_t dxp, int64_t rows) {
  Say("LaunchBackward %ld %ld %ld %ld %ld", (long)stream, (long)dy, (long)dyp, (long)saved, (long)dz);
  return Say(" %ld %ld %ld\n", (long)dx, (long)dxp, rows, 0, 0), p == NULL ? 1 : Fails("LaunchBackward");
}
int tallyPipelineQueryTraining(const void* p, int64_t rows, struct training* training) {
  *training = (struct training){{2, 1, 0, 200 << 10, rows / 1000.0}, {2, 1, 0, 200 << 10, rows / 500.0}, rows * 3, rows * 2};
  return p == NULL ? 1 : Fails("QueryTraining");
}
const char* tallyPipelineError(const void* p) { return p == NULL ? "null" : "the stub does not like it"; }
void tallyPipelineDestroy(void* p) { Say("Destroy\n", 0, 0, 0, 0, 0), free(p); }

/* A CUDA driver with one GPU. */
int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = malloc(1), device; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
int cuCtxPushCurrent_v2(void* context) { return context == NULL; }
int cuCtxPopCurrent_v2(void** context) { return *context = NULL, 0; }
int cuMemAlloc_v2(uint64_t* address, size_t size) { return *address = 4096, size == 0; }
int cuMemFree_v2(uint64_t address) { return address != 4096; }
