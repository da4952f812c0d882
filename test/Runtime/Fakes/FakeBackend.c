/*===- FakeBackend.c - A backend's library in a folder where nobody should look --------------------===
 *
 * Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
 * See LICENSE for licence information.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Says that it was loaded by a variable of the environment, and offers no table.
 *
 *===--------------------------------------------------------------------------------------------===*/

#include <stdlib.h>

__attribute__((constructor)) static void load(void) { setenv("COMMRT_FAKE_BACKEND_LOADED", "1", 1); }

const void *commrt_backend_entry(unsigned version) { return 0; }
