#include "server/executor/issue/access_finder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>

#include "server/executor/issue/kernel_code.h"
#include "server/executor/issue/launch_stream.h"
#include "tests/server/executor/issue/launch_attributes.h"
#include "tests/server/executor/issue/listed_memory.h"
#include "tests/server/executor/issue/sim_device.h"

namespace tally::server {
namespace {

constexpr uint64_t kArray = uint64_t{7} << 40;

// Writes p[index[i]] for i < n, and a variable of its own; `scale` decides about no address.
constexpr const char* kScatter = R"(.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 count;
.visible .entry scatter(.param .u64 p, .param .u64 index, .param .f32 scale, .param .u32 n)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<8>;
	.reg .f32 %f<2>;
	.reg .pred %p<2>;
	ld.param.u64 %rd1, [p];
	ld.param.u64 %rd2, [index];
	ld.param.f32 %f1, [scale];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	setp.ge.u32 %p1, %r2, %r1;
	@%p1 bra end;
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.u32 %r3, [%rd4];
	mul.wide.u32 %rd5, %r3, 4;
	add.s64 %rd6, %rd1, %rd5;
	st.global.f32 [%rd6], %f1;
	mov.u64 %rd7, count;
	red.global.add.u32 [%rd7], 1;
end:
	ret;
}
)";

struct Parameters {
  uint64_t p = kArray;
  uint64_t index = kArray + 65536;
  float scale = 1;
  uint32_t n = 32;
};

class AccessFinderTest : public SimDeviceTest {
 protected:
  void SetUp() override {
    SimDeviceTest::SetUp();
    auto devices = Devices::Create(driver_);
    ASSERT_TRUE(devices) << devices.error().ToString();
    devices_ = std::move(*devices);
    memory_.Set({{kArray, 512}, {kArray + 65536, 4096}});
    finder_.emplace(driver_, *devices_, compiler_, memory_);
  }

  // `shown`: what the executor has as its image; the driver has `text`.
  Kernel& Load(const std::string& text, const char* name, const std::string& shown) {
    LoadedImage& image = images_.emplace_back();
    image.bytes = std::make_shared<ImageBytes>();
    const auto bytes = std::as_bytes(std::span(shown.c_str(), shown.size() + 1));
    image.bytes->bytes.assign(bytes.begin(), bytes.end());
    EXPECT_EQ(driver_.cuModuleLoadDataEx(&image.module, text.c_str(), 0, nullptr, nullptr), CUDA_SUCCESS);
    Kernel& kernel = kernels_.emplace_back();
    kernel.image = &image;
    EXPECT_EQ(driver_.cuModuleGetFunction(&kernel.function, image.module, name), CUDA_SUCCESS);
    kernel.layout = {{0, 8}, {8, 8}, {16, 4}, {20, 4}};
    kernel.parameter_bytes = 24;
    return kernel;
  }
  Kernel& Load(const std::string& text = kScatter) { return Load(text, "scatter", text); }

  void Set(Kernel& kernel, Parameters parameters = {}) {
    launch_.kernel = &kernel;
    launch_.stream = &stream_;
    launch_.shape = {{1, 1, 1}, {64, 1, 1}, 0};
    launch_.parameters.Assign(std::as_bytes(std::span(&parameters, 1)));
    launch_.parameter_bytes = sizeof(parameters);
  }
  const LaunchAccesses& Of(Kernel& kernel, Parameters parameters = {}) {
    Set(kernel, parameters);
    for (;;) {
      const LaunchAccesses& accesses = finder_->Of(launch_);
      if (accesses.barrier == nullptr || std::string(accesses.barrier) != "not-yet") return accesses;
    }
  }
  static std::string BarrierOf(const LaunchAccesses& accesses) {
    return accesses.barrier != nullptr ? accesses.barrier : "";
  }
  // Of the box that is written.
  static std::pair<uint64_t, uint64_t> Written(const LaunchAccesses& accesses) {
    for (const scheduler::Access& access : accesses.accesses) {
      if (access.kind == scheduler::AccessKind::kWrite) return {access.box.begin(), access.box.length()};
    }
    return {};
  }
  static uint64_t Counted(const LaunchAccesses& accesses) {
    for (const scheduler::Access& access : accesses.accesses) {
      if (access.kind == scheduler::AccessKind::kReadWrite) return access.box.begin();
    }
    return 0;
  }
  uint64_t AddressOfCount(const Kernel& kernel) {
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_.cuModuleGetGlobal_v2(&address, nullptr, kernel.image->module, "count"), CUDA_SUCCESS);
    return address;
  }

  std::unique_ptr<Devices> devices_;
  SegmentCompiler compiler_;
  ListedMemory memory_;
  std::optional<AccessFinder> finder_;
  std::deque<LoadedImage> images_;
  std::deque<Kernel> kernels_;
  LaunchStream stream_;
  PendingLaunch launch_;
};

