// Where the study's Python workers run from.
#pragma once

#include <string>

namespace sealring {

struct PythonPlace {
  std::string interpreter;  ///< as asked for, else .venv of the source tree, else "python3"
  std::string path;  ///< PYTHONPATH: the source tree's python/ in front of what was set; empty: as installed
  std::string root;  ///< the source tree that this program was built in; empty when it is installed elsewhere
};
PythonPlace find_python(const std::string& wanted);

/// The folder data/ of the source tree, or of the installation; empty when there is none.
std::string data_directory();

}  // namespace sealring
