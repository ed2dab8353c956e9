// gate_matrix: are gated kernels, stopped and resumed at random, the same as the originals? And what do gates cost?
// Needs an H100 or H200 (its kernels are sm_90 machine code, gated when this was built) and no Tally. See README.md
// here.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "tests/gpu/gate_matrix/matrix.h"
#include "tests/gpu/gate_matrix/timing.h"

// The cubins, by .incbin: what nvcc made of kernels.cu, and what cubin-gate made of that; the same of relocatable code,
// which is linked in between.
#define TALLY_EMBED(name) ".balign 128\n" #name "_cubin: .incbin \"" TALLY_CUBINS #name ".cubin\"\n"
asm(".section .rodata\n" TALLY_EMBED(whole) TALLY_EMBED(whole_gated)
        TALLY_EMBED(relocatable) "relocatable_cubin_end:\n" TALLY_EMBED(relocatable_gated) ".text\n");
extern const char whole_cubin[];
extern const char whole_gated_cubin[];
extern const char relocatable_cubin[];
extern const char relocatable_cubin_end[];
extern const char relocatable_gated_cubin[];

namespace tally::gate_matrix {
namespace {

struct Arguments {
  std::string driver = "libcuda.so.1";
  std::string only = ".";
  std::string output;
  uint32_t runs = 25;
  uint32_t seed = 1;
  bool is_relocatable = false;
  bool skip_timing = false;
};

Arguments arguments;
nlohmann::ordered_json report;

void Save() {
  if (arguments.output.empty()) return;
  std::ofstream file(arguments.output);
  file << report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void SaveFailure(const std::string& what) {
  report["failure"] = what;
  Save();
}

void Add(const ItemResult& result) {
  std::printf("%s %-26s %6.0f us, %3u runs, %4u stops, %4u inside a kernel, %2u before%s%s\n",
              result.is_passed() ? "PASS" : "FAIL", result.name.c_str(), result.original_us, result.num_runs,
              result.num_stops, result.num_inside, result.num_before, result.is_passed() ? "" : ": ",
              result.failure.c_str());
  std::fflush(stdout);
  report["items"].push_back({{"name", result.name},
                             {"passed", result.is_passed()},
                             {"failure", result.failure},
                             {"original_us", result.original_us},
                             {"runs", result.num_runs},
                             {"stops", result.num_stops},
                             {"stops_inside", result.num_inside},
                             {"stopped_before", result.num_before}});
  Save();
}

Streams Start() {
  OpenDriver(arguments.driver);
  CHECK_DRIVER(cuInit(0));
  CUdevice device = 0;
  CUcontext context = nullptr;
  CHECK_DRIVER(cuDeviceGet(&device, 0));
  char name[256] = {};
  int version = 0, major = 0, minor = 0, lowest = 0, highest = 0;
  CHECK_DRIVER(cuDeviceGetName(name, sizeof(name), device));
  CHECK_DRIVER(cuDriverGetVersion(&version));
  CHECK_DRIVER(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  CHECK_DRIVER(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  if (major != 9 || minor != 0) Die(std::string(name) + " is not of capability 9.0");
  report["device"] = name;
  report["driver"] = version;
  report["seed"] = arguments.seed;
  report["relocatable"] = arguments.is_relocatable;
  report["items"] = nlohmann::ordered_json::array();
  std::printf("%s, driver API %d\n", name, version);
  CHECK_DRIVER(cuDevicePrimaryCtxRetain(&context, device));
  CHECK_DRIVER(cuCtxSetCurrent(context));
  CHECK_DRIVER(cuCtxGetStreamPriorityRange(&lowest, &highest));
  Streams streams;
  CHECK_DRIVER(cuStreamCreateWithPriority(&streams.work, CU_STREAM_NON_BLOCKING, lowest));
  CHECK_DRIVER(cuStreamCreateWithPriority(&streams.control, CU_STREAM_NON_BLOCKING, highest));
  return streams;
}

CUmodule Load(const void* cubin) {
  CUmodule module = nullptr;
  CHECK_DRIVER(cuModuleLoadData(&module, cubin));
  return module;
}

// The driver also loads relocatable code as it is, but then says of a kernel with shared memory, or with a name that is
// elsewhere, that its image is invalid (580.159.04, H100): it has to be asked to link.
CUmodule LinkAndLoad(const char* begin, const char* end) {
  CUlinkState link = nullptr;
  void* linked = nullptr;
  size_t linked_bytes = 0;
  CHECK_DRIVER(cuLinkCreate_v2(0, nullptr, nullptr, &link));
  CHECK_DRIVER(cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, const_cast<char*>(begin), static_cast<size_t>(end - begin),
                                "relocatable", 0, nullptr, nullptr));
  CHECK_DRIVER(cuLinkComplete(link, &linked, &linked_bytes));
  return Load(linked);
}

void Time(const Streams& streams, CUmodule original, CUmodule gated) {
  std::printf("\ncost: us a launch in a graph     original      off  committed  fresh, chunk 4096  16384\n");
  for (const CostResult& cost : MeasureCosts(streams, original, gated)) {
    std::printf("%-32s %9.3f %+8.3f  %+9.3f  %+17.3f %+6.3f\n", cost.name.c_str(), cost.original_us,
                cost.off_us - cost.original_us, cost.committed_us - cost.original_us, cost.fresh_us - cost.original_us,
                cost.fresh_large_us - cost.original_us);
    report["costs"].push_back({{"name", cost.name},
                               {"original_us", cost.original_us},
                               {"off_us", cost.off_us},
                               {"committed_us", cost.committed_us},
                               {"fresh_4096_us", cost.fresh_us},
                               {"fresh_16384_us", cost.fresh_large_us}});
  }
  Save();
  std::printf("\nfrom the flag to an idle stream             chunk   p50 us   p99 us   max us   blocks left\n");
  for (const StopResult& stop : MeasureStops(streams, gated)) {
    std::printf("%-42s %6u %8.1f %8.1f %8.1f %13u\n", stop.name.c_str(), stop.chunk, stop.p50_us, stop.p99_us,
                stop.max_us, stop.median_left);
    report["stops"].push_back({{"name", stop.name},
                               {"chunk", stop.chunk},
                               {"runs", stop.num_runs},
                               {"p50_us", stop.p50_us},
                               {"p99_us", stop.p99_us},
                               {"max_us", stop.max_us},
                               {"blocks_left", stop.median_left}});
  }
}

int Run() {
  OnFailure(SaveFailure);
  const Streams streams = Start();
  CUmodule original =
      arguments.is_relocatable ? LinkAndLoad(relocatable_cubin, relocatable_cubin_end) : Load(whole_cubin);
  CUmodule gated = Load(arguments.is_relocatable ? relocatable_gated_cubin : whole_gated_cubin);
  Matrix matrix(streams, original, gated);
  uint32_t num_passed = 0, num_failed = 0;
  const auto count = [&](const ItemResult& result) {
    Add(result);
    ++(result.is_passed() ? num_passed : num_failed);
    return result.is_passed();
  };
  if (count(matrix.RunCanary())) {
    const std::regex only(arguments.only);
    std::mt19937 random(arguments.seed);
    for (const Item& item : Items())
      if (std::regex_search(item.name, only)) count(matrix.Run(item, arguments.runs, random));
    if (!arguments.skip_timing) Time(streams, original, gated);
  }
  Save();
  std::printf("\n%u passed, %u failed\n", num_passed, num_failed);
  return num_failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tally::gate_matrix

int main(int argc, char** argv) {
  auto& arguments = tally::gate_matrix::arguments;
  CLI::App app("Stops and resumes gated kernels at random and compares them with the originals.", "gate_matrix");
  app.footer("Exit status: 0 all passed, 1 something failed, 3 the driver failed or the GPU is stuck.");
  app.add_option("--driver", arguments.driver, "the CUDA driver library; default: libcuda.so.1");
  app.add_option("--only", arguments.only, "only items whose names match this regular expression");
  app.add_option("--runs", arguments.runs, "runs with random stops of each item; default: 25");
  app.add_option("--seed", arguments.seed, "of the random stops; default: 1");
  app.add_option("--output", arguments.output, "where the results go as JSON");
  app.add_flag("--relocatable", arguments.is_relocatable,
               "kernels that the driver links when it loads them, against their gated form, which was linked before");
  app.add_flag("--skip-timing", arguments.skip_timing, "measure no costs");
  CLI11_PARSE(app, argc, argv);
  return tally::gate_matrix::Run();
}
