// Result<T> = a value or an Error; and the only two macros of the project.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <tl/expected.hpp>

#include "sealring/base/error.h"

namespace sealring {

template <class T = void>
using Result = tl::expected<T, Error>;

/// Shorthand for the failure side: `return fail(Code::port, "tcp.listen", "port 29500 is taken");`
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }
inline tl::unexpected<Error> fail(Code code, std::string stage, std::string what, std::string next = {}) {
  Error error;
  error.code = code;
  error.stage = std::move(stage);
  error.what = std::move(what);
  error.next = std::move(next);
  return tl::unexpected<Error>(std::move(error));
}

namespace internal {
// The built-ins stand for std::source_location, which clang 14 does not find in libstdc++ 12.
[[noreturn]] inline void check_failed(const char* condition, const std::string& values,
                                      const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                      const char* function = __builtin_FUNCTION()) {
  std::fprintf(stderr, "SR_CHECK failed: %s%s%s at %s:%d in %s\n", condition, values.empty() ? "" : ": ",
               values.c_str(), file, line, function);
  std::abort();
}
template <class... Values>
std::string check_values(const Values&... values) {
  std::ostringstream out;
  [[maybe_unused]] const char* separator = "";
  ((out << separator << values, separator = " "), ...);
  return out.str();
}
}  // namespace internal
}  // namespace sealring

// Programmer errors: always on, aborts. Further arguments are printed: SR_CHECK(a <= b, "a", a, "b", b).
#define SR_CHECK(condition, ...)                                                                       \
  do {                                                                                                 \
    if (!(condition)) [[unlikely]]                                                                     \
      ::sealring::internal::check_failed(#condition, ::sealring::internal::check_values(__VA_ARGS__)); \
  } while (false)

// Returns the error of `expr` to the caller, else goes on.
//   SR_TRY(transport.start());            for Result<void>
//   SR_TRY(auto key, KeyFile::read(path)) binds the value. An expression with a bare comma needs parentheses.
#define SR_TRY(...) SR_TRY_PICK_(__VA_ARGS__, SR_TRY_BIND_, SR_TRY_VOID_)(__VA_ARGS__)
#define SR_TRY_PICK_(a, b, name, ...) name
#define SR_TRY_VOID_(expr)                                                                             \
  do {                                                                                                 \
    if (auto sr_result_ = (expr); !sr_result_) return ::tl::unexpected(std::move(sr_result_).error()); \
  } while (false)
#define SR_TRY_BIND_(declaration, expr) SR_TRY_BIND2_(declaration, expr, __COUNTER__)
#define SR_TRY_BIND2_(declaration, expr, id) SR_TRY_BIND3_(declaration, expr, id)
#define SR_TRY_BIND3_(declaration, expr, id)                                       \
  auto sr_result_##id = (expr);                                                    \
  if (!sr_result_##id) return ::tl::unexpected(std::move(sr_result_##id).error()); \
  declaration = *std::move(sr_result_##id)
