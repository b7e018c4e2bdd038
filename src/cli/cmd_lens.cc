// SPDX-License-Identifier: MIT
// clearhead lens MODEL --prompt S: what each layer, and each head by itself, would predict.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/gate_options.h"
#include "cli/numbers.h"
#include "cli/prompt_words.h"
#include "core/error.h"
#include "figures/canvas.h"
#include "figures/lens_figure.h"
#include "use/lens.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  InputOptions input;
  GateFlags gates;
  std::string model, out, target;
  std::int64_t likeliest = 5, position = -1, rows = 10;
  Option* position_option = nullptr;
  bool stream_only = false;
};

std::string PointName(std::int64_t point) {
  return point == 0 ? "embed" : fmt::format("L{}", point - 1);
}

Json CellJson(const LensCell& cell, const PromptWords& words) {
  return {{"likeliest", words.PredictionsJson(cell.likeliest)},
          {"target_probability", cell.target_probability},
          {"target_rank", cell.target_rank}};
}

Json SharesJson(const std::vector<LogitShare>& shares, const PromptWords& words) {
  Json list = Json::array();
  for (const LogitShare& share : shares) {
    list.push_back(
        {{"token", share.token}, {"text", words.Text(share.token)}, {"logit", share.logit}});
  }
  return list;
}

Json DocumentOf(const Lens& lens, const std::string& model, std::span<const std::int32_t> ids,
                const PromptWords& words) {
  Json stream = Json::array(), targets = Json::array();
  for (std::size_t p = 0; p < lens.stream.size(); ++p) {
    Json cells = Json::array();
    for (const LensCell& cell : lens.stream[p]) cells.push_back(CellJson(cell, words));
    stream.push_back({{"point", PointName(static_cast<std::int64_t>(p))}, {"positions", cells}});
  }
  for (const std::int32_t target : lens.targets) {
    targets.push_back({{"token", target}, {"text", words.Text(target)}});
  }
  Json document = {{"schema", "clearhead.lens.1"}, {"model", model},     {"ids", ids},
                   {"tokens", words.Texts(ids)},   {"targets", targets}, {"stream", stream}};
  if (lens.heads.empty()) return document;
  Json heads = Json::array();
  for (const HeadLens& head : lens.heads) {
    heads.push_back({{"head", fmt::format("L{}H{}", head.layer, head.head)},
                     {"target_logit", head.target_logit},
                     {"raised", SharesJson(head.raised, words)},
                     {"lowered", SharesJson(head.lowered, words)}});
  }
  document["heads"] = {{"position", lens.position}, {"heads", heads}};
  return document;
}

LensFigure FigureOf(const Lens& lens, const std::string& model, std::span<const std::int32_t> ids,
                    const PromptWords& words) {
  LensFigure figure{
      .title = fmt::format("{}: what each layer would predict (framed: the target)", model),
      .tokens = words.Texts(ids)};
  for (std::size_t p = 0; p < lens.stream.size(); ++p) {
    figure.rows.push_back(PointName(static_cast<std::int64_t>(p)));
    std::vector<LensFigureCell>& cells = figure.cells.emplace_back();
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const Prediction& best = lens.stream[p][t].likeliest[0];
      cells.push_back({words.Text(best.token), best.probability, best.token == lens.targets[t]});
    }
  }
  return figure;
}

std::string TextOf(const Options& o, const Lens& lens, std::span<const std::int32_t> ids,
                   const PromptWords& words) {
  const auto at = static_cast<std::size_t>(lens.position);
  std::string text = fmt::format(
      "after '{}' (position {}), towards '{}':\n{:<7} {:<16} {:>8} {:>10} {:>6}\n",
      words.Text(ids[at]), at, words.Text(lens.targets[at]), "", "likeliest", "", "target", "rank");
  for (std::size_t p = lens.stream.size(); p-- > 0;) {
    const LensCell& cell = lens.stream[p][at];
    text += fmt::format(
        "{:<7} {:<16} {:>6.1f} % {:>8.1f} % {:>6}\n", PointName(static_cast<std::int64_t>(p)),
        fmt::format("'{}'", words.Text(cell.likeliest[0].token)),
        100.0 * cell.likeliest[0].probability, 100.0 * cell.target_probability, cell.target_rank);
  }
  if (lens.heads.empty()) return text;
  std::vector<const HeadLens*> order;
  for (const HeadLens& head : lens.heads) order.push_back(&head);
  std::stable_sort(order.begin(), order.end(), [](const HeadLens* a, const HeadLens* b) {
    return std::abs(a->target_logit) > std::abs(b->target_logit);
  });
  text += fmt::format("\n{:<7} {:>12}  {:<46} {}\n", "head", "on target", "raises", "lowers");
  const auto list = [&](const std::vector<LogitShare>& shares) {
    std::string line;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, shares.size()); ++i) {
      line += fmt::format("{}'{}' {:+.2f}", i == 0 ? "" : ", ", words.Text(shares[i].token),
                          shares[i].logit);
    }
    return line;
  };
  for (std::size_t i = 0; i < std::min(order.size(), static_cast<std::size_t>(o.rows)); ++i) {
    text += fmt::format("{:<7} {:>+12.3f}  {:<46} {}\n",
                        fmt::format("L{}H{}", order[i]->layer, order[i]->head),
                        order[i]->target_logit, list(order[i]->raised), list(order[i]->lowered));
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
  LensOptions options{.likeliest = o.likeliest,
                      .heads = !o.stream_only,
                      .gates = o.gates.Resolve(model.config, o.common.seed)};
  if (o.position_option->count() > 0) options.position = o.position;
  if (!o.target.empty()) options.target = words.Single(o.target);
  const Lens lens = LookThrough(model, input.ids, options);
  if (!o.out.empty()) DrawLensFigure(FigureOf(lens, ShortName(o.model), input.ids, words), o.out);
  if (o.common.json) return PrintJson(DocumentOf(lens, o.model, input.ids, words));
  Print(TextOf(o, lens, input.ids, words));
}

}  // namespace

void AddLens(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      app, "lens",
      "The logit lens: what the model would predict if it ended after each layer, and what each "
      "head's\noutput says by itself (its share of every logit, the final norm's divisor held "
      "fixed)",
      "clearhead lens tale --prompt 'The cat sat on the' --out lens.svg", options, Run);
  command->add_option("MODEL", o.model, "Folder or name of a model")->required();
  o.input.Add(command);
  command->add_option("--target", o.target,
                      "Token to follow, e.g. ' mat' (default: what each position predicts)");
  o.position_option = command
                          ->add_option("--position", o.position,
                                       "Position whose heads are told (default: the last)")
                          ->check(NonNegativeNumber());
  command->add_flag("--stream", o.stream_only, "The layers alone, without the heads");
  command->add_option("--top", o.likeliest, "Tokens of each cell (default: 5)")
      ->check(Range(std::int64_t{1}, std::int64_t{1000}));
  command->add_option("--rows", o.rows, "Heads to print (default: 10)")->check(PositiveNumber());
  o.gates.Add(command, /*with_weight=*/false);
  command->add_option("--out", o.out, "The figure: .svg, .pdf or .png");
}

}  // namespace clearhead::cli
