// SPDX-License-Identifier: MIT
// clearhead report [A] [B] --out F: the page with its data in one file.
#include <fmt/format.h>

#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/viewed_models.h"
#include "core/file.h"
#include "core/progress.h"
#include "viewer/page_report.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  ViewedOptions viewed;
  std::vector<std::string> prompts;
  std::string out, results;
};

void Run(const Options& o) {
  std::vector<ResultFile> results;
  if (!o.results.empty()) results = ReadResults(o.results);
  const ModelSet set = OpenViewedModels(o.viewed);
  const std::vector<std::string> prompts = o.prompts.empty() ? ExamplePrompts(set) : o.prompts;
  std::optional<Progress> line;
  const std::string page =
      MakePageReport(set, prompts, results, [&](std::int64_t done, std::int64_t total) {
        if (!line) line.emplace("Switching heads off", total, "runs");
        line->Update(done);
      });
  line.reset();
  WriteFile(o.out, page);
  if (o.common.json) {
    Json labels = Json::array();
    for (const ViewedModel& viewed : set.models) labels.push_back(viewed.label);
    PrintJson({{"out", o.out}, {"bytes", page.size()}, {"models", labels}, {"prompts", prompts}});
  } else {
    Print(fmt::format("{}: {} prompt{}, {:.1f} MB; open it in any browser\n", o.out, prompts.size(),
                      prompts.size() == 1 ? "" : "s", static_cast<double>(page.size()) / 1e6));
  }
}

}  // namespace

void AddReport(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "report", "Write the page with its data into one file that needs no server or network",
      "clearhead report gpt2 sparse-gpt2 --prompt 'The cat sat on the mat' --out report.html",
      options, Run);
  options->viewed.Add(command);
  command
      ->add_option("--prompt", options->prompts,
                   "A text to run both on; repeatable (default: an example of each task)")
      ->allow_extra_args(false);
  command->add_option("--results", options->results,
                      "Folder with results of `circuit --out` and `scatter --json` to include");
  command->add_option("--out", options->out, "HTML file to write")->required();
}

}  // namespace clearhead::cli
