#include <fmt/format.h>

#include "sealring/control/control.h"

namespace sealring {

Bytes OpContext::signature() const {
  ByteWriter out;
  out.put(ByteView(group_id)).put(seq);
  out.put(static_cast<std::uint8_t>(op)).put(static_cast<std::uint8_t>(redop));
  out.put(static_cast<std::uint8_t>(dtype)).put(static_cast<std::uint8_t>(algorithm));
  out.put(root).put(elements);
  return out.take();
}

std::string OpContext::describe() const {
  std::string out = fmt::format("{} {} x {}", to_string(op), to_string(dtype), elements);
  if (redop != RedOp::none) out += fmt::format(" {}", to_string(redop));
  if (root != kNoRoot) out += fmt::format(" root {}", root);
  return out + fmt::format(" {}", to_string(algorithm));
}

}  // namespace sealring
