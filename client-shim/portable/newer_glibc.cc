// What glibc 2.28 does not have yet and code that is compiled here refers to all the same: our headers (stat and its
// kin), the compiler's static libstdc++ and libgcc (the rest). Linked into every library of ours that other people's
// processes load (cmake/tally_client_files.cmake), and seen by nobody else. One that is missing is a link error which
// names it.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <span>

namespace {

struct ObjectSearch {
  uintptr_t address;
  dl_find_object* found;
};

int LookInObject(dl_phdr_info* object, size_t, void* argument) {
  const ObjectSearch& search = *static_cast<ObjectSearch*>(argument);
  dl_find_object found{};
  bool is_inside = false;
  uintptr_t start = UINTPTR_MAX;
  uintptr_t end = 0;
  for (const Elf64_Phdr& segment : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    const uintptr_t place = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_GNU_EH_FRAME) found.dlfo_eh_frame = reinterpret_cast<void*>(place);
    if (segment.p_type != PT_LOAD) continue;
    is_inside |= search.address - place < segment.p_memsz;
    start = std::min(start, place);
    end = std::max(end, place + segment.p_memsz);
  }
  if (!is_inside || found.dlfo_eh_frame == nullptr) return 0;
  found.dlfo_map_start = reinterpret_cast<void*>(start);
  found.dlfo_map_end = reinterpret_cast<void*>(end);
  *search.found = found;
  return 1;
}

}  // namespace

extern "C" {

// glibc 2.32: "there is one thread only, so count without atomic instructions". Never so for us.
char __libc_single_threaded = 0;

// glibc 2.33; inline functions of the headers before. On x86-64 the kernel's structure is the program's.
int fstatat(int directory, const char* path, struct stat* state, int flags) noexcept {
  return static_cast<int>(::syscall(SYS_newfstatat, directory, path, state, flags));
}
int stat(const char* path, struct stat* state) noexcept { return fstatat(AT_FDCWD, path, state, 0); }
int lstat(const char* path, struct stat* state) noexcept { return fstatat(AT_FDCWD, path, state, AT_SYMLINK_NOFOLLOW); }
int fstat(int fd, struct stat* state) noexcept { return static_cast<int>(::syscall(SYS_fstat, fd, state)); }
int fstat64(int fd, struct stat64* state) noexcept { return static_cast<int>(::syscall(SYS_fstat, fd, state)); }

// glibc 2.38: its headers say so where a source says strtoul. The difference is that these read "0b1" as one.
unsigned long StrtoulOfC11(const char* text, char** end, int base) asm("strtoul");
unsigned long long StrtoullOfC11(const char* text, char** end, int base) asm("strtoull");
int VsscanfOfC11(const char* text, const char* format, va_list arguments) asm("__isoc99_vsscanf");
unsigned long __isoc23_strtoul(const char* text, char** end, int base) { return StrtoulOfC11(text, end, base); }
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) { return StrtoullOfC11(text, end, base); }
int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int count = VsscanfOfC11(text, format, arguments);
  va_end(arguments);
  return count;
}

// glibc 2.36: std::random_device.
uint32_t arc4random() noexcept {
  uint32_t number = 0;
  // Fails on kernels without memfd_create only, where there is no Tally either.
  if (::getentropy(&number, sizeof(number)) != 0) number = static_cast<uint32_t>(::getpid());
  return number;
}

// glibc 2.35: by which object an exception passes. libgcc looks nowhere else once it was built with this.
int _dl_find_object(void* address, dl_find_object* result) noexcept {
  ObjectSearch search{reinterpret_cast<uintptr_t>(address), result};
  return ::dl_iterate_phdr(LookInObject, &search) == 1 ? 0 : -1;
}

}  // extern "C"
