// SPDX-License-Identifier: MIT
// RFC 4180: fields may be quoted, quotes inside are doubled, quoted fields may hold line breaks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/file.h"
#include "tasks/task_items.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

struct CsvRow {
  std::vector<std::string> fields;
  std::int64_t line;  // where it starts
};

std::vector<CsvRow> ParseCsv(std::string_view text, const fs::path& path) {
  std::vector<CsvRow> rows;
  std::int64_t line = 1;
  std::size_t at = 0;
  while (at < text.size()) {
    CsvRow row{.fields = {""}, .line = line};
    for (bool in_row = true; in_row && at < text.size();) {
      const char c = text[at++];
      if (c == '"' && row.fields.back().empty()) {
        for (bool quoted = true; quoted;) {
          if (at >= text.size()) {
            Fail("{}, line {}: a quoted field is never closed", path.string(), row.line);
          }
          const char q = text[at++];
          if (q == '\n') ++line;
          if (q != '"') {
            row.fields.back() += q;
          } else if (at < text.size() && text[at] == '"') {
            row.fields.back() += text[at++];
          } else {
            quoted = false;
          }
        }
      } else if (c == ',') {
        row.fields.emplace_back();
      } else if (c == '\n') {
        ++line;
        in_row = false;
      } else if (c != '\r') {
        row.fields.back() += c;
      }
    }
    if (row.fields.size() > 1 || !row.fields[0].empty()) rows.push_back(std::move(row));
  }
  return rows;
}

std::string Quoted(std::string_view field) {
  std::string quoted = "\"";
  for (const char c : field) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string IdList(const std::vector<std::int32_t>& ids) {
  return ids.size() == 1 ? fmt::format("{}", ids[0])
                         : fmt::format("\"[{}]\"", fmt::join(ids, ", "));
}

std::vector<std::int32_t> ParseIdList(std::string_view field, const Tokenizer& tokenizer,
                                      const fs::path& path, std::int64_t line) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < field.size();) {
    if (std::string_view("[], \t").find(field[at]) != std::string_view::npos) {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(field.data() + at, field.data() + field.size(), id);
    if (error != std::errc()) {
      Fail("{}, line {}: '{}' is not a token id or a list of them", path.string(), line, field);
    }
    if (id < 0 || id >= tokenizer.vocabulary_size()) {
      Fail("{}, line {}: token {} is outside the vocabulary of {}", path.string(), line, id,
           tokenizer.vocabulary_size());
    }
    ids.push_back(id);
    at = static_cast<std::size_t>(end - field.data());
  }
  return ids;
}

}  // namespace

void WriteTaskCsv(const TaskSet& set, const fs::path& path) {
  std::string text = "clean,corrupted,correct_idx,incorrect_idx\n";
  for (const TaskItem& item : set.items) {
    text += fmt::format("{},{},{},{}\n", Quoted(item.clean_text), Quoted(item.corrupted_text),
                        IdList(item.answers), IdList(item.wrongs));
  }
  WriteFile(path, text);
}

TaskSet ReadTaskCsv(const fs::path& path, const Tokenizer& tokenizer, TaskMetric metric) {
  const std::vector<CsvRow> rows = ParseCsv(ReadFile(path), path);
  if (rows.empty()) Fail("{}: empty; expected a header and one prompt per line", path.string());
  const auto column = [&](std::string_view name) {
    const std::vector<std::string>& header = rows[0].fields;
    return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin());
  };
  const std::size_t clean = column("clean"), corrupted = column("corrupted"),
                    correct = column("correct_idx"), incorrect = column("incorrect_idx");
  const std::size_t columns = rows[0].fields.size();
  for (const auto& [at, name] : {std::pair{clean, "clean"}, std::pair{corrupted, "corrupted"},
                                 std::pair{correct, "correct_idx"}}) {
    if (at == columns) {
      Fail("{}: no column '{}'; found '{}', expected clean,corrupted,correct_idx,incorrect_idx",
           path.string(), name, fmt::join(rows[0].fields, ","));
    }
  }
  if (incorrect == columns && metric == TaskMetric::kLogitDifference) {
    Fail("{}: no column 'incorrect_idx', which a logit difference needs", path.string());
  }
  TaskSet set{.name = path.stem().string(), .metric = metric};
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto& [fields, line] = rows[i];
    if (fields.size() != columns) {
      Fail("{}, line {}: {} fields, the header has {}", path.string(), line, fields.size(),
           columns);
    }
    TaskItem item{.clean_text = fields[clean], .corrupted_text = fields[corrupted]};
    item.clean = tokenizer.EncodePrompt(item.clean_text);
    item.corrupted = tokenizer.EncodePrompt(item.corrupted_text);
    if (item.clean.empty()) Fail("{}, line {}: an empty prompt", path.string(), line);
    if (item.clean.size() != item.corrupted.size()) {
      Fail(
          "{}, line {}: the clean prompt has {} tokens, the corrupted one {}; twins need one "
          "length",
          path.string(), line, item.clean.size(), item.corrupted.size());
    }
    item.answers = ParseIdList(fields[correct], tokenizer, path, line);
    if (incorrect < columns) item.wrongs = ParseIdList(fields[incorrect], tokenizer, path, line);
    if (item.answers.empty()) Fail("{}, line {}: no correct_idx", path.string(), line);
    if (item.wrongs.empty() && metric == TaskMetric::kLogitDifference) {
      Fail("{}, line {}: no incorrect_idx", path.string(), line);
    }
    set.items.push_back(std::move(item));
  }
  if (set.items.empty()) Fail("{}: a header and no prompts", path.string());
  return set;
}

}  // namespace clearhead
