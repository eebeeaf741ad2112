// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

var errWait = errors.New("nothing there yet")

// drip is a source that has come in up to a point; then it fails, as a wait
// that is interrupted, and goes on later.
type drip struct{ there, later []byte }

func (d *drip) Read(p []byte) (int, error) {
	if len(d.there) == 0 {
		if len(d.later) == 0 {
			return 0, io.EOF
		}
		return 0, errWait
	}
	n := copy(p, d.there)
	d.there = d.there[n:]
	return n, nil
}

func (d *drip) more(n int) {
	n = min(n, len(d.later))
	d.there, d.later = d.later[:n], d.later[n:]
}

func deflated(level int, texts ...string) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		panic(err)
	}
	for _, s := range texts {
		if _, err := io.WriteString(w, s); err != nil {
			panic(err)
		}
		if err := w.Flush(); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// Whatever the level and however it comes, the text is the same.
func TestInflater(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 70_000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	texts := []string{"a1 NOOP\r\n", "", strings.Repeat("a2 FETCH 1:* FLAGS\r\n", 5000), string(noise), strings.Repeat("x", 300_000),
		string(noise[:40_000]), "a3 LOGOUT\r\n"}
	want := strings.Join(texts, "")
	for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
		src := &drip{later: deflated(level, texts...)}
		r := bufio.NewReaderSize(NewInflater(bufio.NewReaderSize(src, 64)), 16)
		var got bytes.Buffer
		for {
			_, err := io.Copy(&got, r)
			if err == nil {
				break
			}
			if !errors.Is(err, errWait) {
				t.Fatal(level, err)
			}
			src.more(1 + rnd.IntN(3000))
		}
		if got.String() != want {
			t.Fatalf("level %d: %d bytes, want %d", level, got.Len(), len(want))
		}
	}
}

// bitWriter writes what no Go library does: Z_PARTIAL_FLUSH.
type bitWriter struct {
	b []byte
	n uint
}

func (w *bitWriter) bit(v int) {
	if w.n%8 == 0 {
		w.b = append(w.b, 0)
	}
	w.b[len(w.b)-1] |= byte(v << (w.n % 8))
	w.n++
}

// A client that ends its command with an empty block of fixed codes, as zlib
// does for Z_PARTIAL_FLUSH, is heard before it sends more.
func TestInflaterPartialFlush(t *testing.T) {
	const command = "a1 NOOP\r\n"
	var w bitWriter
	number := func(v int, bits uint) { // lowest bit first
		for i := range bits {
			w.bit(v >> i & 1)
		}
	}
	number(2, 3) // not the last, fixed codes
	for i := range len(command) {
		for bit := 7; bit >= 0; bit-- { // codes come highest bit first
			w.bit((0x30 + int(command[i])) >> bit & 1)
		}
	}
	number(0, 7) // its end
	number(2, 3)
	number(0, 7)
	src := &drip{later: w.b[:w.n/8]} // zlib keeps the bits of the last, incomplete byte
	src.more(1 << 20)
	src.later = []byte{0}
	r := bufio.NewReader(NewInflater(bufio.NewReader(src)))
	line, err := r.ReadString('\n')
	if err != nil || line != command {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := r.Peek(1); !errors.Is(err, errWait) {
		t.Fatal(err)
	}
}

func TestInflaterDamaged(t *testing.T) {
	for _, b := range []string{"\x06", "\x00\x01\x00\x00\x00", "\x03\x02", "\x05\xff\xff\xff\xff\xff\xff"} {
		f := NewInflater(bufio.NewReader(strings.NewReader(b + strings.Repeat("\x00", 100))))
		if _, err := io.Copy(io.Discard, f); !errors.Is(err, errCorrupt) {
			t.Errorf("%q: %v", b, err)
		}
		_, first := f.Read(make([]byte, 10))
		if _, second := f.Read(make([]byte, 10)); !errors.Is(second, first) {
			t.Errorf("%q: %v, then %v", b, first, second)
		}
	}
}

// Megabytes of zeros come in pieces of what is asked for, and hold no more
// than the window.
func TestInflaterBomb(t *testing.T) {
	f := NewInflater(bufio.NewReaderSize(bytes.NewReader(deflated(9, strings.Repeat("\x00", 100<<20))), 64))
	p := make([]byte, 100)
	for total := 0; total < 100<<20; {
		n, err := f.Read(p)
		if total += n; err != nil || cap(f.window) > windowSize {
			t.Fatalf("after %d bytes: %v, a window of %d", total, err, cap(f.window))
		}
	}
}

// What the Deflater has flushed its client can read, though each flush begins
// again, with any compressor is free.
func TestDeflater(t *testing.T) {
	var out bytes.Buffer
	var deflaters DeflaterPool
	d := NewDeflater(&out, &deflaters)
	client := flate.NewReader(&out)
	for i := range 100 {
		text := strings.Repeat("* 1 FETCH (FLAGS (\\Seen))\r\n", 1+i*50)
		if _, err := io.WriteString(d, text); err != nil {
			t.Fatal(err)
		}
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := d.Flush(); err != nil || d.compressor != nil {
			t.Fatal(err, d.compressor)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(client, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// FuzzInflater: what compress/flate reads the Inflater reads the same, and it
// never makes more of anything.
func FuzzInflater(f *testing.F) {
	f.Add(deflated(9, "a1 NOOP\r\n", "a2 NOOP\r\n"))
	f.Add(deflated(0, "a1 NOOP\r\n"))
	f.Add(deflated(flate.HuffmanOnly, "abababab"))
	f.Add(deflated(6, strings.Repeat("FETCH ", 400)))
	f.Add([]byte("\x05\xc0\x81\x08\x00\x00\x00\x00\x20\x7f\xeb\x0b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const most = 1 << 20
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), most))
		got, gotErr := io.ReadAll(io.LimitReader(NewInflater(bufio.NewReaderSize(bytes.NewReader(b), 16)), most))
		if wantErr == nil && (gotErr != nil || !bytes.Equal(got, want)) {
			t.Fatalf("%d bytes, %v; compress/flate has %d", len(got), gotErr, len(want))
		}
		if n := min(len(got), len(want)); !bytes.Equal(got[:n], want[:n]) {
			t.Fatalf("%q, compress/flate has %q", got, want)
		}
	})
}
