// Claim: an address from the store is either numeric HOST:PORT or refused; no name server is ever asked.
// How: any text is parsed; what parses must name itself so that it parses to the same address.
#include <cstdlib>

#include "sealring/transport/socket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  const auto address = parse_address(std::string(reinterpret_cast<const char*>(data), size));
  if (!address) return 0;
  const auto again = parse_address(address->text());
  if (!again || again->text() != address->text() || address->port() == 0) std::abort();
  return 0;
}
