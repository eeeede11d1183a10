// Windows: the only memory of a rank that others can reach. Peers write ciphertext||tag and words into it;
// nothing else ever lies there, and what is read from it is believed by nobody [protocol E.1-3, E.5].
//
// local: plain device memory, for ranks of one process on one device. ipc: memory of its own by cuMemCreate,
// whole allocation granules with nothing else in them; the peer maps it by a file descriptor that it fetches
// over a Unix socket (transport/descriptor_exchange.h), and that its own cuMemSetAccess opens for its device
// alone. fabric: the same memory for a peer on another host of one NVLink fabric, which maps it by the
// driver's fabric handle. Not run on hardware. Neither peer access between devices nor multicast is ever
// enabled.
#pragma once

#include <cstdint>
#include <memory>

#include "sealring/base/bytes.h"
#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/device/device_group.h"

namespace sealring::cuda {

/// A peer's window as this process reaches it. Closed before the peer frees it (see DeviceGroup's teardown)
/// and after the last op that uses it; it stays usable when the peer's process has ended.
class PeerWindow {
 public:
  virtual ~PeerWindow() = default;
  virtual std::byte* data() const = 0;
};

class Window {
 public:
  /// `kind` local, ipc or fabric; zeroed; visible to the device when this returns. `me` of `world` group
  /// ranks: each other rank can map it once (fabric: as often as it likes). Errors: OUT_OF_MEMORY, CUDA,
  /// GPU_UNSUPPORTED (the device, its driver or its container cannot share memory in this way),
  /// INVALID_ARGUMENT.
  static Result<std::unique_ptr<Window>> make(unsigned device, std::uint64_t bytes, DeviceWireKind kind,
                                              Rank me, std::uint16_t world);
  /// Frees it, when nothing on the device uses it any more; after leak() leaves it mapped until the process
  /// ends. Serves no peer any more in either case.
  virtual ~Window() = default;
  virtual std::byte* data() const = 0;
  virtual std::uint64_t bytes() const = 0;

  /// What the peers must be told, in secret and authenticated, to map it: at most 200 bytes, the same for all
  /// and whenever it is asked for. Served from now on. Errors: FD_LIMIT, OUT_OF_MEMORY, PORT, CUDA.
  virtual Result<Bytes> offer() = 0;
  /// The window behind a peer's offer, for my device. Once an offer. Errors: MALFORMED (no offer of this
  /// kind, or of another size than `bytes`; local: of another process), PEER_LOST, TIMEOUT, FD_LIMIT,
  /// GPU_UNSUPPORTED (the devices do not reach each other), OUT_OF_MEMORY, CUDA.
  virtual Result<std::unique_ptr<PeerWindow>> map(ByteView peer_offer, std::uint64_t bytes,
                                                  Deadline deadline) = 0;
  /// After an abort a peer may still have it mapped and write: it is never freed then.
  virtual void leak() noexcept = 0;
};

}  // namespace sealring::cuda
