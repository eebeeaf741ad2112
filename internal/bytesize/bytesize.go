// SPDX-License-Identifier: Apache-2.0

// Package bytesize formats sizes for people.
package bytesize

import (
	"fmt"
	"strconv"
)

// Format returns a number of bytes with its unit, in the form "1.2 MB". Units are powers of 1,024.
func Format(n int64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, names := float64(n), []string{"KB", "MB", "GB", "TB"}
	i := -1
	for f >= unit && i < len(names)-1 {
		f /= unit
		i++
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f %s", f, names[i])
	}
	return fmt.Sprintf("%.0f %s", f, names[i])
}
