// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

const page = 4096

var someBlobs = db.SQL(`SELECT id, size FROM blob WHERE id > $1 ORDER BY id LIMIT 100`)

// walTest is a database with a small write-ahead log, and its log messages.
type walTest struct {
	*db.DB
	t    *testing.T
	file string
	said chan string
}

// Handle, Enabled, WithAttrs and WithGroup make it the database's log.
func (w *walTest) Handle(_ context.Context, r slog.Record) error {
	select {
	case w.said <- r.Message:
	default:
		w.t.Errorf("said too often: %s", r.Message)
	}
	return nil
}

func (w *walTest) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (w *walTest) WithAttrs([]slog.Attr) slog.Handler           { return w }
func (w *walTest) WithGroup(string) slog.Handler                { return w }

func openWAL(t *testing.T, limits func(db.Options) db.Options) *walTest {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mailstead.db")
	w := &walTest{t: t, file: file + "-wal", said: make(chan string, 8)}
	d, err := db.Open(t.Context(), limits(db.Options{URL: "sqlite:" + file, Log: slog.New(w)}))
	if err != nil {
		t.Fatal(err)
	}
	w.DB = d
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *walTest) size() int64 {
	w.t.Helper()
	info, err := os.Stat(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	return info.Size()
}

// turns returns how often the WAL was restarted: the checkpoint sequence number in its header
// (sqlite.org/fileformat2.html#walformat).
func (w *walTest) turns() uint32 {
	w.t.Helper()
	f, err := os.Open(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	var header [16]byte
	if _, err := io.ReadFull(f, header[:]); err != nil {
		w.t.Fatal(err)
	}
	return binary.BigEndian.Uint32(header[12:])
}

// write commits slightly more than the given number of pages.
func (w *walTest) write(pages int) {
	w.t.Helper()
	body := bytes.Repeat([]byte("x"), 16*page)
	for range pages / 16 {
		id := w.NewID()
		if err := w.Write(w.t.Context(), id, &db.Mutation{Apply: func(b *db.Batch) { b.Queue(benchBlob.With(id, len(body), 0, body)) }}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Under permanent writes the WAL is restarted, even when there is always a reader in it.
func TestWALBounded(t *testing.T) {
	w := openWAL(t, func(o db.Options) db.Options { return o.WithWAL(64, 256, 1<<20) })
	w.write(32)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	// Each reader ends only after the other one has begun again.
	began := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	for i := range 2 {
		mine, others := began[i], began[1-i]
		readers.Go(func() {
			for ctx.Err() == nil {
				first := true
				err := w.Each(t.Context(), someBlobs.With(0), func(db.Row) error {
					if !first {
						return nil
					}
					first = false
					select {
					case <-others: // an earlier signal
					default:
					}
					select {
					case mine <- struct{}{}:
					default:
					}
					select {
					case <-others:
					case <-ctx.Done():
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	written := 0
	for before := w.turns(); w.turns() < before+8; {
		w.write(64)
		written += 64 * page
		if written > 4<<30 { // a fast disk takes hundreds of MiB between two checks
			t.Errorf("after %d MiB the WAL has begun anew %d times, and has %d MiB", written>>20, w.turns()-before, w.size()>>20)
			break
		}
	}
	stop()
	readers.Wait()
}

// A reader that stays too long makes the WAL grow, which is logged once. When the reader has ended,
// the WAL recovers without a restart of the service.
func TestWALSlowReader(t *testing.T) {
	w := openWAL(t, func(o db.Options) db.Options { return o.WithWAL(64, 256, 512) })
	w.write(64)
	alarms := 0
	err := w.Each(t.Context(), someBlobs.With(0), func(db.Row) error {
		if alarms > 0 {
			return nil // the second row
		}
		for alarms == 0 {
			w.write(64)
			select {
			case said := <-w.said:
				if !strings.Contains(said, "over its limit") {
					t.Errorf("said %q", said)
				}
				alarms++
			default:
			}
		}
		w.write(256)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Writes between two polls may exceed these limits again, so the test stops
	// writing once the WAL has restarted.
	large := w.size()
	for before := w.turns(); w.turns() == before; {
		w.write(16)
	}
	for {
		said := <-w.said
		if strings.Contains(said, "within its limit") {
			break
		}
		if !strings.Contains(said, "held its transaction too long") {
			t.Errorf("said %q", said)
		}
	}
	if now := w.size(); now >= large {
		t.Errorf("the WAL has %d bytes, as %d before", now, large)
	}
}

// A single commit above the limit is not caused by a reader: nothing is logged, and the WAL
// restarts.
func TestWALLargeCommit(t *testing.T) {
	w := openWAL(t, func(o db.Options) db.Options { return o.WithWAL(64, 256, 512) })
	w.write(64)
	large, id := bytes.Repeat([]byte("x"), 4096*page), w.NewID()
	dbtest.Exec(t, w.DB, benchBlob.With(id, len(large), 0, large))
	for before := w.turns(); w.turns() == before; {
		w.write(16)
	}
	select {
	case said := <-w.said:
		t.Errorf("said %q", said)
	default:
	}
}

// A poll between the two copies of the WAL index's header, which a commit writes, does not log that
// the WAL is within its limit (sqlite.org/walformat.html#the_wal_index_file_format).
func TestWALUntold(t *testing.T) {
	w := openWAL(t, func(o db.Options) db.Options { return o })
	w.write(32)
	file := strings.TrimSuffix(w.file, "-wal")
	own, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close() //nolint:errcheck // nothing is written through it
	own.SetMaxOpenConns(1)
	if _, err := own.ExecContext(t.Context(), "PRAGMA wal_checkpoint(NOOP)"); err != nil { // opens the file
		t.Fatal(err)
	}
	index, err := os.OpenFile(file+"-shm", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer index.Close() //nolint:errcheck // it is mapped by the database
	if err := w.Tx(t.Context(), func(*db.Tx) error {
		var changes [1]byte
		if _, err := index.ReadAt(changes[:], 8); err != nil {
			return err
		}
		if _, err := index.WriteAt([]byte{^changes[0]}, 8); err != nil {
			return err
		}
		w.LookAtWAL(t.Context(), own)
		_, err := index.WriteAt(changes[:], 8)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case said := <-w.said:
		t.Errorf("said %q", said)
	default:
	}
}

// Closing leaves no WAL for the next start to read.
func TestWALAfterClose(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mailstead.db")
	d, err := db.Open(t.Context(), db.Options{URL: "sqlite:" + file})
	if err != nil {
		t.Fatal(err)
	}
	id := d.NewID()
	if err := d.Write(t.Context(), id, &db.Mutation{Apply: add(id)}); err != nil {
		t.Fatal(err)
	}
	if !stored(t, d, id) { // a reader was open
		t.Fatal("not stored")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file + "-wal"); !os.IsNotExist(err) {
		t.Errorf("there is a WAL: %v", err)
	}
}
