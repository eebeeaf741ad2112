// SPDX-License-Identifier: Apache-2.0

package wire

// ThreadAnswer writes * THREAD (RFC 5256 §4): threads and their branches are
// opened and closed, and have numbers between; then comes End.
type ThreadAnswer struct {
	w     *Writer
	space bool // comes before what follows
}

// Thread begins the answer.
func (w *Writer) Thread() *ThreadAnswer {
	w.Raw("* THREAD")
	return &ThreadAnswer{w, true}
}

// Open begins a thread or a branch.
func (t *ThreadAnswer) Open() {
	t.gap()
	t.w.Raw("(")
}

// Number writes a message's number or UID.
func (t *ThreadAnswer) Number(n uint32) {
	t.gap()
	t.w.Number(uint64(n))
	t.space = true
}

// Close ends a thread or a branch.
func (t *ThreadAnswer) Close() {
	t.w.Raw(")")
	t.space = false
}

// End ends the answer.
func (t *ThreadAnswer) End() { t.w.CRLF() }

func (t *ThreadAnswer) gap() {
	if t.space {
		t.w.SP()
	}
	t.space = false
}
