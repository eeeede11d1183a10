// A table of NCCL's functions that move nothing: they record what they were called with and answer as told.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "sealring/device/cuda/nccl_comm.h"

namespace sealring::cuda::test {

/// One in the process at a time. `calls` also takes what a test writes there itself.
class FakeNccl {
 public:
  FakeNccl() {
    current() = this;
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    api.version = 22809;
    api.error_string = [](NcclStatus) { return "as the test told it"; };
    api.comm_init = [](NcclCommHandle* comm, int ranks, NcclUniqueId given, int rank, NcclConfig* asked) {
      const NcclStatus answer =
          current()->called("init " + std::to_string(ranks) + " " + std::to_string(rank));
      current()->config = *asked;
      current()->id = given;
      if (current()->gives_comm) *comm = current();
      return answer;
    };
    api.async_error = [](NcclCommHandle, NcclStatus* status) {
      const std::lock_guard lock(current()->mutex_);
      ++current()->looks_;
      auto& states = current()->states_;
      *status = states.empty() ? NcclStatus::success : states.front();
      if (states.size() > 1 || !current()->last_state_stays_) {
        if (!states.empty()) states.pop_front();
      }
      return NcclStatus::success;
    };
    api.comm_abort = [](NcclCommHandle) { return current()->called("abort"); };
    api.comm_destroy = [](NcclCommHandle) { return current()->called("destroy"); };
    api.group_start = [] { return current()->called("group start"); };
    api.group_end = [] { return current()->called("group end"); };
    api.send = [](const void* data, std::size_t count, NcclType type, int peer, NcclCommHandle,
                  NcclStream stream) { return current()->moved("send", data, count, type, peer, stream); };
    api.recv = [](void* data, std::size_t count, NcclType type, int peer, NcclCommHandle, NcclStream stream) {
      return current()->moved("recv", data, count, type, peer, stream);
    };
  }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;
  ~FakeNccl() { current() = nullptr; }

  /// The next call that begins with `name` answers this.
  void answer(const std::string& name, NcclStatus status) { answers_[name] = status; }
  /// What asking for the state gives, one after the other; the last for ever if it `stays`.
  void states(std::deque<NcclStatus> states, bool stays = false) {
    const std::lock_guard lock(mutex_);
    states_ = std::move(states);
    last_state_stays_ = stays;
  }
  std::vector<std::string> take_calls() {
    const std::lock_guard lock(mutex_);
    return std::exchange(calls_, {});
  }
  void note(std::string call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  int looks() {
    const std::lock_guard lock(mutex_);
    return looks_;
  }

  NcclApi api;
  NcclConfig config;
  NcclUniqueId id;
  bool gives_comm = true;

 private:
  static FakeNccl*& current() {
    static FakeNccl* fake = nullptr;
    return fake;
  }
  NcclStatus called(const std::string& call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(call);
    for (auto at = answers_.begin(); at != answers_.end(); ++at) {
      if (!call.starts_with(at->first)) continue;
      const NcclStatus out = at->second;
      answers_.erase(at);
      return out;
    }
    return NcclStatus::success;
  }
  NcclStatus moved(const std::string& what, const void* data, std::size_t count, NcclType type, int peer,
                   NcclStream stream) {
    EXPECT_EQ(type, NcclType::uint8);
    EXPECT_NE(data, nullptr);
    return called(what + " " + std::to_string(count) + " peer " + std::to_string(peer) + " stream " +
                  std::to_string(reinterpret_cast<std::uintptr_t>(stream)));
  }

  std::mutex mutex_;
  std::vector<std::string> calls_;
  std::map<std::string, NcclStatus> answers_;
  std::deque<NcclStatus> states_;
  bool last_state_stays_ = false;
  int looks_ = 0;
};

}  // namespace sealring::cuda::test
