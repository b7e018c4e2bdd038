// SPDX-License-Identifier: MIT
// clearhead compare A B --text F | --prompt S: two models on the same windows of one text, or on
// prompts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/edge_fields.h"
#include "cli/gate_options.h"
#include "cli/numbers.h"
#include "core/error.h"
#include "core/progress.h"
#include "model/packed_weights.h"
#include "text/token_stream.h"
#include "use/compare.h"
#include "use/predict.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  GateFlags gates;
  std::string a, b, text;
  std::vector<std::string> prompts;
  std::int64_t context = 0, tokens = 0;
};

// Losses over different tokens do not compare.
void CheckSame(const Options& o, const std::vector<std::int32_t>& ids,
               const std::vector<std::int32_t>& others, const std::string& source) {
  if (ids == others) return;
  const auto [at, other] = std::mismatch(ids.begin(), ids.end(), others.begin(), others.end());
  Fail(
      "'{}' and '{}' have different vocabularies: their tokens of '{}' differ from number {} on; "
      "compare models with one tokenizer",
      o.a, o.b, source, at - ids.begin());
}

Json SideJson(const std::string& name, const Evaluation& side) {
  Json json = {{"model", name}, {"loss", side.loss}, {"perplexity", std::exp(side.loss)}};
  if (!side.open_edges.empty()) AddEdgeFields(TotalEdges(side), &json);
  return json;
}

std::string Table(const Options& o, const Comparison& c) {
  const double tokens = static_cast<double>(c.a.tokens);
  std::string text =
      fmt::format("A  {}\nB  {}\n\n{:<24}{:>12}{:>12}{:>12}\n", o.a, o.b, "", "A", "B", "B - A");
  const auto row = [&](const char* name, const std::string& a, const std::string& b,
                       const std::string& change) {
    text += fmt::format("{:<24}{:>12}{:>12}{:>12}\n", name, a, b, change);
  };
  row("loss (nats)", fmt::format("{:.4f}", c.a.loss), fmt::format("{:.4f}", c.b.loss),
      fmt::format("{:+.4f}", c.difference.mean));
  if (c.difference.interval) {
    text += fmt::format(
        "{:<24}{:>36}\n", "  95 % interval",
        fmt::format("{:+.4f} .. {:+.4f}", c.difference.interval->low, c.difference.interval->high));
  } else {
    text += fmt::format("{:<24}{:>36}\n", "  95 % interval", "none: one window");
  }
  row("perplexity", fmt::format("{:.3f}", std::exp(c.a.loss)),
      fmt::format("{:.3f}", std::exp(c.b.loss)),
      fmt::format("{:+.3f}", std::exp(c.b.loss) - std::exp(c.a.loss)));
  const bool gated_a = !c.a.open_edges.empty(), gated_b = !c.b.open_edges.empty();
  if (gated_a || gated_b) {
    const EdgeTotals a = TotalEdges(c.a), b = TotalEdges(c.b);
    const auto cell = [](bool gated, const std::string& value) { return gated ? value : "dense"; };
    row("open edges (% of causal)", cell(gated_a, fmt::format("{:.3f}", 100.0 * a.fraction)),
        cell(gated_b, fmt::format("{:.3f}", 100.0 * b.fraction)), "");
    row("keys per query and head", cell(gated_a, fmt::format("{:.2f}", a.per_query)),
        cell(gated_b, fmt::format("{:.2f}", b.per_query)), "");
  }
  text += fmt::format(
      "\nsame next token {:.2f} %, KL(A||B) {:.5f} nats per token, over {} tokens in {} windows of "
      "at most {}\n",
      100.0 * static_cast<double>(c.same_prediction) / tokens, c.divergence, c.a.tokens,
      c.a.windows, c.a.context);
  return text;
}

