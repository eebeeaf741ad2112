// SPDX-License-Identifier: Apache-2.0

//go:build race

package heaptest

// Size is how long a stream is, in bytes. The race detector takes ten times as long.
const Size = 8 << 20
