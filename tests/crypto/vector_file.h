// Reads data/vectors/*.txt: cases of "name = value" lines, empty lines between them (data/vectors/README.md).
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "sealring/base/bytes.h"

namespace sealring::test {

struct VectorCase {
  std::map<std::string, std::string> values;
  const std::string& text(const std::string& name) const {
    SR_CHECK(values.contains(name), "no value", name);
    return values.at(name);
  }
  Bytes bytes(const std::string& name) const { return from_hex(text(name)).value(); }
};

inline std::vector<VectorCase> read_vectors(const std::string& file) {
  std::ifstream in(std::string(SEALRING_SOURCE_DIR) + "/data/vectors/" + file);
  SR_CHECK(in.good(), "no file", file);
  std::vector<VectorCase> cases;
  VectorCase current;
  const auto flush = [&] {
    if (!current.values.empty()) cases.push_back(std::exchange(current, {}));
  };
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    const std::size_t equals = line.find(" =");
    if (equals == std::string::npos) {
      flush();
    } else {
      current.values[line.substr(0, equals)] = line.size() > equals + 3 ? line.substr(equals + 3) : "";
    }
  }
  flush();
  return cases;
}

template <std::size_t N>
std::array<std::byte, N> array_of(const Bytes& bytes) {
  SR_CHECK(bytes.size() == N, "bytes", bytes.size());
  std::array<std::byte, N> out;
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

}  // namespace sealring::test
