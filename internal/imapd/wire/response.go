// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/base64"

// Tagged completes a command. Code may be empty; the text must not be.
func (w *Writer) Tagged(tag string, status Status, code Code, text string) {
	w.Raw(tag).SP().status(status, code, text)
}

// Untagged writes a status response that belongs to no command: greeting,
// BYE, [UIDNEXT …] and the like.
func (w *Writer) Untagged(status Status, code Code, text string) {
	w.Raw("* ").status(status, code, text)
}

// Refuse answers a command that ReadCommand or the session refused: tagged if
// there is a tag, BYE always untagged.
func (w *Writer) Refuse(tag string, e *Error) {
	if tag == "" || e.Status == Bye {
		w.Untagged(e.Status, e.Code, e.Text)
		return
	}
	w.Tagged(tag, e.Status, e.Code, e.Text)
}

// Continue sends a continuation request and flushes: the client waits for it.
func (w *Writer) Continue(text string) error {
	w.Raw("+ ").text(text).CRLF()
	return w.Flush()
}

// Challenge sends a SASL challenge, which may be empty, and flushes.
func (w *Writer) Challenge(challenge []byte) error {
	w.Raw("+ ").Raw(base64.StdEncoding.EncodeToString(challenge)).CRLF()
	return w.Flush()
}

func (w *Writer) status(status Status, code Code, text string) {
	w.Raw(string(status)).SP()
	if code != "" {
		w.Raw("[").Raw(string(code)).Raw("] ")
	}
	w.text(text).CRLF()
}

// text writes human-readable text, which is never empty, on one line.
func (w *Writer) text(s string) *Writer {
	if s == "" {
		s = "."
	}
	b := w.reserve()
	for i := range len(s) {
		c := s[i]
		if c < 0x20 || c == 0x7f {
			c = ' '
		}
		b = append(b, c)
	}
	w.buf = b
	return w
}

// Exists is * n EXISTS.
func (w *Writer) Exists(n uint32) { w.numberLine(n, "EXISTS") }

// Recent is * n RECENT.
func (w *Writer) Recent(n uint32) { w.numberLine(n, "RECENT") }

// Expunge is * n EXPUNGE.
func (w *Writer) Expunge(seq uint32) { w.numberLine(seq, "EXPUNGE") }

func (w *Writer) numberLine(n uint32, name string) {
	w.Raw("* ").Number(uint64(n)).SP().Raw(name).CRLF()
}

// Vanished is * VANISHED uids, or VANISHED (EARLIER) in answer to QRESYNC or
// FETCH (RFC 7162 §3.2.10). An empty set writes nothing.
func (w *Writer) Vanished(earlier bool, uids Set) {
	if len(uids) == 0 {
		return
	}
	w.Raw("* VANISHED ")
	if earlier {
		w.Raw("(EARLIER) ")
	}
	w.Set(uids).CRLF()
}

// FolderFlags is * FLAGS (…): the flags that a mailbox knows.
func (w *Writer) FolderFlags(f Flags) { w.Raw("* FLAGS ").Flags(f).CRLF() }

// Capability is * CAPABILITY ….
func (w *Writer) Capability(names ...string) { w.nameList("* CAPABILITY", names) }

// Enabled is * ENABLED …, with what ENABLE has newly enabled.
func (w *Writer) Enabled(names ...string) { w.nameList("* ENABLED", names) }

func (w *Writer) nameList(start string, names []string) {
	w.Raw(start)
	for _, n := range names {
		w.SP().Raw(n)
	}
	w.CRLF()
}

// PersonalNamespace is * NAMESPACE with one personal namespace without a
// prefix and no other (RFC 2342).
func (w *Writer) PersonalNamespace(separator byte) {
	w.Raw(`* NAMESPACE (("" `)
	w.separator(separator)
	w.Raw(")) NIL NIL").CRLF()
}

func (w *Writer) separator(c byte) {
	if c == 0 {
		w.Raw("NIL")
		return
	}
	w.String(string(rune(c)))
}

// ID is * ID (…), or * ID NIL.
func (w *Writer) ID(params ...IDParam) {
	w.Raw("* ID ")
	if len(params) == 0 {
		w.Raw("NIL").CRLF()
		return
	}
	for i, p := range params {
		if i == 0 {
			w.Raw("(")
		} else {
			w.SP()
		}
		w.String(p.Key).SP().NString(p.Value, !p.NoValue)
	}
	w.Raw(")").CRLF()
}

// Quota is * QUOTA (RFC 9208). Each resource gives its usage and limit.
func (w *Writer) Quota(root string, resources ...QuotaUsage) {
	w.Raw("* QUOTA ").AString(root).Raw(" (")
	for i, q := range resources {
		if i > 0 {
			w.SP()
		}
		w.Raw(q.Resource).SP().Number(q.Usage).SP().Number(q.Limit)
	}
	w.Raw(")").CRLF()
}

// QuotaUsage is one resource of a quota root, in its unit: KiB for STORAGE.
type QuotaUsage struct {
	Resource     string
	Usage, Limit uint64
}

// QuotaRoot is * QUOTAROOT.
func (w *Writer) QuotaRoot(mailbox string, roots ...string) {
	w.Raw("* QUOTAROOT ").Mailbox(mailbox)
	for _, root := range roots {
		w.SP().AString(root)
	}
	w.CRLF()
}
