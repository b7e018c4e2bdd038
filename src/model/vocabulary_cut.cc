// SPDX-License-Identifier: MIT
#include "model/vocabulary_cut.h"

#include <array>

#include "core/buffer.h"
#include "core/error.h"

namespace clearhead {
namespace {

// The matrices with a row for every token; a tied model has the first alone.
constexpr std::array kTokenRows = {Role::kTokenEmbedding, Role::kOutput};

struct Storage {
  std::shared_ptr<const void> base;
  std::vector<Buffer<float>> matrices;
};

// Replaces the matrices of `model` by what `fill` makes of them, [rows, C].
template <typename Fill>
Model WithTokenRows(const Model& model, std::int64_t rows, const Fill& fill) {
  const std::int64_t C = model.config.width;
  auto storage = std::make_shared<Storage>();
  storage->base = model.storage;
  Model changed = model;
  changed.packed = nullptr;  // other weights
  changed.config.vocabulary = rows;
  for (const Role role : kTokenRows) {
    if (model.weights(role).empty()) continue;
    Buffer<float>& values = storage->matrices.emplace_back(rows * C);
    fill(role, values.data());
    changed.weights(role) = Weight(values.data());
  }
  changed.storage = std::move(storage);
  return changed;
}

}  // namespace

VocabularyCut CutToTokens(std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  VocabularyCut cut;
  cut.places.assign(static_cast<std::size_t>(vocabulary), -1);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary) {
      Fail("token {} is outside the vocabulary of {}", id, vocabulary);
    }
    cut.places[static_cast<std::size_t>(id)] = 0;
  }
  for (std::size_t id = 0; id < cut.places.size(); ++id) {
    if (cut.places[id] < 0) continue;
    cut.places[id] = static_cast<std::int32_t>(cut.kept.size());
    cut.kept.push_back(static_cast<std::int32_t>(id));
  }
  return cut;
}

std::vector<std::int32_t> CutIds(std::span<const std::int32_t> ids, const VocabularyCut& cut) {
  std::vector<std::int32_t> places;
  places.reserve(ids.size());
  for (const std::int32_t id : ids) {
    places.push_back(cut.places.at(static_cast<std::size_t>(id)));
    Check(places.back() >= 0, "a text is cut to a vocabulary that has its tokens");
  }
  return places;
}

Model CutModel(const Model& whole, const VocabularyCut& cut) {
  const std::int64_t C = whole.config.width;
  return WithTokenRows(whole, std::ssize(cut.kept), [&](Role role, float* values) {
    for (std::size_t row = 0; row < cut.kept.size(); ++row) {
      whole.weights(role).CopyTo(cut.kept[row] * C, C, values + static_cast<std::int64_t>(row) * C);
    }
  });
}

Model UncutModel(const Model& trained, const Model& whole, const VocabularyCut& cut) {
  const std::int64_t C = whole.config.width, V = whole.config.vocabulary;
  return WithTokenRows(trained, V, [&](Role role, float* values) {
    whole.weights(role).CopyTo(0, V * C, values);
    for (std::size_t row = 0; row < cut.kept.size(); ++row) {
      trained.weights(role).CopyTo(static_cast<std::int64_t>(row) * C, C,
                                   values + cut.kept[row] * C);
    }
  });
}

}  // namespace clearhead
