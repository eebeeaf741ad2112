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

func (r *Reader) selectMailbox(readOnly bool) (Command, error) {
	cmd := Select{ReadOnly: readOnly}
	var err error
	if cmd.Mailbox, err = r.mailbox(); err != nil || !r.accept(' ') {
		return &cmd, err
	}
	err = r.list(maxListItems, func() (err error) {
		switch string(r.word()) {
		case "CONDSTORE":
			cmd.CondStore = true
		case "QRESYNC":
			if err := r.sp(); err != nil {
				return err
			}
			cmd.CondStore = true
			cmd.QResync, err = r.qresync()
		default:
			return bad("There is no such SELECT parameter.")
		}
		return err
	})
	return &cmd, err
}

// qresync takes (uidvalidity modseq [known-uids] [(seqs uids)]).
func (r *Reader) qresync() (*QResync, error) {
	var q QResync
	var err error
	if err = r.expect('('); err != nil {
		return nil, err
	}
	if q.UIDValidity, err = r.nzNumber32(); err != nil {
		return nil, err
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	if q.ModSeq, err = r.modSeq(); err != nil {
		return nil, err
	}
	more := r.accept(' ')
	if more && r.peek() != '(' {
		if q.Known, err = r.setWithoutStar(); err != nil {
			return nil, err
		}
		more = r.accept(' ')
	}
	if more {
		if err = r.seqMatch(&q); err != nil {
			return nil, err
		}
	}
	return &q, r.expect(')')
}

func (r *Reader) seqMatch(q *QResync) (err error) {
	if err = r.expect('('); err != nil {
		return err
	}
	if q.MatchSeqs, err = r.setWithoutStar(); err != nil {
		return err
	}
	if err = r.sp(); err != nil {
		return err
	}
	if q.MatchUIDs, err = r.setWithoutStar(); err != nil {
		return err
	}
	if q.MatchSeqs.Count() != q.MatchUIDs.Count() {
		return bad("The two sets of QRESYNC do not match.")
	}
	return r.expect(')')
}

// setWithoutStar takes a set without "*" and makes it normal.
func (r *Reader) setWithoutStar() (Set, error) {
	s, err := r.set()
	if err == nil && s.HasStar() {
		return nil, bad("A set cannot hold * here.")
	}
	return s.Resolve(0), err
}
