// SPDX-License-Identifier: Apache-2.0

package wire

// ThreadResponse writes * THREAD (RFC 5256 §4): threads and their branches are
// opened and closed, and have numbers between; then comes End.
type ThreadResponse struct {
	w          *Writer
	needsSpace bool // comes before what follows
}

// Thread begins the answer.
func (w *Writer) Thread() *ThreadResponse {
	w.Raw("* THREAD")
	return &ThreadResponse{w, true}
}

// Open begins a thread or a branch.
func (t *ThreadResponse) Open() {
	t.writeSpace()
	t.w.Raw("(")
}

// Number writes a message's number or UID.
func (t *ThreadResponse) Number(n uint32) {
	t.writeSpace()
	t.w.Number(uint64(n))
	t.needsSpace = true
}

// Close ends a thread or a branch.
func (t *ThreadResponse) Close() {
	t.w.Raw(")")
	t.needsSpace = false
}

// End ends the answer.
func (t *ThreadResponse) End() { t.w.CRLF() }

func (t *ThreadResponse) writeSpace() {
	if t.needsSpace {
		t.w.SP()
	}
	t.needsSpace = false
}
