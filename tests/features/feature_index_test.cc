// SPDX-License-Identifier: MIT
// An index that is damaged, and what is made of one that is not: cards, search, checks, exports.
#include "features/feature_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "cli/small_model.h"
#include "core/error.h"
#include "features/build_index.h"
#include "features/feature_card.h"
#include "features/feature_export.h"
#include "features/feature_search.h"
#include "features/feature_testing.h"
#include "features/label_check.h"
#include "features/prompt_features.h"
#include "support/temporary_folder.h"
#include "support/thread_ranks.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A model with a tokenizer, features and their index over a small text.
class FeatureIndexTest : public testing::Test {
 protected:
  FeatureIndexTest() {
    model_ = MakeSmallModel(folder_ / "model");
    tokenizer_.emplace(Tokenizer::Load(folder_ / "model"));
    transcoder_ = RandomTranscoder(model_);
    ids_ = tokenizer_->Encode(SmallText());
    BuildIndex(model_, transcoder_, ids_,
               {.context = 24, .batch_tokens = 48, .vocabulary = tokenizer_->vocabulary_size()},
               folder_ / "index");
    index_.emplace(folder_ / "index");
  }

  // The index with one element of a tensor changed.
  template <typename T>
  std::string With(const char* tensor, std::int64_t at, T value) const {
    std::string bytes = ReadFile(folder_ / "index/index.safetensors");
    const auto file =
        SafetensorsFile::FromBytes(std::as_bytes(std::span(bytes)), "index.safetensors");
    const std::byte* start = file.Get(tensor).bytes.data();
    const auto offset = static_cast<std::size_t>(start - std::as_bytes(std::span(bytes)).data());
    std::memcpy(bytes.data() + offset + static_cast<std::size_t>(at) * sizeof(T), &value,
                sizeof(T));
    return bytes;
  }

  static FeatureIndex Open(std::string_view bytes) {
    return FeatureIndex::FromBytes(std::as_bytes(std::span(bytes)), "some.safetensors");
  }

  // The first feature with an example and a label.
  FeatureId Lively() const {
    for (std::int64_t f = 0; f < index_->info().features; ++f) {
      if (index_->Read({0, f}).examples.size() > 2) return {0, f};
    }
    ADD_FAILURE() << "no feature fires";
    return {};
  }

  TemporaryFolder folder_;
  Model model_;
  std::optional<Tokenizer> tokenizer_;
  Transcoder transcoder_;
  std::vector<std::int32_t> ids_;
  std::optional<FeatureIndex> index_;
};

