//===- HloText.h - A module of XLA as text ----------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Reads HLO text, as jax's `compiled.as_text()` and XLA's --xla_dump_to print it (jaxlib 0.10.2), and writes it back
// with another order of instructions. The text becomes the message that readModule() reads, so a module is the same
// from either form.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_HLOTEXT_H
#define COMMSCHED_FRONTENDS_HLO_HLOTEXT_H

#include "CommSched/Frontends/Hlo/HloModule.h"
#include "CommSched/Frontends/Hlo/HloScheduler.h"
#include <memory>

namespace commsched::hlo {

/// What text says. It points into the text, which has to outlive it.
struct HloText {
  /// The fields that readModule() reads, serialized.
  std::string message;
  /// Indexed by computation of the message, then by instruction: its text, with the space before it. Empty for
  /// computations that the text only implies.
  std::vector<std::vector<llvm::StringRef>> instructions;
};

/// Reads the text of a module with a schedule. Fails with "FILE:LINE:COLUMN: expected ..., got ..."; `file` names the
/// text there. O(size, log).
llvm::Expected<HloText> parseText(llvm::StringRef text, llvm::StringRef file);

/// The text with other orders, given as for writeModule(). Everything else stays as it was, byte for byte. O(size).
llvm::Expected<std::string> writeText(llvm::StringRef text, const HloText &parsed, const HloModule &module,
                                      llvm::ArrayRef<std::vector<int32_t>> sequences);

/// A module in a file of any form. It points into the bytes that it was read from.
class HloFile {
public:
  /// Reads text if the path ends in ".txt" or ".hlo" or if the bytes begin with "HloModule". Otherwise reads a
  /// serialized HloModuleProto, or the HloProto around one that --xla_dump_hlo_as_proto writes. Messages begin with the
  /// path.
  static llvm::Expected<std::unique_ptr<HloFile>> read(llvm::StringRef bytes, llvm::StringRef path);

  const HloModule &module() const { return hlo; }
  /// Whether it was read from text, of which `module` has no more than scheduling reads.
  bool isFromText() const { return text.has_value(); }
  /// The file with the orders of `result`, in the form in which it was read.
  llvm::Expected<std::string> write(const HloResult &result) const;

private:
  llvm::StringRef bytes;
  /// None if the file is not text.
  std::optional<HloText> text;
  /// Whether the module is in an HloProto.
  bool isDump = false;
  HloModule hlo;
};

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_HLOTEXT_H
