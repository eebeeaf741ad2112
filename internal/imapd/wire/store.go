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

func (r *Reader) store(uid bool) (Command, error) {
	var cmd Store
	var err error
	if cmd.Messages, err = r.numSet(uid); err != nil {
		return nil, err
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	if r.peek() == '(' {
		if err = r.list(1, func() error { return r.storeModifier(&cmd) }); err != nil {
			return nil, err
		}
		if err = r.sp(); err != nil {
			return nil, err
		}
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
		return nil, bad("STORE changes FLAGS and nothing else.")
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	cmd.Flags, err = r.flags()
	return &cmd, err
}

func (r *Reader) storeModifier(cmd *Store) (err error) {
	if !r.acceptWord("UNCHANGEDSINCE") {
		return bad("There is no such STORE modifier.")
	}
	if err = r.sp(); err != nil {
		return err
	}
	cmd.HasUnchangedSince = true
	cmd.UnchangedSince, err = r.modSeq()
	return err
}
