// SPDX-License-Identifier: MIT
// A model in memory: tokens, runs with taps and interventions, gradients, text, loss.
//
//   const Model model = Model::Load("tale");
//   const Run run = model.Run(model.Encode("The cat sat"), {.taps = "blocks.*.attn.hook_pattern"});
//   const Array& pattern = run.taps.at("blocks.3.attn.hook_pattern");  // [batch, head, query, key]
//
// Copies of a Model share everything. All methods may be called from several threads at once.
#pragma once

#include <clearhead/array.h>
#include <clearhead/control.h>
#include <clearhead/error.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace clearhead::api {

struct ModelInfo {
  std::string name;    // as it was asked for
  std::string folder;  // where it is
  std::int64_t layers = 0, heads = 0, key_value_heads = 0, head_size = 0;
  std::int64_t width = 0, inner = 0;  // of the stream, of the MLPs
  std::int64_t vocabulary = 0;        // rows of the output; may be more than the tokenizer has
  std::int64_t positions = 0;         // the longest input
  std::int64_t parameters = 0;
  bool gated = false;  // sparse attention
  double gate_bias = 0.0;
};

enum class Gates {  // of gated models
  kHard,            // open or closed, as the model is used
  kOpen,            // all open: the same weights as a dense model
};

enum class Change { kZero, kSet, kAdd, kScale };

// A change to chosen elements of a tap during a run. Empty lists choose everything; `keys` belongs
// to taps [batch, head, query, key], where `positions` are queries.
struct Intervention {
  std::string tap;  // one name; * matches anything
  Change change = Change::kZero;
  std::vector<std::int64_t> positions = {}, heads = {}, keys = {}, sequences = {};
  // Of kSet, kAdd and kScale: of the tap's shape, or with extents 1 that are repeated.
  std::vector<float> values = {};
  std::vector<std::int64_t> shape = {};
};

// Code of the caller's that sees a tap while the model runs and may change it in place: what
// follows uses the changed value. The place is valid during the call only.
struct Hook {
  std::string taps;  // as RunOptions::taps
  std::function<void(const std::string& tap, const Array& value)> call;
};

struct RunOptions {
  std::string taps = {};  // comma list of TransformerLens's names, * matches anything; "all"
  bool gradients = false;
  std::vector<Intervention> interventions = {};
  std::vector<Hook> hooks =
      {};  // before interventions and before a tap is kept; not with gradients
  Gates gates = Gates::kHard;
  std::int64_t batch = 1;  // sequences of one length in the ids
};

struct Run {
  std::vector<std::int32_t> ids;
  std::int64_t batch = 0, length = 0;
  Array logits;                       // [batch, length, vocabulary]
  std::map<std::string, Array> taps;  // by name, batch first
  // With gradients: the mean next-token loss, and its gradients by parameter (as Hugging Face names
  // them) and by tap.
  std::optional<double> loss;
  std::map<std::string, Array> gradients;
};

struct GenerateOptions {
  std::int64_t max_new = 64;
  double temperature = 0.0;  // 0: always the likeliest token
  std::int64_t top_k = 0;    // 0: all
  std::uint64_t seed = 0;
  bool stop_at_end = true;  // at the model's end-of-text token
  Gates gates = Gates::kHard;
  std::function<void(std::int32_t)> on_token = {};
};

struct EvaluateOptions {
  std::int64_t context = 0;     // 0: the model's positions
  std::int64_t max_tokens = 0;  // 0: all
  Gates gates = Gates::kHard;
};

struct Evaluation {
  double loss = 0.0, perplexity = 0.0;
  std::int64_t tokens = 0, windows = 0, context = 0;
  double seconds = 0.0;
  // Gated models: the share of causal pairs whose gates are open, and keys that a query reads.
  std::optional<double> edge_fraction, edges_per_query;
};

struct Prediction {
  std::int32_t token = 0;
  std::string text;
  double probability = 0.0;
};

struct LoadOptions {
  int threads = 0;  // that this model's work uses, the caller included; 0: all cores
};

class CLEARHEAD_API Model {
 public:
  // A folder in Hugging Face's layout, or the name of a model that ships.
  static Model Load(const std::string& name, const LoadOptions& options = {});
  // The names of those that ship.
  static std::vector<std::string> Shipped();

  const ModelInfo& info() const;

  // What the model reads of a text, with begin-of-text where the tokenizer has it, and back. Throws
  // Error if the folder has no tokenizer.
  std::vector<std::int32_t> Encode(std::string_view text) const;
  std::string Decode(std::span<const std::int32_t> ids) const;
  std::string TokenText(std::int32_t id) const;  // one token for people
  // The token that a text is. Throws Error where it is several.
  std::int32_t SingleToken(std::string_view text) const;

  // Names of all taps, in the order of the forward pass, and of those that a list asks for.
  std::vector<std::string> TapNames() const;
  std::vector<std::string> MatchTaps(const std::string& names) const;
  // Of one tap, for an input of `batch` sequences of `length` tokens.
  std::vector<std::int64_t> TapShape(const std::string& tap, std::int64_t batch,
                                     std::int64_t length) const;

  // ids: [batch, length]. Refuses what does not fit the model before anything runs.
  api::Run Run(std::span<const std::int32_t> ids, const RunOptions& options = {},
               const Control& control = {}) const;
  // The prompt and what follows.
  std::vector<std::int32_t> Generate(std::span<const std::int32_t> prompt,
                                     const GenerateOptions& options = {},
                                     const Control& control = {}) const;
  std::vector<Prediction> Predict(std::span<const std::int32_t> prompt, std::int64_t count = 10,
                                  Gates gates = Gates::kHard) const;
  Evaluation Evaluate(std::span<const std::int32_t> ids, const EvaluateOptions& options = {},
                      const Control& control = {}) const;
  // The tokens of a whole file, as Evaluate wants them.
  std::vector<std::int32_t> EncodeFile(const std::string& path) const;

 private:
  struct State;
  explicit Model(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace clearhead::api
