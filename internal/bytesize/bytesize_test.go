// SPDX-License-Identifier: Apache-2.0

package bytesize

import "testing"

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KB", 10 << 10: "10 KB", 1 << 20: "1.0 MB", 1258291: "1.2 MB",
		900 << 20: "900 MB", 5 << 30: "5.0 GB", 100 << 30: "100 GB", 3 << 40: "3.0 TB",
	} {
		if got := Format(n); got != want {
			t.Errorf("Format(%d) = %q, want %q", n, got, want)
		}
	}
}
