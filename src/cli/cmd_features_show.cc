// SPDX-License-Identifier: MIT
// clearhead features show MODEL FEATURES L3F512: one feature's card; features by text; what fires
// where on a prompt.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "core/error.h"
#include "features/feature_card.h"
#include "features/feature_search.h"
#include "features/prompt_features.h"
#include "features/transcoder_files.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;

struct Options {
  CommonOptions common;
  std::string model, features, index, feature, find, prompt;
  std::int64_t most = 0;
  Option* prompt_option = nullptr;
};

struct Opened {
  Model model;
  Transcoder transcoder;
  Tokenizer tokenizer;
  std::optional<FeatureIndex> index;

  const FeatureIndex* IndexOrNull() const { return index ? &*index : nullptr; }
};

Opened Open(const Options& o) {
  const fs::path model = FindModel(o.model), features = FindFeatures(o.features);
  Opened opened{.model = LoadModel(model),
                .transcoder = LoadTranscoder(features),
                .tokenizer = Tokenizer::Load(model),
                .index = {}};
  CheckFits(opened.transcoder, opened.model);
  if (!o.index.empty()) {
    opened.index.emplace(fs::path(o.index));
  } else {
    opened.index = FindIndex(features);
  }
  if (opened.index) opened.index->CheckBelongsTo(opened.transcoder);
  return opened;
}

// ▁▂▃▄▅▆▇█, a bar for each bin up to the last that has anything.
std::string Bars(const FeatureFacts& facts) {
  const auto& bins = facts.histogram;
  const std::uint32_t most = *std::max_element(bins.begin(), bins.end());
  std::size_t last = bins.size();
  while (last > 0 && bins[last - 1] == 0) --last;
  std::string text;
  for (std::size_t bin = 0; bin < last; ++bin) {
    constexpr const char* kBars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const double height = 8.0 * bins[bin] / most;
    text += kBars[static_cast<int>(std::ceil(height))];
  }
  return text;
}

std::string ListText(const Tokenizer& tokenizer, const TokenList& list) {
  std::string text;
  for (const TokenScore& score : list) {
    text += fmt::format(" “{}”", TextOf(tokenizer, std::span(&score.token, 1)));
  }
  return text;
}

// The tokens on which the feature fires stand in brackets, the peak in two.
std::string ExampleText(const Tokenizer& tokenizer, const FeatureExample& example) {
  std::string text;
  for (std::size_t i = 0; i < example.tokens.size(); ++i) {
    const std::string token = TextOf(tokenizer, std::span(&example.tokens[i], 1));
    if (static_cast<std::int64_t>(i) == example.peak) {
      text += "[[" + token + "]]";
    } else {
      text += example.activations[i] != 0.0f ? "[" + token + "]" : token;
    }
  }
  return text;
}

std::string CardText(const Tokenizer& tokenizer, const FeatureCard& card) {
  std::string text = ToText(card.id);
  if (card.facts) {
    const FeatureFacts& facts = *card.facts;
    text += fmt::format("  {}\n", LabelSentence(tokenizer, facts.label));
    text += fmt::format("fires on {:.4f} % of {} tokens, on average with {:.4g}, at most {:.4g}\n",
                        card.looked_at == 0 ? 0.0
                                            : 100.0 * static_cast<double>(facts.fired) /
                                                  static_cast<double>(card.looked_at),
                        card.looked_at, facts.mean, facts.largest);
    if (facts.fired > 0) {
      const std::string bars = Bars(facts);
      text += fmt::format("activations 0 |{}| {:.4g}\n", bars, facts.largest);
    }
  } else {
    text += "  without an index: what its weights say (`clearhead features index` makes one)\n";
  }
  text += "promotes  " + ListText(tokenizer, card.tokens.promoted) + "\n";
  text += "suppresses" + ListText(tokenizer, card.tokens.suppressed) + "\n";
  text += "excited by" + ListText(tokenizer, card.tokens.exciting) + "\n";
  text += "writes into";
  for (std::size_t t = 0; t < card.writes.size(); ++t) {
    text += fmt::format("{} layer {} ({:.3g})", t == 0 ? "" : ",",
                        card.id.layer + static_cast<std::int64_t>(t), card.writes[t]);
  }
  text += "\n";
  if (!card.facts) return text;
  std::optional<ExampleGroup> group;
  for (const FeatureExample& example : card.facts->examples) {
    if (group != example.group) text += fmt::format("{}:\n", NameOf(example.group));
    group = example.group;
    text +=
        fmt::format("{:>9.4g}  {}\n", example.activations[static_cast<std::size_t>(example.peak)],
                    ExampleText(tokenizer, example));
  }
  return text;
}

std::string LabelOf(const Opened& opened, FeatureId id) {
  return opened.index ? LabelText(opened.tokenizer, opened.index->Label(id)) : std::string();
}

