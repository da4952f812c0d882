# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How a check fails, and what numbers of a certificate may be."""

from __future__ import annotations

from typing import Any, NoReturn

UNLIMITED = 1 << 62
# Outputs of at most this many bytes may share an unpack.
SMALL_UNPACK_BYTES = 2 << 20
Section = dict[str, Any]


class Invalid(Exception):
    """The first violated statement, in words."""


def fail(message: str) -> NoReturn:
    raise Invalid(message)


def require(holds: bool, message: str) -> None:
    if not holds:
        raise Invalid(message)


def numbers(values: Any, low: int, high: int, what: str) -> list[int]:
    """The values, if they are integers in [low, high)."""
    require(isinstance(values, list), f"{what} is no list")
    for value in values:
        require(type(value) is int and low <= value < high, f"{what} holds {value!r}")
    return values


def column(section: Section, name: str, count: int, usual: int, low: int, high: int) -> list[int]:
    """A column of which the certificate holds the index and the value of unusual entries."""
    result = [usual] * count
    pairs = section.get(name, [])
    require(isinstance(pairs, list) and len(pairs) % 2 == 0, f"{name} holds half a pair")
    for index, value in zip(numbers(pairs[::2], 0, count, name), numbers(pairs[1::2], low, high, name)):
        result[index] = value
    return result
