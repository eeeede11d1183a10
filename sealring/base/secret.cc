#include "sealring/base/secret.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace sealring {
namespace {

constexpr std::size_t kGrain = 64;
constexpr std::size_t kRegionBytes = 64 * 1024;

/// Regions of anonymous memory, cut into size classes of kGrain bytes; freed cells are wiped and reused.
/// Regions stay mapped for the life of the process: secrets are few and small. [protocol A.6]
class Arena {
 public:
  std::byte* allocate(std::size_t bytes) {
    const std::size_t cell = (bytes + kGrain - 1) / kGrain * kGrain;
    const std::lock_guard lock(mutex_);
    auto& free_cells = free_[cell];
    if (!free_cells.empty()) {
      std::byte* out = free_cells.back();
      free_cells.pop_back();
      return out;
    }
    if (left_ < cell) map_region(cell > kRegionBytes ? cell : kRegionBytes);
    std::byte* out = next_;
    next_ += cell;
    left_ -= cell;
    return out;
  }

  void release(std::byte* memory, std::size_t bytes) noexcept {
    const std::size_t cell = (bytes + kGrain - 1) / kGrain * kGrain;
    secure_wipe({memory, bytes});
    const std::lock_guard lock(mutex_);
    free_[cell].push_back(memory);
  }

 private:
  void map_region(std::size_t bytes) {
    void* region = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SR_CHECK(region != MAP_FAILED, "no memory for secrets");
    (void)madvise(region, bytes, MADV_DONTDUMP);
    (void)madvise(region, bytes, MADV_WIPEONFORK);
    (void)mlock(region, bytes);  // best effort: RLIMIT_MEMLOCK may be small
    next_ = static_cast<std::byte*>(region);
    left_ = bytes;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

/// Never destroyed: objects with static life may hold secrets until the very end.
Arena& arena() {
  static Arena* instance = new Arena;
  return *instance;
}

}  // namespace

SecretBytes::SecretBytes(std::size_t bytes) : size_(bytes) {
  if (bytes != 0) data_ = arena().allocate(bytes);
}

SecretBytes SecretBytes::copy_of(ByteView bytes) {
  SecretBytes out(bytes.size());
  if (!bytes.empty()) std::memcpy(out.data_, bytes.data(), bytes.size());
  return out;
}

SecretBytes::SecretBytes(SecretBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SecretBytes& SecretBytes::operator=(SecretBytes&& other) noexcept {
  if (this != &other) {
    wipe();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

SecretBytes::~SecretBytes() { wipe(); }

void SecretBytes::wipe() noexcept {
  if (data_ != nullptr) arena().release(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

void secure_wipe(std::span<std::byte> memory) noexcept {
  if (memory.empty()) return;
  std::memset(memory.data(), 0, memory.size());
  __asm__ volatile("" : : "r"(memory.data()) : "memory");  // the stores are observed: they may not be removed
}

bool constant_time_equal(ByteView a, ByteView b) noexcept {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | std::to_integer<unsigned char>(a[i] ^ b[i]));
  }
  return difference == 0;
}

void harden_process(bool undumpable) noexcept {
  const rlimit none{0, 0};
  (void)setrlimit(RLIMIT_CORE, &none);
  if (undumpable) (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

}  // namespace sealring
