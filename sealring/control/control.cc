#include "sealring/control/control.h"

#include "sealring/control/control_thread.h"

namespace sealring {

Result<std::unique_ptr<Control>> Control::start(const ControlConfig& config, GroupKeys& keys,
                                                std::unique_ptr<ControlStreams> streams, Verdict& verdict) {
  SR_CHECK(streams != nullptr && config.rank == keys.me() && config.world == keys.members().size(), "rank",
           config.rank, "world", config.world);
  try {
    auto control = std::make_unique<ControlThread>(config, keys, std::move(streams), verdict);
    SR_TRY(control->launch());
    return control;
  } catch (const std::bad_alloc&) {
    return fail(Code::out_of_memory, "control.start", "there is no memory for the control plane");
  }
}

}  // namespace sealring
