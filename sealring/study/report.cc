#include "sealring/study/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "sealring/base/displayed.h"
#include "sealring/study/process.h"
#include "sealring/study/python_place.h"
#include "sealring/study/report_marks.h"
#include "sealring/study/report_sections.h"

namespace sealring {
namespace {

using nlohmann::json;

constexpr std::size_t kQuotedBytesMax = 1u << 20;
constexpr std::size_t kPageBytesMax = 256u << 20;

/// Text in Markdown that is nothing but text, whoever wrote it: no HTML, link, picture or cell begins or ends
/// in it. An arrow (->) stays as it is; it opens and closes nothing.
std::string escaped(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::string shown = displayed(text);
  std::string out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const char c = shown[i], before = i == 0 ? ' ' : shown[i - 1];
    const bool link = (c == '[' && before == '!') || (before == ']' && (c == '(' || c == '[' || c == ':'));
    if (c == '|' || c == '\\' || link) out += '\\';
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '>' && before != '-' ? "&gt;" : std::string(1, c);
  }
  return out;
}

/// A paragraph that begins no heading, list, quotation or block of code.
std::string escaped_paragraph(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  const bool marks = std::string_view("#-+*=~`_").find(text[first]) != std::string_view::npos;
  return (marks ? "\\" : "") + escaped(text.substr(first));
}

std::string table_text(const ReportTable& table) {
  std::string out = "|";
  for (const std::string& column : table.columns) out += " " + escaped(column) + " |";
  out += "\n|";
  for (std::size_t i = 0; i < table.columns.size(); ++i) out += "---|";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const std::string& cell : row) out += " " + escaped(cell) + " |";
    out += "\n";
  }
  if (!table.note.empty()) out += "\n" + escaped_paragraph(table.note) + "\n";
  return out;
}

/// HTML is drawn by Python; without it the Markdown still is a whole report.
Result<void> write_html(const Report& report, const std::string& html_path, const std::string& python) {
  catch_interrupts();
  SR_TRY(const PrivateDirectory directory, PrivateDirectory::make());
  const std::string data_path = directory.path() + "/report.json";
  SR_TRY(write_file(data_path, to_json(report)));
  const PythonPlace place = find_python(python);
  ProcessSpec spec;
  const std::string page_path = directory.path() + "/report.html";
  spec.arguments = python_command(place.interpreter, "sealring.plots", {data_path, "-o", page_path});
  if (!place.path.empty()) spec.environment["PYTHONPATH"] = place.path;
  spec.error_file = directory.path() + "/log";
  SR_TRY(Process process, Process::start(spec));
  const auto status = process.wait(Deadline::in(std::chrono::minutes(3)));
  if (status == 0) {
    // Whatever the interpreter's status says, only a page that is there is passed on.
    SR_TRY(const std::string page, read_file(page_path, kPageBytesMax));
    return write_file(html_path, page);
  }
  const std::string log = read_file(spec.error_file, kQuotedBytesMax).value_or("");
  const std::string end = log.size() > 600 ? log.substr(log.size() - 600) : log;
  return fail(Code::file, "report.html",
              status          ? "python3 -m sealring.plots failed: " + end
              : interrupted() ? "interrupted by a signal"
                              : "plots took too long",
              "install altair and vl-convert-python; report.md is whole without them");
}

}  // namespace

ModelSummaries summarize_models(const StudyResults& results) {
  ModelSummaries out;
  for (const ModelRecord& model : results.models) {
    std::vector<CaseSummary> summaries = summarize_model(results, model.id);
    if (!summaries.empty()) out.emplace_back(&model, std::move(summaries));
  }
  return out;
}

