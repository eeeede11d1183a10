// Transport: moves sealed bytes between ranks. It never sees plaintext, and nothing that it says is believed.
//
// A stream is one duplex byte stream per (group, pair, kind, lane). On a stream the bytes of ops follow one
// another in sequence order, without headers; both ends know from the schedule what comes next (protocol
// A.4).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sealring/base/bytes.h"
#include "sealring/base/deadline.h"
#include "sealring/base/result.h"
#include "sealring/base/secret.h"
#include "sealring/base/stream.h"
#include "sealring/base/types.h"

namespace sealring {

/// Names a stream from my side. Ranks are global.
struct StreamId {
  std::array<std::byte, 8> group{};  ///< group_id[0..8)
  Rank peer = 0;
  Kind kind = Kind::pair;
  Lane lane = 0;
  friend auto operator<=>(const StreamId&, const StreamId&) = default;
};

/// Gives the wire the sealed bytes of one move, piece by piece. Called by the thread inside exchange() only.
class WireSource {
 public:
  virtual ~WireSource() = default;
  /// The next piece (never empty), valid until the following call; an empty span after the last piece. May
  /// seal now (this is how sealing overlaps the wire), may wait for a worker, must not wait for the wire.
  virtual Result<ByteView> next() = 0;
};

/// Takes the sealed bytes of one move. Called by the thread inside exchange() only.
class WireSink {
 public:
  virtual ~WireSink() = default;
  /// Where the next bytes go: a private buffer to be filled whole. Empty span: the move is complete. nullopt:
  /// cannot take more until another sink or a source of the same exchange has advanced; the transport leaves
  /// the stream unread meanwhile.
  virtual Result<std::optional<std::span<std::byte>>> buffer() = 0;
  /// The buffer has been filled whole: verify, then combine. An error ends the exchange.
  virtual Result<void> filled() = 0;
};

struct Send {
  StreamId stream;
  WireSource* source = nullptr;
};
struct Recv {
  StreamId stream;
  WireSink* sink = nullptr;
};

/// What a group's streams need to be connected: for every other member, the keys of the connection proof.
struct PeerLink {
  Rank peer = 0;
  SecretBytes mac_to_peer;    ///< CONN[me->peer]
  SecretBytes mac_from_peer;  ///< CONN[peer->me]
  std::string address;        ///< a hint from the store ("host:port"); empty for loopback
};
struct GroupLinks {
  Rank me = 0;
  std::array<std::byte, 8> group{};
  std::vector<PeerLink> peers;
  std::vector<Kind> kinds;  ///< pair, p2p, and ctl for the world group
  Lane lanes = 1;           ///< lanes of kind pair; the other kinds have lane 0 only
  /// Asked ten times a second by the thread inside open_group while streams are missing; an error ends
  /// open_group, and is its error. May be empty.
  std::function<Result<void>()> check;
  static constexpr std::chrono::milliseconds kCheckPeriod{100};
};

struct ControlEvent {
  Rank peer = 0;
  Bytes bytes;          ///< received bytes, possibly part of a frame
  bool closed = false;  ///< the stream has ended or broken: the peer is lost
};

/// The ctl streams of the world group, multiplexed for one thread. send() may be called from any thread.
class ControlStreams {
 public:
  virtual ~ControlStreams() = default;
  /// Waits for bytes, a close, wake(), or the deadline; may give nothing.
  virtual std::vector<ControlEvent> wait(Deadline deadline) = 0;
  /// Queues or writes; never blocks longer than it takes to copy. A queue over 1 MiB is PEER_LOST.
  virtual Result<void> send(Rank peer, ByteView bytes) = 0;
  virtual void wake() noexcept = 0;
  virtual void close() noexcept = 0;
};

/// Thread-safe: exchanges on disjoint streams may run at the same time.
class Transport {
 public:
  virtual ~Transport() = default;
  /// The address that peers are told, "" for loopback. Listens from construction on.
  virtual std::string address() const = 0;
  /// Connects (and accepts, after the connection proof of protocol A.4) every stream of a group.
  /// Errors: TIMEOUT naming the missing ranks, PEER_LOST, PORT, FD_LIMIT, what links.check gave.
  virtual Result<void> open_group(const GroupLinks& links, Deadline deadline) = 0;
  virtual void close_group(const std::array<std::byte, 8>& group) noexcept = 0;
  /// Moves all sends and receives, at the same time, until all sources and sinks are done.
  ///
  /// Sends (and receives) of the same stream run one after the other in the given order. Errors: the source's
  /// or sink's own; TIMEOUT; PEER_LOST; ABORTED after abort(). After an error the stream positions are
  /// undefined.
  virtual Result<void> exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream& stream,
                                Deadline deadline) = 0;
  /// Waits until one of the streams has at least `bytes` unread bytes; gives its index. At most 1 MiB and 4
  /// KiB: a largest segment with its tag fits.
  virtual Result<std::size_t> wait_readable(std::span<const StreamId> streams, std::size_t bytes,
                                            Deadline deadline) = 0;
  /// The ctl streams, once; after open_group of the world group. The transport must outlive them.
  virtual Result<std::unique_ptr<ControlStreams>> control_streams() = 0;
  /// Wakes and fails every exchange (data streams only, ctl streams go on), now and later.
  virtual void abort() noexcept = 0;
  virtual std::string describe() const = 0;  ///< "tcp eth0 10.0.0.2:29600", "loopback"
};

/// n ranks as threads of one process. Keep the hub alive as long as its transports.
class LoopbackHub {
 public:
  static std::shared_ptr<LoopbackHub> make(std::uint16_t world);
  virtual ~LoopbackHub() = default;
  virtual std::unique_ptr<Transport> transport(Rank rank) = 0;
  /// As if the process of `rank` had been killed: its streams end on the peers' side.
  virtual void kill(Rank rank) = 0;
  /// As if it had been stopped: its streams stay open and silent until thaw.
  virtual void freeze(Rank rank, bool frozen) = 0;
};

struct TcpConfig {
  std::string interface_name;                ///< SEALRING_SOCKET_IFNAME's grammar; empty: choose
  std::uint16_t port_min = 0, port_max = 0;  ///< SEALRING_PORT_RANGE; 0: any
  std::string reach_host;  ///< the rendezvous host: chooses the interface that routes to it; may be empty
};
/// Listens on one port of the chosen interface. Errors: INTERFACE_NAME with the candidates, PORT, FD_LIMIT.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpConfig& config);

/// The seeded adversary: passes bytes through and does harm where told (tests and `study` self-checks only).
enum class FaultKind : std::uint8_t {
  flip_bit,
  flip_tag_bit,
  drop,
  duplicate,
  reorder,
  replay_previous,
  truncate,
  inject,
  splice_stream,
  reflect,
  stall,
  close
};
struct Fault {
  FaultKind kind = FaultKind::flip_bit;
  std::uint64_t op_index = 0;  ///< the exchange on this transport, counted from 0, that has the harmed stream
  std::uint32_t move_index = 0;   ///< which of its sends
  std::uint32_t piece_index = 0;  ///< which piece (segment) of that send
  std::uint64_t seed = 0;         ///< which bit, which byte
};
std::span<const FaultKind> all_fault_kinds();
std::string_view to_string(FaultKind kind);
/// Wraps `inner`; `faults` strike what this rank sends, and each that did adds one to *struck.
std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner, std::vector<Fault> faults,
                                                 std::shared_ptr<std::atomic<std::uint32_t>> struck);

}  // namespace sealring