void Find(const Options& o, const Opened& opened) {
  if (!opened.index) {
    Fail("'{}' has no index to search; make one with `clearhead features index`", o.features);
  }
  const std::int64_t most = o.most > 0 ? o.most : 20;
  const FoundFeatures found = SearchFeatures(*opened.index, opened.tokenizer, o.find, most);
  Json list = Json::array();
  std::string text = fmt::format("{} features with “{}”{}\n", found.total, o.find,
                                 found.total > most ? fmt::format(", the first {}", most) : "");
  for (const FoundFeature& feature : found.features) {
    const FeatureFacts facts = opened.index->Read(feature.id);
    const double share =
        opened.index->info().tokens == 0
            ? 0.0
            : static_cast<double>(facts.fired) / static_cast<double>(opened.index->info().tokens);
    list.push_back({{"feature", ToText(feature.id)},
                    {"where", NameOf(feature.where)},
                    {"whole", feature.whole},
                    {"label", ToJson(opened.tokenizer, facts.label)},
                    {"share", share}});
    text +=
        fmt::format("{:<9} {:<9} {:>8.4f} %  {:<30}  promotes{}\n", ToText(feature.id),
                    NameOf(feature.where), 100.0 * share, LabelText(opened.tokenizer, facts.label),
                    ListText(opened.tokenizer, facts.tokens.promoted));
  }
  if (o.common.json) {
    return PrintJson({{"schema", "clearhead.features-found.1"},
                      {"text", o.find},
                      {"total", found.total},
                      {"features", list}});
  }
  Print(text);
}

void ShowPrompt(const Options& o, const Opened& opened) {
  const std::vector<std::int32_t> ids = opened.tokenizer.EncodePrompt(o.prompt);
  const PromptFeatures fired = FeaturesOfPrompt(opened.model, opened.transcoder, ids,
                                                {.strongest = o.most > 0 ? o.most : 3});
  Json tokens = Json::array();
  std::string text;
  for (std::int64_t t = 0; t < fired.length; ++t) {
    const std::int32_t id = ids[static_cast<std::size_t>(t)];
    Json layers = Json::array();
    text += fmt::format("{} “{}”\n", t, TextOf(opened.tokenizer, std::span(&id, 1)));
    if (t == 0) text += "  position 0 is left out\n";
    for (std::int64_t l = 0; l < fired.layers && t > 0; ++l) {
      const FiringCell& cell = fired.At(l, t);
      Json strongest = Json::array();
      text += fmt::format("  layer {:<3} {:>4} fire{}\n", l, cell.active,
                          cell.active == 0   ? ""
                          : cell.active == 1 ? "s:"
                                             : ":");
      for (const FiringFeature& feature : cell.strongest) {
        const FeatureId name{l, feature.feature};
        Json entry = {
            {"feature", ToText(name)}, {"value", feature.value}, {"written", feature.written}};
        if (opened.index) entry["label"] = ToJson(opened.tokenizer, opened.index->Label(name));
        strongest.push_back(std::move(entry));
        text += fmt::format("    {:<10} {:>9.4g}  {}\n", ToText(name), feature.value,
                            LabelOf(opened, name));
      }
      layers.push_back({{"active", cell.active}, {"strongest", std::move(strongest)}});
    }
    tokens.push_back(
        {{"id", id}, {"token", opened.tokenizer.TokenText(id)}, {"layers", std::move(layers)}});
  }
  if (o.common.json) {
    return PrintJson(
        {{"schema", "clearhead.prompt-features.1"}, {"prompt", o.prompt}, {"tokens", tokens}});
  }
  if (!opened.index) text += "no labels: these features have no index (`features index`)\n";
  Print(text);
}

void Run(const Options& o) {
  const int asked = (o.feature.empty() ? 0 : 1) + (o.find.empty() ? 0 : 1) +
                    (o.prompt_option->count() == 0 ? 0 : 1);
  if (asked != 1) FailUsage("give exactly one of a feature (L3F512), --find and --prompt");
  const Opened opened = Open(o);
  if (!o.find.empty()) return Find(o, opened);
  if (o.feature.empty()) return ShowPrompt(o, opened);
  const FeatureCard card =
      CardOf(opened.model, opened.transcoder, opened.IndexOrNull(), opened.tokenizer,
             ParseFeatureOf(opened.transcoder.config, o.feature));
  if (o.common.json) return PrintJson(ToJson(opened.tokenizer, card));
  Print(CardText(opened.tokenizer, card));
}

}  // namespace

void AddFeaturesShow(CLI::App& features) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      features, "show",
      "One feature: its label, when it fires, examples, what it promotes; or features by "
      "text; or what fires where on a prompt",
      "clearhead features show tale tale-features L3F512", options, Run);
  command->add_option("MODEL", o.model, "Folder or name of a model")->required();
  command->add_option("FEATURES", o.features, "Folder or name of its features")->required();
  command->add_option("FEATURE", o.feature, "One feature, e.g. L3F512");
  command->add_option("--find", o.find,
                      "List the features that have this text in label, tokens or examples");
  o.prompt_option = command->add_option("--prompt", o.prompt,
                                        "List the features that fire on each token of this");
  command
      ->add_option("--most", o.most,
                   "At most this many: of --find (default: 20), of --prompt for each token and "
                   "layer (default: 3)")
      ->check(Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--index", o.index,
                      "File or folder of the index (default: in the folder of the features)");
}

}  // namespace clearhead::cli
