// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernel_info.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/bf16_gemm.h"
#include "kernels/kernel_info.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

// Reports the target of the very mechanism that picks every vector kernel.
std::int64_t ActiveTarget() { return HWY_TARGET; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(ActiveTarget);

std::vector<KernelChoice> KernelChoices() {
  const std::string vectors =
      std::string("Highway ") + hwy::TargetName(HWY_DYNAMIC_DISPATCH(ActiveTarget)());
  const bool tiles = Bf16GemmAvailable();
  return {
      {"fp32 matrix products", vectors,
       "our own, over weights packed once or as they are used; fp32, bf16 and f16 weights"},
      {"vector kernels", vectors,
       "the widest instruction set that this CPU and this build both have"},
      {"bf16 matrix products", tiles ? "AMX tiles" : "none: training runs in fp32",
       std::string(Bf16GemmReason())},
  };
}

}  // namespace clearhead
#endif  // HWY_ONCE
