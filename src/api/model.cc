// SPDX-License-Identifier: MIT
#include "model/model.h"

#include <clearhead/model.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "api/boundary.h"
#include "api/caller_hooks.h"
#include "cli/common.h"
#include "core/kept_memory.h"
#include "core/threads.h"
#include "model/packed_weights.h"
#include "model/run.h"
#include "text/token_stream.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "use/evaluate.h"
#include "use/generate.h"
#include "use/predict.h"
#include "use/record.h"

namespace clearhead::api {

// Of the runs before, for the next. Enough for short prompts of GPT-2's size, where page faults
// count; a bound, because nobody else can use it.
constexpr std::size_t kKeptBytes = std::size_t{64} << 20;

struct Model::State {
  ModelInfo info;
  clearhead::Model model;
  std::optional<Tokenizer> tokenizer;
  std::unique_ptr<ThreadPool> pool;
  // What runs hand out may be freed long after the model.
  std::shared_ptr<KeptMemory> memory = std::make_shared<KeptMemory>(kKeptBytes);

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { memory->Close(); }

  const Tokenizer& Words() const {
    if (!tokenizer) Fail("'{}' has no tokenizer; give token ids", info.folder);
    return *tokenizer;
  }
  GateRun Run(Gates gates) const {
    const bool open = gates == Gates::kOpen;
    if (open && !info.gated) Fail("'{}' has softmax attention, and no gates to open", info.name);
    return {.open = open, .sum_probabilities = false};
  }
  // As the pass will see it: a model whose gates are all open has no taps of gates.
  ModelConfig Running(Gates gates) const {
    ModelConfig config = model.config;
    if (gates == Gates::kOpen) config.attention = AttentionKind::kSoftmax;
    return config;
  }
};

namespace {

ModelInfo Describe(const std::string& name, const std::filesystem::path& folder,
                   const ModelConfig& config) {
  return {.name = name,
          .folder = folder.string(),
          .layers = config.layers,
          .heads = config.heads,
          .key_value_heads = config.kv_heads(),
          .head_size = config.head_size(),
          .width = config.width,
          .inner = config.inner,
          .vocabulary = config.vocabulary,
          .positions = config.positions,
          .parameters = config.ParameterCount(),
          .gated = config.attention == AttentionKind::kGated,
          .gate_bias = config.gate_bias};
}

std::vector<std::int64_t> Extents(const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  return extents;
}

// The values stay where they were computed.
Array HandOut(Buffer<float> buffer, std::vector<std::int64_t> shape) {
  const auto owner = std::make_shared<Buffer<float>>(std::move(buffer));
  return {.data = owner->data(), .shape = std::move(shape), .owner = owner};
}

std::vector<clearhead::Intervention> Translate(const std::vector<Intervention>& given,
                                               const ModelConfig& config) {
  std::vector<clearhead::Intervention> translated;
  for (const Intervention& one : given) {
    if (one.shape.size() > Shape::kMaxRank) {
      Fail("an intervention at {}: values with {} axes; a tap has at most {}", one.tap,
           one.shape.size(), Shape::kMaxRank);
    }
    Shape shape;
    std::int64_t size = 1;
    for (const std::int64_t extent : one.shape) {
      shape.Append(extent);
      size *= extent;
    }
    const bool with_values = one.change != Change::kZero;
    if (with_values && size != static_cast<std::int64_t>(one.values.size())) {
      Fail("an intervention at {}: {} values do not fill the shape {}", one.tap, one.values.size(),
           ToText(shape));
    }
    for (const TapId id : clearhead::MatchTaps(one.tap, config)) {
      translated.push_back({.tap = id,
                            .change = static_cast<clearhead::Change>(one.change),
                            .sequences = one.sequences,
                            .positions = one.positions,
                            .heads = one.heads,
                            .keys = one.keys,
                            .values = one.values,
                            .values_shape = shape});
    }
  }
  return translated;
}
static_assert(static_cast<int>(Change::kZero) == static_cast<int>(clearhead::Change::kZero) &&
              static_cast<int>(Change::kSet) == static_cast<int>(clearhead::Change::kSet) &&
              static_cast<int>(Change::kAdd) == static_cast<int>(clearhead::Change::kAdd) &&
              static_cast<int>(Change::kScale) == static_cast<int>(clearhead::Change::kScale));

Run HandOut(Recording recording) {
  Run run{.ids = std::move(recording.ids),
          .batch = recording.batch,
          .length = recording.length,
          .logits = HandOut(std::move(recording.logits),
                            {recording.batch, recording.length, recording.config.vocabulary})};
  for (auto& [id, tensor] : recording.values) {
    run.taps[TapName(id)] = HandOut(std::move(tensor.values), Extents(tensor.shape));
  }
  if (!recording.has_gradients) return run;
  run.loss = recording.loss;
  const Array all = HandOut(std::move(recording.parameter_gradients), {});
  float* at = all.data;
  for (const ParameterSpec& spec : ParameterTable(recording.config)) {
    run.gradients[LibraryName(recording.config, spec)] = {
        .data = at, .shape = Extents(spec.shape), .owner = all.owner};
    at += spec.shape.size();
  }
  for (auto& [id, tensor] : recording.gradients) {
    run.gradients[TapName(id)] = HandOut(std::move(tensor.values), Extents(tensor.shape));
  }
  return run;
}

}  // namespace

Model Model::Load(const std::string& name, const LoadOptions& options) {
  return AtBoundary([&] {
    if (options.threads < 0) Fail("threads: {}; 0 is all cores", options.threads);
    const std::filesystem::path folder = cli::FindModel(name);
    auto state = std::make_shared<State>();
    state->pool =
        std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : AvailableCores());
    const ThreadScope scope(state->pool.get());
    state->model = LoadModel(folder);
    PackForUse(&state->model);
    if (HasTokenizer(folder)) state->tokenizer = Tokenizer::Load(folder);
    state->info = Describe(name, folder, state->model.config);
    return Model(std::move(state));
  });
}

