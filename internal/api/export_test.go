// SPDX-License-Identifier: Apache-2.0

package api

import "maps"

// Unaudited returns the operations without an audit log entry, and the reasons.
func Unaudited() map[string]string { return maps.Clone(unauditedOperations) }
