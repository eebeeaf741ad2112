// SPDX-License-Identifier: Apache-2.0

// Package blobtest tests implementations of blob.FileStore.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
)

// TestFileStore tests an empty file store. written must set the modification time of everything in
// the store.
func TestFileStore(t *testing.T, files blob.FileStore, written func(time.Time)) {
	t.Run("roundtrip", func(t *testing.T) { testRoundtrip(t, files) })
	t.Run("abort", func(t *testing.T) { testAbort(t, files) })
	t.Run("delete", func(t *testing.T) { testDelete(t, files) })
	t.Run("concurrent", func(t *testing.T) { testConcurrent(t, files) })
	t.Run("each", func(t *testing.T) { testEach(t, files, written) })
}

var nextName = db.ID(1 << 40)

// newName returns an unused file name.
func newName() db.ID {
	nextName += 0x1001
	return nextName
}

// content returns bytes that differ by name and position.
func content(name db.ID, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(uint64(name), uint64(size)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func writeFile(ctx context.Context, files blob.FileStore, name db.ID, b []byte) error {
	w, err := files.Create(ctx, name)
	if err != nil {
		return err
	}
	defer w.Abort() // does nothing after Commit
	for chunk := range slices.Chunk(b, 10_000) {
		if n, err := w.Write(chunk); err != nil || n != len(chunk) {
			return fmt.Errorf("wrote %d of %d: %w", n, len(chunk), err)
		}
	}
	return w.Commit()
}

func mustWrite(t *testing.T, files blob.FileStore, size int) db.ID {
	t.Helper()
	name := newName()
	if err := writeFile(t.Context(), files, name, content(name, size)); err != nil {
		t.Fatal(err)
	}
	return name
}

func testRoundtrip(t *testing.T, files blob.FileStore) {
	for _, size := range []int{1, 4096, 100_001, 3 << 20} {
		name := mustWrite(t, files, size)
		want := content(name, size)
		r, err := files.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][2]int{{0, size}, {0, 1}, {size / 2, size}, {size - 1, size}, {size / 3, size / 2}} {
			p := make([]byte, part[1]-part[0])
			n, err := r.ReadAt(p, int64(part[0]))
			if n != len(p) || (err != nil && !errors.Is(err, io.EOF)) || !bytes.Equal(p, want[part[0]:part[1]]) {
				t.Errorf("size %d, bytes %d to %d: read %d, %v", size, part[0], part[1], n, err)
			}
		}
		// A read across the end returns fewer bytes, and io.EOF.
		if n, err := r.ReadAt(make([]byte, 10), int64(size)-1); n != 1 || !errors.Is(err, io.EOF) {
			t.Errorf("over the end: %d, %v", n, err)
		}
		if n, err := r.ReadAt(make([]byte, 10), int64(size)+5); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %d, %v", n, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func checkAbsent(t *testing.T, files blob.FileStore, name db.ID) {
	t.Helper()
	r, err := files.Open(t.Context(), name)
	if err == nil {
		_, err = r.ReadAt(make([]byte, 1), 0)
		_ = r.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("file %d is there: %v", name, err)
	}
}

func testAbort(t *testing.T, files blob.FileStore) {
	name := newName()
	w, err := files.Create(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	checkAbsent(t, files, name) // it exists only once it is committed
	w.Abort()
	w.Abort()
	checkAbsent(t, files, name)
	if err := writeFile(t.Context(), files, name, []byte("whole")); err != nil {
		t.Errorf("the name can't be used any more: %v", err)
	}
}

func testDelete(t *testing.T, files blob.FileStore) {
	name := mustWrite(t, files, 100)
	for range 2 {
		if err := files.Delete(t.Context(), name); err != nil {
			t.Error(err)
		}
		checkAbsent(t, files, name)
	}
}

func testConcurrent(t *testing.T, files blob.FileStore) {
	names := make([]db.ID, 32)
	for i := range names {
		names[i] = newName()
	}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			want := content(name, 70_000)
			if err := writeFile(t.Context(), files, name, want); err != nil {
				t.Error(err)
				return
			}
			r, err := files.Open(t.Context(), name)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close() //nolint:errcheck // only read
			got, err := io.ReadAll(io.NewSectionReader(r, 0, int64(len(want))))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("file %d: read %d bytes, %v", name, len(got), err)
			}
		})
	}
	wg.Wait()
}

func testEach(t *testing.T, files blob.FileStore, written func(time.Time)) {
	now := time.Now()
	left, err := files.Create(t.Context(), newName()) // as after a crash
	if err != nil {
		t.Fatal(err)
	}
	if _, err := left.Write(make([]byte, 70_000)); err != nil {
		t.Fatal(err)
	}
	old := []db.ID{mustWrite(t, files, 10), mustWrite(t, files, 20)}
	written(now.Add(-time.Hour))
	recent := mustWrite(t, files, 30)
	var got []db.ID
	if err := files.Each(t.Context(), now.Add(-time.Minute), func(name db.ID) error {
		got = append(got, name)
		return files.Delete(t.Context(), name)
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got, old[0]) || !slices.Contains(got, old[1]) || slices.Contains(got, recent) {
		t.Errorf("got %v, want %v and not %v", got, old, recent)
	}
	for _, name := range old {
		checkAbsent(t, files, name)
	}
	if err := left.Commit(); err == nil {
		t.Error("what was left behind was not removed")
	}
	stop := errors.New("stop")
	if err := files.Each(t.Context(), time.Now().Add(time.Hour), func(db.ID) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := files.Each(ctx, time.Now().Add(time.Hour), func(db.ID) error { return nil }); err == nil {
		t.Error("went on for nobody")
	}
}
