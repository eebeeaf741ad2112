// SPDX-License-Identifier: Apache-2.0

package doctor

// Unprivileged returns the first port that every user may bind on this machine.
var Unprivileged = firstUnprivilegedPort
