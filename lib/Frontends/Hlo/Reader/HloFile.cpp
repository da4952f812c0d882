//===- HloFile.cpp - A module of XLA in a file ------------------------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// See HloFile.h.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Reader/HloFile.h"
#include "WireFormat.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

/// HloProto.hlo_module: the module in a dump of --xla_dump_hlo_as_proto.
static constexpr uint32_t kModuleInDump = 1;

/// The module in a dump; empty if the bytes are not one. A module itself has its name in that field, which is not a
/// message.
static StringRef moduleInDump(StringRef bytes) {
  WireReader reader(bytes);
  WireField field, first;
  while (reader.next(field))
    if (field.number == kModuleInDump && !field.isVarint)
      first = field;
  return reader.isMalformed() ? "" : first.bytes;
}

Expected<HloFile> HloFile::read(StringRef bytes, StringRef path) {
  if (bytes.ltrim().starts_with("HloModule"))
    return createFileError(path, createStringError("expected a module of XLA, got HLO text, which 'python -m "
                                                   "commsched.jax.convert " +
                                                   path + " module.pb' converts"));
  HloFile file;
  file.bytes = bytes;
  Expected<HloModule> module = readModule(bytes);
  if (!module) {
    Expected<HloModule> inside = readModule(moduleInDump(bytes));
    if (inside) {
      consumeError(module.takeError());
      file.isDump = true;
      module = std::move(inside);
    } else {
      consumeError(inside.takeError());
    }
  }
  if (!module)
    return createFileError(path, module.takeError());
  file.hlo = std::move(*module);
  return std::move(file);
}

std::string HloFile::withModule(StringRef module) const {
  if (!isDump)
    return module.str();
  std::string dump;
  WireReader reader(bytes);
  WireField field;
  while (reader.next(field))
    if (field.number == kModuleInDump)
      writeBytes(kModuleInDump, module, dump);
    else
      dump += field.whole;
  return dump;
}
