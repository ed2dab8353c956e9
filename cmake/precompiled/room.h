// Read once for all rooms (cmake/tally_targets.cmake): what most files include, all of it of the standard library or
// fmt. A file of 79 lines was 122,717 after preprocessing; these were 104,674 of them.
//
// No header of our own: each change would compile everything anew. No <cuda.h>: macros change what it declares.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
