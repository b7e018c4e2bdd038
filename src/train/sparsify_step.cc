// SPDX-License-Identifier: MIT
#include "train/sparsify_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "kernels/loss.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

Keep KeepOf(const StepShape& shape) { return shape.recompute ? Keep::kInputs : Keep::kAll; }

// Before the buffers are made.
const SparsifyStepOptions& Checked(const ModelConfig& config, const SparsifyStepOptions& options) {
  CheckStepShape(config, options.shape);
  return options;
}

// The mean gate of each head of all layers, [L,H], times the weight of these sequences.
void HeadMeans(const Activations& a, double weight, std::vector<double>* means) {
  const double pairs = 0.5 * static_cast<double>(a.length) * static_cast<double>(a.length + 1);
  const std::int64_t layers = std::ssize(a.blocks), B = a.batch;
  const std::int64_t H = a.gate_probability_sum.size() / (layers * B);
  means->clear();
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t h = 0; h < H; ++h) {
      double sum = 0.0;
      for (std::int64_t b = 0; b < B; ++b) sum += a.gate_probability_sum[(layer * B + b) * H + h];
      means->push_back(weight * sum / (static_cast<double>(B) * pairs));
    }
  }
}

// What makes the mean over heads of d sqrt(P_h + floor) / d P_h one.
double ConcentrateScale(const std::vector<double>& head_means) {
  double slopes = 0.0;
  for (const double mean : head_means) slopes += 0.5 / std::sqrt(mean + kConcentrateFloor);
  return static_cast<double>(head_means.size()) / slopes;
}

double Mean(const float* values, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

}  // namespace

SparsifyStep::SparsifyStep(const ModelConfig& config, const SparsifyStepOptions& options)
    : options_(Checked(config, options)),
      own_(RankBatchOf(options.shape.batch, options.ranks)),
      student_(config, own_.batch, options.shape.context, KeepOf(options.shape),
               LogitRows(own_.batch * options.shape.context)),
      teacher_logits_(student_.logit_rows * config.vocabulary),
      starts_(static_cast<std::size_t>(own_.batch)),
      teacher_losses_(own_.batch * options.shape.context),
      divergences_(teacher_losses_.size()),
      inputs_(static_cast<std::size_t>(teacher_losses_.size())),
      targets_(inputs_.size()) {
  packing_ = PackedInTraining(config, options.shape.bf16);
  head_means_.reserve(static_cast<std::size_t>(config.layers * config.heads));
  if (options.stored == nullptr) {
    teacher_.emplace(config, own_.batch, options.shape.context, Keep::kNothing, 0);
  }
}

// Rows of the batch, whose sequences are `context` long; stored ones have one token more, the last
// target.
void SparsifyStep::TeacherLogits(const Pass& teacher, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t C = teacher.config().width, V = teacher.config().vocabulary;
  if (teacher_) {
    return LogitsForward(teacher, rows, teacher_->ln_f + first_row * C, teacher_logits_.data());
  }
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t sequence = (first_row + row) / teacher.length;
    const std::int64_t position = (first_row + row) % teacher.length;
    const std::int64_t count = std::min(teacher.length - position, rows - row);
    options_.stored->Read(starts_[static_cast<std::size_t>(sequence)] + position, count,
                          teacher_logits_.data() + row * V);
    row += count;
  }
}