TEST_F(AccessFinderTest, NeverWaits) {
  SegmentCompiler busy(false, {.questions = 0});
  AccessFinder finder(driver_, *devices_, busy, memory_);
  Set(Load());
  const LaunchAccesses& accesses = finder.Of(launch_);
  EXPECT_EQ(BarrierOf(accesses), "not-yet");
  EXPECT_EQ(accesses.extent, scheduler::Extent::kAnything);
  EXPECT_EQ(BarrierOf(Of(*launch_.kernel)), "") << "it is asked again";
}

TEST_F(AccessFinderTest, FindsBoxesAndRemembersThem) {
  Kernel& kernel = Load();
  const LaunchAccesses& accesses = Of(kernel);
  ASSERT_EQ(BarrierOf(accesses), "");
  EXPECT_EQ(accesses.accesses.size(), 3u);
  EXPECT_EQ(Written(accesses), std::pair(kArray, uint64_t{512}));
  EXPECT_EQ(finder_->num_evaluations(), 1u);
  EXPECT_EQ(&Of(kernel), &accesses);
  EXPECT_EQ(finder_->num_evaluations(), 1u);
}

TEST_F(AccessFinderTest, ParametersCountIfTheyDecide) {
  Kernel& kernel = Load();
  const LaunchAccesses few = Of(kernel);
  EXPECT_EQ(Of(kernel, {.scale = 2}).accesses.size(), few.accesses.size());
  EXPECT_EQ(finder_->num_evaluations(), 1u);
  const LaunchAccesses many = Of(kernel, {.n = 64});
  EXPECT_EQ(finder_->num_evaluations(), 2u);
  EXPECT_NE(few.accesses[0].box.length() + few.accesses[1].box.length() + few.accesses[2].box.length(),
            many.accesses[0].box.length() + many.accesses[1].box.length() + many.accesses[2].box.length());
  EXPECT_EQ(BarrierOf(Of(kernel, {.p = kArray + 1024})), "unknown-memory");
}

TEST_F(AccessFinderTest, GridAndBlockCount) {
  Kernel& kernel = Load();
  Of(kernel);
  Set(kernel);
  launch_.shape.block[0] = 16;
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "");
  EXPECT_EQ(finder_->num_evaluations(), 2u);
}

TEST_F(AccessFinderTest, MemoryThatWasFreedAndAllocatedAnewHasNewBoxes) {
  Kernel& kernel = Load();
  EXPECT_EQ(Written(Of(kernel)).second, 512u);
  memory_.Set({{kArray, 2048}, {kArray + 65536, 4096}});
  EXPECT_EQ(Written(Of(kernel)).second, 2048u);
  memory_.Set({{kArray + 65536, 4096}});
  EXPECT_EQ(BarrierOf(Of(kernel)), "unknown-memory");
  memory_.Set({{kArray, 512, LaunchMemory::Sort::kHost}, {kArray + 65536, 4096}});
  EXPECT_EQ(BarrierOf(Of(kernel)), "host-memory");
}

