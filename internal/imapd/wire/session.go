// SPDX-License-Identifier: Apache-2.0

package wire

// Enable is ENABLE (RFC 9051 §6.3.1), with the capabilities in upper case.
type Enable struct{ Capabilities []string }

// Name returns the command's name.
func (*Enable) Name() string { return "ENABLE" }

func (r *Reader) enable() Command {
	var cmd Enable
	for {
		w := r.nonEmptyWord()
		if len(cmd.Capabilities) == maxListItems {
			fail(overLimit("A list has too many entries."))
		}
		cmd.Capabilities = append(cmd.Capabilities, w)
		if !r.accept(' ') {
			return &cmd
		}
	}
}

// ID is ID (RFC 2971): what the client says of itself; empty for NIL.
type ID struct{ Params []IDParam }

// IDParam is one field of ID. Its value may be absent (NIL).
type IDParam struct {
	Key, Value string
	NoValue    bool
}

// Name returns the command's name.
func (*ID) Name() string { return "ID" }

// Limits of RFC 2971 §3.3.
const (
	maxIDParams = 30
	maxIDKey    = 30
	maxIDValue  = 1024
)

func (r *Reader) id() Command {
	var cmd ID
	if r.acceptWord("NIL") {
		return &cmd
	}
	r.list(maxIDParams, func() {
		key := r.str()
		r.sp()
		value, ok := r.nstring()
		if len(key) > maxIDKey || len(value) > maxIDValue {
			fail(overLimit("A field of ID is too long."))
		}
		cmd.Params = append(cmd.Params, IDParam{key, value, !ok})
	})
	return &cmd
}

// Compress is COMPRESS (RFC 4978), with the mechanism in upper case.
type Compress struct{ Mechanism string }

// Name returns the command's name.
func (*Compress) Name() string { return "COMPRESS" }