TEST_F(FeatureIndexTest, DamageIsOneLine) {
  const FeatureId id = Lively();
  const std::int64_t row = id.layer * index_->info().features + id.feature;
  const auto refused = [](const std::string& bytes, const char* what) {
    EXPECT_THAT([&] { Open(bytes); },
                ThrowsMessage<Error>(AllOf(HasSubstr("some.safetensors"), HasSubstr(what))));
  };
  refused(With("label.begin", 0, std::int64_t{1}), "'label.begin'");
  refused(With("example.begin", 5, std::int64_t{-1}), "'example.begin'");
  refused(With("active.begin", 7, std::int64_t{1} << 40), "'active.begin'");
  const auto unreadable = [&](const std::string& bytes, const char* what) {
    const FeatureIndex index = Open(bytes);
    EXPECT_THAT([&] { index.Read(id); },
                ThrowsMessage<Error>(AllOf(HasSubstr("some.safetensors"), HasSubstr(what),
                                           HasSubstr("features index"))));
  };
  const float nan = std::nanf("");
  unreadable(With("largest", row, nan), "not those of a feature");
  unreadable(With("mean", row, INFINITY), "not those of a feature");
  unreadable(With("bin_width", row, -1.0f), "not those of a feature");
  unreadable(With("fired", row, std::int64_t{-3}), "not those of a feature");
  unreadable(With("list.scores", row * 24 + 3, nan), "score");
  unreadable(With("list.tokens", row * 24 + 3, std::uint16_t{60000}), "token 60000");
  unreadable(With("label.kind", row, std::uint8_t{9}), "kind 9");
  const auto file = SafetensorsFile(folder_ / "index/index.safetensors");
  const auto first = [&](const char* table) {
    std::int64_t at = 0;
    std::memcpy(&at, file.Get(table).bytes.data() + row * 8, sizeof(at));
    return at;
  };
  const std::int64_t label = first("label.begin"), example = first("example.begin"),
                     active = first("active.begin");
  unreadable(With("label.length", label, std::uint8_t{0}), "0 tokens");
  unreadable(With("label.length", label, std::uint8_t{5}), "5 tokens");
  unreadable(With("label.fired", label, 4'000'000'000u), "fired on 4000000000");
  unreadable(With("example.start", example, 4'000'000'000u), "outside the text");
  unreadable(With("example.peak", example, std::uint8_t{200}), "outside the text");
  unreadable(With("example.active", example, std::uint8_t{255}), "outside the text");
  unreadable(With("example.group", example, std::uint8_t{4}), "outside the text");
  unreadable(With("active.offset", active, std::uint8_t{99}), "activation");
  unreadable(With("active.value", active, nan), "activation");

  std::string bytes = ReadFile(folder_ / "index/index.safetensors");
  const auto replaced = [&](const char* from, const char* to) {
    std::string changed = bytes;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos);
    changed.replace(at, std::strlen(from), to);
    return changed;
  };
  refused(replaced("features-index.1", "features-index.2"), "features-index.1");
  refused(replaced("\\\"layers\\\":2", "\\\"layers\\\":3"), "rows");
  refused(replaced("\\\"layers\\\":2", "\\\"layers\\\":0"), "'layers'");
  refused(replaced("\\\"layers\\\":2", "\\\"layerz\\\":2"), "'layers'");
  refused(replaced("\"clearhead\"", "\"clearhoof\""), "not an index of features");
  refused(replaced("\"mean\"", "\"moan\""), "'mean'");
  refused(bytes.substr(0, bytes.size() - 9), "some.safetensors");
}

TEST_F(FeatureIndexTest, CardsAreJson) {
  const FeatureId id = Lively();
  const FeatureCard card = CardOf(model_, transcoder_, &*index_, *tokenizer_, id);
  const Json json = ToJson(*tokenizer_, card);
  EXPECT_EQ(json["schema"], "clearhead.feature.1");
  EXPECT_EQ(json["feature"], ToText(id));
  EXPECT_EQ(json["writes"].size(), 2u);
  EXPECT_EQ(json["promoted"].size(), 8u);
  EXPECT_GT(json["examples"].size(), 2u);
  const Json& example = json["examples"][0];
  EXPECT_EQ(example["tokens"].size(), example["activations"].size());
  EXPECT_FLOAT_EQ(example["activations"][example["peak"].get<std::size_t>()].get<float>(),
                  json["largest"].get<float>());
  std::uint64_t counted = 0;
  for (const Json& count : json["histogram"]["counts"]) counted += count.get<std::uint64_t>();
  EXPECT_EQ(counted, json["fired"].get<std::uint64_t>());
  EXPECT_FALSE(json["label"]["text"].get<std::string>().empty());
  // Without an index the weights speak, and say the same.
  const Json bare = ToJson(*tokenizer_, CardOf(model_, transcoder_, nullptr, *tokenizer_, id));
  EXPECT_TRUE(bare["label"].is_null());
  EXPECT_FALSE(bare.contains("examples"));
  for (const char* list : {"promoted", "suppressed", "exciting"}) {
    for (std::size_t k = 0; k < 8; ++k) {
      EXPECT_NEAR(bare[list][k]["score"].get<float>(), json[list][k]["score"].get<float>(), 1e-5);
    }
  }
}

TEST_F(FeatureIndexTest, SearchFindsWhatCardsHold) {
  const FeatureId id = Lively();
  const FeatureFacts facts = index_->Read(id);
  const auto found_in = [&](std::string_view text, FeatureId wanted) -> std::optional<FoundIn> {
    for (const FoundFeature& feature : SearchFeatures(*index_, *tokenizer_, text, 1000).features) {
      if (feature.id == wanted) return feature.where;
    }
    return {};
  };
  const std::vector<std::int32_t>& tokens = facts.examples[0].tokens;
  std::string words;
  for (const std::int32_t token : tokens) words += tokenizer_->TokenBytes(token);
  std::transform(words.begin(), words.end(), words.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  EXPECT_EQ(found_in(words, id), FoundIn::kExample);
  EXPECT_TRUE(found_in(tokenizer_->TokenText(facts.tokens.promoted[0].token), id).has_value());
  // Order: labels first, and no more than asked for.
  const FoundFeatures all = SearchFeatures(*index_, *tokenizer_, "at", 1000);
  EXPECT_GT(all.total, 3);
  EXPECT_TRUE(std::is_sorted(
      all.features.begin(), all.features.end(),
      [](const FoundFeature& a, const FoundFeature& b) { return a.where < b.where; }));
  EXPECT_EQ(SearchFeatures(*index_, *tokenizer_, "at", 2).features.size(), 2u);
  EXPECT_EQ(SearchFeatures(*index_, *tokenizer_, "at", 2).total, all.total);
  EXPECT_EQ(SearchFeatures(*index_, *tokenizer_, "  \n", 10).total, 0);
  EXPECT_EQ(SearchFeatures(*index_, *tokenizer_, "no such words", 10).total, 0);
}

// Ranks run windows for the first one: the same file, also where a run is stopped and others go on.
TEST_F(FeatureIndexTest, OfRanksIsThatOfOne) {
  const std::string expected = ReadFile(folder_ / "index/index.safetensors");
  BuildIndexOptions options{
      .context = 24, .batch_tokens = 48, .vocabulary = tokenizer_->vocabulary_size()};
  const auto build = [&](int count, const fs::path& folder, int stop_after) {
    const auto messages = RunRanks(count, [&](Communicator& ranks) {
      BuildIndexOptions own = options;
      int asked = 0;
      own.ranks = &ranks;
      // One that is not the first wants to stop.
      own.should_stop = [&] { return ranks.rank() == 1 && ++asked == stop_after; };
      EXPECT_EQ(BuildIndex(model_, transcoder_, ids_, own, folder).finished, stop_after == 0);
    });
    EXPECT_THAT(messages, testing::Each(""));
  };
  build(2, folder_ / "two", 0);
  EXPECT_TRUE(ReadFile(folder_ / "two/index.safetensors") == expected);
  build(3, folder_ / "three", 2);
  EXPECT_FALSE(fs::exists(folder_ / "three/index.safetensors"));
  options.resume = true;
  build(2, folder_ / "three", 0);
  EXPECT_TRUE(ReadFile(folder_ / "three/index.safetensors") == expected);
}

// Windows are dealt out in groups; every rank gets the counts of all.
TEST_F(FeatureIndexTest, LabelCheckOfRanksIsThatOfOne) {
  std::vector<std::int32_t> other;
  while (other.size() < 5000) other.insert(other.end(), ids_.begin(), ids_.end());
  const auto counts = [&](Communicator* ranks) {
    const LabelCheck check =
        CheckLabels(model_, transcoder_, *index_, other, {.features = 30, .ranks = ranks});
    std::vector<double> all = {check.all.share, static_cast<double>(check.tokens)};
    for (const CheckedLabel& label : check.labels) {
      all.push_back(static_cast<double>(label.seen));
      all.push_back(static_cast<double>(label.fired));
    }
    return all;
  };
  const std::vector<double> expected = counts(nullptr);
  EXPECT_GT(expected[0], 0.0);
  const auto messages =
      RunRanks(3, [&](Communicator& ranks) { EXPECT_EQ(counts(&ranks), expected); });
  EXPECT_THAT(messages, testing::Each(""));
}

// The check against a loop over the prompt runs of every window.
TEST_F(FeatureIndexTest, LabelCheckIsThatOfALoop) {
  for (const FeatureActivation activation :
       {FeatureActivation::kJumpRelu, FeatureActivation::kTopK}) {
    const Transcoder transcoder = RandomTranscoder(model_, {.activation = activation});
    const fs::path folder = folder_ / fmt::format("index-{}", static_cast<int>(activation));
    BuildIndex(model_, transcoder, ids_,
               {.context = 24, .batch_tokens = 48, .vocabulary = tokenizer_->vocabulary_size()},
               folder);
    const FeatureIndex index(folder);
    const std::vector<std::int32_t> other = tokenizer_->Encode(
        "And the other cat sat on the other mat, then the cat sat on the mat. Isn't that naïve?\n"
        "Chapter 99: these cats sat there. The other mat, and the cat. Then that cat sat.\n");
    const LabelCheck check =
        CheckLabels(model_, transcoder, index, other, {.features = 30, .seed = 3, .context = 10});
    EXPECT_EQ(check.all.features, 30);
    EXPECT_EQ(check.labels.size(), 30u);
    std::int64_t places = 0, fired = 0;
    for (const CheckedLabel& label : check.labels) {
      std::int64_t seen = 0, hits = 0;
      for (std::size_t start = 0; start + 1 < other.size(); start += 10) {
        const std::size_t length = std::min<std::size_t>(10, other.size() - 1 - start);
        const std::span<const std::int32_t> window = std::span(other).subspan(start, length);
        const PromptFeatures run =
            FeaturesOfPrompt(model_, transcoder, window, {.strongest = 1000});
        for (std::size_t t = 1; t < length; ++t) {
          bool ends = false;
          for (const LabelPattern& pattern : label.label.patterns) {
            const auto n = static_cast<std::size_t>(pattern.pattern.length);
            ends = ends || (n <= t + 1 &&
                            std::equal(window.begin() + static_cast<std::ptrdiff_t>(t + 1 - n),
                                       window.begin() + static_cast<std::ptrdiff_t>(t + 1),
                                       pattern.pattern.tokens.begin()));
          }
          if (!ends) continue;
          ++seen;
          const FiringCell& cell = run.At(label.id.layer, static_cast<std::int64_t>(t));
          hits += std::any_of(cell.strongest.begin(), cell.strongest.end(),
                              [&](const FiringFeature& f) { return f.feature == label.id.feature; })
                      ? 1
                      : 0;
        }
      }
      EXPECT_EQ(label.seen, seen) << ToText(label.id);
      EXPECT_EQ(label.fired, hits) << ToText(label.id);
      places += seen;
      fired += hits;
    }
    EXPECT_EQ(check.places, places);
    EXPECT_EQ(check.fired, fired);
    EXPECT_GT(places, 10);
    // Equal seeds draw equal features, others others.
    const auto drawn = [&](std::uint64_t seed) {
      std::string names;
      for (const CheckedLabel& label :
           CheckLabels(model_, transcoder, index, other, {.features = 5, .seed = seed}).labels) {
        names += ToText(label.id);
      }
      return names;
    };
    EXPECT_EQ(drawn(1), drawn(1));
    EXPECT_NE(drawn(1), drawn(2));
  }
}

TEST_F(FeatureIndexTest, PromptCellsAreOrdered) {
  const std::vector<std::int32_t> ids = tokenizer_->Encode("The cat sat on the mat");
  const PromptFeatures all = FeaturesOfPrompt(model_, transcoder_, ids, {.strongest = 1000});
  const PromptFeatures few = FeaturesOfPrompt(model_, transcoder_, ids, {.strongest = 2});
  std::int64_t active = 0;
  for (std::int64_t l = 0; l < all.layers; ++l) {
    EXPECT_TRUE(all.At(l, 0).strongest.empty());
    for (std::int64_t t = 1; t < all.length; ++t) {
      const FiringCell& cell = all.At(l, t);
      EXPECT_EQ(cell.active, static_cast<std::int64_t>(cell.strongest.size()));
      EXPECT_EQ(few.At(l, t).active, cell.active);
      active += cell.active;
      for (std::size_t i = 0; i < cell.strongest.size(); ++i) {
        const FiringFeature& feature = cell.strongest[i];
        double norm = 0.0;
        for (const float part : WrittenNorms(transcoder_, {l, feature.feature})) {
          norm += double{part} * part;
        }
        EXPECT_NEAR(feature.written, feature.value * std::sqrt(norm), 1e-4);
        if (i > 0) {
          EXPECT_LE(feature.written, cell.strongest[i - 1].written);
        }
        if (i < 2) {
          EXPECT_EQ(few.At(l, t).strongest[i].feature, feature.feature);
        }
      }
    }
  }
  EXPECT_GT(active, 20);
}

#ifdef CLEARHEAD_PYTHON
// What is exported, by an independent reader: Python's gzip and json.
TEST_F(FeatureIndexTest, ExportsAreReadByPython) {
  const ExportedFeatures exported =
      ExportFeatures(*index_, *tokenizer_, "some-features", folder_ / "export");
  EXPECT_EQ(exported.features, 74);
  const FeatureId id = Lively();
  const FeatureFacts facts = index_->Read(id);
  const std::string script = fmt::format(
      "import gzip, json, struct, sys\n"
      "index = json.load(gzip.open('{0}/index.json.gz'))\n"
      "entry = index['{1}']\n"
      "begin, end = entry['offsets'][{2}:{2} + 2]\n"
      "data = open('{0}/' + entry['filename'], 'rb').read()[begin:end]\n"
      "size, = struct.unpack('<I', data[:4])\n"
      "assert size + 4 == len(data) and len(entry['offsets']) == 38\n"
      "feature = json.loads(gzip.decompress(data[4:]))\n"
      "top = feature['examples_quantiles'][0]\n"
      "assert top['quantile_name'] == 'Top activations'\n"
      "example = top['examples'][0]\n"
      "assert len(example['tokens']) == len(example['tokens_acts_list'])\n"
      "assert example['is_repeated_datapoint'] is False\n"
      "peak = example['tokens_acts_list'][example['train_token_ind']]\n"
      "assert abs(peak - feature['act_max']) < 1e-6 and abs(peak - {3}) < 1e-5\n"
      "assert sum(feature['histogram']) == {4} and feature['index'] == {2}\n"
      "assert len(feature['top_logits']) == len(feature['bottom_logits']) == 8\n"
      "assert feature['quantile_values'] == sorted(feature['quantile_values'])\n"
      "assert feature['transcoder_id'] == 'some-features' and feature['act_min'] == 0\n"
      "assert abs(feature['activation_frequency'] * {5} - {4}) < 1e-6\n",
      (folder_ / "export").string(), id.layer, id.feature, facts.largest, facts.fired,
      index_->info().tokens);
  WriteFile(folder_ / "read.py", script);
  EXPECT_EQ(
      std::system(fmt::format("{} {}", CLEARHEAD_PYTHON, (folder_ / "read.py").string()).c_str()),
      0);
}
#endif

TEST(FeatureNames, AreReadAndRefused) {
  EXPECT_EQ(ParseFeature("L3F512"), (FeatureId{3, 512}));
  EXPECT_EQ(ParseFeature("l3f512"), (FeatureId{3, 512}));
  EXPECT_EQ(ParseFeature("3.512"), (FeatureId{3, 512}));
  EXPECT_EQ(ParseFeature("3_512"), (FeatureId{3, 512}));
  for (const char* text : {"", "L", "L3", "L3F", "3F5", "L3.5", "L-1F2", "L3F512x", "3.", ".5",
                           "L99999999999999999999F1"}) {
    EXPECT_FALSE(ParseFeature(text).has_value()) << text;
  }
  EXPECT_EQ(ToText(FeatureId{3, 512}), "L3F512");
  EXPECT_EQ(PairedNumber({3, 512}), 515 * 516 / 2 + 512);
  const TranscoderConfig config{.layers = 2, .features = 10};
  EXPECT_EQ(ParseFeatureOf(config, "L1F9"), (FeatureId{1, 9}));
  EXPECT_THAT([&] { ParseFeatureOf(config, "L2F0"); }, ThrowsMessage<Error>(HasSubstr("L1F9")));
  EXPECT_THAT([&] { ParseFeatureOf(config, "cat"); }, ThrowsMessage<Error>(HasSubstr("L3F512")));
}

}  // namespace
}  // namespace clearhead
