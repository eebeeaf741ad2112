// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/heaptest"
)

// metered is a file store that measures the heap while files are read.
type metered struct {
	blob.FileStore
	blob.FileReader
	m *meter
}

type meter struct{ reads, start, peak int64 }

// Open implements blob.FileStore.
func (f metered) Open(ctx context.Context, name db.ID) (blob.FileReader, error) {
	r, err := f.FileStore.Open(ctx, name)
	f.FileReader = r
	return f, err
}

// ReadAt implements io.ReaderAt.
func (f metered) ReadAt(p []byte, off int64) (int, error) {
	if f.m.reads++; f.m.reads%128 == 1 {
		f.m.peak = max(f.m.peak, heaptest.Live()-f.m.start)
	}
	return f.FileReader.ReadAt(p, off)
}

// Close implements io.Closer.
func (f metered) Close() error { return f.FileReader.Close() }

// A search of bodies needs little memory for all kinds of bodies.
func TestSearchMemory(t *testing.T) {
	each(t, func(h *fixture) {
		const size = 8 << 20
		for _, text := range []string{
			"Content-Type: text/html\r\n\r\n<a href" + strings.Repeat(strings.Repeat(" ", 510)+"\r\n", size/512) + "=x>x</a>\r\n",
			"Content-Type: text/html\r\n\r\n" + strings.Repeat("<", size),
			"Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n" + strings.Repeat("\x1b$B", size/3),
			"Subject: " + strings.Repeat("\x80", size) + "\r\n\r\nx\r\n",
		} {
			h.append(h.upload(text))
		}
		v := h.view()
		m := &meter{start: heaptest.Live()}
		h.Blobs.Files = metered{FileStore: h.Blobs.Files, m: m}
		for _, test := range []CriterionKind{InBody, InText} {
			if _, err := h.Search(h.ctx(), v, Criterion{Test: test, Text: "nowhere"}, nil); err != nil {
				t.Error(err)
			}
		}
		if m.reads == 0 || m.peak > heaptest.Limit {
			t.Errorf("%d KiB of heap are live, in %d readings", m.peak>>10, m.reads)
		}
	})
}
