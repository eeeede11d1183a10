// Claim: a word that was mistyped is found again, and a word that resembles nothing gets no suggestion.
// How: distances known by hand; words of the tool with their mistypings, and words that are far from all.
#include "sealring/base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace sealring {
namespace {

TEST(Suggest, DistancesKnownByHand) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", "abc"), 0u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("fp23", "fp32"), 1u);
  EXPECT_EQ(edit_distance("tga", "tag"), 1u);
}

TEST(Suggest, OnlyNearWords) {
  const std::vector<std::string> known{"OK", "FILE", "DATA_TAG", "TIMEOUT", "PORT"};
  EXPECT_EQ(nearest_word("DATA_TGA", known), "DATA_TAG");
  EXPECT_EQ(nearest_word("FIEL", known), "FILE");
  EXPECT_EQ(nearest_word("TIME", known), "TIMEOUT");
  EXPECT_EQ(nearest_word("_TAG", known), "DATA_TAG");
  EXPECT_EQ(nearest_word("FOO", known), "");
  EXPECT_EQ(nearest_word("PARTY", known), "PORT");
  EXPECT_EQ(nearest_word("", known), "");
  EXPECT_EQ(nearest_word("WEATHER", known), "");
}

}  // namespace
}  // namespace sealring
