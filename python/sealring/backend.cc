// c10d::Backend on Communicator: PyTorch's process group of sealed collectives. The only file that is
// compiled against PyTorch. Errors leave it as std::runtime_error with Error::message(), which Python sees as
// RuntimeError.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/sealring/torch_compat.h"
#include "python/sealring/torch_group.h"
#include "python/sealring/torch_sessions.h"
#include "python/sealring/torch_store.h"
#include "python/sealring/torch_tensors.h"
#include "python/sealring/torch_work.h"
#include "sealring/collective/communicator.h"
#include "sealring/collective/schedule.h"

namespace sealring::torch_backend {

// --- life of a group ---

SealedBackend::SealedBackend(SessionRequest request, std::string group_name,
                             c10::intrusive_ptr<c10d::Store> store)
    : Backend(request.rank, request.size), request_(std::move(request)) {
  label_->name = std::move(group_name);
  label_->timeout_ms = request_.timeout.count();
  label_->blocking_wait = request_.blocking_wait;
  auto held = SessionRegistry::instance().holding(request_);
  if (!held) raise(held.error());
  live_ = *std::move(held);
  owner_ = live_ == nullptr;
  if (owner_) {
    auto opened = open_session(request_, std::move(store));
    if (!opened) raise(opened.error());
    live_ = *std::move(opened);
    comm_ = ParentOnly<Communicator>(live_->session->world());
  } else {
    auto split = split_session(*live_, request_, std::move(store));
    if (!split) raise(split.error());
    comm_ = ParentOnly<Communicator>(*std::move(split));
    comm_->set_timeout(request_.timeout);
  }
  options_ = c10::make_intrusive<Options>(request_.backend_name, request_.timeout);
  options_->group_name = label_->name;
  options_->global_ranks_in_group.assign(request_.torch_ranks.begin(), request_.torch_ranks.end());
  log_group("group ready");
  init();
}

SealedBackend::~SealedBackend() {
  try {
    shutdown();
    const WithoutGil free_gil;  // the communicator's thread may need it to let go of tensors
    comm_ = {};
    live_.reset();
  } catch (const std::exception&) {  // a destructor has nobody to tell
  }
}

void SealedBackend::shutdown() {
  if (label_->process.forked() || closed_.exchange(true) || !live_) return;
  const WithoutGil free_gil;
  log_group("group closed");
  if (!owner_) return;
  const auto span = std::min<std::chrono::milliseconds>(std::chrono::milliseconds(label_->timeout_ms),
                                                        std::chrono::seconds(30));
  const auto closed = SessionRegistry::instance().close(*live_, span);
  if (!closed) log(LogLevel::warning, "session close", {{"problem", closed.error().message()}});
}

void SealedBackend::abort() {
  label_->refuse_in_child("torch.abort");
  const WithoutGil free_gil;
  Error error;
  error.code = Code::aborted;
  error.stage = "torch.abort";
  error.what = "the program aborted group '" + label_->name + "'";
  live_->session->abort(std::move(error));
}

void SealedBackend::setTimeout(std::chrono::milliseconds timeout) {
  usable("torch.set_timeout").set_timeout(timeout);
  label_->timeout_ms = timeout.count();
  options_->timeout = timeout;
}

c10d::ErrorType SealedBackend::getError() {
  const auto error = live_->session->error();
  if (!error) return c10d::ErrorType::SUCCESS;
  if (error->code == Code::timeout) return c10d::ErrorType::TIMEOUT;
  return error->code == Code::aborted ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
}

void SealedBackend::log_group(const char* event) const {
  if (rank_ != 0) return;  // one line a group; every rank has said at the handshake which key it holds
  const Counters c = comm_->counters();
  log(LogLevel::info, event,
      {{"backend", request_.backend_name},
       {"group", label_->name},
       {"ranks", std::to_string(size_)},
       {"suite", std::string(to_string(live_->session->config().suite))},
       {"identity", live_->session->identity()},
       {"key", live_->fingerprint},
       {"transport", live_->session->transport()},
       {"timeout_ms", std::to_string(label_->timeout_ms)},
       {"epoch", std::to_string(c.epoch)},
       {"ops", std::to_string(c.ops)},
       {"sealed_bytes", std::to_string(c.sealed_bytes)},
       {"opened_bytes", std::to_string(c.opened_bytes)}});
}

// --- issuing ---

Communicator& SealedBackend::usable(const char* op) const {
  label_->refuse_in_child(op);
  if (closed_) raise(Code::aborted, op, "group '" + label_->name + "' has been shut down");
  return *comm_.operator->();
}

Rank SealedBackend::rank_in_group(std::int64_t rank, const char* op) const {
  if (rank < 0 || rank >= size_)
    raise(Code::invalid_argument, op,
          "rank " + std::to_string(rank) + " is not in the group of " + std::to_string(size_) + " ranks");
  return static_cast<Rank>(rank);
}

SealedBackend::Call::Call(SealedBackend& backend, OpType type, const char* title, AtTensors outputs)
    : work(c10::make_intrusive<SealedWork>(backend.rank_, type, title, std::move(outputs), backend.label_,
                                           backend.seq_++)),
      staging(work->staging) {
  backend.usable(title);
  // The tensors of a broadcast or a reduction to one rank are not every rank's output.
  if (type != OpType::BROADCAST && type != OpType::REDUCE && type != OpType::COALESCED)
    staging.fails_as_one(work->result());
}

WorkPtr SealedBackend::launch(Call call) {
  Communicator& comm = *comm_.operator->();
  for (const Issue& issue : call.issues) {
    const Result<Ticket> ticket = issue(comm);
    if (!ticket) raise(ticket.error());
    call.work->expect_part();
    ticket->on_done([work = call.work](const Result<void>& result) { work->part_done(result); });
  }
  {
    const std::lock_guard lock(coalescing_mutex_);
    if (coalesced_) coalesced_->push_back(call.work);
  }
  call.work->issued();
  return call.work;
}

void SealedBackend::startCoalescing() {
  const std::lock_guard lock(coalescing_mutex_);
  coalesced_.emplace();
}

WorkPtr SealedBackend::endCoalescing() {
  std::optional<std::vector<c10::intrusive_ptr<SealedWork>>> children;
  {
    const std::lock_guard lock(coalescing_mutex_);
    children.swap(coalesced_);
  }
  AtTensors outputs;
  if (children)
    for (const auto& child : *children)
      for (const AtTensor& tensor : child->result()) outputs.push_back(tensor);
  const Call call(*this, OpType::COALESCED, "sealring:coalesced", std::move(outputs));
  if (children)
    for (const auto& child : *children) {
      call.work->expect_part();
      child->on_finish(
          [work = call.work](std::exception_ptr problem) { work->part_done(std::move(problem)); });
    }
  call.work->issued();
  return call.work;
}

namespace {

void same_elements(std::int64_t wanted, std::int64_t met, const char* what, const char* op) {
  if (wanted == met) return;
  raise(Code::invalid_argument, op,
        std::string(what) + " has " + std::to_string(met) + " elements where " + std::to_string(wanted) +
            " are due");
}

void same_dtype(const AtTensor& a, const AtTensor& b, const char* op) {
  if (a.scalar_type() == b.scalar_type()) return;
  raise(Code::invalid_argument, op,
        std::string("input is ") + c10::toString(a.scalar_type()) + " and output is " +
            c10::toString(b.scalar_type()));
}

void not_empty(std::size_t count, const char* op) {
  if (count == 0) raise(Code::invalid_argument, op, "an empty list of tensors was passed");
}

bool equal_sizes(const AtTensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const AtTensor& tensor) { return tensor.numel() == tensors[0].numel(); });
}

}  // namespace

