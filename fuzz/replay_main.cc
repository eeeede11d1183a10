// Runs a fuzz target over every file of the given folders or files: the corpus as a plain test, without
// libFuzzer.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

bool replay(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.good() && !in.eof()) {
    std::fprintf(stderr, "cannot read %s\n", file.c_str());
    return false;
  }
  std::fprintf(stderr, "%s\n", file.c_str());  // before it runs: an abort leaves the culprit as the last line
  (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    std::error_code problem;
    if (std::filesystem::is_regular_file(argv[i], problem)) {
      if (!replay(argv[i])) return 1;
      ++files;
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i], problem)) {
      if (!entry.is_regular_file(problem)) continue;
      if (!replay(entry.path())) return 1;
      ++files;
    }
  }
  std::fprintf(stderr, "%d inputs\n", files);
  if (files == 0) std::fprintf(stderr, "no input was found: usage: %s FOLDER|FILE...\n", argv[0]);
  return files == 0 ? 1 : 0;
}
