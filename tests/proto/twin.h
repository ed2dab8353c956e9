// Twin structs: the expected layout written down a second time, by offset. A
// field that moves, grows or vanishes fails here even if somebody "fixed" the
// static_assert beside the struct.
#pragma once

#include <cstddef>
#include <type_traits>

#define EXPECT_FIELD(type, field, offset, bytes)                                                        \
  static_assert(offsetof(type, field) == (offset), #type "::" #field " moved: raise kProtocolVersion"); \
  static_assert(sizeof(type::field) == (bytes), #type "::" #field " changed size: raise kProtocolVersion")

#define EXPECT_PLAIN(type, bytes)                                                        \
  static_assert(sizeof(type) == (bytes), #type " changed size: raise kProtocolVersion"); \
  static_assert(std::is_standard_layout_v<type> && std::is_trivially_copyable_v<type>)