// --- collectives ---

WorkPtr SealedBackend::allreduce(AtTensors& tensors, const c10d::AllreduceOptions& opts) {
  constexpr const char* kOp = "sealring:all_reduce";
  not_empty(tensors.size(), kOp);
  Call call(*this, tensors.size() == 1 ? OpType::ALLREDUCE : OpType::ALLREDUCE_COALESCED, kOp, tensors);
  const Reduction reduction = reduction_of(opts.reduceOp, kOp);
  for (const AtTensor& tensor : tensors) {
    const auto data = reduced(call.staging.output(tensor, true, kOp), kOp);
    call.add([data, reduction](Communicator& comm) { return comm.all_reduce(data, data, reduction); });
  }
  return launch(std::move(call));
}

WorkPtr SealedBackend::broadcast(AtTensors& tensors, const c10d::BroadcastOptions& opts) {
  constexpr const char* kOp = "sealring:broadcast";
  not_empty(tensors.size(), kOp);
  Call call(*this, OpType::BROADCAST, kOp, tensors);
  const Rank root = rank_in_group(opts.rootRank, kOp);
  for (const AtTensor& tensor : tensors) {
    const auto data =
        moved(root == rank_ ? call.staging.input(tensor, kOp) : call.staging.output(tensor, false, kOp));
    call.add([data, root](Communicator& comm) { return comm.broadcast(data, root); });
  }
  return launch(std::move(call));
}