SparsifyStepResult SparsifyStep::Gradients(Optimizer& optimizer, const Model& dense,
                                           Batches& batches, std::int64_t step, double beta,
                                           GateMode mode) {
  const StepShape& shape = options_.shape;
  const std::int64_t rows = own_.batch * shape.context, C = dense.config.width;
  const std::int64_t V = dense.config.vocabulary;
  if (packing_) {
    packed_student_.Pack(optimizer.model(), *packing_, PackedWays::kBoth);
    if (teacher_ && !packed_teacher_) {
      packed_teacher_ = std::make_unique<PackedWeights>();
      packed_teacher_->Pack(dense, *packing_, PackedWays::kForward);
    }
  }
  const double share = own_.weight / static_cast<double>(shape.accumulation);
  const GradientsReady ready = [&optimizer](std::int64_t layer) { optimizer.Completed(layer); };
  const double weight = share / (1.0 + beta);
  const Pass teacher{.model = dense,
                     .batch = own_.batch,
                     .length = shape.context,
                     .packed = packed_teacher_.get()};
  SparsifyStepResult result;
  double open = 0.0, probability = 0.0;
  for (std::int64_t part = 0; part < shape.accumulation; ++part) {
    const std::int64_t first = (step * shape.accumulation + part) * shape.batch + own_.first;
    batches.Fill(first, own_.batch, inputs_.data(), targets_.data());
    CheckVocabulary(targets_, V);
    for (std::int64_t b = 0; b < own_.batch; ++b) {
      starts_[static_cast<std::size_t>(b)] = batches.Start(first + b);
    }
    GateRun gates{.mode = mode};
    gates.noise = {.seed = options_.seed,
                   .step = static_cast<std::uint64_t>(step),
                   .first_sample = static_cast<std::uint64_t>(first)};
    gates.penalty_weight = static_cast<float>(weight * beta);
    Pass student{.model = optimizer.model(),
                 .batch = own_.batch,
                 .length = shape.context,
                 .gates = gates,
                 .packed = packing_ ? &packed_student_ : nullptr};

    if (teacher_) ForwardToFinalNorm(teacher, inputs_.data(), *teacher_);
    ForwardToFinalNorm(student, inputs_.data(), student_);
    if (options_.concentrate) {
      HeadMeans(student_, own_.weight, &head_means_);
      SumOverRanks(options_.ranks, head_means_);
      if (concentrate_scale_ == 0.0) concentrate_scale_ = ConcentrateScale(head_means_);
      student.gates.concentrate = static_cast<float>(concentrate_scale_);
      student.gates.head_means = head_means_.data();
    }
    for (std::int64_t at = 0; at < rows; at += student_.logit_rows) {
      const std::int64_t n = std::min(student_.logit_rows, rows - at);
      TeacherLogits(teacher, at, n);
      LogitsForward(student, n, student_.ln_f + at * C, student_.logits);
      DistilledCrossEntropy(
          {.rows = n,
           .vocabulary = V,
           .targets = targets_.data() + at,
           .teacher_logits = teacher_logits_.data(),
           .distill = options_.distill,
           .gradient_scale = static_cast<float>(weight / static_cast<double>(rows)),
           .label = options_.own_text ? 0.0f : 1.0f},
          student_.logits,
          {student_.losses + at, teacher_losses_.data() + at, divergences_.data() + at});
      LogitsBackward(student, n, at, student_,
                     OutputMatrix(student.config(), optimizer.gradients()), &scratch_);
    }
    const bool last = part == shape.accumulation - 1;
    BackwardFromFinalNorm(student, inputs_.data(), student_, &optimizer.gradients(), &scratch_,
                          last ? ready : GradientsReady());

    result.loss += share * Mean(student_.losses, rows);
    result.dense_loss += share * Mean(teacher_losses_.data(), rows);
    result.divergence += share * Mean(divergences_.data(), rows);
    for (const std::int64_t edges : student_.open_edges) open += static_cast<double>(edges);
    for (const double sum : student_.gate_probability_sum) probability += sum;
  }
  const double pairs = static_cast<double>(student_.open_edges.size() * shape.accumulation) * 0.5 *
                       static_cast<double>(shape.context) * static_cast<double>(shape.context + 1);
  result.open_share = own_.weight * open / pairs;
  result.penalty = own_.weight * probability / pairs;
  result.gradient_norm = optimizer.GradientNorm();
  std::array sums = {result.loss, result.dense_loss, result.divergence, result.open_share,
                     result.penalty};
  result.broken_rank = SumOverRanks(options_.ranks, sums);
  std::tie(result.loss, result.dense_loss, result.divergence, result.open_share, result.penalty) =
      std::tuple_cat(sums);
  return result;
}

double SparsifyStep::GainOfOpening(const Model& model, double shift) {
  const auto loss = [&](double by) {
    const Pass pass{.model = model,
                    .batch = own_.batch,
                    .length = options_.shape.context,
                    .gates = {.sum_probabilities = false, .bias_shift = static_cast<float>(by)},
                    .packed = packing_ ? &packed_student_ : nullptr};
    ForwardToFinalNorm(pass, inputs_.data(), student_);
    return LossForward(pass, targets_.data(), student_);
  };
  std::array gain = {own_.weight * (loss(0.0) - loss(shift))};
  SumOverRanks(options_.ranks, gain);
  return gain[0];
}

}  // namespace clearhead
