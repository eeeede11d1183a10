// SealedBackend: the class that PyTorch sees. Its functions stand in backend.cc, the only file that includes
// this.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "python/sealring/torch_compat.h"
#include "python/sealring/torch_sessions.h"
#include "python/sealring/torch_work.h"
#include "sealring/collective/communicator.h"

namespace sealring::torch_backend {

using c10d::OpType;
using AtTensor = at::Tensor;
using AtTensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// One group. Like the communicator it is thread-safe, and operations are ordered as they are issued.
class SealedBackend : public c10d::Backend {
 public:
  SealedBackend(SessionRequest request, std::string group_name, c10::intrusive_ptr<c10d::Store> store);
  ~SealedBackend() override;

  const std::string getBackendName() const override { return request_.backend_name; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}  // the handshake has made the group; every rank begins at 0
  std::uint64_t getSequenceNumberForGroup() override { return seq_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr allreduce(AtTensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(AtTensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return allreduce(tensors, opts);
  }
  WorkPtr broadcast(AtTensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr reduce(AtTensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<AtTensors>& outputs, AtTensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<AtTensors>& outputs, AtTensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(AtTensor& output, AtTensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(AtTensors& outputs, AtTensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<AtTensors>& outputs, AtTensors& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(AtTensors& outputs, std::vector<AtTensors>& inputs,
                  const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(AtTensors& outputs, std::vector<AtTensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(AtTensor& output, AtTensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(AtTensors& outputs, AtTensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(AtTensor& output, AtTensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(AtTensors& outputs, AtTensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(AtTensors& tensors, int peer, int tag) override;
  WorkPtr recv(AtTensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(AtTensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;

  py::dict describe() const;
  py::dict counters() const;

 private:
  using Issue = std::function<Result<Ticket>(Communicator&)>;
  /// One call of a user: its buffers, and the operations that it is made of.
  struct Call {
    Call(SealedBackend& backend, OpType type, const char* title, AtTensors outputs);
    void add(Issue issue) { issues.push_back(std::move(issue)); }
    c10::intrusive_ptr<SealedWork> work;
    Staging& staging;
    std::vector<Issue> issues;
  };
  WorkPtr launch(Call call);
  Communicator& usable(const char* op) const;
  Rank rank_in_group(std::int64_t rank, const char* op) const;
  void add_all_gather(Call& call, const AtTensors& outputs, const AtTensor& input, const char* op);
  void add_all_gather_into(Call& call, AtTensor& output, AtTensor& input, const char* op);
  void add_reduce_scatter_from(Call& call, AtTensor& output, AtTensor& input, const c10d::ReduceOp& redop,
                               const char* op);
  void add_pieces(Call& call, const AtTensors& outputs, const AtTensors& inputs, const char* op);
  void log_group(const char* event) const;

  SessionRequest request_;
  std::shared_ptr<LiveSession> live_;
  ParentOnly<Communicator> comm_;
  bool owner_ = false;  ///< this group made the session, and ends it
  std::shared_ptr<GroupLabel> label_ = std::make_shared<GroupLabel>();
  c10::intrusive_ptr<Options> options_;
  std::atomic<std::uint64_t> seq_{0};
  std::atomic<bool> closed_{false};
  std::mutex coalescing_mutex_;
  std::optional<std::vector<c10::intrusive_ptr<SealedWork>>> coalesced_;
};

}  // namespace sealring::torch_backend
