// Claim: the seeded adversary does to the wire exactly the harm it names, where told, and counts what it did.
// How: rank 0 sends known pieces through it on two lanes; rank 1 keeps the raw bytes and compares them.
#include <bit>
#include <set>

#include "tests/transport/ranks.h"

namespace sealring::testing {
namespace {

constexpr std::size_t kPieceBytes = 48;

Bytes piece(char name) {
  Bytes bytes(kPieceBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(static_cast<std::uint64_t>(name), i);
  return bytes;
}
Bytes pieces(std::string_view names) {
  Bytes all;
  for (const char name : names) {
    const Bytes one = piece(name);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

class NamedSource final : public WireSource {
 public:
  explicit NamedSource(std::string_view names) : names_(names) {}
  Result<ByteView> next() override {
    if (at_ == names_.size()) return ByteView();
    held_ = piece(names_[at_++]);
    return ByteView(held_);
  }

 private:
  std::string names_;
  std::size_t at_ = 0;
  Bytes held_;
};

/// Keeps what comes, until `total` bytes or the end of the exchange.
class KeepingSink final : public WireSink {
 public:
  explicit KeepingSink(std::size_t total) : total_(total) {}
  Result<std::optional<std::span<std::byte>>> buffer() override {
    held_.resize(std::min<std::size_t>(total_ - kept.size(), 16));
    return std::span<std::byte>(held_);
  }
  Result<void> filled() override {
    kept.insert(kept.end(), held_.begin(), held_.end());
    return {};
  }
  Bytes kept;

 private:
  std::size_t total_;
  Bytes held_;
};

class Adversary : public ::testing::TestWithParam<const char*> {
 protected:
  /// Rank 0 behind the adversary, two ranks, two lanes.
  void start(std::vector<Fault> faults) {
    struck_ = std::make_shared<std::atomic<std::uint32_t>>(0);
    cluster_ = std::make_unique<Cluster>(GetParam(), Rank{2});
    cluster_->transports[0] =
        make_faulty_transport(std::move(cluster_->transports[0]), std::move(faults), struck_);
    cluster_->open(group_, {Kind::pair}, 2);
  }
  /// One exchange: rank 0 sends two moves, rank 1 takes what comes of them within the deadline.
  void op(std::string_view first, std::string_view second, std::size_t first_bytes, std::size_t second_bytes,
          int patience_ms = 20000) {
    KeepingSink one(first_bytes), two(second_bytes);
    std::thread receiver([&] {
      const Recv recvs[] = {{{group_, 0, Kind::pair, 0}, &one}, {{group_, 0, Kind::pair, 1}, &two}};
      Stream stream;
      received_ =
          cluster_->at(1).exchange({}, recvs, stream, Deadline::in(std::chrono::milliseconds(patience_ms)));
    });
    NamedSource source_one(first), source_two(second);
    const Send sends[] = {{{group_, 1, Kind::pair, 0}, &source_one},
                          {{group_, 1, Kind::pair, 1}, &source_two}};
    Stream stream;
    sent_ = cluster_->at(0).exchange(sends, {}, stream, Deadline::in(std::chrono::milliseconds(patience_ms)));
    receiver.join();
    first_ = one.kept;
    second_ = two.kept;
  }
  /// The op under test: "ABC" on lane 0, "DE" on lane 1. `first_bytes`: how much lane 0 can give.
  void strike(FaultKind kind, std::uint32_t piece_index, std::size_t first_bytes, std::uint64_t seed = 7) {
    start({{kind, 0, 0, piece_index, seed}});
    op("ABC", "DE", first_bytes, 2 * kPieceBytes);
    ASSERT_TRUE(sent_.has_value()) << sent_.error().message();
    ASSERT_TRUE(received_.has_value()) << received_.error().message();
  }

  const std::array<std::byte, 8> group_ = group_named(3);
  std::shared_ptr<std::atomic<std::uint32_t>> struck_;
  std::unique_ptr<Cluster> cluster_;
  Result<void> sent_, received_;
  Bytes first_, second_;
};

/// Bits that differ; the places of the first and the last.
struct Difference {
  std::size_t bits = 0, first_byte = 0, last_byte = 0;
};
Difference compare(const Bytes& a, const Bytes& b) {
  Difference difference;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const int bits = std::popcount(static_cast<unsigned>(a[i] ^ b[i]));
    if (bits != 0 && difference.bits == 0) difference.first_byte = i;
    if (bits != 0) difference.last_byte = i;
    difference.bits += static_cast<std::size_t>(bits);
  }
  return difference;
}

TEST_P(Adversary, WithoutFaultsNothingChanges) {
  start({});
  op("ABC", "DE", 3 * kPieceBytes, 2 * kPieceBytes);
  ASSERT_TRUE(sent_ && received_);
  EXPECT_EQ(first_, pieces("ABC"));
  EXPECT_EQ(second_, pieces("DE"));
  EXPECT_EQ(*struck_, 0u);
}

TEST_P(Adversary, FlipsOneBitOfTheCiphertextOrTheTag) {
  std::set<std::size_t> places;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    strike(FaultKind::flip_bit, 1, 3 * kPieceBytes, seed * 1237);
    const Difference in_text = compare(first_, pieces("ABC"));
    EXPECT_EQ(in_text.bits, 1u);
    EXPECT_GE(in_text.first_byte, kPieceBytes);
    EXPECT_LT(in_text.first_byte, 2 * kPieceBytes - kTagBytes);
    places.insert(in_text.first_byte);
    strike(FaultKind::flip_tag_bit, 1, 3 * kPieceBytes, seed * 1237);
    const Difference in_tag = compare(first_, pieces("ABC"));
    EXPECT_EQ(in_tag.bits, 1u);
    EXPECT_GE(in_tag.first_byte, 2 * kPieceBytes - kTagBytes);
    EXPECT_LT(in_tag.first_byte, 2 * kPieceBytes);
    EXPECT_EQ(second_, pieces("DE"));
    EXPECT_EQ(*struck_, 1u);
  }
  EXPECT_GT(places.size(), 5u) << "the seed chooses the place";
}

TEST_P(Adversary, DropsDuplicatesReordersTruncates) {
  strike(FaultKind::drop, 1, 2 * kPieceBytes);
  EXPECT_EQ(first_, pieces("AC"));
  EXPECT_EQ(*struck_, 1u);
  strike(FaultKind::duplicate, 1, 4 * kPieceBytes);
  EXPECT_EQ(first_, pieces("ABBC"));
  EXPECT_EQ(*struck_, 1u);
  strike(FaultKind::reorder, 1, 3 * kPieceBytes);
  EXPECT_EQ(first_, pieces("ACB"));
  EXPECT_EQ(*struck_, 1u);
  strike(FaultKind::reorder, 2, 2 * kPieceBytes);
  EXPECT_EQ(first_, pieces("AB")) << "nobody to swap with: held back";
  EXPECT_EQ(*struck_, 1u);
  strike(FaultKind::truncate, 0, 2 * kPieceBytes);
  EXPECT_EQ(first_, pieces("AB"));
  EXPECT_EQ(*struck_, 1u);
  EXPECT_EQ(second_, pieces("DE"));
}

TEST_P(Adversary, ADropLeavesTheReceiverWaiting) {
  start({{FaultKind::drop, 0, 0, 2, 1}});
  op("ABC", "DE", 3 * kPieceBytes, 2 * kPieceBytes, 300);
  EXPECT_TRUE(sent_.has_value()) << "the sender's side still completes";
  ASSERT_FALSE(received_.has_value());
  EXPECT_EQ(received_.error().code, Code::timeout);
  EXPECT_EQ(received_.error().peer, 0);
  EXPECT_EQ(first_, pieces("AB"));
}

TEST_P(Adversary, InjectsRandomBytes) {
  start({{FaultKind::inject, 0, 0, 1, 99}});
  const std::size_t more = 1 + 99 % 64;
  op("ABC", "DE", 3 * kPieceBytes + more, 2 * kPieceBytes);
  ASSERT_TRUE(sent_ && received_);
  EXPECT_EQ(Bytes(first_.begin(), first_.begin() + kPieceBytes), piece('A'));
  EXPECT_EQ(Bytes(first_.begin() + static_cast<std::ptrdiff_t>(kPieceBytes + more), first_.end()),
            pieces("BC"));
  EXPECT_EQ(*struck_, 1u);
}

TEST_P(Adversary, SplicesBetweenStreams) {
  strike(FaultKind::splice_stream, 1, 3 * kPieceBytes);
  EXPECT_EQ(first_, pieces("AEC"));
  EXPECT_EQ(second_, pieces("DB"));
  EXPECT_EQ(*struck_, 1u);
  strike(FaultKind::splice_stream, 2, 3 * kPieceBytes);  // the other has no third piece: its last one
  EXPECT_EQ(first_, pieces("ABE"));
  EXPECT_EQ(second_, pieces("DC"));
}

TEST_P(Adversary, SplicingEqualPiecesIsNoHarmAndSwapsInTheMoveInstead) {
  start({{FaultKind::splice_stream, 0, 0, 0, 1}});
  op("ABC", "ABC", 3 * kPieceBytes, 3 * kPieceBytes);
  ASSERT_TRUE(sent_ && received_);
  EXPECT_EQ(first_, pieces("BAC"));
  EXPECT_EQ(second_, pieces("ABC"));
  EXPECT_EQ(*struck_, 1u);
}

TEST_P(Adversary, ReplaysThePreviousExchange) {
  start({{FaultKind::replay_previous, 0, 0, 1, 1}, {FaultKind::replay_previous, 2, 0, 1, 1}});
  op("ABC", "D", 3 * kPieceBytes, kPieceBytes);
  EXPECT_EQ(first_, pieces("ABC"));
  EXPECT_EQ(*struck_, 0u) << "there was nothing to replay";
  op("FGH", "D", 3 * kPieceBytes, kPieceBytes);
  EXPECT_EQ(first_, pieces("FGH"));
  op("IJK", "D", 3 * kPieceBytes, kPieceBytes);
  EXPECT_EQ(first_, pieces("IGK"));
  EXPECT_EQ(*struck_, 1u);
}

TEST_P(Adversary, ReflectsWhatThePeerSent) {
  start({{FaultKind::reflect, 0, 0, 1, 5}, {FaultKind::reflect, 2, 0, 1, 5}});
  op("ABC", "D", 3 * kPieceBytes, kPieceBytes);
  EXPECT_EQ(Bytes(first_.begin(), first_.begin() + kPieceBytes), piece('A'));
  EXPECT_NE(first_, pieces("ABC")) << "nothing came yet: random bytes";
  EXPECT_EQ(first_.size(), 3 * kPieceBytes);
  NamedSource back("Z");
  KeepingSink sink(kPieceBytes);
  const Send send{{group_, 0, Kind::pair, 0}, &back};
  const Recv recv{{group_, 1, Kind::pair, 0}, &sink};
  Stream stream;
  ASSERT_TRUE(cluster_->at(1).exchange({&send, 1}, {}, stream, seconds(20)).has_value());
  ASSERT_TRUE(cluster_->at(0).exchange({}, {&recv, 1}, stream, seconds(20)).has_value());
  EXPECT_EQ(sink.kept, piece('Z'));
  op("ABC", "D", 3 * kPieceBytes, kPieceBytes);
  // The peer's bytes came in buffers of 16: no buffer of a piece's size, so the adversary makes some up.
  EXPECT_NE(first_, pieces("ABC"));
  EXPECT_EQ(*struck_, 2u);
}

TEST_P(Adversary, ReflectsAWholeRecordWhenItHasOne) {
  start({{FaultKind::reflect, 1, 0, 1, 5}});
  struct Whole final : WireSink {
    Result<std::optional<std::span<std::byte>>> buffer() override {
      return std::span<std::byte>(held).first(full ? 0 : held.size());
    }
    Result<void> filled() override {
      full = true;
      std::fill(held.begin(), held.end(), std::byte{0});  // opened in place
      return {};
    }
    std::array<std::byte, kPieceBytes> held{};
    bool full = false;
  } whole;
  NamedSource back("Z");
  const Send send{{group_, 0, Kind::pair, 0}, &back};
  const Recv recv{{group_, 1, Kind::pair, 0}, &whole};
  Stream stream;
  ASSERT_TRUE(cluster_->at(1).exchange({&send, 1}, {}, stream, seconds(20)).has_value());
  ASSERT_TRUE(cluster_->at(0).exchange({}, {&recv, 1}, stream, seconds(20)).has_value());
  op("ABC", "D", 3 * kPieceBytes, kPieceBytes);
  EXPECT_EQ(first_, pieces("AZC"));
  EXPECT_EQ(*struck_, 1u);
}

TEST_P(Adversary, StallsUntilTheDeadlineOrAnAbort) {
  start({{FaultKind::stall, 0, 0, 1, 1}, {FaultKind::stall, 1, 0, 0, 1}});
  op("ABC", "DE", 3 * kPieceBytes, 2 * kPieceBytes, 300);
  ASSERT_FALSE(sent_.has_value());
  EXPECT_EQ(sent_.error().code, Code::timeout);
  EXPECT_EQ(sent_.error().peer, 1);
  ASSERT_FALSE(received_.has_value());
  EXPECT_EQ(received_.error().code, Code::timeout);
  EXPECT_EQ(first_, piece('A'));
  EXPECT_EQ(second_, pieces("DE"));
  EXPECT_EQ(*struck_, 1u);
  std::thread aborting([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cluster_->at(0).abort();
  });
  op("ABC", "", kPieceBytes, 0, 1000);
  aborting.join();
  ASSERT_FALSE(sent_.has_value());
  EXPECT_EQ(sent_.error().code, Code::aborted);
  EXPECT_EQ(*struck_, 2u);
}

TEST_P(Adversary, ClosesTheStream) {
  start({{FaultKind::close, 0, 0, 1, 1}});
  op("ABC", "DE", 3 * kPieceBytes, 0);
  ASSERT_FALSE(sent_.has_value());
  EXPECT_EQ(sent_.error().code, Code::peer_lost);
  EXPECT_EQ(sent_.error().peer, 1);
  ASSERT_FALSE(received_.has_value());
  EXPECT_EQ(received_.error().code, Code::peer_lost);
  EXPECT_EQ(received_.error().peer, 0);
  EXPECT_EQ(first_, piece('A'));
  EXPECT_EQ(*struck_, 1u);
}

TEST_P(Adversary, StrikesOnlyTheToldOpMoveAndPiece) {
  start({{FaultKind::flip_bit, 1, 1, 1, 3},
         {FaultKind::flip_bit, 1, 5, 0, 3},
         {FaultKind::flip_bit, 1, 0, 9, 3}});
  for (int i = 0; i < 3; ++i) {
    op("ABC", "DE", 3 * kPieceBytes, 2 * kPieceBytes);
    ASSERT_TRUE(sent_ && received_);
    EXPECT_EQ(first_, pieces("ABC"));
    EXPECT_EQ(compare(second_, pieces("DE")).bits, i == 1 ? 1u : 0u);
    if (i == 1) {
      EXPECT_GE(compare(second_, pieces("DE")).first_byte, kPieceBytes);
    }
  }
  EXPECT_EQ(*struck_, 1u);
}

INSTANTIATE_TEST_SUITE_P(Transports, Adversary, ::testing::Values("loopback", "tcp"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(FaultKinds, EachHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const FaultKind kind : all_fault_kinds()) names.insert(to_string(kind));
  EXPECT_EQ(names.size(), 12u);
  EXPECT_FALSE(names.contains("?"));
}

}  // namespace
}  // namespace sealring::testing
