//===- CollectiveVariant.h - Ways to carry out a collective -----------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A communication library has several ways to carry out one collective. They differ in time and in what they take of
// the device: a ring on few thread blocks is slow and leaves compute units to others, copy engines take no compute unit
// at all. The attribute `comm.variant` names the way of one start; machine profiles list the ways of a kind.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_SUPPORT_COLLECTIVEVARIANT_H
#define COMMSCHED_SUPPORT_COLLECTIVEVARIANT_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace commsched {

/// Most thread blocks of a collective: what NCCL accepts.
inline constexpr int64_t kMaxCtas = 64;

/// One way to carry out a collective.
struct VariantName {
  enum Means : uint8_t {
    /// Kernels on a number of thread blocks, as a library does by itself.
    Ring,
    /// Engines that copy without compute units. They cannot reduce.
    CopyEngine,
    /// Kernels that reach the other ranks' buffers directly, in symmetric memory.
    Symmetric,
  };
  Means means = Ring;
  /// Thread blocks: 1 to kMaxCtas of a ring, 0 of copy engines, either of symmetric kernels (0: the library chooses).
  int64_t ctas = 0;

  bool operator==(const VariantName &other) const { return means == other.means && ctas == other.ctas; }
  /// Whether the thread blocks are as the comment of `ctas` says.
  bool isValid() const;
  /// "ring-8", "copy-engine", "symmetric", "symmetric-4".
  std::string text() const;
  /// The inverse of text(); none for other texts.
  static std::optional<VariantName> parse(llvm::StringRef text);
  /// The texts that parse() accepts, for messages.
  static llvm::StringRef expected();
};

/// The name of a means in profiles ("copy_engine").
llvm::StringRef stringify(VariantName::Means means);

} // namespace commsched

#endif // COMMSCHED_SUPPORT_COLLECTIVEVARIANT_H
