// SPDX-License-Identifier: Apache-2.0

package wire

// Select is SELECT or, with WithReadOnly, EXAMINE.
type Select struct {
	Mailbox   string
	ReadOnly  bool
	CondStore bool     // RFC 7162 §3.1.8; also set by QRESYNC
	QResync   *QResync // nil if not asked for
}

// QResync is what a client remembers of a mailbox (RFC 7162 §3.2.5).
type QResync struct {
	UIDValidity uint32
	ModSeq      uint64
	Known       Set // UIDs the client knows, without Star; nil for all
	MatchSeqs   Set // with MatchUIDs: pairs of sequence number and UID, in order
	MatchUIDs   Set
}

// Name returns the command's name.
func (c *Select) Name() string {
	if c.ReadOnly {
		return "EXAMINE"
	}
	return "SELECT"
}

func (r *Reader) selectMailbox(readOnly bool) Command {
	cmd := Select{ReadOnly: readOnly, Mailbox: r.mailbox()}
	if !r.accept(' ') {
		return &cmd
	}
	r.list(maxListItems, func() {
		cmd.CondStore = true
		switch string(r.word()) {
		case "CONDSTORE":
		case "QRESYNC":
			r.sp()
			cmd.QResync = r.qresync()
		default:
			fail(bad("There is no such SELECT parameter."))
		}
	})
	return &cmd
}

// qresync takes (uidvalidity modseq [known-uids] [(seqs uids)]).
func (r *Reader) qresync() *QResync {
	var q QResync
	r.expect('(')
	q.UIDValidity = r.nzNumber32()
	r.sp()
	q.ModSeq = r.modSeq()
	more := r.accept(' ')
	if more && r.peek() != '(' {
		q.Known = r.setWithoutStar()
		more = r.accept(' ')
	}
	if more {
		r.expect('(')
		q.MatchSeqs = r.setWithoutStar()
		r.sp()
		q.MatchUIDs = r.setWithoutStar()
		if q.MatchSeqs.Count() != q.MatchUIDs.Count() {
			fail(bad("The two sets of QRESYNC do not match."))
		}
		r.expect(')')
	}
	r.expect(')')
	return &q
}

// setWithoutStar takes a set without "*" and makes it normal.
func (r *Reader) setWithoutStar() Set {
	s := r.set()
	if s.HasStar() {
		fail(bad("A set cannot hold * here."))
	}
	return s.Resolve(0)
}