WorkPtr SealedBackend::reduce(AtTensors& tensors, const c10d::ReduceOptions& opts) {
  constexpr const char* kOp = "sealring:reduce";
  not_empty(tensors.size(), kOp);
  Call call(*this, OpType::REDUCE, kOp, tensors);
  const Rank root = rank_in_group(opts.rootRank, kOp);
  const Reduction reduction = reduction_of(opts.reduceOp, kOp);
  for (const AtTensor& tensor : tensors) {
    const auto data = reduced(
        root == rank_ ? call.staging.output(tensor, true, kOp) : call.staging.input(tensor, kOp), kOp);
    call.add(
        [data, reduction, root](Communicator& comm) { return comm.reduce(data, data, reduction, root); });
  }
  return launch(std::move(call));
}

void SealedBackend::add_all_gather(Call& call, const AtTensors& outputs, const AtTensor& input,
                                   const char* op) {
  same_elements(size_, static_cast<std::int64_t>(outputs.size()), "the list of outputs", op);
  for (const AtTensor& output : outputs) same_dtype(input, output, op);
  same_elements(outputs[static_cast<std::size_t>(rank_)].numel(), input.numel(), "the input", op);
  const AtTensor mine = call.staging.input(input, op);
  if (equal_sizes(outputs)) {
    const AtTensor flat = call.staging.flat_output(outputs, op);
    const std::size_t offset = mine.nbytes() * static_cast<std::size_t>(rank_);
    const AtTensor from = clashes(flat, mine, offset) ? call.staging.keep(plain_copy(mine)) : mine;
    call.add([in = moved(from), out = moved(flat)](Communicator& comm) { return comm.all_gather(in, out); });
    return;
  }
  // Unequal sizes, which every rank knows from its list: one broadcast from each rank.
  for (int root = 0; root < size_; ++root) {
    const AtTensor& output = outputs[static_cast<std::size_t>(root)];
    const AtTensor place = call.staging.output(output, false, op);
    if (root == rank_) {
      const at::NoGradGuard no_grad;
      place.detach().copy_(mine.view_as(place));
    }
    call.add([data = moved(place), root](Communicator& comm) {
      return comm.broadcast(data, static_cast<Rank>(root));
    });
  }
}

WorkPtr SealedBackend::allgather(std::vector<AtTensors>& outputs, AtTensors& inputs,
                                 const c10d::AllgatherOptions&) {
  constexpr const char* kOp = "sealring:all_gather";
  same_elements(1, static_cast<std::int64_t>(inputs.size()), "the list of inputs", kOp);
  same_elements(1, static_cast<std::int64_t>(outputs.size()), "the list of output lists", kOp);
  Call call(*this, OpType::ALLGATHER, kOp, outputs[0]);
  add_all_gather(call, outputs[0], inputs[0], kOp);
  return launch(std::move(call));
}

WorkPtr SealedBackend::allgather_coalesced(std::vector<AtTensors>& outputs, AtTensors& inputs,
                                           const c10d::AllgatherOptions&) {
  constexpr const char* kOp = "sealring:all_gather";  // here outputs[rank][i] is rank's inputs[i]
  same_elements(size_, static_cast<std::int64_t>(outputs.size()), "the list of output lists", kOp);
  AtTensors all;
  for (const AtTensors& list : outputs) {
    same_elements(static_cast<std::int64_t>(inputs.size()), static_cast<std::int64_t>(list.size()),
                  "an output list", kOp);
    all.insert(all.end(), list.begin(), list.end());
  }
  Call call(*this, OpType::ALLGATHER_COALESCED, kOp, all);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    AtTensors column;
    for (const AtTensors& list : outputs) column.push_back(list[i]);
    add_all_gather(call, column, inputs[i], kOp);
  }
  return launch(std::move(call));
}

