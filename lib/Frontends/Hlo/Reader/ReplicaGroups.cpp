//===- ReplicaGroups.cpp - Groups of devices in all their forms -------------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// XLA writes the groups of a collective as lists of ids, as a reshaped and transposed iota, or as axes of a mesh.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Frontends/Hlo/Reader/HloModule.h"
#include "WireFormat.h"
#include "llvm/ADT/STLExtras.h"
#include <numeric>

using namespace llvm;
using namespace commsched;
using namespace commsched::hlo;

namespace {

using Ids = SmallVector<int64_t, 8>;
using Groups = std::vector<std::vector<int64_t>>;

Error fault(const char *what) { return createStringError(std::string("expected groups of devices, got ") + what); }

/// The product of sizes that are all positive; -1 if it exceeds kMaxDevices, or if a size is not positive.
int64_t productOf(ArrayRef<int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (size <= 0 || size > kMaxDevices || product * size > kMaxDevices)
      return -1;
    product *= size;
  }
  return product;
}

bool isPermutation(ArrayRef<int64_t> values) {
  std::vector<bool> seen(values.size(), false);
  for (int64_t value : values) {
    if (value < 0 || value >= static_cast<int64_t>(seen.size()) || seen[value])
      return false;
    seen[value] = true;
  }
  return true;
}

/// `values`, an array of the sizes `dims`, with its dimensions in the order `permutation`.
std::vector<int64_t> transposed(ArrayRef<int64_t> values, ArrayRef<int64_t> dims, ArrayRef<int64_t> permutation) {
  std::vector<int64_t> strides(dims.size(), 1), at(dims.size(), 0), result;
  for (size_t i = dims.size(); i-- > 1;)
    strides[i - 1] = strides[i] * dims[i];
  result.reserve(values.size());
  for (size_t n = 0; n < values.size(); ++n) {
    int64_t offset = 0;
    for (size_t i = 0; i < dims.size(); ++i)
      offset += at[i] * strides[permutation[i]];
    result.push_back(values[offset]);
    // Counts on, the last dimension first.
    for (size_t i = dims.size(); i-- > 0;) {
      ++at[i];
      if (at[i] < dims[permutation[i]])
        break;
      at[i] = 0;
    }
  }
  return result;
}

std::vector<int64_t> iota(int64_t size) {
  std::vector<int64_t> values(size);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

Groups cut(ArrayRef<int64_t> devices, int64_t perGroup) {
  Groups groups;
  for (; !devices.empty(); devices = devices.drop_front(perGroup))
    groups.emplace_back(devices.take_front(perGroup).begin(), devices.take_front(perGroup).end());
  return groups;
}

/// An iota of the sizes `dims`, transposed; no dimensions: as it is. Empty if the numbers contradict each other.
std::vector<int64_t> transposedIota(ArrayRef<int64_t> dims, ArrayRef<int64_t> permutation, int64_t size) {
  if (dims.empty())
    return iota(size);
  SmallVector<int64_t, 4> order(permutation);
  if (order.empty())
    append_range(order, iota(dims.size()));
  if (productOf(dims) != size || order.size() != dims.size() || !isPermutation(order))
    return {};
  return transposed(iota(size), dims, order);
}

/// IotaReplicaGroupListProto.
Expected<Groups> groupsOfIota(StringRef bytes) {
  int64_t count = 0, perGroup = 0;
  Ids dims, permutation;
  WireReader reader(bytes);
  WireField field;
  while (reader.next(field)) {
    if (field.number == 1)
      count = field.integer();
    else if (field.number == 2)
      perGroup = field.integer();
    else if ((field.number == 3 && !appendIntegers(field, dims)) ||
             (field.number == 4 && !appendIntegers(field, permutation)))
      return fault("a malformed list");
  }
  int64_t size = productOf({count, perGroup});
  std::vector<int64_t> devices = size < 0 ? std::vector<int64_t>() : transposedIota(dims, permutation, size);
  if (reader.isMalformed() || devices.empty())
    return fault("a malformed iota");
  return cut(devices, perGroup);
}

/// Axes of a mesh (MeshAxesReplicaGroupListProto).
class MeshGroups {
public:
  Expected<Groups> read(StringRef bytes);

private:
  struct AxisRef {
    int64_t axis = 0, before = 1, size = 0;
  };

  bool readMesh(StringRef bytes);
  bool readAxisRef(StringRef bytes);
  bool splitAxes();

  Ids sizes;
  /// Ids by position; none: an iota of `reshape`, transposed by `permutation`.
  Ids ids, reshape, permutation;
  SmallVector<AxisRef, 2> refs;
  /// The axes, cut where a reference takes a part of one; and for each reference its parts in `parts`.
  Ids parts;
  SmallVector<Ids, 2> partsOfRef;
};

} // namespace

bool MeshGroups::readMesh(StringRef bytes) {
  WireReader reader(bytes);
  WireField field, part;
  while (reader.next(field)) {
    if (field.number == 2 && !appendIntegers(field, ids))
      return false;
    if (field.number != 1 && field.number != 3)
      continue;
    WireReader inner(field.bytes);
    if (field.number == 1)
      sizes.push_back(0);
    while (inner.next(part)) {
      if (field.number == 1 && part.number == 2)
        sizes.back() = part.integer();
      if (field.number == 3 && part.number <= 2 && !appendIntegers(part, part.number == 1 ? reshape : permutation))
        return false;
    }
    if (inner.isMalformed())
      return false;
  }
  return !reader.isMalformed();
}

