// Claim: an exception of the standard library ends at the boundary as OUT_OF_MEMORY, and results pass
// through. How: bodies that return a value, an error, and that throw what allocation, threads and the rest
// throw.
#include "sealring/base/boundary.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace sealring {
namespace {

TEST(Boundary, ResultsPassThrough) {
  EXPECT_EQ(without_exceptions("here", []() -> Result<int> { return 7; }).value(), 7);
  const auto failed =
      without_exceptions("here", []() -> Result<void> { return fail(Code::port, "there", "taken"); });
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::port);
  EXPECT_EQ(failed.error().stage, "there");
}

template <class Exception>
Error error_of(const Exception& thrown) {
  const auto result = without_exceptions("here", [&]() -> Result<void> { throw thrown; });
  return result.has_value() ? Error{} : result.error();
}

TEST(Boundary, ExceptionsBecomeErrors) {
  for (const Error& error : {error_of(std::bad_alloc()), error_of(std::length_error("vector")),
                             error_of(std::system_error(EAGAIN, std::generic_category(), "thread"))}) {
    EXPECT_EQ(error.code, Code::out_of_memory);
    EXPECT_EQ(error.stage, "here");
    EXPECT_FALSE(error.what.empty());
  }
}

}  // namespace
}  // namespace sealring
