// Where the study's Python workers run from.
#pragma once

#include <string>
#include <vector>

namespace sealring {

struct PythonPlace {
  std::string interpreter;  ///< as asked for, else the one beside this program, else .venv's, else "python3"
  std::string path;         ///< PYTHONPATH in a build folder that holds the package; empty: it is installed
  std::string root;  ///< the source tree that this program lies in; empty when it is installed elsewhere
};
PythonPlace find_python(const std::string& wanted);

/// The command that runs a module of ours. The working folder is no place to import from: a html.py or a
/// sealring/ that lies there is not executed (-P, Python 3.11).
std::vector<std::string> python_command(const std::string& interpreter, const std::string& module,
                                        const std::vector<std::string>& arguments);

/// The folder data/ of the source tree, or of the installation; empty when there is none.
std::string data_directory();

}  // namespace sealring