bool MeshGroups::readAxisRef(StringRef bytes) {
  AxisRef &ref = refs.emplace_back();
  WireReader reader(bytes);
  WireField field, part;
  while (reader.next(field)) {
    if (field.number == 1)
      ref.axis = field.integer();
    if (field.number != 2)
      continue;
    WireReader inner(field.bytes);
    while (inner.next(part))
      (part.number == 1 ? ref.before : ref.size) = part.integer();
    if (inner.isMalformed())
      return false;
  }
  return !reader.isMalformed();
}

bool MeshGroups::splitAxes() {
  for (AxisRef &ref : refs) {
    if (ref.axis < 0 || ref.axis >= static_cast<int64_t>(sizes.size()))
      return false;
    if (ref.size == 0)
      ref.size = sizes[ref.axis];
  }
  partsOfRef.resize(refs.size());
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    // The products of sizes at which the axis is cut, from its most significant part on.
    Ids cuts = {1, sizes[axis]};
    for (const AxisRef &ref : refs)
      if (ref.axis == static_cast<int64_t>(axis)) {
        if (productOf({ref.before, ref.size}) < 0)
          return false;
        cuts.push_back(ref.before);
        cuts.push_back(ref.before * ref.size);
      }
    sort(cuts);
    cuts.erase(unique(cuts), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i + 1] % cuts[i] != 0)
        return false;
      for (size_t r = 0; r < refs.size(); ++r)
        if (refs[r].axis == static_cast<int64_t>(axis) && refs[r].before <= cuts[i] &&
            cuts[i + 1] <= refs[r].before * refs[r].size)
          partsOfRef[r].push_back(parts.size());
      parts.push_back(cuts[i + 1] / cuts[i]);
    }
    if (cuts.back() != sizes[axis])
      return false;
  }
  return true;
}

Expected<Groups> MeshGroups::read(StringRef bytes) {
  WireReader reader(bytes);
  WireField field;
  while (reader.next(field))
    if ((field.number == 1 && !readMesh(field.bytes)) || (field.number == 2 && !readAxisRef(field.bytes)))
      return fault("a malformed mesh");
  int64_t size = productOf(sizes);
  if (reader.isMalformed() || size < 0 || !splitAxes())
    return fault("axes that the mesh does not have");
  std::vector<int64_t> devices(ids.begin(), ids.end());
  if (devices.empty())
    devices = transposedIota(reshape, permutation, size);
  if (static_cast<int64_t>(devices.size()) != size)
    return fault("a mesh of another number of devices than its axes have");
  // First the parts that no reference names, then those of the references: then a group is a row.
  Ids order;
  int64_t perGroup = 1;
  for (size_t part = 0; part < parts.size(); ++part)
    if (none_of(partsOfRef, [&](const Ids &of) { return is_contained(of, static_cast<int64_t>(part)); }))
      order.push_back(part);
  for (const Ids &of : partsOfRef)
    for (int64_t part : of) {
      order.push_back(part);
      perGroup *= parts[part];
    }
  if (order.size() != parts.size() || !isPermutation(order))
    return fault("an axis that is named twice");
  return cut(transposed(devices, parts, order), perGroup);
}

Expected<std::vector<int64_t>> commsched::hlo::readPairs(const SerializedGroups &groups) {
  std::vector<int64_t> ids;
  for (StringRef pair : groups.pairs) {
    // A pair is a message of two integers, and 0 is not written.
    int64_t ends[2] = {0, 0};
    WireReader reader(pair);
    WireField field;
    while (reader.next(field))
      if (field.number == 1 || field.number == 2)
        ends[field.number - 1] = field.integer();
    if (reader.isMalformed())
      return fault("a malformed pair");
    ids.insert(ids.end(), std::begin(ends), std::end(ends));
  }
  return ids;
}

Expected<Groups> commsched::hlo::groupsOf(const HloModule &module, const SerializedGroups &serialized) {
  Groups groups;
  if (!serialized.mesh.empty()) {
    Expected<Groups> read = MeshGroups().read(serialized.mesh);
    if (!read)
      return read.takeError();
    groups = std::move(*read);
  } else if (!serialized.iota.empty()) {
    Expected<Groups> read = groupsOfIota(serialized.iota);
    if (!read)
      return read.takeError();
    groups = std::move(*read);
  } else if (!serialized.pairs.empty()) {
    // All devices of a permutation are one group.
    Expected<std::vector<int64_t>> ids = readPairs(serialized);
    if (!ids)
      return ids.takeError();
    sort(*ids);
    ids->erase(unique(*ids), ids->end());
    groups.push_back(std::move(*ids));
  }
  for (StringRef list : serialized.lists) {
    Ids ids;
    WireReader reader(list);
    WireField field;
    while (reader.next(field))
      if (field.number == 1 && !appendIntegers(field, ids))
        return fault("a malformed list");
    if (reader.isMalformed())
      return fault("a malformed list");
    groups.emplace_back(ids.begin(), ids.end());
  }
  if (groups.empty())
    groups.push_back(iota(module.devices));
  for (const std::vector<int64_t> &group : groups)
    if (group.empty() || any_of(group, [](int64_t id) { return id < 0 || id >= kMaxDevices; }))
      return fault("a device that does not exist");
  return groups;
}
