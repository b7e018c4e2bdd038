// SPDX-License-Identifier: MIT
// clearhead eval MODEL --text F: loss and perplexity on a text.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/edge_fields.h"
#include "cli/gate_options.h"
#include "cli/numbers.h"
#include "core/progress.h"
#include "model/packed_weights.h"
#include "text/token_stream.h"
#include "use/evaluate.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  GateFlags gates;
  std::string model, text;
  std::int64_t context = 0, tokens = 0;
  bool per_head = false;
};

void AddGateFields(const ModelConfig& config, const Evaluation& result, bool per_head, Json* json) {
  AddEdgeFields(TotalEdges(result), json);
  if (!per_head) return;
  Json list = Json::array();
  const double causal = static_cast<double>(result.causal_edges);
  for (std::size_t at = 0; at < result.open_edges.size(); ++at) {
    const auto head = static_cast<std::int64_t>(at);
    list.push_back({{"head", fmt::format("L{}H{}", head / config.heads, head % config.heads)},
                    {"open_edges", result.open_edges[at]},
                    {"edge_fraction", static_cast<double>(result.open_edges[at]) / causal},
                    {"edges_per_query", static_cast<double>(result.open_edges[at]) /
                                            static_cast<double>(result.tokens)},
                    {"mean_gate_probability", result.gate_probability[at] / causal}});
  }
  (*json)["heads"] = list;
}

void Run(const Options& options) {
  const std::filesystem::path path = FindModel(options.model);
  Model model = LoadModel(path);
  PackForUse(&model);
  GateRun gates = options.gates.Resolve(model.config, options.common.seed);
  gates.sum_probabilities = options.per_head;
  const Tokenizer tokenizer = Tokenizer::Load(path);
  const std::vector<std::int32_t> tokens = EncodeDocument(tokenizer, options.text);

  EvaluateOptions evaluate{
      .context = options.context, .max_tokens = options.tokens, .gates = gates};
  evaluate.ranks = &Ranks();
  std::optional<Progress> bar;
  evaluate.progress = [&](std::int64_t done, std::int64_t total) {
    if (!bar) bar.emplace("eval", total, "tok", RankProgress());
    bar->Update(done);
  };
  const Evaluation result = Evaluate(model, tokens, evaluate);
  bar.reset();

  Json json = {{"loss", result.loss},
               {"perplexity", std::exp(result.loss)},
               {"tokens", result.tokens},
               {"windows", result.windows},
               {"context", result.context},
               {"seconds", result.seconds},
               {"tokens_per_second", static_cast<double>(result.tokens) / result.seconds}};
  if (!result.open_edges.empty()) AddGateFields(model.config, result, options.per_head, &json);
  if (options.common.json) return PrintJson(json);
  std::string text = fmt::format(
      "loss {:.4f} nats, perplexity {:.3f}, over {} tokens in {} windows of at most {} ({:.0f} "
      "tokens/s)\n",
      result.loss, std::exp(result.loss), result.tokens, result.windows, result.context,
      static_cast<double>(result.tokens) / result.seconds);
  if (json.contains("edge_fraction")) {
    text += fmt::format("open gates {:.3f} % of causal pairs, {:.2f} keys per query and head\n",
                        100.0 * json["edge_fraction"].get<double>(),
                        json["edges_per_query"].get<double>());
  }
  if (json.contains("heads")) {
    for (const Json& head : json["heads"]) {
      text += fmt::format(
          "{:<8} {:>8.3f} %  {:>7.2f} keys per query\n", head["head"].get<std::string>(),
          100.0 * head["edge_fraction"].get<double>(), head["edges_per_query"].get<double>());
    }
  }
  Print(text);
}

}  // namespace

void AddEval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(app, "eval",
                                "Mean next-token cross-entropy (nats) and perplexity on a text.\n"
                                "The text is cut into windows of N input tokens; each token but "
                                "the first is predicted once, from\n"
                                "the tokens before it in its window.",
                                "clearhead eval gpt2 --text book.txt --context 512", options, Run,
                                RunsOn::kAllRanks);
  command->add_option("MODEL", options->model, "Folder or name of a model")->required();
  command->add_option("--text", options->text, "The text, UTF-8")->required();
  command
      ->add_option("--context", options->context,
                   "Window length N (default: the model's positions)")
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 24));
  command
      ->add_option("--tokens", options->tokens, "Stop after this many predictions (default: all)")
      ->check(PositiveNumber());
  command->add_flag("--per-head", options->per_head, "Gated models: also list every head");
  options->gates.Add(command, /*with_weight=*/false);
}

}  // namespace clearhead::cli
