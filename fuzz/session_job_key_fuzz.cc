// A text that JobKey::parse takes is the one text of its key: written again it is the same, but for the last
// newline.
#include <fcntl.h>
#include <unistd.h>

#include "sealring/session/identity.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto key = JobKey::parse(text);
  if (!key) {
    SR_CHECK(key.error().code == Code::key_file);
    return 0;
  }
  SR_CHECK(key->bytes().size() == 32 &&
           (!key->world() || (*key->world() >= 1 && *key->world() <= kRanksMax)));
  char folder[] = "/tmp/sealring-fuzz-XXXXXX";
  SR_CHECK(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/key";
  SR_CHECK(key->write(path).has_value());
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char back[256];
  const ssize_t got = ::read(file, back, sizeof back);
  ::close(file);
  const auto again = JobKey::read(path);
  ::unlink(path.c_str());
  ::rmdir(folder);
  SR_CHECK(got > 0 && again.has_value());
  const std::string_view written(back, static_cast<std::size_t>(got));
  SR_CHECK(written == text || written == std::string(text) + "\n");
  SR_CHECK(constant_time_equal(again->bytes().view(), key->bytes().view()));
  return 0;
}
