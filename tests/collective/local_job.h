// LocalJob: n ranks as threads of this process, over loopback or TCP, each with a whole Session.
//
//   rank 0 --- rank 1        every pair is connected; the memory store is the only thing that they share
//      \        /
//       rank 2 ...
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sealring/base/log.h"
#include "sealring/collective/communicator.h"

namespace sealring::testing {

/// SR_TEST_SLOW: how much slower than usual this machine is (10 under sanitizers).
inline int slow_factor() {
  const char* text = std::getenv("SR_TEST_SLOW");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

struct JobOptions {
  std::uint16_t world = 2;
  CommConfig config;
  bool study = false;  ///< the study's identity: needed for suite plain
  bool tcp = false;
  std::function<std::unique_ptr<Transport>(Rank, std::unique_ptr<Transport>)>
      wrap;  ///< a decorator for one rank
  std::function<std::shared_ptr<BulkCipher>(Rank)> cipher;
};

class LocalJob {
 public:
  explicit LocalJob(JobOptions options) : options_(std::move(options)), store_(make_memory_store()) {
    options_.config.world = options_.world;
    if (options_.config.timeout > std::chrono::minutes(2)) options_.config.timeout = std::chrono::minutes(2);
    if (options_.config.connect_timeout > std::chrono::minutes(1)) {
      options_.config.connect_timeout = std::chrono::minutes(1);
    }
    log_setup("off", -1);
    hub_ = LoopbackHub::make(options_.world);
    key_ = std::make_unique<JobKey>(JobKey::generate());
    sessions_.resize(options_.world);
    errors_.resize(options_.world);
    each([this](Rank rank) {
      auto session = connect(rank);
      if (session) {
        sessions_[rank] = *session;
      } else {
        errors_[rank] = session.error();
      }
    });
  }
  ~LocalJob() {
    each([this](Rank rank) { sessions_[rank].reset(); });
  }

  /// Runs `body` on every rank at once, one thread each.
  void each(const std::function<void(Rank)>& body) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < options_.world; ++rank) threads.emplace_back([&body, rank] { body(rank); });
    for (auto& thread : threads) thread.join();
  }

  bool connected() const {
    return std::all_of(sessions_.begin(), sessions_.end(), [](const auto& s) { return s != nullptr; });
  }
  std::string first_error() const {
    for (const auto& error : errors_) {
      if (error.code != Code::ok) return error.message();
    }
    return {};
  }
  Session& session(Rank rank) { return *sessions_[rank]; }
  Communicator& comm(Rank rank) { return *sessions_[rank]->world(); }
  Store& store() { return *store_; }
  LoopbackHub& hub() { return *hub_; }
  void drop(Rank rank) { sessions_[rank].reset(); }

 private:
  Result<std::shared_ptr<Session>> connect(Rank rank) {
    CommConfig config = options_.config;
    config.rank = rank;
    std::unique_ptr<Transport> transport;
    if (options_.tcp) {
      TcpConfig tcp;
      tcp.interface_name = "127.0.0.1";
      SR_TRY(transport, make_tcp_transport(tcp));
    } else {
      transport = hub_->transport(rank);
    }
    if (options_.wrap) transport = options_.wrap(rank, std::move(transport));
    Identity identity = options_.study ? make_study_identity(*key_) : make_job_key_identity(*key_);
    return Session::connect(config, std::move(identity), std::move(transport), store_, "test",
                            options_.cipher ? options_.cipher(rank) : nullptr);
  }

  JobOptions options_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<LoopbackHub> hub_;
  std::unique_ptr<JobKey> key_;
  std::vector<std::shared_ptr<Session>> sessions_;
  std::vector<Error> errors_;
};

/// A small integer that any rank can regenerate: exact in every type, any order of additions.
inline int value_at(Rank rank, std::uint64_t index) {
  return static_cast<int>((static_cast<std::uint64_t>(rank) * 7 + index * 3 + index / 11) % 5);
}

/// Elements of `dtype` from small integers, and back.
inline void put_value(DType dtype, std::byte* at, int value) {
  const auto put = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (dtype) {
    case DType::f32:
      return put(static_cast<float>(value));
    case DType::f64:
      return put(static_cast<double>(value));
    case DType::bf16: {
      const float wide = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &wide, 4);
      return put(static_cast<std::uint16_t>(bits >> 16));
    }
    case DType::f16: {  // small non-negative integers: normal numbers with an exact mantissa
      if (value == 0) return put(std::uint16_t{0});
      int exponent = 0;
      while ((value >> (exponent + 1)) != 0) ++exponent;
      const int mantissa = (value - (1 << exponent)) << (10 - exponent);
      return put(static_cast<std::uint16_t>(((exponent + 15) << 10) | mantissa));
    }
    case DType::i8:
      return put(static_cast<std::int8_t>(value));
    case DType::i16:
      return put(static_cast<std::int16_t>(value));
    case DType::i32:
      return put(static_cast<std::int32_t>(value));
    case DType::i64:
      return put(static_cast<std::int64_t>(value));
    case DType::u8:
      return put(static_cast<std::uint8_t>(value));
    case DType::boolean:
      return put(static_cast<std::uint8_t>(value != 0));
  }
}

inline Bytes make_values(DType dtype, Rank rank, std::uint64_t elements, std::uint64_t first = 0) {
  const std::uint32_t bytes = dtype_bytes(dtype);
  Bytes out(elements * bytes);
  for (std::uint64_t i = 0; i < elements; ++i)
    put_value(dtype, out.data() + i * bytes, value_at(rank, first + i));
  return out;
}

inline Tensor tensor_of(Bytes& memory, DType dtype) {
  return {memory.data(), memory.size() / dtype_bytes(dtype), dtype};
}

inline Result<void> run(Result<Ticket> ticket) {
  if (!ticket) return tl::unexpected(std::move(ticket).error());
  return ticket->wait(Deadline::in(std::chrono::minutes(2)));
}

/// What the reduction of all ranks' value_at(rank, index) is, as an element of dtype.
inline Bytes reduced(DType dtype, RedOp redop, std::uint16_t world, std::uint64_t first,
                     std::uint64_t elements) {
  const std::uint32_t bytes = dtype_bytes(dtype);
  Bytes out(elements * bytes);
  for (std::uint64_t i = 0; i < elements; ++i) {
    int value = 0;
    for (Rank rank = 0; rank < world; ++rank) {
      int x = value_at(rank, first + i);
      if (dtype == DType::boolean) x = x != 0;
      if (redop == RedOp::premul_sum) x *= 2;
      if (rank == 0) {
        value = x;
      } else if (redop == RedOp::min) {
        value = std::min(value, x);
      } else if (redop == RedOp::max) {
        value = std::max(value, x);
      } else if (redop == RedOp::product) {
        value *= x;
      } else {
        value += x;
      }
    }
    put_value(dtype, out.data() + i * bytes, value);
  }
  return out;
}

}  // namespace sealring::testing
