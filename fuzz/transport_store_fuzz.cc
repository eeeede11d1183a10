// Claim: the store's parsers of requests and replies never run past their input or their caps.
// How: a byte stream is cut into requests as the server does it; what parses must encode to the same bytes.
#include <algorithm>
#include <cstdlib>

#include "sealring/transport/tcp_store_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  ByteView rest(reinterpret_cast<const std::byte*>(data), size);
  StoreStatus status{};
  const ByteView header = rest.first(std::min(rest.size(), kStoreReplyHeaderBytes));
  if (const auto value_bytes = parse_store_reply_header(header, status)) {
    if (*value_bytes > Store::kValueBytesMax || header.size() != kStoreReplyHeaderBytes) std::abort();
  }
  StoreRequest request;
  std::size_t used_bytes = 0;
  while (parse_store_request(rest, request, used_bytes) == ParseState::complete) {
    if (used_bytes == 0 || used_bytes > rest.size() || used_bytes > kStoreRequestBytesMax) std::abort();
    const Bytes again = request.encode();
    if (!std::equal(again.begin(), again.end(), rest.begin(),
                    rest.begin() + static_cast<std::ptrdiff_t>(used_bytes))) {
      std::abort();
    }
    rest = rest.subspan(used_bytes);
  }
  return 0;
}
