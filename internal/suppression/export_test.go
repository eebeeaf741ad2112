// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// CheckSheet reads a file to its end: every row has an address or a fault.
func CheckSheet(t *testing.T, text string) {
	s, err := newCSVReader(strings.NewReader(text), ReasonManual, time.Unix(1_800_000_000, 0))
	for n := 0; err == nil; n++ {
		var r row
		if r, err = s.next(); err != nil {
			break
		}
		if (r.address.Domain == "") == (r.fault == nil) || r.line < 1 || r.reason == "" || n > len(text) {
			t.Fatalf("%+v", r)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errRowTooLong) {
		t.Fatal(err)
	}
}