TEST_F(AccessFinderTest, AllocationsElsewhereCostNoEvaluation) {
  Kernel& kernel = Load();
  Of(kernel);
  memory_.Set({{kArray, 512}, {kArray + 65536, 4096}, {kArray + (1 << 20), 4096}});
  EXPECT_EQ(Written(Of(kernel)).second, 512u);
  EXPECT_EQ(finder_->num_evaluations(), 1u);
}

TEST_F(AccessFinderTest, AVariableIsThatOfTheKernelsOwnModule) {
  Kernel& one = Load();
  Kernel& other = Load();
  ASSERT_NE(AddressOfCount(one), AddressOfCount(other));
  EXPECT_EQ(Counted(Of(one)), AddressOfCount(one));
  EXPECT_EQ(Counted(Of(other)), AddressOfCount(other)) << "same name, same text, same parameters";
}

TEST_F(AccessFinderTest, ALibrarysModuleHasTheLibrarysText) {
  Kernel& kernel = Load();
  LoadedImage& library = images_.emplace_back();
  library.bytes = std::move(kernel.image->bytes);
  kernel.image->library_image = &library;
  EXPECT_EQ(BarrierOf(Of(kernel)), "");
}

TEST_F(AccessFinderTest, OtherCodeInTheSamePlaceIsAnotherKernel) {
  Kernel& kernel = Load();
  EXPECT_EQ(Written(Of(kernel)), std::pair(kArray, uint64_t{512}));
  // As when an image is unloaded and the next one lies where it lay.
  kernel.accesses.reset();
  std::string changed = kScatter;
  changed.replace(changed.find("st.global.f32 [%rd6]"), 20, "st.global.f32 [%rd4]");
  const auto bytes = std::as_bytes(std::span(changed.c_str(), changed.size() + 1));
  kernel.image->bytes = std::make_shared<ImageBytes>();
  kernel.image->bytes->bytes.assign(bytes.begin(), bytes.end());
  EXPECT_EQ(Written(Of(kernel)), std::pair(kArray + 65536, uint64_t{128}));
}

TEST_F(AccessFinderTest, WithoutPtxNothingIsGuessed) {
  Kernel& kernel = Load(kScatter, "scatter",
                        "\x7f"
                        "ELF machine code");
  EXPECT_EQ(BarrierOf(Of(kernel)), "no-ptx");
  EXPECT_EQ(finder_->num_evaluations(), 0u);
}

TEST_F(AccessFinderTest, TextThatIsNotTheKernelsIsNotBelieved) {
  Kernel& kernel = Load();
  kernel.layout[2].size_bytes = 8;
  EXPECT_EQ(BarrierOf(Of(kernel)), "parameters");
  Kernel& longer = Load();
  longer.layout.push_back({24, 8});
  longer.parameter_bytes = 32;
  EXPECT_EQ(BarrierOf(Of(longer)), "parameters");
}

TEST_F(AccessFinderTest, LaunchesThatAreNotPlain) {
  Kernel& kernel = Load();
  Of(kernel);
  launch_.flags = shm::kLaunchCooperative;
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "cooperative");
  launch_.flags = shm::kLaunchExtra;
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "parameters");
  launch_.flags = 0;
  launch_.attributes = {Clusters()};
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "attributes");
  launch_.attributes = {Programmatic()};
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "");
  launch_.attributes.clear();
  launch_.parameter_bytes = 20;
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "parameters");
  launch_.parameter_bytes = 24;
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "");
}

TEST_F(AccessFinderTest, BytesBehindTheParametersAreNotLookedAt) {
  Kernel& kernel = Load();
  Of(kernel);
  launch_.parameters.Resize(64);
  launch_.parameters.data()[40] = std::byte{1};
  launch_.parameter_bytes = 64;
  EXPECT_EQ(BarrierOf(finder_->Of(launch_)), "");
  EXPECT_EQ(finder_->num_evaluations(), 1u);
}

}  // namespace
}  // namespace tally::server
