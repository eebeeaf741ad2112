// SPDX-License-Identifier: Apache-2.0

//go:build !race

package heaptest

// Size is how long a stream is, in bytes.
const Size = 64 << 20