std::vector<std::string> Model::Shipped() {
  return AtBoundary([] { return cli::ShippedModels(); });
}

const ModelInfo& Model::info() const { return state_->info; }

std::vector<std::int32_t> Model::Encode(std::string_view text) const {
  return AtBoundary([&] { return state_->Words().EncodePrompt(text); });
}

std::string Model::Decode(std::span<const std::int32_t> ids) const {
  return AtBoundary([&] { return state_->Words().DecodePrompt(ids); });
}

std::string Model::TokenText(std::int32_t id) const {
  return AtBoundary([&] { return state_->Words().TokenText(id); });
}

std::int32_t Model::SingleToken(std::string_view text) const {
  return AtBoundary([&] {
    const Tokenizer& words = state_->Words();
    const std::vector<std::int32_t> ids = words.EncodeContinuation(text);
    if (ids.size() == 1) return ids[0];
    std::string parts;
    for (const std::int32_t id : ids) parts += fmt::format(" '{}'", words.TokenText(id));
    Fail("'{}' is {} tokens of this model:{}; expected one", ToValidUtf8(text), ids.size(), parts);
  });
}

std::vector<std::string> Model::TapNames() const { return MatchTaps("all"); }

std::vector<std::string> Model::MatchTaps(const std::string& names) const {
  return AtBoundary([&] {
    std::vector<std::string> matched;
    for (const TapId id : clearhead::MatchTaps(names, state_->model.config)) {
      matched.push_back(TapName(id));
    }
    return matched;
  });
}

std::vector<std::int64_t> Model::TapShape(const std::string& tap, std::int64_t batch,
                                          std::int64_t length) const {
  return AtBoundary([&] {
    const ModelConfig& config = state_->model.config;
    const std::optional<TapId> id = ParseTap(tap, config);
    if (!id) Fail("'{}' is not a tap of '{}'; TapNames lists them", tap, state_->info.name);
    return Extents(clearhead::TapShape(id->tap, config, batch, length));
  });
}

