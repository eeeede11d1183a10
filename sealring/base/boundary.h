// Where exceptions of the standard library end: memory or a thread that could not be had becomes an Error.
#pragma once

#include <exception>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "sealring/base/result.h"

namespace sealring {

/// Runs `body`, which returns a Result. Around everything that a caller or a thread of the library enters: no
/// exception crosses the library's boundary. Errors: the body's; OUT_OF_MEMORY for what it threw.
template <class Body>
std::invoke_result_t<Body> without_exceptions(const char* stage, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, stage, "memory could not be allocated");
  } catch (const std::system_error& problem) {
    return fail(Code::out_of_memory, stage, std::string("no thread could be started: ") + problem.what());
  } catch (const std::exception& problem) {
    return fail(Code::out_of_memory, stage, std::string("the standard library failed: ") + problem.what());
  }
}

}  // namespace sealring
