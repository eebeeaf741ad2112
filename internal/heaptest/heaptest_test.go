// SPDX-License-Identifier: Apache-2.0

package heaptest

import (
	"bytes"
	"io"
	"runtime"
	"testing"
)

func TestPeak(t *testing.T) {
	in := Input{"head", "unit"}
	var got int
	whole := func(r io.Reader) any {
		b, err := io.ReadAll(r)
		if err != nil || !bytes.HasPrefix(b, []byte("headunitunit")) {
			t.Errorf("%v, %.20q", err, b)
		}
		got = len(b)
		return b
	}
	if peak := peakOf(in, whole); peak < Size || got != Size {
		t.Errorf("%d bytes are read, and a peak of %d is seen", got, peak)
	}
	kept := func(r io.Reader) any { // only while it reads
		var all []byte
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			if all = append(all, buf[:n]...); err != nil {
				runtime.KeepAlive(all)
				return nil
			}
		}
	}
	if peak := peakOf(in, kept); peak < Size/2 {
		t.Errorf("of what is kept while reading a peak of %d is seen", peak)
	}
	if peak := peakOf(in, Discard); peak > 256<<10 {
		t.Errorf("without anything kept a peak of %d is seen", peak)
	}
}
