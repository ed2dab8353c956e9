// Arrays, texture and surface objects and tensor maps: what of a client's descriptions reaches the driver.
#include "server/executor/session/texture_ops.h"

#include <algorithm>
#include <set>

#include "proto/driver/generated/wire_ops.h"
#include "tests/server/executor/fakes/executor_fixture.h"

namespace tally::fakes {
namespace {

// The driver's side, as far as these chapters go. One executor at a time.
struct FakeTextures {
  uintptr_t next = 0x5000;
  std::set<uintptr_t> arrays, mipmaps;
  std::set<unsigned long long> objects;
  std::map<std::pair<uintptr_t, unsigned>, uintptr_t> levels;
  CUDA_RESOURCE_DESC resource{};  // of the last object made
  void* tensor_address = nullptr;
};
FakeTextures* fake = nullptr;

template <typename T>
CUresult MakeIn(std::set<uintptr_t>& alive, T* out) {
  alive.insert(fake->next += 16);
  *out = reinterpret_cast<T>(fake->next);
  return CUDA_SUCCESS;
}
template <typename T>
CUresult DropFrom(std::set<uintptr_t>& alive, T value) {
  return alive.erase(reinterpret_cast<uintptr_t>(value)) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult MakeObject(unsigned long long* object, const CUDA_RESOURCE_DESC* resource) {
  fake->resource = *resource;
  *object = fake->next += 16;
  fake->objects.insert(*object);
  return CUDA_SUCCESS;
}
CUresult DropObject(unsigned long long object) {
  return fake->objects.erase(object) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void FillTextures(server::DriverTable& t) {
  t.cuArrayCreate_v2 = [](CUarray* array, const CUDA_ARRAY_DESCRIPTOR*) { return MakeIn(fake->arrays, array); };
  t.cuArrayDestroy = [](CUarray array) { return DropFrom(fake->arrays, array); };
  t.cuArrayGetDescriptor_v2 = [](CUDA_ARRAY_DESCRIPTOR*, CUarray array) -> CUresult {
    const auto value = reinterpret_cast<uintptr_t>(array);
    const bool is_level = std::ranges::any_of(fake->levels, [&](const auto& level) { return level.second == value; });
    return is_level || fake->arrays.contains(value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  };
  t.cuMipmappedArrayCreate = [](CUmipmappedArray* mipmap, const CUDA_ARRAY3D_DESCRIPTOR*, unsigned int) {
    return MakeIn(fake->mipmaps, mipmap);
  };
  t.cuMipmappedArrayDestroy = [](CUmipmappedArray mipmap) {
    std::erase_if(fake->levels,
                  [&](const auto& level) { return level.first.first == reinterpret_cast<uintptr_t>(mipmap); });
    return DropFrom(fake->mipmaps, mipmap);
  };
  t.cuMipmappedArrayGetLevel = [](CUarray* array, CUmipmappedArray mipmap, unsigned int level) -> CUresult {
    uintptr_t& value = fake->levels[{reinterpret_cast<uintptr_t>(mipmap), level}];
    if (value == 0) value = fake->next += 16;
    *array = reinterpret_cast<CUarray>(value);
    return CUDA_SUCCESS;
  };
  t.cuTexObjectCreate = [](CUtexObject* object, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC*,
                           const CUDA_RESOURCE_VIEW_DESC*) { return MakeObject(object, resource); };
  t.cuTexObjectDestroy = &DropObject;
  t.cuTexObjectGetTextureDesc = [](CUDA_TEXTURE_DESC* texture, CUtexObject) -> CUresult {
    texture->maxAnisotropy = 9;
    return CUDA_SUCCESS;
  };
  t.cuSurfObjectCreate = &MakeObject;
  t.cuSurfObjectDestroy = &DropObject;
  t.cuTensorMapEncodeIm2col = [](CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
                                 const cuuint64_t* dims, const cuuint64_t* strides, const int* lower, const int* upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) -> CUresult {
    fake->tensor_address = address;
    const cuuint64_t sum =
        rank + dims[3] + strides[2] + static_cast<cuuint64_t>(lower[1] + upper[1]) + channels + pixels + steps[3];
    map->opaque[15] = sum;
    return CUDA_SUCCESS;
  };
  t.cuTensorMapReplaceAddress = [](CUtensorMap* map, void* address) -> CUresult {
    fake->tensor_address = address;
    map->opaque[0] = map->opaque[15] + 1;
    return CUDA_SUCCESS;
  };
}

class TextureOpsTest : public ExecutorFixture {
 protected:
  void Configure(server::ExecutorConfig& config) override {
    table_ = driver_.table();
    FillTextures(table_);
    config.driver_table_for_testing = &table_;
  }
  void SetUp() override {
    fake = &textures_;
    ExecutorFixture::SetUp();
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    channel_ = client_->OpenChannel();
    ASSERT_NE(channel_, nullptr);
  }
  // The executor's end calls the fake, which is gone before the base class's members.
  void TearDown() override { executor_.reset(); }
  uint64_t MakeArray(ScriptedChannel& channel) {
    return channel.CallNumber(kOp_cuArrayCreate_v2, Payload().Put(CUDA_ARRAY_DESCRIPTOR{})).Get<uint64_t>();
  }
  Answer MakeTexture(ScriptedChannel& channel, const CUDA_RESOURCE_DESC& resource) {
    return channel.CallNumber(kOp_cuTexObjectCreate, Payload().Put(resource).Put(CUDA_TEXTURE_DESC{}).PutWord(0));
  }
  static CUDA_RESOURCE_DESC OfArray(uint64_t handle) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = reinterpret_cast<CUarray>(handle);
    return resource;
  }
  static CUDA_RESOURCE_DESC OfMemory(uint64_t address, uint64_t bytes) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {address, CU_AD_FORMAT_FLOAT, 1, bytes};
    return resource;
  }
  static CUDA_RESOURCE_DESC OfPitched(uint64_t address, uint64_t width, uint64_t height, uint64_t pitch) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D = {address, CU_AD_FORMAT_FLOAT, 1, width, height, pitch};
    return resource;
  }

  FakeTextures textures_;
  server::DriverTable table_;
  std::unique_ptr<ScriptedClient> client_;
  std::unique_ptr<ScriptedChannel> channel_;
};

TEST_F(TextureOpsTest, NamesInDescriptionsBecomeTheDriversHandles) {
  const uint64_t array = MakeArray(*channel_);
  const Answer made = MakeTexture(*channel_, OfArray(array));
  ASSERT_EQ(made.result, 0u);
  const auto object = made.Get<uint64_t>();
  // Kernels get the object as a parameter: it is the driver's own value.
  EXPECT_TRUE(textures_.objects.contains(object));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(textures_.resource.res.array.hArray), *textures_.arrays.begin());
  // Read back, the description names what the client named.
  const Answer read = channel_->CallNumber(kOp_cuTexObjectGetResourceDesc, Payload().PutWord(object));
  ASSERT_EQ(read.result, 0u);
  EXPECT_EQ(reinterpret_cast<uint64_t>(read.Get<CUDA_RESOURCE_DESC>().res.array.hArray), array);
  const Answer texture = channel_->CallNumber(kOp_cuTexObjectGetTextureDesc, Payload().PutWord(object));
  EXPECT_EQ(texture.Get<CUDA_TEXTURE_DESC>().maxAnisotropy, 9u);
  const Answer surface = channel_->CallNumber(kOp_cuSurfObjectCreate, Payload().Put(OfArray(array)));
  ASSERT_EQ(surface.result, 0u);
  EXPECT_EQ(channel_->CallNumber(kOp_cuSurfObjectDestroy, Payload().PutWord(surface.Get<uint64_t>())).result, 0u);
  EXPECT_EQ(channel_->CallNumber(kOp_cuTexObjectDestroy, Payload().PutWord(object)).result, 0u);
  EXPECT_TRUE(textures_.objects.empty());
  EXPECT_EQ(channel_->CallNumber(kOp_cuTexObjectDestroy, Payload().PutWord(object)).result, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TextureOpsTest, OnlyTheSessionsOwnCanBeNamed) {
  auto other = Connect();
  auto other_channel = other->OpenChannel();
  const uint64_t theirs = MakeArray(*other_channel);
  const auto their_object = MakeTexture(*other_channel, OfArray(theirs)).Get<uint64_t>();
  const uint64_t their_memory = Allocate(*other_channel, 4096);
  ASSERT_NE(their_object, 0u);
  // Handles are per session: the same number may be nobody's or one's own, never the other's.
  EXPECT_EQ(MakeTexture(*channel_, OfArray(theirs)).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(MakeTexture(*channel_, OfMemory(their_memory, 4096)).result, CUDA_ERROR_INVALID_VALUE);
  for (const uint16_t op : {kOp_cuTexObjectDestroy, kOp_cuTexObjectGetResourceDesc, kOp_cuTexObjectGetTextureDesc,
                            kOp_cuTexObjectGetResourceViewDesc, kOp_cuSurfObjectDestroy}) {
    EXPECT_EQ(channel_->CallNumber(op, Payload().PutWord(their_object)).result, CUDA_ERROR_INVALID_VALUE) << op;
  }
  EXPECT_TRUE(textures_.objects.contains(their_object));

  const uint64_t memory = Allocate(*channel_, 4096);
  EXPECT_EQ(MakeTexture(*channel_, OfMemory(memory, 4096)).result, 0u);
  EXPECT_EQ(MakeTexture(*channel_, OfMemory(memory, 4097)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(MakeTexture(*channel_, OfPitched(memory, 128, 8, 512)).result, 0u);
  EXPECT_EQ(MakeTexture(*channel_, OfPitched(memory, 129, 8, 512)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(MakeTexture(*channel_, OfPitched(memory, 128, 9, 512)).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(MakeTexture(*channel_, OfPitched(memory, ~0ull, ~0ull, ~0ull)).result, CUDA_ERROR_INVALID_VALUE);
  CUDA_RESOURCE_DESC nonsense = OfMemory(memory, 16);
  nonsense.resType = static_cast<CUresourcetype>(77);
  EXPECT_EQ(MakeTexture(*channel_, nonsense).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(channel_->CallNumber(kOp_cuSurfObjectCreate, Payload().Put(OfMemory(memory, 16))).result,
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TextureOpsTest, LevelsBelongToTheirMipmap) {
  const Answer made =
      channel_->CallNumber(kOp_cuMipmappedArrayCreate, Payload().Put(CUDA_ARRAY3D_DESCRIPTOR{}).PutWord(2));
  const auto mipmap = made.Get<uint64_t>();
  const auto level = [&](uint64_t index) {
    return channel_->CallNumber(kOp_cuMipmappedArrayGetLevel, Payload().PutWord(mipmap).PutWord(index)).Get<uint64_t>();
  };
  const auto is_known = [&](uint64_t array) {
    return channel_->CallNumber(kOp_cuArrayGetDescriptor_v2, Payload().PutWord(array)).result == 0;
  };
  const uint64_t first = level(0), second = level(1);
  EXPECT_NE(first, second);
  EXPECT_EQ(level(1), second);
  EXPECT_TRUE(is_known(second));
  EXPECT_EQ(channel_->CallNumber(kOp_cuArrayDestroy, Payload().PutWord(second)).result, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_TRUE(is_known(second));
  EXPECT_EQ(channel_->CallNumber(kOp_cuMipmappedArrayDestroy, Payload().PutWord(mipmap)).result, 0u);
  EXPECT_FALSE(is_known(first));
  EXPECT_FALSE(is_known(second));
}

TEST_F(TextureOpsTest, TensorMapsAreOfTheSessionsMemory) {
  const uint64_t memory = Allocate(*channel_, 4096);
  const auto encode = [&](uint64_t address, uint64_t num_corners) {
    const cuuint64_t dims[] = {1, 2, 3, 1000}, strides[] = {4, 5, 20000};
    const int lower[] = {0, -1}, upper[] = {0, -2};
    const cuuint32_t steps[] = {1, 1, 1, 7};
    Payload payload;
    payload.PutWord(0).PutWord(4).PutWord(address);
    payload.PutWord(4).PutBytes(dims, sizeof(dims)).PutWord(3).PutBytes(strides, sizeof(strides));
    payload.PutWord(num_corners).PutBytes(lower, 4 * num_corners);
    payload.PutWord(num_corners).PutBytes(upper, 4 * num_corners).PutWord(16).PutWord(32);
    payload.PutWord(4).PutBytes(steps, sizeof(steps)).PutWord(0).PutWord(0).PutWord(0).PutWord(0);
    return channel_->CallNumber(kOp_cuTensorMapEncodeIm2col, payload);
  };
  const Answer encoded = encode(memory, 2);
  ASSERT_EQ(encoded.result, 0u);
  EXPECT_EQ(textures_.tensor_address, reinterpret_cast<void*>(memory));
  auto map = encoded.Get<CUtensorMap>();
  EXPECT_EQ(map.opaque[15], 4u + 1000 + 20000 - 3 + 16 + 32 + 7);
  EXPECT_EQ(encode(0x10000, 2).result, CUDA_ERROR_INVALID_VALUE);
  const Answer moved = channel_->CallNumber(kOp_cuTensorMapReplaceAddress, Payload().Put(map).PutWord(memory + 64));
  ASSERT_EQ(moved.result, 0u);
  EXPECT_EQ(moved.Get<CUtensorMap>().opaque[0], map.opaque[15] + 1);
  EXPECT_EQ(textures_.tensor_address, reinterpret_cast<void*>(memory + 64));
  EXPECT_EQ(channel_->CallNumber(kOp_cuTensorMapReplaceAddress, Payload().Put(map).PutWord(0x10000)).result,
            CUDA_ERROR_INVALID_VALUE);
  // Corners have two elements less than the rank says.
  channel_->CallNumber(kOp_cuTensorMapEncodeIm2col, Payload().PutWord(0));
  client_->WaitUntilOver();
}

TEST_F(TextureOpsTest, EverythingOfADeadClientIsGone) {
  const uint64_t array = MakeArray(*channel_);
  MakeTexture(*channel_, OfArray(array));
  channel_->CallNumber(kOp_cuSurfObjectCreate, Payload().Put(OfArray(array)));
  const auto mipmap =
      channel_->CallNumber(kOp_cuMipmappedArrayCreate, Payload().Put(CUDA_ARRAY3D_DESCRIPTOR{}).PutWord(2))
          .Get<uint64_t>();
  channel_->CallNumber(kOp_cuMipmappedArrayGetLevel, Payload().PutWord(mipmap).PutWord(1));
  client_->Hangup();
  WaitForEnds(1);
  EXPECT_TRUE(textures_.objects.empty());
  EXPECT_TRUE(textures_.arrays.empty());
  EXPECT_TRUE(textures_.mipmaps.empty());
}

}  // namespace
}  // namespace tally::fakes
