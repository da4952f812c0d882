//===- Computations.h - Measures computations -------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The computations of a program at their own shapes, and the numbers of a roofline for all others: how fast large
// matrix products are and at which size they reach half of that, the bandwidth of memory, and the fixed cost of a
// kernel, a copy and a call.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_CALIBRATION_COMPUTATIONS_H
#define COMMSCHED_CALIBRATION_COMPUTATIONS_H

#include "CommSched/Calibration/EstimateStore.h"
#include "CommSched/Calibration/Sampler.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <functional>
#include <memory>

struct commrt_context;

namespace commsched {

/// A computation that is compiled code, not a kernel of the runtime, with operands of its own.
class CompiledKernel {
public:
  virtual ~CompiledKernel() = default;
  /// Runs it once on the thread of its rank. Returns the runtime's status.
  virtual int32_t run() = 0;
};

/// One operand of a computation: a dense tensor.
struct ProbeTensor {
  /// The runtime's type (commrt_dtype).
  int32_t dtype = 0;
  std::vector<int64_t> sizes;
  /// COMMRT_OPERAND_WRITTEN and COMMRT_OPERAND_OUTPUT.
  int64_t flags = 0;
};

/// One computation to time: a call of commrt_compute, or compiled code.
struct ComputeProbe {
  /// The kernel's name; of compiled code, a text that no other code has.
  std::string kernel;
  std::vector<ProbeTensor> operands;
  std::vector<int64_t> extra;
  /// The call gives operands as addresses without sizes; `extra` has these.
  bool isFlat = false;
  /// The operation's name and operand types in a profile's `ops`: "linalg.matmul", "4x8xf32".
  std::string name;
  std::vector<std::string> shapes;
  /// What else distinguishes it in a profile's `ops`; may be empty.
  std::string form = {};
  /// Makes the code on the rank that a context of the runtime is for; null for a kernel of the runtime. The error says
  /// why it cannot be measured. Calls come from the threads of all ranks in this process, each for itself.
  std::function<llvm::Expected<std::unique_ptr<CompiledKernel>>(commrt_context *)> compile = {};

  /// What distinguishes it from others, for the cache.
  std::string key() const;
};

/// What one host call, and one hop from a stream to another, takes, ns. 0 where a backend has no such thing.
struct CallTimes {
  Ns record = 0, wait = 0, hop = 0;
};

/// A machine on which computations can be timed as well.
class ComputeBench : public Bench {
public:
  using Bench::prepare;

  /// Makes operands for runs of a computation. The error says why it cannot be measured; other ranks need not get one.
  virtual llvm::Error prepare(const ComputeProbe &probe) = 0;
  /// Whether the machine has a kernel of its own for computations of this name.
  virtual bool hasKernel(const std::string &name) const = 0;
  /// Takes one sample of the times of calls.
  virtual llvm::Expected<CallTimes> callTimes() = 0;
};

/// What was measured of a computation, or the reason why it was not.
struct CalibratedOp {
  ComputeProbe probe;
  Estimate time;
  bool isSkewed = false;
  std::string skipped;
  /// What one run took on the host's clock, on the slowest rank, ns.
  Ns cost = 0;
};

/// A straight line through measured times: time = fixed + amount / rate.
struct FittedLine {
  /// ns.
  double fixed = 0;
  /// Amount (operations, bytes) per second.
  double rate = 0;
};

/// The line with the least sum of squared relative errors, whose fixed part is not negative. `points` are amounts and
/// times in ns, at least one. O(n).
FittedLine fitLine(llvm::ArrayRef<std::pair<double, Ns>> points);

/// The numbers of one element type's matrix products.
struct ProductRate {
  ElementType element = ElementType::F32;
  /// Operations per second of large products, and the operations of a product that reaches half of it.
  double flopsPerSecond = 0, halfFlops = 0;
  /// Operations and time of each product that was measured.
  std::vector<std::pair<double, Ns>> points;
};

/// The numbers of a roofline. 0 where nothing was measured.
struct Roofline {
  std::vector<ProductRate> products;
  /// A kernel of one element.
  Ns launch = 0;
  /// Copies by a kernel: the fixed cost, and bytes read plus bytes written per second.
  Ns copyLaunch = 0;
  double copyBytesPerSecond = 0;
  CallTimes calls;
  /// What could not be measured, and why.
  std::vector<std::pair<std::string, std::string>> skipped;

  bool isEmpty() const { return products.empty() && launch == 0 && copyBytesPerSecond == 0; }
};

class ComputeCalibrator {
public:
  /// `progress` is called on every rank with one line per computation, and outlives this.
  ComputeCalibrator(ComputeBench &bench, Sampler &sampler, EstimateStore &store,
                    llvm::function_ref<void(const std::string &)> progress)
      : bench(bench), sampler(sampler), store(store), progress(progress) {}

  /// Times one computation on all ranks, which takes about `scale` times as long as the one before in its series. What
  /// cannot be measured is said in `skipped`. Collective over all ranks.
  llvm::Expected<CalibratedOp> measure(const ComputeProbe &probe, double scale = 1);

  /// Measures square products of each type, copies, and calls, at sizes that double until more bytes or operations per
  /// second are not gained, or one takes too long. Collective over all ranks.
  llvm::Expected<Roofline> measureRoofline(llvm::ArrayRef<ElementType> elements);

private:
  llvm::Expected<std::string> prepare(const ComputeProbe &probe);
  llvm::Error measureProducts(ElementType element, Roofline &roofline);
  llvm::Error measureCopies(Roofline &roofline);
  llvm::Error measureCalls(Roofline &roofline);

  ComputeBench &bench;
  Sampler &sampler;
  EstimateStore &store;
  llvm::function_ref<void(const std::string &)> progress;
  /// What it took this rank to compile the last code, ns.
  Ns compileCost = 0;
};

} // namespace commsched

#endif // COMMSCHED_CALIBRATION_COMPUTATIONS_H
