#include "sealring/study/python_place.h"

#include <cstdlib>
#include <filesystem>

#include "sealring/study/process.h"

namespace sealring {
namespace {

namespace fs = std::filesystem;

/// A build folder lies inside the source tree: look upwards from this program.
fs::path source_root() {
  std::error_code problem;
  fs::path at = fs::path(own_program()).parent_path();
  for (int depth = 0; depth < 5 && at.has_relative_path(); ++depth, at = at.parent_path()) {
    if (fs::exists(at / "python/sealring/train.py", problem)) return at;
  }
  return {};
}

}  // namespace

PythonPlace find_python(const std::string& wanted) {
  PythonPlace out;
  const fs::path root = source_root();
  std::error_code problem;
  out.root = root.string();
  out.interpreter = wanted;
  if (wanted.empty()) {
    const fs::path venv = root / ".venv/bin/python3";
    out.interpreter = !root.empty() && fs::exists(venv, problem) ? venv.string() : "python3";
  }
  if (!root.empty()) {
    const char* before = std::getenv("PYTHONPATH");
    out.path = (root / "python").string();
    if (before != nullptr && *before != 0) out.path += std::string(":") + before;
  }
  return out;
}

std::string data_directory() {
  std::error_code problem;
  const fs::path root = source_root();
  if (!root.empty() && fs::is_directory(root / "data/workloads", problem)) return (root / "data").string();
  const fs::path installed = fs::path(own_program()).parent_path().parent_path() / "share/sealring/data";
  return fs::is_directory(installed, problem) ? installed.string() : std::string();
}

}  // namespace sealring
