// Where the study's Python workers run from.
#pragma once

#include <string>

namespace sealring {

struct PythonPlace {
  std::string interpreter;  ///< as asked for, else the one beside this program, else .venv's, else "python3"
  std::string path;         ///< PYTHONPATH in a build folder that holds the package; empty: it is installed
  std::string root;  ///< the source tree that this program lies in; empty when it is installed elsewhere
};
PythonPlace find_python(const std::string& wanted);

/// The folder data/ of the source tree, or of the installation; empty when there is none.
std::string data_directory();

}  // namespace sealring
