// What the executor costs per request, over a driver that does nothing: ring, ticket, validation, handle tables, reply.
#include <benchmark/benchmark.h>

#include "proto/driver/generated/wire_ops.h"
#include "server/executor.h"
#include "tests/server/fakes/fake_driver.h"
#include "tests/server/fakes/scripted_client.h"

namespace tally::fakes {
namespace {

using shm::Op;

// One session with one lane and a kernel.
struct Bed {
  Bed() {
    table = driver.table();
    // The fake keeps a trace and takes a lock; here only the executor is to be seen.
    table.cuLaunchKernel = [](CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                              unsigned int, unsigned int, CUstream, void**,
                              void**) -> CUresult { return CUDA_SUCCESS; };
    table.cuEventRecord = [](CUevent, CUstream) -> CUresult { return CUDA_SUCCESS; };
    table.cuEventSynchronize = [](CUevent) -> CUresult { return CUDA_SUCCESS; };
    server::ExecutorConfig config;
    config.driver_table_for_testing = &table;
    executor = std::move(*server::Executor::Create(config));
    auto pair = CreateSocketPair();
    server::SessionIdentity identity;
    identity.session_id = 1;
    static_cast<void>(executor->AddSession(std::move(pair->first), identity));
    client = std::make_unique<ScriptedClient>(std::move(pair->second));
    client->Attach();
    lane = client->OpenLane();
    const std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
    const shm::WriteImage piece{1, static_cast<uint32_t>(text.size() + 1), text.size() + 1, 0};
    lane->Post(Op::kWriteImage, Payload().Put(piece).PutBytes(text.c_str(), text.size() + 1));
    shm::LoadImage load{};
    load.image = 1;
    load.format = static_cast<uint32_t>(shm::ImageFormat::kPtx);
    const auto module = lane->Call(Op::kLoadModule, Payload().Put(load)).Get<shm::LoadedImage>().handle;
    const shm::GetByName get{module, 6, 0};
    kernel = lane->Call(Op::kGetFunction, Payload().Put(get).PutBytes("kernel", 6)).Get<uint64_t>();
  }

  FakeDriver driver;
  server::DriverTable table;
  std::unique_ptr<server::Executor> executor;
  std::unique_ptr<ScriptedClient> client;
  std::unique_ptr<ScriptedLane> lane;
  uint64_t kernel = 0;
};

void BM_Launches(benchmark::State& state) {
  Bed bed;
  shm::Launch launch{};
  launch.function = bed.kernel;
  launch.stream = 1;
  launch.parameter_bytes = 24;
  const std::string parameters(24, 'p');
  const Payload payload = Payload().Put(launch).PutBytes(parameters.data(), parameters.size());
  for (auto _ : state) {
    for (int i = 0; i < 1000; ++i) bed.lane->Post(Op::kLaunch, payload);
    bed.lane->Call(Op::kSynchronizeStream, Payload().PutWord(1));
  }
  state.SetItemsProcessed(state.iterations() * 1000);
}
BENCHMARK(BM_Launches)->UseRealTime();

void BM_RoundTrip(benchmark::State& state) {
  Bed bed;
  for (auto _ : state) bed.lane->CallNumber(kOp_cuCtxGetLimit, Payload().PutWord(0));
}
BENCHMARK(BM_RoundTrip)->UseRealTime();

void BM_LaunchAndSynchronize(benchmark::State& state) {
  Bed bed;
  shm::Launch launch{};
  launch.function = bed.kernel;
  launch.stream = 1;
  launch.parameter_bytes = 24;
  const std::string parameters(24, 'p');
  const Payload payload = Payload().Put(launch).PutBytes(parameters.data(), parameters.size());
  for (auto _ : state) {
    bed.lane->Post(Op::kLaunch, payload);
    bed.lane->Call(Op::kSynchronizeStream, Payload().PutWord(1));
  }
}
BENCHMARK(BM_LaunchAndSynchronize)->UseRealTime();

}  // namespace
}  // namespace tally::fakes
