#include "sealring/transport/transport.h"
namespace sealring {
Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpConfig&) {
  return fail(Code::unsupported, "tcp", "tcp does not exist yet");
}
}  // namespace sealring
