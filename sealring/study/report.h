// Writes the reports of a study: report.md by ourselves, report.html through `python3 -m sealring.plots`.
#pragma once

#include <string>

#include "sealring/study/report_data.h"

namespace sealring {

struct WrittenReport {
  std::string markdown_path, html_path;
  std::string html_problem;  ///< why there is no HTML; the Markdown is whole then
};

/// Errors: FILE, NO_SPACE for the Markdown.
Result<WrittenReport> write_report(const StudyResults& results, const std::string& directory,
                                   const std::string& python);

/// The table that a terminal shows after a study.
std::string summary_text(const StudyResults& results);

}  // namespace sealring
