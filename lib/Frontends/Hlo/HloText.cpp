//===- HloText.cpp - Modules in files, and orders written back as text ------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA prints the instructions of a scheduled computation in their order, so another order is the same pieces of text in
// another order.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/HloText.h"
#include "HloFields.h"
#include "WireFormat.h"

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

Expected<std::string> commsched::hlo::writeText(StringRef text, const HloText &parsed, const HloModule &module,
                                                ArrayRef<std::vector<int32_t>> sequences) {
  std::string result;
  result.reserve(text.size());
  size_t at = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const HloComputation &computation = module.computations[i];
    const std::vector<StringRef> &pieces = parsed.instructions[i];
    if (sequences[i].empty() || pieces.empty())
      continue;
    if (std::string why = findOrderFault(computation, sequences[i]); !why.empty())
      return createStringError("the new order of '" + computation.name + "' does not hold: " + why);
    // Computations are read as they come in the text, and so are their instructions.
    result += text.slice(at, pieces.front().begin() - text.begin());
    for (int32_t index : sequences[i])
      result += pieces[index];
    at = pieces.back().end() - text.begin();
  }
  result += text.drop_front(at);
  return result;
}

static bool isText(StringRef bytes, StringRef path) {
  return path.ends_with(".txt") || path.ends_with(".hlo") || bytes.ltrim().starts_with("HloModule");
}

/// HloProto.hlo_module: what --xla_dump_hlo_as_proto writes has the module in this field.
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

Expected<std::unique_ptr<HloFile>> HloFile::read(StringRef bytes, StringRef path) {
  auto file = std::make_unique<HloFile>();
  file->bytes = bytes;
  if (isText(bytes, path)) {
    Expected<HloText> text = parseText(bytes, path);
    if (!text)
      return text.takeError();
    file->text = std::move(*text);
  }
  Expected<HloModule> module = readModule(file->text ? StringRef(file->text->message) : bytes);
  if (!module && !file->text) {
    Expected<HloModule> inside = readModule(moduleInDump(bytes));
    if (inside) {
      consumeError(module.takeError());
      file->isDump = true;
      module = std::move(inside);
    } else {
      consumeError(inside.takeError());
    }
  }
  if (!module)
    return createFileError(path, module.takeError());
  file->hlo = std::move(*module);
  return std::move(file);
}

Expected<std::string> HloFile::write(const HloResult &result) const {
  if (isDump) {
    std::string dump;
    WireReader reader(bytes);
    WireField field;
    while (reader.next(field))
      if (field.number == kModuleInDump)
        writeBytes(kModuleInDump, result.module, dump);
      else
        dump += field.whole;
    return dump;
  }
  if (!text)
    return result.module;
  std::vector<std::vector<int32_t>> sequences(hlo.computations.size());
  for (const ComputationResult &one : result.computations)
    sequences[one.computation] = one.sequence;
  return writeText(bytes, *text, hlo, sequences);
}
