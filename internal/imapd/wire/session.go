// SPDX-License-Identifier: Apache-2.0

package wire

// Enable is ENABLE (RFC 9051 §6.3.1), with the capabilities in upper case.
type Enable struct{ Capabilities []string }

// Name returns the command's name.
func (*Enable) Name() string { return "ENABLE" }

func (r *Reader) enable() (Command, error) {
	var cmd Enable
	for {
		w := r.word()
		if len(w) == 0 {
			return nil, errSyntax
		}
		if len(cmd.Capabilities) == maxListItems {
			return nil, overLimit("A list has too many entries.")
		}
		cmd.Capabilities = append(cmd.Capabilities, string(w))
		if !r.accept(' ') {
			return &cmd, nil
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

func (r *Reader) id() (Command, error) {
	var cmd ID
	if r.acceptWord("NIL") {
		return &cmd, nil
	}
	err := r.list(maxIDParams, func() error {
		key, err := r.str()
		if err != nil {
			return err
		}
		if err := r.sp(); err != nil {
			return err
		}
		value, ok, err := r.nstring()
		if err != nil {
			return err
		}
		if len(key) > maxIDKey || len(value) > maxIDValue {
			return overLimit("A field of ID is too long.")
		}
		cmd.Params = append(cmd.Params, IDParam{key, value, !ok})
		return nil
	})
	return &cmd, err
}

// Compress is COMPRESS (RFC 4978), with the mechanism in upper case.
type Compress struct{ Mechanism string }

// Name returns the command's name.
func (*Compress) Name() string { return "COMPRESS" }

func (r *Reader) compress() (Command, error) {
	w := r.word()
	if len(w) == 0 {
		return nil, errSyntax
	}
	return &Compress{string(w)}, nil
}
