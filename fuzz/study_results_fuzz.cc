// What a results file holds is refused, or can be reported. The input is read as a whole file, and as a
// file's content to which the digest is given.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "sealring/base/bytes.h"
#include "sealring/crypto/kdf.h"
#include "sealring/study/report.h"

namespace {

void load_and_report(const std::string& text) {
  using namespace sealring;
  const auto results = results_from_text(text);
  if (!results) {
    SR_CHECK(results.error().code == Code::results);
    return;
  }
  SR_CHECK(!results->machines.empty());
  const Report report = build_report(*results, "");
  SR_CHECK(to_markdown(report).find('<') == std::string::npos);
  SR_CHECK(!to_json(report).empty() && !summary_text(*results).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sealring;
  const std::string text(data, data + size);
  load_and_report(text);
  if (std::count(text.begin(), text.end(), '[') + std::count(text.begin(), text.end(), '{') > 10'000)
    return 0;
  const auto content = nlohmann::json::parse(text, nullptr, false);
  if (content.is_discarded()) return 0;
  const std::string digest = to_hex(sha256({as_bytes(content.dump())}));
  load_and_report(
      nlohmann::json{{"schema", kResultsSchema}, {"digest", digest}, {"content", content}}.dump());
  return 0;
}
