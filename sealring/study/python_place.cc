#include "sealring/study/python_place.h"

#include <cstdlib>
#include <filesystem>

#include "sealring/study/process.h"

namespace sealring {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code problem;
  return fs::exists(path, problem);
}

/// A build folder and .venv lie inside the source tree: look upwards from this program.
fs::path source_root() {
  fs::path at = fs::path(own_program()).parent_path();
  for (int depth = 0; depth < 5 && at.has_relative_path(); ++depth, at = at.parent_path()) {
    if (is_there(at / "python/sealring/__init__.py") && is_there(at / "data/workloads")) return at;
  }
  return {};
}

}  // namespace

PythonPlace find_python(const std::string& wanted) {
  PythonPlace out;
  const fs::path here = fs::path(own_program()).parent_path();
  const fs::path root = source_root();
  out.root = root.string();
  out.interpreter = "python3";
  if (is_there(here / "python3")) {  // installed beside its interpreter, which has the package
    out.interpreter = (here / "python3").string();
  } else {
    if (!root.empty() && is_there(root / ".venv/bin/python3"))
      out.interpreter = (root / ".venv/bin/python3").string();
    if (is_there(here / "python/sealring/_build_info.py")) {  // a build folder with the PyTorch backend
      const char* before = std::getenv("PYTHONPATH");
      out.path = (here / "python").string();
      if (before != nullptr && *before != 0) out.path += std::string(":") + before;
    }
  }
  if (!wanted.empty()) out.interpreter = wanted;
  return out;
}

std::vector<std::string> python_command(const std::string& interpreter, const std::string& module,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> out{interpreter, "-P", "-m", module};
  out.insert(out.end(), arguments.begin(), arguments.end());
  return out;
}

std::string data_directory() {
  const fs::path root = source_root();
  if (!root.empty()) return (root / "data").string();
  const fs::path installed = fs::path(own_program()).parent_path().parent_path() / "share/sealring/data";
  return is_there(installed) ? installed.string() : std::string();
}

}  // namespace sealring
