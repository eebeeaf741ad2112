// SPDX-License-Identifier: Apache-2.0

package doctor

// Unprivileged is the first port that everybody may take on this machine.
var Unprivileged = firstUnprivilegedPort
