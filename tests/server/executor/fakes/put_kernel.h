// A kernel whose launches show in which order they ran.
#pragma once

#include <cstdint>

namespace tally::fakes {

// put(word, factor, addend): *word = *word * factor + addend
inline constexpr const char* kPut = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry put(.param .u64 word, .param .u32 factor, .param .u32 addend)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  ld.param.u32 %r1, [factor];
  ld.param.u32 %r2, [addend];
  ld.global.u32 %r3, [%rd1];
  mad.lo.u32 %r3, %r3, %r1, %r2;
  st.global.u32 [%rd1], %r3;
  ret;
}
)";
inline constexpr uint64_t kWordBytes = 4;

}  // namespace tally::fakes
