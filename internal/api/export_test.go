// SPDX-License-Identifier: Apache-2.0

package api

import "maps"

// Unaudited are the operations without an entry of the audit log, and why.
func Unaudited() map[string]string { return maps.Clone(unauditedOperations) }
