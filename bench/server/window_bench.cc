// What it costs to know what a launch touches: of one seen before, which is what a window pays for every launch; and of
// a new one.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "server/executor/driver/devices.h"
#include "server/executor/driver/driver_libraries.h"
#include "server/executor/issue/access_finder.h"
#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_stream.h"
#include "server/executor/session/window_memory.h"

namespace tally::server {
namespace {

constexpr uint64_t kArrays = uint64_t{7} << 40;
constexpr uint64_t kArrayBytes = uint64_t{1} << 20;
constexpr uint32_t kNumArrays = 4;

// out[i] = a * x[i] + y[i] + table[i], in rows of a matrix.
constexpr const char* kText = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry rows(.param .u64 out, .param .u64 x, .param .u64 y, .param .u64 table, .param .f32 a,
                     .param .u32 width, .param .u32 height, .param .u32 pitch)
{
	.reg .b32 %r<16>;
	.reg .b64 %rd<16>;
	.reg .f32 %f<8>;
	.reg .pred %p<4>;
	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [x];
	ld.param.u64 %rd3, [y];
	ld.param.u64 %rd4, [table];
	ld.param.f32 %f1, [a];
	ld.param.u32 %r1, [width];
	ld.param.u32 %r2, [height];
	ld.param.u32 %r3, [pitch];
	mov.u32 %r4, %ctaid.x;
	mov.u32 %r5, %ntid.x;
	mov.u32 %r6, %tid.x;
	mad.lo.s32 %r7, %r4, %r5, %r6;
	mov.u32 %r8, %ctaid.y;
	setp.ge.s32 %p1, %r7, %r1;
	setp.ge.s32 %p2, %r8, %r2;
	or.pred %p3, %p1, %p2;
	@%p3 bra end;
	mad.lo.s32 %r9, %r8, %r3, %r7;
	mul.wide.s32 %rd5, %r9, 4;
	add.s64 %rd6, %rd1, %rd5;
	add.s64 %rd7, %rd2, %rd5;
	add.s64 %rd8, %rd3, %rd5;
	mul.wide.s32 %rd9, %r7, 4;
	add.s64 %rd10, %rd4, %rd9;
	ld.global.f32 %f2, [%rd7];
	ld.global.f32 %f3, [%rd8];
	ld.global.f32 %f4, [%rd10];
	fma.rn.f32 %f5, %f1, %f2, %f3;
	add.f32 %f6, %f5, %f4;
	st.global.f32 [%rd6], %f6;
end:
	ret;
}
)";

struct Parameters {
  uint64_t arrays[kNumArrays] = {};
  float a = 1;
  uint32_t width = 500, height = 100, pitch = 512;
};

// A session's part in it, on the software driver.
class Launcher {
 public:
  Launcher() {
    auto loaded =
        LoadDriver({.choice = control::DriverChoice::kSim, .cuda_path = {}, .sim_path = TALLY_SIM_DRIVER_PATH});
    if (!loaded) std::abort();
    driver_ = loaded->table;
    devices_ = std::move(*Devices::Create(driver_));
    CUcontext context = nullptr;
    devices_->Context(0, &context);
    driver_.cuCtxSetCurrent(context);
    image_.bytes = std::make_shared<ImageBytes>();
    const auto text = std::as_bytes(std::span(kText, std::strlen(kText) + 1));
    image_.bytes->bytes.assign(text.begin(), text.end());
    driver_.cuModuleLoadDataEx(&image_.module, kText, 0, nullptr, nullptr);
    kernel_.image = &image_;
    driver_.cuModuleGetFunction(&kernel_.function, image_.module, "rows");
    kernel_.layout = {{0, 8}, {8, 8}, {16, 8}, {24, 8}, {32, 4}, {36, 4}, {40, 4}, {44, 4}};
    kernel_.parameter_bytes = sizeof(Parameters);
    for (uint32_t k = 0; k < 1000; ++k) map_.Add({kArrays + k * kArrayBytes, kArrayBytes, MemoryKind::kDevice});
    finder_.emplace(driver_, *devices_, compiler_, memory_);
    launch_.kernel = &kernel_;
    launch_.stream = &stream_;
    launch_.shape = {{4, 100, 1}, {128, 1, 1}, 0};
    while (Of(0).barrier != nullptr) std::this_thread::yield();
  }
  const LaunchAccesses& Of(uint32_t number, uint32_t width = 500) {
    Parameters parameters;
    for (uint32_t k = 0; k < kNumArrays; ++k) parameters.arrays[k] = kArrays + (number + k) % 1000 * kArrayBytes;
    parameters.width = width;
    launch_.parameters.Assign(std::as_bytes(std::span(&parameters, 1)));
    launch_.parameter_bytes = sizeof(parameters);
    return finder_->Of(launch_);
  }
  void Allocate() {
    map_.Add({kArrays - kArrayBytes, kArrayBytes, MemoryKind::kDevice});
    map_.Take(kArrays - kArrayBytes, MemoryKind::kDevice, MemoryKind::kDevice);
  }

 private:
  DriverTable driver_;
  std::unique_ptr<Devices> devices_;
  SegmentCompiler compiler_;
  MemoryMap map_;
  const WindowMemory memory_{map_};
  std::optional<AccessFinder> finder_;
  LoadedImage image_;
  Kernel kernel_;
  LaunchStream stream_;
  PendingLaunch launch_;
};

void AccessesOfALaunchSeenBefore(benchmark::State& state) {
  Launcher launcher;
  const auto num_different = static_cast<uint32_t>(state.range(0));
  uint32_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(&launcher.Of(next++ % num_different));
}
BENCHMARK(AccessesOfALaunchSeenBefore)->Arg(1)->Arg(64)->Arg(512);

void AccessesOfANewLaunch(benchmark::State& state) {
  Launcher launcher;
  uint32_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(&launcher.Of(0, next++ % 1'000'000 + 1));
}
BENCHMARK(AccessesOfANewLaunch);

void AccessesAfterAnAllocation(benchmark::State& state) {
  Launcher launcher;
  for (auto _ : state) {
    launcher.Allocate();
    benchmark::DoNotOptimize(&launcher.Of(0));
  }
}
BENCHMARK(AccessesAfterAnAllocation);

}  // namespace
}  // namespace tally::server
