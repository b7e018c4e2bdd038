// SPDX-License-Identifier: MIT
// clearhead knockout MODEL --prompt S --cut L3H5:8<-5: the same prompt with attention weights cut.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/gate_options.h"
#include "cli/numbers.h"
#include "cli/prompt_words.h"
#include "core/error.h"
#include "figures/canvas.h"
#include "figures/line_chart.h"
#include "heads/head_list.h"
#include "use/knockout.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  InputOptions input;
  GateFlags gates;
  std::string model, out, heads;
  std::vector<std::string> cuts;
  std::int64_t likeliest = 5;
};

std::vector<EdgeCut> CutsOf(const Options& o, const ModelConfig& config) {
  std::vector<EdgeCut> cuts;
  for (const std::string& text : o.cuts) cuts.push_back(ParseEdgeCut(text));
  if (!o.heads.empty()) {
    const auto ids =
        ParseHeadList(o.heads, config.layers, config.heads, []() -> std::vector<HeadId> {
          FailUsage("--heads top:N needs statistics of heads; name them, or give circuit:FILE");
        });
    for (const HeadId id : ids) cuts.push_back({.layer = id.layer, .head = id.head});
  }
  if (cuts.empty()) FailUsage("say what to cut: --cut L3H5:8<-5, or --heads L3H5,L4H1");
  return cuts;
}

Json OutcomeJson(const PromptOutcome& outcome, const PromptWords& words) {
  Json positions = Json::array();
  for (std::size_t t = 0; t < outcome.likeliest.size(); ++t) {
    Json position = {{"likeliest", words.PredictionsJson(outcome.likeliest[t])}};
    if (t < outcome.losses.size()) position["loss"] = outcome.losses[t];
    positions.push_back(position);
  }
  return {{"loss", outcome.loss}, {"positions", positions}};
}

void Draw(const Options& o, const Knockout& result) {
  LineChart chart{
      .title = fmt::format("{}: {} cut", ShortName(o.model),
                           result.edges == 1 ? "one edge" : fmt::format("{} edges", result.edges)),
      .x_label = "position",
      .left_label = "loss of the next token (nats)"};
  const auto add = [&](const char* name, const std::vector<double>& losses) {
    Series series{.name = name, .y = losses};
    for (std::size_t t = 0; t < losses.size(); ++t) series.x.push_back(static_cast<double>(t));
    chart.series.push_back(series);
  };
  add("as it is", result.before.losses);
  add("cut", result.after.losses);
  DrawLineChart(chart, o.out);
}

std::string TextOf(const Knockout& result, std::span<const std::int32_t> ids,
                   const PromptWords& words) {
  std::string text = fmt::format("{} edges cut; loss {:.4f} -> {:.4f}\n", result.edges,
                                 result.before.loss, result.after.loss);
  text += fmt::format("{:>4} {:<14} {:>8} {:>8} {:>9}  {:<22} {}\n", "", "token", "loss", "cut",
                      "KL", "expects", "cut");
  const auto best = [&](const PromptOutcome& outcome, std::size_t t) {
    const Prediction& first = outcome.likeliest[t][0];
    return fmt::format("'{}' {:.1f} %", words.Text(first.token), 100.0 * first.probability);
  };
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const bool last = t + 1 == ids.size();
    text += fmt::format("{:>4} {:<14} {:>8} {:>8} {:>9.5f}  {:<22} {}\n", t,
                        fmt::format("'{}'", words.Text(ids[t])),
                        last ? std::string() : fmt::format("{:.3f}", result.before.losses[t]),
                        last ? std::string() : fmt::format("{:.3f}", result.after.losses[t]),
                        result.divergence[t], best(result.before, t), best(result.after, t));
  }
  return text;
}

void Run(const Options& o) {
  if (!o.out.empty()) CheckFigurePath(o.out);
  const std::filesystem::path path = FindModel(o.model);
  const Model model = LoadModel(path);
  const InputTokens input = ReadInput(o.input, path);
  if (input.batch != 1) FailUsage("one prompt at a time, not {}", input.batch);
  const PromptWords words(path);
  const std::vector<EdgeCut> cuts = CutsOf(o, model.config);
  const Knockout result =
      KnockOut(model, input.ids, cuts,
               {.likeliest = o.likeliest, .gates = o.gates.Resolve(model.config, o.common.seed)});
  if (!o.out.empty()) Draw(o, result);
  if (!o.common.json) return Print(TextOf(result, input.ids, words));
  Json list = Json::array();
  for (const EdgeCut& cut : cuts) list.push_back(ToText(cut));
  PrintJson({{"schema", "clearhead.knockout.1"},
             {"model", o.model},
             {"ids", input.ids},
             {"tokens", words.Texts(input.ids)},
             {"cut", list},
             {"edges", result.edges},
             {"before", OutcomeJson(result.before, words)},
             {"after", OutcomeJson(result.after, words)},
             {"divergence", result.divergence}});
}

}  // namespace

void AddKnockout(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      app, "knockout",
      "Cut attention edges of a prompt and see loss and predictions change. A cut weight is 0, "
      "the\nothers stay as they are; the page does the same where an edge is clicked.",
      "clearhead knockout tale --prompt 'The cat sat on the mat' --cut 'L3H5:5<-2' --cut L2H1",
      options, Run);
  command->add_option("MODEL", o.model, "Folder or name of a model")->required();
  o.input.Add(command);
  command
      ->add_option(
          "--cut", o.cuts,
          "L3H5:8<-5 (query 8 no longer reads key 5), L3H5:8<-*, L3H5:*<-5, or L3H5 (all of "
          "the head); may be repeated")
      ->allow_extra_args(false);
  command->add_option("--heads", o.heads,
                      "All edges of these heads: L0H1,L5H2 | circuit:FILE | all");
  command->add_option("--top", o.likeliest, "Tokens of each prediction (default: 5)")
      ->check(Range(std::int64_t{1}, std::int64_t{1000}));
  o.gates.Add(command, /*with_weight=*/false);
  command->add_option("--out", o.out, "Figure of the losses: .svg, .pdf or .png");
}

}  // namespace clearhead::cli
