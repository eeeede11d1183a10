// What the device says of its ops, in words: a pure function, without a CUDA header.
#pragma once

#include <cstddef>
#include <string>

#include "sealring/base/result.h"
#include "sealring/device/cuda/key_state.h"

namespace sealring::cuda {

/// As it lies in KeyState.
struct DeviceVerdict {
  std::uint32_t code = 0;  ///< 0: no op has failed
  std::uint32_t bad_segment = 0;
};
static_assert(offsetof(KeyState, bad_segment) - offsetof(KeyState, verdict) ==
                  offsetof(DeviceVerdict, bad_segment) &&
              sizeof(DeviceVerdict) == 8);

/// Of a verdict that is not 0. `refill` is what has become of the thread that uploads keys.
inline Error verdict_error(const DeviceVerdict& verdict, const Result<void>& refill) {
  Error out;
  out.code = static_cast<Code>(verdict.code);
  out.stage = "data.cuda";
  switch (out.code) {
    case Code::data_tag:
      out.what = "a record is not authentic (segment " + std::to_string(verdict.bad_segment) + " of its job)";
      break;
    case Code::key_limit:
      out.what =
          "an operation was refused before it sealed: its key is used up and the next one is not there";
      if (!refill)
        out.what += ", for the refill of keys had ended: " + refill.error().message();
      else
        out.next = "leave 100 ms or more to an epoch, or split the operation";
      break;
    case Code::seq_reuse_guard:
      out.what =
          "an operation was refused before it sealed: one ahead of it had not ended, or it named numbers "
          "that are not the next";
      break;
    default:
      out.what = "the device refused an operation before it sealed anything";
      break;
  }
  return out;
}

}  // namespace sealring::cuda
