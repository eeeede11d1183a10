// Big-endian fixed layouts: a writer that appends, a reader that never runs past its input.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sealring/base/result.h"

namespace sealring {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

inline ByteView as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline Bytes to_bytes(ByteView view) { return Bytes(view.begin(), view.end()); }
std::string to_hex(ByteView bytes);
Result<Bytes> from_hex(std::string_view text);

template <std::unsigned_integral T>
void store_be(std::byte* out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out[i] = static_cast<std::byte>(value >> (8 * (sizeof(T) - 1 - i)));
}
template <std::unsigned_integral T>
T load_be(const std::byte* in) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>((value << 8) | static_cast<T>(in[i]));
  return value;
}

/// Appends big-endian integers and raw bytes to an owned buffer.
class ByteWriter {
 public:
  template <std::unsigned_integral T>
  ByteWriter& put(T value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    store_be(bytes_.data() + bytes_.size() - sizeof(T), value);
    return *this;
  }
  ByteWriter& put(ByteView bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

/// Reads a fixed layout from foreign bytes. A read past the end sets failed() and gives zeros; check once at
/// the end with finish(), which also demands that every byte was consumed.
class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : bytes_(bytes) {}
  template <std::unsigned_integral T>
  T get() {
    const ByteView raw = take(sizeof(T));
    return raw.size() == sizeof(T) ? load_be<T>(raw.data()) : T{0};
  }
  template <std::size_t N>
  std::array<std::byte, N> array() {
    std::array<std::byte, N> out{};
    const ByteView raw = take(N);
    if (raw.size() == N) std::memcpy(out.data(), raw.data(), N);
    return out;
  }
  ByteView take(std::size_t count) {
    if (failed_ || count > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const ByteView out = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return out;
  }
  std::size_t remaining() const { return bytes_.size(); }
  bool failed() const { return failed_; }
  /// True when nothing failed and nothing is left.
  bool finished() const { return !failed_ && bytes_.empty(); }

 private:
  ByteView bytes_;
  bool failed_ = false;
};

}  // namespace sealring