void SealedBackend::add_all_gather_into(Call& call, AtTensor& output, AtTensor& input, const char* op) {
  same_dtype(input, output, op);
  same_elements(input.numel() * size_, output.numel(), "the output", op);
  const AtTensor whole = call.staging.output(output, false, op);
  AtTensor mine = call.staging.input(input, op);
  // FSDP passes the input as its own slice of the output; anything else that overlaps is copied first.
  if (clashes(whole, mine, mine.nbytes() * static_cast<std::size_t>(rank_)))
    mine = call.staging.keep(plain_copy(mine));
  call.add([in = moved(mine), out = moved(whole)](Communicator& comm) { return comm.all_gather(in, out); });
}

WorkPtr SealedBackend::_allgather_base(AtTensor& output, AtTensor& input, const c10d::AllgatherOptions&) {
  constexpr const char* kOp = "sealring:all_gather_into_tensor";
  Call call(*this, OpType::_ALLGATHER_BASE, kOp, {output});
  add_all_gather_into(call, output, input, kOp);
  return launch(std::move(call));
}

WorkPtr SealedBackend::allgather_into_tensor_coalesced(AtTensors& outputs, AtTensors& inputs,
                                                       const c10d::AllgatherOptions&) {
  constexpr const char* kOp = "sealring:all_gather_into_tensor";
  same_elements(static_cast<std::int64_t>(inputs.size()), static_cast<std::int64_t>(outputs.size()),
                "the list of outputs", kOp);
  Call call(*this, OpType::COALESCED, kOp, outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) add_all_gather_into(call, outputs[i], inputs[i], kOp);
  return launch(std::move(call));
}

void SealedBackend::add_reduce_scatter_from(Call& call, AtTensor& output, AtTensor& input,
                                            const c10d::ReduceOp& redop, const char* op) {
  same_dtype(input, output, op);
  same_elements(output.numel() * size_, input.numel(), "the input", op);
  const Reduction reduction = reduction_of(redop, op);
  const AtTensor whole = call.staging.input(input, op);
  AtTensor mine = call.staging.output(output, false, op);
  if (clashes(whole, mine, mine.nbytes() * static_cast<std::size_t>(rank_))) {
    const AtTensor stand_in = at::empty_like(mine);
    call.staging.write_back(mine, stand_in);
    mine = call.staging.keep(stand_in);
  }
  call.add([in = reduced(whole, op), out = reduced(mine, op), reduction](Communicator& comm) {
    return comm.reduce_scatter(in, out, reduction);
  });
}

WorkPtr SealedBackend::_reduce_scatter_base(AtTensor& output, AtTensor& input,
                                            const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "sealring:reduce_scatter_tensor";
  Call call(*this, OpType::_REDUCE_SCATTER_BASE, kOp, {output});
  add_reduce_scatter_from(call, output, input, opts.reduceOp, kOp);
  return launch(std::move(call));
}