api::Run Model::Run(std::span<const std::int32_t> ids, const RunOptions& options,
                    const Control& control) const {
  return AtBoundary([&] {
    if (options.gradients && !options.hooks.empty()) {
      Fail(
          "gradients with hooks: nobody knows the derivative of a hook; use interventions, or run "
          "twice");
    }
    const ModelConfig config = state_->Running(options.gates);
    const Host host = HostOf(control);
    const HostScope work_for(&host);
    const ThreadScope threads(state_->pool.get());
    const KeptMemoryScope memory(state_->memory);
    CallerHooks hooks(options.hooks, config);
    RecordOptions record{.gradients = options.gradients,
                         .interventions = Translate(options.interventions, config),
                         .gates = state_->Run(options.gates),
                         .around = [&](Hooks* recorder) { return hooks.Around(recorder); }};
    if (!options.taps.empty()) record.taps = clearhead::MatchTaps(options.taps, config);
    return HandOut(Record(state_->model, {ids.begin(), ids.end()}, options.batch, record));
  });
}

std::vector<std::int32_t> Model::Generate(std::span<const std::int32_t> prompt,
                                          const GenerateOptions& options,
                                          const Control& control) const {
  return AtBoundary([&] {
    const ThreadScope threads(state_->pool.get());
    CheckTokens(state_->model.config, prompt, 1, static_cast<std::int64_t>(prompt.size()));
    clearhead::GenerateOptions generate{.max_new = options.max_new,
                                        .temperature = options.temperature,
                                        .top_k = options.top_k,
                                        .seed = options.seed,
                                        .gates = state_->Run(options.gates)};
    if (options.stop_at_end) generate.stop_tokens = state_->model.config.end_of_text;
    bool stopped = false;
    const Generation result = clearhead::Generate(
        state_->model, {prompt.begin(), prompt.end()}, generate, [&](std::int32_t id) {
          if (options.on_token) options.on_token(id);
          stopped = control.should_stop && control.should_stop();
          return !stopped;
        });
    if (stopped) throw clearhead::Interrupted("interrupted while writing");
    return result.ids;
  });
}

std::vector<Prediction> Model::Predict(std::span<const std::int32_t> prompt, std::int64_t count,
                                       Gates gates) const {
  return AtBoundary([&] {
    const ThreadScope threads(state_->pool.get());
    CheckTokens(state_->model.config, prompt, 1, static_cast<std::int64_t>(prompt.size()));
    std::vector<Prediction> predictions;
    for (const auto& [token, probability] :
         PredictNext(state_->model, prompt, count, state_->Run(gates)).likeliest) {
      const bool has_text = state_->tokenizer && token < state_->tokenizer->vocabulary_size();
      predictions.push_back(
          {token, has_text ? state_->tokenizer->TokenText(token) : fmt::format("{}", token),
           probability});
    }
    return predictions;
  });
}

Evaluation Model::Evaluate(std::span<const std::int32_t> ids, const EvaluateOptions& options,
                           const Control& control) const {
  return AtBoundary([&] {
    const ThreadScope threads(state_->pool.get());
    const Host host = HostOf(control);
    const HostScope work_for(&host);
    const auto report = [&](std::int64_t done, std::int64_t total, bool finished) {
      host.progress({.label = "eval",
                     .unit = "tok",
                     .extra = "",
                     .done = done,
                     .total = total,
                     .finished = finished});
    };
    const clearhead::Evaluation result =
        clearhead::Evaluate(state_->model, ids,
                            {.context = options.context,
                             .max_tokens = options.max_tokens,
                             .gates = state_->Run(options.gates),
                             .progress = [&](std::int64_t done, std::int64_t total) {
                               report(done, total, done == total);
                               StopIfAsked();
                             }});
    Evaluation evaluation{.loss = result.loss,
                          .perplexity = std::exp(result.loss),
                          .tokens = result.tokens,
                          .windows = result.windows,
                          .context = result.context,
                          .seconds = result.seconds};
    if (!result.open_edges.empty()) {
      const EdgeTotals totals = TotalEdges(result);
      evaluation.edge_fraction = totals.fraction;
      evaluation.edges_per_query = totals.per_query;
    }
    return evaluation;
  });
}

std::vector<std::int32_t> Model::EncodeFile(const std::string& path) const {
  return AtBoundary([&] {
    const ThreadScope threads(state_->pool.get());
    return EncodeDocument(state_->Words(), path);
  });
}

}  // namespace clearhead::api
