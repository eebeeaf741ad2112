// SPDX-License-Identifier: Apache-2.0

package wire

// StoreOp says what STORE does with its flags.
type StoreOp uint8

// The operations.
const (
	StoreReplace StoreOp = iota // FLAGS
	StoreAdd                    // +FLAGS
	StoreRemove                 // -FLAGS
)

// Store is STORE.
type Store struct {
	Messages          NumSet
	Op                StoreOp
	Silent            bool
	Flags             Flags
	UnchangedSince    uint64 // RFC 7162 §3.1.3
	HasUnchangedSince bool
}

// Name returns the command's name.
func (c *Store) Name() string { return uidName(c.Messages.UID, "STORE") }

func (r *Reader) store(uid bool) Command {
	cmd := Store{Messages: r.numSet(uid)}
	r.sp()
	if r.peek() == '(' {
		r.list(1, func() {
			if !r.acceptWord("UNCHANGEDSINCE") {
				fail(bad("There is no such STORE modifier."))
			}
			r.sp()
			cmd.UnchangedSince, cmd.HasUnchangedSince = r.modSeq(), true
		})
		r.sp()
	}
	if r.accept('+') {
		cmd.Op = StoreAdd
	} else if r.accept('-') {
		cmd.Op = StoreRemove
	}
	switch string(r.word()) {
	case "FLAGS":
	case "FLAGS.SILENT":
		cmd.Silent = true
	default:
		fail(bad("STORE changes FLAGS and nothing else."))
	}
	r.sp()
	cmd.Flags = r.flags()
	return &cmd
}
