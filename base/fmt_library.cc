// fmt, compiled once. Debian ships it as headers, which every file would compile anew (most of a file's time), and as a
// shared library, which libcuda.so.1 must not need: it runs in other people's processes.
#include <fmt/format-inl.h>

// What <fmt/format.h> declares as instantiated elsewhere.
FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto thousands_sep_impl<wchar_t>(locale_ref) -> thousands_sep_result<wchar_t>;
template auto decimal_point_impl(locale_ref) -> char;
template auto decimal_point_impl(locale_ref) -> wchar_t;
}  // namespace detail
FMT_END_NAMESPACE
