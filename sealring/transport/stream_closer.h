// StreamCloser: what a transport offers to the seeded adversary beyond the interface.
#pragma once

#include "sealring/transport/transport.h"

namespace sealring {

/// Implemented by loopback and tcp: ends one stream, as a cut wire would. Thread-safe.
class StreamCloser {
 public:
  virtual ~StreamCloser() = default;
  virtual void close_stream(const StreamId& id) noexcept = 0;
};

}  // namespace sealring