Report build_report(const StudyResults& results, const std::string& quoted_json) {
  Report report;
  report.title = "What sealing costs in training: preset " + results.preset;
  report.subtitle = fmt::format("{}; {}", results.machines.empty() ? "" : describe(results.machines.front()),
                                when_text(results));
  const ModelSummaries models = summarize_models(results);
  report.sections = {reading_section(), short_section(results, models)};
  const bool any = !models.empty(), searched = !results.blocks.empty();
  if (any) report.sections.push_back(slowdown_section(results, models));
  if (any) report.sections.push_back(equal_cap_section(results, models));
  if (any) report.sections.push_back(breakdown_section(results, models));
  if (searched) report.sections.push_back(buckets_section(results));
  if (any) report.sections.push_back(emulation_section(results, models));
  if (!results.counts.empty()) report.sections.push_back(counts_section(results));
  if (!results.setups.empty()) report.sections.push_back(setup_section(results));
  if (!quoted_json.empty()) {
    auto quoted = quoted_sections(results, models, quoted_json);
    if (quoted) {
      report.sections.insert(report.sections.end(), quoted->begin(), quoted->end());
    } else {
      report.sections.push_back({"Published numbers", {quoted.error().message()}, {}, "", "", {}});
    }
  }
  report.sections.push_back(deployment_section(results));
  report.sections.push_back(method_section(results));
  return report;
}

/// A paragraph, or an item of a list: what begins with "- ", which our own texts alone do.
static std::string paragraph_text(const std::string& text) {
  if (!text.starts_with("- ")) return escaped_paragraph(text);
  return "- " + escaped_paragraph(text.substr(2));
}

std::string to_markdown(const Report& report) {
  std::string out = fmt::format("# {}\n\n{}\n", escaped(report.title), escaped_paragraph(report.subtitle));
  for (const ReportSection& section : report.sections) {
    out += fmt::format("\n## {}\n", escaped(section.title));
    for (const std::string& paragraph : section.paragraphs) out += "\n" + paragraph_text(paragraph) + "\n";
    for (const ReportTable& table : section.tables) out += "\n" + table_text(table);
    for (const std::string& remark : section.remarks) out += "\n" + paragraph_text(remark) + "\n";
  }
  return out;
}

std::string to_json(const Report& report) {
  json out{{"schema", "sealring-report-1"},
           {"title", report.title},
           {"subtitle", report.subtitle},
           {"sections", json::array()}};
  for (const ReportSection& section : report.sections) {
    json tables = json::array();
    for (const ReportTable& table : section.tables) {
      tables.push_back({{"columns", table.columns}, {"rows", table.rows}, {"note", table.note}});
    }
    out["sections"].push_back({{"title", section.title},
                               {"paragraphs", section.paragraphs},
                               {"tables", tables},
                               {"remarks", section.remarks},
                               {"chart", section.chart},
                               {"data", section.data.empty() ? json::array() : json::parse(section.data)}});
  }
  return out.dump(1);
}

Result<WrittenReport> write_report(const StudyResults& results, const std::string& directory,
                                   const std::string& python) {
  std::string quoted;
  if (const std::string data = data_directory(); !data.empty()) {
    quoted = read_file(data + "/paper/quoted.json", kQuotedBytesMax).value_or("");
  }
  const Report report = build_report(results, quoted);
  WrittenReport out;
  out.markdown_path = directory + "/report.md";
  SR_TRY(write_file(out.markdown_path, to_markdown(report)));
  if (const auto html = write_html(report, directory + "/report.html", python); html) {
    out.html_path = directory + "/report.html";
  } else {
    out.html_problem = html.error().message();
  }
  return out;
}

std::string summary_text(const StudyResults& results) {
  const ModelSummaries models = summarize_models(results);
  std::string out;
  for (const std::string& paragraph : short_section(results, models).paragraphs)
    out += displayed(paragraph) + "\n\n";
  for (const ReportTable& table : slowdown_section(results, models).tables) {
    std::vector<std::size_t> widths;
    for (const std::string& column : table.columns) widths.push_back(column.size());
    for (const auto& row : table.rows) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    const auto line = [&](const std::vector<std::string>& cells) {
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::string cell = displayed(cells[i]);
        out += i == 0 ? fmt::format("{:<{}}", cell, widths[i]) : fmt::format("  {:>{}}", cell, widths[i]);
      }
      out += "\n";
    };
    line(table.columns);
    for (const auto& row : table.rows) line(row);
    out += "\n";
  }
  return models.empty() ? out : out + legend_text();
}

}  // namespace sealring