WorkPtr SealedBackend::reduce_scatter_tensor_coalesced(AtTensors& outputs, AtTensors& inputs,
                                                       const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "sealring:reduce_scatter_tensor";
  same_elements(static_cast<std::int64_t>(outputs.size()), static_cast<std::int64_t>(inputs.size()),
                "the list of inputs", kOp);
  Call call(*this, OpType::REDUCE_SCATTER_TENSOR_COALESCED, kOp, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    add_reduce_scatter_from(call, outputs[i], inputs[i], opts.reduceOp, kOp);
  return launch(std::move(call));
}

WorkPtr SealedBackend::reduce_scatter(AtTensors& outputs, std::vector<AtTensors>& inputs,
                                      const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOp = "sealring:reduce_scatter";
  same_elements(1, static_cast<std::int64_t>(outputs.size()), "the list of outputs", kOp);
  same_elements(1, static_cast<std::int64_t>(inputs.size()), "the list of input lists", kOp);
  same_elements(size_, static_cast<std::int64_t>(inputs[0].size()), "the list of inputs", kOp);
  const AtTensors& pieces = inputs[0];
  for (const AtTensor& piece : pieces) same_dtype(piece, outputs[0], kOp);
  same_elements(pieces[static_cast<std::size_t>(rank_)].numel(), outputs[0].numel(), "the output", kOp);
  Call call(*this, OpType::REDUCE_SCATTER, kOp, outputs);
  if (equal_sizes(pieces)) {
    AtTensor flat = call.staging.flat_input(pieces, kOp);
    add_reduce_scatter_from(call, outputs[0], flat, opts.reduceOp, kOp);
    return launch(std::move(call));
  }
  // Unequal sizes, which every rank knows from its list: one reduction to each rank.
  const Reduction reduction = reduction_of(opts.reduceOp, kOp);
  const auto mine = reduced(call.staging.output(outputs[0], false, kOp), kOp);
  for (int root = 0; root < size_; ++root) {
    const auto in = reduced(call.staging.input(pieces[static_cast<std::size_t>(root)], kOp), kOp);
    const auto out = root == rank_ ? mine : in;
    call.add([in, out, reduction, root](Communicator& comm) {
      return comm.reduce(in, out, reduction, static_cast<Rank>(root));
    });
  }
  return launch(std::move(call));
}

WorkPtr SealedBackend::gather(std::vector<AtTensors>& outputs, AtTensors& inputs,
                              const c10d::GatherOptions& opts) {
  constexpr const char* kOp = "sealring:gather";
  same_elements(1, static_cast<std::int64_t>(inputs.size()), "the list of inputs", kOp);
  const Rank root = rank_in_group(opts.rootRank, kOp);
  const bool is_root = root == rank_;
  same_elements(is_root ? 1 : 0, static_cast<std::int64_t>(outputs.size()), "the list of output lists", kOp);
  Call call(*this, OpType::GATHER, kOp, is_root ? outputs[0] : AtTensors{});
  const AtTensor mine = call.staging.input(inputs[0], kOp);
  if (is_root) {
    same_elements(size_, static_cast<std::int64_t>(outputs[0].size()), "the list of outputs", kOp);
    for (const AtTensor& output : outputs[0]) {
      same_dtype(mine, output, kOp);
      same_elements(mine.numel(), output.numel(), "an output", kOp);
    }
    const AtTensor flat = call.staging.flat_output(outputs[0], kOp);
    const bool clash = clashes(flat, mine, mine.nbytes() * static_cast<std::size_t>(rank_));
    const auto in = moved(clash ? call.staging.keep(plain_copy(mine)) : mine);
    call.add([in, whole = moved(flat), root](Communicator& comm) { return comm.gather(in, whole, root); });
  } else {
    call.add([in = moved(mine), root](Communicator& comm) {
      return comm.gather(in, sealring::Tensor{nullptr, 0, in.dtype}, root);
    });
  }
  return launch(std::move(call));
}

WorkPtr SealedBackend::scatter(AtTensors& outputs, std::vector<AtTensors>& inputs,
                               const c10d::ScatterOptions& opts) {
  constexpr const char* kOp = "sealring:scatter";
  same_elements(1, static_cast<std::int64_t>(outputs.size()), "the list of outputs", kOp);
  const Rank root = rank_in_group(opts.rootRank, kOp);
  const bool is_root = root == rank_;
  same_elements(is_root ? 1 : 0, static_cast<std::int64_t>(inputs.size()), "the list of input lists", kOp);
  Call call(*this, OpType::SCATTER, kOp, outputs);
  const AtTensor mine = call.staging.output(outputs[0], false, kOp);
  if (is_root) {
    same_elements(size_, static_cast<std::int64_t>(inputs[0].size()), "the list of inputs", kOp);
    for (const AtTensor& input : inputs[0]) {
      same_dtype(input, mine, kOp);
      same_elements(mine.numel(), input.numel(), "an input", kOp);
    }
    AtTensor flat = call.staging.flat_input(inputs[0], kOp);
    if (clashes(flat, mine, mine.nbytes() * static_cast<std::size_t>(rank_)))
      flat = call.staging.keep(plain_copy(flat));
    call.add([in = moved(flat), out = moved(mine), root](Communicator& comm) {
      return comm.scatter(in, out, root);
    });
  } else {
    call.add([out = moved(mine), root](Communicator& comm) {
      return comm.scatter(sealring::Tensor{nullptr, 0, out.dtype}, out, root);
    });
  }
  return launch(std::move(call));
}

WorkPtr SealedBackend::barrier(const c10d::BarrierOptions&) {
  Call call(*this, OpType::BARRIER, "sealring:barrier", {});
  call.add([](Communicator& comm) { return comm.barrier(); });
  return launch(std::move(call));
}

}  // namespace sealring::torch_backend

#include "python/sealring/torch_module.h"
#include "python/sealring/torch_pieces.h"
