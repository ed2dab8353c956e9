// A kernel launch as a value: what to run and what memory it reads and writes. A kernel's work is a struct (its
// parameters) that is called for each row and environment. Its constructor gets at memory through Declared only, so
// what is not declared cannot be used.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace rigidsim {

struct Segment {
  uintptr_t begin, end;
  bool Overlaps(const Segment& other) const { return begin < other.end && other.begin < end; }
};

// `rows` times `columns` elements; of most arrays a column is an environment.
template <class T>
struct Array {
  T* pointer = nullptr;
  int rows = 0, columns = 0;
};

class Declared {
 public:
  template <class T>
  const T* Reads(const Array<T>& array) {
    return Reads(array, 0, array.rows);
  }
  template <class T>
  const T* Reads(const Array<T>& array, int first, int rows) {
    Note(&reads, array, first, rows);
    return array.pointer;
  }
  template <class T>
  T* Writes(const Array<T>& array) {
    return Writes(array, 0, array.rows);
  }
  template <class T>
  T* Writes(const Array<T>& array, int first, int rows) {
    Note(&writes, array, first, rows);
    return array.pointer;
  }
  template <class T>
  T* Updates(const Array<T>& array) {
    Reads(array);
    return Writes(array);
  }

  std::vector<Segment> reads, writes;

 private:
  template <class T>
  static void Note(std::vector<Segment>* list, const Array<T>& array, int first, int rows) {
    if (rows == 0) return;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(array.pointer + static_cast<size_t>(first) * array.columns);
    list->push_back({begin, begin + sizeof(T) * rows * array.columns});
  }
};

struct Launch {
  static constexpr int kThreads = 128;

  const char* name;
  const void* function;
  dim3 grid;  // y: the row
  alignas(16) char parameters[256];
  void (*on_host)(const Launch& launch);  // the same work in a loop
  Declared declared;
};

template <class Work>
void RunOnHost(const Launch& launch) {
  Work work = *reinterpret_cast<const Work*>(launch.parameters);
  for (unsigned row = 0; row < launch.grid.y; ++row) {
    for (int e = 0; e < work.environments; ++e) work(static_cast<int>(row), e);
  }
}

template <class Work>
Launch MakeLaunch(const char* name, const void* function, const Work& work, int rows, const Declared& declared) {
  static_assert(sizeof(Work) <= sizeof(Launch::parameters), "more parameters than a launch holds");
  Launch launch{};
  launch.name = name;
  launch.function = function;
  launch.grid = dim3((work.environments + Launch::kThreads - 1) / Launch::kThreads, rows);
  memcpy(launch.parameters, &work, sizeof(work));
  launch.on_host = RunOnHost<Work>;
  launch.declared = declared;
  return launch;
}

}  // namespace rigidsim
