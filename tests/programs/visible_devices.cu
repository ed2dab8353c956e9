// CUDA_VISIBLE_DEVICES: numbers, UUIDs and their beginnings, another order, nothing. Each setting in a process of its
// own, which says how many devices it sees and which is its first; a kernel runs there and the device is the same by
// number, by PCI id and by UUID.
#include <cstdlib>

#include "tests/programs/check.h"
#include "tests/programs/child_case.h"

using check::Results;

namespace {

constexpr const char* kSettings[] = {
    "none set", "-1", "empty", "0", "twice", "unknown", "known, unknown", "uuid", "beginning of uuid", "spaces"};

void Reference(Results& results) {
  // Whether as many devices are seen as the setting says, and whether the first one is the one it names.
  for (const char* setting : kSettings) results.AddValue<uint32_t>(setting, 1);
  results.AddValue<uint32_t>("another order", 1);
}

__global__ void Set(int* value) { *value = 42; }

std::string Text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

// "COUNT UUID-OF-FIRST UUID-OF-LAST", "error NUMBER" if there is none.
int Child() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    printf("error %d\n", static_cast<int>(error));
    return 0;
  }
  std::string uuids[2];
  for (int device : {count - 1, 0}) {
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
    uuids[device == 0 ? 0 : 1] = Text(properties.uuid);
    if (device == 0 && count == 1) uuids[1] = uuids[0];
    char bus[32];
    int found = -1;
    CHECK_CUDA(cudaDeviceGetPCIBusId(bus, sizeof(bus), device));
    CHECK_CUDA(cudaDeviceGetByPCIBusId(&found, bus));
    if (found != device) check::Fail("device %d is %d by its PCI id %s", device, found, bus);
    CHECK_CUDA(cudaSetDevice(device));
    check::DeviceBuffer<int> value(1);
    Set<<<1, 1>>>(value.get());
    CHECK_LAUNCH();
    if (value.Download()[0] != 42) check::Fail("device %d does not compute", device);
    cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, value.get()));
    if (attributes.device != device) check::Fail("memory of device %d is on device %d", device, attributes.device);
  }
  printf("%d %s %s\n", count, uuids[0].c_str(), uuids[1].c_str());
  return 0;
}

struct Seen {
  int count = 0;
  std::string first, last, output;
};

Seen With(const char* visible) {
  if (visible != nullptr) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
  } else {
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  Seen seen;
  seen.output = check::RunCase("look").output;
  char first[64] = {}, last[64] = {};
  if (sscanf(seen.output.c_str(), "%d %63s %63s", &seen.count, first, last) == 3) {
    seen.first = first;
    seen.last = last;
  }
  return seen;
}

void Device(Results& results) {
  const Seen all = With(nullptr);
  if (all.count == 0) check::Fail("no device: %s", all.output.c_str());
  // A negative count: the error.
  const auto add = [&](const char* name, const char* visible, int count, const std::string& first) {
    const Seen seen = With(visible);
    const bool fits = count < 0 ? seen.output == "error " + std::to_string(-count) + "\n"
                                : seen.count == count && seen.first == first;
    if (!fits) printf("%s: '%s' shows %s", name, visible, seen.output.c_str());
    results.AddValue<uint32_t>(name, fits);
  };
  results.AddValue<uint32_t>("none set", 1);
  add("-1", "-1", -cudaErrorNoDevice, "");
  add("empty", "", -cudaErrorNoDevice, "");
  add("0", "0", 1, all.first);
  add("twice", "0,0", -cudaErrorInvalidDevice, "");
  printf("twice, by number and by uuid: %s", With(("0," + all.first).c_str()).output.c_str());
  add("unknown", "777", -cudaErrorNoDevice, "");
  add("known, unknown", "0,777,0", 1, all.first);
  add("uuid", all.last.c_str(), 1, all.last);
  // As much of it as tells the devices apart.
  size_t length = 4;
  while (length < all.first.size() && all.count > 1 && all.first.compare(0, length, all.last, 0, length) == 0) ++length;
  add("beginning of uuid", all.first.substr(0, all.count > 1 ? length : 12).c_str(), 1, all.first);
  add("spaces", " 0", 1, all.first);
  if (all.count == 2) {
    const Seen turned = With("1,0");
    results.AddValue<uint32_t>("another order",
                               turned.count == 2 && turned.first == all.last && turned.last == all.first);
  } else {
    results.AddValue<uint32_t>("another order", 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return Child();
  return check::RunProgram(argc, argv, Reference, Device);
}
