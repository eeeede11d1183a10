// The sections of a study's report, each from the results alone.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sealring/study/report_data.h"

namespace sealring {

using ModelSummaries = std::vector<std::pair<const ModelRecord*, std::vector<CaseSummary>>>;

/// The models that have a block of the final stage.
ModelSummaries summarize_models(const StudyResults& results);

ReportSection short_section(const StudyResults& results, const ModelSummaries& models);
ReportSection slowdown_section(const StudyResults& results, const ModelSummaries& models);
ReportSection equal_cap_section(const StudyResults& results, const ModelSummaries& models);
ReportSection breakdown_section(const StudyResults& results, const ModelSummaries& models);
ReportSection buckets_section(const StudyResults& results);
ReportSection emulation_section(const StudyResults& results, const ModelSummaries& models);
ReportSection counts_section(const StudyResults& results);
ReportSection setup_section(const StudyResults& results);
/// Published numbers: those of our n beside ours, the rest in a panel of their own; and what their models'
/// shapes say. Errors: MALFORMED when the quoted file is not what it should be.
Result<std::vector<ReportSection>> quoted_sections(const StudyResults& results, const ModelSummaries& models,
                                                   const std::string& quoted_json);
ReportSection deployment_section(const StudyResults& results);
ReportSection method_section(const StudyResults& results);

}  // namespace sealring
