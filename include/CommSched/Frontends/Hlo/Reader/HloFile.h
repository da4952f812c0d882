//===- HloFile.h - A module of XLA in a file --------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A file holds a serialized HloModuleProto, or the HloProto around one that XLA's --xla_dump_hlo_as_proto writes.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_FRONTENDS_HLO_READER_HLOFILE_H
#define COMMSCHED_FRONTENDS_HLO_READER_HLOFILE_H

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"

namespace commsched::hlo {

/// The module in a file. It points into the bytes that it was read from.
class HloFile {
public:
  /// Fails, in one line that begins with the path, if the bytes have no module. For HLO text, that line has the command
  /// which converts it.
  static llvm::Expected<HloFile> read(llvm::StringRef bytes, llvm::StringRef path);

  const HloModule &module() const { return hlo; }
  /// The file with another serialized module in the place of its own.
  std::string withModule(llvm::StringRef module) const;

private:
  llvm::StringRef bytes;
  /// True if the module is in an HloProto.
  bool isDump = false;
  HloModule hlo;
};

} // namespace commsched::hlo

#endif // COMMSCHED_FRONTENDS_HLO_READER_HLOFILE_H
