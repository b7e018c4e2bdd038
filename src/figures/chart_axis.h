// SPDX-License-Identifier: MIT
// One axis of a chart: the range that holds the data, and ticks a reader can count in.
#pragma once

#include <string>
#include <vector>

namespace clearhead {

struct Tick {
  double value;
  std::string label;  // empty: a minor tick
};

struct AxisScale {
  double low, high;  // low < high; both positive if logarithmic
  bool logarithmic = false;

  // 0 at `low`, 1 at `high`.
  double Position(double value) const;
};

// Whether a chart can show the value: finite, not absurdly large (differences of the largest
// doubles overflow), and positive on a logarithmic axis.
bool CanShow(double value, bool logarithmic);

// Collects values, then gives the scale that shows them all.
class AxisRange {
 public:
  explicit AxisRange(bool logarithmic) : logarithmic_(logarithmic) {}
  // Values that cannot be shown are passed over.
  void Include(double value);
  bool empty() const { return low_ > high_; }
  // `margin`: free room at both ends, as a part of the whole. Without values: 0 to 1 (logarithmic:
  // 1 to 10). A single value gets room around it.
  AxisScale Scale(double margin) const;

 private:
  bool logarithmic_;
  double low_ = 1, high_ = 0;
};

// Ticks inside the scale in ascending order, labelled ones 1, 2 or 5 times a power of ten apart and
// about `wanted` of them; on a logarithmic axis powers of ten (with minor ticks between) if at
// least three are inside, else 1-2-5 in each decade, else as on a linear axis.
std::vector<Tick> MakeTicks(const AxisScale& scale, int wanted);

}  // namespace clearhead