// What both expect after each prompt, their losses on the prompt itself, and the edges it took.
void ComparePrompts(const Options& o, const Model& a, const Model& b, const Tokenizer& tokenizer_a,
                    const Tokenizer& tokenizer_b, const GateRun& gates) {
  Json list = Json::array();
  std::string text = fmt::format("A  {}\nB  {}\n", o.a, o.b);
  for (const std::string& prompt : o.prompts) {
    const std::vector<std::int32_t> ids = tokenizer_a.EncodePrompt(prompt);
    CheckSame(o, ids, tokenizer_b.EncodePrompt(prompt), prompt);
    Json item = {{"prompt", prompt}, {"tokens", ids.size()}};
    text += fmt::format("\n{}\n", prompt);
    for (const auto& [name, model] : {std::pair{"a", &a}, std::pair{"b", &b}}) {
      Json side = {{"next", Json::array()}};
      std::string line;
      const PromptPrediction prediction = PredictNext(*model, ids, 3, gates);
      for (const auto& [id, probability] : prediction.likeliest) {
        // Models may have more embeddings than the tokenizer has tokens.
        const std::string token =
            id < tokenizer_a.vocabulary_size() ? tokenizer_a.TokenText(id) : fmt::format("#{}", id);
        side["next"].push_back({{"id", id}, {"token", token}, {"probability", probability}});
        line += fmt::format("{:>14} {:4.1f} %", fmt::format("'{}'", token), 100.0 * probability);
      }
      if (ids.size() > 1) {
        const Evaluation e = Evaluate(*model, ids, {.gates = gates});
        side["loss"] = e.loss;
        line += fmt::format("   loss {:.3f}", e.loss);
      }
      if (prediction.causal_edges > 0) {
        side["open_edges"] = prediction.open_edges;
        side["causal_edges"] = prediction.causal_edges;
        line += fmt::format("   {} of {} edges", prediction.open_edges, prediction.causal_edges);
      } else {
        const auto length = static_cast<std::int64_t>(ids.size());
        line += fmt::format("   all {} edges", model->config.layers * model->config.heads *
                                                   (length * (length + 1) / 2));
      }
      text += fmt::format("  {} {}\n", name[0] == 'a' ? 'A' : 'B', line);
      item[name] = side;
    }
    list.push_back(item);
  }
  o.common.json ? PrintJson(list) : Print(text);
}

void Run(const Options& o) {
  if (o.text.empty() == o.prompts.empty()) FailUsage("give --text or --prompt");
  const std::filesystem::path path_a = FindModel(o.a), path_b = FindModel(o.b);
  Model a = LoadModel(path_a), b = LoadModel(path_b);
  PackForUse(&a);
  PackForUse(&b);
  if (a.config.vocabulary != b.config.vocabulary) {
    Fail("'{}' has a vocabulary of {} and '{}' one of {}; compare models with one tokenizer", o.a,
         a.config.vocabulary, o.b, b.config.vocabulary);
  }
  // --gates holds for whichever is gated; that none is, Resolve refuses.
  const bool a_gated = a.config.attention == AttentionKind::kGated;
  EvaluateOptions evaluate{.context = o.context,
                           .max_tokens = o.tokens,
                           .gates = o.gates.Resolve(a_gated ? a.config : b.config, o.common.seed)};
  const Tokenizer tokenizer_a = Tokenizer::Load(path_a), tokenizer_b = Tokenizer::Load(path_b);
  if (!o.prompts.empty()) {
    return ComparePrompts(o, a, b, tokenizer_a, tokenizer_b, evaluate.gates);
  }
  const std::vector<std::int32_t> tokens = EncodeDocument(tokenizer_a, o.text);
  CheckSame(o, tokens, EncodeDocument(tokenizer_b, o.text), o.text);
  std::optional<Progress> bar;
  evaluate.progress = [&](std::int64_t done, std::int64_t total) {
    if (!bar) bar.emplace("compare", total, "tok");
    bar->Update(done);
  };
  const Comparison c = Compare(a, b, tokens, evaluate);
  bar.reset();
  if (!o.common.json) return Print(Table(o, c));
  Json json = {
      {"a", SideJson(o.a, c.a)},
      {"b", SideJson(o.b, c.b)},
      {"loss_difference", c.difference.mean},
      {"loss_difference_95", nullptr},
      {"interval_method", "paired Student t over windows, weighted by tokens"},
      {"same_prediction", static_cast<double>(c.same_prediction) / static_cast<double>(c.a.tokens)},
      {"kl_a_b", c.divergence},
      {"tokens", c.a.tokens},
      {"windows", c.a.windows},
      {"context", c.a.context},
      {"seconds", c.seconds}};
  if (c.difference.interval) {
    json["loss_difference_95"] = {c.difference.interval->low, c.difference.interval->high};
  }
  PrintJson(json);
}

}  // namespace

void AddCompare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "compare",
      "Compare two models on the same windows of a text: losses, edges, next-token agreement, KL.\n"
      "The interval of the loss difference is Student's, paired over windows (95 %); windows are "
      "cut "
      "as in eval.",
      "clearhead compare gpt2 gpt2-sparse --text book.txt --context 512", options, Run);
  command->add_option("A", options->a, "Folder or name of a model")->required();
  command->add_option("B", options->b, "The other")->required();
  command->add_option("--text", options->text, "The text, UTF-8");
  command->add_option("--prompt", options->prompts,
                      "Prompts instead: the likeliest next tokens, loss and edges on each");
  command
      ->add_option("--context", options->context,
                   "Window length (default: the fewer positions of the two)")
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 24));
  command
      ->add_option("--tokens", options->tokens, "Stop after this many predictions (default: all)")
      ->check(PositiveNumber());
  options->gates.Add(command, /*with_weight=*/false);
}

}  // namespace clearhead::cli
