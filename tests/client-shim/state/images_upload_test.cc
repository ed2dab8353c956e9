#include "client-shim/state/images_upload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/client-shim/shim_child.h"

namespace tally::client_shim {
namespace {

std::string LongText() {
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
  for (int line = 0; text.size() < 300'001; ++line) text += "// line " + std::to_string(line) + "\n";
  return text;
}

TEST(ImagesUpload, AnImageOfManyPiecesArrivesWhole) {
  FakeExecutor executor;
  ScriptKernel(&executor);
  EXPECT_EQ(RunInChild(executor.socket_path(),
                       [] {
                         if (Begin() != 0) return 1;
                         CUmodule module = nullptr;
                         const std::string text = LongText();
                         REQUIRE(SHIM(cuModuleLoadData)(&module, text.c_str()) == CUDA_SUCCESS);
                         return 0;
                       }),
            0);
  std::string arrived;
  uint32_t image = 0;
  int num_pieces = 0;
  for (const FakeRequest& request : executor.requests()) {
    if (request.op == static_cast<uint16_t>(shm::Op::kLoadModule)) {
      EXPECT_EQ(request.Read<shm::LoadImage>().image, image);
      EXPECT_EQ(request.Read<shm::LoadImage>().format, static_cast<uint32_t>(shm::ImageFormat::kPtx));
    }
    if (request.op != static_cast<uint16_t>(shm::Op::kWriteImage)) continue;
    const auto piece = request.Read<shm::WriteImage>();
    EXPECT_EQ(piece.offset_bytes, arrived.size());
    EXPECT_EQ(piece.total_bytes, LongText().size() + 1);
    ASSERT_EQ(request.payload.size(), sizeof(piece) + piece.size_bytes);
    arrived.append(reinterpret_cast<const char*>(request.payload.data()) + sizeof(piece), piece.size_bytes);
    image = piece.image;
    ++num_pieces;
  }
  EXPECT_GT(num_pieces, 2);
  EXPECT_EQ(arrived, LongText() + '\0');
}

// What the compiler says may be longer than what the program has room for.
TEST(ImagesUpload, LogsEndInsideTheProgramsBuffers) {
  FakeExecutor executor;
  const std::string info = "information", error = "an error at line 7";
  executor.On(shm::Op::kLoadModule, [&](const FakeRequest& request, FakeReply* reply) {
    const auto load = request.Read<shm::LoadImage>();
    EXPECT_EQ(load.info_log_bytes, 64u);
    EXPECT_EQ(load.error_log_bytes, 8u);
    reply->result = CUDA_ERROR_INVALID_PTX;
    reply->Append(shm::LoadedImage{0, static_cast<uint32_t>(info.size()), static_cast<uint32_t>(error.size())});
    for (const std::string& log : {info, error}) {
      for (const char c : log) reply->Append(c);
      while (reply->payload.size() % 8 != 0) reply->Append('\0');
    }
  });
  EXPECT_EQ(
      RunInChild(executor.socket_path(),
                 [] {
                   if (Begin() != 0) return 1;
                   CUmodule module = nullptr;
                   char info_log[65], error_log[9];
                   std::memset(info_log, '?', sizeof(info_log));
                   std::memset(error_log, '?', sizeof(error_log));
                   CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                                             CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
                   void* values[] = {info_log, reinterpret_cast<void*>(64), error_log, reinterpret_cast<void*>(8)};
                   const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
                   REQUIRE(SHIM(cuModuleLoadDataEx)(&module, ptx, 4, options, values) == CUDA_ERROR_INVALID_PTX);
                   REQUIRE(std::strcmp(info_log, "information") == 0);
                   REQUIRE(std::strcmp(error_log, "an erro") == 0);
                   REQUIRE(error_log[8] == '?' && info_log[64] == '?');
                   REQUIRE(values[1] == reinterpret_cast<void*>(11) && values[3] == reinterpret_cast<void*>(7));
                   return 0;
                 }),
      0);
}

}  // namespace
}  // namespace tally::client_shim
