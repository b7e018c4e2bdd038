// SPDX-License-Identifier: MIT
// A forward pass with the pattern of every head kept, logits included, and its products alone.
#pragma once

#include "measure/best_seconds.h"
#include "model/activations.h"
#include "model/model.h"
#include "use/recorder.h"

namespace clearhead {

class ForwardWork {
 public:
  // The model must outlive it.
  ForwardWork(const Model& model, std::int64_t length);
  void Run();

 private:
  const Model& model_;
  std::int64_t length_;
  std::vector<std::int32_t> ids_;
  Recorder recorder_;
  Activations activations_;
  Buffer<float> logits_;
};

struct ForwardTimes {
  double seconds;
  // What sgemm alone takes for the products: linear layers, logits, and scores and values of every
  // head as full T x T matrices.
  double products_seconds;
};
ForwardTimes TimeForward(const Model& model, std::int64_t length, const Budget& budget);

}  // namespace clearhead
